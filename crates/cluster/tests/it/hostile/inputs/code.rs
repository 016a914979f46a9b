//! Inputs that are no text, or grow in another way than by repetition.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hostile::input::{Input, Request, any, create, input, json_patch, post};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, SERVICES, THINGS, definition_of_spec, free_definition, items, nested, object,
    scaled, thing,
};

pub(crate) fn inputs() -> Vec<Input> {
    const UNKNOWN: &[u16] = &[400, 415];
    let cbor = || [&[0xd9_u8, 0xd9, 0xf7][..], &[0x81; 100_000][..]].concat();
    let mut inputs = vec![
        input("YAML of 1,000 nested blocks", &[400], || {
            let lines: Vec<String> = (0..1_000).map(|depth| format!("{}a:", " ".repeat(depth))).collect();
            post(CONFIG_MAPS, "application/yaml", lines.join("\n"))
        }),
        input("a definition whose defaults double 12 times", &[201, 413, 422], || {
            let mut schema = r#"{"type":"string","default":"x"}"#.to_owned();
            for _ in 0..if cfg!(debug_assertions) { 7 } else { 12 } {
                schema = format!(r#"{{"type":"object","default":{{}},"properties":{{"a":{schema},"b":{schema}}}}}"#);
            }
            create(THINGS, "thing", thing("thing", "{}")).after(create(
                DEFINITIONS,
                DEFINITION,
                definition_of_spec(&schema),
            ))
        }),
        input(
            "a JSON patch that makes an object deeper, step by step",
            &[400, 422],
            || {
                let step = |step: usize| {
                    let path = "/a".repeat(step * 90);
                    format!(r#"{{"op":"add","path":"/spec{path}","value":{}}}"#, nested(90))
                };
                let steps: Vec<String> = (1..12).map(step).collect();
                json_patch(&format!("{THINGS}/wide"), format!("[{}]", steps.join(",")))
                    .after(create(DEFINITIONS, DEFINITION, free_definition()))
                    .after(create(THINGS, "wide", thing("wide", r#"{"a":1}"#)))
            },
        ),
        input(
            "a Service that wants more ports of nodes than there are",
            &[413, 422, 500],
            || {
                let ports = items(3_000, |index| format!(r#"{{"name":"p{index}","port":{}}}"#, index + 1));
                // Fewer in a debug build, which there are.
                let least = if cfg!(debug_assertions) {
                    r#","clusterIP":"None""#
                } else {
                    ""
                };
                let spec = format!(r#""spec":{{"type":"NodePort","ports":{ports}{least}}}"#);
                create(SERVICES, "wide", object("v1", "Service", "wide", "", &spec))
            },
        ),
        input("CBOR of 100,000 nested lists", UNKNOWN, move || {
            post(CONFIG_MAPS, "application/cbor", cbor())
        }),
        input("a list of CBOR that says it has 2^64 items", UNKNOWN, || {
            let body = [&[0x9b_u8][..], &[0xff; 8][..]].concat();
            post(CONFIG_MAPS, "application/cbor", body)
        }),
        input("an apply in CBOR", UNKNOWN, move || {
            let path = format!("{CONFIG_MAPS}/odd");
            any("PATCH", &path, "application/apply-patch+cbor", cbor()).query("fieldManager=m")
        }),
    ];
    inputs.extend(signing_requests());
    inputs
}

/// A value of DER with this tag.
fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = u32::try_from(contents.len()).unwrap().to_be_bytes();
    let leading = length.iter().take_while(|digit| **digit == 0).count().min(3);
    let used = &length[leading..];
    let long = (contents.len() >= 0x80).then(|| 0x80 | u8::try_from(used.len()).unwrap());
    [&[tag], long.as_slice(), used, contents].concat()
}

/// A request for a certificate of this subject, with these attributes: PEM in base64, as `spec.request` has it.
fn pem(subject: &[u8], attributes: &[u8]) -> String {
    let key = der(0x30, &[0x30, 2, 6, 0, 3, 1, 0]);
    let info = [der(2, &[0]), der(0x30, subject), key, der(0xa0, attributes)].concat();
    let signed = [der(0x30, &info), der(0x30, &[6, 0]), der(3, &[0])].concat();
    let text = STANDARD.encode(der(0x30, &signed));
    STANDARD.encode(format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
    ))
}

fn signing_request(signer: &str, subject: &[u8], attributes: &[u8]) -> Request {
    let (version, kind) = ("certificates.k8s.io/v1", "CertificateSigningRequest");
    let spec = format!(
        r#""spec":{{"signerName":"{signer}","usages":["client auth"],"request":"{}"}}"#,
        pem(subject, attributes)
    );
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    create(path, "hunted", object(version, kind, "hunted", "", &spec))
}

fn signing_requests() -> Vec<Input> {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    /// An organization with a number.
    fn organization(number: usize) -> Vec<u8> {
        let text = der(0x0c, number.to_string().as_bytes());
        der(0x30, &[der(6, &[0x55, 4, 10]), text].concat())
    }
    let backwards = |count: usize, part: fn(usize) -> Vec<u8>| -> Vec<u8> {
        let indexes = (0..scaled(count)).rev();
        indexes.flat_map(|index| part(100_000 + index)).collect()
    };
    vec![
        input(
            "a signing request of 50,000 names in the wrong order",
            &[201, 403, 422],
            move || signing_request(CLIENT, &der(0x31, &backwards(50_000, organization)), &[]),
        ),
        input(
            "a signing request of 20,000 attributes in the wrong order",
            &[201, 403, 422],
            move || signing_request(CLIENT, &[], &backwards(20_000, |index| der(0x30, &index.to_be_bytes()))),
        ),
        input("a signing request of 50,000 names for nobody", &[201, 422], move || {
            signing_request("a.b/c", &der(0x31, &backwards(50_000, organization)), &[])
        }),
    ]
}
