//! Stages in kwok's vocabulary, through the API: of pods, nodes and other kinds, in a file and as objects.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use kubewright_cluster::{Cluster, Stages};
use serde_json::{Value, json};

use crate::common::scenes::{check_on, create, said, until};
use crate::common::soon;

/// A stage of a kind: `fields` are lines of its spec.
fn stage(name: &str, kind: &str, fields: &str) -> String {
    let (version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
    let fields = fields.trim_matches('\n').replace('\n', "\n  ");
    format!(
        "---\napiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {{name: {name}}}\nspec:\n  \
         resourceRef: {{apiGroup: {version}, kind: {kind}}}\n  {fields}\n"
    )
}

fn stages(texts: &[String]) -> Stages {
    Stages::parse(&texts.concat()).expect("stages")
}

/// The stages of a pod whose containers start one after the other, and which completes.
fn slow_pod() -> Vec<String> {
    let created = stage(
        "created",
        "Pod",
        r#"
selector:
  matchLabels: {app: slow}
  matchExpressions:
  - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
  - {key: .status.podIP, operator: DoesNotExist}
delay: {durationMilliseconds: 20, jitterDurationMilliseconds: 60}
next:
  event: {type: Normal, reason: Created, message: made}
  statusTemplate: |
    {{ $now := Now }}
    conditions:
    - {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
    containerStatuses:
    {{ range .spec.containers }}
    - name: {{ .name | Quote }}
      image: {{ .image | Quote }}
      imageID: ""
      ready: false
      restartCount: 0
      state: {waiting: {reason: ContainerCreating}}
    {{ end }}
    {{ with .spec.nodeName }}
    hostIP: {{ NodeIPWith . | Quote }}
    {{ end }}
    podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) .metadata.uid .metadata.name .metadata.namespace | Quote }}
"#,
    );
    let ready = stage(
        "ready",
        "Pod",
        r#"
selector:
  matchLabels: {app: slow}
  matchExpressions:
  - cel: {expression: "self.status.phase == 'Pending' && has(self.status.podIP)"}
delay:
  durationFrom: {expressionFrom: '.metadata.annotations["ready-after"]'}
next:
  finalizers: {add: [{value: example.com/held}]}
  statusTemplate: |
    {{ $root := . }}
    phase: Running
    startTime: {{ Now | Quote }}
    conditions:
    - {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
    containerStatuses:
    {{ range $index, $item := .spec.containers }}
    {{ $before := index $root.status.containerStatuses $index }}
    - name: {{ $item.name | Quote }}
      image: {{ $before.image | Quote }}
      imageID: ""
      ready: true
      restartCount: {{ add1 (int $before.restartCount) }}
      state: {running: {startedAt: {{ Now | Quote }}}}
    {{ end }}
"#,
    );
    let gone = stage(
        "gone",
        "Pod",
        r"
selector:
  matchLabels: {app: slow}
  matchExpressions:
  - {key: .metadata.deletionTimestamp, operator: Exists}
steps:
- finalizers: {remove: [{value: example.com/held}]}
- event: {type: Normal, reason: Cleaned, message: nothing holds it}
- delete: true
",
    );
    vec![created, ready, gone]
}

fn pod(name: &str, app: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": app}, "annotations": {"ready-after": "50ms"}},
        "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]},
    })
}

fn has(pod: Option<&Pod>, phase: &str) -> bool {
    pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some(phase)
}

