//! The limits of one client.

use std::time::Duration;

use super::descriptors;

/// The limits of one client, over HTTPS. `Limits::default()` is right for nearly everyone.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many connections may be open at the same time. Default 0: as many as the process may open descriptors, less
    /// some for itself, and 65,536 at most; `ulimit -n` says how many descriptors those are, and `kubewright` raises it
    /// as far as it may.
    ///
    /// A quarter of them at most belongs to clients that have not shown yet who they are (by a certificate, or a
    /// request with a token), a quarter to one address of another machine, and seven eighths to this machine. A user has
    /// a share ([`kubewright_apiserver::shares`]): half of them while nobody else has any, and a request on a further
    /// connection is answered with 429. Where
    /// there is no room for a new client, connections that rest are closed: those whose client is unknown first, then
    /// those that have rested longest. When there are none, the new one is closed at once, and the log says so.
    pub connections: usize,
    /// How many requests and watches one HTTP/2 connection may have open (`--http2-max-streams-per-connection`); a
    /// client opens another connection or waits. Default 1000: clients in Rust keep every watch on one connection and
    /// only wait.
    pub streams: u32,
    /// How long a TLS handshake may take. Default 10 seconds.
    pub handshake: Duration,
    /// How long a client may take to send the head of a request. Default 32 seconds, as kube-apiserver.
    pub head: Duration,
    /// How long a connection may rest between two requests. Default 90 seconds, as kube-apiserver.
    pub idle: Duration,
    /// How long the body of a request may take to arrive. Default 60 seconds.
    pub body: Duration,
    /// How long a client may take none of the waiting bytes, such as the events of a watch. Default 60 seconds.
    pub stall: Duration,
    /// After how much silence an HTTP/2 client is asked whether it is still there; it has 15 seconds to answer. Default
    /// 30 seconds, as client-go asks its server.
    pub ping: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 0,
            streams: 1000,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            body: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            ping: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// How many connections that are here and now.
    pub fn places(&self) -> usize {
        match self.connections {
            0 => descriptors::allowed(),
            connections => connections,
        }
    }
}
