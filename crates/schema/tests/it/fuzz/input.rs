//! Meaningful input out of arbitrary bytes: words of a language in any order, values of some depth.

use serde_json::{Map, Value, json};

/// Words of the languages that are read.
pub(crate) const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"b\"",
    "\"\\u0041\"",
    "\"\\ud83d\"",
    "1",
    "-1",
    "1.5",
    "1e9",
    "01",
    "1e999",
    "true",
    "false",
    "null",
    " ",
    "\n",
    "\"",
    "\\",
    "nul",
    "-",
    ".",
];
pub(crate) const YAML: &[&str] = &[
    "a: ",
    "b: ",
    "- ",
    "\n",
    "  ",
    "    ",
    "1",
    "yes",
    "~",
    "null",
    "\"x\"",
    "'y'",
    "|\n",
    ">-\n",
    "&a ",
    "*a",
    "<<: ",
    "{",
    "}",
    "[",
    "]",
    ",",
    ": ",
    "? ",
    "# c",
    "---\n",
    "...\n",
    "!!str ",
    "!t ",
    "0x1f",
    "0o7",
    "1_000",
    ".inf",
    "2001-01-01",
    "%YAML 1.2\n",
    "\t",
];
pub(crate) const QUANTITY: &[&str] = &[
    "1",
    "0",
    "9",
    ".",
    "-",
    "+",
    "e",
    "E",
    "3",
    "m",
    "u",
    "n",
    "k",
    "M",
    "G",
    "Ki",
    "Mi",
    "Ei",
    "E",
    "99999999999999999999",
    "00",
    " ",
];
pub(crate) const SELECTOR: &[&str] = &[
    "a",
    "x/y",
    "=",
    "==",
    "!=",
    "!",
    ",",
    " in ",
    " notin ",
    "(",
    ")",
    "b",
    "1",
    ">",
    "<",
    " ",
    "-",
    "metadata.name",
    "\\",
    "exists",
];
pub(crate) const JSONPATH: &[&str] = &[
    ".", "..", "a", "b", "[", "]", "*", "0", "-1", ":", "1", "2", ",", "?(", "@", ")", "==", "!=", "<", "'a'", "\"b\"",
    "{", "}", "$", "\\.", "range", "end", " ",
];
pub(crate) const CEL: &[&str] = &[
    "self",
    ".",
    "a",
    "b",
    "n",
    "s",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    " ",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "<=",
    "&&",
    "||",
    "!",
    " in ",
    "1",
    "0",
    "-1",
    "1u",
    "1.5",
    "9223372036854775807",
    "\"x\"",
    "'y'",
    "r'\\d'",
    "b'z'",
    "true",
    "false",
    "null",
    ".all(x, ",
    ".exists(x, ",
    ".map(x, ",
    ".filter(x, ",
    "x",
    "has(",
    "size(",
    "int(",
    "string(",
    "duration(\"1h\")",
    "timestamp(\"2026-01-01T00:00:00Z\")",
    ".matches(",
    ".contains(",
    ".startsWith(",
    ".split(",
    ".join(",
    ".replace(",
    ".substring(",
    ".format(",
    "quantity(",
    ".isSorted()",
    ".sum()",
    ".find(",
    ".findAll(",
    "url(",
    "ip(",
    "cidr(",
    ".?",
    "[?",
    ".orValue(",
    "optional.of(",
    "\"[a-\"",
    "dyn(",
    "type(",
    ".charAt(",
    ".reverse()",
    ".lowerAscii()",
    "sets.contains(",
    ".indexOf(",
    "cel.bind(y, ",
];

