//! Signatures: of certificates, of requests for them, and of handshakes.
//!
//! Algorithms are those that TLS uses here: RSA of 2,048 bits or more, ECDSA on P-256 and P-384, Ed25519, each with
//! SHA-2. Nothing that is signed with SHA-1 or MD5 is believed. An algorithm is found by the whole of its
//! `AlgorithmIdentifier` and that of the key, so that a key never verifies under an algorithm that is not its own.
//!
//! Not here: tokens (`keys`, `signer`).

use std::sync::LazyLock;

use kubewright_apiserver::model::facts::der::{Reader, tag};
use kubewright_apiserver::model::facts::signing_request::SigningRequest;
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::SignatureVerificationAlgorithm;

/// The contents of the `AlgorithmIdentifier` of an RSA key: rsaEncryption, and NULL.
const RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// The same of a key on the curve P-521, whose signatures cannot be verified here: id-ecPublicKey, and secp521r1.
const P521: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23,
];
/// And of the signatures of an RSA key with SHA-1: sha1WithRSAEncryption, and NULL.
const RSA_SHA1: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
];

/// The algorithms.
pub(crate) fn algorithms() -> WebPkiSupportedAlgorithms {
    static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> =
        LazyLock::new(|| rustls::crypto::ring::default_provider().signature_verification_algorithms);
    *ALGORITHMS
}

/// Whether a request for a certificate is signed with the key in it; true for keys on P-521.
pub(crate) fn proves(request: &SigningRequest) -> bool {
    Key::of(&request.key).is_ok_and(|key| {
        key.algorithm == P521 || key.signed_request(&request.signed, &request.algorithm, &request.signature)
    })
}

/// A key and its kind.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    /// The contents of its `AlgorithmIdentifier`.
    algorithm: &'a [u8],
    bits: &'a [u8],
}

impl<'a> Key<'a> {
    /// Of a `SubjectPublicKeyInfo`.
    pub(crate) fn of(info: &'a [u8]) -> Result<Key<'a>, &'static str> {
        let mut parts = Reader::of_one(info, tag::SEQUENCE)?;
        let algorithm = parts.value(tag::SEQUENCE)?.contents;
        let bits = parts.bytes()?;
        parts.end()?;
        Ok(Key { algorithm, bits })
    }

    /// Whether this key signed the message; `algorithm` is the contents of the `AlgorithmIdentifier` of the signature.
    pub(crate) fn signed(self, message: &[u8], algorithm: &[u8], signature: &[u8]) -> bool {
        let mut fitting = algorithms().all.iter();
        fitting.any(|one| one.signature_alg_id().as_ref() == algorithm && self.verifies(*one, message, signature))
    }

    /// The same for the request for a certificate of this key, where upstream believes SHA-1, too: the signature only
    /// shows that the key is the requester's.
    pub(crate) fn signed_request(self, message: &[u8], algorithm: &[u8], signature: &[u8]) -> bool {
        let legacy = &ring::signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY;
        let verifies = || ring::signature::UnparsedPublicKey::new(legacy, self.bits).verify(message, signature);
        match (self.algorithm, algorithm) {
            (RSA, RSA_SHA1) => verifies().is_ok(),
            _ => self.signed(message, algorithm, signature),
        }
    }

    /// Whether this key signed a handshake of TLS 1.2, whose schemes leave the curve open.
    pub(crate) fn signed_handshake(self, message: &[u8], scheme: SignatureScheme, signature: &[u8]) -> bool {
        let mut fitting = algorithms().mapping.iter().filter(|(known, _)| *known == scheme);
        fitting.any(|(_, all)| all.iter().any(|one| self.verifies(*one, message, signature)))
    }

    fn verifies(self, algorithm: &dyn SignatureVerificationAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        algorithm.public_key_alg_id().as_ref() == self.algorithm
            && algorithm.verify_signature(self.bits, message, signature).is_ok()
    }
}
