//! Whether a write costs more when there is more: of each kind with few objects and with many, and 1,000 definitions.
//!
//! * *CPU of a write*: as in `load`, of the server alone. Two servers of the same program: one holds few objects of the
//!   kind, the other many. Both create, change and delete as many more as the figure is the mean of, in turns: a shared
//!   machine is now fast and now slow, and both sides of a ratio have to be of the same moment.
//! * The figures are medians of the rounds, the ratio is the median of the rounds' own ratios.
//! * `KUBEWRIGHT_BENCH_KIND` names the one kind to measure, as it is called in the table.
//! * *definitions*: each is 49 KB of JSON with a group of its own, sent one after another on one connection, as
//!   `kubectl` does it. Memory is the private memory of the server a moment after the last, less that of the idle
//!   server, over the bytes sent. Documents of everything that is served (discovery, OpenAPI) are asked for with a
//!   tenth of them and with all, each time after one more definition, so that they are made anew: CPU of the server,
//!   medians.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Spread;
use crate::client::{Call, Connection};
use crate::https;
use crate::servers::Server;

const FEW: usize = 10;
const MANY: usize = 10_000;
/// Writes of each sort in a round.
const WRITES: usize = 200;
const ROUNDS: usize = 9;
const MOST: f64 = 1.5;

/// A kind: its name here, its path, how many there are to be, and the object of a number.
struct Kind {
    name: &'static str,
    path: &'static str,
    many: usize,
    object: fn(&str, usize) -> String,
}

const fn kind(name: &'static str, path: &'static str, object: fn(&str, usize) -> String) -> Kind {
    Kind {
        name,
        path,
        many: MANY,
        object,
    }
}

fn plain(name: &str, rest: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}}{rest}}}"#)
}

const RULES: &str = r#","rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]"#;
const BINDING: &str = r#","roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","name":"u"}]"#;
const POD: &str = r#","spec":{"containers":[{"name":"c","image":"i"}]}"#;
const WORKLOAD: &str = r#","spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}"#;
const CLAIM: &str = r#","spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}"#;
const EVENT: &str =
    r#","involvedObject":{"kind":"Pod","namespace":"default","name":"p"},"reason":"R","message":"m","type":"Normal""#;
const POLICY: &str = r#","spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["x.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["xs"]}]},"validations":[{"expression":"true"}]}"#;
/// A request for a certificate of the user `a`.
const REQUEST: &str = r#","spec":{"signerName":"a.io/b","usages":["client auth"],"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHTE1EOENBUUF3RERFS01BZ0dBMVVFQXd3QllUQXFNQVVHQXl0bGNBTWhBRUU2VWw5a3puMW9FNEdzd0haNwpPU3kwLzJSZ2RzMUhmUEl0dGhHdXJ5VURvQUF3QlFZREsyVndBMEVBM2hsM0RuTzczbFM3VXpiYXhJNFBJeXc2CisrdUdtRmllaHBxL1NXclF1RlRIcFd0ZTZQblhvSjZLSUh1MC9VV0hWNW85aklEbU5pYmdpV0c4U0tIY0JRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="}"#;
const MUTATION: &str = r#","spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":["x.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["xs"]}]},"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"test\", path: \"/kind\", value: \"X\"}]"}}]}"#;
const WEBHOOK: &str = r#","webhooks":[{"name":"a.b.io","clientConfig":{"url":"https://x.io"},"rules":[{"apiGroups":["x.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["xs"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}]"#;

fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        kind("ConfigMap", "/api/v1/namespaces/default/configmaps", |name, _| {
            plain(name, "")
        }),
        kind(
            "ConfigMap under a quota",
            "/api/v1/namespaces/quota/configmaps",
            |name, _| plain(name, ""),
        ),
        kind("Secret", "/api/v1/namespaces/default/secrets", |name, _| {
            plain(name, "")
        }),
        kind(
            "ServiceAccount",
            "/api/v1/namespaces/default/serviceaccounts",
            |name, _| plain(name, ""),
        ),
        kind(
            "Service, ClusterIP",
            "/api/v1/namespaces/default/services",
            |name, _| plain(name, r#","spec":{"ports":[{"port":80}]}"#),
        ),
        kind(
            "Service, NodePort",
            "/api/v1/namespaces/kube-public/services",
            |name, _| plain(name, r#","spec":{"type":"NodePort","ports":[{"port":80}]}"#),
        ),
        kind("Pod", "/api/v1/namespaces/default/pods", |name, _| plain(name, POD)),
        kind("Pod under a quota", "/api/v1/namespaces/quota/pods", |name, _| {
            plain(name, POD)
        }),
        kind(
            "PersistentVolumeClaim",
            "/api/v1/namespaces/default/persistentvolumeclaims",
            |name, _| plain(name, CLAIM),
        ),
        kind("Event", "/api/v1/namespaces/default/events", |name, _| {
            plain(name, EVENT)
        }),
        kind(
            "Deployment",
            "/apis/apps/v1/namespaces/default/deployments",
            |name, _| plain(name, WORKLOAD),
        ),
        kind(
            "Role",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            |name, _| plain(name, RULES),
        ),
        kind(
            "RoleBinding",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            |name, _| plain(name, BINDING),
        ),
        kind(
            "ClusterRole",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            |name, _| plain(name, RULES),
        ),
        kind(
            "EndpointSlice",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            |name, _| plain(name, r#","addressType":"IPv4","endpoints":[]"#),
        ),
        kind("IPAddress", "/apis/networking.k8s.io/v1/ipaddresses", |_, index| {
            let name = format!("10.9{}.{}.{}", index / 62_500, index / 250 % 250, index % 250 + 1);
            plain(
                &name,
                r#","spec":{"parentRef":{"resource":"services","namespace":"default","name":"s"}}"#,
            )
        }),
        kind(
            "APIService",
            "/apis/apiregistration.k8s.io/v1/apiservices",
            |name, _| {
                let spec = format!(
                    r#","spec":{{"group":"{name}.io","version":"v1","groupPriorityMinimum":9,"versionPriority":9}}"#
                );
                plain(&format!("v1.{name}.io"), &spec)
            },
        ),
        kind(
            "ValidatingAdmissionPolicy",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            |name, _| plain(name, POLICY),
        ),
        kind(
            "ClusterRoleBinding",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            |name, _| plain(name, BINDING),
        ),
        // All of a namespace are asked about its pods and claims, so they are where none of those are.
        kind("LimitRange", "/api/v1/namespaces/kube-system/limitranges", |name, _| {
            plain(name, r#","spec":{"limits":[]}"#)
        }),
        kind(
            "ResourceQuota",
            "/api/v1/namespaces/kube-system/resourcequotas",
            |name, _| plain(name, r#","spec":{"hard":{"pods":"9"}}"#),
        ),
        kind("StorageClass", "/apis/storage.k8s.io/v1/storageclasses", |name, _| {
            plain(name, r#","provisioner":"a.io/b""#)
        }),
        kind(
            "CertificateSigningRequest",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            |name, _| plain(name, REQUEST),
        ),
        kind(
            "ServiceCIDR",
            "/apis/networking.k8s.io/v1/servicecidrs",
            |name, index| {
                // No part is zero: in its canonical form the range would not have it.
                let range = format!("fd00:{:x}:{:x}::/112", index / 50_000 + 1, index % 50_000 + 1);
                plain(name, &format!(r#","spec":{{"cidrs":["{range}"]}}"#))
            },
        ),
        kind(
            "PriorityClass",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            |name, _| plain(name, r#","value":7"#),
        ),
        kind(
            "FlowSchema",
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            |name, _| {
                plain(
                    name,
                    r#","spec":{"priorityLevelConfiguration":{"name":"exempt"},"rules":[]}"#,
                )
            },
        ),
        kind(
            "Lease",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            |name, _| plain(name, ""),
        ),
        kind(
            "custom resource",
            "/apis/d0.bench.io/v1/namespaces/default/things",
            |name, _| {
                format!(
                    r#"{{"apiVersion":"d0.bench.io/v1","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{"f1":{{"name":"a"}}}}}}"#
                )
            },
        ),
        kind("Namespace", "/api/v1/namespaces", |name, _| plain(name, "")),
        kind("CustomResourceDefinition", DEFINITIONS, |name, index| {
            small(name, index)
        }),
        // The configuration matches none of the writes here, but it might: so these come last, and a ConfigMap after
        // them.
        kind(
            "ValidatingAdmissionPolicyBinding",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            |name, index| {
                let spec = format!(r#","spec":{{"policyName":"o{index}","validationActions":["Deny"]}}"#);
                plain(name, &spec)
            },
        ),
        kind(
            "MutatingAdmissionPolicy",
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
            |name, _| plain(name, MUTATION),
        ),
        kind(
            "MutatingAdmissionPolicyBinding",
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
            |name, index| plain(name, &format!(r#","spec":{{"policyName":"o{index}"}}"#)),
        ),
        kind(
            "ValidatingWebhookConfiguration",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            |name, _| plain(name, WEBHOOK),
        ),
        kind(
            "MutatingWebhookConfiguration",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            |name, _| plain(name, WEBHOOK),
        ),
        kind(
            "ConfigMap beside all of these",
            "/api/v1/namespaces/kube-public/configmaps",
            |name, _| plain(name, ""),
        ),
    ];
    for kind in &mut kinds {
        match kind.name {
            // There are 2,768 node ports.
            "Service, NodePort" => kind.many = 2_000,
            "CustomResourceDefinition" => kind.many = 1_000,
            _ => {}
        }
    }
    kinds
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn small(name: &str, index: usize) -> String {
    definition(
        &format!("{name}.bench.io"),
        &format!(r#""f{index}":{{"type":"string"}}"#),
    )
}

fn definition(group: &str, fields: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"things.{group}"}},"spec":{{"group":"{group}","scope":"Namespaced","names":{{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"}},"versions":[{{"name":"v1","served":true,"storage":true,"subresources":{{"status":{{}}}},"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{fields}}}}}}}}}}}}}]}}}}"#
    )
}

