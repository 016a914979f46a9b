//! JSON Web Tokens in the compact form: `header.claims.signature`, each in base64.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::signer::{Signer, SignerError};

/// Signs claims.
pub(super) fn encode(claims: &Value, signer: &dyn Signer) -> Result<String, SignerError> {
    let header = json!({"alg": signer.algorithm(), "kid": signer.key_id()?});
    let mut token = part(&header);
    token.push('.');
    token.push_str(&part(claims));
    let signature = signer.sign(token.as_bytes())?;
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature));
    Ok(token)
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A token taken apart; nothing about it is proven.
pub(super) struct Unproven<'a> {
    /// Its claims.
    pub(super) claims: Value,
    algorithm: String,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Unproven<'a> {
    /// Takes a text apart; `None` when it is no token at all.
    pub(super) fn parse(token: &'a str) -> Option<Unproven<'a>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let json = |part: &str| -> Option<Value> {
            let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
            serde_json::from_slice(&bytes).ok().filter(Value::is_object)
        };
        Some(Unproven {
            algorithm: json(header)?.get("alg")?.as_str()?.to_owned(),
            claims: json(claims)?,
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    /// Whether `signer` signed it.
    pub(super) fn is_signed_by(&self, signer: &dyn Signer) -> bool {
        signer.believes(&self.algorithm, self.signed.as_bytes(), &self.signature)
    }
}
