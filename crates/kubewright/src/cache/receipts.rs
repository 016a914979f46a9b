//! Which of our own writes an informer has not shown yet.
//!
//! A receipt is left when the API server acknowledges a write, and removed as soon as the informer's store has reached it. Everything is
//! decided from the store's version, the object's version and the uid: events may be merged, a bookmark or a relist counts as well.
//!
//! Invariants: K1 a receipt is removed only when the store holds the write or something newer; K2 a write outside the informer's scope leaves
//! none, and one that moves the object out of it is over when the object is gone; K3 a delete is over when the object is absent, is another
//! one, or is seen terminating where finalizers or a grace period hold it.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use kubewright_engine::ResourceVersion;

use super::scope::Membership;
use crate::request::Request;

/// What the store must show before a read may trust it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// This version of the object, or a later one. `absent_counts`: also when the object has left the store.
    At {
        version: ResourceVersion,
        absent_counts: bool,
    },
    /// The object is gone. `seen` is the newest version at which it was known to exist: an older store is not "gone" but "not there yet".
    Gone {
        uid: Option<String>,
        seen: Option<ResourceVersion>,
        terminating: bool,
    },
    /// Nobody knows whether the write happened: only the API server can tell.
    Unknown,
}

/// What a store shows for one key.
pub(crate) struct View<'a> {
    pub(crate) store: Option<&'a ResourceVersion>,
    pub(crate) object: Option<&'a ObjectMeta>,
}

impl View<'_> {
    fn object_version(&self) -> Option<ResourceVersion> {
        self.object
            .and_then(|meta| meta.resource_version.as_deref())
            .map(ResourceVersion::new)
    }

    fn store_reached(&self, version: &ResourceVersion) -> bool {
        self.store.is_some_and(|store| store.reached(version))
    }
}

impl Receipt {
    fn satisfied(&self, view: &View<'_>) -> bool {
        match self {
            Receipt::Unknown => false,
            Receipt::At { version, absent_counts } => {
                view.store_reached(version)
                    || view.object_version().is_some_and(|present| present.reached(version))
                    || (*absent_counts && view.object.is_none())
            }
            Receipt::Gone { uid, seen, terminating } => match view.object {
                None => seen.as_ref().is_none_or(|seen| view.store_reached(seen)),
                Some(meta) => {
                    let another = uid.is_some() && meta.uid.is_some() && *uid != meta.uid;
                    another || (*terminating && meta.deletion_timestamp.is_some())
                }
            },
        }
    }
}

/// The receipts of one informer.
#[derive(Debug, Default)]
pub(crate) struct Receipts(BTreeMap<Request, Receipt>);

impl Receipts {
    /// A write was acknowledged with this metadata.
    pub(crate) fn wrote(&mut self, key: Request, meta: &ObjectMeta, membership: Membership, view: &View<'_>) {
        let Some(version) = meta.resource_version.as_deref().map(ResourceVersion::new) else {
            return;
        };
        let pending = self.0.contains_key(&key);
        let receipt = match membership {
            Membership::Inside => Receipt::At {
                version,
                absent_counts: false,
            },
            // Not in the store and nothing on its way there: this informer will never hear of the write.
            Membership::Outside | Membership::Unknown if view.object.is_none() && !pending => return,
            Membership::Outside | Membership::Unknown => Receipt::At {
                version,
                absent_counts: view.object.is_some(),
            },
        };
        self.set(key, receipt, view);
    }

    /// A delete was acknowledged; `meta` is the object when the server answered with it instead of a `Status`.
    pub(crate) fn deleted(&mut self, key: Request, meta: Option<&ObjectMeta>, view: &View<'_>) {
        let pending = match self.0.get(&key) {
            Some(Receipt::At { version, .. }) => Some(version.clone()),
            Some(Receipt::Gone { seen, .. }) => seen.clone(),
            _ => None,
        };
        if view.object.is_none() && pending.is_none() {
            return; // Absent, and nothing is on its way: already as it will be, or outside the scope.
        }
        let uid = meta
            .and_then(|meta| meta.uid.clone())
            .or_else(|| view.object.and_then(|meta| meta.uid.clone()));
        let terminating = meta.is_some_and(|meta| meta.deletion_timestamp.is_some());
        let seen = pending.or_else(|| view.object_version());
        self.set(key, Receipt::Gone { uid, seen, terminating }, view);
    }

    /// The outcome of a write is not known.
    pub(crate) fn unknown(&mut self, key: Request) {
        self.0.insert(key, Receipt::Unknown);
    }

    /// The API server was asked and there is no such object.
    pub(crate) fn known_absent(&mut self, key: Request, view: &View<'_>) {
        self.set(
            key,
            Receipt::Gone {
                uid: None,
                seen: None,
                terminating: false,
            },
            view,
        );
    }

    pub(crate) fn forget(&mut self, key: &Request) {
        self.0.remove(key);
    }