#[tokio::test]
async fn a_pod_goes_through_its_stages() {
    check_on(Cluster::builder().stages(stages(&slow_pod())), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        create(&pods, pod("p", "slow")).await;
        let running = until(&pods, "p", |pod| has(pod, "Running")).await.expect("a pod");
        let status = running.status.expect("a status");
        assert_eq!(status.host_ip.as_deref(), Some("192.0.2.1"));
        assert!(status.pod_ip.expect("an address").starts_with("10.244."));
        let containers = status.container_statuses.expect("containers");
        let shown: Vec<_> = containers
            .iter()
            .map(|one| (one.name.as_str(), one.ready, one.restart_count))
            .collect();
        assert_eq!(shown, [("a", true, 1), ("b", true, 1)]);
        let held = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.finalizers.is_some());
        until(&pods, "p", held).await;
        said(&client, "p", "Created").await;
        pods.delete("p", &DeleteParams::default()).await.expect("it is deleted");
        until(&pods, "p", |pod| pod.is_none()).await;
        said(&client, "p", "Cleaned").await;
        // A pod that no stage fits lives as others do.
        create(&pods, pod("q", "other")).await;
        until(&pods, "q", |pod| has(pod, "Running")).await;
    })
    .await;
}

#[tokio::test]
async fn a_template_that_cannot_be_run_is_told_on_the_object() {
    let broken = stage(
        "broken",
        "Pod",
        "selector: {matchLabels: {app: slow}}\nnext:\n  statusTemplate: |\n    phase: {{ index .spec.containers 9 }}\n",
    );
    check_on(Cluster::builder().stages(stages(&[broken])), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        create(&pods, pod("p", "slow")).await;
        let why = said(&client, "p", "StageFailed").await;
        assert!(
            why.contains("stage broken: ") && why.contains("index out of range: 9"),
            "{why}"
        );
    })
    .await;
}

fn is_ready(node: Option<&Node>) -> Option<bool> {
    let conditions = node?.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(ready.status == "True")
}

#[tokio::test]
async fn a_node_fails_while_a_stage_says_so() {
    let fails = stage(
        "fails",
        "Node",
        r#"
selector:
  matchLabels: {fails: "true"}
  matchExpressions:
  - {key: .status.phase, operator: In, values: [Running]}
delay: {durationMilliseconds: 30}
next:
  statusTemplate: |
    conditions:
    {{ range NodeConditions }}
    - lastHeartbeatTime: {{ Now | Quote }}
      lastTransitionTime: {{ Now | Quote }}
      type: {{ .type | Quote }}
      {{ if eq .type "Ready" }}
      status: "False"
      reason: Chaos
      message: {{ printf "%s has failed" NodeName | Quote }}
      {{ else }}
      status: {{ .status | Quote }}
      reason: {{ .reason | Quote }}
      message: {{ .message | Quote }}
      {{ end }}
    {{ end }}
immediateNextStage: false
"#,
    );
    check_on(Cluster::builder().stages(stages(&[fails])), async |client| {
        let nodes: Api<Node> = Api::all(client.clone());
        until(&nodes, "node-0", |node| is_ready(node) == Some(true)).await;
        let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {"fails": value}}}));
        let params = PatchParams::default();
        nodes
            .patch("node-0", &params, &label("true".into()))
            .await
            .expect("it is labeled");
        let failed = until(&nodes, "node-0", |node| is_ready(node) == Some(false))
            .await
            .expect("a node");
        assert!(format!("{:?}", failed.status).contains("node-0 has failed"));
        nodes
            .patch("node-0", &params, &label(Value::Null))
            .await
            .expect("the label goes");
        until(&nodes, "node-0", |node| is_ready(node) == Some(true)).await;
    })
    .await;
}

fn dynamic(client: &Client, api_version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    match kind {
        "Stage" => Api::all_with(client.clone(), &resource),
        _ => Api::default_namespaced_with(client.clone(), &resource),
    }
}

