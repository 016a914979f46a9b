//! What an operator consists of, as data: the one description from which manifests are made.
//!
//! [`Operator::declaration`] asks everything that was registered what it is: kinds with their CRDs, controllers with what they reconcile, own
//! and watch, webhooks, conversions, explicit rules. It needs no cluster. `kubewright manifests` runs the operator for this document (as one
//! line of JSON) and writes `config/crd/bases`, `config/rbac/role.yaml` and `config/webhook/manifests.yaml` from it. A controller that is not
//! registered is not in it: nothing is collected behind the program's back.
//!
//! Not here: what follows from it (which rules a role gets, how a CRD is checked), which the command decides, so that an improvement needs no
//! new operator.

use std::fmt;

use kube::core::ApiResource;
use serde::Serialize;
use serde_json::Value;

use crate::controller::{Controller, Relation};
use crate::crd::{self, Problem};
use crate::error::Result;
use crate::operator::Operator;
use crate::webhook::{ConversionDescription, Description, Kind};

/// The version of the document's form.
const FORM: u32 = 1;

/// Everything that makes up an operator, as data. See [`Operator::declaration`].
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Declaration {
    /// The version of this form: 1.
    pub declaration: u32,
    /// The operator's name.
    pub name: String,
    /// The version of this library.
    pub kubewright: &'static str,
    /// One entry for each version of each kind.
    pub crds: Vec<DeclaredCrd>,
    /// The controllers.
    pub controllers: Vec<DeclaredController>,
    /// Admission webhooks.
    pub webhooks: Vec<Description>,
    /// Kinds whose versions are converted.
    pub conversions: Vec<ConversionDescription>,
    /// Rules of [`Operator::rbac`].
    pub rbac: Vec<Rule>,
}

/// One version of a CustomResourceDefinition.
#[derive(Clone, Debug, Serialize)]
pub struct DeclaredCrd {
    /// The Rust type.
    pub rust: String,
    /// The definition with this one version. Schemas of Kubernetes' own types name them in `x-kubewright-type`.
    pub crd: Value,
    /// What is wrong or doubtful about the type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// A controller: what it reconciles, owns and watches.
#[derive(Clone, Debug, Serialize)]
pub struct DeclaredController {
    /// The name.
    pub name: String,
    /// The kind that is reconciled.
    #[serde(rename = "for")]
    pub reconciles: Kind,
    /// The kinds of [`Controller::owns`].
    pub owns: Vec<Kind>,
    /// The kinds of [`Controller::watches`] and [`Controller::watches_all_of`].
    pub watches: Vec<Kind>,
    /// Whether it may record Events.
    pub events: bool,
    /// The finalizer of [`Controller::finalizer`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// Rules of `#[rbac]` and [`Controller::rbac`].
    pub rbac: Vec<Rule>,
}

/// Something that the operator is allowed to do: a rule of a Role or ClusterRole (kubebuilder's `+kubebuilder:rbac`).
///
/// What a controller needs for what it declares is derived; this is for the rest. [`macro@crate::rbac`] writes one beside a reconciler.
///
/// ```
/// use kubewright::Rule;
/// use kubewright::k8s_openapi::api::core::v1::Secret;
///
/// let read_one = Rule::of::<Secret>().resource_names(["db-password"]).verbs(["get"]);
/// let scale = Rule::new().groups(["apps"]).resources(["deployments/scale"]).verbs(["patch"]);
/// let metrics = Rule::new().urls(["/metrics"]).verbs(["get"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Rule {
    groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    verbs: Vec<String>,
    urls: Vec<String>,
    namespace: String,
    role_name: String,
}

fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    texts.into_iter().map(Into::into).collect()
}

impl fmt::Display for Rule {
    /// As `#[rbac]` is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("groups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("verbs", &self.verbs),
            ("urls", &self.urls),
        ];
        let mut parts = Vec::new();
        for (name, list) in lists {
            match list.as_slice() {
                [] => {}
                [one] => parts.push(format!("{name} = {one:?}")),
                many => parts.push(format!("{name} = {many:?}")),
            }
        }
        for (name, text) in [("namespace", &self.namespace), ("roleName", &self.role_name)] {
            if !text.is_empty() {
                parts.push(format!("{name} = {text:?}"));
            }
        }
        write!(f, "#[rbac({})]", parts.join(", "))
    }
}

impl Rule {
    /// A rule that allows nothing yet.
    pub fn new() -> Rule {
        Rule::default()
    }

    /// A rule about the objects of a kind.
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Rule {
        let resource = ApiResource::erase::<K>(&());
        Rule::new().groups([resource.group]).resources([resource.plural])
    }

