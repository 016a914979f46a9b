//! Listening on addresses as Go's programs write them.

use std::io;

use tokio::net::TcpListener;

/// Listens on `host:port`; `:port` means every address of this machine, of both families where there are two.
pub(crate) async fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return TcpListener::bind(address).await;
    };
    match TcpListener::bind(format!("[::]:{port}")).await {
        // A machine without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        result => result,
    }
}
