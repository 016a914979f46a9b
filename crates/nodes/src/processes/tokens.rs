//! Tokens of service accounts for projected volumes: asked for with the TokenRequest API, and again before they expire.
//!
//! As `pkg/kubelet/token`: a token is renewed when four fifths of its time are over, or a day.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kubewright::Client;
use kubewright::kube::Api;
use kubewright::kube::api::PostParams;
use kubewright_objects::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use kubewright_objects::api::core::v1::{Pod, ServiceAccount};

use kubewright_objects::meta;

/// The tokens of a pod by volume and path, each with the time of its renewal.
#[derive(Clone, Default)]
pub(super) struct Tokens(BTreeMap<(String, String), (String, Timestamp)>);

impl Tokens {
    pub(super) fn texts(&self) -> BTreeMap<(String, String), String> {
        let all = self.0.iter();
        all.map(|(place, (token, _))| (place.clone(), token.clone())).collect()
    }

    /// When the next is to be renewed.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.0.values().map(|(_, due)| *due).min()
    }

    /// Asks for those that the pod lacks or that are to be renewed.
    ///
    /// # Errors
    /// The API server's answer, in words.
    pub(super) async fn renew(&mut self, client: &Client, pod: &Pod, now: Timestamp) -> Result<(), String> {
        for (place, audience, seconds) in wanted(pod) {
            if self.0.get(&place).is_some_and(|(_, due)| now < *due) {
                continue;
            }
            let spec = pod.spec.as_ref();
            let account = spec
                .and_then(|spec| spec.service_account_name.as_deref())
                .unwrap_or("default");
            let request = TokenRequest {
                spec: Some(TokenRequestSpec {
                    audiences: audience.map(|audience| vec![audience]),
                    expiration_seconds: Some(seconds),
                    bound_object_ref: Some(BoundObjectReference {
                        api_version: Some("v1".to_owned()),
                        kind: Some("Pod".to_owned()),
                        name: pod.metadata.name.clone(),
                        uid: Some(meta::uid(&pod.metadata).to_owned()),
                    }),
                    ..TokenRequestSpec::default()
                }),
                ..TokenRequest::default()
            };
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let accounts: Api<ServiceAccount> = Api::namespaced(client.kube().clone(), namespace);
            let answer: Result<TokenRequest, _> = accounts
                .create_subresource("token", account, &PostParams::default(), &request)
                .await;
            let status = answer
                .map_err(|error| format!("failed to fetch token: {error}"))?
                .status;
            let answered = status.and_then(|status| Some((status.token?, status.expiration_timestamp?.0)));
            let (token, expires) = answered.ok_or_else(|| "failed to fetch token: the answer has none".to_owned())?;
            let left = expires.duration_since(now);
            let due = (left / 5 * 4).min(SignedDuration::from_hours(24));
            self.0.insert(place, (token, now.saturating_add(due).unwrap_or(now)));
        }
        Ok(())
    }
}

/// The tokens that a pod's volumes hold: place, audience, and lifetime in seconds.
fn wanted(pod: &Pod) -> Vec<((String, String), Option<String>, i64)> {
    let spec = pod.spec.iter();
    let volumes = spec.flat_map(|spec| spec.volumes.iter().flatten());
    let mut all = Vec::new();
    for volume in volumes {
        let sources = volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten());
        for token in sources.filter_map(|source| source.service_account_token.as_ref()) {
            let seconds = token.expiration_seconds.unwrap_or(3600);
            all.push((
                (volume.name.clone(), token.path.clone()),
                token.audience.clone(),
                seconds,
            ));
        }
    }
    all
}
