//! Waits for a state: look, and look again at every change, until it is there or the deadline is.
//!
//! They ask the server itself, by list and watch, and not the cache of the operator under test: a test must not share
//! the operator's errors.

use std::ops::ControlFlow;
use std::pin::pin;

use futures::TryStreamExt as _;
use kubewright::Object;
use kubewright::kube::api::{ListParams, WatchEvent, WatchParams};
use kubewright::kube::{self, Api};
use serde_json::Value;

/// The objects of one kind that a wait is about, by name.
pub(crate) struct Observed<K> {
    pub(crate) objects: Vec<K>,
    /// The last state before it went.
    pub(crate) last: Option<K>,
}

/// Which objects: those of a namespace, or the one with a name.
pub(crate) fn selector(namespace: Option<&str>, name: Option<&str>) -> String {
    let namespace = namespace.map(|namespace| format!("metadata.namespace={namespace}"));
    let name = name.map(|name| format!("metadata.name={name}"));
    namespace.into_iter().chain(name).collect::<Vec<_>>().join(",")
}

/// Keeps `seen` as the server has it, and asks `look` after every change until it breaks. Returns early only with an
/// error.
pub(crate) async fn until<K: Object, T>(
    api: &Api<K>,
    fields: &str,
    seen: &mut Observed<K>,
    mut look: impl FnMut(&Observed<K>) -> ControlFlow<T>,
) -> kube::Result<T> {
    loop {
        let list = api.list(&ListParams::default().fields(fields)).await?;
        seen.replace(list.items);
        if let ControlFlow::Break(found) = look(seen) {
            return Ok(found);
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let params = WatchParams::default().fields(fields);
        let mut events = pin!(api.watch(&params, &version).await?);
        // A watch may end at any time, by its time limit or because its version has expired: then list again.
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => seen.put(object),
                WatchEvent::Deleted(object) => seen.remove(object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) if status.code == 410 => break,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
            if let ControlFlow::Break(found) = look(seen) {
                return Ok(found);
            }
        }
    }
}

impl<K: Object> Observed<K> {
    pub(crate) fn nothing() -> Observed<K> {
        Observed {
            objects: Vec::new(),
            last: None,
        }
    }

    fn replace(&mut self, objects: Vec<K>) {
        let gone = std::mem::replace(&mut self.objects, objects).pop();
        if self.objects.is_empty() {
            self.last = gone.or(self.last.take());
        }
    }

    fn put(&mut self, object: K) {
        let key = |object: &K| (object.meta().namespace.clone(), object.meta().name.clone());
        match self.objects.binary_search_by_key(&key(&object), key) {
            Ok(at) => self.objects[at] = object,
            Err(at) => self.objects.insert(at, object),
        }
    }

    fn remove(&mut self, object: K) {
        self.objects.retain(|other| {
            (&other.meta().namespace, &other.meta().name) != (&object.meta().namespace, &object.meta().name)
        });
        self.last = Some(object);
    }

    /// The text for a person when it did not become as expected.
    pub(crate) fn describe(&self) -> String {
        match (self.objects.as_slice(), &self.last) {
            ([], None) => "it never existed".to_owned(),
            ([], Some(last)) => format!("it is gone; it was last:\n{}", pretty(last)),
            ([one], _) => format!("it is:\n{}", pretty(one)),
            (many, _) => format!(
                "there are {}:\n{}",
                many.len(),
                many.iter().map(pretty).collect::<Vec<_>>().join("\n")
            ),
        }
    }
}

/// An object as JSON, without the bookkeeping of field managers, which does not matter here.
fn pretty<K: Object>(object: &K) -> String {
    let mut value = serde_json::to_value(object).unwrap_or_else(|error| Value::String(format!("not JSON: {error}")));
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    serde_json::to_string_pretty(&value).unwrap_or_else(|error| format!("not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use kubewright::k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.managed_fields = Some(Vec::new());
        object
    }

    #[test]
    fn selectors_name_what_is_known() {
        let check = |namespace, name, expected: &str| assert_eq!(selector(namespace, name), expected);
        check(None, None, "");
        check(Some("a"), None, "metadata.namespace=a");
        check(None, Some("b"), "metadata.name=b");
        check(Some("a"), Some("b"), "metadata.namespace=a,metadata.name=b");
    }

    #[test]
    fn descriptions_show_what_was_there() {
        let mut seen = Observed::nothing();
        assert_eq!(seen.describe(), "it never existed");
        for name in ["b", "a", "b"] {
            seen.put(object(name));
        }
        assert!(seen.describe().starts_with("there are 2:\n"), "{}", seen.describe());
        seen.remove(object("a"));
        let one = seen.describe();
        assert!(
            one.starts_with("it is:\n{") && one.contains("\"name\": \"b\"") && !one.contains("managedFields"),
            "{one}"
        );
        seen.remove(object("b"));
        assert!(
            seen.describe().starts_with("it is gone; it was last:\n"),
            "{}",
            seen.describe()
        );
        seen.replace(vec![object("c")]);
        seen.replace(Vec::new());
        assert!(seen.describe().contains("\"name\": \"c\""), "{}", seen.describe());
    }
}
