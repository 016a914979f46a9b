//! The key that controllers work on: a namespace and a name, nothing else.
//!
//! Invariant: a cluster-scoped object has no namespace, even if the caller named one; requests made from objects keep
//! it that way, so that one object never has two keys.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::object::Given;

/// Which object to reconcile (controller-runtime's `reconcile.Request`, client-go's `NamespacedName`). Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

impl Request {
    /// A request for an object by namespace and name. An empty namespace is no namespace.
    ///
    /// ```
    /// use kubewright::Request;
    /// assert_eq!(Request::new(Some("default"), "hello").to_string(), "default/hello");
    /// assert_eq!(Request::new(Some(""), "node-1"), Request::new(None, "node-1"));
    /// ```
    pub fn new(namespace: Option<&str>, name: &str) -> Request {
        Request {
            namespace: namespace.filter(|namespace| !namespace.is_empty()).map(Arc::from),
            name: Arc::from(name),
        }
    }

    /// The request for an object. An object without a name (not yet created) yields the empty name, which no object
    /// has.
    pub fn of<'a, K: Resource + 'a>(object: impl Given<'a, K>) -> Request {
        let meta = object.given().meta();
        Request::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// The namespace as text, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name as text.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Serialize for Request {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut request = serializer.serialize_struct("Request", 2)?;
        request.serialize_field("namespace", &self.namespace())?;
        request.serialize_field("name", self.name())?;
        request.end()
    }
}

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Request, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            namespace: Option<String>,
            name: String,
        }
        let Written { namespace, name } = Written::deserialize(deserializer)?;
        Ok(Request::new(namespace.as_deref(), &name))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
