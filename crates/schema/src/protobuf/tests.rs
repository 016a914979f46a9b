use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Bodies of Go clients, as recorded, and the JSON that the same client would have sent.
#[track_caller]
fn check(base64: &str, want: Value) {
    let body = STANDARD.decode(base64).expect("base64");
    let decoded = decode(&body).expect("a body of a Go client");
    assert_eq!(decoded.value, want);
    // Back to the very same bytes, of which Go's clients leave the structs out that they have not set.
    assert_eq!(encode(&want).expect("a built-in kind"), body, "{want}");
    assert_eq!(
        (&json!(decoded.api_version), &json!(decoded.kind)),
        (&want["apiVersion"], &want["kind"])
    );
}

#[test]
fn recorded_config_map() {
    check(
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEkQKMAoBYRIAGgAiACoAMgA4AEIAWgYKAWwSATFiBgoBbhIBeHINZXhhbXBsZS5vcmcvZhIGCgFrEgF2GggKAWISAwABAhoAIgA=",
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"l": "1"}, "annotations": {"n": "x"}, "finalizers": ["example.org/f"]},
            "data": {"k": "v"}, "binaryData": {"b": "AAEC"}}),
    );
}

#[test]
fn recorded_deployment() {
    check(
        "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50Eo4CChEKAWQSABoAIgAqADIAOABCABLqAQgCEgoKCAoDYXBwEgFhGq8BChoKABIAGgAiACoAMgA4AEIAWggKA2FwcBIBYRKQARJyCgFjEgNpbWcqADIKCgAQABhQIgAqADoGCgFBEgExQiASDQoDY3B1EgYKBDEwMG0SDwoGbWVtb3J5EgUKAzFHaVIgChQSEgoBLxIJCAEQABoDd2ViGgAiABAAGAAgACgAMABqAHIAgAEAiAEAkAEAogEAGgAyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBACIkCg1Sb2xsaW5nVXBkYXRlEhMKBggAEAAaABIJCAEQABoDMjUlKAA4ABoMCAAQABgAIAAoADgAGgAiAA==",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{
                    "name": "c", "image": "img", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                    "livenessProbe": {"httpGet": {"path": "/", "port": "web"}}}]}}}}),
    );
}

#[test]
fn recorded_scale_and_delete_options() {
    check(
        "azhzAAoXCg5hdXRvc2NhbGluZy92MRIFU2NhbGUSHQoRCgFkEgAaACIAKgAyADgAQgASAggFGgQIABIAGgAiAA==",
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 5}, "status": {}}),
    );
    check(
        "azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxIIIgZPcnBoYW4aACIA",
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}),
    );
}

#[test]
fn recorded_reviews() {
    check(
        "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSNwoQCgASABoAIgAqADIAOABCABIZChcKAXgSBGxpc3QaACIAKgRwb2RzMgA6ABoICAASABoAIAAaACIA",
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "status": {},
            "spec": {"resourceAttributes": {"namespace": "x", "verb": "list", "resource": "pods"}}}),
    );
    check(
        "azhzAAotChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESEVNlbGZTdWJqZWN0UmV2aWV3EhoKEAoAEgAaACIAKgAyADgAQgASBgoECgASABoAIgA=",
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}, "status": {"userInfo": {}}}),
    );
    check(
        "azhzAAooChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESDFRva2VuUmVxdWVzdBIgChAKABIAGgAiACoAMgA4AEIAEgYKAXgghAcaBAoAEgAaACIA",
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "status": {},
            "spec": {"audiences": ["x"], "expirationSeconds": 900}}),
    );
}

#[test]
fn recorded_times() {
    check(
        "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRImChEKAWwSABoAIgAqADIAOABCABIRCgJtZRAPIgkIpevcygYQ8C4aACIA",
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"}}),
    );
    check(
        "azhzAAoLCgJ2MRIFRXZlbnQSWgoRCgFlEgAaACIAKgAyADgAQgASEgoDUG9kEgAaAXAiACoAMgA6ABoBUiIBbSoFCgFjEgAyCAil69zKBhAAOggIpevcygYQAEABSgZOb3JtYWxSAGIAcgB6ABoAIgA=",
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"},
            "reason": "R", "message": "m", "source": {"component": "c"}, "count": 1, "type": "Normal",
            "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z"}),
    );
}

