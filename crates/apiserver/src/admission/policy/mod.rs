//! Admission policies: rules in CEL that refuse or change objects, without a webhook.
//!
//! A policy selects requests and has rules for them; a binding puts it into force, for some of these requests and with
//! parameters. `source` keeps the policies compiled, `params` finds the parameters, `expression` compiles and
//! `activation` evaluates, `validating` and `mutating` are the two plugins, `access` asks whether a writer may read the
//! parameters that it names.
//!
//! Invariants: a request that no policy in force may concern costs two look-ups; policies do not apply to policies and
//! bindings, nor to reviews of access; an expression costs no more than its budget; policies run in the order of their
//! names, their bindings likewise.
//!
//! Not here: how policies are written (`kinds::admission_policies`), types of the matched kinds.

mod access;
mod activation;
mod authorizer;
mod compiled;
pub(super) mod conditions;
mod mutating;
mod params;
mod source;
mod untouched;
mod validating;

#[cfg(test)]
mod tests;

use super::Attributes;
use crate::model::facts::REVIEWS;

pub use access::ParameterAccess;
pub use mutating::MutatingPolicies;
pub use validating::ValidatingPolicies;

/// Whether no policy is asked: a policy could keep itself from being repaired, or requests from being authorized.
fn is_exempt(attributes: &Attributes) -> bool {
    const CONFIGURATIONS: [&str; 4] = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ];
    let resource = &attributes.resource;
    is_review(attributes)
        || (resource.group == "admissionregistration.k8s.io" && CONFIGURATIONS.contains(&resource.plural.as_ref()))
}

/// Whether the request asks about users and their rights, and stores nothing.
pub(in crate::admission) fn is_review(attributes: &Attributes) -> bool {
    let resource = &attributes.resource;
    REVIEWS.contains(&(resource.group.as_ref(), resource.plural.as_ref()))
}

/// Whether the request is about a Namespace, whose own name counts as its namespace.
fn is_namespace(attributes: &Attributes) -> bool {
    let kind = &attributes.kind;
    kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace"
}
