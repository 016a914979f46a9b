//! Which objects of a kind a cache holds.

use std::fmt;

use kube::core::{ObjectMeta, Selector, SelectorExt};

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

/// How a scope judges an object from its metadata alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    Inside,
    Outside,
    /// A field selector decides, and it is about more than the metadata.
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

    pub(crate) fn membership(&self, meta: &ObjectMeta) -> Membership {
        if self.namespace.is_some() && self.namespace != meta.namespace {
            return Membership::Outside;
        }
        let empty = Default::default();
        if !self.labels.matches(meta.labels.as_ref().unwrap_or(&empty)) {
            return Membership::Outside;
        }
        let Some(fields) = &self.fields else {
            return Membership::Inside;
        };
        let mut membership = Membership::Inside;
        for requirement in fields.split(',').filter(|requirement| !requirement.is_empty()) {
            match judge(requirement, meta) {
                Membership::Outside => return Membership::Outside,
                Membership::Unknown => membership = Membership::Unknown,
                Membership::Inside => {}
            }
        }
        membership
    }
}

/// Judges one requirement of a field selector; the two that every kind supports can be told from the metadata.
fn judge(requirement: &str, meta: &ObjectMeta) -> Membership {
    let (path, wanted, equal) = if let Some((path, wanted)) = requirement.split_once("!=") {
        (path, wanted, false)
    } else if let Some((path, wanted)) = requirement.split_once("==").or_else(|| requirement.split_once('=')) {
        (path, wanted, true)
    } else {
        return Membership::Unknown;
    };
    let actual = match path.trim() {
        "metadata.name" => meta.name.as_deref(),
        "metadata.namespace" => meta.namespace.as_deref(),
        _ => return Membership::Unknown,
    };
    if (actual.unwrap_or_default() == wanted.trim()) == equal {
        Membership::Inside
    } else {
        Membership::Outside
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

    /// K2: a write outside the scope is recognised as such from its metadata, and doubt is told apart from no.
    #[test]
    fn k2_membership_is_judged_from_metadata() {
        let meta = ObjectMeta {
            namespace: Some("default".into()),
            name: Some("hello".into()),
            labels: Some([("app".to_owned(), "web".to_owned())].into()),
            ..Default::default()
        };
        let check = |scope: Scope, expected| assert_eq!(scope.membership(&meta), expected, "{scope}");
        check(Scope::all(), Membership::Inside);
        check(Scope::namespace("default"), Membership::Inside);
        check(Scope::namespace("other"), Membership::Outside);
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
            Membership::Unknown,
        );
    }
}
