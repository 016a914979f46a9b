//! Answers of others, parameters, versions and statuses: where something large meets something that is there already.

use super::crowds::there;
use crate::hostile::answering::client_config;
use crate::hostile::input::{Input, Request, any, apply, create, get, input, merge_patch, post};
use crate::hostile::values::{
    CLUSTER_ROLES, CONFIG_MAPS, DEFINITION, DEFINITIONS, PODS, SECRETS, THINGS, VALIDATING_BINDINGS,
    VALIDATING_POLICIES, config_map, fields, free_definition, items, object, pod, scaled, thing,
};

const CLIENTS: usize = if cfg!(debug_assertions) { 8 } else { 64 };
const ADMITTED: &[u16] = &[201, 400, 413, 422, 500];
const CONVERTED: &[u16] = &[200, 400, 413, 500];

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = webhooks();
    inputs.extend(conversions());
    inputs.extend(policies());
    inputs.extend(owners());
    inputs.extend(statuses());
    inputs.extend(reads());
    inputs
}

/// A webhook that is asked about objects of this kind, and answers so.
fn webhook(sort: &str, resource: &str, path: &str, rest: &str) -> Request {
    let rule =
        format!(r#"{{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["{resource}"]}}"#);
    let hook = format!(
        r#""webhooks":[{{"name":"h.b.io","clientConfig":{},"sideEffects":"None","admissionReviewVersions":["v1"],
        "rules":[{rule}]{rest}}}]"#,
        client_config(path)
    );
    let collection = format!(
        "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
        sort.to_lowercase()
    );
    let kind = format!("{sort}WebhookConfiguration");
    create(
        &collection,
        "met",
        object("admissionregistration.k8s.io/v1", &kind, "met", "", &hook),
    )
}

fn secret() -> Request {
    create(SECRETS, "met", object("v1", "Secret", "met", "", ""))
}

