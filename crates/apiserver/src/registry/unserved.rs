//! Versions that are known without being served: old ones of built-in kinds, which bodies may still be written in.
//!
//! Upstream decodes such a body before it finds that the path does not take it, and its error differs from that for a
//! version that never existed. The versions and kinds are data (`data/unserved.txt`). Not here: the shapes of these
//! kinds, which are not known.

/// Whether a kind of this name was written in this version.
pub(crate) fn knows(api_version: &str, kind: &str) -> bool {
    include_str!("../../data/unserved.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .any(|(version, kinds)| version == api_version && kinds.split(' ').any(|known| known == kind))
}

/// The error for a body of the right kind, but of a version that its path does not take.
pub(crate) fn mismatch(said: &str, expected: &str) -> String {
    format!("the API version in the data ({said}) does not match the expected API version ({expected})")
}

#[cfg(test)]
mod tests {
    #[test]
    fn old_versions_are_known() {
        for (version, kind, want) in [
            ("apps/v1beta1", "Deployment", true),
            ("apps/v1beta1", "DaemonSet", false),
            ("extensions/v1beta1", "Ingress", true),
            ("apps/v1", "Deployment", false),
            ("#", "Versions", false),
        ] {
            assert_eq!(super::knows(version, kind), want, "{version} {kind}");
        }
    }
}
