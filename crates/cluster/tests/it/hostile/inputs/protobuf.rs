//! Bodies in protobuf that lie about their lengths, nest, repeat, or hold values that no JSON could.

use crate::hostile::input::{Input, Request, create_as, input, post};
use crate::hostile::values::{CONFIG_MAPS, DEFINITIONS, QUOTAS, SERVICES, scaled};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const REFUSED: &[u16] = &[400, 413, 422];

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a message of 500,000 empty owner references", REFUSED, || {
            map(&bytes(
                1,
                &[name("many"), bytes(13, b"").repeat(scaled(500_000))].concat(),
            ))
        }),
        input(
            "a message of 500,000 empty managed fields",
            &[201, 400, 413, 422],
            || {
                map(&bytes(
                    1,
                    &[name("many"), bytes(17, b"").repeat(scaled(500_000))].concat(),
                ))
            },
        ),
        input("a message whose name is given 100,000 times", &[201, 400], || {
            map(&bytes(1, &name("many").repeat(scaled(100_000))))
        }),
        input(
            "a message whose metadata is given 100,000 times",
            &[201, 400, 413],
            || map(&bytes(1, &name("many")).repeat(scaled(100_000))),
        ),
        input("a map of 100,000 entries of the same key", &[201, 400, 413], || {
            let entry = bytes(2, &[bytes(1, b"a"), bytes(2, b"b")].concat());
            map(&[bytes(1, &name("many")), entry.repeat(scaled(100_000))].concat())
        }),
        input(
            "a map of 200,000 entries without key and value",
            &[201, 400, 422, 413],
            || map(&[bytes(1, &name("many")), bytes(2, b"").repeat(scaled(200_000))].concat()),
        ),
        input("a message with 1 MB of unknown fields", &[201, 400], || {
            map(&[bytes(1, &name("many")), bytes(9_999, b"x").repeat(scaled(250_000))].concat())
        }),
        input("a message that ends within a field", &[400], || {
            map(b"\x0a\xff\xff\x03\x0a")
        }),
        input("a message with a field of 2^31 bytes", &[400], || {
            map(b"\x0a\x80\x80\x80\x80\x08")
        }),
        input("a message with a field of 2^64 - 1 bytes", &[400], || {
            map(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
        }),
        input("a message with a number of eleven bytes", &[400], || {
            map(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
        }),
        input("a message with the field 0", &[400], || map(b"\x02\x00")),
        input("a message of 500,000 groups that begin", &[400], || {
            map(&b"\x0b".repeat(scaled(500_000)))
        }),
        input("a message of wire type 7", &[400], || map(b"\x0f")),
        input("metadata that are a number", &[400], || map(b"\x08\x01")),
        input(
            "a definition with 10,000 nested schemas in protobuf",
            &[400, 422],
            || definition(nested_schemas(scaled(10_000))),
        ),
        input(
            "a definition with 400 nested schemas in protobuf",
            &[201, 400, 422],
            || definition(nested_schemas(400)),
        ),
        input(
            "a definition whose default is no JSON, in protobuf",
            &[400, 422],
            || definition(bytes(8, &bytes(1, b"{\"a\":"))),
        ),
        input(
            "a definition whose default nests 10,000 lists, in protobuf",
            &[400, 422],
            || definition(bytes(8, &bytes(1, &b"[".repeat(10_000)))),
        ),
        input("a name that is no UTF-8", &[400, 422], || {
            map(&bytes(1, &bytes(1, b"\xff\xfe")))
        }),
        input("a value that is no UTF-8", &[201, 400], || {
            let entry = bytes(2, &[bytes(1, b"a"), bytes(2, b"\xff\xc0\x80")].concat());
            map(&[bytes(1, &name("many")), entry].concat())
        }),
        input("a creation 2^63 - 1 seconds after 1970", &[201, 400], || {
            created(&varint(1, i64::MAX.unsigned_abs()))
        }),
        input("a creation with -1 nanoseconds", &[201, 400], || {
            created(&[varint(1, 1), varint(2, u64::MAX)].concat())
        }),
        input("a quota of 1e999999999 in protobuf", &[201, 400, 422], || {
            quota(b"1e999999999")
        }),
        input("a quota of 100,000 digits in protobuf", &[201, 400, 422], || {
            quota(&b"9".repeat(scaled(100_000)))
        }),
        input("a quota that is no number, in protobuf", &[400, 422], || quota(b"x")),
        input("a port that is neither number nor name, in protobuf", REFUSED, || {
            let port = [varint(3, 80), bytes(4, &varint(1, 7))].concat();
            let body = [bytes(1, &name("many")), bytes(2, &bytes(1, &port))].concat();
            create_as(SERVICES, "many", PROTOBUF, envelope("v1", "Service", &body))
        }),
        input("an envelope without an object", REFUSED, || {
            post(CONFIG_MAPS, PROTOBUF, envelope("v1", "ConfigMap", b""))
        }),
        input("an envelope of another kind", &[400], || {
            post(CONFIG_MAPS, PROTOBUF, envelope("v1", "Pod", &bytes(1, &name("many"))))
        }),
        input("an envelope without kind and version", &[201, 400, 422], || {
            create_as(
                CONFIG_MAPS,
                "many",
                PROTOBUF,
                envelope("", "", &bytes(1, &name("many"))),
            )
        }),
        input("an envelope within an envelope", REFUSED, || {
            let inner = envelope("v1", "ConfigMap", &bytes(1, &name("many")));
            post(CONFIG_MAPS, PROTOBUF, envelope("v1", "ConfigMap", &inner))
        }),
        input("only the first four bytes of protobuf", REFUSED, || {
            post(CONFIG_MAPS, PROTOBUF, b"k8s\0".to_vec())
        }),
        input("JSON that says that it is protobuf", &[400], || {
            post(CONFIG_MAPS, PROTOBUF, "{}")
        }),
        input("protobuf that says that it is JSON", &[400], || {
            post(
                CONFIG_MAPS,
                "application/json",
                envelope("v1", "ConfigMap", &bytes(1, &name("many"))),
            )
        }),
        input("1 MB of zeros as protobuf", &[400], || {
            post(CONFIG_MAPS, PROTOBUF, [b"k8s\0".to_vec(), vec![0; 1_000_000]].concat())
        }),
    ]
}