/// A definition of 49 KB: fields in fields, with words about each.
fn large(index: usize) -> String {
    let words = "What this field is for, and what happens when it is left out; see the documentation. ".repeat(2);
    let mut fields = String::new();
    for field in 0..40 {
        if field > 0 {
            fields.push(',');
        }
        fields += &format!(
            r#""f{field}":{{"type":"object","description":"{words}","properties":{{"name":{{"type":"string","description":"{words}","maxLength":253}},"size":{{"type":"integer","description":"{words}","minimum":0,"default":1}},"kinds":{{"type":"array","description":"{words}","items":{{"type":"string","enum":["A","B","C"]}}}},"labels":{{"type":"object","description":"{words}","additionalProperties":{{"type":"string"}}}}}}}}"#
        );
    }
    definition(&format!("d{index}.bench.io"), &fields)
}

/// A server with so many objects of each kind.
struct Side {
    server: Server,
    connection: Connection,
}

impl Side {
    async fn start(kubewright: &Path, folder: &Path) -> Result<Side, String> {
        let arguments = ["--service-cluster-ip-range", "10.0.0.0/16"];
        let server = Server::ours_with(kubewright, folder, None, &arguments).await?;
        let mut connection = Connection::open(server.address).await?;
        let quota = br#"{"metadata":{"name":"q"},"spec":{"hard":{"pods":"1000000","count/configmaps":"1000000"}}}"#;
        for (path, body) in [
            (DEFINITIONS, large(0).as_bytes()),
            ("/api/v1/namespaces", br#"{"metadata":{"name":"quota"}}"#.as_slice()),
            ("/api/v1/namespaces/quota/resourcequotas", quota.as_slice()),
        ] {
            connection.call(&Call::post(path, body)).await?;
        }
        Ok(Side { server, connection })
    }

    async fn fill(&mut self, kind: &Kind, count: usize) -> Result<(), String> {
        for index in 1..=count {
            let object = (kind.object)(&format!("o{index}"), index);
            self.connection.call(&Call::post(kind.path, object.as_bytes())).await?;
        }
        Ok(())
    }

    /// Mean CPU of a create, a change and a delete of the objects from this number on, in microseconds.
    async fn round(&mut self, kind: &Kind, first: usize) -> Result<[f64; 3], String> {
        let objects: Vec<String> = (first..first + WRITES)
            .map(|index| (kind.object)(&format!("n{index}"), index))
            .collect();
        let paths: Vec<String> = objects.iter().map(|object| path(kind, object)).collect();
        let mut costs = [0.0; 3];
        for (sort, cost) in costs.iter_mut().enumerate() {
            let before = self.server.cpu_milliseconds()?;
            for (object, path) in objects.iter().zip(&paths) {
                let call = match sort {
                    0 => Call::post(kind.path, object.as_bytes()),
                    1 => Call {
                        method: "PATCH",
                        path,
                        content_type: "application/merge-patch+json",
                        body: br#"{"metadata":{"labels":{"changed":"yes"}}}"#,
                    },
                    _ => Call {
                        method: "DELETE",
                        ..Call::get(path)
                    },
                };
                self.connection.call(&call).await?;
            }
            *cost = (self.server.cpu_milliseconds()? - before) * 1000.0 / WRITES as f64;
        }
        Ok(costs)
    }
}

/// Where an object is: its name stands first.
fn path(kind: &Kind, object: &str) -> String {
    let name = object
        .split_once(r#""name":""#)
        .and_then(|(_, rest)| rest.split_once('"'));
    format!("{}/{}", kind.path, name.map_or("", |(name, _)| name))
}

/// Measures ours and prints a line for each kind.
pub(crate) async fn measure(kubewright: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let mut sides = Vec::new();
    for name in ["few", "many"] {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).map_err(|why| format!("no temporary folder: {why}"))?;
        sides.push(Side::start(kubewright, &folder).await?);
    }
    println!("\nCPU of a write by how many there are, µs: create, update, delete; goal ≤ {MOST} ×\n");
    let only = std::env::var("KUBEWRIGHT_BENCH_KIND").ok();
    let wanted = |kind: &Kind| only.as_deref().is_none_or(|only| only == kind.name);
    for kind in kinds().into_iter().filter(wanted) {
        let mut next = if kind.name == "IPAddress" { 20_000 } else { 1_000_000 };
        for (side, count) in sides.iter_mut().zip([FEW, kind.many]) {
            side.fill(&kind, count).await?;
        }
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(Round {
                few: sides[0].round(&kind, next).await?,
                many: sides[1].round(&kind, next).await?,
            });
            next += WRITES;
        }
        println!("{}", line(&kind, &rounds));
    }
    for side in sides {
        side.server.stop().await;
    }
    Ok(())
}

