//! Findings of reviews of the server after the other groups were written, and inputs close to them.

use super::kinds::{review, wide};
use super::products::{changing_policies, containers};
use super::schemas::thing_of;
use crate::hostile::input::{Input, Request, create, input, merge_patch, strategic_patch};
use crate::hostile::values::{
    DEFINITION, DEFINITIONS, PODS, SERVICES, THINGS, definition_of_spec, fields, items, object, pod, pod_with, thing,
};

const WIDE: &[u16] = &[201, 413, 422];
const CHANGED: &[u16] = &[200, 413, 422];

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = found();
    inputs.extend(pods());
    inputs.extend(others());
    inputs.extend(custom());
    inputs
}

fn found() -> Vec<Input> {
    vec![
        input(
            "50 policies that change an object of 30,000 fields",
            &[201, 413],
            || changing_policies(50),
        ),
        input("a ratcheting update of 20,000 elements that are wrong", CHANGED, || {
            let list = |of: &str| items(20_000, |index| format!(r#"{{"a":"{of}{index}","b":"x"}}"#));
            let element = |pattern: &str| {
                format!(
                    r#"{{"type":"array","items":{{"type":"object","properties":{{"a":{{"type":"string"}},
                    "b":{{"type":"string"{pattern}}}}}}}}}"#
                )
            };
            let narrower = definition_of_spec(&element(r#","pattern":"^y$""#));
            let change = format!(r#"{{"spec":{}}}"#, list("w"));
            merge_patch(&format!("{THINGS}/wide"), change)
                .after(create(DEFINITIONS, DEFINITION, definition_of_spec(&element(""))))
                .after(create(THINGS, "wide", thing("wide", &list("v"))))
                .after(merge_patch(&format!("{DEFINITIONS}/{DEFINITION}"), narrower))
        }),
        input("a definition of 100 versions with 300 properties each", WIDE, || {
            let properties = fields(300, |_| r#"{"type":"string"}"#.to_owned());
            let versions = items(100, |index| {
                format!(
                    r#"{{"name":"v{}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object",
                    "properties":{{"spec":{{"type":"object","properties":{properties}}}}}}}}}}}"#,
                    index + 1,
                    index == 0
                )
            });
            let spec = format!(
                r#""spec":{{"group":"hostile.example.com","scope":"Namespaced",
                "names":{{"plural":"things","kind":"Thing"}},"versions":{versions}}}"#
            );
            let kind = "CustomResourceDefinition";
            let body = object("apiextensions.k8s.io/v1", kind, DEFINITION, "", &spec);
            create(DEFINITIONS, DEFINITION, body)
        }),
        input("a review of the own rules of somebody with 20,000", &[201, 413], || {
            let rules = items(20_000, |index| {
                format!(r#"{{"apiGroups":["g{index}"],"resources":["r{index}"],"verbs":["get"]}}"#)
            });
            let version = "rbac.authorization.k8s.io/v1";
            let role = object(version, "Role", "wide", "", &format!("\"rules\":{rules}"));
            let binding = r#""roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"wide"},
                "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:masters"}]"#;
            let path = format!("/apis/{version}/namespaces/default");
            review(
                "authorization.k8s.io/v1",
                "SelfSubjectRulesReview",
                "selfsubjectrulesreviews",
                r#""namespace":"default""#,
            )
            .after(create(&format!("{path}/roles"), "wide", role))
            .after(create(
                &format!("{path}/rolebindings"),
                "wide",
                object(version, "RoleBinding", "wide", "", binding),
            ))
        }),
        input("a network policy of 120,000 ports", WIDE, || {
            let ports = items(120_000, |index| format!(r#"{{"port":{}}}"#, index % 65_535 + 1));
            let spec = format!(r#""spec":{{"podSelector":{{}},"ingress":[{{"ports":{ports}}}]}}"#);
            wide("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &spec)
        }),
        input("a slice of 128 devices with 32 attributes each", WIDE, || {
            let attributes = fields(32, |_| r#"{"string":"v"}"#.to_owned());
            let devices = items(128, |index| {
                format!(r#"{{"name":"d{index}","attributes":{attributes}}}"#)
            });
            slice(&devices)
        }),
        input("a slice of devices with 100,000 attributes", WIDE, || {
            let attributes = fields(100_000, |_| r#"{"int":1}"#.to_owned());
            slice(&format!(r#"[{{"name":"d","attributes":{attributes}}}]"#))
        }),
    ]
}

fn slice(devices: &str) -> Request {
    let spec = format!(
        r#""spec":{{"driver":"d.io","nodeName":"n","pool":{{"name":"p","generation":1,"resourceSliceCount":1}},
        "devices":{devices}}}"#
    );
    let body = object("resource.k8s.io/v1", "ResourceSlice", "wide", "", &spec);
    create("/apis/resource.k8s.io/v1/resourceslices", "wide", body)
}

/// A pod with one long list in its spec.
fn of_pod(field: &str, count: usize, item: impl Fn(usize) -> String) -> Request {
    create(
        PODS,
        "wide",
        pod("wide", &format!("\"{field}\":{}", items(count, item))),
    )
}

/// A pod with one long list in its container.
fn of_container(field: &str, count: usize, item: impl Fn(usize) -> String) -> Request {
    let list = items(count, item);
    create(PODS, "wide", pod_with("wide", &format!("\"{field}\":{list}")))
}

fn pods() -> Vec<Input> {
    vec![
        input("a pod that pulls with 60,000 secrets", WIDE, || {
            of_pod("imagePullSecrets", 60_000, |index| format!(r#"{{"name":"s{index}"}}"#))
        }),
        input("a pod with 40,000 gates of readiness", WIDE, || {
            of_pod("readinessGates", 40_000, |index| {
                format!(r#"{{"conditionType":"a.io/c{index}"}}"#)
            })
        }),
        input("a pod with 15,000 init containers", WIDE, || {
            of_pod("initContainers", 15_000, |index| {
                format!(r#"{{"name":"i{index}","image":"i"}}"#)
            })
        }),
        input("a pod that chooses nodes by 40,000 labels", WIDE, || {
            let labels = fields(40_000, |_| "\"v\"".to_owned());
            create(PODS, "wide", pod("wide", &format!("\"nodeSelector\":{labels}")))
        }),
        input("a pod with 20,000 sysctls", WIDE, || {
            let sysctls = items(20_000, |index| format!(r#"{{"name":"kernel.shm{index}","value":"1"}}"#));
            create(
                PODS,
                "wide",
                pod("wide", &format!(r#""securityContext":{{"sysctls":{sysctls}}}"#)),
            )
        }),
        input("a pod in 100,000 groups of its node", WIDE, || {
            let groups = items(100_000, |index| index.to_string());
            let context = format!(r#""securityContext":{{"supplementalGroups":{groups}}}"#);
            create(PODS, "wide", pod("wide", &context))
        }),
        input("a pod that asks for 20,000 resources", WIDE, || {
            let amounts = fields(20_000, |_| "\"1\"".to_owned()).replace("\"k", "\"a.io/k");
            create(
                PODS,
                "wide",
                pod_with("wide", &format!(r#""resources":{{"limits":{amounts}}}"#)),
            )
        }),
        input("a pod with 10,000 claims of resources", WIDE, || {
            of_pod("resourceClaims", 10_000, |index| {
                format!(r#"{{"name":"r{index}","resourceClaimName":"c"}}"#)
            })
        }),
        input("a container with 30,000 mounts", WIDE, || {
            of_container("volumeMounts", 30_000, |index| {
                format!(r#"{{"name":"v","mountPath":"/m{index}"}}"#)
            })
        }),
        input("a container with 40,000 variables out of fields", WIDE, || {
            of_container("env", 15_000, |index| {
                format!(r#"{{"name":"E{index}","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.name"}}}}}}"#)
            })
        }),
        input("a container with a command of 300,000 words", WIDE, || {
            of_container("command", 300_000, |_| "\"a\"".to_owned())
        }),
        input("a container with 300,000 words that name variables", WIDE, || {
            of_container("args", 100_000, |index| format!("\"$(A{index})\""))
        }),
        input("a container with 60,000 capabilities", WIDE, || {
            let added = items(60_000, |index| format!("\"C{index}\""));
            let context = format!(r#""securityContext":{{"capabilities":{{"add":{added}}}}}"#);
            create(PODS, "wide", pod_with("wide", &context))
        }),
        input("a probe with 30,000 headers", WIDE, || {
            let headers = items(30_000, |index| format!(r#"{{"name":"H{index}","value":"v"}}"#));
            let probe = format!(r#""livenessProbe":{{"httpGet":{{"port":80,"httpHeaders":{headers}}}}}"#);
            create(PODS, "wide", pod_with("wide", &probe))
        }),
        input("a strategic patch that deletes 15,000 containers", CHANGED, || {
            let gone = items(15_000, |index| {
                format!(r#"{{"name":"c{}","$patch":"delete"}}"#, index + 1)
            });
            strategic_patch(
                &format!("{PODS}/wide"),
                format!(r#"{{"spec":{{"containers":{gone}}}}}"#),
            )
            .after(create(PODS, "wide", containers(15_000)))
        }),
        input(
            "a strategic patch with another order of 15,000 containers",
            CHANGED,
            || {
                let order = items(15_000, |index| format!(r#"{{"name":"c{}"}}"#, 20_000 - index));
                strategic_patch(
                    &format!("{PODS}/wide"),
                    format!(r#"{{"spec":{{"$setElementOrder/containers":{order}}}}}"#),
                )
                .after(create(PODS, "wide", containers(15_000)))
            },
        ),
        input("a pod with 30,000 conditions in its status", CHANGED, || {
            let conditions = items(30_000, |index| format!(r#"{{"type":"C{index}","status":"True"}}"#));
            merge_patch(
                &format!("{PODS}/wide/status"),
                format!(r#"{{"status":{{"conditions":{conditions}}}}}"#),
            )
            .after(create(PODS, "wide", pod("wide", "")))
        }),
    ]
}

fn service(spec: &str) -> Request {
    let body = object("v1", "Service", "wide", "", &format!(r#""spec":{{{spec}}}"#));
    create(SERVICES, "wide", body)
}

fn others() -> Vec<Input> {
    vec![
        input("a Service with 60,000 addresses outside", WIDE, || {
            let addresses = items(60_000, |index| format!("\"20.0.{}.{}\"", index / 250, index % 250));
            service(&format!(r#""ports":[{{"port":80}}],"externalIPs":{addresses}"#))
        }),
        input("a Service that lets 60,000 networks in", WIDE, || {
            let networks = items(60_000, |index| format!("\"20.{}.{}.0/24\"", index / 250, index % 250));
            service(&format!(
                r#""type":"LoadBalancer","ports":[{{"port":80}}],"loadBalancerSourceRanges":{networks}"#
            ))
        }),
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
                service(&format!(r#""type":"NodePort","ports":{ports}{least}"#))
            },
        ),
        input("a Service with 20,000 addresses of its own", WIDE, || {
            let addresses = items(20_000, |index| format!("\"10.0.{}.{}\"", index / 250, index % 250));
            service(&format!(
                r#""ports":[{{"port":80}}],"clusterIP":"10.0.0.0","clusterIPs":{addresses}"#
            ))
        }),
        input(
            "an EndpointSlice of 1,000 endpoints with 100 addresses each",
            WIDE,
            || {
                let addresses = items(100, |index| format!("\"10.0.0.{index}\""));
                let endpoints = items(1_000, |_| format!(r#"{{"addresses":{addresses}}}"#));
                let rest = format!(r#""addressType":"IPv4","ports":[{{"port":80}}],"endpoints":{endpoints}"#);
                wide("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", &rest)
            },
        ),
        input("an Ingress with certificates of 40,000 hosts", WIDE, || {
            let hosts = items(40_000, |index| format!("\"h{index}.b.io\""));
            let spec = format!(
                r#""spec":{{"defaultBackend":{{"service":{{"name":"s","port":{{"number":1}}}}}},
                "tls":[{{"secretName":"s","hosts":{hosts}}}]}}"#
            );
            wide("networking.k8s.io/v1", "Ingress", "ingresses", &spec)
        }),
        input("an autoscaler with 20,000 policies of its speed", WIDE, || {
            let policies = items(20_000, |index| {
                format!(r#"{{"type":"Pods","value":{},"periodSeconds":60}}"#, index + 1)
            });
            let spec = format!(
                r#""spec":{{"maxReplicas":3,"scaleTargetRef":{{"kind":"Deployment","name":"a"}},
                "behavior":{{"scaleUp":{{"policies":{policies}}}}}}}"#
            );
            let kind = "HorizontalPodAutoscaler";
            wide("autoscaling/v2", kind, "horizontalpodautoscalers", &spec)
        }),
        input("a quota with 100,000 scopes", WIDE, || {
            let scopes = items(100_000, |_| "\"BestEffort\"".to_owned());
            let spec = format!(r#""spec":{{"hard":{{"pods":"1"}},"scopes":{scopes}}}"#);
            wide("v1", "ResourceQuota", "resourcequotas", &spec)
        }),
        input("a quota that chooses by 20,000 expressions", WIDE, || {
            let terms = items(20_000, |index| {
                format!(r#"{{"scopeName":"PriorityClass","operator":"In","values":["v{index}"]}}"#)
            });
            let spec = format!(r#""spec":{{"hard":{{"pods":"1"}},"scopeSelector":{{"matchExpressions":{terms}}}}}"#);
            wide("v1", "ResourceQuota", "resourcequotas", &spec)
        }),
        input("a policy of 20,000 rules about resources", WIDE, || {
            let rules = items(20_000, |index| {
                format!(r#"{{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["r{index}"]}}"#)
            });
            let spec = format!(
                r#""spec":{{"matchConstraints":{{"resourceRules":{rules}}},"validations":[{{"expression":"true"}}]}}"#
            );
            policy(&spec)
        }),
        input("a policy of 5,000 validations", WIDE, || {
            let validations = items(5_000, |index| {
                format!(r#"{{"expression":"object.metadata.name != 'a{index}'"}}"#)
            });
            policy(&format!(
                r#""spec":{{"matchConstraints":{{"resourceRules":[{{"apiGroups":["*"],"apiVersions":["*"],
                "operations":["CREATE"],"resources":["nothing"]}}]}},"validations":{validations}}}"#
            ))
        }),
        input("a class of containers with 20,000 tolerations", WIDE, || {
            let tolerations = items(20_000, |index| format!(r#"{{"key":"k{index}","operator":"Exists"}}"#));
            let rest = format!(r#""handler":"h","scheduling":{{"tolerations":{tolerations}}}"#);
            let body = object("node.k8s.io/v1", "RuntimeClass", "wide", "", &rest);
            create("/apis/node.k8s.io/v1/runtimeclasses", "wide", body)
        }),
        input("a signing request of 100 KB that nests", &[201, 403, 413, 422], || {
            use base64::Engine as _;
            use base64::engine::general_purpose::STANDARD;
            let der = STANDARD.encode([0x30_u8, 0x80].repeat(50_000));
            let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{der}\n-----END CERTIFICATE REQUEST-----\n");
            let spec = format!(
                r#""spec":{{"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"request":"{}"}}"#,
                STANDARD.encode(pem)
            );
            let body = object("certificates.k8s.io/v1", "CertificateSigningRequest", "wide", "", &spec);
            create("/apis/certificates.k8s.io/v1/certificatesigningrequests", "wide", body)
        }),
    ]
}

fn policy(spec: &str) -> Request {
    let version = "admissionregistration.k8s.io/v1";
    let body = object(version, "ValidatingAdmissionPolicy", "wide", "", spec);
    create(crate::hostile::values::VALIDATING_POLICIES, "wide", body)
}

fn custom() -> Vec<Input> {
    vec![
        input("an enum of 100,000 numbers and a list of 100,000", WIDE, || {
            let numbers = items(50_000, |index| index.to_string());
            let schema = format!(r#"{{"type":"array","items":{{"type":"integer","enum":{numbers}}}}}"#);
            thing_of(&schema, &numbers)
        }),
        input("a choice of 2,000 sorts, none of which fits", WIDE, || {
            let sorts = items(2_000, |index| {
                format!(r#"{{"properties":{{"a":{{"enum":["v{index}"]}}}},"required":["a"]}}"#)
            });
            let schema = format!(r#"{{"type":"object","properties":{{"a":{{"type":"string"}}}},"oneOf":{sorts}}}"#);
            thing_of(&schema, r#"{"a":"none"}"#)
        }),
        input("a definition whose default has 1 MB", WIDE, || {
            let schema = format!(
                r#"{{"type":"object","properties":{{"a":{{"type":"string","default":"{}"}}}}}}"#,
                "x".repeat(1_000_000)
            );
            thing_of(&schema, "{}")
        }),
        input("10,000 elements that each get 20 defaults", &[201, 413, 500], || {
            let properties = fields(20, |_| r#"{"type":"string","default":"d"}"#.to_owned());
            let schema = format!(r#"{{"type":"array","items":{{"type":"object","properties":{properties}}}}}"#);
            thing_of(&schema, &items(10_000, |_| "{}".to_owned()))
        }),
        input("a patch of one of 100,000 fields", CHANGED, || {
            let data = fields(60_000, |_| "\"v\"".to_owned());
            let schema = r#"{"type":"object","additionalProperties":{"type":"string"}}"#;
            merge_patch(&format!("{THINGS}/wide"), r#"{"spec":{"k7":"w"}}"#)
                .after(create(DEFINITIONS, DEFINITION, definition_of_spec(schema)))
                .after(create(THINGS, "wide", thing("wide", &data)))
        }),
    ]
}
