//! The contents of a certificate signing request (PKCS #10), as far as the signers judge them.

use rcgen::{CertificateSigningRequestParams, DnType, DnValue, SanType};

/// The contents of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The common name of the subject.
    pub common_name: String,
    /// Its organizations.
    pub organizations: Vec<String>,
    /// How many alternative names are DNS names.
    pub dns_names: usize,
    /// How many are addresses.
    pub addresses: usize,
    /// How many are mail addresses.
    pub mails: usize,
    /// How many are URIs.
    pub uris: usize,
}

impl CertificateRequest {
    /// Reads a request in PEM.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    pub fn read(pem: &[u8]) -> Result<CertificateRequest, String> {
        let text = std::str::from_utf8(pem).map_err(|error| error.to_string())?;
        let request = CertificateSigningRequestParams::from_pem(text).map_err(|error| error.to_string())?;
        let params = request.params;
        let mut csr = CertificateRequest::default();
        for (kind, value) in params.distinguished_name.iter() {
            let text = match value {
                DnValue::Utf8String(text) => text.clone(),
                DnValue::PrintableString(text) => text.as_str().to_owned(),
                DnValue::Ia5String(text) => text.as_str().to_owned(),
                _ => continue,
            };
            match kind {
                DnType::CommonName => csr.common_name = text,
                DnType::OrganizationName => csr.organizations.push(text),
                _ => {}
            }
        }
        for name in &params.subject_alt_names {
            let count = match name {
                SanType::DnsName(_) => &mut csr.dns_names,
                SanType::IpAddress(_) => &mut csr.addresses,
                SanType::Rfc822Name(_) => &mut csr.mails,
                SanType::URI(_) => &mut csr.uris,
                _ => continue,
            };
            *count = count.saturating_add(1);
        }
        Ok(csr)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn subject_and_names_are_read() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().expect("a name"))];
        let key = KeyPair::generate().expect("entropy");
        let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let csr = CertificateRequest::read(request.as_bytes()).expect("it can be read");
        let expected = CertificateRequest {
            common_name: "jane".to_owned(),
            organizations: vec!["dev".to_owned()],
            dns_names: 1,
            ..CertificateRequest::default()
        };
        assert_eq!(csr, expected);
        assert!(CertificateRequest::read(b"nonsense").is_err());
    }
}
