//! The objects that `dev` puts into the cluster: definitions, webhook configurations, samples. All by server-side
//! apply, so that fields of other managers stay.
//!
//! Invariants: an object that does not change keeps its resourceVersion; a definition counts as applied when the server
//! serves it; errors show the server's own message.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubewright::kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, TypeMeta,
};
use kubewright::kube::core::discovery::Scope;
use kubewright::kube::{self, Client, discovery};
use kubewright_codegen::{Code, Diagnostic, Place, codes};
use serde_json::Value;

use super::webhooks::LABEL;
use crate::errors::chain;

/// The field manager of `dev`.
const FIELD_MANAGER: &str = "kubewright-dev";
/// How long a definition may take to be established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);

/// The outcome for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Created,
    Changed,
    Same,
}

impl Applied {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Applied::Created => "created",
            Applied::Changed => "changed",
            Applied::Same => "unchanged",
        }
    }
}

/// An object that is to be applied, and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) object: Value,
    pub(crate) place: Place,
}

impl Item {
    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The name alone.
    pub(crate) fn plain_name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// `Guestbook default/hello`.
    pub(crate) fn name(&self) -> String {
        match self.text("/metadata/namespace") {
            "" => format!("{} {}", self.text("/kind"), self.text("/metadata/name")),
            namespace => format!("{} {namespace}/{}", self.text("/kind"), self.text("/metadata/name")),
        }
    }
}

/// The objects in the YAML files of a folder, in the order of their names; `kustomization.yaml` is no object. A folder
/// that does not exist is empty.
///
/// # Errors
/// KWR0705 or `code`, with file and line, when a file is not YAML or holds a document that is no object.
pub(crate) fn read(root: &Path, folder: &str, code: Code) -> Result<Vec<Item>, Diagnostic> {
    let mut files: Vec<PathBuf> = match std::fs::read_dir(root.join(folder)) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => {
            return Err(Diagnostic::new(codes::files::IO, "cannot read a folder of the project")
                .at(Place::file(folder))
                .because(why));
        }
    };
    files.sort();
    let mut items = Vec::new();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let yaml = [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
        if !yaml || name.starts_with("kustomization.") || name.starts_with('.') {
            continue;
        }
        let place = Place::file(format!("{folder}/{name}"));
        let cannot = |why: String| {
            Diagnostic::new(code, "cannot read an object that is to be applied")
                .at(place.clone())
                .because(why)
                .fix("correct the file and save it")
        };
        let text = crate::regular::text(&file).map_err(|why| cannot(why.to_string()))?;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|why| cannot(why.to_string()))?;
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            let item = Item {
                object,
                place: place.clone(),
            };
            if ["/apiVersion", "/kind", "/metadata/name"]
                .iter()
                .any(|field| item.text(field).is_empty())
            {
                return Err(cannot(
                    "it is not a Kubernetes object: apiVersion, kind and metadata.name are required".to_owned(),
                ));
            }
            items.push(item);
        }
    }
    Ok(items)
}

/// Applies one object, in `default` when it says no namespace and needs one. Fields that the server does not know are
/// refused.
///
/// # Errors
/// The error of the server.
pub(crate) async fn apply(client: &Client, item: &Item) -> Result<Applied, kube::Error> {
    let types: TypeMeta = serde_json::from_value(item.object.clone()).map_err(kube::Error::SerdeError)?;
    let kind = GroupVersionKind::try_from(&types)
        .map_err(|why| kube::Error::Service(format!("apiVersion cannot be read: {why}").into()))?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await?;
    let api = api(client, &resource, &capabilities.scope, item.text("/metadata/namespace"));
    let name = item.text("/metadata/name");
    let before = api.get_metadata_opt(name).await?;
    let parameters = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    let after = api.patch(name, &parameters, &Patch::Apply(&item.object)).await?;
    Ok(match before {
        None => Applied::Created,
        Some(before) if before.metadata.resource_version == after.metadata.resource_version => Applied::Same,
        Some(_) => Applied::Changed,
    })
}

fn api(client: &Client, resource: &ApiResource, scope: &Scope, namespace: &str) -> Api<DynamicObject> {
    match (scope, namespace) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), resource),
        (Scope::Namespaced, "") => Api::namespaced_with(client.clone(), "default", resource),
        (Scope::Namespaced, namespace) => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

