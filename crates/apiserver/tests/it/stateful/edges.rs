//! Values at the bounds: those of the right type (`change`), and those of any, as JSON texts (`value`); texts that are
//! not JSON are among them.

use serde_json::{Value, json};

use super::random::Random;

/// The largest sizes of generated values; a debug build has less time.
const WIDE: usize = if cfg!(debug_assertions) { 4_000 } else { 100_000 };
const LONG: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
const DEEP: usize = 10_000;

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-0.0",
    "1",
    "-1",
    "3.5",
    "1e308",
    "-1e308",
    "1e999",
    "5e-324",
    "1e-999",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "1000000000000",
    "1.0",
    "1e3",
    "01",
    "+1",
    "NaN",
    "0x10",
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "A B",
    "..",
    ".",
    "/",
    "a/b",
    "a.b/c",
    "~1~0",
    "%2e%2e",
    "$patch",
    "null",
    "true",
    "1",
    "\\u0000",
    "\\ud800",
    "\\udfff\\ud800",
    "\\ufeff",
    "\\u202e",
    "\u{1f600}",
    "a\\nb",
    "<script>",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "1990-12-31T23:59:60Z",
    "9999-12-31T23:59:59.999999999-23:59",
    "0000-01-01T00:00:00+23:59",
    "2026-01-01T00:00:00.123456Z",
    "9223372036854775807h",
    "-1s",
    "1e999999999",
    "1e-999999999",
    "-1",
    "0",
    "1Ei",
    "9223372036854775807Ei",
    "1.0000000000000000000000001",
    "10m",
    "0x1",
    "200%",
    "-1%",
    "99999999999%",
    "255.255.255.255",
    "::1",
    "::ffff:1.2.3.4",
    "10.0.0.1/33",
    "* * * * *",
    "*/0 * * * *",
    "0 0 31 2 *",
    "@every 9223372036854775807s",
    "TZ=UTC * * * * *",
    "Europe/Berlin",
    "((a{1000}){1000}){1000}",
    "^(a+)+$",
    "[",
    "{.spec.a[*]}",
    "{range .items[*]}",
    ".spec..a",
    "default",
    "kube-system",
    "v1",
    "apps/v1",
    "18446744073709551615",
];

/// A scalar.
pub(crate) fn scalar(random: &mut Random) -> String {
    match random.below(8) {
        0 => "null".to_owned(),
        1 => random.pick(&["true", "false"]).to_owned(),
        2..=4 => random.pick(NUMBERS).to_owned(),
        _ => text(random),
    }
}

/// A string in JSON.
pub(crate) fn text(random: &mut Random) -> String {
    if random.once_in(40) {
        return format!(
            "\"{}\"",
            random.pick(&["x", "a,", "(", "1", "é"]).repeat(random.size(LONG))
        );
    }
    format!("\"{}\"", random.pick(TEXTS))
}

/// Words for keys: with those that are hard for JSON pointers, paths and maps.
fn key(random: &mut Random) -> String {
    match random.below(4) {
        0 => text(random),
        1 => random
            .pick(&[
                "\"metadata\"",
                "\"spec\"",
                "\"status\"",
                "\"name\"",
                "\"kind\"",
                "\"a\"",
            ])
            .to_owned(),
        _ => format!("\"k{}\"", random.below(5)),
    }
}

/// Any value.
pub(crate) fn value(random: &mut Random) -> String {
    match random.below(12) {
        0 => nested(random),
        1 => wide(random),
        2 => "{}".to_owned(),
        3 => "[]".to_owned(),
        4 => format!(
            "{{{}:{},{}:{}}}",
            key(random),
            scalar(random),
            key(random),
            scalar(random)
        ),
        5 => format!("[{},{}]", scalar(random), scalar(random)),
        _ => scalar(random),
    }
}

