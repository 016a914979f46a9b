//! Authentication: from the credentials of a request to a user.
//!
//! The shell says what the client's certificate proves ([`Identity`]); the rest is in the headers. As in kube-apiserver
//! the first credentials that prove something win: a certificate, then `Authorization: Bearer` with a token of the
//! token file, then one of a service account, then a token among the protocols of a WebSocket (`socket`). Credentials
//! that prove nothing are refused (401) unless others do; a request without any is anonymous.
//!
//! Invariants: nothing is remembered between requests, so that a token is worth nothing from the moment on at which its
//! service account or the object that it is bound to is gone; a token never gets into a message.
//!
//! Not here: TLS, keys (see [`Signer`]), the rights of a user.

mod jwt;
mod service_account;
mod signer;
mod socket;
mod static_tokens;

use std::sync::Arc;

use http::header::{AUTHORIZATION, WARNING};
use http::{HeaderMap, HeaderValue, Response};

pub use service_account::{Bound, ServiceAccountTokens, TokenSubject};
pub use signer::{NoSigner, Signer, SignerError};
pub use socket::is_token as is_socket_token;
pub use static_tokens::{StaticTokens, TokenFileError};

use crate::model::user::{SYSTEM_AUTHENTICATED, UserInfo};
use crate::storage::Storage;
use crate::{Body, Env};

/// The key of [`UserInfo::extra`] that says by which certificate or token a user was recognised.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The identity that the client's certificate proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A certificate of a trusted authority: the user that it names.
    User(UserInfo),
    /// No certificate, or one without a common name.
    Anonymous,
    /// A certificate that proves nothing.
    Rejected,
}

/// The user that was authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// The user.
    pub user: UserInfo,
    /// For which of the audiences that were asked for the credentials are good (TokenReview).
    pub audiences: Vec<String>,
    /// A text for a `Warning` header, about credentials that were not looked at.
    pub warning: Option<&'static str>,
}

