//! The built-in kinds as a value: the crate of the kinds hands it to the server, which knows none of them.

use std::sync::Arc;

use kubewright_schema::Minor;
use kubewright_schema::error::FieldError;
use kubewright_schema::protobuf::order::Order;
use serde_json::Value;

use super::Resource;

/// Changes the errors in an object of this group and kind, which was another before or is new.
pub type Tell = fn(group: &str, kind: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>);

/// The kinds that a server serves beside those of definitions.
#[derive(Debug)]
pub struct BuiltIn {
    /// The version of Kubernetes that has them so.
    pub minor: Minor,
    /// The rows, in the order of discovery.
    pub rows: Vec<Arc<Resource>>,
    /// The rows of `metrics.k8s.io`, which only a server that measures serves.
    pub metrics: Vec<Arc<Resource>>,
    /// The kind that `/token` of a ServiceAccount takes and answers. No path leads to it as a kind of its own.
    pub token_request: Arc<Resource>,
    /// The kind that `/scale` of the built-in kinds shows.
    pub scale: Arc<Resource>,
    /// The same of custom kinds, whose columns are described in other words.
    pub custom_scale: Arc<Resource>,
    /// The order in which the objects of a store are written: that of the kind as which they are stored.
    pub order_of_store: fn(store: &str) -> Order,
    /// Puts the errors that the rules of a kind find into the words of this version.
    pub tell: Tell,
}
