//! Lists of other kinds, reviews, subresources, and the printer columns of definitions.

use crate::hostile::input::{Input, Request, any, create, delete, get, input, merge_patch, post};
use crate::hostile::values::{
    CONFIG_MAPS, CRON_JOBS, DEFINITION, DEFINITIONS, DEPLOYMENTS, JOBS, PODS, THINGS, config_map, definition,
    deployment, fields, items, long, object, pod, scaled, thing,
};

const JSON: &str = "application/json";
const WIDE: &[u16] = &[201, 413, 422];

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = lists();
    inputs.extend(reviews());
    inputs.extend(subresources());
    inputs.extend(definitions());
    inputs
}

/// One long list in each of many kinds.
fn lists() -> Vec<Input> {
    vec![
        input("an autoscaler with 10,000 metrics", WIDE, || {
            let metrics = items(10_000, |index| {
                format!(
                    r#"{{"type":"Resource","resource":{{"name":"r{index}","target":{{"type":"Utilization","averageUtilization":1}}}}}}"#
                )
            });
            let spec = format!(
                r#""spec":{{"maxReplicas":3,"scaleTargetRef":{{"kind":"Deployment","name":"a"}},"metrics":{metrics}}}"#
            );
            wide(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                "horizontalpodautoscalers",
                &spec,
            )
        }),
        input("a policy of 20,000 peers", WIDE, || {
            let peers = items(20_000, |index| {
                format!(
                    r#"{{"ipBlock":{{"cidr":"10.0.{}.{}/32"}}}}"#,
                    index / 250 % 250,
                    index % 250
                )
            });
            let spec = format!(r#""spec":{{"podSelector":{{}},"ingress":[{{"from":{peers}}}]}}"#);
            wide("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &spec)
        }),
        input("an Ingress with 20,000 paths", WIDE, || {
            let paths = items(20_000, |index| {
                format!(
                    r#"{{"path":"/{index}","pathType":"Exact","backend":{{"service":{{"name":"s","port":{{"number":1}}}}}}}}"#
                )
            });
            let spec = format!(r#""spec":{{"rules":[{{"host":"a.b","http":{{"paths":{paths}}}}}]}}"#);
            wide("networking.k8s.io/v1", "Ingress", "ingresses", &spec)
        }),
        input("a Job with 10,000 rules of failure", WIDE, || {
            let rules = items(10_000, |_| {
                r#"{"action":"Ignore","onExitCodes":{"operator":"In","values":[1,2]}}"#.to_owned()
            });
            let spec = format!(
                r#""spec":{{"podFailurePolicy":{{"rules":{rules}}},"template":{{"spec":{{"restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}"#
            );
            create(JOBS, "wide", object("batch/v1", "Job", "wide", "", &spec))
        }),
        input("a Job with 2^31 - 1 completions and as many at once", WIDE, || {
            let spec = r#""spec":{"completions":2147483647,"parallelism":2147483647,"completionMode":"Indexed","template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}"#;
            create(JOBS, "wide", object("batch/v1", "Job", "wide", "", spec))
        }),
        input("a CronJob with a template of 1 MB", WIDE, || {
            let spec = format!(
                r#""spec":{{"schedule":"* * * * *","jobTemplate":{{"spec":{{"template":{{"metadata":{{"annotations":{{"a":{}}}}},"spec":{{"restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}}}}}"#,
                long(200_000)
            );
            create(CRON_JOBS, "wide", object("batch/v1", "CronJob", "wide", "", &spec))
        }),
        input("a StatefulSet with 10,000 templates of claims", WIDE, || {
            let claims = items(10_000, |index| {
                format!(
                    r#"{{"metadata":{{"name":"c{index}"}},"spec":{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Gi"}}}}}}}}"#
                )
            });
            let spec = format!(
                r#""spec":{{"serviceName":"s","selector":{{"matchLabels":{{"a":"b"}}}},"volumeClaimTemplates":{claims},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}"#
            );
            wide("apps/v1", "StatefulSet", "statefulsets", &spec)
        }),
        input("a Deployment with a selector of 20,000 expressions", WIDE, || {
            let expressions = items(20_000, |index| {
                format!(r#"{{"key":"k{index}","operator":"DoesNotExist"}}"#)
            });
            let spec = format!(
                r#""spec":{{"selector":{{"matchLabels":{{"a":"b"}},"matchExpressions":{expressions}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}"#
            );
            wide("apps/v1", "Deployment", "deployments", &spec)
        }),
        input("a Deployment with 20,000 conditions", &[200, 413, 422], || {
            let conditions = items(20_000, |index| format!(r#"{{"type":"T{index}","status":"True"}}"#));
            merge_patch(
                &format!("{DEPLOYMENTS}/wide/status"),
                format!(r#"{{"status":{{"conditions":{conditions}}}}}"#),
            )
            .after(create(DEPLOYMENTS, "wide", deployment("wide", "")))
        }),
        input("a pod with 20,000 statuses of containers", &[200, 413, 422], || {
            let statuses = items(20_000, |index| {
                format!(r#"{{"name":"c{index}","image":"i","imageID":"","ready":true,"restartCount":0}}"#)
            });
            merge_patch(
                &format!("{PODS}/wide/status"),
                format!(r#"{{"status":{{"containerStatuses":{statuses}}}}}"#),
            )
            .after(create(PODS, "wide", pod("wide", "")))
        }),
        input("a pod with 10,000 terms of affinity", WIDE, || {
            let terms = items(10_000, |index| {
                format!(r#"{{"topologyKey":"k{index}","labelSelector":{{"matchLabels":{{"a":"b"}}}}}}"#)
            });
            let spec = format!(
                r#""affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{terms}}}}}"#
            );
            create(PODS, "wide", pod("wide", &spec))
        }),
        input("a disruption budget with 20,000 expressions", WIDE, || {
            let expressions = items(20_000, |index| format!(r#"{{"key":"k{index}","operator":"Exists"}}"#));
            let spec = format!(r#""spec":{{"minAvailable":1,"selector":{{"matchExpressions":{expressions}}}}}"#);
            wide("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", &spec)
        }),
        input("a Node with 50,000 taints", WIDE, || {
            let taints = items(50_000, |index| format!(r#"{{"key":"k{index}","effect":"NoSchedule"}}"#));
            let body = object("v1", "Node", "wide", "", &format!(r#""spec":{{"taints":{taints}}}"#));
            create("/api/v1/nodes", "wide", body)
        }),
        input("a volume with 10,000 terms of its nodes", WIDE, || {
            let terms = items(10_000, |index| {
                format!(r#"{{"matchExpressions":[{{"key":"k{index}","operator":"Exists"}}]}}"#)
            });
            let spec = format!(
                r#""spec":{{"capacity":{{"storage":"1Gi"}},"accessModes":["ReadWriteOnce"],"hostPath":{{"path":"/a"}},"nodeAffinity":{{"required":{{"nodeSelectorTerms":{terms}}}}}}}"#
            );
            create(
                "/api/v1/persistentvolumes",
                "wide",
                object("v1", "PersistentVolume", "wide", "", &spec),
            )
        }),
        input("a LimitRange with 20,000 limits", WIDE, || {
            let limits = items(20_000, |_| r#"{"type":"Container","max":{"cpu":"1"}}"#.to_owned());
            wide(
                "v1",
                "LimitRange",
                "limitranges",
                &format!(r#""spec":{{"limits":{limits}}}"#),
            )
        }),
        input("a quota of 20,000 resources", WIDE, || {
            let hard = fields(20_000, |_| "\"1\"".to_owned()).replace("\"k", "\"count/k");
            wide(
                "v1",
                "ResourceQuota",
                "resourcequotas",
                &format!(r#""spec":{{"hard":{hard}}}"#),
            )
        }),
        input("Endpoints with 20,000 subsets", WIDE, || {
            let subsets = items(20_000, |_| {
                r#"{"addresses":[{"ip":"10.1.1.1"}],"ports":[{"port":1}]}"#.to_owned()
            });
            wide("v1", "Endpoints", "endpoints", &format!(r#""subsets":{subsets}"#))
        }),
        input("a delete of Endpoints with 35,000 ports", &[200], || {
            let ports = items(35_000, |index| format!(r#"{{"name":"p{index}","port":1}}"#));
            let subsets = format!(r#""subsets":[{{"addresses":[{{"ip":"10.1.1.1"}}],"ports":{ports}}}]"#);
            let made = wide("v1", "Endpoints", "endpoints", &subsets);
            delete(&format!("{}/wide", made.path), "{}").after(made)
        }),
        input("a Secret with a key of 500 KB", WIDE, || {
            wide(
                "v1",
                "Secret",
                "secrets",
                &format!(r#""stringData":{{{}:"a"}}"#, long(500_000)),
            )
        }),
        input("a ServiceAccount with 50,000 secrets", WIDE, || {
            let secrets = items(50_000, |index| format!(r#"{{"name":"s{index}"}}"#));
            wide(
                "v1",
                "ServiceAccount",
                "serviceaccounts",
                &format!(r#""secrets":{secrets}"#),
            )
        }),
        input("a RoleBinding with 20,000 subjects", WIDE, || {
            let subjects = items(20_000, |index| {
                format!(r#"{{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u{index}"}}"#)
            });
            let rest = format!(
                r#""roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}},"subjects":{subjects}"#
            );
            wide("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", &rest)
        }),
        input("10,000 webhooks in one configuration", WIDE, || {
            let hooks = items(10_000, |index| {
                format!(
                    r#"{{"name":"h{index}.b.io","clientConfig":{{"url":"https://x.io"}},"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[]}}"#
                )
            });
            let body = object(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                "wide",
                "",
                &format!("\"webhooks\":{hooks}"),
            );
            create(
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                "wide",
                body,
            )
        }),
        input("a webhook with a certificate of 1 MB of nothing", &[201, 422], || {
            let hook = format!(
                r#"[{{"name":"h.b.io","clientConfig":{{"url":"https://x.io","caBundle":{}}},"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[]}}]"#,
                long(400_000)
            );
            let body = object(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                "wide",
                "",
                &format!("\"webhooks\":{hook}"),
            );
            create(
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                "wide",
                body,
            )
        }),
        input("a signing request of 500 KB of nothing", &[201, 422], || {
            let spec = format!(
                r#""spec":{{"signerName":"a.b/c","usages":["client auth"],"request":{}}}"#,
                long(500_000)
            );
            let body = object("certificates.k8s.io/v1", "CertificateSigningRequest", "wide", "", &spec);
            create("/apis/certificates.k8s.io/v1/certificatesigningrequests", "wide", body)
        }),
        input("a flow schema with 20,000 subjects", WIDE, || {
            let subjects = items(20_000, |index| {
                format!(r#"{{"kind":"User","user":{{"name":"u{index}"}}}}"#)
            });
            let spec = format!(
                r#""spec":{{"priorityLevelConfiguration":{{"name":"exempt"}},"rules":[{{"subjects":{subjects},"nonResourceRules":[{{"verbs":["*"],"nonResourceURLs":["/a"]}}]}}]}}"#
            );
            let body = object("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "wide", "", &spec);
            create("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "wide", body)
        }),
        input("a ControllerRevision 9,000 levels deep", &[400], || {
            let data = format!("{}1{}", "{\"a\":".repeat(9_000), "}".repeat(9_000));
            wide(
                "apps/v1",
                "ControllerRevision",
                "controllerrevisions",
                &format!("\"revision\":1,\"data\":{data}"),
            )
        }),
        input("a slice of devices with 10,000 of them", WIDE, || {
            let devices = items(10_000, |index| format!(r#"{{"name":"d{index}"}}"#));
            let spec = format!(
                r#""spec":{{"driver":"a.b","nodeName":"n","pool":{{"name":"p","generation":1,"resourceSliceCount":1}},"devices":{devices}}}"#
            );
            let body = object("resource.k8s.io/v1", "ResourceSlice", "wide", "", &spec);
            create("/apis/resource.k8s.io/v1/resourceslices", "wide", body)
        }),
        input("a claim of 10,000 devices", WIDE, || {
            let requests = items(10_000, |index| {
                format!(r#"{{"name":"r{index}","exactly":{{"deviceClassName":"c"}}}}"#)
            });
            let spec = format!(r#""spec":{{"devices":{{"requests":{requests}}}}}"#);
            wide("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", &spec)
        }),
        input("an owner that owns itself", &[201], || {
            let owner = r#""ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"odd","uid":"u","blockOwnerDeletion":true,"controller":true}]"#;
            create(CONFIG_MAPS, "odd", config_map("odd", owner, ""))
        }),
    ]
}

/// Objects that are answered and not stored.
fn reviews() -> Vec<Input> {
    vec![
        input("a review of a token of 1 MB", &[201], || {
            review(
                "authentication.k8s.io/v1",
                "TokenReview",
                "tokenreviews",
                &format!("\"token\":{}", long(1_000_000)),
            )
        }),
        input("a review of a token of 100,000 dots", &[201], || {
            let token = ".".repeat(100_000);
            review(
                "authentication.k8s.io/v1",
                "TokenReview",
                "tokenreviews",
                &format!("\"token\":\"{token}\""),
            )
        }),
        input("a review for 50,000 audiences", &[201, 413], || {
            let audiences = items(50_000, |index| format!("\"a{index}\""));
            review(
                "authentication.k8s.io/v1",
                "TokenReview",
                "tokenreviews",
                &format!("\"token\":\"a\",\"audiences\":{audiences}"),
            )
        }),
        input("a token for 50,000 audiences", &[201, 413, 422], || {
            let audiences = items(50_000, |index| format!("\"a{index}\""));
            let body = format!(
                r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{{"audiences":{audiences}}}}}"#
            );
            let account = object("v1", "ServiceAccount", "odd", "", "");
            post("/api/v1/namespaces/default/serviceaccounts/odd/token", JSON, body).after(create(
                "/api/v1/namespaces/default/serviceaccounts",
                "odd",
                account,
            ))
        }),
        input("a token for 2^63 - 1 seconds", &[201, 422], || {
            let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":9223372036854775807}}"#;
            let account = object("v1", "ServiceAccount", "odd", "", "");
            post("/api/v1/namespaces/default/serviceaccounts/odd/token", JSON, body).after(create(
                "/api/v1/namespaces/default/serviceaccounts",
                "odd",
                account,
            ))
        }),
        input("a review of access for somebody in 50,000 groups", &[201, 413], || {
            let groups = items(50_000, |index| format!("\"g{index}\""));
            let spec =
                format!(r#""user":"u","groups":{groups},"resourceAttributes":{{"verb":"get","resource":"pods"}}"#);
            review(
                "authorization.k8s.io/v1",
                "SubjectAccessReview",
                "subjectaccessreviews",
                &spec,
            )
        }),
        input("a review of access with 50,000 extras", &[201, 413, 422], || {
            let extra = fields(50_000, |_| "[\"v\"]".to_owned());
            let spec = format!(r#""user":"u","extra":{extra},"resourceAttributes":{{"verb":"get","resource":"pods"}}"#);
            review(
                "authorization.k8s.io/v1",
                "SubjectAccessReview",
                "subjectaccessreviews",
                &spec,
            )
        }),
        input("a review of access to a path of 1 MB", &[201], || {
            let spec = format!(
                r#""user":"u","nonResourceAttributes":{{"verb":"get","path":{}}}"#,
                long(1_000_000)
            );
            review(
                "authorization.k8s.io/v1",
                "SubjectAccessReview",
                "subjectaccessreviews",
                &spec,
            )
        }),
        input("a review of access by 20,000 requirements", &[201, 413, 422], || {
            let requirements = items(20_000, |index| format!(r#"{{"key":"k{index}","operator":"Exists"}}"#));
            let spec = format!(
                r#""user":"u","resourceAttributes":{{"verb":"list","resource":"pods","labelSelector":{{"requirements":{requirements}}}}}"#
            );
            review(
                "authorization.k8s.io/v1",
                "SubjectAccessReview",
                "subjectaccessreviews",
                &spec,
            )
        }),
        input("a review of the rules in a namespace of 500 KB", &[201, 422], || {
            let spec = format!("\"namespace\":{}", long(500_000));
            review(
                "authorization.k8s.io/v1",
                "SelfSubjectRulesReview",
                "selfsubjectrulesreviews",
                &spec,
            )
        }),
    ]
}

fn subresources() -> Vec<Input> {
    vec![
        input("a scale of 2^31 - 1", &[200], || scaled_to("2147483647")),
        input("a scale of -1", &[422], || scaled_to("-1")),
        input("a scale of 2^31", &[400, 422], || scaled_to("2147483648")),
        input("a scale of 1e300", &[400, 422], || scaled_to("1e300")),
        input("an eviction with 50,000 dry runs", &[201, 413], || {
            let runs = items(50_000, |_| "\"All\"".to_owned());
            let body = format!(
                r#"{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"odd"}},"deleteOptions":{{"dryRun":{runs}}}}}"#
            );
            post(&format!("{PODS}/odd/eviction"), JSON, body).after(create(PODS, "odd", pod("odd", "")))
        }),
        input("an eviction of another pod", &[400, 404, 422], || {
            let body = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"other"}}"#;
            post(&format!("{PODS}/odd/eviction"), JSON, body).after(create(PODS, "odd", pod("odd", "")))
        }),
        input("a binding to a node of 500 KB", &[201, 400, 422], || {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"odd"}},"target":{{"kind":"Node","name":{}}}}}"#,
                long(500_000)
            );
            post(&format!("{PODS}/odd/binding"), JSON, body).after(create(PODS, "odd", pod("odd", "")))
        }),
        input("a delete with options of 1 MB", &[200, 202, 400], || {
            let body = format!(
                r#"{{"kind":"DeleteOptions","apiVersion":"v1","unknown":{}}}"#,
                long(1_000_000)
            );
            delete(&format!("{CONFIG_MAPS}/odd"), body).after(create(CONFIG_MAPS, "odd", config_map("odd", "", "")))
        }),
        input("a delete with 100,000 dry runs", &[200, 413], || {
            let runs = items(100_000, |_| "\"All\"".to_owned());
            delete(&format!("{CONFIG_MAPS}/odd"), format!("{{\"dryRun\":{runs}}}")).after(create(
                CONFIG_MAPS,
                "odd",
                config_map("odd", "", ""),
            ))
        }),
        input(
            "a delete of everything that a selector of 30 KB chooses",
            &[200, 400],
            || delete(CONFIG_MAPS, "{}").query(&format!("labelSelector={}a", "!a,".repeat(scaled(10_000)))),
        ),
        input("a dry run of 1 MB", &[201], || {
            let body = config_map("odd", "", &format!("\"data\":{{\"a\":{}}}", long(1_000_000)));
            post(CONFIG_MAPS, JSON, body).query("dryRun=All")
        }),
        input("a generated name of 1 MB", &[422], || {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"generateName":{}}}}}"#,
                long(1_000_000)
            );
            post(CONFIG_MAPS, JSON, body)
        }),
        input("an update of nothing that is there", &[404, 409], || {
            any(
                "PUT",
                &format!("{CONFIG_MAPS}/odd"),
                JSON,
                config_map("odd", "\"uid\":\"u\"", ""),
            )
        }),
        input("an update with a version of 100,000 digits", &[500], || {
            let version = format!("\"resourceVersion\":\"{}\"", "9".repeat(100_000));
            any(
                "PUT",
                &format!("{CONFIG_MAPS}/odd"),
                JSON,
                config_map("odd", &version, ""),
            )
            .after(create(CONFIG_MAPS, "odd", config_map("odd", "", "")))
        }),
        input("a proxy to a path of 50 KB", &[400, 404, 501, 503], || {
            get(&format!("{PODS}/odd/proxy/{}", "a/".repeat(25_000))).after(create(PODS, "odd", pod("odd", "")))
        }),
    ]
}

fn definitions() -> Vec<Input> {
    vec![
        input("a definition with 20,000 categories", WIDE, || {
            named(&format!(
                r#","categories":{}"#,
                items(20_000, |index| format!("\"c{index}\""))
            ))
        }),
        input("a definition with 20,000 short names", WIDE, || {
            named(&format!(
                r#","shortNames":{}"#,
                items(20_000, |index| format!("\"s{index}\""))
            ))
        }),
        input("a definition with 10,000 columns", WIDE, || {
            let columns = items(10_000, |index| {
                format!(r#"{{"name":"C{index}","type":"string","jsonPath":".spec.a"}}"#)
            });
            versioned(&format!(r#","additionalPrinterColumns":{columns}"#))
        }),
        input("a definition with 1,000 fields for selectors", &[422], || {
            let fields = items(1_000, |_| r#"{"jsonPath":".spec.a"}"#.to_owned());
            versioned(&format!(r#","selectableFields":{fields}"#))
        }),
        input("a column with a path of 100 KB", &[201, 422], || {
            let path = ".a".repeat(scaled(50_000));
            versioned(&format!(
                r#","additionalPrinterColumns":[{{"name":"C","type":"string","jsonPath":"{path}"}}]"#
            ))
        }),
        input("a column with a path of 10,000 brackets", &[201, 422], || {
            let path = "[?(@.a==".repeat(scaled(10_000));
            versioned(&format!(
                r#","additionalPrinterColumns":[{{"name":"C","type":"string","jsonPath":".{path}"}}]"#
            ))
        }),
        input("a Table whose column descends everywhere eight times", &[200], || {
            let columns = r#","additionalPrinterColumns":[{"name":"C","type":"string","jsonPath":".spec..k1..k1..k1..*..*..*..*..*"}]"#;
            let wide = format!(
                "{{\"k1\":{}}}",
                fields(40, |_| fields(40, |_| "{\"k1\":{\"k1\":1}}".to_owned()))
            );
            get(THINGS)
                .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
                .after(create(THINGS, "wide", thing("wide", &wide)).after(versioned(columns)))
        }),
        input("an embedded object with 50,000 labels", &[201, 413], || {
            let schema = r#"{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}"#;
            let spec = format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a","labels":{}}}}}"#,
                fields(50_000, |_| "\"v\"".to_owned())
            );
            create(THINGS, "wide", thing("wide", &spec)).after(create(DEFINITIONS, DEFINITION, definition(schema)))
        }),
        input(
            "a set of 20,000 lists that are equal but for their ends",
            &[201, 413, 422],
            || {
                let schema = r#"{"type":"object","properties":{"spec":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"integer"}}}}}"#;
                let spec = items(20_000, |index| format!("[1,2,3,4,5,6,7,8,{index}]"));
                create(THINGS, "wide", thing("wide", &spec)).after(create(DEFINITIONS, DEFINITION, definition(schema)))
            },
        ),
        input("100,000 values that are numbers or texts", &[201, 413], || {
            let schema = r#"{"type":"object","properties":{"spec":{"type":"array","items":{"x-kubernetes-int-or-string":true}}}}"#;
            let spec = items(100_000, |index| {
                if index % 2 == 0 {
                    index.to_string()
                } else {
                    format!("\"{index}%\"")
                }
            });
            create(THINGS, "wide", thing("wide", &spec)).after(create(DEFINITIONS, DEFINITION, definition(schema)))
        }),
        input("100,000 objects to be pruned", &[201, 413], || {
            let schema = r#"{"type":"object","properties":{"spec":{"type":"array","items":{"type":"object"}}}}"#;
            let spec = items(100_000, |_| r#"{"a":1}"#.to_owned());
            create(THINGS, "wide", thing("wide", &spec)).after(create(DEFINITIONS, DEFINITION, definition(schema)))
        }),
        input("a pattern that counts to 1,001", &[422], || {
            let schema = r#"{"type":"object","properties":{"spec":{"type":"string","pattern":"a{1001}"}}}"#;
            create(DEFINITIONS, DEFINITION, definition(schema))
        }),
        input("a conversion by nobody", &[201, 422], || {
            let body = definition(r#"{"type":"object"}"#).replace(
                "\"versions\":",
                "\"conversion\":{\"strategy\":\"Webhook\"},\"versions\":",
            );
            create(DEFINITIONS, DEFINITION, body)
        }),
    ]
}

/// A namespaced object of any kind, called `wide`.
pub(super) fn wide(version: &str, kind: &str, plural: &str, rest: &str) -> Request {
    let root = if version.contains('/') { "apis" } else { "api" };
    let collection = format!("/{root}/{version}/namespaces/default/{plural}");
    create(&collection, "wide", object(version, kind, "wide", "", rest))
}

pub(super) fn review(version: &str, kind: &str, plural: &str, spec: &str) -> Request {
    let body = format!(r#"{{"apiVersion":"{version}","kind":"{kind}","spec":{{{spec}}}}}"#);
    post(&format!("/apis/{version}/{plural}"), JSON, body)
}

fn scaled_to(replicas: &str) -> Request {
    let patch = format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#);
    merge_patch(&format!("{DEPLOYMENTS}/odd/scale"), patch).after(create(DEPLOYMENTS, "odd", deployment("odd", "")))
}

/// A definition of Things with more of names.
fn named(names: &str) -> Request {
    let body = definition(r#"{"type":"object"}"#).replace("\"kind\":\"Thing\"", &format!("\"kind\":\"Thing\"{names}"));
    create(DEFINITIONS, DEFINITION, body)
}

/// A definition of Things with more in its version.
pub(super) fn versioned(version: &str) -> Request {
    let body = definition(r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#)
        .replace("\"storage\":true", &format!("\"storage\":true{version}"));
    create(DEFINITIONS, DEFINITION, body)
}