    /// The rule whose absence a refusal of the API server is about: its texts name the verb, the resource and the group. It displays as the
    /// attribute that adds it.
    ///
    /// ```
    /// use kubewright::Rule;
    ///
    /// let text = r#"secrets is forbidden: User "robot" cannot list resource "secrets" in API group "" at the cluster scope"#;
    /// let missing = Rule::missing_in(text).expect("it is about a right");
    /// assert_eq!(missing.to_string(), r#"#[rbac(groups = "", resources = "secrets", verbs = "list")]"#);
    /// ```
    pub fn missing_in(text: &str) -> Option<Rule> {
        let (_, told) = text.split_once(" cannot ")?;
        let (verb, told) = told.split_once(" resource \"")?;
        let (resource, told) = told.split_once('"')?;
        let (_, told) = told.split_once("in API group \"")?;
        let (group, _) = told.split_once('"')?;
        let plain = |word: &str| {
            word.chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-./*".contains(letter))
        };
        let words = [verb, resource];
        let fits = words.iter().all(|word| !word.is_empty() && plain(word)) && plain(group);
        fits.then(|| Rule::new().groups([group]).resources([resource]).verbs([verb]))
    }

    /// API groups; `""` is the core group, `*` all.
    pub fn groups(mut self, groups: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.groups = texts(groups);
        self
    }

    /// Resources by their plural, also parts of them (`deployments/scale`).
    pub fn resources(mut self, resources: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.resources = texts(resources);
        self
    }

    /// A part of the resources named so far, such as `status` or `scale`.
    pub fn subresource(mut self, part: &str) -> Rule {
        for resource in &mut self.resources {
            *resource = format!("{resource}/{part}");
        }
        self
    }

    /// Only the objects of these names.
    pub fn resource_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.resource_names = texts(names);
        self
    }

    /// What may be done: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …, or `*`.
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.verbs = texts(verbs);
        self
    }

    /// Paths that are no resources, such as `/metrics`.
    pub fn urls(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.urls = texts(urls);
        self
    }

    /// The rule goes into a Role in this namespace.
    pub fn namespace(mut self, namespace: &str) -> Rule {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The rule goes into a role of this name instead of `manager-role`.
    pub fn role_name(mut self, name: &str) -> Rule {
        name.clone_into(&mut self.role_name);
        self
    }
}

impl Operator {
    /// What this operator consists of, as data.
    ///
    /// # Errors
    /// None today: what is wrong with a type is told in [`DeclaredCrd::problems`], with its place.
    pub fn declaration(&self) -> Result<Declaration> {
        Ok(Declaration {
            declaration: FORM,
            name: self.name().to_owned(),
            kubewright: env!("CARGO_PKG_VERSION"),
            crds: self.generated().iter().map(declared_crd).collect(),
            controllers: self.controllers().iter().map(declared_controller).collect(),
            webhooks: self.webhooks(),
            conversions: self.conversions(),
            rbac: self.rules().to_vec(),
        })
    }
}

fn declared_crd(generated: &crd::Generated) -> DeclaredCrd {
    DeclaredCrd {
        rust: generated.rust.to_owned(),
        crd: generated.crd.clone(),
        problems: generated.problems.clone(),
    }
}

fn declared_controller(controller: &Controller) -> DeclaredController {
    let kinds = |wanted: Relation| {
        let mut kinds: Vec<Kind> = Vec::new();
        for (relation, kind) in controller.related() {
            if relation == wanted && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    };
    DeclaredController {
        name: controller.name(),
        reconciles: controller.reconciles(),
        owns: kinds(Relation::Owns),
        watches: kinds(Relation::Watches),
        // Every context has a recorder: whether code uses it cannot be seen from here.
        events: true,
        finalizer: controller.settings.finalizer.clone(),
        rbac: controller.rules(),
    }
}

/// Answers the hidden subcommand `__declaration` of an operator: one JSON document on standard output.
///
/// [`run`](crate::run()) does this by itself; a `main` of your own calls it before it needs a cluster.
///
/// # Errors
/// [`Error::Configuration`](crate::Error::Configuration) when it cannot be written.
pub fn declare(operator: &Operator, out: &mut dyn std::io::Write) -> Result<()> {
    let wrong = |error: &dyn std::fmt::Display| {
        crate::error::Error::Configuration(format!("the declaration cannot be written: {error}"))
    };
    serde_json::to_writer(&mut *out, &operator.declaration()?).map_err(|error| wrong(&error))?;
    out.write_all(b"\n")
        .and_then(|()| out.flush())
        .map_err(|error| wrong(&error))
}
