//! The facts about an object that the machinery needs, and resource versions.
//!
//! [`Meta`] is implemented for a marker type and not for the object, so that a shell can implement it once for every
//! kind of a foreign crate (`struct KubeMeta; impl<K: kube::Resource> Meta<K> for KubeMeta`).
//!
//! Resource versions are compared as Kubernetes allows since KEP-5504: decimal numbers of any length, of one resource
//! type in one cluster. A version that is not a decimal number has no order; it is never treated as older.

use crate::key::ObjectKey;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// How to read key, uid and resource version from an object `V`.
pub trait Meta<V: ?Sized>: 'static {
    /// `metadata.namespace` and `metadata.name`; `None` when the object has no name and thus cannot be stored.
    fn key(object: &V) -> Option<ObjectKey>;
    /// `metadata.uid`; `None` when the API does not say.
    fn uid(object: &V) -> Option<&str>;
    /// `metadata.resourceVersion`; `None` when the API does not say.
    fn resource_version(object: &V) -> Option<&str>;
    /// Whether this one says more about the same version of an object than the stored one does, which it then replaces
    /// in a list: when a store that held a part of each object is to hold the whole.
    fn supersedes(_new: &V, _stored: &V) -> bool {
        false
    }
}

/// A resource version: opaque text for the server, a number of any length for comparisons.
///
/// ```
/// use kubewright_engine::ResourceVersion;
/// use std::cmp::Ordering;
/// let nine = ResourceVersion::new("9");
/// assert_eq!(nine.compare(&ResourceVersion::new("10")), Some(Ordering::Less));
/// assert_eq!(nine.compare(&ResourceVersion::new("v1")), None);
/// assert!(ResourceVersion::new("10").reached(&nine));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceVersion(Arc<str>);

impl ResourceVersion {
    /// The version with this text.
    pub fn new(text: &str) -> ResourceVersion {
        ResourceVersion(Arc::from(text))
    }

    /// The text, as the server wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The order of two versions; `None` when one of them is not a decimal number without leading zeros.
    pub fn compare(&self, other: &ResourceVersion) -> Option<Ordering> {
        compare(&self.0, &other.0)
    }

    /// Whether a cache at this version contains the write at `wanted`. Versions without an order reach only themselves.
    pub fn reached(&self, wanted: &ResourceVersion) -> bool {
        self == wanted || self.compare(wanted).is_some_and(|order| order != Ordering::Less)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> ResourceVersion {
        ResourceVersion::new(text)
    }
}

/// [`ResourceVersion::compare`] on borrowed text.
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    (is_number(a) && is_number(b)).then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_of_any_length() {
        let check = |a: &str, b: &str, want: Option<Ordering>| assert_eq!(compare(a, b), want, "{a} against {b}");
        check("9", "10", Some(Ordering::Less));
        check("10", "10", Some(Ordering::Equal));
        check("100000000000000000000000000001", "99", Some(Ordering::Greater));
        check("0", "1", Some(Ordering::Less));
        check("01", "1", None);
        check("", "1", None);
        check("abc", "1", None);
    }

    #[test]
    fn unordered_versions_reach_only_themselves() {
        let (a, b) = (ResourceVersion::new("a"), ResourceVersion::new("b"));
        assert!(a.reached(&a) && !a.reached(&b) && !b.reached(&a));
    }
}