/// A source of decisions; when the bytes are used up, every decision is the first one.
pub(crate) struct Input<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes: bytes.iter() }
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// Words in a row.
    pub(crate) fn text(&mut self, words: &[&str]) -> String {
        let count = self.below(48);
        (0..count).map(|_| words[self.below(words.len())]).collect()
    }

    fn key(&mut self) -> String {
        const KEYS: [&str; 24] = [
            "a",
            "b",
            "name",
            "spec",
            "metadata",
            "labels",
            "containers",
            "ports",
            "containerPort",
            "protocol",
            "env",
            "value",
            "template",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "finalizers",
            "strategy",
            "type",
            "rollingUpdate",
            "selector",
            "matchLabels",
            "",
        ];
        KEYS[self.below(KEYS.len())].to_owned()
    }

    fn scalar(&mut self) -> Value {
        match self.below(12) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(i64::from(self.byte()) - 100),
            3 => json!(f64::from(self.byte()) / 7.0),
            4 => json!(i64::MAX),
            5 => json!("delete"),
            6 => json!("replace"),
            7 => json!(""),
            8 => json!("100m"),
            9 => json!("2026-01-01T00:00:00Z"),
            10 => json!(u64::MAX),
            _ => json!(self.key()),
        }
    }

    /// Any value.
    pub(crate) fn value(&mut self, depth: usize) -> Value {
        match self.below(6) {
            0 | 1 if depth > 0 => self.object(depth),
            2 if depth > 0 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => self.scalar(),
        }
    }

    /// An object.
    pub(crate) fn object(&mut self, depth: usize) -> Value {
        let mut map = Map::new();
        for _ in 0..self.below(5) {
            let key = self.key();
            let value = if depth == 0 {
                self.scalar()
            } else {
                self.value(depth - 1)
            };
            map.insert(key, value);
        }
        Value::Object(map)
    }

    /// Something near a Deployment.
    pub(crate) fn deployment(&mut self) -> Value {
        let containers: Value = (0..self.below(4))
            .map(|_| {
                let mut container = self.object(2);
                container["name"] = json!(["one", "two", "three"][self.below(3)]);
                container
            })
            .collect();
        let mut pod = self.object(2);
        pod["containers"] = containers;
        json!({"metadata": self.object(2), "spec": {"template": {"spec": pod}, "strategy": self.object(2), "replicas": self.scalar()}})
    }

    /// A list of JSON patch operations, most of them well formed.
    pub(crate) fn operations(&mut self) -> Value {
        const OPS: [&str; 7] = ["add", "remove", "replace", "move", "copy", "test", "sing"];
        (0..self.below(6))
            .map(|_| {
                let op = OPS[self.below(OPS.len())];
                let (path, from) = (self.pointer(), self.pointer());
                let mut operation = json!({"op": op, "path": path, "from": from});
                if self.below(4) > 0 {
                    operation["value"] = self.value(2);
                }
                operation
            })
            .collect()
    }

    fn pointer(&mut self) -> String {
        const STEPS: [&str; 9] = ["a", "b", "spec", "0", "1", "-", "-1", "~1", "99999999999999999999"];
        (0..self.below(4))
            .map(|_| format!("/{}", STEPS[self.below(STEPS.len())]))
            .collect()
    }

    /// Something near `fieldsV1`.
    pub(crate) fn fields(&mut self, depth: usize) -> Value {
        const STEPS: [&str; 9] = [
            ".",
            "f:a",
            "f:spec",
            "k:{\"name\":\"x\"}",
            "k:{\"port\":1,\"protocol\":\"TCP\"}",
            "v:\"x\"",
            "v:1",
            "i:0",
            "k:{",
        ];
        let mut map = Map::new();
        if depth > 0 {
            for _ in 0..self.below(4) {
                let step = STEPS[self.below(STEPS.len())];
                let below = if step == "." { json!({}) } else { self.fields(depth - 1) };
                map.insert(step.to_owned(), below);
            }
        }
        Value::Object(map)
    }

    /// Something near an `openAPIV3Schema`.
    pub(crate) fn schema(&mut self, depth: usize) -> Value {
        const TYPES: [&str; 8] = [
            "object", "object", "array", "string", "integer", "number", "boolean", "thing",
        ];
        let mut schema = json!({"type": TYPES[self.below(TYPES.len())]});
        for _ in 0..self.below(5) {
            let (word, value) = match self.below(16) {
                0 if depth > 0 => (
                    "properties",
                    json!({"a": self.schema(depth - 1), "b": self.schema(depth - 1)}),
                ),
                1 if depth > 0 => ("items", self.schema(depth - 1)),
                2 if depth > 0 => ("additionalProperties", self.schema(depth - 1)),
                3 => ("default", self.value(3)),
                4 => ("enum", json!([self.value(1), self.value(1)])),
                5 => ("pattern", json!(["^a+$", "[", "(?=a)", "\\d{2,1}"][self.below(4)])),
                6 => ("maxLength", self.scalar()),
                7 => ("minimum", self.scalar()),
                8 => ("nullable", json!(true)),
                9 => ("x-kubernetes-preserve-unknown-fields", json!(true)),
                10 => ("x-kubernetes-int-or-string", json!(true)),
                11 => (
                    "x-kubernetes-list-type",
                    json!(["map", "set", "atomic", "x"][self.below(4)]),
                ),
                12 => ("x-kubernetes-list-map-keys", json!(["a", "b"])),
                13 => (
                    "format",
                    json!(["date-time", "byte", "int32", "uuid", "ipv4", "x"][self.below(6)]),
                ),
                14 if depth > 0 => ("anyOf", json!([self.schema(depth - 1), self.schema(0)])),
                _ => ("required", json!(["a"])),
            };
            schema[word] = value;
        }
        schema
    }

    /// The envelope of a built-in kind with fields that may be theirs.
    pub(crate) fn protobuf(&mut self) -> Vec<u8> {
        const KINDS: [(&str, &str); 6] = [
            ("v1", "Pod"),
            ("v1", "ConfigMap"),
            ("apps/v1", "Deployment"),
            ("v1", "Service"),
            ("v1", "Nonsense"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ];
        let (version, kind) = KINDS[self.below(KINDS.len())];
        let mut type_meta = Vec::new();
        field(&mut type_meta, 1, version.as_bytes());
        field(&mut type_meta, 2, kind.as_bytes());
        let raw = self.message(5);
        let mut out = b"k8s\0".to_vec();
        field(&mut out, 1, &type_meta);
        field(&mut out, 2, &raw);
        out
    }

    fn message(&mut self, depth: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..self.below(6) {
            let number = u8::try_from(self.below(20)).unwrap_or(0);
            match self.below(5) {
                0 => out.extend([number << 3, self.byte()]),
                1 | 2 if depth > 0 => {
                    let inner = self.message(depth - 1);
                    field(&mut out, number, &inner);
                }
                3 => field(&mut out, number, b"text"),
                _ => out.push(self.byte()),
            }
        }
        out
    }
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    let mut length = bytes.len();
    while length > 127 {
        out.push(u8::try_from(length & 127).unwrap_or(0) | 128);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0));
    out.extend_from_slice(bytes);
}
