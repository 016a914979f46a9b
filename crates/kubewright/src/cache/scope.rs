//! Which objects of a kind a cache holds.

use std::fmt;

use kube::core::{ObjectMeta, Selector, SelectorExt};
use kubewright_engine::ObjectKey;
use serde_json::Value;

use crate::form::Cached;

/// The part of a kind's objects that an informer watches. The server filters; the default is everything.
///
/// ```
/// use kubewright::Scope;
/// let scope = Scope::namespace("default").fields("metadata.name=hello");
/// assert_eq!(scope.to_string(), "in namespace default, fields metadata.name=hello");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// A label selector; the default selects everything.
    pub labels: Selector,
    /// A field selector such as `spec.nodeName=node-1`.
    pub fields: Option<String>,
}

/// How a scope judges an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    Inside,
    /// Its selectors do not match.
    Outside,
    /// It is in another namespace, and thus never inside.
    Elsewhere,
    /// A field selector decides, about a field that the API server computes.
    Unknown,
}

impl Scope {
    /// Everything.
    pub fn all() -> Scope {
        Scope::default()
    }

    /// One namespace.
    pub fn namespace(namespace: impl Into<String>) -> Scope {
        Scope {
            namespace: Some(namespace.into()),
            ..Scope::default()
        }
    }

    /// Restricts to objects whose labels match.
    #[must_use]
    pub fn labels(mut self, labels: Selector) -> Scope {
        self.labels = labels;
        self
    }

    /// Restricts to objects whose fields match, such as `status.phase=Running`.
    #[must_use]
    pub fn fields(mut self, fields: impl Into<String>) -> Scope {
        self.fields = Some(fields.into());
        self
    }

    /// Whether labels or fields restrict it, so that an object may enter and leave it.
    pub(crate) fn is_selective(&self) -> bool {
        !self.labels.selects_all() || self.fields.is_some()
    }

    /// Whether this program can say of an object whether it is inside. Some fields only the API server computes.
    pub(crate) fn is_judged_here(&self) -> bool {
        self.requirements()
            .all(|requirement| path_of(requirement).is_some_and(|path| !COMPUTED.contains(&path)))
    }

    /// Whether the metadata of an object say whether it is inside.
    pub(crate) fn is_judged_by_metadata(&self) -> bool {
        self.requirements()
            .all(|requirement| path_of(requirement).is_some_and(|path| IN_METADATA.contains(&path)))
    }

    /// Whether an object of a store is inside; for a scope that [is judged here](Scope::is_judged_here).
    pub(crate) fn selects(&self, object: &dyn Cached) -> bool {
        if self.namespace.is_some() && self.namespace.as_deref() != object.object_id().namespace {
            return false;
        }
        if !self.labels.selects_all() && !self.labels.matches(&object.labels()) {
            return false;
        }
        let id = object.object_id();
        if !self.may_hold_named(id.namespace, id.name.unwrap_or_default()) {
            return false;
        }
        // Then nothing else of the object need be read.
        self.is_judged_by_metadata()
            || self.membership(&object.metadata(), &|| object.json_or_null()) == Membership::Inside
    }

    /// Whether an object of this key could be in it. The empty name stands for any.
    pub(crate) fn may_hold(&self, key: &ObjectKey) -> bool {
        let is_elsewhere = self.namespace.is_some() && self.namespace.as_deref() != key.namespace.as_deref();
        !is_elsewhere && (key.name.is_empty() || self.may_hold_named(key.namespace.as_deref(), &key.name))
    }

    /// Whether the fields allow an object of this name.
    fn may_hold_named(&self, namespace: Option<&str>, name: &str) -> bool {
        if self.fields.is_none() {
            return true;
        }
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            ..Default::default()
        };
        let excludes = |requirement: &str| judge(requirement, &meta, None) == Membership::Outside;
        !self.requirements().any(excludes)
    }

    /// Judges an object; `json` answers all of it, for fields beyond the metadata.
    pub(crate) fn membership(&self, meta: &ObjectMeta, json: &dyn Fn() -> Value) -> Membership {
        if self.namespace.is_some() && self.namespace != meta.namespace {
            return Membership::Elsewhere;
        }
        let empty = Default::default();
        if !self.labels.matches(meta.labels.as_ref().unwrap_or(&empty)) {
            return Membership::Outside;
        }
        let object = (!self.is_judged_by_metadata()).then(json);
        let mut membership = Membership::Inside;
        for requirement in self.requirements() {
            match judge(requirement, meta, object.as_ref()) {
                Membership::Unknown => membership = Membership::Unknown,
                Membership::Inside => {}
                outside => return outside,
            }
        }
        membership
    }

    fn requirements(&self) -> impl Iterator<Item = &str> {
        let fields = self.fields.as_deref().unwrap_or_default();
        fields.split(',').filter(|requirement| !requirement.is_empty())
    }
}

