//! The fields of a ClusterServiceVersion and their types, as Go's decoder reads them: what it cannot read, no tool of
//! OLM can.

use kubewright_schema::catalog;
use kubewright_schema::schema::SchemaRef;
use kubewright_schema::structural::type_check;
use serde_json::{Map, Value, json};

use super::values;

/// Built-in types within it.
const BUILT_IN: [(&str, &str); 7] = [
    ("metadata", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
    (
        "spec.install.spec.deployments.*.spec",
        "io.k8s.api.apps.v1.DeploymentSpec",
    ),
    (
        "spec.install.spec.permissions.*.rules.*",
        "io.k8s.api.rbac.v1.PolicyRule",
    ),
    (
        "spec.install.spec.clusterPermissions.*.rules.*",
        "io.k8s.api.rbac.v1.PolicyRule",
    ),
    (
        "spec.webhookdefinitions.*.rules.*",
        "io.k8s.api.admissionregistration.v1.RuleWithOperations",
    ),
    (
        "spec.webhookdefinitions.*.objectSelector",
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    ),
    ("spec.selector", "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"),
];

/// Whether all fields have their types. As Go's tools read YAML, a number where a text belongs becomes one.
///
/// # Errors
/// In the words of Go's decoder.
pub(super) fn check(csv: &mut Value) -> Result<(), String> {
    let fields = fields();
    texts(csv, &fields);
    let schema = SchemaRef::from_crd(&fields).map_err(|wrong| format!("{wrong:?}"))?;
    type_check(csv, &schema, "ClusterServiceVersion").map_err(|why| why.to_string())?;
    for (path, name) in BUILT_IN {
        let schema = catalog::definition(name).expect("a type that every version of Kubernetes has");
        let kind = name.rsplit('.').next().unwrap_or_default();
        for value in values(csv, path) {
            type_check(value, &schema, kind).map_err(|why| format!("{path}: {why}"))?;
        }
    }
    let version = &csv["spec"]["version"];
    if version.as_str().is_some_and(|text| tolerant(text).is_none()) {
        return Err(format!("spec.version {version} is no version: write 0.1.0"));
    }
    Ok(())
}

/// Turns numbers and truths where texts belong into texts.
fn texts(value: &mut Value, schema: &Value) {
    match value {
        Value::Number(_) | Value::Bool(_) if schema["type"] == "string" => *value = Value::from(value.to_string()),
        Value::Array(items) => items.iter_mut().for_each(|item| texts(item, &schema["items"])),
        Value::Object(map) => {
            for (key, value) in map {
                let field = &schema["properties"][key];
                texts(
                    value,
                    if field.is_null() {
                        &schema["additionalProperties"]
                    } else {
                        field
                    },
                );
            }
        }
        _ => {}
    }
}

/// A version as the tools of OLM read it: also with a `v`, and without its last numbers.
pub(super) fn tolerant(text: &str) -> Option<semver::Version> {
    let text = text.trim().trim_start_matches('v');
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<&str> = numbers
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            shorter => shorter,
        })
        .collect();
    while parts.len() < 3 {
        parts.push("0");
    }
    semver::Version::parse(&format!("{}{rest}", parts.join("."))).ok()
}

/// The fields, by their types.
fn fields() -> Value {
    let string = || json!({"type": "string"});
    let strings = || list(string());
    let map = || json!({"type": "object", "additionalProperties": {"type": "string"}});
    let any = || json!({"x-kubernetes-preserve-unknown-fields": true});
    let bool = || json!({"type": "boolean"});
    let port = || json!({"type": "integer", "format": "int32"});
    let named = |names: &[&str]| {
        names
            .iter()
            .map(|name| ((*name).to_owned(), string()))
            .collect::<Map<_, _>>()
    };
    let texts = |names: &[&str]| object(named(names), []);
    let permissions = || list(object(named(&["serviceAccountName"]), [("rules", list(any()))]));
    let descriptors = || {
        let texts = named(&["path", "displayName", "description"]);
        list(object(texts, [("x-descriptors", strings()), ("value", any())]))
    };
    let described = || {
        let texts = named(&[
            "name",
            "group",
            "version",
            "kind",
            "deploymentName",
            "displayName",
            "description",
        ]);
        list(object(
            texts,
            [
                ("containerPort", port()),
                ("resources", list(self::object(named(&["name", "kind", "version"]), []))),
                ("specDescriptors", descriptors()),
                ("statusDescriptors", descriptors()),
                ("actionDescriptors", descriptors()),
            ],
        ))
    };
    let apis = || object(Map::new(), [("owned", described()), ("required", described())]);
    let webhook = object(
        named(&[
            "generateName",
            "type",
            "deploymentName",
            "failurePolicy",
            "matchPolicy",
            "sideEffects",
            "reinvocationPolicy",
            "webhookPath",
        ]),
        [
            ("containerPort", port()),
            ("targetPort", any()),
            ("rules", list(any())),
            ("objectSelector", any()),
            ("timeoutSeconds", port()),
            ("admissionReviewVersions", strings()),
            ("conversionCRDs", strings()),
        ],
    );
    let install = object(
        named(&["strategy"]),
        [(
            "spec",
            object(
                Map::new(),
                [
                    (
                        "deployments",
                        list(object(named(&["name"]), [("spec", any()), ("label", map())])),
                    ),
                    ("permissions", permissions()),
                    ("clusterPermissions", permissions()),
                ],
            ),
        )],
    );
    let spec = object(
        named(&[
            "version",
            "maturity",
            "minKubeVersion",
            "displayName",
            "description",
            "replaces",
            "release",
        ]),
        [
            ("install", install),
            ("customresourcedefinitions", apis()),
            ("apiservicedefinitions", apis()),
            ("webhookdefinitions", list(webhook)),
            ("nativeAPIs", list(texts(&["group", "version", "kind"]))),
            ("keywords", strings()),
            ("maintainers", list(texts(&["name", "email"]))),
            ("provider", texts(&["name", "url"])),
            ("links", list(texts(&["name", "url"]))),
            ("icon", list(texts(&["base64data", "mediatype"]))),
            ("installModes", list(object(named(&["type"]), [("supported", bool())]))),
            ("labels", map()),
            ("annotations", map()),
            ("selector", any()),
            ("cleanup", object(Map::new(), [("enabled", bool())])),
            ("skips", strings()),
            ("relatedImages", list(texts(&["name", "image"]))),
        ],
    );
    object(
        named(&["apiVersion", "kind"]),
        [("metadata", any()), ("spec", spec), ("status", any())],
    )
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn object<const N: usize>(mut fields: Map<String, Value>, more: [(&str, Value); N]) -> Value {
    fields.extend(more.map(|(name, schema)| (name.to_owned(), schema)));
    json!({"type": "object", "properties": fields, "x-kubernetes-preserve-unknown-fields": true})
}
