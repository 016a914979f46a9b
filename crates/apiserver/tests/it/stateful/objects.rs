//! Objects that are right, one or more of each kind; `generator` spoils them.

use std::borrow::Cow;

use serde_json::{Value, json};

/// A kind: where its objects are, and examples without names.
pub(crate) struct Kind {
    /// The path of the collection; `{ns}` stands for the namespace.
    pub(crate) collection: Cow<'static, str>,
    pub(crate) examples: Vec<Value>,
}

impl Kind {
    fn new(collection: impl Into<Cow<'static, str>>, api_version: &str, kind: &str, bodies: Vec<Value>) -> Kind {
        let examples = bodies.into_iter().map(|body| {
            let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}});
            let fields = object.as_object_mut().expect("an object");
            fields.extend(body.as_object().expect("fields").clone());
            object
        });
        Kind {
            collection: collection.into(),
            examples: examples.collect(),
        }
    }
}

/// Names are few, so that requests meet.
pub(crate) const NAMES: &[&str] = &["a", "a", "a", "b"];
/// Names that are free, mostly.
pub(crate) const MORE_NAMES: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h"];
pub(crate) const NAMESPACES: &[&str] = &["default", "default", "default", "default", "default", "a"];
/// The name of the definition; its objects are the last of [`kinds`].
pub(crate) const DEFINITION: &str = "things.example.com";
pub(crate) const NAMESPACES_PATH: &str = "/api/v1/namespaces";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// All kinds.
pub(crate) fn kinds() -> Vec<Kind> {
    let mut kinds = core();
    kinds.extend(groups());
    kinds.extend(others());
    kinds.extend(policies());
    kinds.extend(custom());
    kinds
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}}}],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
        "nodeName": "n", "terminationGracePeriodSeconds": 30})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn core() -> Vec<Kind> {
    vec![
        Kind::new(
            "/api/v1/namespaces/{ns}/configmaps",
            "v1",
            "ConfigMap",
            vec![json!({
            "data": {"a": "b", "c": "d"}, "binaryData": {"e": "AAEC"}, "immutable": false})],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/secrets",
            "v1",
            "Secret",
            vec![json!({
            "data": {"a": "AAEC"}, "stringData": {"b": "c"}, "type": "Opaque"})],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/pods",
            "v1",
            "Pod",
            vec![
                json!({"spec": pod_spec()}),
                json!({"spec": {"containers": [{"name": "c", "image": "i"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}], "startTime": "2026-01-01T00:00:00Z"}}),
            ],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/services",
            "v1",
            "Service",
            vec![
                json!({"spec": {"ports": [{"name": "a", "port": 80, "targetPort": "http"}], "selector": {"a": "b"}}}),
                json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}],
                "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP"}}),
                json!({"spec": {"clusterIP": "None", "ports": [{"port": 1}], "ipFamilyPolicy": "SingleStack"}}),
            ],
        ),
        Kind::new(
            "/api/v1/namespaces",
            "v1",
            "Namespace",
            vec![json!({"spec": {"finalizers": ["kubernetes"]}})],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/events",
            "v1",
            "Event",
            vec![json!({
            "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"}, "reason": "R", "message": "m",
            "count": 2, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"})],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/resourcequotas",
            "v1",
            "ResourceQuota",
            vec![json!({
            "spec": {"hard": {"pods": "10", "requests.cpu": "20", "count/configmaps": "100"},
                "scopes": ["NotTerminating"]}})],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/limitranges",
            "v1",
            "LimitRange",
            vec![json!({
            "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "4"}}]}})],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/persistentvolumeclaims",
            "v1",
            "PersistentVolumeClaim",
            vec![json!({
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}})],
        ),
        Kind::new(
            "/api/v1/nodes",
            "v1",
            "Node",
            vec![json!({
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}})],
        ),
        Kind::new(
            "/api/v1/namespaces/{ns}/replicationcontrollers",
            "v1",
            "ReplicationController",
            vec![json!({
            "spec": {"replicas": 1, "selector": {"a": "b"}, "template": template()}})],
        ),
    ]
}

fn groups() -> Vec<Kind> {
    let selector = json!({"matchLabels": {"a": "b"}});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        "completions": 3, "backoffLimit": 2, "ttlSecondsAfterFinished": 5});
    let rbac = "rbac.authorization.k8s.io/v1";
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"});
    vec![
        Kind::new(
            "/apis/apps/v1/namespaces/{ns}/deployments",
            "apps/v1",
            "Deployment",
            vec![json!({
            "spec": {"replicas": 2, "selector": selector, "template": template(),
                "strategy": {"rollingUpdate": {"maxSurge": "25%"}}, "progressDeadlineSeconds": 600}})],
        ),
        Kind::new(
            "/apis/apps/v1/namespaces/{ns}/statefulsets",
            "apps/v1",
            "StatefulSet",
            vec![json!({
            "spec": {"serviceName": "a", "selector": selector, "template": template(),
                "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}]}})],
        ),
        Kind::new(
            "/apis/batch/v1/namespaces/{ns}/jobs",
            "batch/v1",
            "Job",
            vec![json!({"spec": job})],
        ),
        Kind::new(
            "/apis/batch/v1/namespaces/{ns}/cronjobs",
            "batch/v1",
            "CronJob",
            vec![json!({
            "spec": {"schedule": "*/5 * * * *", "timeZone": "Europe/Berlin", "jobTemplate": {"spec": job}},
            "status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}})],
        ),
        Kind::new(
            "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            vec![json!({"spec": {"minReplicas": 1, "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
                "averageUtilization": 50}}}], "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}})],
        ),
        Kind::new(
            "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
            "coordination.k8s.io/v1",
            "Lease",
            vec![json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.123456Z"}})],
        ),
        Kind::new(
            "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
            "discovery.k8s.io/v1",
            "EndpointSlice",
            vec![json!({"addressType": "IPv4", "ports": [{"name": "a", "port": 80}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]})],
        ),
        Kind::new(
            "/apis/events.k8s.io/v1/namespaces/{ns}/events",
            "events.k8s.io/v1",
            "Event",
            vec![json!({
            "regarding": {"kind": "Pod", "name": "a", "namespace": "default"}, "reason": "R", "action": "A",
            "note": "n", "type": "Normal", "reportingController": "c.d/e", "reportingInstance": "i",
            "eventTime": "2026-01-01T00:00:00.000000Z"})],
        ),
        Kind::new(
            "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
            "networking.k8s.io/v1",
            "NetworkPolicy",
            vec![json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock":
                {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": 80, "endPort": 90}]}]}})],
        ),
        Kind::new(
            "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
            "networking.k8s.io/v1",
            "Ingress",
            vec![
                json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]}}),
            ],
        ),
        Kind::new(
            "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
            "policy/v1",
            "PodDisruptionBudget",
            vec![json!({"spec": {"minAvailable": "50%", "selector": selector}})],
        ),
        Kind::new(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
            rbac,
            "Role",
            vec![json!({"rules": rules})],
        ),
        Kind::new(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
            rbac,
            "RoleBinding",
            vec![json!({"roleRef": role, "subjects": [{"kind": "User", "name": "u",
                "apiGroup": "rbac.authorization.k8s.io"}]})],
        ),
        Kind::new(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            rbac,
            "ClusterRole",
            vec![
                json!({"rules": rules}),
                json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
            ],
        ),
    ]
}

/// Kinds that need little to be right.
fn others() -> Vec<Kind> {
    let webhook = json!({"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore", "timeoutSeconds": 1, "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]});
    let apps = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template()});
    let disk = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}});
    let subject = json!([{"kind": "ServiceAccount", "name": "a", "namespace": "default"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"});
    let attributes =
        json!({"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}});
    let table = [
        (
            "v1",
            "ServiceAccount",
            "serviceaccounts",
            true,
            json!({"secrets": [{"name": "s"}]}),
        ),
        (
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            false,
            json!({"spec": disk}),
        ),
        (
            "v1",
            "PodTemplate",
            "podtemplates",
            true,
            json!({"template": template()}),
        ),
        (
            "v1",
            "Endpoints",
            "endpoints",
            true,
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}],
            "ports": [{"port": 80}]}]}),
        ),
        ("apps/v1", "DaemonSet", "daemonsets", true, json!({"spec": apps})),
        ("apps/v1", "ReplicaSet", "replicasets", true, json!({"spec": apps})),
        (
            "apps/v1",
            "ControllerRevision",
            "controllerrevisions",
            true,
            json!({"revision": 1, "data": {"a": 1}}),
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            "storageclasses",
            false,
            json!({"provisioner": "a.b/c"}),
        ),
        (
            "storage.k8s.io/v1",
            "CSIDriver",
            "csidrivers",
            false,
            json!({"spec": {"attachRequired": true}}),
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "priorityclasses",
            false,
            json!({"value": 7}),
        ),
        (
            "node.k8s.io/v1",
            "RuntimeClass",
            "runtimeclasses",
            false,
            json!({"handler": "h"}),
        ),
        (
            "networking.k8s.io/v1",
            "IngressClass",
            "ingressclasses",
            false,
            json!({"spec": {"controller": "a.b/c"}}),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "clusterrolebindings",
            false,
            json!({"roleRef": role, "subjects": subject}),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            false,
            json!({"webhooks": [webhook]}),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            false,
            json!({"webhooks": [webhook]}),
        ),
        (
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            "subjectaccessreviews",
            false,
            json!({"spec": attributes}),
        ),
    ];
    let kind = |(version, kind, plural, namespaced, body): (&str, &str, &str, bool, Value)| {
        let root = if version == "v1" {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{version}")
        };
        let collection = format!("{root}{}/{plural}", if namespaced { "/namespaces/{ns}" } else { "" });
        Kind::new(collection, version, kind, vec![body])
    };
    table.into_iter().map(kind).collect()
}

