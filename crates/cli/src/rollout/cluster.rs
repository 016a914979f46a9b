//! The cluster of a kubeconfig: requests for objects of any kind, and which kinds it serves.

use std::collections::BTreeMap;

use kubewright::kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kubewright::kube::{self, Client};
use kubewright_codegen::{Diagnostic, codes};
use serde_json::Value;

use super::{is_definition, text, title};
use crate::errors::chain;
use crate::target::Target;

/// A cluster that answers.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// One line about it, for people.
    pub(crate) title: String,
}

/// The kinds of some objects, as the cluster serves them or will.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// By `apiVersion` and kind: the resource, and whether its objects live in namespaces.
    served: BTreeMap<(String, String), (ApiResource, bool)>,
}

impl Cluster {
    /// Connects to a cluster, and asks whether it is there.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn connect(target: &Target) -> Result<Cluster, Diagnostic> {
        let _working = crate::progress::during(format!("connecting to {}", target.server));
        let client = target.client().await?;
        let cluster = Cluster {
            client,
            title: target.describe(),
        };
        match cluster.client.apiserver_version().await {
            Ok(_) => Ok(cluster),
            Err(why) => Err(cluster.unreachable(&why)),
        }
    }

    fn unreachable(&self, why: &kube::Error) -> Diagnostic {
        Diagnostic::new(codes::config::CLUSTER, "cannot reach the cluster")
            .because(format!("{}: {}", self.title, chain(why)))
            .fix("is it running, and is this the right context? --context takes another")
    }

    /// The error of a request: the server's words, or that it does not answer.
    pub(crate) fn failed(&self, attempted: String, why: &kube::Error) -> Diagnostic {
        match why {
            kube::Error::Api(status) => {
                Diagnostic::new(codes::config::REFUSED, attempted).because(if status.message.is_empty() {
                    format!("{} ({})", status.reason, status.code)
                } else {
                    status.message.clone()
                })
            }
            other => {
                let mut diagnostic = self.unreachable(other);
                diagnostic.attempted = attempted;
                diagnostic
            }
        }
    }

    /// Looks up the kinds of the objects; those that definitions among them bring count as served.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(super) async fn kinds(&self, objects: &[Value]) -> Result<Kinds, Diagnostic> {
        let mut kinds = Kinds::default();
        for definition in objects.iter().filter(|object| is_definition(object)) {
            kinds.define(definition);
        }
        let mut looked_up: Vec<&str> = Vec::new();
        for object in objects {
            let version = text(object, "/apiVersion");
            if kinds.of(object).is_none() && !looked_up.contains(&version) {
                looked_up.push(version);
                self.look_up(version, &mut kinds).await?;
            }
        }
        Ok(kinds)
    }

    /// Everything that the cluster serves under one `apiVersion`; nothing when it does not know it.
    async fn look_up(&self, api_version: &str, kinds: &mut Kinds) -> Result<(), Diagnostic> {
        let list = if api_version.contains('/') {
            self.client.list_api_group_resources(api_version).await
        } else {
            self.client.list_core_api_resources(api_version).await
        };
        let list = match list {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(why) => return Err(self.failed(format!("cannot ask which kinds {api_version} has"), &why)),
        };
        for resource in list.resources.iter().filter(|resource| !resource.name.contains('/')) {
            kinds.insert(api_version, &resource.kind, &resource.name, resource.namespaced);
        }
        Ok(())
    }

    /// Requests for the object and its like.
    pub(super) fn api(&self, kinds: &Kinds, object: &Value) -> Option<Api<DynamicObject>> {
        let (resource, namespaced) = kinds.of(object)?;
        let namespace = match text(object, "/metadata/namespace") {
            "" => "default",
            namespace => namespace,
        };
        Some(if *namespaced {
            Api::namespaced_with(self.client.clone(), namespace, resource)
        } else {
            Api::all_with(self.client.clone(), resource)
        })
    }

    /// Whether all nodes only pretend to run pods, as those of `kubewright cluster` do, unless the pods of this
    /// namespace are processes. Who may not look at nodes is told nothing.
    pub(crate) async fn is_simulated(&self, namespace: &str) -> bool {
        let nodes = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
        let Ok(nodes) = self.all(&nodes).list(&ListParams::default()).await else {
            return false;
        };
        let pretends = |node: &DynamicObject| {
            let runtime = node.data.pointer("/status/nodeInfo/containerRuntimeVersion");
            runtime
                .and_then(Value::as_str)
                .is_some_and(|runtime| runtime.starts_with("simulated://"))
        };
        !nodes.items.is_empty() && nodes.items.iter().all(pretends) && !self.runs_processes(namespace).await
    }

    /// Whether a container in this namespace is a process of the machine that the cluster runs on.
    async fn runs_processes(&self, namespace: &str) -> bool {
        let pods = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        let pods = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &pods);
        let Ok(pods) = pods.list(&ListParams::default()).await else {
            return false;
        };
        let is_process = |pod: &DynamicObject| {
            let statuses = pod.data.pointer("/status/containerStatuses").and_then(Value::as_array);
            let mut ids = statuses
                .into_iter()
                .flatten()
                .filter_map(|status| status["containerID"].as_str());
            ids.any(|id| id.starts_with("process://"))
        };
        pods.items.iter().any(is_process)
    }

    /// Requests for objects of a kind in all namespaces.
    pub(super) fn all(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), resource)
    }
}