/// Fields that no object has under this name: the API server computes them (of Jobs, Events and Namespaces).
const COMPUTED: [&str; 4] = ["status.successful", "source", "reportingComponent", "name"];

/// Fields of the metadata that every kind supports.
const IN_METADATA: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// The path of a requirement, if it is one.
fn path_of(requirement: &str) -> Option<&str> {
    let (path, _) = requirement.split_once('=')?;
    Some(path.strip_suffix('!').unwrap_or(path).trim())
}

/// Judges one requirement of a field selector. Without the object only the two fields are known that every kind
/// supports.
fn judge(requirement: &str, meta: &ObjectMeta, object: Option<&Value>) -> Membership {
    let (path, wanted, equal) = if let Some((path, wanted)) = requirement.split_once("!=") {
        (path.trim(), wanted.trim(), false)
    } else if let Some((path, wanted)) = requirement.split_once("==").or_else(|| requirement.split_once('=')) {
        (path.trim(), wanted.trim(), true)
    } else {
        return Membership::Unknown;
    };
    let is_wanted = match (path, object) {
        ("metadata.name", _) => meta.name.as_deref().unwrap_or_default() == wanted,
        ("metadata.namespace", _) => meta.namespace.as_deref().unwrap_or_default() == wanted,
        (path, Some(object)) if !COMPUTED.contains(&path) => match field(object, path) {
            Some(is) => is == wanted,
            // An unwritten field has the zero value of its Go type.
            None => ["", "false", "0"].contains(&wanted),
        },
        _ => return Membership::Unknown,
    };
    if is_wanted == equal {
        Membership::Inside
    } else {
        Membership::Outside
    }
}

/// A field as selectors compare it; `None` when it is not set.
fn field(object: &Value, path: &str) -> Option<String> {
    match path.split('.').try_fold(object, |value, name| value.get(name))? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "in namespace {namespace}")?,
            None => f.write_str("in all namespaces")?,
        }
        if !self.labels.selects_all() {
            write!(f, ", labels {}", self.labels)?;
        }
        if let Some(fields) = &self.fields {
            write!(f, ", fields {fields}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// K2: a write outside the scope is recognised as such, and doubt is told apart from no.
    #[test]
    fn k2_membership_is_judged_as_the_server_does() {
        let meta = ObjectMeta {
            namespace: Some("default".into()),
            name: Some("hello".into()),
            labels: Some([("app".to_owned(), "web".to_owned())].into()),
            ..Default::default()
        };
        let json = || json!({ "spec": { "nodeName": "x", "paused": true }, "status": { "replicas": 3 } });
        let check = |scope: Scope, expected| assert_eq!(scope.membership(&meta, &json), expected, "{scope}");
        check(Scope::all(), Membership::Inside);
        check(Scope::namespace("default"), Membership::Inside);
        check(Scope::namespace("other"), Membership::Elsewhere);
        check(
            Scope::all().labels([("app", "web")].into_iter().collect()),
            Membership::Inside,
        );
        check(
            Scope::all().labels([("app", "db")].into_iter().collect()),
            Membership::Outside,
        );
        check(Scope::all().fields("metadata.name=hello"), Membership::Inside);
        check(
            Scope::all().fields("metadata.name!=hello,spec.nodeName=x"),
            Membership::Outside,
        );
        check(
            Scope::all().fields("metadata.namespace==default,spec.nodeName=x"),
            Membership::Inside,
        );
        check(Scope::all().fields("spec.nodeName!=x"), Membership::Outside);
        check(
            Scope::all().fields("spec.paused=true,status.replicas=3"),
            Membership::Inside,
        );
        check(
            Scope::all().fields("spec.hostNetwork=false,status.phase="),
            Membership::Inside,
        );
        check(Scope::all().fields("status.phase=Running"), Membership::Outside);
        check(Scope::all().fields("status.successful=1"), Membership::Unknown);
    }

    #[test]
    fn k2_keys_that_cannot_be_inside_are_known_by_name() {
        let check = |scope: Scope, name: &str, expected| {
            assert_eq!(
                scope.may_hold(&ObjectKey::namespaced("default", name)),
                expected,
                "{scope} {name:?}"
            );
        };
        check(Scope::all(), "a", true);
        check(Scope::namespace("other"), "a", false);
        check(Scope::all().fields("metadata.name=a,spec.nodeName=x"), "a", true);
        check(Scope::all().fields("metadata.name=a"), "b", false);
        check(Scope::all().fields("metadata.name=a"), "", true);
    }
}
