//! The objects of a release, brought back to what the chart says: without Helm, and without a new revision.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams, PostParams};
use kubewright::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kubewright::{Client, kube};
use serde_json::{Value, json};

use super::dependents::Dependents;
use super::drift::{Merging, holds, patch};
use super::manifest::{Part, object, parts};
use super::owner::Owner;

/// The field manager of patches.
const MANAGER: &str = "helm-operator";

/// What was found to be right: the version of an object, and what was asked of it.
pub(super) type Verified = HashMap<String, (String, u64)>;

/// The release whose objects are looked at.
pub(super) struct Repair<'a> {
    pub(super) client: &'a Client,
    pub(super) dependents: &'a Dependents,
    pub(super) owner: &'a Owner,
    pub(super) release: &'a str,
    pub(super) namespace: &'a str,
    pub(super) chart: &'a str,
}

/// Where an object is.
struct Place {
    kind: GroupVersionKind,
    resource: ApiResource,
    namespace: Option<String>,
}

impl Place {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.kube().clone(), namespace, &self.resource),
            None => Api::all_with(client.kube().clone(), &self.resource),
        }
    }
}

impl Repair<'_> {
    async fn place(&self, part: &Part) -> Result<Place, String> {
        let kind = part.kind();
        let served = self.dependents.kind(self.client, &kind).await;
        let served = served.map_err(|why| format!("{}: {why}", part.shown()))?;
        Ok(Place {
            kind,
            namespace: served
                .namespaced
                .then(|| part.namespace().unwrap_or(self.namespace).to_owned()),
            resource: served.resource,
        })
    }

    /// Brings every object of the manifest back to what it says there; answers how many had to be written.
    ///
    /// # Errors
    /// Which object could not be, and why; the others were.
    pub(super) async fn run(&self, manifest: &[Part], verified: &mut Verified) -> Result<usize, String> {
        let mut written = 0;
        let mut wrong = Vec::new();
        let mut seen = Verified::new();
        for part in manifest {
            match self.one(part, verified, &mut seen).await {
                Ok(changed) => written += usize::from(changed),
                Err(why) => wrong.push(why),
            }
        }
        *verified = seen;
        match wrong.is_empty() {
            true => Ok(written),
            false => Err(wrong.join("; ")),
        }
    }

    async fn one(&self, part: &Part, verified: &Verified, seen: &mut Verified) -> Result<bool, String> {
        let place = self.place(part).await?;
        let mut marked = part.clone();
        self.owner.mark(&mut marked, place.namespace.as_deref(), self.chart);
        let wanted = patch(&marked);
        let hash = hash(&wanted);
        let key = format!(
            "{}/{}/{}/{}",
            place.resource.api_version,
            place.resource.kind,
            place.namespace.as_deref().unwrap_or_default(),
            part.name()
        );
        let known = verified.get(&key).filter(|(_, asked)| *asked == hash);
        let watched = self
            .dependents
            .version(&place.kind, place.namespace.as_deref(), part.name());
        if let (Some((version, _)), Some(watched)) = (known, watched)
            && *version == watched
        {
            seen.insert(key, (version.clone(), hash));
            return Ok(false);
        }
        let shown = |error: kube::Error| format!("{}: {error}", part.shown());
        let api = place.api(self.client);
        let live = api.get_opt(part.name()).await.map_err(shown)?;
        let Some(live) = live else {
            self.create(&api, wanted).await.map_err(shown)?;
            return Ok(true);
        };
        let version = live.metadata.resource_version.clone().unwrap_or_default();
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(false); // its end wakes the owner
        }
        if known.is_some_and(|(known, _)| *known == version) {
            seen.insert(key, (version, hash));
            return Ok(false);
        }
        let live = serde_json::to_value(&live).map_err(|why| format!("{}: {why}", part.shown()))?;
        let merging = merging(&place.resource);
        if holds(&live, &wanted, merging) {
            seen.insert(key, (version, hash));
            return Ok(false);
        }
        let wanted = with_other_owners(wanted, &live, merging);
        let after = send(&api, part.name(), &wanted, merging).await.map_err(shown)?;
        let after = after.metadata.resource_version.unwrap_or_default();
        let changed = after != version;
        seen.insert(key, (after, hash));
        if changed {
            tracing::debug!(
                object = part.shown(),
                release = self.release,
                "it was brought back to what the chart says"
            );
        }
        Ok(changed)
    }

    /// Creates an object as Helm does, so that Helm takes it for its own.
    async fn create(&self, api: &Api<DynamicObject>, mut wanted: Value) -> Result<(), kube::Error> {
        if let Value::Object(fields) = &mut wanted {
            let metadata = object(fields, "metadata");
            object(metadata, "labels").insert("app.kubernetes.io/managed-by".to_owned(), json!("Helm"));
            let annotations = object(metadata, "annotations");
            annotations.insert("meta.helm.sh/release-name".to_owned(), json!(self.release));
            annotations.insert("meta.helm.sh/release-namespace".to_owned(), json!(self.namespace));
        }
        let made: DynamicObject = serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        match api.create(&params, &made).await {
            Ok(_) => Ok(()),
            // Made by another meanwhile: its event leads here again.
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives the objects of hooks their owner: Helm leaves them behind.
    ///
    /// # Errors
    /// Why one of them has none.
    pub(super) async fn own_hooks(&self, hooks: &[Part]) -> Result<(), String> {
        for hook in hooks {
            let place = self.place(hook).await?;
            let api = place.api(self.client);
            let shown = |error: kube::Error| format!("{}: {error}", hook.shown());
            let Some(live) = api.get_opt(hook.name()).await.map_err(shown)? else {
                continue; // a hook of another time, or one that is gone
            };
            let mut marks = Part(serde_json::Map::new());
            let policy = hook.is_kept().then(|| hook.0["metadata"]["annotations"].clone());
            if let Some(annotations) = policy {
                marks.metadata().insert("annotations".to_owned(), annotations);
            }
            self.owner.mark(&mut marks, place.namespace.as_deref(), self.chart);
            let wanted = patch(&marks);
            let live = serde_json::to_value(&live).map_err(|why| why.to_string())?;
            let merging = merging(&place.resource);
            if !holds(&live, &wanted, merging) {
                let wanted = with_other_owners(wanted, &live, merging);
                send(&api, hook.name(), &wanted, merging).await.map_err(shown)?;
            }
        }
        Ok(())
    }

    /// Whether everything in the manifest that goes with its release is gone.
    ///
    /// # Errors
    /// What could not be asked.
    pub(super) async fn is_gone(&self, manifest: &str) -> Result<bool, String> {
        for part in parts(manifest)?.iter().filter(|part| !part.is_kept()) {
            let place = self.place(part).await?;
            let live = place.api(self.client).get_opt(part.name()).await;
            if live.map_err(|why| format!("{}: {why}", part.shown()))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn hash(wanted: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    wanted.to_string().hash(&mut hasher);
    hasher.finish()
}

/// A merge patch replaces the list of owners: the others stay.
fn with_other_owners(mut wanted: Value, live: &Value, merging: Merging) -> Value {
    if merging == Merging::Strategic {
        return wanted;
    }
    if let (Some(Value::Array(wanted)), Value::Array(live)) = (
        wanted.pointer_mut("/metadata/ownerReferences"),
        &live["metadata"]["ownerReferences"],
    ) {
        let others = live
            .iter()
            .filter(|owner| !wanted.iter().any(|known| known["uid"] == owner["uid"]));
        let others: Vec<Value> = others.cloned().collect();
        wanted.extend(others);
    }
    wanted
}

async fn send(
    api: &Api<DynamicObject>,
    name: &str,
    wanted: &Value,
    merging: Merging,
) -> Result<DynamicObject, kube::Error> {
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match merging {
        Merging::Strategic => api.patch(name, &params, &Patch::Strategic(wanted)).await,
        Merging::Plain => api.patch(name, &params, &Patch::Merge(wanted)).await,
    }
}

/// Kubernetes' own kinds are merged strategically, but for CustomResourceDefinitions, as Helm has it.
fn merging(resource: &ApiResource) -> Merging {
    const OWN: &[&str] = &[
        "admissionregistration.k8s.io",
        "apiregistration.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    ];
    match !resource.group.contains('.') || OWN.contains(&resource.group.as_str()) {
        true => Merging::Strategic,
        false => Merging::Plain,
    }
}