async fn make(client: &Client, plural: &str, object: Value) -> DynamicObject {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let api = dynamic(client, &text("apiVersion"), &text("kind"), plural);
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    soon("it is created", async {
        loop {
            match api.create(&Default::default(), &object).await {
                Ok(created) => return created,
                // The definition is served a moment after it was accepted.
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

async fn until_dynamic(api: &Api<DynamicObject>, name: &str, is: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
    soon(name, async {
        loop {
            match api.get_opt(name).await.expect("an answer") {
                Some(object) if is(&object) => return object,
                _ => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    })
    .await
}

fn lamps() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "metadata": {"name": "lamps.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Lamp", "plural": "lamps"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    })
}

/// A kind that comes after its stages: patches of three forms, and another object.
#[tokio::test]
async fn other_kinds_go_through_stages_too() {
    let lights = stage(
        "lights",
        "example.com/v1/Lamp",
        r#"
selector:
  matchExpressions:
  - {key: '.status.lit // false', operator: NotIn, values: ["true"]}
steps:
- patch: {subresource: status, root: status, template: "lit: true\nwatts: {{ mul 2 .spec.size }}"}
- patch: {type: json, root: spec, template: "[{op: add, path: /seen, value: true}]"}
- apply:
    template: |
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: light-of-{{ .metadata.name }}}
      data: {size: {{ .spec.size | Quote }}}
"#,
    );
    check_on(Cluster::builder().stages(stages(&[lights])), async |client| {
        create(&Api::<CustomResourceDefinition>::all(client.clone()), lamps()).await;
        make(
            &client,
            "lamps",
            json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "l"}, "spec": {"size": 3}}),
        )
        .await;
        let api = dynamic(&client, "example.com/v1", "Lamp", "lamps");
        let lit = until_dynamic(&api, "l", |lamp| lamp.data["spec"]["seen"] == true).await;
        assert_eq!(lit.data["status"], json!({"lit": true, "watts": 6}));
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let map = until(&maps, "light-of-l", |map| map.is_some()).await.expect("a map");
        assert_eq!(map.data.expect("data")["size"], "3");
    })
    .await;
}

/// Stages come, are wrong, and go while the cluster runs.
#[tokio::test]
async fn stages_are_objects() {
    check_on(Cluster::builder().stage_objects(), async |client| {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let object = |text: &str| -> Value { serde_saphyr::from_str(text).expect("YAML") };
        create(&pods, pod("before", "slow")).await;
        until(&pods, "before", |pod| has(pod, "Running")).await;
        let fails = stage(
            "fails",
            "Pod",
            "selector:\n  matchLabels: {app: slow}\n  matchExpressions:\n  - {key: .status.phase, operator: In, values: [Running]}\nnext:\n  statusTemplate: 'phase: Failed'\n",
        );
        let wrong = fails.replace("name: fails", "name: wrong").replace("In, values: [Running]", "In");
        make(&client, "stages", object(&wrong)).await;
        let why = said(&client, "wrong", "Invalid").await;
        assert!(why.contains("stage \"wrong\": ") && why.contains("need values"), "{why}");
        make(&client, "stages", object(&fails)).await;
        until(&pods, "before", |pod| has(pod, "Failed")).await;
        create(&pods, pod("meanwhile", "slow")).await;
        until(&pods, "meanwhile", |pod| has(pod, "Failed")).await;
        let api = dynamic(&client, "kwok.x-k8s.io/v1alpha1", "Stage", "stages");
        api.delete("fails", &DeleteParams::default()).await.expect("it is deleted");
        // The deletion is heard of a moment later.
        for number in 0.. {
            let name = format!("after-{number}");
            create(&pods, pod(&name, "slow")).await;
            let end = until(&pods, &name, |pod| has(pod, "Running") || has(pod, "Failed")).await;
            if has(end.as_ref(), "Running") {
                // What comes after it has come all the way, too.
                create(&pods, pod("last", "slow")).await;
                until(&pods, "last", |pod| has(pod, "Running")).await;
                let end = pods.get_opt(&name).await.expect("an answer");
                if has(end.as_ref(), "Running") {
                    break;
                }
                pods.delete("last", &DeleteParams::default()).await.expect("it is deleted");
                until(&pods, "last", |pod| pod.is_none()).await;
            }
        }
    })
    .await;
}