impl Authenticated {
    /// Adds the warning, if there is one, to an answer.
    pub fn warn(&self, response: &mut Response<Body>) {
        if let Some(text) = self.warning
            && let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\""))
        {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Recognises users.
pub struct Authenticator {
    static_tokens: StaticTokens,
    service_accounts: ServiceAccountTokens,
    anonymous: bool,
}

impl Authenticator {
    /// With these tokens; service accounts and bound objects are looked up in `storage`.
    pub fn new(
        static_tokens: StaticTokens,
        issuer: &str,
        signer: Arc<dyn Signer>,
        storage: Arc<dyn Storage>,
        env: Arc<dyn Env>,
    ) -> Authenticator {
        Authenticator {
            static_tokens,
            service_accounts: ServiceAccountTokens::new(issuer, signer, storage, env),
            anonymous: true,
        }
    }

    /// Tokens of further issuers are believed, and the server has these audiences (`--api-audiences`); without any, its
    /// issuers.
    #[must_use]
    pub(crate) fn believing(mut self, further_issuers: &[String], audiences: &[String]) -> Authenticator {
        self.service_accounts.believe(further_issuers, audiences);
        self
    }

    /// Whether requests without credentials are answered as `system:anonymous` (`--anonymous-auth`). Default yes.
    #[must_use]
    pub fn anonymous(mut self, allowed: bool) -> Authenticator {
        self.anonymous = allowed;
        self
    }

    /// Issues and checks tokens of service accounts.
    pub fn service_accounts(&self) -> &ServiceAccountTokens {
        &self.service_accounts
    }

    /// The audiences of this server: a token is good for requests to it when it names one of them.
    pub fn audiences(&self) -> &[String] {
        self.service_accounts.audiences()
    }

    /// The user who sends these headers over a connection with this certificate. `audiences`: those for which the
    /// credentials must be valid.
    ///
    /// # Errors
    /// The error in the credentials, as `status.error` of a TokenReview shows it.
    pub fn authenticate(
        &self,
        identity: &Identity,
        headers: &HeaderMap,
        audiences: &[String],
    ) -> Result<Authenticated, String> {
        let header = headers
            .get(AUTHORIZATION)
            .map(|value| String::from_utf8_lossy(value.as_bytes()));
        let given = Given {
            header: header.as_deref().unwrap_or(""),
            socket: socket::token(headers),
        };
        self.recognise(identity, &given, audiences)
    }

    /// The user of this token, as if a request came with nothing else.
    ///
    /// # Errors
    /// The error in the token.
    pub fn review(&self, token: &str, audiences: &[String]) -> Result<Authenticated, String> {
        let given = Given {
            header: &format!("Bearer {token}"),
            socket: Ok(None),
        };
        self.recognise(&Identity::Anonymous, &given, audiences)
    }

    fn recognise(&self, identity: &Identity, given: &Given<'_>, audiences: &[String]) -> Result<Authenticated, String> {
        let mut error = None;
        match identity {
            // A certificate is good for this server only.
            Identity::User(user) if self.ours(audiences).next().is_some() => {
                return Ok(Authenticated {
                    user: with_authenticated(user.clone()),
                    audiences: self.ours(audiences).cloned().collect(),
                    warning: None,
                });
            }
            Identity::User(_) | Identity::Anonymous => {}
            Identity::Rejected => error = Some("x509: certificate signed by unknown authority".to_owned()),
        }
        let mut warning = None;
        match bearer(given.header) {
            Bearer::None => {}
            Bearer::Spaces => {
                warning = Some(
                    "the provided Authorization header contains extra space before the bearer token, and is ignored",
                );
            }
            Bearer::Token(token) => match self.token(token, audiences) {
                Ok(found) => return Ok(found),
                Err(why) => error = Some(why),
            },
        }
        match &given.socket {
            Ok(None) => {}
            Ok(Some(token)) => match self.token(token, audiences) {
                Ok(found) => return Ok(found),
                Err(why) => error = Some(why),
            },
            Err(why) => error = Some((*why).to_owned()),
        }
        match error {
            Some(why) => Err(why),
            None if !self.anonymous => Err("no credentials, and nobody may come without".to_owned()),
            None => Ok(Authenticated {
                user: UserInfo::anonymous(),
                audiences: audiences.to_vec(),
                warning,
            }),
        }
    }

    /// Those of these audiences that are this server.
    fn ours<'s>(&'s self, audiences: &'s [String]) -> impl Iterator<Item = &'s String> {
        self.audiences().iter().filter(|own| audiences.contains(own))
    }

    fn token(&self, token: &str, audiences: &[String]) -> Result<Authenticated, String> {
        const INVALID: &str = "invalid bearer token";
        // A token of the file is good for this server only, too.
        let is_for_us = || self.ours(audiences).next().is_some();
        if let Some(user) = self.static_tokens.user(token).filter(|_| is_for_us()) {
            return Ok(Authenticated {
                user: with_authenticated(user.clone()),
                audiences: self.ours(audiences).cloned().collect(),
                warning: None,
            });
        }
        match self.service_accounts.verify(token, audiences) {
            Ok(Some((user, audiences))) => Ok(Authenticated {
                user: with_authenticated(user),
                audiences,
                warning: None,
            }),
            Ok(None) => Err(INVALID.to_owned()),
            Err(why) => Err(format!("[{INVALID}, {why}]")),
        }
    }
}

/// The credentials in a request, beside the certificate of its connection.
struct Given<'a> {
    /// `Authorization`.
    header: &'a str,
    /// The token among the protocols of a WebSocket, or what is wrong with it.
    socket: Result<Option<String>, &'static str>,
}

fn with_authenticated(mut user: UserInfo) -> UserInfo {
    if !user.in_group(SYSTEM_AUTHENTICATED) {
        user.groups.push(SYSTEM_AUTHENTICATED.to_owned());
    }
    user
}

enum Bearer<'a> {
    None,
    /// Two spaces and then something, which Kubernetes does not take for a token.
    Spaces,
    Token(&'a str),
}

/// The token of the `Authorization` header. Other schemes are ignored, as upstream ignores them.
fn bearer(header: &str) -> Bearer<'_> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next().unwrap_or("");
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Bearer::None;
    }
    match (parts.next(), parts.next()) {
        (None, _) | (Some(""), None) => Bearer::None,
        (Some(""), Some(_)) => Bearer::Spaces,
        (Some(token), _) => Bearer::Token(token),
    }
}

#[cfg(test)]
pub(crate) mod tests;