/// A number in the base of 128.
fn base128(mut number: u64) -> Vec<u8> {
    let mut text = Vec::new();
    while number >= 0x80 {
        text.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    text.push(number as u8);
    text
}

fn varint(tag: u64, number: u64) -> Vec<u8> {
    [base128(tag << 3), base128(number)].concat()
}

fn bytes(tag: u64, data: &[u8]) -> Vec<u8> {
    [base128(tag << 3 | 2), base128(data.len() as u64), data.to_vec()].concat()
}

/// `metadata.name`, as a field of the metadata.
fn name(name: &str) -> Vec<u8> {
    bytes(1, name.as_bytes())
}

/// `runtime.Unknown` with its four bytes.
fn envelope(version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), bytes(1, &meta), bytes(2, object)].concat()
}

/// A create of a ConfigMap that calls itself `many`, if it has a name.
fn map(body: &[u8]) -> Request {
    create_as(CONFIG_MAPS, "many", PROTOBUF, envelope("v1", "ConfigMap", body))
}

fn created(time: &[u8]) -> Request {
    map(&bytes(1, &[name("many"), bytes(8, time)].concat()))
}

fn quota(quantity: &[u8]) -> Request {
    let entry = [bytes(1, b"pods"), bytes(2, &bytes(1, quantity))].concat();
    let body = [bytes(1, &name("many")), bytes(2, &bytes(1, &entry))].concat();
    create_as(QUOTAS, "many", PROTOBUF, envelope("v1", "ResourceQuota", &body))
}

/// `allOf` in `allOf`.
fn nested_schemas(depth: usize) -> Vec<u8> {
    (0..depth).fold(Vec::new(), |inner, _| bytes(25, &inner))
}

/// A definition of Things whose `spec` has these fields in its schema besides its type.
fn definition(schema: Vec<u8>) -> Request {
    let spec = [bytes(5, b"object"), schema].concat();
    let property = [bytes(1, b"spec"), bytes(2, &spec)].concat();
    let whole = [bytes(5, b"object"), bytes(29, &property)].concat();
    let version = [bytes(1, b"v1"), varint(2, 1), varint(3, 1), bytes(4, &bytes(1, &whole))].concat();
    let names = [bytes(1, b"things"), bytes(4, b"Thing")].concat();
    let spec = [
        bytes(1, b"hostile.example.com"),
        bytes(3, &names),
        bytes(4, b"Namespaced"),
        bytes(7, &version),
    ];
    let body = [
        bytes(1, &name(crate::hostile::values::DEFINITION)),
        bytes(2, &spec.concat()),
    ]
    .concat();
    let body = envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &body);
    create_as(DEFINITIONS, crate::hostile::values::DEFINITION, PROTOBUF, body)
}