/// Applies a definition and waits until the server serves it.
///
/// # Errors
/// KWR0703 with the server's words.
pub(crate) async fn apply_definition(client: &Client, item: &Item) -> Result<Applied, Diagnostic> {
    let name = item.text("/metadata/name").to_owned();
    let refused = |why: String| {
        let fix = if why.contains("immutable") || why.contains("storedVersions") {
            format!(
                "keep it as it is, or delete the definition with all its objects (kubectl delete crd {name}) and save again"
            )
        } else {
            "correct the type in api/ (or its attributes) and save; see `kubewright explain KWR0703`".to_owned()
        };
        Diagnostic::new(
            codes::dev::REFUSED,
            format!("the API server refused the definition {name}"),
        )
        .at(item.place.clone())
        .because(why)
        .fix(fix)
    };
    let applied = apply(client, item).await.map_err(|why| refused(message(&why)))?;
    let resource = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let end = tokio::time::Instant::now() + ESTABLISHED_WITHIN;
    loop {
        let found = definitions.get(&name).await.map_err(|why| refused(message(&why)))?;
        let conditions = found.data.pointer("/status/conditions").and_then(Value::as_array);
        let conditions = conditions.map_or(&[][..], Vec::as_slice);
        if conditions
            .iter()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        {
            return Ok(applied);
        }
        if tokio::time::Instant::now() >= end {
            let messages: Vec<&str> = conditions
                .iter()
                .filter_map(|condition| condition["message"].as_str())
                .collect();
            return Err(refused(format!(
                "it took the definition but does not serve it after {} s: {}",
                ESTABLISHED_WITHIN.as_secs(),
                messages.join("; ")
            )));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Applies a webhook configuration, or an object of the operator's account.
///
/// # Errors
/// KWR0703 with the server's words.
pub(crate) async fn apply_configuration(client: &Client, item: &Item) -> Result<Applied, Diagnostic> {
    apply(client, item).await.map_err(|why| {
        Diagnostic::new(codes::dev::REFUSED, format!("the API server refused {}", item.name()))
            .at(item.place.clone())
            .because(message(&why))
            .fix("correct the settings there and save")
    })
}

/// Group and kinds of webhook configurations.
pub(crate) const WEBHOOKS: (&str, &[&str]) = (
    "admissionregistration.k8s.io",
    &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
);
/// Group and kinds of a service account's permissions.
pub(crate) const RBAC: (&str, &[&str]) = (
    "rbac.authorization.k8s.io",
    &["ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role"],
);

/// Removes the objects of these kinds that an earlier build had and this one does not.
///
/// # Errors
/// KWR0703 with the server's words.
pub(crate) async fn prune(client: &Client, (group, kinds): (&str, &[&str]), kept: &[Item]) -> Result<(), Diagnostic> {
    let ours = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    for kind in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let cannot = |why: kube::Error| {
            Diagnostic::new(
                codes::dev::REFUSED,
                format!("cannot remove a {kind} that is declared no more"),
            )
            .because(message(&why))
        };
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for found in all.list_metadata(&ours).await.map_err(cannot)?.items {
            let (name, namespace) = (
                found.metadata.name.unwrap_or_default(),
                found.metadata.namespace.unwrap_or_default(),
            );
            let is_kept = |item: &Item| {
                item.text("/kind") == *kind
                    && item.plain_name() == name
                    && item.text("/metadata/namespace") == namespace
            };
            if !kept.iter().any(is_kept) {
                let scope = if namespace.is_empty() {
                    Scope::Cluster
                } else {
                    Scope::Namespaced
                };
                let api = api(client, &resource, &scope, &namespace);
                api.delete(&name, &DeleteParams::default()).await.map_err(cannot)?;
            }
        }
    }
    Ok(())
}

/// Applies a sample.
///
/// # Errors
/// KWR0705 with the server's words, and the fix for the commonest of them.
pub(crate) async fn apply_sample(client: &Client, item: &Item) -> Result<Applied, Diagnostic> {
    apply(client, item).await.map_err(|why| {
        let why = message(&why);
        let refused = Diagnostic::new(codes::dev::SAMPLE, format!("cannot apply the sample {}", item.name()))
            .at(item.place.clone())
            .because(&why);
        refused.fix(if why.contains("unknown field") || why.contains("field not declared") {
            "is it spelled as in the type? The server would drop the field silently if it were let"
        } else if why.contains("not found") || why.contains("GroupVersion") {
            "is the kind part of the operator? `kubectl api-resources` lists what the server knows"
        } else {
            "correct the file and save it"
        })
    })
}

/// The API server's message, without the client's wrapping.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} ({})", status.reason, status.code),
        other => chain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_places_and_errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let samples = folder.path().join("config/samples");
        std::fs::create_dir_all(&samples).unwrap();
        let read = || super::read(folder.path(), "config/samples", codes::dev::SAMPLE);
        assert_eq!(read().unwrap(), []);
        let hello = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n---\n\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: c}\n";
        std::fs::write(samples.join("a.yaml"), hello).unwrap();
        std::fs::write(samples.join("kustomization.yaml"), "resources: [a.yaml]\n").unwrap();
        std::fs::write(samples.join("notes.txt"), "no").unwrap();
        let names: Vec<String> = read().unwrap().iter().map(Item::name).collect();
        assert_eq!(names, ["ConfigMap b/a", "Namespace c"]);

        std::fs::write(samples.join("b.yaml"), "kind: [").unwrap();
        let wrong = read().unwrap_err().to_string();
        assert!(wrong.contains("at: config/samples/b.yaml"), "{wrong}");
        std::fs::write(samples.join("b.yaml"), "kind: Namespace\n").unwrap();
        let wrong = read().unwrap_err().to_string();
        assert!(
            wrong.contains("apiVersion, kind and metadata.name are required"),
            "{wrong}"
        );
        assert_eq!(
            super::read(folder.path(), "config/none", codes::dev::SAMPLE),
            Ok(Vec::new())
        );
    }
}