impl Kinds {
    /// How the kind of an object is served.
    pub(super) fn of(&self, object: &Value) -> Option<&(ApiResource, bool)> {
        let key = (text(object, "/apiVersion").to_owned(), text(object, "/kind").to_owned());
        self.served.get(&key)
    }

    fn insert(&mut self, api_version: &str, kind: &str, plural: &str, namespaced: bool) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let key = (api_version.to_owned(), kind.to_owned());
        self.served.insert(key, (resource, namespaced));
    }

    fn define(&mut self, definition: &Value) {
        for resource in defined(definition) {
            let namespaced = text(definition, "/spec/scope") != "Cluster";
            self.insert(&resource.api_version, &resource.kind, &resource.plural, namespaced);
        }
    }

    /// The kinds that are missing for the objects.
    ///
    /// # Errors
    /// When a kind is not served, with the project that it belongs to.
    pub(super) fn check(&self, objects: &[Value]) -> Result<(), Diagnostic> {
        let missing: Vec<&Value> = objects.iter().filter(|object| self.of(object).is_none()).collect();
        let Some(first) = missing.first() else { return Ok(()) };
        let mut diagnostic = Diagnostic::new(codes::config::NO_KIND, "cannot apply the project to this cluster");
        for object in &missing {
            diagnostic = diagnostic.because(format!(
                "{}: the cluster has no kind {} in {}",
                title(object),
                text(object, "/kind"),
                text(object, "/apiVersion")
            ));
        }
        let group = text(first, "/apiVersion").split('/').next().unwrap_or_default();
        Err(diagnostic.fix(match group {
            "cert-manager.io" => {
                "install cert-manager (https://cert-manager.io/docs/installation), or let the operator make its certificate: in \
                 config/default/kustomization.yaml put a # before ../certmanager and none before ../certificates"
            }
            "monitoring.coreos.com" => {
                "install the Prometheus operator, or put a # before ../prometheus in config/default/kustomization.yaml"
            }
            _ => "install what brings the kind, or take the object out of config/",
        }))
    }
}

/// The versions of a definition that are served, as resources.
pub(super) fn defined(definition: &Value) -> Vec<ApiResource> {
    let (group, kind, plural) = (
        text(definition, "/spec/group"),
        text(definition, "/spec/names/kind"),
        text(definition, "/spec/names/plural"),
    );
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true);
    served
        .map(|version| {
            let version = text(version, "/name");
            ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version: format!("{group}/{version}"),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            }
        })
        .collect()
}