fn policies() -> Vec<Kind> {
    let version = "admissionregistration.k8s.io/v1";
    vec![
        Kind::new(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            version,
            "ValidatingAdmissionPolicy",
            vec![json!({"spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": ["", "example.com"], "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"], "resources": ["configmaps", "things"]}]},
            "variables": [{"name": "v", "expression": "object.metadata.name + 'x'"}],
            "matchConditions": [{"name": "m", "expression": "request.name != ''"}],
            "validations": [{"expression": "size(variables.v + variables.v) < 100",
                "messageExpression": "variables.v"}]}})],
        ),
        Kind::new(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            version,
            "ValidatingAdmissionPolicyBinding",
            vec![json!({"spec": {"policyName": "a",
            "validationActions": ["Deny"]}})],
        ),
        Kind::new(
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
            version,
            "MutatingAdmissionPolicy",
            vec![json!({"spec": {"reinvocationPolicy": "IfNeeded",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'add', path: '/data/z', value: 'y'}]"}}]}})],
        ),
    ]
}

/// The definition and its objects. Each example of the definition tries other parts of a schema.
fn custom() -> Vec<Kind> {
    let schemas = [
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {
                        "name": {"type": "string"}, "n": {"type": "integer", "default": 3}}}},
                "atomic": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "number"}},
                "port": {"x-kubernetes-int-or-string": true},
                "replicas": {"type": "integer", "format": "int32", "minimum": 0, "multipleOf": 1},
                "time": {"type": "string", "format": "date-time"},
                "pattern": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 10},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "nullable": {"type": "string", "nullable": true, "default": null},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true},
                "more": {"type": "object", "additionalProperties": {"type": "integer"}},
            }},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}),
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 20}},
                "x-kubernetes-validations": [
                    {"rule": "!has(self.n) || self.n >= 0", "message": "negative"},
                    {"rule": "!has(self.s) || self.s.matches('^[a-z]*$')", "messageExpression": "self.s"},
                    {"rule": "!has(self.n) || self.n >= oldSelf.n"}]},
        }}),
    ];
    let version = |name: &str, storage: bool, schema: &Value| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
            "selectableFields": [],
            "additionalPrinterColumns": [
                {"name": "N", "type": "integer", "jsonPath": ".spec.n"},
                {"name": "When", "type": "date", "jsonPath": ".spec.time"},
                {"name": "All", "type": "string", "jsonPath": ".spec.set[*]"}]})
    };
    let definitions = schemas.iter().map(|schema| {
        json!({"spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList",
                "shortNames": ["th"], "categories": ["all"]},
            "versions": [version("v1", true, schema), version("v1beta1", false, schema)]}})
    });
    let things = vec![
        json!({"spec": {"a": {"b": [1, 2]}, "n": 3, "s": "x", "replicas": 1}}),
        json!({"spec": {"set": ["a", "b"], "map": [{"name": "a", "n": 1}, {"name": "b"}], "atomic": [1, 2.5],
            "port": "http", "time": "2026-01-01T00:00:00Z", "any": {"x": [{}]}, "more": {"k": 1},
            "embedded": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inner"}}},
            "status": {"replicas": 1, "selector": "a=b"}}),
    ];
    vec![
        Kind::new(
            DEFINITIONS,
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            definitions.collect(),
        ),
        Kind::new(
            "/apis/example.com/v1/namespaces/{ns}/things",
            "example.com/v1",
            "Thing",
            things.clone(),
        ),
        Kind::new(
            "/apis/example.com/v1beta1/namespaces/{ns}/things",
            "example.com/v1beta1",
            "Thing",
            things,
        ),
    ]
}
