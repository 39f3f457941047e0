//! The scripted model server as a program, for benchmarks and by hand:
//! `cargo run --example model-server [-- PORT]`. It prints its base URL and serves until it is killed.

#[path = "it/support/model_server.rs"]
mod model_server;

use std::io::Write;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).map_or(Ok(0), |text| text.parse::<u16>());
    let port = port.map_err(|_| std::io::Error::other("expected a port number"))?;
    let server = model_server::ModelServer::start_on(port, model_server::prompted(), false).await;
    writeln!(std::io::stdout(), "{}", server.base_url())?;
    std::io::stdout().flush()?;
    std::future::pending::<()>().await;
    Ok(())
}
