use super::made::{NOW, Party, Wish, authority, extension, name, purpose};
use super::*;
use kubewright_apiserver::model::facts::der;
use rustls::pki_types::pem::PemObject as _;

const UNKNOWN: &str = "certificate signed by unknown authority";
const EXPIRED: &str = "certificate has expired or is not yet valid";
const USAGE: &str = "certificate specifies an incompatible key usage";
const NO_SIGNER: &str = "certificate is not authorized to sign other certificates";
const CRITICAL: &str = "unhandled critical extension";
const TOO_MANY: &str = "too many intermediates for path length constraint";

type Der = CertificateDer<'static>;

/// What is said of a client that presents these certificates, its own first; authorities that are confined to names
/// refuse.
fn said(chain: &[Der], authorities: &[Der]) -> String {
    let (own, intermediates) = chain.split_first().expect("a certificate");
    let confined = || Err("confined".to_owned());
    verify(own, intermediates, authorities, NOW, confined)
        .map_or_else(|why| why.replace("x509: ", ""), |_| String::new())
}

#[track_caller]
fn check(chain: &[Der], authorities: &[Der], why: &str) {
    assert_eq!(said(chain, authorities), why);
}

#[test]
fn certificates_of_an_authority() {
    let (ca, client, other) = (Party::new("ca"), Party::new("client"), Party::new("ca"));
    let root = [ca.signs(&Wish::of(&ca).with(authority(None)))];
    let own = || Wish::of(&client);
    let check = |wish: Wish<'_>, why: &str| check(&[ca.signs(&wish)], &root, why);
    check(own(), "");
    check(own().version(1), "");
    check(own().version(2), "");
    check(own().expired(), EXPIRED);
    check(own().version(1).expired(), EXPIRED);
    check(own().not_yet_valid(), EXPIRED);
    check(own().version(1).not_yet_valid(), EXPIRED);
    // What it may be used for: for clients (2), for anything, not for servers (1) alone.
    check(own().with(purpose(2)), "");
    check(own().with(purpose(1)), USAGE);
    let any = der::value(tag::IDENTIFIER, &[&[0x55, 0x1d, 37, 0]]);
    check(own().with(extension(37, true, &der::value(tag::SEQUENCE, &[&any]))), "");
    check(own().with(extension(37, false, &der::value(tag::SEQUENCE, &[]))), USAGE);
    // Extensions that are not known count when they are critical.
    check(own().with(extension(99, false, b"?")), "");
    check(own().with(extension(99, true, b"?")), CRITICAL);
    check(own().with(purpose(2)).with(extension(99, true, b"?")), CRITICAL);
    check(
        own().with(purpose(2)).with(purpose(2)),
        "certificate contains duplicate extension with OID \"2.5.29.37\"",
    );
    for kind in [15, 19, 30, 37] {
        let why = format!("the extension 2.5.29.{kind} cannot be read");
        check(own().with(extension(kind, false, b"?")), &why);
    }
    // Versions without extensions have none, and there is no fourth.
    check(own().version(1).with(purpose(2)), "invalid version");
    check(own().version(4), "invalid version");
    check(
        own().inner(b"\x06\x01\x01"),
        "inner and outer signature algorithm identifiers don't match",
    );
    // A client may be an authority, but not because of that.
    check(own().with(authority(None)), "");

    let check = |signer: &Party, wish: Wish<'_>, why: &str| assert_eq!(said(&[signer.signs(&wish)], &root), why);
    for version in [1, 3] {
        check(&other, own().version(version), UNKNOWN);
        check(&Party::new("another"), own().version(version), UNKNOWN);
        check(&client, own().version(version), UNKNOWN);
    }
}

#[test]
fn what_is_changed_after_it_was_signed_is_refused() {
    let (ca, client) = (Party::new("ca"), Party::new("client"));
    let root = [ca.signs(&Wish::of(&ca).with(authority(None)))];
    for version in [1, 3] {
        let signed = ca.signs(&Wish::of(&client).version(version));
        check(std::slice::from_ref(&signed), &root, "");
        // Every byte: none is passed over.
        for place in 0..signed.len() {
            let mut changed = signed.to_vec();
            changed[place] ^= 1;
            assert_ne!(said(&[changed.into()], &root), "", "{version} {place}");
        }
        let mut longer = signed.to_vec();
        longer.push(0);
        check(&[longer.into()], &root, "asn1: syntax error: trailing data");
    }
}

#[test]
fn authorities_of_all_kinds() {
    let (ca, client) = (Party::new("ca"), Party::new("client"));
    let leaf = ca.signs(&Wish::of(&client));
    let check = |root: Wish<'_>, why: &str| check(std::slice::from_ref(&leaf), &[ca.signs(&root)], why);
    let root = || Wish::of(&ca);
    check(root().with(authority(None)), "");
    check(root().with(authority(Some(0))), "");
    // Of version 1, which has no way to say that it is one.
    check(root().version(1), "");
    check(root(), UNKNOWN);
    check(
        root().with(extension(19, true, &der::value(tag::SEQUENCE, &[]))),
        UNKNOWN,
    );
    check(root().with(authority(None)).expired(), EXPIRED);
    check(root().version(1).expired(), EXPIRED);
    check(root().with(authority(None)).with(purpose(1)), USAGE);
    // The use of its key: to sign certificates (bit 5), or only something else.
    check(
        root().with(authority(None)).with(extension(15, true, &[3, 2, 2, 4])),
        "",
    );
    check(
        root().with(authority(None)).with(extension(15, true, &[3, 2, 7, 0x80])),
        UNKNOWN,
    );
    check(root().with(authority(None)).with(extension(99, true, b"?")), CRITICAL);
    // Confined to names below `a`.
    let subtree = der::value(tag::SEQUENCE, &[&der::value(0x82, &[b"a"])]);
    let permitted = der::value(tag::SEQUENCE, &[&der::value(0xa0, &[&subtree])]);
    check(
        root().with(authority(None)).with(extension(30, true, &permitted)),
        "confined",
    );
}

