//! Bodies, made as text: deep nesting and invalid JSON cannot be made of values.

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where the objects of [`definition`] are.
pub(crate) const THINGS: &str = "/apis/hostile.example.com/v1/namespaces/default/things";

/// `{"a":{"a":…1}}`.
pub(crate) fn nested(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

/// So many, or a twentieth in a debug build, which is that much slower: there the names of inputs exaggerate.
pub(crate) fn scaled(count: usize) -> usize {
    if cfg!(debug_assertions) && count >= 1_000 {
        count / 20
    } else {
        count
    }
}

/// A list of texts in JSON.
pub(crate) fn items(count: usize, item: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..scaled(count)).map(item).collect::<Vec<_>>().join(","))
}

/// An object with keys `k0`, `k1`, ….
pub(crate) fn fields(count: usize, value: impl Fn(usize) -> String) -> String {
    let field = |index| format!("\"k{index}\":{}", value(index));
    format!("{{{}}}", (0..scaled(count)).map(field).collect::<Vec<_>>().join(","))
}

/// An object: `metadata` and `rest` are fields in JSON, and may be empty.
pub(crate) fn object(version: &str, kind: &str, name: &str, metadata: &str, rest: &str) -> String {
    let comma = |fields: &str| {
        if fields.is_empty() {
            String::new()
        } else {
            format!(",{fields}")
        }
    };
    format!(
        r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"{name}"{}}}{}}}"#,
        comma(metadata),
        comma(rest)
    )
}

/// A ConfigMap with these fields.
pub(crate) fn config_map(name: &str, metadata: &str, rest: &str) -> String {
    object("v1", "ConfigMap", name, metadata, rest)
}

/// The name of [`definition`].
pub(crate) const DEFINITION: &str = "things.hostile.example.com";

/// A definition of Things with this schema of an object.
pub(crate) fn definition(schema: &str) -> String {
    let spec = format!(
        r#""spec":{{"group":"hostile.example.com","scope":"Namespaced","names":{{"plural":"things","kind":"Thing"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}"#
    );
    object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        DEFINITION,
        "",
        &spec,
    )
}

/// A definition whose objects have a `spec` of this schema.
pub(crate) fn definition_of_spec(schema: &str) -> String {
    definition(&format!(r#"{{"type":"object","properties":{{"spec":{schema}}}}}"#))
}

/// A definition whose objects may hold anything.
pub(crate) fn free_definition() -> String {
    definition(r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#)
}

/// A Thing with this `spec`.
pub(crate) fn thing(name: &str, spec: &str) -> String {
    object("hostile.example.com/v1", "Thing", name, "", &format!("\"spec\":{spec}"))
}
