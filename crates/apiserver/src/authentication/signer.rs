//! The key that tokens are signed with, and other cryptography of the shell, as the core sees it.

use serde_json::Value;

use crate::model::facts::signing_request::SigningRequest;

/// Why there is no signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SignerError(
    /// The error in words.
    pub String,
);

/// Signs tokens of service accounts and checks the signatures; the shell has the key.
///
/// The key may be made at the first call of any of these, and must then stay.
pub trait Signer: Send + Sync + 'static {
    /// Names the key: `kid` in the head of a token and in the key set.
    ///
    /// # Errors
    /// When there is no key.
    fn key_id(&self) -> Result<String, SignerError>;

    /// The JSON Web Algorithm: `RS256`, `ES256`.
    fn algorithm(&self) -> &'static str;

    /// Signs a message.
    ///
    /// # Errors
    /// When there is no key, or the system has no entropy.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignerError>;

    /// Whether this is a signature of the message by this key.
    fn verify(&self, message: &[u8], signature: &[u8]) -> bool;

    /// Whether a token that names this algorithm is signed by this key, or by another whose tokens are believed.
    fn believes(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        algorithm == self.algorithm() && self.verify(message, signature)
    }

    /// All public keys whose tokens are believed, as JSON Web Keys.
    ///
    /// # Errors
    /// When there is no key.
    fn jwks(&self) -> Result<Vec<Value>, SignerError> {
        Ok(vec![self.jwk()?])
    }

    /// The public key as a JSON Web Key, with `use`, `kid` and `alg`.
    ///
    /// # Errors
    /// When there is no key.
    fn jwk(&self) -> Result<Value, SignerError>;

    /// Whether a request for a certificate is signed with the key in it.
    fn proves(&self, request: &SigningRequest) -> bool;
}

/// A server without a key: it issues no tokens and takes none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSigner;

impl NoSigner {
    fn refuse<T>() -> Result<T, SignerError> {
        Err(SignerError("this server has no key to sign tokens with".to_owned()))
    }
}

impl Signer for NoSigner {
    fn key_id(&self) -> Result<String, SignerError> {
        NoSigner::refuse()
    }

    fn algorithm(&self) -> &'static str {
        "none"
    }

    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, SignerError> {
        NoSigner::refuse()
    }

    fn verify(&self, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn jwk(&self) -> Result<Value, SignerError> {
        NoSigner::refuse()
    }

    fn proves(&self, _: &SigningRequest) -> bool {
        true // as its tests: it verifies nothing
    }
}