#[test]
fn recorded_definition() {
    check(
        "azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uEvkBCh8KD2JhZC5leGFtcGxlLm9yZxIAGgAiACoAMgA4AEIAEscBCgtleGFtcGxlLm9yZxoSCgVvdGhlchIAIgVPdGhlcioAIgpOYW1lc3BhY2VkOpUBCgJ2MRABGAEiiAEKhQEKABIAIgAqBm9iamVjdDIAOgBQAGAAegCQAQDqATgKAWESMwoAEgAiACoHaW50ZWdlcjIAOgBCAwoBNUkAAAAAAAAIQFAAYAB6AJABAKgCALgCAMACAOoBIwoBYhIeCgASACIAKgAyADoAUABgAHoAkAEAqAIAuAIAwAIBqAIAuAIAwAIAOABQABoMEggKABIAIgAqACAAGgAiAA==",
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "bad.example.org"},
            "status": {"acceptedNames": {}},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "other", "kind": "Other"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "a": {"type": "integer", "default": 5, "maximum": 3},
                    "b": {"x-kubernetes-int-or-string": true}}}}}]}}),
    );
}

/// A message by hand.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn number(&mut self, mut number: usize) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn varint(mut self, tag: usize, number: usize) -> Self {
        self.number(tag << 3);
        self.number(number);
        self
    }

    fn part(mut self, tag: usize, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.number(tag << 3 | 2);
        self.number(bytes.len());
        self.0.extend(bytes);
        self
    }

    fn body(self, api_version: &str, kind: &str) -> Vec<u8> {
        let type_meta = Bytes::default().part(1, api_version).part(2, kind);
        let envelope = Bytes::default().part(1, type_meta).part(2, self);
        [PREFIX.as_slice(), &envelope.0].concat()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn message() -> Bytes {
    Bytes::default()
}

#[track_caller]
fn check_fields(api_version: &str, kind: &str, bytes: Bytes, want: Value) {
    let mut value = decode(&bytes.body(api_version, kind)).expect("well-formed").value;
    let fields = value.as_object_mut().expect("an object");
    fields.remove("apiVersion");
    fields.remove("kind");
    assert_eq!(value, want);
}

#[test]
fn zeros_behind_pointers_are_values() {
    let spec = message().varint(1, 0).varint(5, 0).varint(6, 0);
    check_fields(
        "apps/v1",
        "Deployment",
        message().part(2, spec),
        json!({"spec": {"replicas": 0, "revisionHistoryLimit": 0}}),
    );
    let spec = message().part(1, "").varint(5, 0);
    check_fields(
        "coordination.k8s.io/v1",
        "Lease",
        message().part(2, spec),
        json!({"spec": {"holderIdentity": "", "leaseTransitions": 0}}),
    );
    // The last one counts.
    let spec = message().varint(5, 7).varint(5, 0).varint(1, 1).varint(1, 2);
    check_fields(
        "apps/v1",
        "Deployment",
        message().part(2, spec),
        json!({"spec": {"replicas": 2}}),
    );
}

#[test]
fn shapes() {
    // Inlined messages: a probe's handler, a volume's source.
    let probe = message().part(1, message().part(1, message().part(1, "sh").part(1, "")));
    let volume = message().part(1, "v").part(2, message().part(2, ""));
    let pod = message()
        .part(1, volume)
        .part(2, message().part(1, "c").part(10, probe));
    check_fields(
        "v1",
        "Pod",
        message().part(2, pod),
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "c", "livenessProbe": {"exec": {"command": ["sh", ""]}}}]}}),
    );
    // Entries of a map without key, without value, twice.
    let entries = message()
        .part(2, message().part(2, "x"))
        .part(2, message().part(1, "b"))
        .part(3, message().part(1, "c"));
    let entries = entries
        .part(2, message().part(1, "a").part(2, "1"))
        .part(2, message().part(1, "a").part(2, "2"));
    check_fields(
        "v1",
        "ConfigMap",
        entries,
        json!({"data": {"": "x", "a": "2", "b": ""}, "binaryData": {"c": ""}}),
    );
    // A message in two parts is merged.
    let parts = message()
        .part(1, message().part(1, "n"))
        .part(1, message().part(3, "ns").part(1, "m"));
    check_fields(
        "v1",
        "ConfigMap",
        parts,
        json!({"metadata": {"name": "m", "namespace": "ns"}}),
    );
    // Lists in a map.
    let extra = message().part(1, "scopes").part(2, message().part(1, "a").part(1, "b"));
    let user = message()
        .part(1, "u")
        .part(4, extra)
        .part(4, message().part(1, "empty"));
    check_fields(
        "authentication.k8s.io/v1",
        "SelfSubjectReview",
        message().part(2, message().part(1, user)),
        json!({"status": {"userInfo": {"username": "u", "extra": {"scopes": ["a", "b"], "empty": []}}}}),
    );
    // Numbers one by one and packed.
    let context = message().varint(4, 1).part(4, [2, 0x83, 1]);
    check_fields(
        "v1",
        "Pod",
        message().part(2, message().part(14, context)),
        json!({"spec": {"securityContext": {"supplementalGroups": [1, 2, 131]}}}),
    );
    // Quantities, JSON text, unknown tags.
    let quota = message()
        .part(1, message().part(1, "pods").part(2, message().part(1, "2000m")))
        .part(15, "who");
    check_fields(
        "v1",
        "ResourceQuota",
        message().part(2, quota),
        json!({"spec": {"hard": {"pods": "2"}}}),
    );
    let entry = message().part(1, "m").part(7, message().part(1, r#"{"f:data":{}}"#));
    check_fields(
        "v1",
        "ConfigMap",
        message().part(1, message().part(17, entry)),
        json!({"metadata": {"managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}]}}),
    );
    // Strings that are none are mended as Go's JSON does.
    check_fields(
        "v1",
        "Secret",
        message().part(3, [b'a', 0xff]),
        json!({"type": "a\u{fffd}"}),
    );
}

#[test]
fn negative_numbers_have_ten_bytes() {
    let mut spec = message();
    spec.0
        .extend([1 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    check_fields(
        "apps/v1",
        "Deployment",
        message().part(2, spec),
        json!({"spec": {"replicas": -1}}),
    );
}

/// Go decodes an object to the same value from JSON and from protobuf.
#[test]
fn normal_forms_agree() {
    let body = "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EpQBChEKAWQSABoAIgAqADIAOABCABJxCAMSCgoICgNhcHASAWEaWQoaCgASABoAIgAqADIAOABCAFoICgNhcHASAWESOxIdCgFjEgRpbWcyKgBCAGoAcgCAAQCIAQCQAQCiAQAaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAIgIKACgAOAAaDAgAEAAYACAAKAA4ABoAIgA=";
    let mut value = decode(&STANDARD.decode(body).expect("base64"))
        .expect("well-formed")
        .value;
    let mut json = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "img2"}]}}}});
    let schema = crate::schema::catalog::for_kind("apps", "v1", "Deployment").expect("built in");
    crate::structural::type_check(&value, &schema, "Deployment").expect("of the right types");
    crate::structural::go_normalize(&mut value, &schema);
    crate::structural::go_normalize(&mut json, &schema);
    assert_eq!(value, json);
}

