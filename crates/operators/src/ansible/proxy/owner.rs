//! Whose an object is that a role makes: the owner is put into its metadata, or into annotations where Kubernetes allows
//! no owner reference.

use kubewright::Request;
use kubewright::kube::core::{GroupVersionKind, ObjectMeta};
use serde_json::{Value, json};

/// Names the owner: `namespace/name`, or a name.
pub(super) const RESOURCE: &str = "operator-sdk/primary-resource";
/// Names its kind: `Kind.group`.
pub(super) const TYPE: &str = "operator-sdk/primary-resource-type";

/// The object for which a run is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its kind.
    pub kind: GroupVersionKind,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// How an object says whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tie {
    /// By an owner reference: it is deleted with its owner.
    Reference,
    /// By annotations: the role deletes it.
    Annotations,
}

impl Owner {
    /// The key of its reconciles.
    pub(super) fn request(&self) -> Request {
        Request::new(self.namespace.as_deref(), &self.name)
    }

    /// How an object in this namespace, or in none, is tied to it (`SupportsOwnerReference` of operator-lib).
    pub(super) fn tie(&self, namespace: Option<&str>) -> Tie {
        match &self.namespace {
            None => Tie::Reference,
            Some(own) if Some(own.as_str()) == namespace => Tie::Reference,
            Some(_) => Tie::Annotations,
        }
    }

    fn api_version(&self) -> String {
        self.kind.api_version()
    }

    /// The text of the annotation with the kind.
    pub(super) fn type_text(kind: &GroupVersionKind) -> String {
        match kind.group.is_empty() {
            true => kind.kind.clone(),
            false => format!("{}.{}", kind.kind, kind.group),
        }
    }

    /// Ties an object to it.
    ///
    /// # Errors
    /// When it has no metadata that could say it.
    pub(super) fn own(&self, object: &mut Value, tie: Tie) -> Result<(), String> {
        let fields = object.as_object_mut().ok_or("the object is no JSON object")?;
        let meta = fields.entry("metadata").or_insert_with(|| json!({}));
        let meta = meta.as_object_mut().ok_or("metadata is no JSON object")?;
        match tie {
            Tie::Reference => {
                let owners = meta.entry("ownerReferences").or_insert_with(|| json!([]));
                if owners.is_null() {
                    *owners = json!([]);
                }
                let owners = owners.as_array_mut().ok_or("metadata.ownerReferences is no list")?;
                if !owners.iter().any(|owner| owner["uid"] == self.uid.as_str()) {
                    owners.push(json!({
                        "apiVersion": self.api_version(), "kind": self.kind.kind, "name": self.name, "uid": self.uid,
                    }));
                }
            }
            Tie::Annotations => {
                let notes = meta.entry("annotations").or_insert_with(|| json!({}));
                if notes.is_null() {
                    *notes = json!({});
                }
                let notes = notes.as_object_mut().ok_or("metadata.annotations is no map")?;
                let name = match &self.namespace {
                    Some(namespace) => format!("{namespace}/{}", self.name),
                    None => self.name.clone(),
                };
                notes.insert(RESOURCE.to_owned(), json!(name));
                notes.insert(TYPE.to_owned(), json!(Owner::type_text(&self.kind)));
            }
        }
        Ok(())
    }
}

/// The keys of the objects of a kind to which an object says that it belongs. `namespaced`: whether objects of the kind
/// live in namespaces.
pub(super) fn owners_of(meta: &ObjectMeta, kind: &GroupVersionKind, namespaced: bool) -> Vec<Request> {
    let group = |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let referred = meta.owner_references.iter().flatten();
    let referred = referred.filter(|owner| owner.kind == kind.kind && group(&owner.api_version) == kind.group);
    let own = meta.namespace.as_deref().filter(|_| namespaced);
    let mut keys: Vec<Request> = referred.map(|owner| Request::new(own, &owner.name)).collect();
    let note = |name: &str| meta.annotations.as_ref().and_then(|notes| notes.get(name));
    if note(TYPE).is_some_and(|text| *text == Owner::type_text(kind))
        && let Some(name) = note(RESOURCE)
    {
        keys.push(match name.split_once('/') {
            Some((namespace, name)) => Request::new(Some(namespace), name),
            None => Request::new(None, name),
        });
    }
    keys.sort();
    keys.dedup();
    keys
}

/// How an object is tied to objects of a kind, if it is.
pub(super) fn ties_of(meta: &ObjectMeta, kind: &GroupVersionKind) -> Option<Tie> {
    if owners_of(meta, kind, true).is_empty() {
        return None;
    }
    let noted = meta.annotations.as_ref().is_some_and(|notes| notes.contains_key(TYPE));
    Some(if noted { Tie::Annotations } else { Tie::Reference })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(namespace: Option<&str>) -> Owner {
        Owner {
            kind: GroupVersionKind::gvk("g.io", "v1", "Shop"),
            namespace: namespace.map(str::to_owned),
            name: "s".to_owned(),
            uid: "u".to_owned(),
        }
    }

    #[test]
    fn an_owner_reference_where_kubernetes_allows_it() {
        let check =
            |own: Option<&str>, of: Option<&str>, tie: Tie| assert_eq!(owner(own).tie(of), tie, "{own:?} {of:?}");
        check(Some("a"), Some("a"), Tie::Reference);
        check(Some("a"), Some("b"), Tie::Annotations);
        check(Some("a"), None, Tie::Annotations);
        check(None, Some("a"), Tie::Reference);
        check(None, None, Tie::Reference);
    }

    #[test]
    fn what_is_tied_leads_back() {
        let check = |owner: &Owner, tie: Tie, mut object: Value, expected: Value| {
            owner.own(&mut object, tie).expect("it is tied");
            owner.own(&mut object, tie).expect("once is enough");
            assert_eq!(object, expected);
            let meta: ObjectMeta = serde_json::from_value(object["metadata"].clone()).expect("metadata");
            assert_eq!(
                owners_of(&meta, &owner.kind, owner.namespace.is_some()),
                [owner.request()]
            );
            assert_eq!(ties_of(&meta, &owner.kind), Some(tie));
            let other = GroupVersionKind::gvk("other.io", "v1", "Shop");
            assert_eq!(ties_of(&meta, &other), None);
        };
        let reference = json!({"apiVersion": "g.io/v1", "kind": "Shop", "name": "s", "uid": "u"});
        check(
            &owner(Some("a")),
            Tie::Reference,
            json!({"metadata": {"namespace": "a"}}),
            json!({"metadata": {"namespace": "a", "ownerReferences": [reference]}}),
        );
        check(
            &owner(Some("a")),
            Tie::Annotations,
            json!({"metadata": {"namespace": "b", "annotations": null}}),
            json!({"metadata": {"namespace": "b", "annotations": {RESOURCE: "a/s", TYPE: "Shop.g.io"}}}),
        );
        check(
            &owner(None),
            Tie::Annotations,
            json!({}),
            json!({"metadata": {"annotations": {RESOURCE: "s", TYPE: "Shop.g.io"}}}),
        );
        for wrong in [
            json!([]),
            json!({"metadata": 1}),
            json!({"metadata": {"ownerReferences": 1}}),
        ] {
            assert!(
                owner(Some("a")).own(&mut wrong.clone(), Tie::Reference).is_err(),
                "{wrong}"
            );
        }
    }
}
