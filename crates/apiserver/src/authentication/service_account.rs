//! Tokens of service accounts: their claims, and the checks of them.
//!
//! Two forms, told apart by their issuer: those that TokenRequest gives out, which end and may be bound to a pod, a
//! secret or a node; and those in Secrets of type `kubernetes.io/service-account-token`, which are good as long as the
//! Secret holds them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::jwt::{self, Unproven};
use super::signer::{Signer, SignerError};
use super::{CREDENTIAL_ID, UserInfo};
use crate::model::object;
use crate::model::user::{service_account_groups, service_account_name};
use crate::storage::{Storage, StoredObject};
use crate::{Env, env};

/// The issuer of the tokens in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const LEGACY_NAMESPACE: &str = "kubernetes.io/serviceaccount/namespace";
const LEGACY_SECRET: &str = "kubernetes.io/serviceaccount/secret.name";
const LEGACY_ACCOUNT: &str = "kubernetes.io/serviceaccount/service-account.name";
const LEGACY_UID: &str = "kubernetes.io/serviceaccount/service-account.uid";
/// Why claims of other types are not believed, as go-jose says it.
const NO_AUDIENCE: &str = "go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience";
const NO_DATE: &str = "go-jose/go-jose/jwt: expected number value to unmarshal NumericDate";
/// The key of a Secret's data that holds its token.
const TOKEN_KEY: &str = "token";
/// How long a deleted object still counts as there, in seconds: for clocks that differ.
const LEEWAY: i64 = 60;

/// A name and a uid in a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Name of the object.
    pub name: String,
    /// Its uid; empty for a node that a pod names and that is not there.
    pub uid: String,
}

/// The subject of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSubject {
    /// Namespace of the service account.
    pub namespace: String,
    /// The service account.
    pub account: Bound,
    /// The pod that it is bound to.
    pub pod: Option<Bound>,
    /// The secret that it is bound to.
    pub secret: Option<Bound>,
    /// The node that it is bound to, or that of the pod.
    pub node: Option<Bound>,
    /// Its audiences.
    pub audiences: Vec<String>,
    /// For how many seconds it is good.
    pub seconds: i64,
    /// After how many seconds its use is to be warned about.
    pub warn_after: Option<i64>,
}

/// Issues and checks tokens of service accounts.
pub struct ServiceAccountTokens {
    /// The first of them issues.
    issuers: Vec<String>,
    audiences: Vec<String>,
    signer: Arc<dyn Signer>,
    storage: Arc<dyn Storage>,
    env: Arc<dyn Env>,
}

/// A claim that is a time, in seconds; those of other issuers may have fractions (`NumericDate`).
#[allow(clippy::cast_possible_truncation)] // as Go converts it
fn date(claims: &Value, key: &str) -> Result<Option<i64>, String> {
    match claims.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let seconds = value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64));
            seconds.map(Some).ok_or_else(|| NO_DATE.to_owned())
        }
    }
}

impl ServiceAccountTokens {
    pub(super) fn new(
        issuer: &str,
        signer: Arc<dyn Signer>,
        storage: Arc<dyn Storage>,
        env: Arc<dyn Env>,
    ) -> ServiceAccountTokens {
        ServiceAccountTokens {
            issuers: vec![issuer.to_owned()],
            audiences: vec![issuer.to_owned()],
            signer,
            storage,
            env,
        }
    }

    /// The `iss` of its tokens.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }

    /// Further issuers, and the audiences of the server: those given, or all issuers.
    pub(super) fn believe(&mut self, further: &[String], audiences: &[String]) {
        self.issuers.extend_from_slice(further);
        let audiences = if audiences.is_empty() { &self.issuers } else { audiences };
        self.audiences = audiences.to_vec();
    }

    /// The audiences of a token that is asked for without any.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The public key.
    pub fn signer(&self) -> &dyn Signer {
        self.signer.as_ref()
    }

