//! What the objects of a release have besides what the chart says: their owner, and the chart's label.
//!
//! An owner reference leads from an object to an owner in its own namespace, or to one that is in none. Every other
//! object gets annotations that name the owner, and so does one that the chart keeps: the garbage collector must not
//! take it away. Names and rules are operator-sdk's.

use kubewright::kube::core::{ApiResource, ObjectMeta};
use serde_json::{Map, Value, json};

use super::manifest::{Part, object};

/// The label with the chart's name.
pub(super) const CHART: &str = "helm.sdk.operatorframework.io/chart";
/// The annotation with the owner's namespace and name.
pub(super) const OWNER: &str = "operator-sdk/primary-resource";
/// The annotation with the owner's kind and group.
pub(super) const OWNER_KIND: &str = "operator-sdk/primary-resource-type";

/// The object that a release belongs to.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub(super) resource: ApiResource,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Owner {
    pub(super) fn of(resource: &ApiResource, meta: &ObjectMeta) -> Owner {
        Owner {
            resource: resource.clone(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    /// The reference to it, as `metav1.NewControllerRef` makes it.
    pub(super) fn reference(&self) -> Value {
        json!({
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// `Nginx.demo.example.com`, as Go prints a group and kind.
    pub(super) fn group_kind(&self) -> String {
        group_kind(&self.resource)
    }

    fn annotations(&self) -> [(&'static str, String); 2] {
        let key = match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        };
        [(OWNER, key), (OWNER_KIND, self.group_kind())]
    }

    /// Marks an object, which is in this namespace unless it is in none.
    pub(super) fn mark(&self, part: &mut Part, namespace: Option<&str>, chart: &str) {
        let referred = self.namespace.is_none() || self.namespace.as_deref() == namespace;
        if referred && !part.is_kept() {
            let reference = self.reference();
            let owners = part.metadata().entry("ownerReferences").or_insert(Value::Null);
            match owners {
                Value::Array(owners) => owners.push(reference),
                _ => *owners = Value::Array(vec![reference]),
            }
        } else {
            let annotations = object(part.metadata(), "annotations");
            for (name, value) in self.annotations() {
                annotations.insert(name.to_owned(), Value::String(value));
            }
        }
        let labels = object(part.metadata(), "labels");
        labels.insert(CHART.to_owned(), Value::String(chart.to_owned()));
    }

    /// Takes the marks of an object away, also those that another program has made: a release of one that writes them
    /// into the manifest is the same release.
    pub(super) fn unmark(&self, part: &mut Part) {
        let metadata = part.metadata();
        if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
            owners.retain(|owner| owner["uid"] != self.uid.as_str());
        }
        for (field, names) in [("annotations", &[OWNER, OWNER_KIND][..]), ("labels", &[CHART][..])] {
            if let Some(Value::Object(map)) = metadata.get_mut(field) {
                names.iter().for_each(|name| drop(map.remove(*name)));
            }
        }
        metadata.retain(|_, value| !is_empty(value));
    }
}

/// Whether nothing stands there.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// A group and kind, as Go prints them.
pub(super) fn group_kind(resource: &ApiResource) -> String {
    match resource.group.is_empty() {
        true => resource.kind.clone(),
        false => format!("{}.{}", resource.kind, resource.group),
    }
}

/// The namespace and name in an object's annotations, when they name an owner of this kind.
pub(super) fn annotated(meta: &ObjectMeta, kind: &str) -> Option<(Option<String>, String)> {
    let annotations = meta.annotations.as_ref()?;
    (annotations.get(OWNER_KIND)? == kind).then_some(())?;
    let key = annotations.get(OWNER)?;
    Some(match key.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()).filter(|it| !it.is_empty()), name.to_owned()),
        None => (None, key.clone()),
    })
}

/// Whether two manifests say the same, but for the marks.
pub(super) fn same(owner: &Owner, one: &[Part], other: &[Part]) -> bool {
    let plain = |parts: &[Part]| -> Vec<Map<String, Value>> {
        let mut parts = parts.to_vec();
        parts.iter_mut().for_each(|part| owner.unmark(part));
        parts.into_iter().map(|part| part.0).collect()
    };
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::kube::core::GroupVersionKind;

    fn owner() -> Owner {
        Owner {
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk("demo.example.com", "v1", "Nginx")),
            namespace: Some("n".to_owned()),
            name: "web".to_owned(),
            uid: "1-2".to_owned(),
        }
    }

    fn part(text: &str) -> Part {
        super::super::manifest::parts(text).expect("a manifest").remove(0)
    }

    #[test]
    fn an_owner_is_a_reference_or_annotations() {
        let check = |metadata: &str, namespace: Option<&str>, referred: bool| {
            let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}");
            let (before, mut marked) = (part(&text), part(&text));
            owner().mark(&mut marked, namespace, "nginx");
            let metadata = &marked.0["metadata"];
            assert_eq!(metadata["labels"][CHART], "nginx");
            assert_eq!(metadata["ownerReferences"][0]["uid"] == "1-2", referred, "{text}");
            let meta: ObjectMeta = serde_json::from_value(metadata.clone()).expect("metadata");
            let named = annotated(&meta, "Nginx.demo.example.com");
            assert_eq!(named.is_some(), !referred, "{text}");
            if let Some(named) = named {
                assert_eq!(named, (Some("n".to_owned()), "web".to_owned()));
            }
            assert_eq!(annotated(&meta, "Nginx.other.example.com"), None);
            assert!(same(&owner(), std::slice::from_ref(&before), &[marked]), "{text}");
            assert!(!same(&owner(), &[before], &[]));
        };
        check("{name: a}", Some("n"), true);
        check("{name: a, labels: {x: z}}", Some("n"), true);
        check("{name: a}", Some("other"), false);
        check("{name: a}", None, false);
        check(
            "{name: a, annotations: {helm.sh/resource-policy: keep}}",
            Some("n"),
            false,
        );
    }
}
