//! Whether a client's certificate is one of its authorities': the rules of Go's `x509.Certificate.Verify`, as
//! kube-apiserver asks it (`x509.Authenticator`).
//!
//! Not webpki's: that takes certificates of version 3 only, which `openssl x509 -req` without extensions does not make,
//! no authority that is itself a client, and no usage `any`. It is still asked about authorities that are confined to
//! names, which is not done here.
//!
//! Invariants: every certificate of a chain but the last is signed by the next, the last is one of the authorities, and
//! every one but the first may sign. Every certificate is valid now, may be used for clients, and has no critical
//! extension that is not obeyed here. At most [`MAX_CHECKS`] signatures are checked for one client.
//!
//! Not here: who the client is (`tls`), revocation (kube-apiserver has none).

use std::collections::BTreeSet;

use kubewright_apiserver::model::facts::der::{Reader, tag};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

use crate::signatures::Key;

/// How many signatures are checked for one client (`maxChainSignatureChecks`).
const MAX_CHECKS: usize = 100;

/// The extensions that are obeyed also when they are not critical: what a key is for, whether its owner is an authority,
/// the names to which it is confined, what a certificate is for.
const OBEYED: [&[u8]; 4] = [
    &[0x55, 0x1d, 15],
    &[0x55, 0x1d, 19],
    &[0x55, 0x1d, 30],
    &[0x55, 0x1d, 37],
];

/// That this certificate can be an authority of clients, as far as it can be read.
pub(crate) fn check_authority(authority: &CertificateDer<'_>) -> Result<(), String> {
    let read = Certificate::read(authority)?;
    Key::of(read.parsed.public_key().raw)?;
    Ok(())
}

/// A certificate that leads to one of the authorities, over the intermediate ones that its client sent.
///
/// `confined` is asked when an authority of the chain is confined to names.
pub(crate) fn verify<'a>(
    own: &'a CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    now: i64,
    confined: impl FnOnce() -> Result<(), String>,
) -> Result<X509Certificate<'a>, String> {
    let leaf = Certificate::read(own)?;
    leaf.may_be_used(now).map_err(|why| format!("x509: {why}"))?;
    let mut search = Search {
        authorities: &read_all(authorities),
        intermediates: &read_all(intermediates),
        now,
        left: MAX_CHECKS,
        why: "certificate signed by unknown authority",
    };
    let mut chain = vec![&leaf];
    if !search.is_authority(&leaf) && !search.lengthen(&mut chain) {
        return Err(format!("x509: {}", search.why));
    }
    debug_assert!(chain.last().is_some_and(|last| search.is_authority(last)));
    if chain.iter().skip(1).any(|certificate| certificate.confines) {
        confined()?;
    }
    Ok(leaf.parsed)
}

/// The certificates that can be read; what cannot signs nothing.
fn read_all<'a>(all: &'a [CertificateDer<'_>]) -> Vec<Certificate<'a>> {
    all.iter().filter_map(|one| Certificate::read(one).ok()).collect()
}

/// A certificate, as far as chains depend on it.
struct Certificate<'a> {
    der: &'a [u8],
    parsed: X509Certificate<'a>,
    /// What its signature signs, the algorithm of the signature, and the signature.
    body: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    /// Whether it may sign others, if it says so, and how many may be between it and a client's.
    authority: Option<(bool, Option<u32>)>,
    /// Whether it may sign certificates, if it says what its key is for.
    may_sign: Option<bool>,
    /// Whether it may be used for clients, if it says what it may be used for.
    for_clients: Option<bool>,
    /// Whether those that it signs are confined to names.
    confines: bool,
    /// Whether it has a critical extension that is not obeyed here.
    unhandled: bool,
}

