//! Given keys of service account tokens: `--service-account-signing-key-file` and `--service-account-key-file`.
//!
//! Every form that kube-apiserver reads is brought into one (PKCS #8 for private keys, SubjectPublicKeyInfo for public
//! ones) and read there. A token is believed when any of the public keys verifies it under the algorithm of that key,
//! never under the one that the token would like.
//!
//! Nothing here implements `Debug`, so that no log line can show a key. Not here: the key that a cluster makes for
//! itself (`signer`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kubewright_apiserver::authentication::{Signer, SignerError};
use kubewright_apiserver::model::facts::der::{self, tag};
use kubewright_apiserver::model::facts::signing_request::SigningRequest;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::{Value, json};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::signatures;

/// AlgorithmIdentifier of RSA: rsaEncryption, and NULL.
const RSA: [u8; 15] = [
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// AlgorithmIdentifier of ECDSA on P-256: ecPublicKey, and prime256v1.
const P256: [u8; 21] = [
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// The object identifier of the curve, as it stands in a SubjectPublicKeyInfo.
const P256_CURVE: &str = "1.2.840.10045.3.1.7";

/// One key that signs, and those whose tokens are believed.
pub struct GivenKeys {
    signing: PrivateKey,
    own: VerifyingKey,
    believed: Vec<VerifyingKey>,
}

enum PrivateKey {
    Rsa(Box<RsaKeyPair>),
    P256(Box<EcdsaKeyPair>),
}

/// A public key, in the parts that a signature is checked with.
struct VerifyingKey {
    id: String,
    parts: Parts,
}

enum Parts {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256 { point: Vec<u8> },
}

impl GivenKeys {
    /// The key in the PEM text `signing`, and all keys in `verifying`; without any the signing key is believed.
    ///
    /// # Errors
    /// The key that cannot be read or is not supported, in words.
    pub fn read(signing: &str, verifying: &[String]) -> Result<GivenKeys, String> {
        let signing = PrivateKey::read(signing)?;
        let own = VerifyingKey::of(&signing.public()?)?;
        let mut believed = Vec::new();
        for text in verifying {
            believed.extend(public_keys(text)?);
        }
        if believed.is_empty() {
            believed.push(VerifyingKey::of(&signing.public()?)?);
        }
        Ok(GivenKeys { signing, own, believed })
    }
}

impl PrivateKey {
    fn read(text: &str) -> Result<PrivateKey, String> {
        for section in sections(text)? {
            if let Some(key) = private_key(&section)? {
                return Ok(key);
            }
        }
        Err("data does not contain a valid RSA or ECDSA private key".to_owned())
    }

    /// The public part as SubjectPublicKeyInfo.
    fn public(&self) -> Result<Vec<u8>, String> {
        Ok(match self {
            PrivateKey::Rsa(pair) => public_info(&RSA, pair.public_key().as_ref()),
            PrivateKey::P256(pair) => public_info(&P256, pair.public_key().as_ref()),
        })
    }
}

/// The private key of a PEM section; `None` when the section is something else, such as the parameters of a curve.
fn private_key(section: &Pem) -> Result<Option<PrivateKey>, String> {
    let key = section.contents.as_slice();
    match section.label.as_str() {
        "PRIVATE KEY" => {
            let rsa = RsaKeyPair::from_pkcs8(key).map(|pair| PrivateKey::Rsa(Box::new(pair)));
            rsa.or_else(|_| p256(key)).map(Some)
        }
        "RSA PRIVATE KEY" => RsaKeyPair::from_der(key)
            .map(|pair| Some(PrivateKey::Rsa(Box::new(pair))))
            .map_err(|why| format!("the RSA key cannot be used: {why}; keys of 2048 to 8192 bits are served")),
        // PKCS #8 wraps a SEC1 key: a version, the algorithm, and the key as a string of octets.
        "EC PRIVATE KEY" => p256(&der::value(
            tag::SEQUENCE,
            &[&[0x02, 0x01, 0x00], &P256, &der::value(tag::OCTETS, &[key])],
        ))
        .map(Some),
        _ => Ok(None),
    }
}

fn p256(pkcs8: &[u8]) -> Result<PrivateKey, String> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new())
        .map(|pair| PrivateKey::P256(Box::new(pair)))
        .map_err(|why| {
            format!(
                "the private key cannot be used: {why}; kubewright signs with RSA (2048 bits or more) and ECDSA P-256"
            )
        })
}

