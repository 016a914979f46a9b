//! What the user of an operator does, step by step, and how steps come out of samples.
//!
//! A step is written as its user would send it: a server-side apply, a merge patch, a delete. Steps that were made up
//! out of a sample may be refused by the server, because only the server knows what the operator's schema and webhooks
//! allow; they are then as if they had not been made.

use std::collections::BTreeSet;
use std::path::Path;

use http::Request;
use http_body_util::BodyExt as _;
use kubewright::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::kube::{self, client::Body};
use serde_json::{Value, json};

use super::inputs;
use crate::cluster::TestCluster;
use crate::error::{Error, Result};

/// One step of an operator's user, after which the cluster comes to rest.
///
/// ```
/// use kubewright_testing::explore::Step;
/// use serde_json::json;
///
/// let steps = [
///     Step::apply("create it", json!({
///         "apiVersion": "example.com/v1", "kind": "Database",
///         "metadata": {"name": "db", "namespace": "default"}, "spec": {"replicas": 3},
///     })),
///     Step::merge("shrink it", "example.com/v1", "Database", "default", "db", json!({"spec": {"replicas": 1}})),
///     Step::delete("delete it", "example.com/v1", "Database", "default", "db"),
/// ];
/// ```
#[derive(Clone, Debug)]
pub struct Step {
    what: String,
    change: Change,
    /// Whether the server may refuse it.
    is_made_up: bool,
    /// Whether it is passed over.
    pub(super) is_left_out: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Apply(Value),
    /// A merge patch, perhaps of a subresource.
    Merge(Target, Option<String>, Value),
    /// A deletion with this propagation policy.
    Delete(Target, &'static str),
}

/// An object, by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Step {
    /// Applies an object, by server-side apply as the user's field manager. `what` completes "the user does this: …".
    pub fn apply(what: impl Into<String>, object: Value) -> Step {
        Step::new(what, Change::Apply(object))
    }

    /// Changes an object by a merge patch. The namespace is empty for kinds without one.
    pub fn merge(
        what: impl Into<String>,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Step {
        Step::new(
            what,
            Change::Merge(Target::new(api_version, kind, namespace, name), None, patch),
        )
    }

    /// Deletes an object, in the background. The namespace is empty for kinds without one.
    pub fn delete(what: impl Into<String>, api_version: &str, kind: &str, namespace: &str, name: &str) -> Step {
        Step::new(what, deletion(Target::new(api_version, kind, namespace, name)))
    }

    /// The merge patch is one of a subresource: `approval`, `scale`, `status`. Other steps stay as they are.
    pub fn of_subresource(mut self, subresource: impl Into<String>) -> Step {
        if let Change::Merge(_, of, _) = &mut self.change {
            *of = Some(subresource.into());
        }
        self
    }

    /// The deletion is one in the foreground: the object stays until all that it owns is gone. Other steps stay as they
    /// are.
    pub fn in_foreground(mut self) -> Step {
        if let Change::Delete(_, policy) = &mut self.change {
            *policy = "Foreground";
        }
        self
    }

    fn new(what: impl Into<String>, change: Change) -> Step {
        Step {
            what: what.into(),
            change,
            is_made_up: false,
            is_left_out: false,
        }
    }

    /// Whether it deletes an object.
    pub(super) fn deletes(&self) -> bool {
        matches!(self.change, Change::Delete(..))
    }

    /// Whether it is one of the user's own that applies an object.
    pub(super) fn creates(&self) -> bool {
        !self.is_made_up && matches!(self.change, Change::Apply(_))
    }

    pub(super) fn change(&self) -> &Change {
        &self.change
    }

    /// The object that it is about.
    pub(super) fn target(&self) -> Target {
        match &self.change {
            Change::Apply(object) => Target::of(object),
            Change::Merge(target, ..) | Change::Delete(target, _) => target.clone(),
        }
    }

    /// The step in words.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Makes the step in a cluster, as the administrator.
    ///
    /// # Errors
    /// [`Error::Api`] when the server refuses it, unless it was made up out of a sample.
    pub async fn make(&self, cluster: &TestCluster) -> Result<()> {
        self.made(cluster).await.map(drop)
    }

    /// [`make`](Step::make), and whether the server took it.
    pub(super) async fn made(&self, cluster: &TestCluster) -> Result<bool> {
        let (target, method, content, body) = match &self.change {
            Change::Apply(object) => (
                Target::of(object),
                "PATCH",
                "application/apply-patch+yaml",
                object.clone(),
            ),
            Change::Merge(target, _, patch) => (target.clone(), "PATCH", "application/merge-patch+json", patch.clone()),
            Change::Delete(target, policy) => {
                let options = json!({"propagationPolicy": policy});
                (target.clone(), "DELETE", "application/json", options)
            }
        };
        let failed = |source| Error::Api {
            attempted: format!("make the step {:?}", self.what),
            source,
        };
        let mut path = target.path(cluster).await?;
        match &self.change {
            Change::Apply(_) => path.push_str("?fieldManager=user&force=true"),
            Change::Merge(_, Some(subresource), _) => path.extend(["/", subresource]),
            _ => {}
        }
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content);
        let request = request.body(Body::from(body.to_string().into_bytes()));
        let request = request.map_err(|error| failed(kube::Error::HttpError(error)))?;
        let answer = cluster.kube().send(request).await.map_err(failed)?;
        let is_gone = answer.status() == 404 && matches!(self.change, Change::Delete(..));
        let is_taken = answer.status().is_success() || is_gone;
        if is_taken || self.is_made_up {
            return Ok(is_taken);
        }
        let body = answer.into_body().collect().await.map_err(failed)?;
        let status =
            serde_json::from_slice(&body.to_bytes()).map_err(|error| failed(kube::Error::SerdeError(error)))?;
        Err(failed(kube::Error::Api(status)))
    }

