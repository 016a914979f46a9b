//! An operator that is shown at work: a cluster starts in this process, the operator runs against it exactly as it
//! would against any cluster, objects are created, and everything that follows is printed with its cause.
//!
//! A [`Demo`] is data: operators, objects, the state to wait for, and words. [`Session`] plays it on a cluster that the
//! caller starts, as `kubewright demo` does; [`main()`] is a whole program, for an example of an operator's package.
//! [`narrator`] turns observations into lines. Not here: the operators.
//!
//! # Where to change what
//!
//! | to change | go to | its tests |
//! |---|---|---|
//! | what a demo prints | `narrator.rs` | the table there, `crates/cli/tests/it/demo.rs` |
//! | how a demo is played | `session.rs` | the same |
//! | the flags of an example's demo | `program.rs` | `examples/sidecarset/tests/it/scenarios/demo.rs` |

use std::fmt;

use kubewright::Operator;
use kubewright_cluster::{Images, ProcessRuntime};
use serde_json::{Value, json};

pub mod account;
pub mod narrator;
pub mod paint;
mod program;
mod session;

pub use program::{Options, main};
pub use session::{Session, play};

/// What is shown.
pub struct Demo {
    operators: Vec<(Operator, Vec<Value>)>,
    objects: Vec<Value>,
    waits_for: Option<&'static str>,
    subject: &'static str,
    state: &'static str,
    is_reached: fn(&Value) -> bool,
    processes: Option<ProcessRuntime>,
    commands: &'static str,
}

impl Demo {
    /// A demo that ends when the object of the kind `subject` is in a state, which `state` names.
    pub fn new(subject: &'static str, state: &'static str, is_reached: fn(&Value) -> bool) -> Demo {
        Demo {
            operators: Vec::new(),
            objects: Vec::new(),
            waits_for: None,
            subject,
            state,
            is_reached,
            processes: None,
            commands: "",
        }
    }

    /// Runs this operator, with the roles in this YAML: its `config/rbac/role.yaml`.
    ///
    /// # Errors
    /// When the roles are no YAML.
    pub fn operator(mut self, operator: Operator, roles: &str) -> Result<Demo, Error> {
        let roles = serde_saphyr::from_multiple(roles);
        let roles = roles.map_err(|why| Error::new("cannot read the roles of the operator").because(why))?;
        self.operators.push((operator, roles));
        Ok(self)
    }

    /// Creates this object after those before it; in the namespace `default` where its kind is in one.
    #[must_use]
    pub fn object(mut self, object: Value) -> Demo {
        self.objects.push(object);
        self
    }

    /// [`object`](Demo::object), which is Ready before the next one is created.
    #[must_use]
    pub fn object_first(mut self, object: Value, kind: &'static str) -> Demo {
        self.waits_for = Some(kind);
        self.object(object)
    }

    /// [`object`](Demo::object) out of YAML.
    ///
    /// # Errors
    /// When it is none.
    pub fn sample(self, yaml: &str) -> Result<Demo, Error> {
        let object = serde_saphyr::from_str(yaml).map_err(|why| Error::new("cannot read the sample").because(why))?;
        Ok(self.object(object))
    }

    /// Runs pods as processes of this machine, which has a PostgreSQL.
    ///
    /// # Errors
    /// When it has none; the reason names the package to install.
    pub fn with_postgres(mut self) -> Result<Demo, Error> {
        let images = Images::default();
        images
            .check("postgres")
            .map_err(|why| Error::new("this demo runs a real PostgreSQL").because(why))?;
        self.processes = Some(ProcessRuntime::new(images).every_pod());
        Ok(self)
    }

    /// Commands to try from another terminal, one a line.
    #[must_use]
    pub fn commands(mut self, commands: &'static str) -> Demo {
        self.commands = commands;
        self
    }
}

/// Whether the condition Ready is True, for the present generation.
pub fn is_ready(object: &Value) -> bool {
    let ready = condition(object, "Ready");
    ready["status"] == "True" && ready["observedGeneration"] == object["metadata"]["generation"]
}

/// A condition of an object; null when it has none of this type.
fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut found = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == type_);
    found.next().unwrap_or(&Value::Null)
}

/// A Deployment `shop` of simulated pods, which demos use; `class` is their RuntimeClass.
pub fn shop(replicas: i32, class: Option<&str>) -> Value {
    let labels = json!({"app": "shop"});
    let mut pod = json!({"containers": [{"name": "main", "image": "shop:1"}]});
    if let Some(class) = class {
        pod["runtimeClassName"] = class.into();
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

/// Why a demo did not come to its end.
#[derive(Debug)]
pub struct Error {
    attempted: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    fn new(attempted: impl Into<String>) -> Error {
        Error {
            attempted: attempted.into(),
            source: None,
        }
    }

    fn because(mut self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.source = Some(why.into());
        self
    }

    /// The reason.
    pub fn into_source(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.source
    }
}

/// The attempt alone; the reason is the source.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.attempted)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