fn webhooks() -> Vec<Input> {
    let changes = |path: &'static str| move || secret().after(webhook("Mutating", "secrets", path, ""));
    let looks = |path: &'static str| move || secret().after(webhook("Validating", "secrets", path, ""));
    vec![
        input("a webhook that gives 50,000 labels", ADMITTED, changes("labels/50000")),
        input(
            "a webhook that gives 20,000 managers of fields",
            ADMITTED,
            changes("managers/20000"),
        ),
        input(
            "a webhook that nests labels 9,000 levels deep",
            ADMITTED,
            changes("deep/9000"),
        ),
        input(
            "a webhook that copies the metadata into itself 30 times",
            ADMITTED,
            changes("copies/30"),
        ),
        input("a webhook with 5,000 warnings", ADMITTED, looks("warnings/5000")),
        input(
            "a webhook with 50,000 annotations for the audit",
            ADMITTED,
            looks("annotations/50000"),
        ),
        input("a webhook for namespaces of 20,000 expressions", ADMITTED, || {
            let expressions = items(20_000, |index| {
                format!(r#"{{"key":"k{index}","operator":"DoesNotExist"}}"#)
            });
            let selector = format!(r#","namespaceSelector":{{"matchExpressions":{expressions}}}"#);
            secret().after(webhook("Validating", "secrets", "annotations/0", &selector))
        }),
        input(
            "64 clients with 10,000 containers each, whose webhook takes two seconds",
            &[201, 413, 429],
            || {
                let containers = items(10_000, |index| format!(r#"{{"name":"c{index}","image":"i"}}"#));
                let body = object(
                    "v1",
                    "Pod",
                    "met-@@",
                    "",
                    &format!(r#""spec":{{"containers":{containers}}}"#),
                );
                let made = create(PODS, "met-@@", body).query("dryRun=All").by_clients(CLIENTS);
                made.after(webhook("Validating", "pods", "late/2000", ""))
            },
        ),
        input(
            "64 clients with 1,000 labels each, whose webhook takes two seconds",
            &[201, 429],
            || {
                let labels = fields(1_000, |_| "\"v\"".to_owned());
                let body = object("v1", "Secret", "met-@@", &format!("\"labels\":{labels}"), "");
                let made = create(SECRETS, "met-@@", body).by_clients(CLIENTS);
                made.after(webhook("Validating", "secrets", "late/2000", ""))
            },
        ),
    ]
}

/// A definition whose second version another server converts so.
fn converted(path: &str) -> Request {
    let schema = r#"{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}"#;
    let conversion = format!(
        r#""conversion":{{"strategy":"Webhook","webhook":{{"conversionReviewVersions":["v1"],"clientConfig":{}}}}},
        "versions":[{{"name":"v2","served":true,"storage":false,"schema":{schema}}},"#,
        client_config(path)
    );
    create(
        DEFINITIONS,
        DEFINITION,
        free_definition().replace("\"versions\":[", &conversion),
    )
}

/// So many Things, read in the version that is converted so.
fn read_converted(path: &str, count: usize, query: &str) -> Request {
    let read = get(&THINGS.replace("/v1/", "/v2/")).query(query);
    let made = (0..count).map(|index| {
        let name = format!("t-{index}");
        create(THINGS, &name, thing(&name, "{}"))
    });
    made.fold(read.after(converted(path)), Request::after)
}

fn conversions() -> Vec<Input> {
    vec![
        input("a conversion that gives 100,000 fields", CONVERTED, || {
            read_converted("wider/100000", 1, "")
        }),
        input("a conversion that gives 490 levels", CONVERTED, || {
            read_converted("deeper/490", 1, "")
        }),
        input("a conversion that gives 9,000 levels", CONVERTED, || {
            read_converted("deeper/9000", 1, "")
        }),
        input("a conversion that gives 40,000 labels", CONVERTED, || {
            read_converted("labelled/40000", 1, "")
        }),
        input("a conversion of one object into 50,000", CONVERTED, || {
            read_converted("more/50000", 1, "")
        }),
        input("a conversion of 50 objects into 10,000 fields each", CONVERTED, || {
            read_converted("wider/10000", 50, "")
        }),
        input(
            "16 watches of 50 objects that are converted into 4,000 fields each",
            CONVERTED,
            || read_converted("wider/4000", 50, "watch=1&timeoutSeconds=1").by_clients(16),
        ),
    ]
}

/// A ConfigMap that a policy looks at with each of so many parameters.
fn with_parameters(count: usize, expression: &str, data: &str) -> Request {
    const VERSION: &str = "admissionregistration.k8s.io/v1";
    let policy = format!(
        r#""spec":{{"failurePolicy":"Fail","paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},"matchConstraints":
        {{"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}}]}},
        "validations":[{{"expression":"{expression}"}}]}}"#
    );
    let binding = r#""spec":{"policyName":"met","validationActions":["Deny"],
        "paramRef":{"namespace":"default","parameterNotFoundAction":"Deny","selector":{"matchLabels":{"crowd":"many"}}}}"#;
    let body = object("v1", "Secret", "met", "", &format!("\"stringData\":{data}"));
    let made = there(create(SECRETS, "met", body), CONFIG_MAPS, count, |index| {
        config_map(
            &format!("p-{index}"),
            r#""labels":{"crowd":"many"}"#,
            r#""data":{"a":"b"}"#,
        )
    });
    let policy = object(VERSION, "ValidatingAdmissionPolicy", "met", "", &policy);
    let binding = object(VERSION, "ValidatingAdmissionPolicyBinding", "met", "", binding);
    made.after(create(VALIDATING_POLICIES, "met", policy))
        .after(create(VALIDATING_BINDINGS, "met", binding))
}

fn policies() -> Vec<Input> {
    vec![
        input("a policy with 2,000 parameters", ADMITTED, || {
            with_parameters(2_000, "params.data.a == 'b'", "{}")
        }),
        input(
            "a policy that looks through 1,000 fields with each of 500 parameters",
            ADMITTED,
            || {
                let data = fields(1_000, |_| "\"v\"".to_owned());
                with_parameters(500, "object.data.all(k, k != params.data.a)", &data)
            },
        ),
        input("a policy of 2,000 parameters, none of which it likes", ADMITTED, || {
            with_parameters(2_000, "params.data.a == 'c'", "{}")
        }),
        input(
            "a claim of 32 requests with 32 selectors of 10 KB each",
            &[201, 413, 422],
            || {
                let expression = format!("{}true", "true && ".repeat(1_200));
                let selectors = items(32, |_| format!(r#"{{"cel":{{"expression":"{expression}"}}}}"#));
                let requests = items(32, |index| {
                    format!(r#"{{"name":"r{index}","exactly":{{"deviceClassName":"c","selectors":{selectors}}}}}"#)
                });
                let spec = format!(r#""spec":{{"devices":{{"requests":{requests}}}}}"#);
                let body = object("resource.k8s.io/v1", "ResourceClaim", "met", "", &spec);
                create(
                    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
                    "met",
                    body,
                )
            },
        ),
        input(
            "a class of devices with 32 selectors that walk",
            &[201, 413, 422],
            || {
                let walk = "device.attributes.all(a, device.attributes.all(b, a != b || true))";
                let selectors = items(32, |_| format!(r#"{{"cel":{{"expression":"{walk}"}}}}"#));
                let body = object(
                    "resource.k8s.io/v1",
                    "DeviceClass",
                    "met",
                    "",
                    &format!(r#""spec":{{"selectors":{selectors}}}"#),
                );
                create("/apis/resource.k8s.io/v1/deviceclasses", "met", body)
            },
        ),
    ]
}

/// The path of Things in one of many versions.
fn in_version(version: usize) -> String {
    THINGS.replace("/v1/", &format!("/v{version}/"))
}

/// A definition with so many versions; the first one is stored.
fn versions(count: usize) -> Request {
    let schema = r#"{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}"#;
    let others: String = (2..=count)
        .map(|version| format!(r#"{{"name":"v{version}","served":true,"storage":false,"schema":{schema}}},"#))
        .collect();
    let body = free_definition().replace("\"versions\":[", &format!("\"versions\":[{others}"));
    create(DEFINITIONS, DEFINITION, body)
}

fn owners() -> Vec<Input> {
    let by = |version: usize, count: usize| {
        let spec = fields(count, |_| "1".to_owned());
        let body = thing("met", &spec).replace("example.com/v1", &format!("example.com/v{version}"));
        apply(&format!("{}/met", in_version(version)), &format!("m{version}"), body)
    };
    vec![
        input(
            "an apply by the 40th owner of 2,000 fields in the 40th version",
            &[200, 201, 413],
            move || {
                let last = by(40, 2_000).after(versions(40));
                (1..40).map(|version| by(version, 2_000)).fold(last, Request::after)
            },
        ),
        input(
            "an apply by the fourth owner of 20,000 fields in the fourth version",
            &[200, 201, 413],
            move || {
                let last = by(4, 20_000).after(versions(4));
                (1..4).map(|version| by(version, 20_000)).fold(last, Request::after)
            },
        ),
        input(
            "an apply that gives up 20,000 fields of another version",
            &[200, 201, 413],
            move || {
                let first = by(1, 20_000);
                let body = thing("met", "{}").replace("example.com/v1", "example.com/v2");
                let last = apply(&format!("{}/met", in_version(2)), "m1", body).after(versions(2));
                last.after(first)
            },
        ),
        input("a role that gathers by 10,000 selectors", &[201, 413, 422], || {
            let selectors = items(10_000, |index| format!(r#"{{"matchLabels":{{"k{index}":"v"}}}}"#));
            let rest = format!(r#""aggregationRule":{{"clusterRoleSelectors":{selectors}}},"rules":[]"#);
            let body = object("rbac.authorization.k8s.io/v1", "ClusterRole", "met", "", &rest);
            create(CLUSTER_ROLES, "met", body)
        }),
    ]
}

const NODES: &str = "/api/v1/nodes";

fn status_of_node(status: &str) -> Request {
    let node = create(NODES, "met", object("v1", "Node", "met", "", ""));
    merge_patch(&format!("{NODES}/met/status"), format!(r#"{{"status":{status}}}"#)).after(node)
}

fn statuses() -> Vec<Input> {
    const CHANGED: &[u16] = &[200, 413, 422];
    vec![
        input("a Node with 30,000 images", CHANGED, || {
            let images = items(30_000, |index| {
                format!(r#"{{"names":["r.io/i{index}:v1"],"sizeBytes":{index}}}"#)
            });
            status_of_node(&format!(r#"{{"images":{images}}}"#))
        }),
        input("a Node with an image of 60,000 names", CHANGED, || {
            let names = items(60_000, |index| format!("\"r.io/i{index}:v1\""));
            status_of_node(&format!(r#"{{"images":[{{"names":{names}}}]}}"#))
        }),
        input("a Node with 20,000 attached volumes, all in use", CHANGED, || {
            let attached = items(20_000, |index| {
                format!(r#"{{"name":"v{index}","devicePath":"/d/{index}"}}"#)
            });
            let used = items(20_000, |index| format!("\"v{index}\""));
            status_of_node(&format!(r#"{{"volumesAttached":{attached},"volumesInUse":{used}}}"#))
        }),
        input("a Node with 20,000 resources, twice", CHANGED, || {
            let resources = fields(20_000, |_| "\"5\"".to_owned()).replace("\"k", "\"a.b/k");
            status_of_node(&format!(r#"{{"capacity":{resources},"allocatable":{resources}}}"#))
        }),
        input("a Job with 40,000 pods that it has not counted", CHANGED, || {
            let template = r#""template":{"spec":{"containers":[{"name":"c","image":"i"}],"restartPolicy":"Never"}}"#;
            let job = object("batch/v1", "Job", "met", "", &format!("\"spec\":{{{template}}}"));
            let uids = items(40_000, |index| format!("\"u{index}\""));
            let jobs = crate::hostile::values::JOBS;
            merge_patch(
                &format!("{jobs}/met/status"),
                format!(r#"{{"status":{{"uncountedTerminatedPods":{{"succeeded":{uids}}}}}}}"#),
            )
            .after(create(jobs, "met", job))
        }),
        input("a resize of 5,000 containers", CHANGED, || {
            let containers = |cpu: &str| {
                items(5_000, |index| {
                    format!(r#"{{"name":"c{index}","image":"i","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#)
                })
            };
            let body = object(
                "v1",
                "Pod",
                "met",
                "",
                &format!(r#""spec":{{"containers":{}}}"#, containers("1m")),
            );
            let patch = format!(r#"{{"spec":{{"containers":{}}}}}"#, containers("2m"));
            let kind = "application/strategic-merge-patch+json";
            any("PATCH", &format!("{PODS}/met/resize"), kind, patch).after(create(PODS, "met", body))
        }),
        input(
            "an eviction of a pod that 1,000 budgets choose",
            &[201, 429, 500],
            || {
                const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
                let eviction = object("policy/v1", "Eviction", "met", "", "");
                let evicted = post(&format!("{PODS}/met/eviction"), "application/json", eviction);
                let made = there(evicted, BUDGETS, 1_000, |index| {
                    let labels = r#""labels":{"crowd":"many"}"#;
                    object(
                        "policy/v1",
                        "PodDisruptionBudget",
                        &format!("b-{index}"),
                        labels,
                        r#""spec":{"selector":{}}"#,
                    )
                });
                made.after(create(PODS, "met", pod("met", "")))
            },
        ),
        input("a Namespace with 60,000 finalizers", &[200, 201, 413, 422], || {
            let finalizers = items(60_000, |index| format!("\"a.io/f{index}\""));
            let body = object(
                "v1",
                "Namespace",
                "met",
                "",
                &format!(r#""spec":{{"finalizers":{finalizers}}}"#),
            );
            create("/api/v1/namespaces", "met", body).query("dryRun=All")
        }),
    ]
}

fn reads() -> Vec<Input> {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const READ: &[u16] = &[200, 429];
    let labelled = |request: Request| {
        let labels: String = (0..60)
            .map(|key| format!(r#","a.long.prefix.io/key-{key}":"a-value-of-{key}""#))
            .collect();
        there(request, CONFIG_MAPS, 1_500, move |index| {
            config_map(
                &format!("l-{index}"),
                &format!(r#""labels":{{"crowd":"many"{labels}}}"#),
                "",
            )
        })
    };
    vec![
        input("a Table of 1,500 objects with 60 labels each", READ, move || {
            labelled(get(CONFIG_MAPS).header("Accept", TABLE))
        }),
        input("a Table of 1,500 objects with all of them", READ, move || {
            labelled(get(CONFIG_MAPS).header("Accept", TABLE).query("includeObject=Object"))
        }),
        input("16 Tables of 1,500 objects with 60 labels each", READ, move || {
            labelled(get(CONFIG_MAPS).header("Accept", TABLE).by_clients(16))
        }),
        input(
            "16 lists of 1,500 objects with 60 labels each as YAML",
            READ,
            move || labelled(get(CONFIG_MAPS).header("Accept", "application/yaml").by_clients(16)),
        ),
        input(
            "16 lists of 1,500 objects with 60 labels each as protobuf",
            READ,
            move || {
                let accept = "application/vnd.kubernetes.protobuf";
                labelled(get(CONFIG_MAPS).header("Accept", accept).by_clients(16))
            },
        ),
        input(
            "16 lists of 1,500 objects with 60 labels each, compressed",
            READ,
            move || labelled(get(CONFIG_MAPS).header("Accept-Encoding", "gzip").by_clients(16)),
        ),
        input("YAML of 30,000 documents", &[400, 422], || {
            let body = "---\n{}\n".repeat(scaled(30_000));
            post(CONFIG_MAPS, "application/yaml", body)
        }),
    ]
}
