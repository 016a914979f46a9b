//! As many descriptors as the system gives: each client of a cluster holds one, and most systems start a program with
//! 1024 of them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that systems without an upper one still take (`OPEN_MAX` of macOS).
const WHERE_UNLIMITED: u64 = 10_240;

/// Raises the limit of this process as far as it may. Its child processes inherit that, as with other servers.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(WHERE_UNLIMITED);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    // Less than wished for is no reason not to start.
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of descriptors stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert!(
            limit.current >= limit.maximum.map(|most| most.min(WHERE_UNLIMITED)),
            "{limit:?}"
        );
    }
}
