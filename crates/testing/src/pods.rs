//! Pods that misbehave, said in one line: `cluster.pods("app=db").fail(137)`.
//!
//! A behaviour applies to the present pods, and to future ones. It is written as annotations on the pods, so that a
//! user who looks at them sees why they behave so.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubewright::kube::api::{ListParams, Patch, PatchParams};
use kubewright::kube::{self, Api, ResourceExt as _};
use kubewright_cluster::Behaviours;
use serde_json::{Value, json};

use crate::error::{Error, Result};

const PREFIX: &str = "kubewright.dev/";
/// All that this file writes.
const WORDS: [&str; 8] = [
    "crashes",
    "exec-code",
    "exec-output",
    "exit-code",
    "exit-reason",
    "never-ready",
    "ready-seconds",
    "unhealthy-seconds",
];

/// The pods that a label selector selects, on the simulated nodes; see [`TestCluster::pods`](crate::TestCluster::pods).
#[derive(Clone)]
pub struct Pods {
    pub(crate) kube: kube::Client,
    pub(crate) behaviours: Behaviours,
    pub(crate) selector: String,
    pub(crate) namespace: Option<String>,
}

impl Pods {
    /// Only those of a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Pods {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// The containers of the pods that are there end once, with code 1; `restartPolicy` decides the next step. Pods to
    /// come are well.
    ///
    /// # Errors
    /// [`Error::Api`], and [`Error::Selector`] when the selector is none.
    pub async fn crash(&self) -> Result<()> {
        for pod in self.present().await? {
            let statuses = pod
                .status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten());
            let lives = statuses
                .map(|status| status.restart_count)
                .max()
                .unwrap_or(0)
                .saturating_add(1);
            self.annotate(&pod, json!({ format!("{PREFIX}crashes"): lives.to_string() }))
                .await?;
        }
        Ok(())
    }

    /// The containers end with this exit code, again after every restart.
    ///
    /// # Errors
    /// As [`crash`](Pods::crash).
    pub async fn fail(&self, code: i32) -> Result<()> {
        self.say(&[("exit-code", code.to_string())]).await
    }

    /// The containers are killed because they use too much memory, again after every restart.
    ///
    /// # Errors
    /// As [`crash`](Pods::crash).
    pub async fn run_out_of_memory(&self) -> Result<()> {
        self.say(&[("exit-code", "137".to_owned()), ("exit-reason", "OOMKilled".to_owned())])
            .await
    }

    /// The pods run and are never ready.
    ///
    /// # Errors
    /// As [`crash`](Pods::crash).
    pub async fn never_ready(&self) -> Result<()> {
        self.say(&[("never-ready", "true".to_owned())]).await
    }

    /// No probe of a container succeeds before it has run for so long.
    ///
    /// # Errors
    /// As [`crash`](Pods::crash).
    pub async fn slow(&self, time: Duration) -> Result<()> {
        self.say(&[("ready-seconds", time.as_secs_f64().to_string())]).await
    }

    /// A command that a client runs in a container (`kubectl exec`, `Api::exec`) prints this and exits with this code;
    /// nothing is run. Otherwise the cluster refuses such commands, because no container runs. What is printed is the
    /// same for all commands.
    ///
    /// # Errors
    /// As [`crash`](Pods::crash).
    pub async fn answer_commands(&self, output: &str, code: i32) -> Result<()> {
        self.say(&[("exec-output", output.to_owned()), ("exec-code", code.to_string())])
            .await
    }

    /// Takes the behaviour back.
    ///
    /// # Errors
    /// As [`crash`](Pods::crash).
    pub async fn recover(&self) -> Result<()> {
        self.say(&[]).await
    }

    async fn say(&self, words: &[(&str, String)]) -> Result<()> {
        let annotations: BTreeMap<String, String> = words
            .iter()
            .map(|(word, value)| (format!("{PREFIX}{word}"), value.clone()))
            .collect();
        let patch: serde_json::Map<String, Value> = WORDS
            .iter()
            .map(|word| format!("{PREFIX}{word}"))
            .map(|key| {
                (
                    key.clone(),
                    annotations.get(&key).map_or(Value::Null, |value| json!(value)),
                )
            })
            .collect();
        let set = self
            .behaviours
            .set(self.namespace.as_deref(), &self.selector, annotations);
        set.map_err(Error::Selector)?;
        for pod in self.present().await? {
            self.annotate(&pod, Value::Object(patch.clone())).await?;
        }
        Ok(())
    }

    async fn present(&self) -> Result<Vec<Pod>> {
        let api: Api<Pod> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.kube.clone(), namespace),
            None => Api::all(self.kube.clone()),
        };
        let found = api.list(&ListParams::default().labels(&self.selector)).await;
        let attempted = || format!("list the pods {:?}", self.selector);
        Ok(found
            .map_err(|source| Error::Api {
                attempted: attempted(),
                source,
            })?
            .items)
    }

    /// A pod that is gone meanwhile needs none.
    async fn annotate(&self, pod: &Pod, annotations: Value) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.kube.clone(), &pod.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        match api.patch(&pod.name_any(), &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => Err(Error::Api {
                attempted: format!("annotate the pod {}", pod.name_any()),
                source,
            }),
            Ok(_) => Ok(()),
        }
    }
}
