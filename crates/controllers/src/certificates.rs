//! CertificateSigningRequests: requests of kubelets for their own certificate are approved when they may, approved
//! requests for one of Kubernetes' signers are signed by the cluster's authority, and old requests are removed.
//!
//! Upstream: `sarApprover`, `signer`, `CSRCleanerController`. Invariant: nothing is signed that was not approved;
//! requests for other signers are theirs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::ByteString;
use kubewright::k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kubewright::k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::{Api, Patch, PostParams};
use kubewright::{Action, Context, Controller, Reconciler, Result};
use serde_json::json;

use super::CertificateSource;
use crate::csr::CertificateRequest;
use kubewright_objects::meta;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const LEGACY: &str = "kubernetes.io/legacy-unknown";
/// How long a certificate is valid at most (`--cluster-signing-duration`), and at least.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const SHORTEST: Duration = Duration::from_secs(10 * 60);
/// How long requests stay that are decided, and those that are not.
const DECIDED: Duration = Duration::from_secs(60 * 60);
const PENDING: Duration = Duration::from_secs(24 * 60 * 60);

/// Approves, signs and cleans up.
pub(crate) struct Certificates {
    source: Option<CertificateSource>,
}

/// The controller of requests.
pub(crate) fn controller(source: Option<CertificateSource>) -> Controller {
    Controller::of(Certificates { source }).named("certificatesigningrequest-controller")
}

impl Reconciler for Certificates {
    type Object = CertificateSigningRequest;

    async fn reconcile(&self, request: Arc<CertificateSigningRequest>, ctx: Context) -> Result<Action> {
        let left = left(&request, ctx.now());
        if left.is_zero() {
            ctx.client().delete(&*request).await?;
            return Ok(Action::await_change());
        }
        let has = |kind: &str| has(&request, kind);
        let signed = request
            .status
            .as_ref()
            .and_then(|status| status.certificate.as_ref())
            .is_some_and(|certificate| !certificate.0.is_empty());
        if !signed && !has("Denied") && !has("Failed") {
            match has("Approved") {
                true => self.sign(&request, &ctx).await?,
                false => approve(&request, &ctx).await?,
            }
        }
        Ok(Action::requeue_after(left))
    }
}