/// The cost of create, update and delete where few and where many objects are, in one round.
struct Round {
    few: [f64; 3],
    many: [f64; 3],
}

fn line(kind: &Kind, rounds: &[Round]) -> String {
    let medians = |figure: fn(&Round, usize) -> f64| {
        [0, 1, 2].map(|sort| Spread::of(rounds.iter().map(|round| figure(round, sort)).collect()).median())
    };
    let ratios = medians(|round, sort| round.many[sort] / round.few[sort]);
    let met = ratios.iter().all(|ratio| *ratio <= MOST);
    let show = |costs: [f64; 3]| costs.map(|cost| format!("{cost:6.0}")).join("");
    format!(
        "{:<32} {FEW}: {}   {:>6}: {}   {}  {}",
        kind.name,
        show(medians(|round, sort| round.few[sort])),
        kind.many,
        show(medians(|round, sort| round.many[sort])),
        ratios.map(|ratio| format!("{ratio:.2}")).join(" "),
        verdict(met),
    )
}

/// The documents that clients ask for first: one of all groups, one of all kinds with their schemas, and the list of
/// documents.
const DOCUMENTS: [&str; 3] = ["/apis", "/openapi/v2", "/openapi/v3"];
/// Ten times as many definitions may make a document cost so many times as much.
const MOST_DOCUMENT: f64 = 12.0;

/// CPU of each of these documents after one more definition than before, in milliseconds: there are `count` at first.
async fn documents(server: &Server, connection: &mut Connection, count: usize) -> Result<Vec<f64>, String> {
    const TURNS: usize = 5;
    let mut more = count..;
    let mut costs = Vec::new();
    for path in DOCUMENTS {
        let mut turns = Vec::new();
        for index in more.by_ref().take(TURNS) {
            connection
                .call(&Call::post(DEFINITIONS, large(index).as_bytes()))
                .await?;
            let before = server.cpu_milliseconds()?;
            connection.call(&Call::get(path)).await?;
            turns.push(server.cpu_milliseconds()? - before);
        }
        costs.push(Spread::of(turns).median());
    }
    Ok(costs)
}