#[test]
fn errors() {
    let check = |body: &[u8], want: &str| {
        let error = decode(body).map(|decoded| decoded.value).expect_err(want);
        assert_eq!(error.to_string(), want, "{body:02x?}");
    };
    check(b"", "empty data");
    check(b"k8s\0", "empty body");
    check(
        b"\x0a\x02v1",
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
    );
    check(
        b"k8s",
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
    );
    check(b"k8s\0\x0a\x7f", "unexpected EOF");
    check(
        b"k8s\0\x0a\x04\x0a\x02v1",
        r#"Object 'Kind' is missing in 'runtime.TypeMeta{APIVersion:"v1", Kind:""}'"#,
    );
    check(b"k8s\0\x08\x01", "proto: wrong wireType = 0 for field TypeMeta");
    check(
        &message().body("v1", "Widget"),
        r#"no kind "Widget" is registered for version "v1""#,
    );
    check(
        &message().varint(1, 0).body("v1", "Pod"),
        "proto: wrong wireType = 0 for field ObjectMeta",
    );
    check(
        &message().part(1, [0x0c]).body("v1", "Pod"),
        "proto: ObjectMeta: wiretype end group for non-group",
    );
    let quantity = message().part(
        2,
        message().part(1, message().part(1, "pods").part(2, message().part(1, "x"))),
    );
    check(
        &quantity.body("v1", "ResourceQuota"),
        &"x".parse::<crate::quantity::Quantity>()
            .expect_err("no quantity")
            .to_string(),
    );
}