fn conditions(request: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    let status = request.status.as_ref();
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

fn has(request: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(request)
        .iter()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

/// How long the request stays.
fn left(request: &CertificateSigningRequest, now: Timestamp) -> Duration {
    let decided = conditions(request)
        .iter()
        .filter(|condition| condition.status == "True");
    let since = decided
        .filter_map(|condition| condition.last_update_time.as_ref())
        .map(|time| time.0)
        .max();
    let (since, stays) = match since {
        Some(since) => (since, DECIDED),
        None => (meta::created(&request.metadata).min(now), PENDING),
    };
    stays.saturating_sub(Duration::try_from(now.duration_since(since)).unwrap_or_default())
}

impl Certificates {
    async fn sign(&self, request: &CertificateSigningRequest, ctx: &Context) -> Result<()> {
        let (spec, Some(source)) = (&request.spec, &self.source) else {
            return Ok(());
        };
        let usages = spec.usages.clone().unwrap_or_default();
        let made = match allowed(spec) {
            None => return Ok(()),
            Some(Err(why)) => Err(why),
            Some(Ok(())) => source(&spec.request.0, &usages, lifetime(spec.expiration_seconds)),
        };
        let mut next = request.clone();
        let status = next.status.get_or_insert_default();
        match made {
            Ok(pem) => status.certificate = Some(ByteString(pem.into_bytes())),
            Err(message) => status
                .conditions
                .get_or_insert_default()
                .push(CertificateSigningRequestCondition {
                    type_: "Failed".to_owned(),
                    status: "True".to_owned(),
                    reason: Some("SignerValidationFailure".to_owned()),
                    message: Some(message),
                    last_update_time: Some(meta::time(ctx.now())),
                    ..CertificateSigningRequestCondition::default()
                }),
        }
        ctx.client().update_status(&next).await?;
        Ok(())
    }
}

/// The requested lifetime, as far as it is allowed.
fn lifetime(seconds: Option<i32>) -> Duration {
    let wanted = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    wanted.map_or(LONGEST, |seconds| Duration::from_secs(seconds).clamp(SHORTEST, LONGEST))
}

/// Whether the signer signs the request; none when it is a foreign signer.
fn allowed(spec: &CertificateSigningRequestSpec) -> Option<std::result::Result<(), String>> {
    let usages: BTreeSet<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    let verdict = |judge: fn(&CertificateRequest, &BTreeSet<&str>) -> std::result::Result<(), String>| {
        let csr = CertificateRequest::read(&spec.request.0);
        Some(csr.and_then(|csr| judge(&csr, &usages)))
    };
    match spec.signer_name.as_str() {
        CLIENT => verdict(client),
        KUBELET_CLIENT => verdict(kubelet_client),
        KUBELET_SERVING => verdict(kubelet_serving),
        LEGACY => Some(Ok(())),
        _ => None,
    }
}

/// `validAPIServerClientUsages`.
fn client(_: &CertificateRequest, usages: &BTreeSet<&str>) -> std::result::Result<(), String> {
    let known = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !known.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains("client auth") {
        return Err("missing required usage for client certificate: client auth".to_owned());
    }
    Ok(())
}

/// `ValidateKubeletClientCSR`.
fn kubelet_client(csr: &CertificateRequest, usages: &BTreeSet<&str>) -> std::result::Result<(), String> {
    let names = [
        (csr.dns_names, "DNS subjectAltNames are not allowed"),
        (csr.mails, "Email subjectAltNames are not allowed"),
        (csr.addresses, "IP subjectAltNames are not allowed"),
        (csr.uris, "URI subjectAltNames are not allowed"),
    ];
    of_nodes(csr)?;
    if let Some((_, why)) = names.iter().find(|(count, _)| *count > 0) {
        return Err((*why).to_owned());
    }
    named_as_node(csr)?;
    uses(usages, "client auth")
}

/// `ValidateKubeletServingCSR`.
fn kubelet_serving(csr: &CertificateRequest, usages: &BTreeSet<&str>) -> std::result::Result<(), String> {
    of_nodes(csr)?;
    let why = match (csr.dns_names, csr.addresses, csr.mails, csr.uris) {
        (0, 0, _, _) => "DNS or IP subjectAltName is required",
        (_, _, 0, 0) => "",
        (_, _, 0, _) => "URI subjectAltNames are not allowed",
        _ => "Email subjectAltNames are not allowed",
    };
    if !why.is_empty() {
        return Err(why.to_owned());
    }
    uses(usages, "server auth")?;
    named_as_node(csr)
}

fn of_nodes(csr: &CertificateRequest) -> std::result::Result<(), String> {
    if csr.organizations == ["system:nodes"] {
        return Ok(());
    }
    Err("subject organization is not system:nodes".to_owned())
}

fn named_as_node(csr: &CertificateRequest) -> std::result::Result<(), String> {
    if csr.common_name.starts_with("system:node:") {
        return Ok(());
    }
    Err("subject common name does not begin with system:node:".to_owned())
}

/// Signatures and `purpose`; keys that are not RSA need no encipherment.
fn uses(usages: &BTreeSet<&str>, purpose: &str) -> std::result::Result<(), String> {
    let mut needed: BTreeSet<&str> = ["digital signature", purpose].into();
    if *usages == needed {
        return Ok(());
    }
    needed.insert("key encipherment");
    if *usages == needed {
        return Ok(());
    }
    let needed: Vec<&str> = needed.into_iter().collect();
    Err(format!("usages did not match [{}]", needed.join(" ")))
}

/// Approves a kubelet's request for its client certificate if the requesting user has permission.
async fn approve(request: &CertificateSigningRequest, ctx: &Context) -> Result<()> {
    let spec = &request.spec;
    if spec.signer_name != KUBELET_CLIENT || !matches!(allowed(spec), Some(Ok(()))) {
        return Ok(());
    }
    let own =
        CertificateRequest::read(&spec.request.0).is_ok_and(|csr| Some(&csr.common_name) == spec.username.as_ref());
    let kinds = [
        (
            "selfnodeclient",
            own,
            "Auto approving self kubelet client certificate after SubjectAccessReview.",
        ),
        (
            "nodeclient",
            true,
            "Auto approving kubelet client certificate after SubjectAccessReview.",
        ),
    ];
    for (subresource, _, message) in kinds.iter().filter(|(_, fits, _)| *fits) {
        if !may(spec, subresource, ctx).await? {
            continue;
        }
        let mut all = conditions(request).to_vec();
        all.push(CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("AutoApproved".to_owned()),
            message: Some((*message).to_owned()),
            last_update_time: Some(meta::time(ctx.now())),
            ..CertificateSigningRequestCondition::default()
        });
        let patch = json!({
            "metadata": { "resourceVersion": request.metadata.resource_version },
            "status": { "conditions": all },
        });
        let name = ctx.request().name();
        ctx.client()
            .patch_subresource::<CertificateSigningRequest, _>(None, name, "approval", &Patch::Merge(patch))
            .await?;
        return Ok(());
    }
    Ok(())
}

/// Asks the API server whether the user of the request may create such requests.
async fn may(spec: &CertificateSigningRequestSpec, subresource: &str, ctx: &Context) -> Result<bool> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: spec.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: Some(subresource.to_owned()),
                verb: Some("create".to_owned()),
                version: Some("*".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(ctx.client().kube().clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed() {
        let check = |judge: fn(&CertificateRequest, &BTreeSet<&str>) -> std::result::Result<(), String>,
                     csr: &CertificateRequest,
                     usages: &[&str],
                     expected: &str| {
            let verdict = judge(csr, &usages.iter().copied().collect());
            assert_eq!(verdict.err().unwrap_or_default(), expected, "{csr:?} {usages:?}");
        };
        let node = CertificateRequest {
            common_name: "system:node:n".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..CertificateRequest::default()
        };
        let serving = CertificateRequest {
            dns_names: 1,
            ..node.clone()
        };
        let other = CertificateRequest {
            organizations: vec![],
            ..node.clone()
        };
        check(client, &node, &["client auth"], "");
        check(
            client,
            &node,
            &["digital signature"],
            "missing required usage for client certificate: client auth",
        );
        check(
            client,
            &node,
            &["server auth"],
            "invalid usage for client certificate: server auth",
        );
        check(kubelet_client, &node, &["client auth", "digital signature"], "");
        check(
            kubelet_client,
            &node,
            &["client auth", "digital signature", "key encipherment"],
            "",
        );
        check(
            kubelet_client,
            &serving,
            &["client auth"],
            "DNS subjectAltNames are not allowed",
        );
        check(kubelet_client, &other, &[], "subject organization is not system:nodes");
        check(
            kubelet_client,
            &node,
            &["client auth"],
            "usages did not match [client auth digital signature key encipherment]",
        );
        check(kubelet_serving, &serving, &["server auth", "digital signature"], "");
        check(kubelet_serving, &node, &[], "DNS or IP subjectAltName is required");
        check(
            kubelet_serving,
            &CertificateRequest {
                mails: 1,
                ..serving.clone()
            },
            &[],
            "Email subjectAltNames are not allowed",
        );
        check(
            kubelet_serving,
            &CertificateRequest { uris: 1, ..serving },
            &[],
            "URI subjectAltNames are not allowed",
        );
    }

    #[test]
    fn times() {
        let check = |seconds: Option<i32>, expected: Duration| assert_eq!(lifetime(seconds), expected, "{seconds:?}");
        check(None, LONGEST);
        check(Some(3600), Duration::from_secs(3600));
        check(Some(60), SHORTEST);
        check(Some(i32::MAX), LONGEST);
        let now: Timestamp = "2026-01-01T02:00:00Z".parse().expect("a time");
        let left_of = |conditions: serde_json::Value| {
            let request = json!({
                "metadata": { "creationTimestamp": "2026-01-01T01:00:00Z" },
                "spec": { "request": "", "signerName": CLIENT }, "status": { "conditions": conditions },
            });
            left(&serde_json::from_value(request).expect("a request"), now).as_secs()
        };
        assert_eq!(left_of(json!([])), 23 * 3600);
        let approved = |at: &str| json!([{ "type": "Approved", "status": "True", "lastUpdateTime": at }]);
        assert_eq!(left_of(approved("2026-01-01T01:30:00Z")), 1800);
        assert_eq!(left_of(approved("2026-01-01T00:30:00Z")), 0);
    }
}
