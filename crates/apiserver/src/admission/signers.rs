//! The users who may approve a CertificateSigningRequest or sign it (the plugins `CertificateApproval` and
//! `CertificateSigning`), and the subjects for which certificates may be requested (`CertificateSubjectRestriction`).
//!
//! Rights on the request are not enough: its signer must allow it, `approve` or `sign` on `signers` by the signer's
//! name or by `domain/*`. No user gets a client certificate of `system:masters`, because no rule could revoke its
//! rights.

use kubewright_schema::error::quote;
use serde_json::Value;

use super::{Admission, Admitted, Attributes, Operation, Session};
use crate::authorization;
use crate::model::facts::signing_request::SigningRequest;
use crate::model::status::Status;
use crate::values::get;

const GROUP: &str = "certificates.k8s.io";

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
        if may(signer) || may(&format!("{any}/*")) {
            return Ok(());
        }
        let why = format!(
            "user not permitted to {verb} requests with signerName {}",
            quote(signer)
        );
        Err(Status::forbidden(resource, &attributes.name, &why))
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

impl Admission for Signers {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        if resource.group != GROUP || resource.plural != "certificatesigningrequests" {
            return Admitted::YES;
        }
        Admitted::later(session.settled(move || {
            Self::check_subject(attributes, object)?;
            Self::check(session, attributes, object, old)
        }))
    }
}
