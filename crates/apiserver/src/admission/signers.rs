//! Who may approve a CertificateSigningRequest and who may sign it (the plugins `CertificateApproval` and `CertificateSigning`).
//!
//! Rights on the request are not enough: its signer must allow it, `approve` or `sign` on `signers` by the signer's name or by
//! `domain/*`.
//!
//! Not here: `CertificateSubjectRestriction`, which looks into the certificate's subject.

use std::sync::Arc;

use kubewright_schema::error::quote;
use serde_json::Value;

use super::{Admission, Attributes, Operation, Session};
use crate::authorization::{self, Authorizer};
use crate::env::BoxFuture;
use crate::status::Status;

const GROUP: &str = "certificates.k8s.io";

/// The plugin.
pub struct Signers {
    authorizer: Arc<dyn Authorizer>,
}

impl Signers {
    /// The plugin, asking `authorizer`.
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Signers {
        Signers { authorizer }
    }

    fn check(&self, attributes: &Attributes, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        let resource = &attributes.resource;
        let of_kind = resource.group == GROUP && resource.plural == "certificatesigningrequests";
        let (Some(old), true, Operation::Update) = (old, of_kind, attributes.operation) else {
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
        let signer = old.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or("");
        let any = signer.split('/').next().unwrap_or("");
        if self.may(attributes, verb, signer) || self.may(attributes, verb, &format!("{any}/*")) {
            return Ok(());
        }
        let why = format!(
            "user not permitted to {verb} requests with signerName {}",
            quote(signer)
        );
        Err(Status::forbidden(resource, &attributes.name, &why))
    }

    fn may(&self, attributes: &Attributes, verb: &str, signer: &str) -> bool {
        let question = authorization::Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name: signer.to_owned(),
            ..authorization::Attributes::default()
        };
        self.authorizer.decide(&attributes.user, &question).is_allowed()
    }
}

impl Admission for Signers {
    fn validate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(std::future::ready(self.check(attributes, object, old)))
    }
}