    fn set(&mut self, key: Request, receipt: Receipt, view: &View<'_>) {
        if receipt.satisfied(view) {
            self.0.remove(&key);
        } else {
            self.0.insert(key, receipt);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Request> {
        self.0.keys()
    }

    pub(crate) fn get(&self, key: &Request) -> Option<&Receipt> {
        self.0.get(key)
    }

    /// Whether any receipt is left in the namespace, or at all.
    pub(crate) fn any_in(&self, namespace: Option<&str>) -> bool {
        self.0
            .keys()
            .any(|key| namespace.is_none() || key.namespace() == namespace)
    }

    /// The keys with an unknown outcome in the namespace, or all.
    pub(crate) fn unknown_in(&self, namespace: Option<&str>) -> Vec<Request> {
        let unknown = self.0.iter().filter(|(_, receipt)| matches!(receipt, Receipt::Unknown));
        unknown
            .map(|(key, _)| key)
            .filter(|key| namespace.is_none() || key.namespace() == namespace)
            .cloned()
            .collect()
    }

    /// Drops what the store has reached.
    pub(crate) fn settle<'a>(
        &mut self,
        store: Option<&ResourceVersion>,
        object: impl Fn(&Request) -> Option<&'a ObjectMeta>,
    ) {
        self.0.retain(|key, receipt| {
            !receipt.satisfied(&View {
                store,
                object: object(key),
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, version: &str, deleting: bool) -> ObjectMeta {
        let time = deleting.then_some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ));
        ObjectMeta {
            uid: Some(uid.into()),
            resource_version: Some(version.into()),
            deletion_timestamp: time,
            ..Default::default()
        }
    }

    fn key() -> Request {
        Request::new(Some("default"), "a")
    }

    /// Whether a receipt is left, given what the store shows: (store version, uid and version of the object).
    fn pending(receipts: &mut Receipts, store: &str, object: Option<ObjectMeta>) -> bool {
        receipts.settle(Some(&ResourceVersion::new(store)), |_| object.as_ref());
        !receipts.is_empty()
    }

    fn view<'a>(store: &'a ResourceVersion, object: Option<&'a ObjectMeta>) -> View<'a> {
        View {
            store: Some(store),
            object,
        }
    }

    #[test]
    fn k1_a_write_is_pending_until_the_store_reached_it() {
        let store = ResourceVersion::new("5");
        let check = |shown: &str, object: Option<ObjectMeta>, expected: bool| {
            let mut receipts = Receipts::default();
            receipts.wrote(key(), &meta("u", "10", false), Membership::Inside, &view(&store, None));
            assert_eq!(pending(&mut receipts, shown, object), expected, "store at {shown}");
        };
        check("9", None, true);
        check("9", Some(meta("u", "9", false)), true);
        check("10", Some(meta("u", "10", false)), false);
        check("11", None, false); // a bookmark, or somebody deleted it meanwhile
    }

    #[test]
    fn k2_a_write_outside_the_scope_does_not_block() {
        let store = ResourceVersion::new("5");
        for membership in [Membership::Outside, Membership::Unknown] {
            let mut receipts = Receipts::default();
            receipts.wrote(key(), &meta("u", "10", false), membership, &view(&store, None));
            assert!(receipts.is_empty(), "never in the store: {membership:?}");
            let held = meta("u", "4", false);
            receipts.wrote(key(), &meta("u", "10", false), membership, &view(&store, Some(&held)));
            assert!(
                pending(&mut receipts, "5", Some(held)),
                "still shown as inside: {membership:?}"
            );
            assert!(
                !pending(&mut receipts, "5", None),
                "gone from the store: {membership:?}"
            );
        }
    }

    #[test]
    fn k3_a_delete_is_over_when_absent_or_another_or_terminating() {
        let store = ResourceVersion::new("5");
        let held = meta("u", "4", false);
        let check = |answer: Option<ObjectMeta>, shown: Option<ObjectMeta>, expected: bool| {
            let mut receipts = Receipts::default();
            receipts.deleted(key(), answer.as_ref(), &view(&store, Some(&held)));
            assert_eq!(
                pending(&mut receipts, "6", shown.clone()),
                expected,
                "{answer:?} {shown:?}"
            );
        };
        check(None, Some(meta("u", "4", false)), true);
        check(None, None, false);
        check(None, Some(meta("other", "7", false)), false);
        check(Some(meta("u", "6", true)), Some(meta("u", "6", true)), false);
        check(Some(meta("u", "6", true)), Some(meta("u", "4", false)), true);
    }

    /// Created and deleted before the cache saw either: "absent" must not be taken for "gone" while the creation is still on its way.
    #[test]
    fn k3_a_delete_waits_for_the_creation_that_is_on_its_way() {
        let store = ResourceVersion::new("5");
        let mut receipts = Receipts::default();
        receipts.wrote(key(), &meta("u", "10", false), Membership::Inside, &view(&store, None));
        receipts.deleted(key(), None, &view(&store, None));
        assert!(pending(&mut receipts, "9", None));
        assert!(pending(&mut receipts, "10", Some(meta("u", "10", false))));
        assert!(!pending(&mut receipts, "11", None));
    }

    #[test]
    fn k4_an_unknown_outcome_stays_until_the_api_was_asked() {
        let store = ResourceVersion::new("5");
        let mut receipts = Receipts::default();
        receipts.unknown(key());
        assert!(pending(&mut receipts, "99", None));
        assert_eq!(receipts.unknown_in(Some("default")), [key()]);
        receipts.known_absent(key(), &view(&store, None));
        assert!(receipts.is_empty());
    }
}
