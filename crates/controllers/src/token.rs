//! Secrets of type `kubernetes.io/service-account-token`: filled with a token of the account that they name, and gone
//! with it.
//!
//! A Secret names its account in an annotation, and is good for the account with the uid in another one. A missing
//! token, certificate or namespace is filled in; a Secret whose account does not exist is deleted. When a Secret goes,
//! the account forgets it.
//!
//! Invariant: an account counts as missing only when the API server says so, not when the cache has not seen it yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright::k8s_openapi::ByteString;
use kubewright::{Action, Context, Controller, Reconciler, Request, Result, Scope, Watch};
use kubewright_objects::api::core::v1::{ObjectReference, Secret, ServiceAccount};

use super::{RootCa, SecretToken, TokenSource, is_namespace_going};
use kubewright_objects::meta;

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const TOKEN: &str = "token";
const ROOT_CA: &str = "ca.crt";
const NAMESPACE: &str = "namespace";

/// Signs, and knows the certificate.
pub(crate) struct TokenReconciler {
    tokens: TokenSource,
    root_ca: RootCa,
}

/// The controller.
pub(crate) fn controller(tokens: TokenSource, root_ca: RootCa) -> Controller {
    Controller::of(TokenReconciler { tokens, root_ca })
        .named("serviceaccount-token-controller")
        .within(Scope::all().fields(format!("type={TYPE}")))
        .source(Watch::<ServiceAccount>::new().by_index(
            |secret: &Secret| account_of(secret).into_iter().collect(),
            |account| vec![Request::of(account).to_string()],
        ))
        .concurrency(4)
}

/// The account of a Secret, by namespace and name.
fn account_of(secret: &Secret) -> Option<String> {
    let name = meta::annotation(&secret.metadata, ACCOUNT_NAME).filter(|name| !name.is_empty())?;
    Some(Request::new(secret.metadata.namespace.as_deref(), name).to_string())
}

impl Reconciler for TokenReconciler {
    type Object = Secret;

    async fn reconcile(&self, secret: Arc<Secret>, ctx: Context) -> Result<Action> {
        let client = ctx.client();
        let namespace = ctx.request().namespace().unwrap_or_default();
        let Some(name) = meta::annotation(&secret.metadata, ACCOUNT_NAME).filter(|name| !name.is_empty()) else {
            return Ok(Action::await_change());
        };
        if meta::is_deleting(&secret.metadata) {
            return Ok(Action::await_change());
        }
        let fits = |account: &ServiceAccount| {
            let uid = meta::annotation(&secret.metadata, ACCOUNT_UID).unwrap_or_default();
            uid.is_empty() || uid == meta::uid(&account.metadata)
        };
        let cached = client.get::<ServiceAccount>(Some(namespace), name).await?;
        let account = match cached.filter(|account| fits(account)) {
            Some(account) => Some((*account).clone()),
            None => client.live::<ServiceAccount>(Some(namespace), name).await?.filter(fits),
        };
        let Some(account) = account else {
            client.delete(&*secret).await?;
            return Ok(Action::await_change());
        };
        if let Some(filled) = self.filled(&secret, &account, namespace) {
            match client.update(&filled).await {
                Err(error) if !is_namespace_going(&error) && !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, ctx: Context) -> Result<Action> {
        let is_it = |secret: &ObjectReference| secret.name.as_deref() == Some(request.name());
        for account in ctx.client().list::<ServiceAccount>(request.namespace()).await? {
            if !account.secrets.iter().flatten().any(is_it) {
                continue;
            }
            let mut account = (*account).clone();
            account
                .secrets
                .iter_mut()
                .for_each(|secrets| secrets.retain(|secret| !is_it(secret)));
            ctx.client().update(&account).await?;
        }
        Ok(Action::await_change())
    }
}

impl TokenReconciler {
    /// The Secret with its missing parts; `None` when none is missing, or none that can be had.
    fn filled(&self, secret: &Secret, account: &ServiceAccount, namespace: &str) -> Option<Secret> {
        let mut filled = secret.clone();
        let data = filled.data.get_or_insert_default();
        if let Some(root_ca) = (self.root_ca)() {
            data.insert(ROOT_CA.to_owned(), ByteString(root_ca.into_bytes()));
        }
        let lacks =
            |data: &BTreeMap<String, ByteString>, key: &str| data.get(key).is_none_or(|value| value.0.is_empty());
        if lacks(data, NAMESPACE) {
            data.insert(NAMESPACE.to_owned(), ByteString(namespace.as_bytes().to_vec()));
        }
        if lacks(data, TOKEN) {
            let wanted = SecretToken {
                namespace,
                account: meta::name(&account.metadata),
                account_uid: meta::uid(&account.metadata),
                secret: meta::name(&secret.metadata),
            };
            if let Some(token) = (self.tokens)(&wanted) {
                data.insert(TOKEN.to_owned(), ByteString(token.into_bytes()));
            }
        }
        if filled.data == secret.data {
            return None;
        }
        let annotations = filled.metadata.annotations.get_or_insert_default();
        annotations.insert(ACCOUNT_UID.to_owned(), meta::uid(&account.metadata).to_owned());
        Some(filled)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_gets_what_it_lacks() {
        let reconciler = TokenReconciler {
            tokens: Arc::new(|wanted| {
                Some(format!(
                    "{}/{}/{}/{}",
                    wanted.namespace, wanted.account, wanted.account_uid, wanted.secret
                ))
            }),
            root_ca: Arc::new(|| Some("CA".to_owned())),
        };
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "s", "uid": "u"}})).expect("an account");
        let check = |data: serde_json::Value, want: Option<&[(&str, &str)]>| {
            let secret: Secret =
                serde_json::from_value(json!({"metadata": {"name": "x"}, "data": data})).expect("a secret");
            let filled = reconciler.filled(&secret, &account, "n");
            let got = filled.map(|secret| {
                let data = secret.data.unwrap_or_default().into_iter();
                data.map(|(key, value)| (key, String::from_utf8(value.0).expect("text")))
                    .collect::<Vec<_>>()
            });
            let want = want.map(|want| {
                let pairs = want.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
                pairs.collect::<Vec<_>>()
            });
            assert_eq!(got, want, "{data}");
        };
        check(
            json!(null),
            Some(&[("ca.crt", "CA"), ("namespace", "n"), ("token", "n/s/u/x")]),
        );
        // A token and a namespace that are there stay, with any value; the certificate is the cluster's.
        check(
            json!({"token": "dA==", "namespace": "bQ==", "ca.crt": "eA=="}),
            Some(&[("ca.crt", "CA"), ("namespace", "m"), ("token", "t")]),
        );
        check(json!({"token": "dA==", "namespace": "bQ==", "ca.crt": "Q0E="}), None);
    }
}
