//! How clients speak with programs: the protocols of exec, attach and port-forward, and their channels.
//!
//! [`remote`] carries the streams of a command over WebSockets (`websocket`) or SPDY/3.1 (`spdy`); [`port_forward`]
//! connects with ports of a pod. Invariants:
//! - a stream ends when its client goes, when its other end does, and when the server stops;
//! - bytes that a client does not take are not read: nothing is gathered for a slow client.
//!
//! Not here: what is at the other end (a [`Connector`](crate::Connector) knows), and who may be connected with it.

mod forward;
mod ports;
mod remote;
mod spdy;
pub(crate) mod websocket;

use http::Response;
use http::request::Parts;
use tokio_util::sync::CancellationToken;

pub use self::forward::Pod;
pub use self::remote::{Remote, answer as remote};
pub use self::websocket::{ClientMessage, STATUS, STDERR, STDOUT, ended, failed};
use crate::response::ResponseBody;

/// How many pieces may wait for a client.
pub const PIECES: usize = 8;

/// The answer to a client that wants ports of a pod, whichever way; none when it asks for no protocol that is spoken
/// here.
pub fn port_forward(head: &Parts, pod: Pod, ports: &[u16], stop: &CancellationToken) -> Option<Response<ResponseBody>> {
    let spdy = forward::answer(head, pod.clone(), stop);
    spdy.or_else(|| ports::answer(head, pod, ports, stop))
}
