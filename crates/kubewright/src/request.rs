//! The key that controllers work on: a cluster, a namespace and a name, nothing else.
//!
//! Invariant: a cluster-scoped object has no namespace, even if the caller named one; requests made from objects keep
//! it that way, so that one object never has two keys.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::namespace::InNamespace;
use crate::object::Given;

/// The name of the cluster that a manager was made with, where other clusters have names of their own: the empty one.
pub const HOME_CLUSTER: &str = "";

/// Which object to reconcile (multicluster-runtime's `reconcile.Request`, client-go's `NamespacedName`). Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The cluster. `None` is the home cluster; in what a mapping or a waker answers, the one that the source is in.
    pub cluster: Option<Arc<str>>,
}

impl Request {
    /// A request for an object by namespace and name. An empty namespace is no namespace.
    ///
    /// ```
    /// use kubewright::{NoNamespace, Request};
    /// assert_eq!(Request::new("default", "hello").to_string(), "default/hello");
    /// assert_eq!(Request::new("", "node-1"), Request::new(NoNamespace, "node-1"));
    /// ```
    pub fn new(namespace: impl InNamespace, name: &str) -> Request {
        Request {
            namespace: namespace.namespace().map(Arc::from),
            name: Arc::from(name),
            cluster: None,
        }
    }

    /// The same object of another cluster: an object of the same name in two clusters is two keys.
    ///
    /// ```
    /// use kubewright::Request;
    /// let west = Request::new("default", "hello").in_cluster("west");
    /// assert_eq!(west.to_string(), "cluster://west/default/hello");
    /// assert_ne!(west, Request::new("default", "hello").in_cluster("east"));
    /// ```
    #[must_use]
    pub fn in_cluster(self, name: &str) -> Request {
        let cluster = Some(name).filter(|name| *name != HOME_CLUSTER).map(Arc::from);
        Request { cluster, ..self }
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

    /// The name of the cluster; [`HOME_CLUSTER`] for that of the manager.
    pub fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or(HOME_CLUSTER)
    }

    /// The name as text.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Serialize for Request {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = if self.cluster.is_some() { 3 } else { 2 };
        let mut request = serializer.serialize_struct("Request", fields)?;
        request.serialize_field("namespace", &self.namespace())?;
        request.serialize_field("name", self.name())?;
        match &self.cluster {
            Some(cluster) => request.serialize_field("cluster", &**cluster)?,
            None => request.skip_field("cluster")?,
        }
        request.end()
    }
}

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Request, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            namespace: Option<String>,
            name: String,
            #[serde(default)]
            cluster: String,
        }
        let Written {
            namespace,
            name,
            cluster,
        } = Written::deserialize(deserializer)?;
        Ok(Request::new(namespace.as_deref(), &name).in_cluster(&cluster))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cluster) = &self.cluster {
            write!(f, "cluster://{cluster}/")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
