//! Keys as openssl writes them, in every form that kube-apiserver reads.

use super::*;

macro_rules! key {
    ($name:literal) => {
        include_str!(concat!("../../testdata/keys/", $name, ".pem"))
    };
}

fn read(signing: &str, verifying: &[&str]) -> Result<GivenKeys, String> {
    let verifying: Vec<String> = verifying.iter().map(|&text| text.to_owned()).collect();
    GivenKeys::read(signing, &verifying)
}

#[test]
fn every_form_of_a_key_is_the_same_key() {
    #[track_caller]
    fn check(signing: &str, verifying: &[&str], algorithm: &str) {
        let keys = read(signing, verifying).unwrap();
        assert_eq!(keys.algorithm(), algorithm);
        let signature = keys.sign(b"message").unwrap();
        assert!(keys.believes(algorithm, b"message", &signature));
        assert!(!keys.believes(algorithm, b"other", &signature));
        assert!(!keys.believes("none", b"message", &signature));
        assert!(keys.verify(b"message", &signature));
        // The key of the token is one of the published ones, under the same name.
        assert!(keys.jwks().unwrap().contains(&keys.jwk().unwrap()));
        assert_eq!(keys.jwk().unwrap()["kid"], keys.key_id().unwrap());
    }
    for signing in [key!("rsa-pkcs1"), key!("rsa-pkcs8")] {
        check(signing, &[], "RS256");
        for verifying in [key!("rsa-public"), key!("rsa-public-pkcs1"), key!("rsa-pkcs8")] {
            check(signing, &[verifying], "RS256");
            check(signing, &[key!("p256-public"), verifying], "RS256");
        }
    }
    for signing in [key!("p256-sec1"), key!("p256-pkcs8")] {
        check(signing, &[], "ES256");
        for verifying in [key!("p256-public"), key!("p256-certificate"), key!("p256-sec1")] {
            check(signing, &[verifying], "ES256");
            check(signing, &[key!("rsa-public"), verifying], "ES256");
        }
    }
}

#[test]
fn only_named_keys_are_believed() {
    let keys = read(key!("p256-sec1"), &[key!("rsa-public")]).unwrap();
    let signature = keys.sign(b"message").unwrap();
    assert!(!keys.believes("ES256", b"message", &signature));
}

#[test]
fn what_cannot_be_used_is_refused_in_words() {
    #[track_caller]
    fn check(signing: &str, verifying: &[&str], expected: &str) {
        let why = read(signing, verifying).err().unwrap_or_default();
        assert!(why.contains(expected), "{why:?} should say {expected:?}");
    }
    check("", &[], "does not contain a valid RSA or ECDSA private key");
    check(
        key!("rsa-public"),
        &[],
        "does not contain a valid RSA or ECDSA private key",
    );
    check(key!("p384-sec1"), &[], "kubewright signs with RSA");
    check(
        key!("rsa-pkcs1"),
        &[""],
        "does not contain any valid RSA or ECDSA public keys",
    );
    check(
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        &[],
        "the private key cannot be used",
    );
}
