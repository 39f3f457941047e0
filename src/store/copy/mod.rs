//! From one store to another one, all of it: `simse store copy`.
//!
//! Both ends are held meanwhile: no server may have them. The other end must be empty; it has all or nothing in the end. Each log is
//! followed by its chain on the way, so that what is damaged is not carried over, and before anybody can see the copy it is read back
//! and held against what was read.

mod digest;
mod kept;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::mpsc;

use self::digest::Digest;
pub use self::digest::Sum;
pub(super) use self::kept::{Kept, KeptListed, KeptRow, KeptSession};
use super::StoreError;
use super::postgres::copied::Held as Database;
use super::sqlite::copied::Held as Directory;
use crate::base::panics::broken;

/// Things that are on their way at once.
const ON_THE_WAY: usize = 256;

/// Where a store is.
#[derive(Debug, Clone)]
pub enum Place {
    /// SQLite in this data directory.
    Directory(PathBuf),
    /// PostgreSQL at this address, and the password where that has none.
    Database(SecretString, Option<SecretString>),
}

/// Copies everything.
///
/// # Errors
/// What could not be read or written, or is damaged ([`StoreError::Damaged`]); [`StoreError::InUse`] and [`StoreError::Occupied`] when
/// a server has one of both. Then the other end is as it was.
pub async fn copy(from: Place, to: Place) -> Result<Sum, StoreError> {
    let (out, input) = mpsc::channel(ON_THE_WAY);
    let (read, written) = tokio::join!(read(from, out), write(to, input));
    // Whoever reads ends when nobody takes what it has: then the other one knows why.
    match (read, written) {
        (_, Ok(sum)) => Ok(sum),
        (Err(error), Err(StoreError::Closed)) => Err(error),
        (_, Err(error)) => Err(error),
    }
}

/// What a place has, summed up. Nothing is changed.
///
/// # Errors
/// As [`copy`].
pub async fn sum(of: Place) -> Result<Sum, StoreError> {
    let (out, mut input) = mpsc::channel(ON_THE_WAY);
    // It takes the input with it when it ends: who reads must not wait for nobody.
    let summed = async move {
        let mut digest = Digest::new();
        while let Some(kept) = input.recv().await {
            if let Message::Kept(kept) = kept {
                digest.take(&kept)?;
            }
        }
        Ok::<_, StoreError>(digest.finish()?.0)
    };
    let (read, summed) = tokio::join!(read(of, out), summed);
    match (read, summed) {
        (Ok(()), summed) => summed,
        (Err(StoreError::Closed), Err(error)) | (Err(error), _) => Err(error),
    }
}

/// What goes from one end to the other one.
enum Message {
    Kept(Kept),
    /// That was all: without it the other end knows that something is missing.
    Whole,
}

async fn read(from: Place, out: mpsc::Sender<Message>) -> Result<(), StoreError> {
    match from {
        Place::Directory(directory) => {
            let read = move || {
                let held = Directory::take(&directory, false)?;
                let closed = |_| StoreError::Closed;
                held.read_all(&mut |kept| out.blocking_send(Message::Kept(kept)).map_err(closed))?;
                out.blocking_send(Message::Whole).map_err(closed)
            };
            blocking(read).await
        }
        Place::Database(address, password) => {
            let password = password.as_ref().map(|password| password.expose_secret());
            let held = Database::take((address.expose_secret(), password)).await?;
            let read = read_database(&held, &out).await;
            held.leave().await?;
            read?;
            out.send(Message::Whole).await.map_err(|_| StoreError::Closed)
        }
    }
}

async fn read_database(held: &Database, out: &mpsc::Sender<Message>) -> Result<(), StoreError> {
    let (kept, mut each) = mpsc::channel(ON_THE_WAY);
    let hand_on = async move {
        while let Some(kept) = each.recv().await {
            out.send(Message::Kept(kept)).await.map_err(|_| StoreError::Closed)?;
        }
        Ok(())
    };
    let read = async {
        let read = held.read_all(&kept).await;
        drop(kept);
        read
    };
    let (read, handed) = tokio::join!(read, hand_on);
    handed.and(read)
}

async fn write(to: Place, mut input: mpsc::Receiver<Message>) -> Result<Sum, StoreError> {
    match to {
        Place::Directory(directory) => blocking(move || write_directory(&directory, &mut input)).await,
        Place::Database(address, password) => {
            let password = password.as_ref().map(|password| password.expose_secret());
            let held = Database::take((address.expose_secret(), password)).await?;
            let written = write_database(&held, &mut input).await;
            drop(input);
            let left = held.leave().await;
            let sum = written?;
            left.map(|()| sum)
        }
    }
}

fn write_directory(directory: &std::path::Path, input: &mut mpsc::Receiver<Message>) -> Result<Sum, StoreError> {
    let held = Directory::take(directory, true)?;
    let mut loading = held.load()?;
    let mut digest = Digest::new();
    loop {
        match input.blocking_recv() {
            Some(Message::Kept(kept)) => {
                if let Some(end) = digest.take(&kept)? {
                    loading.put(end)?;
                }
                loading.put(kept)?;
            }
            Some(Message::Whole) => break,
            None => return Err(StoreError::Closed),
        }
    }
    let (sum, end) = digest.finish()?;
    end.into_iter().try_for_each(|end| loading.put(end))?;
    loading.finish(|held| {
        let mut there = Digest::new();
        held.read_all(&mut |kept| there.take(&kept).map(drop))?;
        same(&sum, &there.finish()?.0)
    })?;
    Ok(sum)
}

async fn write_database(held: &Database, input: &mut mpsc::Receiver<Message>) -> Result<Sum, StoreError> {
    let Some(Message::Kept(Kept::Next(next))) = input.recv().await else { return Err(StoreError::Closed) };
    let mut loading = held.load(next).await?;
    let mut digest = Digest::new();
    loop {
        match input.recv().await {
            Some(Message::Kept(kept)) => {
                if let Some(end) = digest.take(&kept)? {
                    loading.put(end).await?;
                }
                loading.put(kept).await?;
            }
            Some(Message::Whole) => break,
            None => return Err(StoreError::Closed),
        }
    }
    let (sum, end) = digest.finish()?;
    if let Some(end) = end {
        loading.put(end).await?;
    }
    let compare = async |held: &Database| {
        let (kept, mut each) = mpsc::channel(ON_THE_WAY);
        let summed = async move {
            let mut there = Digest::new();
            while let Some(kept) = each.recv().await {
                there.take(&kept)?;
            }
            Ok::<_, StoreError>(there.finish()?.0)
        };
        let read = async {
            let read = held.read_all(&kept).await;
            drop(kept);
            read
        };
        let (read, there) = tokio::join!(read, summed);
        read?;
        same(&sum, &there?)
    };
    loading.finish(compare).await?;
    Ok(sum)
}

fn same(here: &Sum, there: &Sum) -> Result<(), StoreError> {
    if here == there {
        return Ok(());
    }
    let cause = format!("what was read adds up to {}, what was written to {}: nothing was kept", here.hash, there.hash);
    Err(StoreError::Io { doing: "copy".into(), cause })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let failed = |e| StoreError::Io { doing: "copy".into(), cause: broken(e) };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}
