//! Objects of any kind, as JSON without a type.
//!
//! A controller that empties a namespace or counts its objects needs a few fields of each. The types of kube decode all
//! metadata, and one object of a time that they cannot hold (`managedFields` of the year 9999) would be an error of the
//! whole list.

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kubewright::kube::api::{DeleteParams, ListParams};
use kubewright::kube::core::{ApiResource, DynamicObject, Request};
use kubewright::kube::{Client, Error, Resource as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The objects of a kind.
pub(crate) struct UnstructuredApi<'a> {
    kube: &'a Client,
    url: String,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    /// Where the next one begins.
    pub(crate) rest: Option<String>,
    /// The resourceVersion of the list.
    pub(crate) version: Option<String>,
}

impl<'a> UnstructuredApi<'a> {
    /// Those of a namespace, or of all.
    pub(crate) fn new<'n>(
        kube: &'a Client,
        kind: &ApiResource,
        namespace: impl Into<Option<&'n str>>,
    ) -> UnstructuredApi<'a> {
        let url = DynamicObject::url_path(kind, namespace.into());
        UnstructuredApi { kube, url }
    }

    /// Whole objects.
    pub(crate) async fn list(&self, params: &ListParams) -> Result<Page, Error> {
        let request = Request::new(&self.url).list(params).map_err(Error::BuildRequest)?;
        self.kube.request::<Listed>(request).await.map(Page::from)
    }

    /// Their metadata.
    pub(crate) async fn list_metadata(&self, params: &ListParams) -> Result<Page, Error> {
        let request = Request::new(&self.url).list_metadata(params);
        let request = request.map_err(Error::BuildRequest)?;
        self.kube.request::<Listed>(request).await.map(Page::from)
    }

    /// Deletes all of them.
    pub(crate) async fn delete_collection(&self, how: &DeleteParams) -> Result<(), Error> {
        let request = Request::new(&self.url).delete_collection(how, &ListParams::default());
        let request = request.map_err(Error::BuildRequest)?;
        self.kube.request_text(request).await.map(drop)
    }
}

/// A list as it is answered. One without items is an error: the caller would take its kind for gone.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(deserialize_with = "nullable")]
    items: Vec<Value>,
}

/// Go writes an empty list as `null`.
fn nullable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Value>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl From<Listed> for Page {
    fn from(listed: Listed) -> Page {
        Page {
            version: listed.metadata.resource_version,
            items: listed.items,
            rest: listed.metadata.continue_.filter(|token| !token.is_empty()),
        }
    }
}

/// The finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let all = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str)
}
