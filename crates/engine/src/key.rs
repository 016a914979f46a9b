//! The name of an object within its kind: namespace and name.
//!
//! Keys order by (namespace, name), cluster-scoped objects first, which is the order of every list that the store
//! answers. Both parts are shared strings: cloning a key copies no text. The identity in Kubernetes is this pair; the
//! uid is not part of it (see [`crate::Event`] for delete and recreate). A lookup by borrowed text allocates nothing
//! ([`KeyRef`]).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Namespace and name of an object; client-go's `cache.ObjectName`, controller-runtime's `types.NamespacedName`.
///
/// ```
/// use kubewright_engine::ObjectKey;
/// assert_eq!(ObjectKey::namespaced("default", "hello").to_string(), "default/hello");
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone, Debug)]
pub struct ObjectKey {
    /// `metadata.namespace`; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of `name` in `namespace`; an empty namespace means cluster-scoped, as on the wire.
    pub fn new(namespace: Option<&str>, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.filter(|ns| !ns.is_empty()).map(Arc::from),
            name: Arc::from(name),
        }
    }

    /// The key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(Some(namespace), name)
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> ObjectKey {
        ObjectKey::new(None, name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Anything that can be compared with an [`ObjectKey`] without owning one: the key itself, or a pair `(namespace,
/// name)`.
pub trait KeyRef {
    /// The namespace, `None` for cluster scope.
    fn namespace(&self) -> Option<&str>;
    /// The name.
    fn name(&self) -> &str;
}

impl KeyRef for ObjectKey {
    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
    fn name(&self) -> &str {
        &self.name
    }
}

impl KeyRef for (Option<&str>, &str) {
    fn namespace(&self) -> Option<&str> {
        self.0
    }
    fn name(&self) -> &str {
        self.1
    }
}

impl<'a> dyn KeyRef + 'a {
    fn parts(&self) -> (Option<&str>, &str) {
        (self.namespace(), self.name())
    }
}

impl PartialEq for dyn KeyRef + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}
impl Eq for dyn KeyRef + '_ {}
impl PartialOrd for dyn KeyRef + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for dyn KeyRef + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl<'a> Borrow<dyn KeyRef + 'a> for ObjectKey {
    fn borrow(&self) -> &(dyn KeyRef + 'a) {
        self
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &ObjectKey) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for ObjectKey {}
impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &ObjectKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ObjectKey {
    /// Shared text is compared by address first: within one namespace the text of the namespace is not read.
    fn cmp(&self, other: &ObjectKey) -> Ordering {
        let namespaces = match (&self.namespace, &other.namespace) {
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
            (a, b) => a.as_deref().cmp(&b.as_deref()),
        };
        namespaces.then_with(|| match Arc::ptr_eq(&self.name, &other.name) {
            true => Ordering::Equal,
            false => self.name.cmp(&other.name),
        })
    }
}
impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.name.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn order_is_cluster_scope_then_namespace_then_name() {
        let sorted = ["a", "b", "a/a", "a/b", "ab/a", "b/a"];
        let mut keys: Vec<ObjectKey> = sorted
            .iter()
            .rev()
            .map(|text| match text.split_once('/') {
                Some((ns, name)) => ObjectKey::namespaced(ns, name),
                None => ObjectKey::cluster(text),
            })
            .collect();
        keys.sort();
        assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn empty_namespace_is_cluster_scope() {
        assert_eq!(ObjectKey::new(Some(""), "x"), ObjectKey::cluster("x"));
    }

    #[test]
    fn borrowed_lookup_finds_the_owned_key() {
        let map = BTreeMap::from([(ObjectKey::namespaced("ns", "x"), 1), (ObjectKey::cluster("x"), 2)]);
        let find = |ns: Option<&'static str>| map.get::<dyn KeyRef>(&(ns, "x") as &dyn KeyRef).copied();
        assert_eq!(
            (find(Some("ns")), find(None), find(Some("other"))),
            (Some(1), Some(2), None)
        );
    }
}
