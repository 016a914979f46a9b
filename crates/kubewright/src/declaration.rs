//! The parts of an operator, as data: the one description from which manifests are made.
//!
//! [`Operator::declaration`] asks every registered part for its description: kinds with their CRDs, controllers with
//! the kinds that they reconcile, own and watch, webhooks, conversions, explicit rules. It needs no cluster.
//! `kubewright manifests` runs the operator for this document (as one line of JSON) and writes `config/crd/bases`,
//! `config/rbac/role.yaml` and `config/webhook/manifests.yaml` from it. A controller that is not registered is not
//! in it: nothing is collected implicitly.
//!
//! Not here: the manifests that are made from it (the rules of a role, the checks of a CRD). The command makes them, so
//! an improvement needs no new version of this library.

use serde::Serialize;
use serde_json::Value;

use crate::controller::{Controller, Relation};
use crate::crd::{self, Problem};
use crate::error::Result;
use crate::operator::Operator;
use crate::request::HOME_CLUSTER;
use crate::rule::Rule;
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
    /// Why the operator would not start: parts that do not fit together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// One version of a CustomResourceDefinition.
#[derive(Clone, Debug, Serialize)]
pub struct DeclaredCrd {
    /// The Rust type.
    pub rust: String,
    /// The definition with this one version. Schemas of Kubernetes' own types name them in `x-kubewright-type`.
    pub crd: Value,
    /// Errors and doubts about the type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// A controller: the kinds that it reconciles, owns and watches.
#[derive(Clone, Debug, Serialize)]
pub struct DeclaredController {
    /// The name.
    pub name: String,
    /// The cluster of that kind, if it is not the home cluster ([`Controller::in_cluster`]), or `*` for every cluster
    /// ([`Controller::in_every_cluster`]): the operator's role says nothing about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
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

impl Operator {
    /// The parts of this operator, as data.
    ///
    /// # Errors
    /// None today: the problems of a type are in [`DeclaredCrd::problems`], with their places.
    pub fn declaration(&self) -> Result<Declaration> {
        Ok(Declaration {
            declaration: FORM,
            name: self.name().to_owned(),
            kubewright: env!("CARGO_PKG_VERSION"),
            crds: self.generated().iter().map(declared_crd).collect(),
            controllers: self.controllers().iter().map(declared_controller).collect(),
            webhooks: self.webhooks(),
            conversions: self.conversions(),
            rbac: self.rules(),
            problems: self.options.check().err().iter().map(ToString::to_string).collect(),
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
        cluster: Some(controller.own_cluster().to_owned()).filter(|cluster| cluster != HOME_CLUSTER),
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
