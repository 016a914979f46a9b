//! The built-in kinds that servers share, with the data that is derived from them once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use kubewright_schema::protobuf::order::Order;

use super::GroupRows;
use super::documents::openapi::Document;
use crate::model::{BuiltIn, Minor};

/// The built-in kinds. Servers that have the same value share the documents about them.
#[derive(Debug)]
pub struct Kinds {
    pub(super) built_in: BuiltIn,
    pub(super) served: BTreeMap<Arc<str>, Arc<GroupRows>>,
    /// OpenAPI documents in which no definition has a part, by path.
    pub(crate) documents: Mutex<BTreeMap<String, Arc<Document>>>,
    /// The hash of the document of OpenAPI v2 that tells of them alone.
    pub(crate) v2: OnceLock<String>,
    /// The same with `metrics.k8s.io`.
    pub(crate) v2_with_metrics: OnceLock<String>,
}

impl Kinds {
    /// Takes the rows and makes their index.
    pub fn new(built_in: BuiltIn) -> Arc<Kinds> {
        let mut served: BTreeMap<Arc<str>, Arc<GroupRows>> = BTreeMap::new();
        for row in &built_in.rows {
            let group = served.entry(row.group.as_ref().into()).or_default();
            Arc::make_mut(group).add(row);
        }
        Arc::new(Kinds {
            built_in,
            served,
            documents: Mutex::default(),
            v2: OnceLock::new(),
            v2_with_metrics: OnceLock::new(),
        })
    }

    /// The version of Kubernetes that has them so.
    pub fn minor(&self) -> Minor {
        self.built_in.minor
    }

    /// The order in which the objects of a store are written: that of the kind as which they are stored.
    pub(crate) fn order_of_store(&self) -> fn(store: &str) -> Order {
        self.built_in.order_of_store
    }

    /// All that a version has.
    #[cfg(test)]
    pub(crate) fn of_tests(minor: Minor) -> Arc<Kinds> {
        static ALL: crate::model::PerMinor<Arc<Kinds>> = crate::model::PerMinor::new();
        ALL.get_or_init(minor, || Kinds::new(kubewright_kinds::built_in(minor)))
            .clone()
    }
}
