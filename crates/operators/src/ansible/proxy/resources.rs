//! The kinds that the server serves, as far as somebody asked: which kind a path is about, and what can be done with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kubewright::kube::core::ApiResource;
use kubewright::kube::{self, Client};

use super::target::Target;

/// A kind.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
    /// Whether its objects are stored: they can be read and watched.
    pub(super) stored: bool,
}

/// The kinds of a group and version.
type KnownKinds = BTreeMap<(String, String), Arc<Vec<Known>>>;

#[derive(Default)]
pub(super) struct Resources(Mutex<KnownKinds>);

impl Resources {
    /// The kind of a path. A kind that is not known is looked for anew: its CRD may be younger than what is known.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) async fn of(&self, client: &Client, target: &Target) -> Result<Option<Known>, kube::Error> {
        let key = (target.group.clone(), target.version.clone());
        let find = |all: &Arc<Vec<Known>>| all.iter().find(|known| known.resource.plural == target.plural).cloned();
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(found) = known.as_ref().and_then(find) {
            return Ok(Some(found));
        }
        let listed = match target.group.as_str() {
            "" => client.list_core_api_resources(&target.version).await,
            _ => client.list_api_group_resources(&target.api_version()).await,
        };
        let list = match listed {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        let all = Arc::new(kinds(target, &list));
        let found = find(&all);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, all);
        Ok(found)
    }
}

fn kinds(target: &Target, list: &APIResourceList) -> Vec<Known> {
    let wholes = list.resources.iter().filter(|resource| !resource.name.contains('/'));
    let known = wholes.map(|resource| Known {
        resource: ApiResource {
            group: target.group.clone(),
            version: target.version.clone(),
            api_version: target.api_version(),
            kind: resource.kind.clone(),
            plural: resource.name.clone(),
        },
        namespaced: resource.namespaced,
        stored: ["get", "list", "watch"]
            .iter()
            .all(|verb| resource.verbs.iter().any(|known| known == verb)),
    });
    known.collect()
}
