//! The way from a node to the database, which a test can cut: what is under way then comes when it is whole again, or never, as
//! on a network. Nobody is told of a cut. It can be slow, too.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Pieces under way at a time, in each direction of a connection.
const UNDER_WAY: usize = 1_024;

/// Carries bytes to a port of this machine until it is dropped.
pub struct Relay {
    /// Where it listens.
    pub at: SocketAddr,
    state: watch::Sender<State>,
    _accepting: AbortOnDropHandle<()>,
}

/// What the way is like.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_cut: bool,
    /// What is sent arrives so much later.
    delay: Duration,
}

impl Relay {
    /// From some port of an address of this machine.
    pub async fn start(from: IpAddr, to: u16) -> Self {
        let listener = TcpListener::bind((from, 0)).await.expect("a port");
        let at = listener.local_addr().expect("bound");
        let (state, now) = watch::channel(State::default());
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(carry(client, to, now.clone()));
            }
        });
        Self { at, state, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// From now on nothing passes, in neither direction.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.is_cut = true);
    }

    /// What was held passes.
    pub fn mend(&self) {
        self.state.send_modify(|state| state.is_cut = false);
    }

    /// From now on everything takes so long, in each direction.
    pub fn slow(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }
}

async fn carry(client: TcpStream, to: u16, mut state: watch::Receiver<State>) {
    if state.wait_for(|state| !state.is_cut).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    for side in [&client, &server] {
        let _ = side.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pump(from_client, to_server, state.clone()) => {}
        () = pump(from_server, to_client, state) => {}
    }
}

/// Carries one direction until it has ended.
async fn pump(mut from: OwnedReadHalf, to: OwnedWriteHalf, state: watch::Receiver<State>) {
    let (sent, arriving) = mpsc::channel(UNDER_WAY);
    let delayed = state.clone();
    let taking = async move {
        let mut bytes = vec![0; 64 << 10];
        loop {
            // The end of a connection is under way like all else.
            let read = from.read(&mut bytes).await.unwrap_or(0);
            let due = Instant::now() + delayed.borrow().delay;
            if sent.send((due, bytes[..read].to_vec())).await.is_err() || read == 0 {
                return;
            }
        }
    };
    tokio::select! {
        // What was taken arrives still.
        () = async { taking.await; std::future::pending().await } => {}
        () = arrive(arriving, to, state) => {}
    }
}

async fn arrive(
    mut pieces: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) {
    while let Some((due, piece)) = pieces.recv().await {
        tokio::time::sleep_until(due).await;
        // Nor is it told through a cut.
        if state.wait_for(|state| !state.is_cut).await.is_err() || piece.is_empty() {
            return;
        }
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
}