#[test]
fn limits() {
    let nested = |depth: usize| {
        // not: { not: { … } }
        let schema = (0..depth).fold(message(), |inner, _| message().part(28, inner));
        let version = message().part(4, message().part(1, schema));
        message()
            .part(2, message().part(7, version))
            .body("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    };
    assert!(decode(&nested(MAX_DEPTH - 4)).is_ok());
    assert_eq!(decode(&nested(MAX_DEPTH - 3)), Err(ProtobufError::TooDeep));
    assert_eq!(decode(&nested(3_000)), Err(ProtobufError::TooDeep));
    let many = |number: usize| Bytes([0x72, 0].repeat(number));
    assert!(decode(&message().part(1, many(MAX_VALUES - 1)).body("v1", "ConfigMap")).is_ok());
    assert_eq!(
        decode(&message().part(1, many(MAX_VALUES)).body("v1", "ConfigMap")),
        Err(ProtobufError::TooManyValues)
    );
}

/// A random value of one field's type: any that a client may put there.
fn any_value(message: &'static table::Message, depth: u32) -> BoxedStrategy<Value> {
    use special::Special;
    use table::{Shape, Type};

    if message.whole().is_some() {
        return proptest::collection::vec("[a-z]{1,3}", 0..3)
            .prop_map(|texts| json!(texts))
            .boxed();
    }
    let mut fields: Vec<BoxedStrategy<Vec<(String, Value)>>> = Vec::new();
    for field in message.fields() {
        if let (true, Type::Message(inner)) = (field.is_inline(), field.type_) {
            let pairs = any_value(inner, depth).prop_map(|value| match value {
                Value::Object(fields) => fields.into_iter().collect(),
                _ => Vec::new(),
            });
            fields.push(pairs.boxed());
            continue;
        }
        // A field that Go always writes comes back as its zero, so it is always there; an endless type is cut off
        // behind a pointer or a list.
        let has_zero = matches!(
            field.type_,
            Type::Message(_) | Type::Special(Special::Quantity | Special::IntOrString | Special::Duration)
        );
        let always = has_zero && field.shape == Shape::One && !field.pointer;
        if depth == 0 && !always && matches!(field.type_, Type::Message(_) | Type::Special(_)) {
            continue;
        }
        let value = match field.type_ {
            Type::String => "[a-zé]{1,4}".prop_map(Value::String).boxed(),
            Type::Bool => Just(json!(true)).boxed(),
            Type::Int32 => (1_i32..=i32::MAX).prop_map(|number| json!(number)).boxed(),
            Type::Int64 => any::<i64>()
                .prop_filter("no zero", |number| *number != 0)
                .prop_map(|number| json!(number))
                .boxed(),
            Type::Double => (1_i32..1000).prop_map(|number| json!(f64::from(number) + 0.5)).boxed(),
            Type::Bytes => proptest::collection::vec(any::<u8>(), 1..4)
                .prop_map(|bytes| json!(STANDARD.encode(bytes)))
                .boxed(),
            Type::Special(special) => any_special(special),
            Type::Message(inner) => any_value(inner, depth.saturating_sub(1)),
        };
        let name = field.json.to_owned();
        let value = match field.shape {
            Shape::One => value,
            Shape::List => proptest::collection::vec(value, 1..3).prop_map(Value::Array).boxed(),
            Shape::Map => proptest::collection::btree_map("[a-z]{0,2}", value, 1..3)
                .prop_map(|map| json!(map))
                .boxed(),
        };
        let value = if always {
            value.prop_map(Some).boxed()
        } else {
            proptest::option::weighted(0.4, value).boxed()
        };
        let pairs = value.prop_map(move |value| value.map(|value| (name.clone(), value)).into_iter().collect());
        fields.push(pairs.boxed());
    }
    fields
        .prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()))
        .boxed()
}