    /// A signed token, and its id (`jti`).
    ///
    /// # Errors
    /// When there is no key.
    pub fn issue(&self, subject: &TokenSubject, now: Timestamp) -> Result<(String, String), SignerError> {
        let id = env::uuid(self.env.as_ref());
        let now = now.as_second();
        let reference = |bound: &Bound| {
            if bound.uid.is_empty() {
                json!({"name": bound.name})
            } else {
                json!({"name": bound.name, "uid": bound.uid})
            }
        };
        let mut private = Map::new();
        private.insert("namespace".to_owned(), json!(subject.namespace));
        private.insert("serviceaccount".to_owned(), reference(&subject.account));
        for (key, bound) in [
            ("pod", &subject.pod),
            ("secret", &subject.secret),
            ("node", &subject.node),
        ] {
            if let Some(bound) = bound {
                private.insert(key.to_owned(), reference(bound));
            }
        }
        if let Some(seconds) = subject.warn_after {
            private.insert("warnafter".to_owned(), json!(now.saturating_add(seconds)));
        }
        let claims = json!({
            "aud": subject.audiences,
            "exp": now.saturating_add(subject.seconds),
            "iat": now,
            "iss": self.issuer(),
            "jti": id,
            "kubernetes.io": private,
            "nbf": now,
            "sub": service_account_name(&subject.namespace, &subject.account.name),
        });
        Ok((jwt::encode(&claims, self.signer.as_ref())?, id))
    }

    /// The token for a Secret of type `kubernetes.io/service-account-token`. It does not end by itself.
    ///
    /// # Errors
    /// When there is no key.
    pub fn issue_legacy(
        signer: &dyn Signer,
        namespace: &str,
        account: &Bound,
        secret: &str,
    ) -> Result<String, SignerError> {
        let claims = json!({
            "iss": LEGACY_ISSUER,
            LEGACY_NAMESPACE: namespace,
            LEGACY_SECRET: secret,
            LEGACY_ACCOUNT: account.name,
            LEGACY_UID: account.uid,
            "sub": service_account_name(namespace, &account.name),
        });
        jwt::encode(&claims, signer)
    }