/// All public keys of a file: of certificates, public keys, and private keys (`keyutil.ParsePublicKeysPEM`).
fn public_keys(text: &str) -> Result<Vec<VerifyingKey>, String> {
    let mut keys = Vec::new();
    for section in sections(text)? {
        let der = &section.contents;
        let info = match section.label.as_str() {
            "CERTIFICATE" => {
                let (_, certificate) = X509Certificate::from_der(der).map_err(|why| why.to_string())?;
                certificate.public_key().raw.to_vec()
            }
            "PUBLIC KEY" => der.clone(),
            "RSA PUBLIC KEY" => public_info(&RSA, der),
            _ => match private_key(&section)? {
                Some(key) => key.public()?,
                None => continue,
            },
        };
        keys.push(VerifyingKey::of(&info)?);
    }
    if keys.is_empty() {
        return Err("data does not contain any valid RSA or ECDSA public keys".to_owned());
    }
    Ok(keys)
}

fn sections(text: &str) -> Result<Vec<Pem>, String> {
    Pem::iter_from_buffer(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|why| format!("it is not PEM: {why}"))
}

impl VerifyingKey {
    /// Of a SubjectPublicKeyInfo.
    fn of(info: &[u8]) -> Result<VerifyingKey, String> {
        let unfit = || "a public key is neither RSA nor ECDSA on P-256, and other keys are not served".to_owned();
        let (_, parsed) = SubjectPublicKeyInfo::from_der(info).map_err(|why| why.to_string())?;
        let curve = parsed.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
        let parts = match parsed.parsed().map_err(|why| why.to_string())? {
            PublicKey::RSA(key) => Parts::Rsa {
                modulus: without_zeros(key.modulus),
                exponent: without_zeros(key.exponent),
            },
            PublicKey::EC(point) if curve.is_some_and(|curve| curve.to_id_string() == P256_CURVE) => Parts::P256 {
                point: point.data().to_vec(),
            },
            _ => return Err(unfit()),
        };
        // Upstream names its keys so (`keyIDFromPublicKey`).
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, info));
        Ok(VerifyingKey { id, parts })
    }

    fn algorithm(&self) -> &'static str {
        match self.parts {
            Parts::Rsa { .. } => "RS256",
            Parts::P256 { .. } => "ES256",
        }
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.parts {
            Parts::Rsa { modulus, exponent } => RsaPublicKeyComponents {
                n: modulus,
                e: exponent,
            }
            .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            .is_ok(),
            Parts::P256 { point } => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .is_ok(),
        }
    }

    fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.parts {
            Parts::Rsa { modulus, exponent } => json!({
                "use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256", "n": text(modulus), "e": text(exponent),
            }),
            Parts::P256 { point } => {
                // An uncompressed point: a byte 4, then both coordinates.
                let coordinate = |at: usize| text(point.get(at..at.saturating_add(32)).unwrap_or_default());
                json!({
                    "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
                    "x": coordinate(1), "y": coordinate(33),
                })
            }
        }
    }
}

impl Signer for GivenKeys {
    fn proves(&self, request: &SigningRequest) -> bool {
        signatures::proves(request)
    }

    fn key_id(&self) -> Result<String, SignerError> {
        Ok(self.own.id.clone())
    }

    fn algorithm(&self) -> &'static str {
        self.own.algorithm()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignerError> {
        let random = SystemRandom::new();
        let failed = |_| SignerError("cannot sign: no entropy".to_owned());
        match &self.signing {
            PrivateKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(failed)?;
                Ok(signature)
            }
            PrivateKey::P256(pair) => pair
                .sign(&random, message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(failed),
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.own.verifies(message, signature)
    }

    fn believes(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        self.believed
            .iter()
            .any(|key| key.algorithm() == algorithm && key.verifies(message, signature))
    }

    fn jwk(&self) -> Result<Value, SignerError> {
        Ok(self.own.jwk())
    }

    fn jwks(&self) -> Result<Vec<Value>, SignerError> {
        Ok(self.believed.iter().map(VerifyingKey::jwk).collect())
    }
}

/// SubjectPublicKeyInfo of a key.
fn public_info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    der::value(tag::SEQUENCE, &[algorithm, &der::value(tag::BITS, &[&[0], key])])
}

/// A number as its bytes: DER puts a zero in front where the first bit is set.
fn without_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests;
