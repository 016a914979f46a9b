//! CertificateSigningRequests: requests of kubelets for their own certificate are approved when they may, approved
//! requests for one of Kubernetes' signers are signed by the cluster's authority, and old requests are removed, those for
//! certificates of pods (PodCertificateRequest) too.
//!
//! Upstream: `sarApprover`, `signer`, `CSRCleanerController`. Invariant: nothing is signed that was not approved;
//! requests for other signers are theirs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::ByteString;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::{Api, Patch, PostParams};
use kubewright::{Action, Context, Controller, Reconciler, Result};
use kubewright_objects::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kubewright_objects::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec, PodCertificateRequest,
};
use serde_json::json;

use super::CertificateSource;
use kubewright_model::facts::signing_request::SigningRequest;
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
/// How long requests for certificates of pods stay.
const OF_PODS: Duration = Duration::from_secs(15 * 60);

/// Approves, signs and cleans up.
pub(crate) struct Certificates {
    source: Option<CertificateSource>,
}

/// Removes requests for certificates of pods: by then each has long been answered (`PCRCleanerController`).
pub(crate) struct PodRequests;

/// The controller of PodCertificateRequests, from Kubernetes 1.37 on.
pub(crate) fn pod_requests() -> Controller {
    Controller::of(PodRequests).named("podcertificaterequestcleaner")
}

impl Reconciler for PodRequests {
    type Object = PodCertificateRequest;

    async fn reconcile(&self, request: Arc<PodCertificateRequest>, ctx: Context) -> Result<Action> {
        let age = ctx.now().duration_since(meta::created(&request.metadata));
        let left = OF_PODS.saturating_sub(Duration::try_from(age).unwrap_or_default());
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        ctx.client().delete(&*request).await?;
        Ok(Action::await_change())
    }
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
            Some(verdict) => verdict.and_then(|request| source(&request, &usages, lifetime(spec.expiration_seconds))),
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

/// The request, if the signer signs it; none when it is a foreign signer.
fn allowed(spec: &CertificateSigningRequestSpec) -> Option<std::result::Result<SigningRequest, String>> {
    let usages: BTreeSet<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    let judge = match spec.signer_name.as_str() {
        CLIENT => client,
        KUBELET_CLIENT => kubelet_client,
        KUBELET_SERVING => kubelet_serving,
        LEGACY => |_: &SigningRequest, _: &BTreeSet<&str>| Ok(()),
        _ => return None,
    };
    let request = SigningRequest::of_pem(&spec.request.0);
    Some(request.and_then(|request| judge(&request, &usages).map(|()| request)))
}

/// `validAPIServerClientUsages`.
fn client(_: &SigningRequest, usages: &BTreeSet<&str>) -> std::result::Result<(), String> {
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
fn kubelet_client(csr: &SigningRequest, usages: &BTreeSet<&str>) -> std::result::Result<(), String> {
    let names = &csr.names;
    let kinds = [
        (names.dns.is_empty(), "DNS subjectAltNames are not allowed"),
        (names.mails.is_empty(), "Email subjectAltNames are not allowed"),
        (names.addresses.is_empty(), "IP subjectAltNames are not allowed"),
        (names.uris.is_empty(), "URI subjectAltNames are not allowed"),
    ];
    of_nodes(csr)?;
    if let Some((_, why)) = kinds.iter().find(|(is_empty, _)| !is_empty) {
        return Err((*why).to_owned());
    }
    named_as_node(csr)?;
    uses(usages, "client auth")
}

/// `ValidateKubeletServingCSR`.
fn kubelet_serving(csr: &SigningRequest, usages: &BTreeSet<&str>) -> std::result::Result<(), String> {
    of_nodes(csr)?;
    let names = &csr.names;
    let why = match (names.mails.is_empty(), names.uris.is_empty()) {
        _ if names.dns.is_empty() && names.addresses.is_empty() => "DNS or IP subjectAltName is required",
        (false, _) => "Email subjectAltNames are not allowed",
        (true, false) => "URI subjectAltNames are not allowed",
        (true, true) => "",
    };
    if !why.is_empty() {
        return Err(why.to_owned());
    }
    uses(usages, "server auth")?;
    named_as_node(csr)
}

fn of_nodes(csr: &SigningRequest) -> std::result::Result<(), String> {
    if csr.subject.organizations == ["system:nodes"] {
        return Ok(());
    }
    Err("subject organization is not system:nodes".to_owned())
}

fn named_as_node(csr: &SigningRequest) -> std::result::Result<(), String> {
    if csr.subject.common_name.starts_with("system:node:") {
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
    if spec.signer_name != KUBELET_CLIENT {
        return Ok(());
    }
    let Some(Ok(wanted)) = allowed(spec) else {
        return Ok(());
    };
    let own = spec.username.as_ref() == Some(&wanted.subject.common_name);
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
    use kubewright_model::facts::signing_request::AlternativeNames;
    use kubewright_model::facts::subject::Subject;

    use super::*;

    #[test]
    fn what_is_signed() {
        let check = |judge: fn(&SigningRequest, &BTreeSet<&str>) -> std::result::Result<(), String>,
                     csr: &SigningRequest,
                     usages: &[&str],
                     expected: &str| {
            let verdict = judge(csr, &usages.iter().copied().collect());
            assert_eq!(verdict.err().unwrap_or_default(), expected, "{csr:?} {usages:?}");
        };
        let request = |organizations: &[&str], names: AlternativeNames| SigningRequest {
            subject: Subject {
                common_name: "system:node:n".to_owned(),
                organizations: organizations.iter().map(|&name| name.to_owned()).collect(),
                ..Subject::default()
            },
            names,
            ..SigningRequest::default()
        };
        let one = || vec!["a".to_owned()];
        let dns = || AlternativeNames {
            dns: one(),
            ..AlternativeNames::default()
        };
        let nodes = ["system:nodes"];
        let node = request(&nodes, AlternativeNames::default());
        let serving = request(&nodes, dns());
        let (other, more) = (
            request(&[], AlternativeNames::default()),
            request(&["system:nodes", "a"], dns()),
        );
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
        for (mails, uris, why) in [
            (one(), vec![], "Email subjectAltNames are not allowed"),
            (one(), one(), "Email subjectAltNames are not allowed"),
            (vec![], one(), "URI subjectAltNames are not allowed"),
        ] {
            check(
                kubelet_serving,
                &request(&nodes, AlternativeNames { mails, uris, ..dns() }),
                &[],
                why,
            );
        }
        // More groups than nodes have are as bad as none.
        check(kubelet_serving, &more, &[], "subject organization is not system:nodes");
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
