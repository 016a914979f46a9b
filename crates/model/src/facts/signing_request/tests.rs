use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;

use super::super::der;
use super::*;

const ORGANIZATION: &[u8] = &[0x55, 4, 10];

fn check(request: &str, want: Result<(&[&str], &str), &str>) {
    let found = SigningRequest::read(&STANDARD.encode(request)).map(|request| request.subject);
    let want = want.map(|(organizations, common_name)| Subject {
        organizations: organizations.iter().map(|&name| name.to_owned()).collect(),
        common_name: common_name.to_owned(),
        uids: Vec::new(),
    });
    assert_eq!(
        found.as_ref().map_err(String::as_str),
        want.as_ref().map_err(|why| *why),
        "{request:.200}"
    );
}

fn block(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der::value(tag::SEQUENCE, parts)
}

/// A request with this subject and these attributes.
fn with(subject: &[u8], attributes: &[u8]) -> Vec<u8> {
    let key = sequence(&[&sequence(&[]), &der::value(tag::BITS, &[&[0]])]);
    let (version, attributes) = (der::value(tag::INTEGER, &[&[0]]), der::value(ATTRIBUTES, &[attributes]));
    let info = sequence(&[&version, &sequence(&[subject]), &key, &attributes]);
    sequence(&[&info, &sequence(&[]), &der::value(tag::BITS, &[&[0]])])
}

fn organization(name: &str) -> Vec<u8> {
    let kind = der::value(tag::IDENTIFIER, &[ORGANIZATION]);
    sequence(&[&kind, &der::value(0x0c, &[name.as_bytes()])])
}

/// An attribute that asks for these extensions.
fn asks(extensions: &[&[u8]]) -> Vec<u8> {
    let kind = der::value(tag::IDENTIFIER, &[EXTENSION_REQUEST]);
    sequence(&[&kind, &der::value(tag::SET, &[&sequence(extensions)])])
}

fn extension(kind: &[u8], value: &[u8]) -> Vec<u8> {
    sequence(&[
        &der::value(tag::IDENTIFIER, &[kind]),
        &der::value(tag::OCTETS, &[value]),
    ])
}

/// Words as those of kube-apiserver 1.36, but where tags differ, and where more is refused than there.
#[test]
fn the_subject_is_found() {
    let masters = include_str!("../../../testdata/masters.csr.pem");
    check(masters, Ok((&["system:masters", "devs"], "x")));
    check(&format!("\n{masters} \n"), Ok((&["system:masters", "devs"], "x")));
    let no_block = "PEM block type must be CERTIFICATE REQUEST";
    check("x", Err(no_block));
    check(&masters.replace(" REQUEST", ""), Err(no_block));
    check(&block(b"").replace('\n', "\n!"), Err(no_block));
    check(
        &block(&[0x30, 0x80, 0x30, 0x80]),
        Err("asn1: syntax error: indefinite length found (not DER)"),
    );
    check(
        &block(&[0x30, 3, 0x02, 1, 0]),
        Err("asn1: structure error: tags don't match"),
    );
    let more = [with(b"", b""), vec![0]].concat();
    check(&block(&more), Err("asn1: syntax error: trailing data"));
}

/// Requests that one reader takes for this and another for that: text before the block, which hides a beginning that
/// some find within a line; two blocks, of which some take the last.
#[test]
fn a_request_with_anything_around_it_is_refused() {
    let masters = include_str!("../../../testdata/masters.csr.pem");
    let harmless = block(&with(&der::value(tag::SET, &[&organization("devs")]), b""));
    check(&harmless, Ok((&["devs"], "")));
    for text in [
        format!("x{masters}{harmless}"),
        format!("{harmless}{masters}"),
        format!("{harmless}x{masters}"),
        format!("{harmless}x"),
        format!("words before\n{harmless}"),
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{harmless}"),
    ] {
        let only = "the request must be exactly one PEM block of type CERTIFICATE REQUEST, with no headers and nothing before or after it";
        check(&text, Err(only));
    }
    // Go finds none here.
    check(
        &format!("x{harmless}"),
        Err("PEM block type must be CERTIFICATE REQUEST"),
    );
}

