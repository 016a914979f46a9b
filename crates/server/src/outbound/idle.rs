//! Connections that are kept for the next call to the same host with the same trust.
//!
//! Invariants: so many for a host ([`MOST`]), and for so many hosts ([`HOSTS`]): configurations come and go, and with
//! them hosts and authorities that no call uses again. Where there is no room those that have ended go, then any other.
//!
//! Not hyper-util's pool: it tells connections apart by scheme and host alone, so that a call which trusts one
//! authority could be sent on a connection that another authority vouched for, and it has no bound over all hosts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;

/// How many connections are kept for one host, and for how many hosts.
const MOST: usize = 8;
const HOSTS: usize = 64;

/// The key by which connections may be shared: scheme, host and port, and the trusted certificates.
pub(super) type Key = (String, Bytes);

/// A connection that may be kept.
pub(super) trait Connection {
    /// Whether a request may be sent on it now.
    fn is_ready(&self) -> bool;
    fn has_ended(&self) -> bool;
}

impl Connection for SendRequest<Full<Bytes>> {
    fn is_ready(&self) -> bool {
        SendRequest::is_ready(self)
    }

    fn has_ended(&self) -> bool {
        self.is_closed()
    }
}

pub(super) struct Idle<C>(Mutex<BTreeMap<Key, Vec<C>>>);

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Idle(Mutex::default())
    }
}

impl<C: Connection> Idle<C> {
    pub(super) fn take(&self, key: &Key) -> Option<C> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(key)?;
        while let Some(connection) = kept.pop() {
            if connection.is_ready() {
                return Some(connection);
            }
        }
        idle.remove(key);
        None
    }

    pub(super) fn keep(&self, key: &Key, connection: C) {
        if connection.has_ended() {
            return;
        }
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !idle.contains_key(key) && idle.len() >= HOSTS {
            idle.retain(|_, kept| {
                kept.retain(|connection| !connection.has_ended());
                !kept.is_empty()
            });
            if idle.len() >= HOSTS {
                idle.pop_first();
            }
        }
        let kept = idle.entry(key.clone()).or_default();
        if kept.len() < MOST {
            kept.push(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Ends when it is told to.
    #[derive(Clone, Default)]
    struct Fake(Arc<AtomicBool>);

    impl Connection for Fake {
        fn is_ready(&self) -> bool {
            !self.has_ended()
        }

        fn has_ended(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn key(number: usize) -> Key {
        (format!("https://host-{number}:443"), Bytes::from(vec![7; 1000]))
    }

    fn hosts(idle: &Idle<Fake>) -> usize {
        idle.0.lock().expect("nobody panicked").len()
    }

    #[test]
    fn hosts_that_are_not_requested_again_are_forgotten() {
        let idle = Idle::default();
        let ended = Fake::default();
        for number in 0..HOSTS {
            let connection = if number % 2 == 0 {
                ended.clone()
            } else {
                Fake::default()
            };
            idle.keep(&key(number), connection);
        }
        ended.0.store(true, Ordering::Relaxed);
        idle.keep(&key(1000), Fake::default());
        assert_eq!(hosts(&idle), HOSTS / 2 + 1, "those that have ended make room");
        assert!(idle.take(&key(1)).is_some(), "those that go on are kept");
        for number in 2000..2000 + 3 * HOSTS {
            idle.keep(&key(number), Fake::default());
        }
        assert_eq!(hosts(&idle), HOSTS);
    }

    #[test]
    fn so_many_are_kept_for_a_host() {
        let idle = Idle::default();
        (0..3 * MOST).for_each(|_| idle.keep(&key(1), Fake::default()));
        let taken = std::iter::from_fn(|| idle.take(&key(1))).count();
        assert_eq!(taken, MOST);
        assert_eq!(hosts(&idle), 0);
    }
}
