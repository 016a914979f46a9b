//! The object that a request is about: its path, its key, and its name in messages.

use kube::core::{ApiResource, ObjectMeta, Request as Requests};
use kubewright_engine::ObjectKey;

use crate::error::{Error, Result};
use crate::form::Form;
use crate::object::{ObjectRef, collection_path};

/// Cluster-scoped types never carry a namespace into a URL, even when the caller gave one.
pub(super) fn scoped<'a>(form: &Form, namespace: Option<&'a str>) -> Option<&'a str> {
    if form.cluster_scoped {
        None
    } else {
        namespace.filter(|namespace| !namespace.is_empty())
    }
}

/// The object of a request.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) resource: &'a ApiResource,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    /// The name is the beginning of one that the server chooses (`generateName`).
    pub(crate) generated: bool,
}

impl<'a> Target<'a> {
    pub(crate) fn new(resource: &'a ApiResource, namespace: Option<&'a str>, name: &'a str) -> Target<'a> {
        Target {
            resource,
            namespace: namespace.filter(|namespace| !namespace.is_empty()),
            name,
            generated: false,
        }
    }

    pub(crate) fn of_object(form: &'a Form, meta: &'a ObjectMeta) -> Result<Target<'a>> {
        let resource = &form.resource;
        let Some(name) = meta.name.as_deref().filter(|name| !name.is_empty()) else {
            return Err(Error::terminal(format!(
                "metadata.name: a {} without a name cannot be written",
                resource.kind
            )));
        };
        Ok(Target::new(resource, scoped(form, meta.namespace.as_deref()), name))
    }

    pub(super) fn requests(&self) -> Requests {
        Requests::new(collection_path(self.resource, self.namespace))
    }

    /// The key of the object; without a name when the server is to choose it.
    pub(super) fn object_key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace, if self.generated { "" } else { self.name })
    }

    pub(super) fn attempt(&self, verb: &str) -> String {
        self.attempt_at(verb, None)
    }

    pub(super) fn attempt_at(&self, verb: &str, subresource: Option<&str>) -> String {
        let object = ObjectRef::named(self.resource, self.namespace, self.name);
        match subresource {
            Some(subresource) => format!("{verb} {subresource} of {object}"),
            None => format!("{verb} {object}"),
        }
    }
}
