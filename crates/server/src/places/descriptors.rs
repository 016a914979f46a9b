//! How many connections the descriptors of the process allow.

use rustix::process::{Resource, getrlimit};

/// The descriptors that stay for files, the connections that the process itself opens, and sockets that are just
/// closing.
fn reserve(descriptors: usize) -> usize {
    (descriptors / 16).clamp(64, 4096)
}

/// As many as the process may open now, without the reserve.
pub(super) fn allowed() -> usize {
    match getrlimit(Resource::Nofile).current {
        Some(limit) => room(usize::try_from(limit).unwrap_or(usize::MAX)),
        None => room(usize::MAX),
    }
}

/// Each costs memory, too; a higher number has to be configured, even where there are more descriptors.
const MOST: usize = 65_536;

fn room(descriptors: usize) -> usize {
    descriptors.saturating_sub(reserve(descriptors)).clamp(16, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_left_for_the_rest() {
        let check = |descriptors, expected| assert_eq!(room(descriptors), expected, "{descriptors}");
        check(0, 16);
        check(256, 192);
        check(1024, 960);
        check(20_000, 18_750);
        check(1 << 20, MOST);
        check(usize::MAX, MOST);
    }
}
