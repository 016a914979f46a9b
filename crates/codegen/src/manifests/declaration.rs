//! The declaration of an operator, as it is read here: the JSON that the operator's hidden subcommand `__declaration`
//! prints.
//!
//! The form is kept by its version number. Fields that a newer operator adds are passed over, so that an older command
//! still works with it; a newer form is refused in words. Not here: the manifests that follow from it.

use serde::Deserialize;
use serde_json::Value;

use crate::codes::crds;
use crate::diagnostic::Diagnostic;

/// The newest form that is understood.
const FORM: u32 = 1;

/// Everything that makes up an operator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Declaration {
    /// The version of the form.
    pub declaration: u32,
    /// The operator's name.
    pub name: String,
    /// The version of the library that wrote it.
    pub kubewright: String,
    /// One entry for each version of each kind.
    pub crds: Vec<Crd>,
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// The admission webhooks.
    pub webhooks: Vec<Webhook>,
    /// The kinds whose versions are converted.
    pub conversions: Vec<Conversion>,
    /// Rules that belong to no controller.
    pub rbac: Vec<Rule>,
    /// Why the operator would not start.
    pub problems: Vec<String>,
}

/// One version of a CustomResourceDefinition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Crd {
    /// The path of the Rust type.
    pub rust: String,
    /// The definition, with this version only.
    pub crd: Value,
    /// The problems that the operator itself found.
    pub problems: Vec<Problem>,
}

/// Something that is wrong or doubtful about a type.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The field, such as `spec.rules[].port`.
    pub at: String,
    /// A word for the kind of problem.
    pub what: String,
    /// Why, in words.
    pub why: String,
    /// Whether there is a definition all the same.
    pub warning: bool,
}

/// A kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The resource.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The path of the Rust type.
    pub rust: String,
}

/// A controller.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Controller {
    /// The name.
    pub name: String,
    /// The cluster of that kind and of the owned ones, if it is not the one that the operator runs in.
    pub cluster: Option<String>,
    /// The kind that is reconciled.
    #[serde(rename = "for")]
    pub reconciles: Kind,
    /// The kinds that it makes.
    pub owns: Vec<Kind>,
    /// The kinds that it looks at.
    pub watches: Vec<Kind>,
    /// Whether it records Events.
    pub events: bool,
    /// The finalizer that it holds on its objects.
    #[serde(default)]
    pub finalizer: Option<String>,
    /// Explicit rules.
    pub rbac: Vec<Rule>,
}

/// A rule of a role, as `#[rbac]` says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// API groups; `core` is another word for the empty one.
    pub groups: Vec<String>,
    /// Resources by their plural.
    pub resources: Vec<String>,
    /// Names of objects.
    pub resource_names: Vec<String>,
    /// The allowed verbs.
    pub verbs: Vec<String>,
    /// Paths that are no resources.
    pub urls: Vec<String>,
    /// The namespace of a Role; empty for the ClusterRole.
    pub namespace: String,
    /// The name of the role; empty for the usual one.
    pub role_name: String,
    /// The file, line and column of the source that makes the rule; absent from operators that do not say so.
    pub at: Option<(String, usize, usize)>,
}

/// An admission webhook.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Webhook {
    /// The kind that it is asked about.
    #[serde(rename = "for")]
    pub kind: Kind,
    /// Whether it may change objects.
    pub mutating: bool,
    /// The path under which it is served.
    pub path: Option<String>,
    /// Its name.
    pub name: String,
    /// The operations that it is called for: `create`, `update`, `delete`, `connect`, `*`.
    pub verbs: Vec<String>,
    /// `Fail` or `Ignore`.
    pub failure_policy: Option<String>,
    /// `Exact` or `Equivalent`.
    pub match_policy: Option<String>,
    /// `None` or `NoneOnDryRun`.
    pub side_effects: Option<String>,
    /// Seconds, 1 to 30.
    pub timeout_seconds: Option<i64>,
    /// `Never` or `IfNeeded`.
    pub reinvocation_policy: Option<String>,
    /// `v1`, `v1beta1`.
    pub admission_review_versions: Vec<String>,
    /// Groups instead of the kind's.
    pub groups: Option<Vec<String>>,
    /// Versions instead of the kind's.
    pub versions: Option<Vec<String>>,
    /// Resources instead of the kind's.
    pub resources: Option<Vec<String>>,
    /// The service instead of `webhook-service`.
    pub service_name: Option<String>,
    /// Its namespace instead of `system`.
    pub service_namespace: Option<String>,
    /// Its port.
    pub service_port: Option<i64>,
    /// A URL instead of a service.
    pub url: Option<String>,
    /// The configuration instead of `mutating-webhook-configuration` or `validating-webhook-configuration`.
    pub configuration_name: Option<String>,
    /// Further fields: selectors, match conditions.
    pub patch: Option<Value>,
}

/// The versions of a kind that are converted between.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Conversion {
    /// The version in the middle.
    pub hub: Kind,
    /// The other ones.
    pub spokes: Vec<Kind>,
}

impl Declaration {
    /// Reads the operator's output.
    ///
    /// # Errors
    /// KWR0390 when it is no declaration, or one of a newer form.
    ///
    /// ```
    /// use kubewright_codegen::manifests::Declaration;
    ///
    /// let declaration = Declaration::parse(r#"{"declaration": 1, "name": "guestbook"}"#).unwrap();
    /// assert_eq!(declaration.name, "guestbook");
    /// ```
    pub fn parse(text: &str) -> Result<Declaration, Diagnostic> {
        let wrong = || Diagnostic::new(crds::DECLARATION, "cannot read what the operator declares");
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with('{'))
            .unwrap_or(text);
        let declaration: Declaration = serde_json::from_str(line).map_err(|error| {
            wrong()
                .because(error)
                .fix("the operator's main must answer `__declaration`, as `kubewright::run(operator()).await` does; print nothing else to standard output")
        })?;
        match declaration.declaration {
            0 => Err(wrong()
                .because("the document has no field `declaration`")
                .fix("let main be `kubewright::run(operator()).await`")),
            newer if newer > FORM => Err(wrong()
                .because(format!(
                    "the operator uses kubewright {}, whose declaration has form {newer}; this command knows form {FORM}",
                    declaration.kubewright
                ))
                .fix("install a newer `kubewright` command")),
            _ => Ok(declaration),
        }
    }
}
