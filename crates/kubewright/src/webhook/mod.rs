//! Webhooks: the API server calls them before it stores an object, and when it needs another version of one.
//!
//! A [`Webhook`] has a [`Defaulter`] and a [`Validator`] of one kind, with their registration ([`Registration`]); a
//! [`Conversion`] converts between the versions of one kind. Both are declared with the operator. Everything else is
//! made from the declaration: the manifests (`Description`), the HTTPS server of a manager ([`WebhookServer`]), the
//! calls without a socket in tests ([`WebhookHandlers`]).
//!
//! # Invariants
//!
//! W1 every response has the uid of its request, also after errors and panics; W2 the patch, applied to the object as
//! it was sent, gives the defaulted object, and fields that the Rust type does not know stay; W3 a dry run is visible
//! to the handler and its client writes nothing; W4 conversions keep order and metadata; W5 a new certificate drops no
//! connection; W6 the server listens before any cache lists; W7 every body has a limit.
//!
//! # The files
//!
//! - `defaulter.rs`, `validator.rs`, `raw.rs`: what a user implements,
//! - `request.rs`: what a handler gets,
//! - `denied.rs`, `field_errors.rs`: how a handler refuses,
//! - `registration.rs`, `description.rs`: what the API server needs to know,
//! - `merge.rs`, `json_patch.rs`: from a changed object to a minimal patch,
//! - `conversion.rs`, `authentication.rs`,
//! - `review.rs`: the documents on the wire,
//! - `handlers.rs`: from a path to a response,
//! - `server.rs`, `certificate.rs`: HTTPS.
//!
//! Not here: issuing certificates (done by cert-manager or the test cluster).

mod authentication;
mod body;
mod conversion;
mod defaulter;
mod denied;
mod description;
mod field_errors;
mod handlers;
mod json_patch;
mod merge;
mod raw;
mod registration;
mod request;
mod review;
mod server;
#[cfg(test)]
mod tests;
mod validator;

use std::fmt;
use std::marker::PhantomData;

pub use authentication::{Authenticator, TokenRequest};
pub use conversion::Conversion;
pub use defaulter::Defaulter;
pub use denied::Denied;
pub use description::{ConversionDescription, Description, Kind, configurations};
pub use field_errors::{FieldErrors, field_path};
pub use handlers::{AdmissionResponse, WebhookHandlers};
pub use raw::{RawDefaulter, RawValidator};
pub use registration::{FailurePolicy, MatchPolicy, Registration, Reinvocation, SideEffects};
pub use request::{AdmissionRequest, Operation};
pub use server::{WebhookServer, default_certificate_dir};
pub use validator::Validator;

pub(crate) use handlers::Parts;

use crate::object::Object;
use defaulter::Defaults;
use description::Flavour;
use handlers::Chain;
use raw::{RawDefaults, RawValidates};
use validator::Validates;

/// The webhooks of one kind (controller-runtime's `WebhookManagedBy`): at most one that sets defaults and one that
/// validates. Each may have
/// several handlers, which are asked one after the other: a defaulter sees what those before it changed.
///
/// ```
/// use kubewright::k8s_openapi::api::core::v1::Pod;
/// use kubewright::webhook::{FailurePolicy, Operation};
/// use kubewright::{AdmissionRequest, Defaulter, Denied, Operator, Validator, Webhook};
///
/// struct PodDefaulter;
///
/// impl Defaulter for PodDefaulter {
///     type Object = Pod;
///
///     async fn default(&self, pod: &mut Pod, _: &AdmissionRequest) -> Result<(), Denied> {
///         pod.metadata.labels.get_or_insert_default().entry("team".into()).or_insert("nobody".into());
///         Ok(())
///     }
/// }
///
/// struct PodValidator;
///
/// impl Validator for PodValidator {
///     type Object = Pod;
///
///     async fn create(&self, pod: &Pod, request: &AdmissionRequest) -> Result<(), Denied> {
///         if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
///             request.warn("spec.hostNetwork: the pod sees the traffic of its node");
///         }
///         Ok(())
///     }
/// }
///
/// let webhook = Webhook::of::<Pod>()
///     .defaulter(PodDefaulter)
///     .mutating(|webhook| webhook.operations([Operation::Create]).failure_policy(FailurePolicy::Ignore))
///     .validator(PodValidator);
/// assert_eq!(webhook.descriptions()[0].path, "/mutate--v1-pod");
/// let operator = Operator::new("guard").webhook(webhook);
/// # assert_eq!(operator.webhooks().len(), 2);
/// ```
#[must_use]
pub struct Webhook<K = ()> {
    defaulters: Chain,
    validators: Chain,
    mutating: Registration,
    validating: Registration,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Webhook<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("kind", &std::any::type_name::<K>())
            .field("defaulting", &!self.defaulters.is_empty())
            .field("validating", &!self.validators.is_empty())
            .finish()
    }
}

