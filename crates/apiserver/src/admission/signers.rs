//! The users who may approve a CertificateSigningRequest or sign it (the plugins `CertificateApproval` and
//! `CertificateSigning`), or attest a ClusterTrustBundle (`ClusterTrustBundleAttest`), and the subjects for which
//! certificates may be requested (`CertificateSubjectRestriction`).
//!
//! Rights on the request are not enough: its signer must allow it, `approve` or `sign` on `signers` by the signer's
//! name or by `domain/*`. No user gets a client certificate of `system:masters`, because no rule could revoke its
//! rights.

use kubewright_schema::base64;
use kubewright_schema::error::{FieldError, quote};
use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::authorization;
use crate::model::facts::signing_request::SigningRequest;
use crate::model::object;
use crate::model::status::Status;
use crate::values::get;

const GROUP: &str = "certificates.k8s.io";
/// By how much the clocks of a signer and of the server may differ.
const CLOCKS_DIFFER: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);

/// The plugin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signers;

impl Signers {
    fn check(session: &Session<'_>, attributes: &Attributes, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        let resource = &attributes.resource;
        let (Some(old), Operation::Update) = (old, attributes.operation) else {
            return Ok(());
        };
        let same = |field: &str| {
            let pointer = format!("/status/{field}");
            new.pointer(&pointer) == old.pointer(&pointer)
        };
        let verb = match attributes.subresource.as_str() {
            "approval" => "approve",
            "status" if !same("certificate") || !same("conditions") => "sign",
            _ => return Ok(()),
        };
        let signer = get(old, &["spec", "signerName"]).as_str().unwrap_or("");
        if Self::is_allowed(session, attributes, verb, signer) {
            return Ok(());
        }
        let why = format!(
            "user not permitted to {verb} requests with signerName {}",
            quote(signer)
        );
        Err(Status::forbidden(resource, &attributes.name, &why))
    }

    /// The same for a request of a pod, which is signed with its own key, and whose whole status is the signer's
    /// (`validateStubPKCS10Request`, `StatusStrategy.ValidateUpdate`).
    fn check_pod_request(
        session: &Session<'_>,
        attributes: &Attributes,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let refuse = |error| {
            let (resource, name) = (&attributes.resource, object::name(new));
            Err(Status::invalid(&resource.group, &resource.kind, name, &[error]))
        };
        let Some(old) = old else {
            let request = get(new, &["spec", "stubPKCS10Request"]).as_str().unwrap_or("");
            let request = base64::decode(request).unwrap_or_default();
            // One that cannot be read was refused by the rules.
            let proves = SigningRequest::of_der(&request).map_or(true, |request| session.signer().proves(&request));
            return match proves {
                true => Ok(()),
                false => refuse(FieldError {
                    bad_value: None,
                    ..FieldError::invalid("spec.stubPKCS10Request", Value::Null, "invalid signature")
                }),
            };
        };
        if attributes.subresource != "status" || old.get("status") == new.get("status") {
            return Ok(());
        }
        let since = get(new, &["status", "notBefore"]);
        let begins = since.as_str().and_then(|since| since.parse::<jiff::Timestamp>().ok());
        let now = session.env().now();
        if begins.is_some_and(|begins| begins.duration_since(now).abs() >= CLOCKS_DIFFER) {
            let why = "must be set to within 5 minutes of kube-apiserver's current time";
            return refuse(FieldError::invalid("status.notBefore", since.clone(), why));
        }
        let signer = get(old, &["spec", "signerName"]).as_str().unwrap_or("");
        if Self::is_allowed(session, attributes, "sign", signer) {
            return Ok(());
        }
        let user = quote(&attributes.user.name);
        let why = format!("User {user} is not permitted to \"sign\" for signer {}", quote(signer));
        refuse(FieldError::forbidden("spec.signerName", why))
    }

    fn check_bundle(
        session: &Session<'_>,
        attributes: &Attributes,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let signer = get(new, &["spec", "signerName"]).as_str().unwrap_or("");
        let changes = old.is_none_or(|old| !differs_for_the_collector_alone(new, old));
        if signer.is_empty() || !changes || Self::is_allowed(session, attributes, "attest", signer) {
            return Ok(());
        }
        let why = format!("user not permitted to attest for signerName {}", quote(signer));
        Err(Status::forbidden(&attributes.resource, &attributes.name, &why))
    }

    /// Whether a user may do this with what a signer signs, or with those of its whole domain.
    fn is_allowed(session: &Session<'_>, attributes: &Attributes, verb: &str, signer: &str) -> bool {
        let any = signer.split('/').next().unwrap_or("");
        let may = |signer: &str| {
            let question = authorization::Attributes {
                verb: verb.to_owned(),
                group: GROUP.to_owned(),
                version: "*".to_owned(),
                resource: "signers".to_owned(),
                name: signer.to_owned(),
                ..authorization::Attributes::default()
            };
            session.decide(&attributes.user, &question).is_allowed()
        };
        may(signer) || may(&format!("{any}/*"))
    }

    fn check_subject(attributes: &Attributes, new: &Value) -> Result<(), Status> {
        const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
        let resource = &attributes.resource;
        let created = attributes.operation == Operation::Create && attributes.subresource.is_empty();
        let spec = |field: &str| get(new, &["spec", field]).as_str().unwrap_or("");
        if !created || spec("signerName") != SIGNER {
            return Ok(());
        }
        let why = match SigningRequest::read(spec("request")) {
            Ok(request)
                if request
                    .subject
                    .organizations
                    .iter()
                    .any(|group| group == "system:masters") =>
            {
                format!("use of {SIGNER} signer with system:masters group is not allowed")
            }
            Ok(_) => return Ok(()),
            Err(why) => format!("failed to parse CSR: {why}"),
        };
        Err(Status::forbidden(resource, &attributes.name, &why))
    }
}

/// Whether nothing but finalizers and owners changes, as the garbage collector does it (`IsOnlyMutatingGCFields`).
fn differs_for_the_collector_alone(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["finalizers", "ownerReferences", "managedFields"] {
                metadata.remove(field);
            }
        }
        object
    };
    rest(new) == rest(old)
}

impl Admission for Signers {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        if resource.group != GROUP {
            return Admitted::YES;
        }
        Admitted::later(session.settled(move || match &*resource.plural {
            "certificatesigningrequests" => {
                Self::check_subject(attributes, object)?;
                Self::check(session, attributes, object, old)
            }
            "podcertificaterequests" => Self::check_pod_request(session, attributes, object, old),
            "clustertrustbundles" => Self::check_bundle(session, attributes, object, old),
            _ => Ok(()),
        }))
    }
}
