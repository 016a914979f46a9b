//! Bodies, made as text: deep nesting and invalid JSON cannot be made of values.

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const EVENTS: &str = "/api/v1/namespaces/default/events";
pub(crate) const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub(crate) const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
pub(crate) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
pub(crate) const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(crate) const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const VALIDATING_POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(crate) const VALIDATING_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
pub(crate) const MUTATING_POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
pub(crate) const MUTATING_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
/// Where the objects of [`definition`] are.
pub(crate) const THINGS: &str = "/apis/hostile.example.com/v1/namespaces/default/things";

/// `{"a":{"a":…1}}`.
pub(crate) fn nested(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

/// `[[…]]`.
pub(crate) fn nested_lists(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
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

/// A string in JSON of so many letters.
pub(crate) fn long(length: usize) -> String {
    format!("\"{}\"", "x".repeat(length))
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

/// A pod with these fields in its spec besides a container.
pub(crate) fn pod(name: &str, spec: &str) -> String {
    let comma = if spec.is_empty() { "" } else { "," };
    let spec = format!(r#""spec":{{"containers":[{{"name":"c","image":"i"}}]{comma}{spec}}}"#);
    object("v1", "Pod", name, "", &spec)
}

/// A pod whose container has these fields besides.
pub(crate) fn pod_with(name: &str, container: &str) -> String {
    let spec = format!(r#""spec":{{"containers":[{{"name":"c","image":"i",{container}}}]}}"#);
    object("v1", "Pod", name, "", &spec)
}

/// A Deployment whose template has these fields in its spec besides a container.
pub(crate) fn deployment(name: &str, spec: &str) -> String {
    let comma = if spec.is_empty() { "" } else { "," };
    let spec = format!(
        r#""spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},
        "spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}{comma}{spec}}}"#
    );
    object("apps/v1", "Deployment", name, "", &spec)
}

pub(crate) fn role(name: &str, rules: &str) -> String {
    object(
        "rbac.authorization.k8s.io/v1",
        "Role",
        name,
        "",
        &format!("\"rules\":{rules}"),
    )
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