fn any_special(special: special::Special) -> BoxedStrategy<Value> {
    use special::Special;

    let seconds = 1_000_000_000_i64..2_000_000_000;
    match special {
        Special::Time => seconds
            .prop_map(|at| json!(jiff::Timestamp::from_second(at).expect("in range").to_string()))
            .boxed(),
        Special::MicroTime => (seconds, 0_i64..1_000_000)
            .prop_map(|(at, micros)| {
                let time = jiff::Timestamp::from_microsecond(at * 1_000_000 + micros).expect("in range");
                json!(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
            })
            .boxed(),
        Special::Duration => prop_oneof![Just(json!("1h0m0s")), Just(json!("1.5s"))].boxed(),
        Special::Quantity => prop_oneof![Just(json!("100m")), Just(json!("2Gi")), Just(json!("7"))].boxed(),
        Special::IntOrString => prop_oneof![any::<i32>().prop_map(|number| json!(number)), Just(json!("25%"))].boxed(),
        Special::Json => prop_oneof![Just(json!({"a": [1, "b"]})), Just(json!("text")), Just(json!(5))].boxed(),
        Special::SchemaOrArray => {
            prop_oneof![Just(json!({"type": "string"})), Just(json!([{}, {"type": "object"}]))].boxed()
        }
        Special::SchemaOrBool => {
            prop_oneof![Just(json!(false)), Just(json!(true)), Just(json!({"type": "string"}))].boxed()
        }
        Special::SchemaOrStrings => prop_oneof![Just(json!({"type": "string"})), Just(json!(["a", "b"]))].boxed(),
    }
}

/// Every kind there is, with its version.
fn kinds() -> Vec<(&'static str, &'static str)> {
    let all = include_str!("../../data/kubernetes.kinds").lines();
    let kinds = all.filter_map(|line| line.split('\t').next()?.trim_start_matches('/').rsplit_once('/'));
    kinds
        .filter(|(api_version, kind)| table::kind(api_version, kind).is_some())
        .collect()
}

#[test]
fn what_is_written_is_read_again() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let kinds = kinds();
    assert!(kinds.len() > 100, "{} kinds", kinds.len());
    for (api_version, kind) in kinds {
        let message = table::kind(api_version, kind).expect("filtered");
        let values = any_value(message, 3);
        for _ in 0..4 {
            let mut value = proptest::strategy::Strategy::new_tree(&values, &mut runner)
                .expect("no filter is that rare")
                .current();
            value["apiVersion"] = json!(api_version);
            value["kind"] = json!(kind);
            let body = encode(&value).unwrap_or_else(|error| panic!("{api_version} {kind}: {error}: {value}"));
            assert_eq!(encoded_length(api_version, kind, &value), Ok(body.len()), "{value}");
            assert_eq!(decode(&body).expect("well-formed").value, value);
        }
    }
}

