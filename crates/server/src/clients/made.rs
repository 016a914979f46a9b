//! Certificates and requests as tests want them: of any version, subject, extensions and dates, which rcgen does not
//! make.

use kubewright_apiserver::model::facts::der::{self, tag};
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use rustls::pki_types::CertificateDer;

/// Attribute types.
pub(crate) const COMMON_NAME: &[u8] = &[0x55, 4, 3];
pub(crate) const ORGANIZATION: &[u8] = &[0x55, 4, 10];
/// `ecdsa-with-SHA256`, and Ed25519.
const ECDSA: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// An hour that certificates are valid at, and one before and one after.
pub(crate) const NOW: i64 = 1_800_000_000;
const BEFORE: &[u8] = b"20200101000000Z";
const AFTER: &[u8] = b"20400101000000Z";

/// A subject of these attributes: types, tags of strings, texts; each in a part of its own.
pub(crate) fn name(attributes: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
    let parts = attributes.iter().map(|(kind, string, text)| {
        let (kind, text) = (der::value(tag::IDENTIFIER, &[kind]), der::value(*string, &[text]));
        der::value(tag::SET, &[&der::value(tag::SEQUENCE, &[&kind, &text])])
    });
    der::value(tag::SEQUENCE, &[&parts.collect::<Vec<_>>().concat()])
}

/// A subject with a common name.
pub(crate) fn named(common_name: &str) -> Vec<u8> {
    name(&[(COMMON_NAME, 0x0c, common_name.as_bytes())])
}

/// An extension: the last byte of its type below 2.5.29, whether it is critical, what it holds.
pub(crate) fn extension(kind: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let kind = der::value(tag::IDENTIFIER, &[&[0x55, 0x1d, kind]]);
    let critical = if critical {
        der::value(tag::BOOLEAN, &[&[0xff]])
    } else {
        Vec::new()
    };
    der::value(tag::SEQUENCE, &[&kind, &critical, &der::value(tag::OCTETS, &[value])])
}

/// That it is an authority, over so many others at most.
pub(crate) fn authority(most: Option<u8>) -> Vec<u8> {
    let most = most.map_or(Vec::new(), |most| der::value(tag::INTEGER, &[&[most]]));
    let constraints = der::value(tag::SEQUENCE, &[&der::value(tag::BOOLEAN, &[&[0xff]]), &most]);
    extension(19, true, &constraints)
}

/// What it may be used for: the last byte of a purpose below 1.3.6.1.5.5.7.3.
pub(crate) fn purpose(purpose: u8) -> Vec<u8> {
    let purpose = der::value(tag::IDENTIFIER, &[&[0x2b, 6, 1, 5, 5, 7, 3, purpose]]);
    extension(37, false, &der::value(tag::SEQUENCE, &[&purpose]))
}

/// A key with a name that may sign.
pub(crate) struct Party {
    pub(crate) name: Vec<u8>,
    pub(crate) key: KeyPair,
}

impl Party {
    pub(crate) fn new(common_name: &str) -> Party {
        Party {
            name: named(common_name),
            key: KeyPair::generate().expect("entropy"),
        }
    }

    pub(crate) fn with_ed25519(common_name: &str) -> Party {
        Party {
            name: named(common_name),
            key: KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("entropy"),
        }
    }

    fn algorithm(&self) -> Vec<u8> {
        let is_ed = self.key.algorithm() == &rcgen::PKCS_ED25519;
        der::value(tag::SEQUENCE, &[if is_ed { ED25519 } else { ECDSA }])
    }

    fn signed(&self, body: &[u8]) -> Vec<u8> {
        let signature = self.key.sign(body).expect("entropy");
        let bits = der::value(tag::BITS, &[&[0], &signature]);
        der::value(tag::SEQUENCE, &[body, &self.algorithm(), &bits])
    }

    /// A certificate that this one signs.
    pub(crate) fn signs(&self, wish: &Wish<'_>) -> CertificateDer<'static> {
        let version = match wish.version {
            1 => Vec::new(),
            version => der::value(0xa0, &[&der::value(tag::INTEGER, &[&[version - 1]])]),
        };
        let dates = [wish.valid.0, wish.valid.1].map(|date| der::value(0x18, &[date]));
        let extensions = match wish.extensions.is_empty() {
            true => Vec::new(),
            false => der::value(0xa3, &[&der::value(tag::SEQUENCE, &[&wish.extensions.concat()])]),
        };
        let body = [
            version,
            der::value(tag::INTEGER, &[&[7]]),
            wish.inner
                .map_or_else(|| self.algorithm(), |inner| der::value(tag::SEQUENCE, &[inner])),
            self.name.clone(),
            der::value(tag::SEQUENCE, &[&dates.concat()]),
            wish.of.name.clone(),
            wish.of.key.subject_public_key_info(),
            extensions,
        ];
        self.signed(&der::value(tag::SEQUENCE, &[&body.concat()])).into()
    }

    /// A request of this one, with these attributes, in PEM.
    pub(crate) fn requests(&self, attributes: &[u8]) -> String {
        let info = [
            der::value(tag::INTEGER, &[&[0]]),
            self.name.clone(),
            self.key.subject_public_key_info(),
            der::value(0xa0, &[attributes]),
        ];
        crate::certificates::pem(
            "CERTIFICATE REQUEST",
            &self.signed(&der::value(tag::SEQUENCE, &[&info.concat()])),
        )
    }
}

/// What a certificate is to be.
pub(crate) struct Wish<'a> {
    pub(crate) of: &'a Party,
    pub(crate) version: u8,
    pub(crate) valid: (&'static [u8], &'static [u8]),
    pub(crate) extensions: Vec<Vec<u8>>,
    /// The algorithm in the part that is signed, if it is another one.
    pub(crate) inner: Option<&'static [u8]>,
}

impl<'a> Wish<'a> {
    pub(crate) fn of(of: &'a Party) -> Wish<'a> {
        Wish {
            of,
            version: 3,
            valid: (BEFORE, AFTER),
            extensions: Vec::new(),
            inner: None,
        }
    }

    pub(crate) fn version(self, version: u8) -> Wish<'a> {
        Wish { version, ..self }
    }

    pub(crate) fn with(mut self, extension: Vec<u8>) -> Wish<'a> {
        self.extensions.push(extension);
        self
    }

    pub(crate) fn expired(self) -> Wish<'a> {
        Wish {
            valid: (BEFORE, b"20210101000000Z"),
            ..self
        }
    }

    pub(crate) fn not_yet_valid(self) -> Wish<'a> {
        Wish {
            valid: (b"20390101000000Z", AFTER),
            ..self
        }
    }

    pub(crate) fn inner(self, algorithm: &'static [u8]) -> Wish<'a> {
        Wish {
            inner: Some(algorithm),
            ..self
        }
    }
}
