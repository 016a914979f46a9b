//! Texts that are not quite of their stated encoding: broken UTF-8, other encodings, YAML in its corners.

use crate::hostile::input::{Input, Request, create_as, input, post};
use crate::hostile::values::{CONFIG_MAPS, config_map, items, scaled};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a string that is no UTF-8", &[201, 400], || {
            around(b"\"\xff\xfe\xc0\x80\"")
        }),
        input("a key that is no UTF-8", &[201, 400, 422], || {
            let body = config_map("odd", "", "\"data\":{\"@\":\"b\"}").into_bytes();
            let at = body.iter().position(|byte| *byte == b'@').unwrap_or(0);
            let mut body = body;
            body[at] = 0xff;
            create_as(CONFIG_MAPS, "odd", JSON, body)
        }),
        input("half a surrogate pair", &[201, 400], || around(br#""\ud800""#)),
        input("100,000 halves of surrogate pairs", &[201, 400], || {
            around(format!("\"{}\"", "\\ud800".repeat(scaled(100_000))).as_bytes())
        }),
        input("a NUL that is escaped", &[201, 400], || around(br#""\u0000""#)),
        input("a NUL that is not escaped", &[400], || around(b"\"\0\"")),
        input("an escape that is cut off", &[400], || around(br#""\u00"#)),
        input("1 MB of escapes", &[201, 413], || {
            around(format!("\"{}\"", "\\u0041".repeat(scaled(170_000))).as_bytes())
        }),
        input("a byte order mark before the object", &[201, 400], || {
            let body = format!("\u{feff}{}", config_map("odd", "", ""));
            create_as(CONFIG_MAPS, "odd", JSON, body)
        }),
        input("UTF-16", &[400], || {
            let units = config_map("odd", "", "").encode_utf16().collect::<Vec<_>>();
            let body: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            post(CONFIG_MAPS, "application/json; charset=utf-16", body)
        }),
        input("a charset that does not exist", &[201, 415], || {
            create_as(
                CONFIG_MAPS,
                "odd",
                "application/json; charset=x",
                config_map("odd", "", ""),
            )
        }),
        input("a body that says that it is compressed", &[201, 400, 415], || {
            create_as(CONFIG_MAPS, "odd", JSON, config_map("odd", "", "")).header("Content-Encoding", "gzip")
        }),
        input("1 MB of compressed zeros", &[400, 415], || {
            post(CONFIG_MAPS, JSON, b"\x1f\x8b\x08\0\0\0\0\0\0\x03".repeat(100_000)).header("Content-Encoding", "gzip")
        }),
        input("CBOR", &[400, 415], || {
            post(CONFIG_MAPS, "application/cbor", b"\xd9\xd9\xf7\xa1".to_vec())
        }),
        input("a content type that is none", &[400, 415], || {
            post(CONFIG_MAPS, "///;;=", "{}")
        }),
        input("a content type of 30 KB", &[400, 415, 431], || {
            post(CONFIG_MAPS, &"a".repeat(30_000), "{}")
        }),
        input("no content type", &[201, 415], || {
            let mut request = create_as(CONFIG_MAPS, "odd", JSON, config_map("odd", "", ""));
            request.headers.clear();
            request
        }),
        input("an empty body", &[400, 422], || post(CONFIG_MAPS, JSON, "")),
        input("1 MB of spaces", &[400], || {
            post(CONFIG_MAPS, JSON, " ".repeat(1_000_000))
        }),
        input("null", &[400, 422], || post(CONFIG_MAPS, JSON, "null")),
        input("a number instead of an object", &[400], || post(CONFIG_MAPS, JSON, "1")),
        input("two objects, one after the other", &[201, 400], || {
            create_as(CONFIG_MAPS, "odd", JSON, config_map("odd", "", "").repeat(2))
        }),
        input("an object that is cut off", &[400], || {
            post(CONFIG_MAPS, JSON, "{\"apiVersion\":\"v1\",\"kind\":")
        }),
        input("a List instead of an object", &[400], || {
            post(CONFIG_MAPS, JSON, r#"{"apiVersion":"v1","kind":"List","items":[]}"#)
        }),
        input("YAML with tabs", &[400], || yaml("data:\n\ta: b\n")),
        input("YAML with 20,000 anchors", &[201, 400], || {
            let list = items(20_000, |index| format!("&a{index} x{index}"));
            yaml(&format!("unknown: {list}\n"))
        }),
        input("YAML with 100,000 aliases of one word", &[201, 400, 413], || {
            let list = items(100_000, |_| "*a".to_owned());
            yaml(&format!("data: {{k: &a x}}\nunknown: {list}\n"))
        }),
        input("YAML with an alias of what it stands in", &[400], || {
            yaml("data: &a {b: *a}\n")
        }),
        input("YAML with an alias of nothing", &[400], || yaml("data: {b: *a}\n")),
        input("YAML with 10,000 merge keys", &[201, 400, 413, 422], || {
            let list = items(10_000, |_| "*a".to_owned());
            yaml(&format!("unknown: &a {{x: y}}\ndata:\n  <<: {list}\n"))
        }),
        input("YAML with a scalar of 1 MB", &[201], || {
            yaml(&format!("data:\n  a: |\n    {}\n", "x".repeat(scaled(1_000_000))))
        }),
        input("YAML with 300,000 lines in a scalar", &[201], || {
            yaml(&format!("data:\n  a: |\n{}", "    x\n".repeat(scaled(150_000))))
        }),
        input("300,000 documents of YAML", &[201, 400], || {
            yaml(&"---\n".repeat(scaled(300_000)))
        }),
        input("YAML with a list as a key", &[201, 400], || {
            yaml("data:\n  ? [a, b]\n  : c\n")
        }),
        input("YAML with a tag of its own", &[201, 400], || {
            yaml("data: !!python/object:os.system {a: b}\n")
        }),
        input("YAML with 100,000 comments", &[201], || {
            yaml(&"# x\n".repeat(scaled(100_000)))
        }),
        input("YAML with 20,000 quoted brackets", &[201, 400], || {
            yaml(&format!("data: {{a: '{}'}}\n", "[{".repeat(scaled(10_000))))
        }),
        input("YAML of 200,000 question marks", &[201, 400], || {
            post(CONFIG_MAPS, YAML, "? ".repeat(scaled(200_000)))
        }),
        input("YAML of 200,000 dashes", &[400], || {
            post(CONFIG_MAPS, YAML, "- ".repeat(scaled(200_000)))
        }),
    ]
}

/// A ConfigMap with this value, as it is.
fn around(value: &[u8]) -> Request {
    let body = config_map("odd", "", "\"data\":{\"a\":@}");
    let (before, after) = body.split_once('@').unwrap_or_default();
    create_as(
        CONFIG_MAPS,
        "odd",
        JSON,
        [before.as_bytes(), value, after.as_bytes()].concat(),
    )
}

/// A ConfigMap with more lines.
fn yaml(rest: &str) -> Request {
    let body = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: odd}}\n{rest}");
    create_as(CONFIG_MAPS, "odd", YAML, body)
}
