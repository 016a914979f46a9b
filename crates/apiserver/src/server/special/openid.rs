//! Where others learn how to check the tokens of service accounts: the OpenID discovery document and the key set.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HOST};
use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};

use crate::Body;
use crate::authentication::Signer;
use crate::model::status::Status;
use crate::server::Inner;
use crate::server::respond::{Content, Reply, Responder};
use crate::wire::negotiate::{self, Output};
use crate::wire::query::Query;

impl Inner {
    /// `/.well-known/openid-configuration`.
    pub(crate) fn openid_configuration(&self, uri: &http::Uri, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let accounts = self.authenticator.service_accounts();
        // The key set is where this document is: the server does not know by which name it is reached.
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = uri.authority().map(http::uri::Authority::as_str).or(host);
        let host = host.unwrap_or("kubernetes.default.svc.cluster.local");
        let document = json!({
            "issuer": accounts.issuer(),
            "jwks_uri": format!("https://{host}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms(accounts.signer()),
        });
        self.metadata(document.to_string(), "application/json", headers, query)
    }

    /// `/openid/v1/jwks`.
    pub(crate) fn key_set(&self, headers: &HeaderMap, query: &Query) -> Response<Body> {
        match self.authenticator.service_accounts().signer().jwks() {
            Ok(keys) => {
                let document = json!({"keys": keys});
                self.metadata(document.to_string(), "application/jwk-set+json", headers, query)
            }
            Err(error) => self.fail(&Status::not_implemented(format!(
                "/openid/v1/jwks is not served: {error}"
            ))),
        }
    }

    fn metadata(&self, text: String, media: &'static str, headers: &HeaderMap, query: &Query) -> Response<Body> {
        let responder = Responder {
            output: negotiate::output(headers, query, false).unwrap_or(Output::JSON),
            query,
            env: self.env.as_ref(),
        };
        if !negotiate::accepts(headers, media) {
            let message = format!("406: Not Acceptable\n\nAvailable representations: {media}");
            return responder.fail(&Status::failure(406, "NotAcceptable", message).with_empty_details());
        }
        let mut response = responder.respond(Reply::new(200, Content::Text(media, Bytes::from(text))));
        response
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        response
    }
}

/// The algorithms that sign tokens of this server, each once.
fn algorithms(signer: &dyn Signer) -> BTreeSet<String> {
    let keys = signer.jwks().unwrap_or_default();
    let named = keys.iter().filter_map(|key| key.get("alg").and_then(Value::as_str));
    match named.map(str::to_owned).collect::<BTreeSet<_>>() {
        none if none.is_empty() => BTreeSet::from([signer.algorithm().to_owned()]),
        named => named,
    }
}