impl Webhook {
    /// The webhooks of a kind: one of the operator's own, a built-in one, or a foreign one. Without a defaulter and a
    /// validator it is empty.
    pub fn of<K: Object>() -> Webhook<K> {
        Webhook {
            defaulters: Chain::default(),
            validators: Chain::default(),
            mutating: Registration::default(),
            validating: Registration::default(),
            kind: PhantomData,
        }
    }
}

impl<K: Object> Webhook<K> {
    /// Sets defaults with this: a mutating webhook, asked when an object is created or updated.
    pub fn defaulter(mut self, defaulter: impl Defaulter<Object = K>) -> Webhook<K> {
        self.defaulters.add(Defaults(defaulter));
        self
    }

    /// Sets defaults with this, which sees the object as JSON.
    pub fn raw_defaulter(mut self, defaulter: impl RawDefaulter) -> Webhook<K> {
        self.defaulters.add(RawDefaults(defaulter));
        self
    }

    /// Validates with this: a validating webhook, asked when an object is created or updated. Deletions are asked about
    /// when [`Registration::operations`] says so.
    pub fn validator(mut self, validator: impl Validator<Object = K>) -> Webhook<K> {
        self.validators.add(Validates(validator));
        self
    }

    /// Validates with this, which sees the request as it came.
    pub fn raw_validator(mut self, validator: impl RawValidator) -> Webhook<K> {
        self.validators.add(RawValidates(validator));
        self
    }

    /// Changes the registration of the defaulter.
    pub fn mutating(mut self, change: impl FnOnce(Registration) -> Registration) -> Webhook<K> {
        self.mutating = change(self.mutating);
        self
    }

    /// Changes the registration of the validator.
    pub fn validating(mut self, change: impl FnOnce(Registration) -> Registration) -> Webhook<K> {
        self.validating = change(self.validating);
        self
    }

    /// The descriptions for the API server: the defaulter first, if there is one.
    pub fn descriptions(&self) -> Vec<Description> {
        let flavours = [
            (&self.defaulters, Flavour::Mutating, &self.mutating),
            (&self.validators, Flavour::Validating, &self.validating),
        ];
        let present = flavours.into_iter().filter(|(handlers, ..)| !handlers.is_empty());
        present
            .map(|(_, flavour, registration)| Description::of::<K>(flavour, registration))
            .collect()
    }

    pub(crate) fn into_registered(self) -> Vec<Registered> {
        let descriptions = self.descriptions();
        let handlers = [self.defaulters, self.validators].into_iter();
        descriptions
            .into_iter()
            .zip(handlers.filter(|handlers| !handlers.is_empty()))
            .map(|(description, handlers)| Registered { description, handlers })
            .collect()
    }
}

/// One webhook with its description for the API server, for any kind.
pub(crate) struct Registered {
    pub(crate) description: Description,
    pub(crate) handlers: Chain,
}
