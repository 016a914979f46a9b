//! Stages: how objects go on by themselves, in kwok's vocabulary (`kwok.x-k8s.io/v1alpha1`, kind Stage).
//!
//! A stage fits objects of one kind ([`stage`]: labels, annotations, expressions in [`jq`] and CEL); of those that fit,
//! one is chosen by weight, and plays after its delay ([`player`]): it sends events, changes finalizers, patches the
//! object out of a [`template`], deletes it, or applies another one. Pods on simulated nodes and simulated nodes are
//! played for by their controllers (`node`), other kinds by one of their own ([`objects`]), which also reads stages that
//! are objects of the cluster.
//!
//! Invariants: what is not understood of a stage is refused when it is read, in words; stages of a file are there before
//! the first object is looked at. Not here: kwok's other kinds (Metric, ClusterLogs, …).

mod jq;
mod objects;
mod player;
mod spec;
mod stage;
mod template;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use self::objects::follow;
pub(crate) use self::player::{Place, Player, Progress};
use self::stage::Stage;
use self::template::Surroundings;

/// The stages that a cluster has from its start, in their order.
#[derive(Clone, Debug, Default)]
pub struct Stages(Vec<Arc<Stage>>);

impl Stages {
    /// Reads stages from YAML, one or more documents. Documents of other kinds are refused.
    ///
    /// # Errors
    /// The error, with the stage that it is about.
    pub fn parse(text: &str) -> Result<Stages, String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
        let mut stages = Vec::new();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            stages.extend(Stage::of(document)?.map(Arc::new));
        }
        Ok(Stages(stages))
    }
}

impl FromIterator<Stages> for Stages {
    /// All of them, one file behind the other.
    fn from_iter<I: IntoIterator<Item = Stages>>(files: I) -> Stages {
        Stages(files.into_iter().flat_map(|stages| stages.0).collect())
    }
}

#[cfg(test)]
mod tests;