/// Something deep.
pub(crate) fn nested(random: &mut Random) -> String {
    let depth = random.size(DEEP);
    match random.below(3) {
        0 => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        1 => format!("{}{{}}{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
        // Schemas nest like this.
        _ => {
            let depth = depth / 3 + 1;
            format!(
                "{}{{\"type\":\"string\"}}{}",
                "{\"type\":\"object\",\"properties\":{\"a\":".repeat(depth),
                "}}".repeat(depth)
            )
        }
    }
}

/// Something wide.
pub(crate) fn wide(random: &mut Random) -> String {
    let width = random.size(WIDE);
    let item = scalar(random);
    if item.len() > 100 {
        return item;
    }
    match random.below(4) {
        0 => format!("[{}]", vec![item; width].join(",")),
        // The same key again and again.
        1 => format!("{{{}}}", vec![format!("\"a\":{item}"); width].join(",")),
        2 => {
            let fields: Vec<String> = (0..width).map(|index| format!("\"k{index}\":{item}")).collect();
            format!("{{{}}}", fields.join(","))
        }
        _ => {
            let items: Vec<String> = (0..width)
                .map(|index| format!("{{\"name\":\"n{index}\",\"key\":{item}}}"))
                .collect();
            format!("[{}]", items.join(","))
        }
    }
}

/// Changes one value somewhere below into another of its type, so that the object stays right, mostly.
pub(crate) fn change(random: &mut Random, value: &mut Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            if depth == 0
                && random.once_in(4)
                && let Some(metadata) = fields.get_mut("metadata").filter(|metadata| metadata.is_object())
            {
                return meta(random, metadata);
            }
            let fixed = |key: &str| depth == 0 && matches!(key, "apiVersion" | "kind" | "metadata");
            let keys: Vec<String> = fields.keys().filter(|key| !fixed(key)).cloned().collect();
            if !keys.is_empty()
                && let Some(inner) = fields.get_mut(&keys[random.below(keys.len())])
            {
                change(random, inner, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = random.below(items.len());
            match random.below(6) {
                0 => drop(items.remove(at)),
                1 => more(random, items, at),
                _ => change(random, &mut items[at], depth + 1),
            }
        }
        Value::Bool(yes) => *yes = !*yes,
        Value::Number(_) => *value = json!(random.pick(&[0, 1, 2, 7, 80, 100, 65_535, 3_600, i64::from(i32::MAX)])),
        Value::String(_) => *value = json!(word(random)),
        _ => {}
    }
}

/// Labels, annotations, finalizers and owners, which every object may have.
fn meta(random: &mut Random, metadata: &mut Value) {
    let size = random.size(if cfg!(debug_assertions) { 10_000 } else { 200_000 });
    let (key, value) = match random.below(7) {
        0 => ("labels", json!({"a": "b"})),
        1 => ("labels", json!({"a": "c", "b.c/d": "x".repeat(63)})),
        2 => ("annotations", json!({"large": "x".repeat(size)})),
        3 => ("finalizers", json!(["example.com/f", "foregroundDeletion"])),
        4 => ("finalizers", json!([])),
        5 => {
            let names = (0..random.size(200)).map(|index| (format!("k{index}"), json!("v")));
            ("labels", Value::Object(names.collect()))
        }
        _ => {
            let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": "u",
                "blockOwnerDeletion": true});
            ("ownerReferences", json!([owner]))
        }
    };
    metadata[key] = value;
}

/// Adds items like one that is there, each with a name of its own.
fn more(random: &mut Random, items: &mut Vec<Value>, at: usize) {
    let item = items[at].clone();
    for index in 0..random.size(if cfg!(debug_assertions) { 30 } else { 1_000 }) {
        let mut item = item.clone();
        if let Some(name) = item.get_mut("name") {
            *name = json!(format!("n{index}"));
        } else if item.is_string() {
            item = json!(format!("s{index}"));
        }
        items.push(item);
    }
}

/// A text that many fields take.
fn word(random: &mut Random) -> String {
    match random.below(12) {
        0 => "x".repeat(random.pick(&[63, 64, 253, 254])),
        1 => "50%".to_owned(),
        2 => "9223372036854775807".to_owned(),
        3 => "2026-01-01T00:00:00Z".to_owned(),
        4 => "1Gi".to_owned(),
        5 => "10.0.0.7".to_owned(),
        6 => String::new(),
        _ => random.pick(&["a", "b", "x-y", "http", "n.example.com"]).to_owned(),
    }
}