#[test]
fn recorded_answers() {
    // As a Go server sends them: an empty list, an event of a watch.
    let list = encode_list(
        "v1",
        "ConfigMapList",
        &json!({"resourceVersion": "263"}),
        [Value::Null; 0],
        |item| item,
    )
    .expect("a built-in kind");
    assert_eq!(
        list,
        b"k8s\0\n\x13\n\x02v1\x12\rConfigMapList\x12\x0b\n\t\n\0\x12\x03263\x1a\0\x1a\0\"\0"
    );
    assert_eq!(
        encode_event("ADDED", b"k8s\0"),
        b"\0\0\0\x0f\n\x05ADDED\x12\x06\n\x04k8s\0"
    );
    let api = json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "h:1"}]});
    assert_eq!(
        encode(&api).expect("a document of discovery"),
        b"k8s\0\n\x0f\n\0\x12\x0bAPIVersions\x12\x16\n\x02v1\x12\x10\n\t0.0.0.0/0\x12\x03h:1\x1a\0\"\0"
    );
}

/// A client that reads protobuf gets any date that an object holds.
#[test]
fn times_go_to_the_ends_of_the_calendar() {
    let check = |given: &str, there_and_back: &str| {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
            "spec": {"renewTime": given}});
        let bytes = encode(&lease).expect(given);
        assert_eq!(decode(&bytes).expect(given).value["spec"]["renewTime"], there_and_back);
    };
    check("2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:05.000006Z");
    check("1969-12-31T23:59:59.250000Z", "1969-12-31T23:59:59.250000Z");
    check("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z");
    check("0000-01-01T00:00:00.000000Z", "0000-01-01T00:00:00.000000Z");
    check("9999-12-31T23:59:59.999999+23:59", "9999-12-31T00:00:59.999999Z");
}

/// As deep as anything is stored.
#[test]
fn what_is_stored_can_be_written_however_deep() {
    let schema = (0..crate::decode::MAX_DEPTH - 10).fold(json!({"type": "string"}), |inner, _| json!({"not": inner}));
    let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    assert!(encode(&object).is_ok());
}

#[test]
fn what_has_no_protobuf_form() {
    let check = |object: Value, want: &str| {
        let error = encode(&object).expect_err(want);
        assert_eq!(error.to_string(), want, "{object}");
    };
    check(
        json!({"apiVersion": "example.org/v1", "kind": "Foo"}),
        "object Foo of \"example.org/v1\" has no protobuf form",
    );
    check(
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 5}}),
        "field containers cannot be written as protobuf: 5",
    );
    check(
        json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "%"}}),
        "field data cannot be written as protobuf: \"%\"",
    );
}

proptest! {
    #[test]
    fn garbage_is_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let kinds = [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("v1", "Status"), ("v1", "Event")];
        for (api_version, kind) in kinds {
            let _ = decode(&Bytes(bytes.clone()).body(api_version, kind));
        }
    }

    /// A body with one byte changed gets further than garbage does.
    #[test]
    fn damage_is_no_panic(place in 0_usize..330, byte in any::<u8>()) {
        let base64 = "azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uEvkBCh8KD2JhZC5leGFtcGxlLm9yZxIAGgAiACoAMgA4AEIAEscBCgtleGFtcGxlLm9yZxoSCgVvdGhlchIAIgVPdGhlcioAIgpOYW1lc3BhY2VkOpUBCgJ2MRABGAEiiAEKhQEKABIAIgAqBm9iamVjdDIAOgBQAGAAegCQAQDqATgKAWESMwoAEgAiACoHaW50ZWdlcjIAOgBCAwoBNUkAAAAAAAAIQFAAYAB6AJABAKgCALgCAMACAOoBIwoBYhIeCgASACIAKgAyADoAUABgAHoAkAEAqAIAuAIAwAIBqAIAuAIAwAIAOABQABoMEggKABIAIgAqACAAGgAiAA==";
        let mut body = STANDARD.decode(base64).expect("base64");
        let length = body.len();
        body[place % length] = byte;
        let _ = decode(&body);
        let _ = decode(&body[..place % length]);
    }
}
