//! The way from a node to the database, which a test can cut: what is under way then comes when it is whole again, or never, as
//! on a network. Nobody is told of a cut.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Carries bytes to a port until it is dropped.
pub struct Relay {
    /// Where it listens.
    pub port: u16,
    cut: watch::Sender<bool>,
    _accepting: AbortOnDropHandle<()>,
}

impl Relay {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (cut, is_cut) = watch::channel(false);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(carry(client, to, is_cut.clone()));
            }
        });
        Self { port, cut, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// From now on nothing passes, in neither direction.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// What was held passes.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

async fn carry(client: TcpStream, to: u16, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| !*cut).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    for side in [&client, &server] {
        let _ = side.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pump(from_client, to_server, cut.clone()) => {}
        () = pump(from_server, to_client, cut) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cut: watch::Receiver<bool>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let Ok(read) = from.read(&mut bytes).await else { return };
        // The end of a connection is not told through a cut, either.
        if cut.wait_for(|cut| !*cut).await.is_err() || read == 0 {
            return;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