    /// The life of the objects in a folder's files, which end in `.yaml` or `.yml`: they are created; the fields of
    /// their specs are changed, taken out and set back, one after the other, as far as the schemas of these CRDs say what
    /// may be (without them: numbers and truth values); an object of these CRDs gets a namesake in another namespace for
    /// a while; they are deleted, created and deleted again.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the folder or a file cannot be read, or holds no object.
    pub fn of_samples<'a>(
        folder: impl AsRef<Path>,
        crds: impl IntoIterator<Item = &'a CustomResourceDefinition>,
    ) -> Result<Vec<Step>> {
        Step::of_inputs(folder.as_ref(), crds, inputs::MOST)
    }

    /// [`of_samples`](Step::of_samples), with so many changes of each object at most.
    pub(super) fn of_inputs<'a>(
        folder: &Path,
        crds: impl IntoIterator<Item = &'a CustomResourceDefinition>,
        most: usize,
    ) -> Result<Vec<Step>> {
        let crds: Vec<Value> = crds
            .into_iter()
            .map(|crd| serde_json::to_value(crd).unwrap_or_default())
            .collect();
        let objects = samples(folder)?;
        let mut steps = Vec::new();
        let create = |steps: &mut Vec<Step>, word: &str| {
            steps.extend(
                objects
                    .iter()
                    .map(|object| Step::apply(format!("{word} {}", Target::of(object)), object.clone())),
            );
        };
        let delete = |steps: &mut Vec<Step>| {
            steps.extend(objects.iter().rev().map(|object| {
                let target = Target::of(object);
                Step::new(format!("delete {target}"), deletion(target))
            }));
        };
        create(&mut steps, "create");
        let mut kinds = BTreeSet::new();
        for object in &objects {
            let of_kind = |crd: &&Value| crd["spec"]["names"]["kind"] == object["kind"];
            let crd = crds.iter().find(of_kind);
            for input in inputs::of(object, crd, most) {
                let target = Target::of(object);
                let field = input.what.split(' ').next().unwrap_or_default();
                for (what, patch) in [
                    (format!("set {} of {target}", input.what), input.there),
                    (format!("set {field} of {target} back"), input.back),
                ] {
                    steps.push(Step {
                        is_made_up: true,
                        ..Step::new(what, Change::Merge(target.clone(), None, patch))
                    });
                }
            }
            let is_namespaced = crd.is_some_and(|crd| crd["spec"]["scope"] == "Namespaced");
            if is_namespaced && kinds.insert(object["kind"].to_string()) {
                steps.extend(namesake(object));
            }
        }
        delete(&mut steps);
        create(&mut steps, "create again");
        delete(&mut steps);
        Ok(steps)
    }
}

/// A deletion as people make it: dependents go in the background.
fn deletion(target: Target) -> Change {
    Change::Delete(target, "Background")
}

