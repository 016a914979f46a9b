//! The key that tokens of service accounts are signed with: ECDSA P-256, made when it is first needed.
//!
//! A cluster without requests for a token never makes a key, so that its start costs nothing. Nothing here implements
//! `Debug`, so that no log line can show a key.
//!
//! With a data folder it is kept there, so that tokens outlive the process.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kubewright_apiserver::authentication::{Signer, SignerError};
use kubewright_apiserver::model::facts::signing_request::SigningRequest;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::durable::Folder;
use crate::error::Error;
use crate::signatures;

/// The bytes before a point in the DER form of a public key on P-256 (RFC 5480).
const PUBLIC_KEY_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The key of one cluster.
#[derive(Default)]
pub struct ServiceAccountKey {
    key: OnceLock<Result<Key, SignerError>>,
}

struct Key {
    pair: EcdsaKeyPair,
    #[cfg(test)]
    pkcs8: Vec<u8>,
    id: String,
}

impl Key {
    fn new(pkcs8: &[u8]) -> Result<Key, SignerError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new())
            .map_err(|error| SignerError(format!("the key of service account tokens is not usable: {error}")))?;
        // The key is named by the digest of its public part, as upstream names its keys.
        let public = [PUBLIC_KEY_HEAD.as_slice(), pair.public_key().as_ref()].concat();
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &public));
        Ok(Key {
            pair,
            #[cfg(test)]
            pkcs8: pkcs8.to_vec(),
            id,
        })
    }

    fn generate() -> Result<Key, SignerError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| SignerError("cannot make a key for service account tokens: no entropy".to_owned()))?;
        Key::new(document.as_ref())
    }
}

impl ServiceAccountKey {
    /// A key that was kept (PKCS #8, DER).
    ///
    /// # Errors
    /// When it is not an ECDSA key on P-256.
    fn from_pkcs8(pkcs8: &[u8]) -> Result<ServiceAccountKey, SignerError> {
        Ok(ServiceAccountKey {
            key: OnceLock::from(Ok(Key::new(pkcs8)?)),
        })
    }

    /// The key of a data folder: the one that is there, or a new one that is then kept.
    ///
    /// # Errors
    /// When the folder refuses, or the present file is no such key.
    pub fn kept(folder: &Folder) -> Result<ServiceAccountKey, Error> {
        let text = folder.keep("pki/sa.key", || {
            let made = rcgen::KeyPair::generate().map(|key| key.serialize_pem());
            made.map_err(|source| Error::Certificate {
                what: "key of service account tokens",
                source,
            })
        })?;
        let unusable = |why: String| Error::Tls(format!("pki/sa.key of the data folder cannot be used: {why}"));
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|error| unusable(error.to_string()))?;
        ServiceAccountKey::from_pkcs8(key.secret_pkcs8_der()).map_err(|error| unusable(error.to_string()))
    }

    /// The key (PKCS #8, DER).
    #[cfg(test)]
    fn pkcs8(&self) -> Result<&[u8], SignerError> {
        self.key().map(|key| key.pkcs8.as_slice())
    }

    fn key(&self) -> Result<&Key, SignerError> {
        self.key.get_or_init(Key::generate).as_ref().map_err(Clone::clone)
    }
}

impl Signer for ServiceAccountKey {
    fn proves(&self, request: &SigningRequest) -> bool {
        signatures::proves(request)
    }

    fn key_id(&self) -> Result<String, SignerError> {
        self.key().map(|key| key.id.clone())
    }

    fn algorithm(&self) -> &'static str {
        "ES256"
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignerError> {
        let signature = self.key()?.pair.sign(&SystemRandom::new(), message);
        signature
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| SignerError("cannot sign: no entropy".to_owned()))
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key().is_ok_and(|key| {
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key())
                .verify(message, signature)
                .is_ok()
        })
    }

    fn jwk(&self) -> Result<Value, SignerError> {
        let key = self.key()?;
        // An uncompressed point: a byte 4, then both coordinates.
        let point = key.pair.public_key().as_ref();
        let coordinate = |at: usize| URL_SAFE_NO_PAD.encode(point.get(at..at + 32).unwrap_or_default());
        Ok(json!({
            "use": "sig", "kty": "EC", "kid": key.id, "crv": "P-256", "alg": self.algorithm(),
            "x": coordinate(1), "y": coordinate(33),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_message_and_one_key() {
        let (ours, theirs) = (ServiceAccountKey::default(), ServiceAccountKey::default());
        let signature = ours.sign(b"message").unwrap();
        assert_eq!(signature.len(), 64);
        assert!(ours.verify(b"message", &signature));
        assert!(!ours.verify(b"other", &signature));
        assert!(!theirs.verify(b"message", &signature));
        assert!(!ours.verify(b"message", b""));
    }

    #[test]
    fn a_data_folder_keeps_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let opened = crate::durable::open(folder.path(), true, Default::default()).unwrap();
        let first = ServiceAccountKey::kept(&opened.folder).unwrap();
        let again = ServiceAccountKey::kept(&opened.folder).unwrap();
        assert_eq!(first.jwk(), again.jwk());
    }

    #[test]
    fn a_kept_key_is_the_same_key() {
        let first = ServiceAccountKey::default();
        let again = ServiceAccountKey::from_pkcs8(first.pkcs8().unwrap()).unwrap();
        assert_eq!(first.jwk(), again.jwk());
        assert!(again.verify(b"m", &first.sign(b"m").unwrap()));
        assert!(ServiceAccountKey::from_pkcs8(b"nonsense").is_err());
    }
}