#[test]
fn what_stands_behind_the_last_part_is_refused() {
    let trailing = Err("asn1: syntax error: trailing data");
    let whole = with(b"", b"");
    let inside = |der: &[u8]| Reader::new(der).any().expect("a value").contents.to_vec();
    let outer = inside(&whole);
    check(&block(&sequence(&[&outer, &sequence(&[])])), trailing);
    let info = inside(&outer);
    let rest = outer.get(info.len() + 2..).expect("the signature");
    let more = sequence(&[&sequence(&[&info, &sequence(&[])]), rest]);
    check(&block(&more), trailing);
    let unreadable = der::value(
        tag::SET,
        &[&sequence(&[
            &der::value(tag::IDENTIFIER, &[ORGANIZATION]),
            &der::value(0x0c, &[&[0xff]]),
        ])],
    );
    check(&block(&with(&unreadable, b"")), Err("invalid UTF-8 string"));
}

#[test]
fn alternative_names_are_read_by_kind() {
    let check = |attributes: &[u8], want: Result<AlternativeNames, &str>| {
        let read = SigningRequest::of_pem(block(&with(b"", attributes)).as_bytes()).map(|request| request.names);
        assert_eq!(
            read.as_ref().map_err(String::as_str),
            want.as_ref().map_err(|why| *why),
            "{attributes:x?}"
        );
    };
    let san = |names: &[(u8, &[u8])]| {
        let names: Vec<u8> = names
            .iter()
            .flat_map(|(kind, text)| der::value(*kind, &[text]))
            .collect();
        extension(ALTERNATIVE_NAMES, &sequence(&[&names]))
    };
    check(b"", Ok(AlternativeNames::default()));
    let all = san(&[
        (0x82, b"a.b"),
        (0x87, &[1; 4]),
        (0x81, b"a@b"),
        (0xa0, b"\x06\x01\x01"),
        (0x86, b"a:b"),
        (0x88, &[1]),
        (0x82, b"c"),
    ]);
    let named = AlternativeNames {
        dns: vec!["a.b".into(), "c".into()],
        mails: vec!["a@b".into()],
        addresses: vec![vec![1; 4]],
        uris: vec!["a:b".into()],
    };
    // Other extensions and other attributes are passed over, critical or not.
    let critical = [
        der::value(tag::IDENTIFIER, &[&[1, 2]]),
        der::value(tag::BOOLEAN, &[&[0xff]]),
        der::value(tag::OCTETS, &[b"?"]),
    ]
    .concat();
    let other = sequence(&[
        &der::value(tag::IDENTIFIER, &[&[1, 3]]),
        &der::value(tag::SET, &[b"\x0c\x01p"]),
    ]);
    let asked = asks(&[&sequence(&[&critical]), &all]);
    check(&asked, Ok(named.clone()));
    check(&[other.as_slice(), &asked, &other].concat(), Ok(named));
    let twice = Err("x509: certificate request contains duplicate requested extensions");
    check(&asks(&[&all, &all]), twice.clone());
    check(&[asked.as_slice(), &asked].concat(), twice);
    check(&asks(&[&san(&[(0x82, "é".as_bytes())])]), Err("x509: SAN is malformed"));
    check(
        &asks(&[&san(&[(0x87, &[1; 5])])]),
        Err("x509: cannot parse IP address of another length than 4 or 16"),
    );
    check(&sequence(&[]), Err("asn1: syntax error: sequence truncated"));
}

/// A set whose members stand in the wrong order is read as fast as any other, and as Go reads it.
#[test]
fn sets_are_not_sorted() {
    let count = 60_000;
    let names: Vec<String> = (0..count).rev().map(|number| format!("o{number}")).collect();
    let set: Vec<u8> = names.iter().flat_map(|name| organization(name)).collect();
    let request = SigningRequest::read(&STANDARD.encode(block(&with(&der::value(tag::SET, &[&set]), b""))));
    assert_eq!(request.map(|request| request.subject.organizations), Ok(names));
}