    /// The user of this token, and those of `audiences` for which it is valid; `None` when it is not a token of this
    /// issuer.
    ///
    /// # Errors
    /// Why it is not believed, in Kubernetes' words.
    pub fn verify(&self, token: &str, audiences: &[String]) -> Result<Option<(UserInfo, Vec<String>)>, String> {
        let Some(unproven) = Unproven::parse(token) else {
            return Ok(None);
        };
        let issuer = text(&unproven.claims, "/iss");
        let legacy = issuer == LEGACY_ISSUER;
        if !legacy && !self.issuers.iter().any(|known| known == issuer) {
            return Ok(None);
        }
        if !unproven.is_signed_by(self.signer.as_ref()) {
            return Err("go-jose/go-jose: error in cryptographic primitive".to_owned());
        }
        let claims = &unproven.claims;
        let mut own: Vec<String> = match claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(all)) if all.iter().all(Value::is_string) => {
                all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            None | Some(Value::Null) => Vec::new(),
            // A claim that is passed over would be one that everybody meets.
            Some(_) => return Err(NO_AUDIENCE.to_owned()),
        };
        if own.is_empty() {
            own.clone_from(&self.audiences);
        }
        // In the order in which the caller asks.
        let good: Vec<String> = audiences.iter().filter(|one| own.contains(one)).cloned().collect();
        if good.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&own),
                quoted(audiences)
            ));
        }
        let user = if legacy {
            self.legacy_user(token, claims)?
        } else {
            self.user(claims)?
        };
        Ok(Some((user, good)))
    }

    fn user(&self, claims: &Value) -> Result<UserInfo, String> {
        let now = self.env.now();
        let seconds = |key: &str| date(claims, key);
        if seconds("nbf")?.is_some_and(|from| now.as_second() < from) {
            return Err("service account token is not valid yet".to_owned());
        }
        // Beyond all times of day are the beginning and the end of them.
        let ended = |until: i64| Timestamp::from_second(until).map_or(until < 0, |until| now > until);
        if seconds("exp")?.is_some_and(ended) {
            return Err("service account token has expired".to_owned());
        }
        if seconds("iat")?.is_some_and(|from| now.as_second() < from) {
            return Err("service account token is issued in the future".to_owned());
        }
        let private = claims.get("kubernetes.io").unwrap_or(&Value::Null);
        let namespace = text(private, "/namespace");
        let name = text(private, "/serviceaccount/name");
        let uid = text(private, "/serviceaccount/uid");
        let account = self.account(namespace, name)?;
        if gone_for_long(&account, now) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        let present = object::uid(account.value());
        if present != uid {
            return Err(format!("service account UID ({present}) does not match claim ({uid})"));
        }
        let mut user = account_user(namespace, name, uid);
        self.check_bound(private, namespace, now)?;
        let mut extra = |key: &str, value: String| {
            user.extra.insert(key.to_owned(), vec![value]);
        };
        let id = text(claims, "/jti");
        if !id.is_empty() {
            extra(CREDENTIAL_ID, format!("JTI={id}"));
        }
        for (key, pointer) in [
            ("pod-name", "/pod/name"),
            ("pod-uid", "/pod/uid"),
            ("node-name", "/node/name"),
            ("node-uid", "/node/uid"),
        ] {
            let value = text(private, pointer);
            if !value.is_empty() {
                extra(&format!("authentication.kubernetes.io/{key}"), value.to_owned());
            }
        }
        Ok(user)
    }

    /// The objects that the token is bound to must still exist. The node of a pod may go: the token is bound to the
    /// pod.
    fn check_bound(&self, private: &Value, namespace: &str, now: Timestamp) -> Result<(), String> {
        const INVALIDATED: &str = "service account token has been invalidated";
        let of_pod = private.get("pod").is_some();
        for (kind, store, namespace) in [
            ("secret", "secrets", namespace),
            ("pod", "pods", namespace),
            ("node", "nodes", ""),
        ] {
            let Some(bound) = private.get(kind).filter(|_| kind != "node" || !of_pod) else {
                continue;
            };
            let (name, uid) = (text(bound, "/name"), text(bound, "/uid"));
            let Some(found) = self.storage.get(store, &crate::model::form::key(namespace, name)) else {
                return Err(INVALIDATED.to_owned());
            };
            if gone_for_long(&found, now) {
                return Err(INVALIDATED.to_owned());
            }
            let present = object::uid(found.value());
            if present != uid {
                return Err(format!(
                    "{kind} UID ({present}) does not match service account {kind} ref claim ({uid})"
                ));
            }
        }
        Ok(())
    }

    fn legacy_user(&self, token: &str, claims: &Value) -> Result<UserInfo, String> {
        const INVALIDATED: &str = "Token has been invalidated";
        let claim = |key: &str| claims.get(key).and_then(Value::as_str).unwrap_or("");
        for (key, name) in [
            ("sub", "sub"),
            (LEGACY_NAMESPACE, "namespace"),
            (LEGACY_SECRET, "secretName"),
            (LEGACY_ACCOUNT, "serviceAccountName"),
            (LEGACY_UID, "serviceAccountUID"),
        ] {
            if claim(key).is_empty() {
                return Err(format!("{name} claim is missing"));
            }
        }
        let (namespace, name, uid) = (claim(LEGACY_NAMESPACE), claim(LEGACY_ACCOUNT), claim(LEGACY_UID));
        if claim("sub") != service_account_name(namespace, name) {
            return Err("sub claim is invalid".to_owned());
        }
        let secret = self
            .storage
            .get("secrets", &crate::model::form::key(namespace, claim(LEGACY_SECRET)));
        let Some(secret) = secret.filter(|secret| !object::is_terminating(secret.value())) else {
            return Err(INVALIDATED.to_owned());
        };
        if !holds(secret.value(), token) {
            return Err("Token does not match server's copy".to_owned());
        }
        let account = self.account(namespace, name)?;
        if object::is_terminating(account.value()) {
            return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        let present = object::uid(account.value());
        if present != uid {
            return Err(format!("ServiceAccount UID ({present}) does not match claim ({uid})"));
        }
        Ok(account_user(namespace, name, uid))
    }

    fn account(&self, namespace: &str, name: &str) -> Result<Arc<StoredObject>, String> {
        self.storage
            .get("serviceaccounts", &crate::model::form::key(namespace, name))
            .ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))
    }
}

/// The user that a service account is.
fn account_user(namespace: &str, name: &str, uid: &str) -> UserInfo {
    UserInfo {
        name: service_account_name(namespace, name),
        uid: uid.to_owned(),
        groups: service_account_groups(namespace),
        ..UserInfo::default()
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// A list of strings as Go prints it with `%q`.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// Whether the Secret's data holds this token.
fn holds(secret: &Value, token: &str) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let data = secret
        .get("data")
        .and_then(|data| data.get(TOKEN_KEY))
        .and_then(Value::as_str);
    data.and_then(|data| STANDARD.decode(data).ok())
        .is_some_and(|data| data == token.as_bytes())
}

/// Whether the object is on its way out, and has been for longer than clocks may differ.
fn gone_for_long(object: &StoredObject, now: Timestamp) -> bool {
    let time = object::text(object.value(), "deletionTimestamp");
    time.parse::<Timestamp>()
        .is_ok_and(|time| time < env::later(now, -LEEWAY))
}