impl<'a> Certificate<'a> {
    fn read(der: &'a [u8]) -> Result<Certificate<'a>, String> {
        let mut parts = Reader::of_one(der, tag::SEQUENCE)?;
        let body = parts.value(tag::SEQUENCE)?;
        let algorithm = parts.value(tag::SEQUENCE)?.contents;
        let signature = parts.bytes()?;
        parts.end()?;
        let mut inner = Reader::new(body.contents);
        if inner.peek() != Some(tag::INTEGER) {
            // The version.
            inner.any()?;
        }
        inner.enter(tag::INTEGER)?;
        if inner.value(tag::SEQUENCE)?.contents != algorithm {
            return Err("x509: inner and outer signature algorithm identifiers don't match".to_owned());
        }
        let (_, parsed) =
            X509Certificate::from_der(der).map_err(|why| format!("x509: malformed certificate: {why}"))?;
        let mut read = Certificate {
            der,
            body: body.whole,
            algorithm,
            signature,
            authority: None,
            may_sign: None,
            for_clients: None,
            confines: false,
            unhandled: false,
            parsed,
        };
        read.read_extensions()?;
        Ok(read)
    }

    fn read_extensions(&mut self) -> Result<(), String> {
        let extensions = self.parsed.extensions();
        match self.parsed.version().0 {
            2 => {}
            0 | 1 if extensions.is_empty() => {}
            _ => return Err("x509: invalid version".to_owned()),
        }
        let mut seen = BTreeSet::new();
        for extension in extensions {
            if !seen.insert(extension.oid.as_bytes()) {
                let kind = &extension.oid;
                return Err(format!(
                    "x509: certificate contains duplicate extension with OID \"{kind}\""
                ));
            }
            let handled = match extension.parsed_extension() {
                ParsedExtension::BasicConstraints(basic) => {
                    self.authority = Some((basic.ca, basic.path_len_constraint));
                    true
                }
                ParsedExtension::KeyUsage(usage) => {
                    self.may_sign = Some(usage.key_cert_sign());
                    true
                }
                ParsedExtension::ExtendedKeyUsage(usage) => {
                    self.for_clients = Some(usage.any || usage.client_auth);
                    true
                }
                ParsedExtension::NameConstraints(_) => {
                    self.confines = true;
                    true
                }
                ParsedExtension::SubjectAlternativeName(names) => names.general_names.iter().any(|name| {
                    matches!(
                        name,
                        GeneralName::DNSName(_)
                            | GeneralName::RFC822Name(_)
                            | GeneralName::IPAddress(_)
                            | GeneralName::URI(_)
                    )
                }),
                ParsedExtension::CertificatePolicies(_) | ParsedExtension::CRLDistributionPoints(_) => true,
                ParsedExtension::ParseError { .. }
                    if extension.critical || OBEYED.contains(&extension.oid.as_bytes()) =>
                {
                    let kind = &extension.oid;
                    return Err(format!("x509: the extension {kind} cannot be read"));
                }
                _ => false,
            };
            self.unhandled |= extension.critical && !handled;
        }
        Ok(())
    }

    /// `isValid`, but for what depends on the chain, and `checkChainForKeyUsage`.
    fn may_be_used(&self, now: i64) -> Result<(), &'static str> {
        let validity = self.parsed.validity();
        if self.unhandled {
            return Err("unhandled critical extension");
        }
        if now < validity.not_before.timestamp() || now > validity.not_after.timestamp() {
            return Err("certificate has expired or is not yet valid");
        }
        if self.for_clients == Some(false) {
            return Err("certificate specifies an incompatible key usage");
        }
        Ok(())
    }

    /// Whether it is the same authority, in the same certificate or another (`alreadyInChain`).
    fn is_as(&self, other: &Certificate<'_>) -> bool {
        self.parsed.subject().as_raw() == other.parsed.subject().as_raw()
            && self.parsed.public_key().raw == other.parsed.public_key().raw
    }

    /// Whether it may sign and did (`CheckSignatureFrom`).
    fn signed(&self, child: &Certificate<'_>) -> bool {
        let may = match self.authority {
            Some((is_authority, _)) => is_authority,
            // Only extensions could say it.
            None => self.parsed.version().0 != 2,
        };
        may && self.may_sign != Some(false)
            && Key::of(self.parsed.public_key().raw)
                .is_ok_and(|key| key.signed(child.body, child.algorithm, child.signature))
    }
}

/// The search for a chain (`buildChains`).
struct Search<'a> {
    authorities: &'a [Certificate<'a>],
    intermediates: &'a [Certificate<'a>],
    now: i64,
    left: usize,
    /// Why there is none.
    why: &'static str,
}

impl<'a> Search<'a> {
    fn is_authority(&self, certificate: &Certificate<'_>) -> bool {
        self.authorities.iter().any(|one| one.der == certificate.der)
    }

    /// Lengthens a chain up to an authority, if it can.
    fn lengthen(&mut self, chain: &mut Vec<&'a Certificate<'a>>) -> bool {
        let Some(child) = chain.last().copied() else {
            return false;
        };
        let authorities = self.authorities.iter().map(|one| (one, true));
        let candidates = authorities.chain(self.intermediates.iter().map(|one| (one, false)));
        for (candidate, is_authority) in candidates {
            if candidate.parsed.subject().as_raw() != child.parsed.issuer().as_raw()
                || chain.iter().any(|one| one.is_as(candidate))
            {
                continue;
            }
            if self.left == 0 {
                self.why = "signature check attempts limit reached while verifying certificate chain";
                return false;
            }
            self.left -= 1;
            if !candidate.signed(child) || !self.may_follow(candidate, chain.len(), is_authority) {
                continue;
            }
            chain.push(candidate);
            if is_authority || self.lengthen(chain) {
                return true;
            }
            chain.pop();
        }
        false
    }

    /// Whether a certificate may stand behind so many others (`isValid`).
    fn may_follow(&mut self, candidate: &Certificate<'_>, length: usize, is_authority: bool) -> bool {
        let why = match (candidate.may_be_used(self.now), candidate.authority) {
            (Err(why), _) => why,
            (_, None | Some((false, _))) if !is_authority => "certificate is not authorized to sign other certificates",
            // The client's own certificate does not count.
            (_, Some((_, Some(most))))
                if u32::try_from(length).map_or(true, |length| length > most.saturating_add(1)) =>
            {
                "too many intermediates for path length constraint"
            }
            _ => return true,
        };
        self.why = why;
        false
    }
}

#[cfg(test)]
pub(crate) mod made;
#[cfg(test)]
mod tests;
