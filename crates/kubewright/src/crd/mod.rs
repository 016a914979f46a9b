//! From a Rust type to its CustomResourceDefinition: `schemars` makes the schema of the type, and this module turns it
//! into one that Kubernetes accepts.
//!
//! kube's own generator loses or refuses much of it (tagged enums panic, every `Option` becomes nullable, set and struct
//! types are lost). So the schema is generated here, from `K: JsonSchema`; only names, scope, columns and similar things
//! come from `K::crd()`.
//! - `structural.rs`: one schema, keyword by keyword;
//! - `inlined.rs`: rules of fields that stand on a type with a schema of its own;
//! - `union.rs`: enums with data, which Kubernetes writes as one object with rules.
//!
//! Invariant: the same types give the same text. Not here: checking the result as an API server would, trimming
//! descriptions, and writing files, which `kubewright manifests` does.

mod inlined;
mod markers;
mod merge;
mod structural;
mod union;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::core::ApiResource;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Names the Kubernetes type whose schema this is. It is in the declaration only: the command knows more about these
/// types than their crate.
pub(crate) const TYPE: &str = "x-kubewright-type";

/// Something that is wrong or doubtful about a type, told where the declaration is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The field, such as `spec.rules[].port`; empty for the type as a whole.
    pub at: String,
    /// A word for the kind of problem: `union`, `tuple`, `recursive`, `keyword`, `unknown-field`, `map`, `panic`; or,
    /// as a warning, `bytes`, `flatten`.
    pub what: &'static str,
    /// Why, in words.
    pub why: String,
    /// Whether there is a definition all the same.
    pub warning: bool,
}

/// One version of a definition, as the declaration has it.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub(crate) rust: &'static str,
    pub(crate) crd: Value,
    pub(crate) problems: Vec<Problem>,
}

impl Generated {
    pub(crate) fn of<K: CustomResourceExt + JsonSchema>() -> Generated {
        let schema = |inline: bool| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.meta_schema = None;
            settings.inline_subschemas = inline;
            settings.into_generator().into_root_schema_for::<K>().to_value()
        };
        let name = (K::crd_name(), K::api_resource());
        let schemas = [schema(false), schema(true)];
        Generated::from(std::any::type_name::<K>(), schemas, catch(|| K::crd()), name)
    }

    /// All that is the same for every type, apart from it: an operator compiles code that names a type anew whenever
    /// the type changes.
    fn from(
        rust: &'static str,
        [raw, inlined]: [Value; 2],
        made: std::result::Result<CustomResourceDefinition, String>,
        name: (&str, ApiResource),
    ) -> Generated {
        let (schema, mut problems) = structural::root(&raw, inlined);
        let mut crd = match made {
            Ok(crd) => serde_json::to_value(crd).unwrap_or_default(),
            Err(why) => {
                problems.push(Problem {
                    at: String::new(),
                    what: "panic",
                    why,
                    warning: false,
                });
                bare(name.0, &name.1)
            }
        };
        if let Some(version) = crd.pointer_mut("/spec/versions/0") {
            version["schema"] = json!({"openAPIV3Schema": schema});
        }
        Generated { rust, crd, problems }
    }
}

/// The parts of a definition that are known without `K::crd()`.
fn bare(name: &str, resource: &ApiResource) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": resource.group,
            "names": {"kind": resource.kind, "plural": resource.plural},
            "scope": "Namespaced",
            "versions": [{"name": resource.version, "served": true, "storage": true}],
        },
    })
}

/// Runs `body`; the message of a panic becomes an error, and is not printed besides.
fn catch<T>(body: impl FnOnce() -> T) -> std::result::Result<T, String> {
    // The hook belongs to the whole process: one at a time.
    static HOOK: Mutex<()> = Mutex::new(());
    let _held = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = catch_unwind(AssertUnwindSafe(body));
    std::panic::set_hook(hook);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("it panicked without a word")
            .to_owned()
    })
}

/// The definition as an API server takes it.
///
/// # Errors
/// [`Error::Configuration`] when the type has no definition.
pub(crate) fn finished(generated: &Generated) -> Result<CustomResourceDefinition> {
    if let Some(problem) = generated.problems.iter().find(|problem| !problem.warning) {
        let at = if problem.at.is_empty() {
            String::new()
        } else {
            format!(" {}:", problem.at)
        };
        return Err(Error::Configuration(format!(
            "{} has no CustomResourceDefinition:{at} {} (`kubewright manifests` says what to do)",
            generated.rust, problem.why
        )));
    }
    let mut crd = generated.crd.clone();
    strip(&mut crd);
    serde_json::from_value(crd).map_err(|error| {
        Error::Configuration(format!(
            "{}: the generated CustomResourceDefinition cannot be read back: {error}",
            generated.rust
        ))
    })
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove(TYPE);
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}
