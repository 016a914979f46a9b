//! Whether Go's `tls.X509KeyPair` takes a certificate and its key: the PEM around them.
//!
//! Not here: whether the PEM holds a certificate and a key that belong together.

use kubewright_model::facts::pem::{self, Block};

/// Why these texts are no certificate with its key, as far as their PEM says.
pub(crate) fn mistake(certificate: &str, key: &str) -> Option<String> {
    certificate_mistake(&types(certificate)).or_else(|| key_mistake(&types(key)))
}

fn certificate_mistake(types: &[&str]) -> Option<String> {
    match types {
        _ if types.contains(&"CERTIFICATE") => None,
        [] => Some("tls: failed to find any PEM data in certificate input".to_owned()),
        [only] if only.ends_with("PRIVATE KEY") => Some(
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
                .to_owned(),
        ),
        others => Some(format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        )),
    }
}

fn key_mistake(types: &[&str]) -> Option<String> {
    let is_key = |kind: &&str| *kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    match types {
        _ if types.iter().any(is_key) => None,
        [] => Some("tls: failed to find any PEM data in key input".to_owned()),
        ["CERTIFICATE"] => Some("tls: found a certificate rather than a key in the PEM for the private key".to_owned()),
        others => Some(format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following \
             types: [{}]",
            others.join(" ")
        )),
    }
}

/// The types of the blocks in a text.
fn types(text: &str) -> Vec<&str> {
    pem::blocks(text).map(|Block { kind, .. }| kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts as kube-apiserver 1.36 gave them.
    #[test]
    fn what_is_no_pair_is_told() {
        let block = |kind: &str| format!("x\n-----BEGIN {kind}-----\nAAEC\n-----END {kind}-----\n");
        let check = |certificate: &str, key: &str, wanted: Option<&str>| {
            assert_eq!(mistake(certificate, key).as_deref(), wanted, "{certificate:?} {key:?}");
        };
        let (certificate, key) = (block("CERTIFICATE"), block("RSA PRIVATE KEY"));
        check(&certificate, &key, None);
        let nothing = "tls: failed to find any PEM data in certificate input";
        check("", "", Some(nothing));
        check("-----BEGIN CERTIFICATE-----\nAAEC\n", &key, Some(nothing));
        // A block begins with the last beginning before its end, and ends with the first end.
        let begins = "-----BEGIN CERTIFICATE-----\n".repeat(2);
        check(&format!("{begins}AAEC\n-----END CERTIFICATE-----"), &key, None);
        let ends = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END X-----\n-----END CERTIFICATE-----";
        check(ends, &key, Some(nothing));
        check(
            "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----",
            &key,
            Some(nothing),
        );
        check(&certificate, "k", Some("tls: failed to find any PEM data in key input"));
        let switched = "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have \
                        been switched";
        check(&key, &certificate, Some(switched));
        let twice = "tls: found a certificate rather than a key in the PEM for the private key";
        check(&certificate, &certificate, Some(twice));
        let other = "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following \
                     types: [PUBLIC KEY]";
        check(&block("PUBLIC KEY"), &key, Some(other));
        let other = "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the \
                     following types: [PUBLIC KEY]";
        check(&certificate, &block("PUBLIC KEY"), Some(other));
    }
}
