//! Certificates that a node requests for a pod (from Kubernetes 1.37 on): the pod runs there under this service account,
//! and wants a certificate of this signer.
//!
//! As upstream, an object that is unknown or has another uid is an error (500), not a refusal (403): the server may not
//! have seen the object yet, so the node may try again.

use kubewright_schema::error::quote;
use serde_json::Value;

use super::super::Operation;
use super::{Request, missing};
use crate::authorization;
use crate::model::facts::references;
use crate::model::form::key;
use crate::model::object;
use crate::model::status::Status;
use crate::values::{get, items};

impl Request<'_> {
    /// `admitPodCertificateRequest`
    pub(super) fn check_pod_certificate(&self) -> Result<(), Status> {
        let attributes = self.attributes;
        if attributes.operation != Operation::Create {
            return self.refuse(format!("unexpected operation {}", attributes.operation.as_str()));
        }
        if !attributes.subresource.is_empty() {
            return self.refuse(format!("unexpected subresource {}", attributes.subresource));
        }
        let text = |field: &str| get(self.object, &["spec", field]).as_str().unwrap_or("");
        let (pod_name, account) = (text("podName"), text("serviceAccountName"));
        let of_pod = quote(&format!("{}/{pod_name}", attributes.namespace));
        if text("nodeName") != self.node {
            let (other, node) = (quote(text("nodeName")), quote(self.node));
            return self.refuse(format!(
                "PodCertificateRequest.Spec.NodeName={other}, which is not the requesting node {node}"
            ));
        }
        let find = |store: &str, place: &str, kind: &str, name: &str, shown: &str| {
            let found = self.session.storage().get(store, place);
            found.ok_or_else(|| {
                let why = missing("", kind, name).message;
                let what = if kind == "serviceaccount" {
                    "service account"
                } else {
                    kind
                };
                Status::untyped(format!(
                    "while retrieving {what} {shown} named in the PodCertificateRequest: {why}"
                ))
            })
        };
        let node = find("nodes", self.node, "node", self.node, &quote(self.node))?;
        if object::uid(node.value()) != text("nodeUID") {
            return Err(Status::untyped(format!(
                "PodCertificateRequest for pod {of_pod} names node UID {}, inconsistent with the running node ({})",
                quote(text("nodeUID")),
                quote(object::uid(node.value()))
            )));
        }
        let place = |name: &str| key(&attributes.namespace, name);
        let stored = find("pods", &place(pod_name), "pod", pod_name, &of_pod)?;
        let pod = stored.value();
        if object::uid(pod) != text("podUID") {
            return Err(Status::untyped(format!(
                "PodCertificateRequest for pod {of_pod} contains pod UID ({}) which differs from running pod {}",
                quote(text("podUID")),
                quote(object::uid(pod))
            )));
        }
        if get(pod, &["spec", "nodeName"]) != self.node {
            return self.refuse(format!(
                "pod {of_pod} is not running on node {} named in the PodCertificateRequest",
                quote(self.node)
            ));
        }
        if references::is_mirror(pod) {
            return self.refuse(format!("pod {of_pod} is a mirror pod"));
        }
        let own = get(pod, &["spec", "serviceAccountName"]).as_str().unwrap_or("");
        if account != own {
            return self.refuse(format!(
                "PodCertificateRequest for pod {of_pod} contains serviceAccountName ({}) that differs from running pod ({})",
                quote(account),
                quote(own)
            ));
        }
        let of_account = quote(&format!("{}/{account}", attributes.namespace));
        let stored = find(
            "serviceaccounts",
            &place(account),
            "serviceaccount",
            account,
            &of_account,
        )?;
        if object::uid(stored.value()) != text("serviceAccountUID") {
            return Err(Status::untyped(format!(
                "PodCertificateRequest for pod {of_pod} names service account UID {}, which differs from the running \
                 service account ({})",
                quote(text("serviceAccountUID")),
                quote(object::uid(stored.value()))
            )));
        }
        self.check_signer(pod, text("signerName"), account, &of_pod)
    }

    /// `validateNodePodCertificateSigner`
    fn check_signer(&self, pod: &Value, signer: &str, account: &str, of_pod: &str) -> Result<(), Status> {
        let volumes = items(pod, &["spec", "volumes"]).iter();
        let mut sources = volumes.flat_map(|volume| items(volume, &["projected", "sources"]));
        if sources.any(|source| get(source, &["podCertificate", "signerName"]) == signer) {
            return Ok(());
        }
        let question = authorization::Attributes {
            verb: "request-serviceaccounts-podcertificate-signer".to_owned(),
            group: self.attributes.resource.group.to_string(),
            version: "v1".to_owned(),
            // Slashes would make it a subresource.
            resource: signer.replace('/', ":"),
            namespace: self.attributes.namespace.clone(),
            name: account.to_owned(),
            ..authorization::Attributes::default()
        };
        if self.session.decide(&self.attributes.user, &question).is_allowed() {
            return Ok(());
        }
        let signer = quote(signer);
        self.refuse(format!(
            "pod {of_pod} does not mount a podCertificate projected volume for signer {signer}"
        ))
    }
}
