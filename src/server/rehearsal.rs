//! What [`Server::start`] would refuse, all of it at once. Listens nowhere: that a port is taken now, perhaps by the server that
//! is about to be told something else, is no fault of what it is told.

use tokio::net::TcpListener;

use super::{ListenError, ListenOptions, Server, check_allowed, socket, tls};

impl Server {
    /// All that would be refused in these options.
    pub async fn faults(options: &ListenOptions) -> Vec<ListenError> {
        let mut faults = Vec::new();
        match check_allowed(options).await {
            Err(error) => faults.push(error),
            Ok(()) => faults.extend(foreign_address(options).await),
        }
        if let Some(files) = options.tls.clone() {
            faults.extend(tls::read(files).await.err());
        }
        if let Some(path) = options.socket.clone() {
            let looked = tokio::task::spawn_blocking(move || socket::fault(&path)).await;
            faults.extend(looked.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic())));
        }
        faults
    }
}

/// That the address is none of this machine's.
async fn foreign_address(options: &ListenOptions) -> Option<ListenError> {
    let cause = TcpListener::bind((options.host.as_str(), 0)).await.err()?;
    Some(ListenError::Io { host: options.host.clone(), port: options.port, cause })
}
