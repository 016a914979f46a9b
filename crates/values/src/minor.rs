//! The minor version of Kubernetes whose API a cluster serves.
//!
//! A cluster has one [`Minor`] for its life. Answers ask for it only where the versions differ; the rest of the
//! program does not know it. A test of the repository lists the places that ask, so that those of a version that is
//! served no longer can be removed.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// A minor version of Kubernetes that can be served, in the order of their releases.
///
/// ```
/// use kubewright_values::Minor;
///
/// assert_eq!("1.37".parse(), Ok(Minor::V37));
/// assert_eq!("v1.36.0".parse(), Ok(Minor::V36));
/// assert_eq!(Minor::V37.to_string(), "1.37");
/// assert_eq!("1.20".parse::<Minor>().unwrap_err().to_string(), "Kubernetes 1.20 is not served; there are 1.36 and 1.37");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Minor {
    /// Kubernetes 1.36.
    #[default]
    V36,
    /// Kubernetes 1.37.
    V37,
}

impl Minor {
    /// All of them, the oldest first.
    pub const ALL: [Minor; 2] = [Minor::V36, Minor::V37];
    /// The oldest.
    pub const OLDEST: Minor = Minor::V36;
    /// The newest.
    pub const NEWEST: Minor = Minor::V37;

    /// The second part of the version.
    pub const fn number(self) -> u32 {
        match self {
            Minor::V36 => 36,
            Minor::V37 => 37,
        }
    }

    /// The release whose answers were recorded, as `/version` and the nodes say it.
    pub const fn version(self) -> &'static str {
        match self {
            Minor::V36 => "v1.36.3",
            Minor::V37 => "v1.37.2",
        }
    }
}

/// Something that is made once for each version, when it is first asked for.
#[derive(Debug, Default)]
pub struct PerMinor<T>([OnceLock<T>; Minor::ALL.len()]);

impl<T> PerMinor<T> {
    /// Nothing is made yet.
    pub const fn new() -> PerMinor<T> {
        PerMinor([const { OnceLock::new() }; Minor::ALL.len()])
    }

    /// That of this version.
    pub fn get_or_init(&self, minor: Minor, make: impl FnOnce() -> T) -> &T {
        self.0[minor as usize].get_or_init(make)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.number())
    }
}

/// The error for a version that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMinor(String);

impl fmt::Display for UnknownMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Minor::ALL.map(|minor| minor.to_string()).join(" and ");
        let wanted = self.0.strip_prefix('v').unwrap_or(&self.0);
        if wanted.starts_with(|first: char| first.is_ascii_digit()) {
            write!(f, "Kubernetes {wanted} is not served; there are {known}")
        } else {
            write!(f, "{wanted:?} is no version of Kubernetes; there are {known}")
        }
    }
}

impl std::error::Error for UnknownMinor {}

impl FromStr for Minor {
    type Err = UnknownMinor;

    /// Reads `1.37`, `v1.37`, and `1.37.4` or `1.37.x`, whose last part does not matter: setup-envtest takes these forms.
    fn from_str(text: &str) -> Result<Minor, UnknownMinor> {
        let unknown = || UnknownMinor(text.to_owned());
        let parts: Vec<&str> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
        let number = match parts[..] {
            ["1", number] => number,
            ["1", number, patch] if patch == "x" || patch.parse::<u32>().is_ok() => number,
            _ => return Err(unknown()),
        };
        let is_it = |minor: &Minor| minor.number().to_string() == number;
        Minor::ALL.into_iter().find(is_it).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_users_write_them() {
        for (text, expected) in [
            ("1.36", Ok(Minor::V36)),
            ("v1.37", Ok(Minor::V37)),
            ("1.37.2", Ok(Minor::V37)),
            ("1.37.x", Ok(Minor::V37)),
            ("1.35", Err("Kubernetes 1.35 is not served; there are 1.36 and 1.37")),
            ("1.037", Err("Kubernetes 1.037 is not served; there are 1.36 and 1.37")),
            ("1.37.", Err("Kubernetes 1.37. is not served; there are 1.36 and 1.37")),
            ("2.37", Err("Kubernetes 2.37 is not served; there are 1.36 and 1.37")),
            (
                "latest",
                Err("\"latest\" is no version of Kubernetes; there are 1.36 and 1.37"),
            ),
            ("", Err("\"\" is no version of Kubernetes; there are 1.36 and 1.37")),
        ] {
            let read = text.parse::<Minor>().map_err(|why| why.to_string());
            assert_eq!(read, expected.map_err(str::to_owned), "{text}");
        }
        assert!(Minor::ALL.is_sorted());
        for minor in Minor::ALL {
            assert_eq!(minor.version().parse(), Ok(minor));
        }
    }
}