/// The same of a server with so many definitions.
async fn few_documents(kubewright: &Path, count: usize) -> Result<Vec<f64>, String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let server = Server::ours(kubewright, folder.path(), None).await?;
    let mut connection = Connection::open(server.address).await?;
    for index in 0..count {
        connection
            .call(&Call::post(DEFINITIONS, large(index).as_bytes()))
            .await?;
    }
    let costs = documents(&server, &mut connection, count).await?;
    server.stop().await;
    Ok(costs)
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Installs 1,000 definitions of 49 KB, uses the last, and starts again with them.
pub(crate) async fn definitions(kubewright: &Path) -> Result<(), String> {
    const COUNT: usize = 1_000;
    /// How many are taken together for the first and the last.
    const SOME: usize = 50;
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let data = folder.path().join("data");
    let server = Server::ours(kubewright, folder.path(), Some(&data)).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = server.private_megabytes()?;
    let mut connection = Connection::open(server.address).await?;
    let (mut times, mut bytes) = (Vec::new(), 0);
    let started = Instant::now();
    for index in 0..COUNT {
        let body = large(index);
        bytes += body.len();
        let sent = Instant::now();
        connection.call(&Call::post(DEFINITIONS, body.as_bytes())).await?;
        times.push(sent.elapsed().as_secs_f64() * 1000.0);
    }
    let seconds = started.elapsed().as_secs_f64();
    let last = format!("/apis/d{}.bench.io/v1", COUNT - 1);
    let thing = format!(
        r#"{{"apiVersion":"d{}.bench.io/v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{{"f1":{{"name":"b"}}}}}}"#,
        COUNT - 1
    );
    let things = format!("{last}/namespaces/default/things");
    connection.call(&Call::post(&things, thing.as_bytes())).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let private = server.private_megabytes()?;
    for path in ["/apis", "/openapi/v3", &format!("/openapi/v3{last}")] {
        let asked = Instant::now();
        let length = connection.call(&Call::get(path)).await?;
        println!(
            "{path}: {length} bytes in {:.1} ms",
            asked.elapsed().as_secs_f64() * 1000.0
        );
    }
    let all = documents(&server, &mut connection, COUNT).await?;
    let few = few_documents(kubewright, COUNT / 10).await?;
    for ((path, few), all) in DOCUMENTS.iter().zip(few).zip(all) {
        println!(
            "{path}: {few:.1} ms of CPU with {} definitions, {all:.1} ms with {COUNT}: {:.1} × (≤ {MOST_DOCUMENT} ×) {}",
            COUNT / 10,
            all / few,
            verdict(all / few <= MOST_DOCUMENT)
        );
    }
    server.stop().await;
    let started = Instant::now();
    let server = Server::ours(kubewright, folder.path(), Some(&data)).await?;
    let ready = started.elapsed().as_secs_f64();
    https::until_ready(server.address, Duration::from_secs(1)).await?;
    let mut connection = Connection::open(server.address).await?;
    connection.call(&Call::get(&format!("{things}/a"))).await?;
    server.stop().await;
    let json = bytes as f64 / 1_048_576.0;
    let median = |times: &[f64]| Spread::of(times.to_vec()).median();
    let (first, late) = (median(&times[..SOME]), median(&times[COUNT - SOME..]));
    println!(
        "\n{COUNT} definitions, {json:.0} MB: {seconds:.1} s (≤ 30) {}; the first {SOME} {first:.1} ms each, the last {late:.1} ms: \
         {:.2} × (≤ {MOST}) {}\nmemory {private:.0} MB, {idle:.0} MB of it idle: {:.2} × their JSON (≤ 3 ×) {}\n\
         a start with them {ready:.2} s (≤ 2) {}",
        verdict(seconds <= 30.0),
        late / first,
        verdict(late / first <= MOST),
        (private - idle) / json,
        verdict(private - idle <= 3.0 * json),
        verdict(ready <= 2.0),
    );
    Ok(())
}