/// An object of the same name in another namespace, for a while.
fn namesake(object: &Value) -> [Step; 2] {
    const NAMESPACE: &str = "kube-public";
    let mut other = object.clone();
    other["metadata"]["namespace"] = Value::from(NAMESPACE);
    let target = Target::of(&other);
    let steps = [
        Step::new(format!("create {target} in {NAMESPACE} as well"), Change::Apply(other)),
        Step::new(format!("delete {target} in {NAMESPACE}"), deletion(target)),
    ];
    steps.map(|step| Step {
        is_made_up: true,
        ..step
    })
}

/// The steps that delete what is there after a step, if others come before them: the first and the last of them. They
/// count from 1.
pub(super) fn deletion_after(steps: &[Step], step: usize) -> Option<(usize, usize)> {
    if step
        .checked_sub(1)
        .and_then(|at| steps.get(at))
        .is_none_or(Step::deletes)
    {
        return None;
    }
    // A namesake that goes before is none of them: all goes.
    let is_last = |at: &usize| {
        let made = steps[..*at].iter().filter(|step| !step.is_made_up && !step.deletes());
        let targets: Vec<Target> = made.map(Step::target).collect();
        steps[*at].deletes() && targets.contains(&steps[*at].target())
    };
    let first = (step..steps.len()).find(is_last)?;
    let count = steps[first..].iter().take_while(|step| step.deletes()).count();
    let goes = |target: &Target| steps[first..first + count].iter().any(|step| step.target() == *target);
    // A namesake that is there would stay.
    (first > step && goes(&steps[step - 1].target())).then_some((first + 1, first + count))
}

fn samples(folder: &Path) -> Result<Vec<Value>> {
    let unreadable = |what: String| Error::Runtime(kubewright::Error::Configuration(what));
    let files = std::fs::read_dir(folder)
        .map_err(|error| unreadable(format!("cannot read the samples in {}: {error}", folder.display())))?;
    let mut files: Vec<_> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|end| end == "yaml" || end == "yml"))
        .filter(|file| file.file_stem().is_none_or(|stem| stem != "kustomization"))
        .collect();
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| unreadable(format!("cannot read {}: {error}", file.display())))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| unreadable(format!("{} is no YAML: {error}", file.display())))?;
        for mut object in documents {
            if !object.is_object() {
                continue;
            }
            if !object["kind"].is_string() || !object["metadata"]["name"].is_string() {
                return Err(unreadable(format!(
                    "{} holds an object without a kind or a name",
                    file.display()
                )));
            }
            let metadata = object["metadata"].as_object_mut();
            metadata.into_iter().for_each(|metadata| {
                metadata.entry("namespace").or_insert_with(|| Value::from("default"));
            });
            objects.push(object);
        }
    }
    if objects.is_empty() {
        return Err(unreadable(format!(
            "{} holds no sample; write one, as kubectl apply takes it",
            folder.display()
        )));
    }
    Ok(objects)
}

impl Target {
    fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Target {
        Target {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn of(object: &Value) -> Target {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Target {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        }
    }

    /// A step that patches a subresource of it.
    pub(super) fn patch_of(&self, subresource: &str, patch: Value) -> Step {
        let change = Change::Merge(self.clone(), Some(subresource.to_owned()), patch);
        Step::new(format!("patch {subresource} of {self}"), change)
    }

    /// The path of the object, by the server's discovery.
    async fn path(&self, cluster: &TestCluster) -> Result<String> {
        let prefix = match self.api_version.contains('/') {
            true => format!("/apis/{}", self.api_version),
            false => format!("/api/{}", self.api_version),
        };
        let failed = |source| Error::Api {
            attempted: format!("find the kind {} in {}", self.kind, self.api_version),
            source,
        };
        let request = Request::get(prefix.as_str()).body(Vec::new());
        let request = request.map_err(|error| failed(kube::Error::HttpError(error)))?;
        let known: Value = cluster.kube().request(request).await.map_err(failed)?;
        let of_kind = |resource: &&Value| {
            resource["kind"] == self.kind.as_str() && !resource["name"].as_str().unwrap_or_default().contains('/')
        };
        let found = known["resources"].as_array().and_then(|all| all.iter().find(of_kind));
        let Some(found) = found else {
            let what = format!("the cluster has no kind {} in {}", self.kind, self.api_version);
            return Err(Error::Runtime(kubewright::Error::Configuration(what)));
        };
        let plural = found["name"].as_str().unwrap_or_default();
        Ok(match found["namespaced"] == true {
            true => format!("{prefix}/namespaces/{}/{plural}/{}", self.namespace, self.name),
            false => format!("{prefix}/{plural}/{}", self.name),
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}