#[test]
fn an_authority_may_be_the_client() {
    let (ca, other) = (Party::new("ca"), Party::new("other"));
    let (own, foreign) = (ca.signs(&Wish::of(&ca)), other.signs(&Wish::of(&other)));
    check(std::slice::from_ref(&own), &[foreign.clone(), own.clone()], "");
    check(std::slice::from_ref(&own), &[foreign], UNKNOWN);
    let expired = ca.signs(&Wish::of(&ca).expired());
    check(std::slice::from_ref(&expired), std::slice::from_ref(&expired), EXPIRED);
}

#[test]
fn chains() {
    let [ca, middle, below, client] = ["ca", "middle", "below", "client"].map(Party::new);
    let root = [ca.signs(&Wish::of(&ca).with(authority(None)))];
    let leaf = |version| middle.signs(&Wish::of(&client).version(version));
    for version in [1, 3] {
        let check = |wish: Wish<'_>, why: &str| check(&[leaf(version), ca.signs(&wish)], &root, why);
        check(Wish::of(&middle).with(authority(None)), "");
        check(Wish::of(&middle).with(authority(Some(0))), "");
        // A client's certificate signs no other, whatever its version.
        check(Wish::of(&middle), UNKNOWN);
        check(Wish::of(&middle).with(purpose(2)), UNKNOWN);
        check(Wish::of(&middle).version(1), NO_SIGNER);
        check(Wish::of(&middle).version(2), NO_SIGNER);
        check(Wish::of(&middle).with(authority(None)).expired(), EXPIRED);
        check(Wish::of(&middle).with(authority(None)).not_yet_valid(), EXPIRED);
        check(Wish::of(&middle).with(authority(None)).with(purpose(1)), USAGE);
        check(Wish::of(&middle).with(authority(None)).with(purpose(2)), "");
    }
    let intermediate = ca.signs(&Wish::of(&middle).with(authority(None)));
    // Nothing but the chain leads to the authority.
    check(&[leaf(3)], &root, UNKNOWN);
    check(&[leaf(3), root[0].clone()], &root, UNKNOWN);
    // What the client sends is no authority, and a certificate that nobody can read hinders none.
    check(
        &[leaf(3), intermediate.clone()],
        &[below.signs(&Wish::of(&below).with(authority(None)))],
        UNKNOWN,
    );
    check(
        &[leaf(3), vec![0x30, 0].into(), root[0].clone(), intermediate.clone()],
        &root,
        "",
    );
    // Another of the same name that fits is looked for.
    let impostor = Party::new("middle");
    let theirs = ca.signs(&Wish::of(&impostor).with(authority(None)));
    let unusable = ca.signs(&Wish::of(&middle).with(authority(None)).with(purpose(1)));
    check(&[leaf(3), theirs, unusable, intermediate.clone()], &root, "");

    let deep = [
        below.signs(&Wish::of(&client)),
        middle.signs(&Wish::of(&below).with(authority(None))),
        intermediate,
    ];
    check(&deep, &root, "");
    for (most, why) in [(0, TOO_MANY), (1, TOO_MANY), (2, "")] {
        check(&deep, &[ca.signs(&Wish::of(&ca).with(authority(Some(most))))], why);
    }
    let confined = ca.signs(&Wish::of(&middle).with(authority(Some(0))));
    check(&[deep[0].clone(), deep[1].clone(), confined], &root, TOO_MANY);
}

/// Authorities that sign each other in a circle, each under one name: the search ends.
#[test]
fn searches_have_an_end() {
    let parties: Vec<Party> = (0..12).map(|_| Party::new("x")).collect();
    let client = Party::new("client");
    let mut chain = vec![parties[0].signs(&Wish::of(&client))];
    for signer in &parties {
        chain.extend(
            parties
                .iter()
                .map(|other| signer.signs(&Wish::of(other).with(authority(None)))),
        );
    }
    let root = Party::new("x");
    let root = root.signs(&Wish::of(&root).with(authority(None)));
    check(
        &chain,
        &[root],
        "signature check attempts limit reached while verifying certificate chain",
    );
}

/// Made by `openssl x509 -req` with `-sha1` and with `-sha256`, of one authority, all else alike.
#[test]
fn weak_signatures_are_refused() {
    let read = |text: &str| {
        Der::pem_slice_iter(text.as_bytes())
            .map(|one| one.expect("PEM"))
            .collect::<Vec<_>>()
    };
    let all = read(include_str!("../../testdata/sha1-and-sha256.pem"));
    let [root, sha1, sha256] = all.as_slice() else {
        panic!("three certificates");
    };
    check(std::slice::from_ref(sha256), std::slice::from_ref(root), "");
    check(std::slice::from_ref(sha1), std::slice::from_ref(root), UNKNOWN);
}

#[test]
fn names_are_compared_as_they_stand() {
    let (ca, client) = (Party::new("ca"), Party::new("client"));
    let root = [ca.signs(&Wish::of(&ca).with(authority(None)))];
    let renamed = Party {
        name: name(&[(super::made::COMMON_NAME, 0x13, b"ca")]),
        key: rcgen::KeyPair::from_pem(&ca.key.serialize_pem()).expect("a key"),
    };
    check(&[renamed.signs(&Wish::of(&client))], &root, UNKNOWN);
}
