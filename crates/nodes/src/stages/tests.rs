use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::stage::Step;
use super::*;

const CRASH: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: crash
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchLabels:
      app: db
    matchAnnotations: null
    matchExpressions:
    - key: .metadata.deletionTimestamp
      operator: DoesNotExist
    - jq:
        key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
        operator: In
        values: ["True"]
    - cel:
        expression: '!has(self.metadata.ownerReferences)'
  weight: 2
  weightFrom:
    expressionFrom: .metadata.annotations.weight
  delay:
    durationMilliseconds: 1500
    durationFrom:
      expressionFrom: .metadata.annotations.delay
  next:
    event: {type: Warning, reason: Crashed, message: it did}
    finalizers: {add: [{value: a}], remove: [{value: b}]}
    statusTemplate: |
      phase: Failed
      message: {{ .metadata.name }} ended
      startTime: {{ Now | Quote }}
"#;

fn crash() -> Stage {
    let stages = Stages::parse(CRASH).expect("a stage");
    Arc::into_inner(stages.0.into_iter().next().expect("one")).expect("nobody else has it")
}

fn pod(app: &str, ready: &str, annotations: Value) -> Value {
    json!({
        "metadata": {"name": "p", "labels": {"app": app}, "annotations": annotations},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

#[test]
fn whom_a_stage_fits_and_what_it_does() {
    let stage = crash();
    assert!(stage.is_of("v1", "Pod") && !stage.is_of("v1", "Node"));
    let none = json!({});
    assert!(!stage.fits(&pod("web", "True", none.clone())));
    assert!(!stage.fits(&pod("db", "False", none.clone())));
    let fitting = pod("db", "True", none);
    assert!(stage.fits(&fitting));
    let mut owned = fitting.clone();
    owned["metadata"]["ownerReferences"] = json!([]);
    assert!(!stage.fits(&owned));

    let around = Surroundings {
        now: Timestamp::UNIX_EPOCH,
        started: Timestamp::UNIX_EPOCH,
        node: None,
        node_ip: &str::to_owned,
        pod_ip: &String::new,
    };
    let [
        Step::Event(_, reason, _),
        Step::Finalizers(finalizers),
        Step::Patch(patch),
    ] = &stage.steps[..]
    else {
        panic!("{:?}", stage.steps);
    };
    assert_eq!(reason, "Crashed");
    assert_eq!(finalizers.after(&["b".to_owned(), "c".to_owned()]), ["c", "a"]);
    assert_eq!(patch.subresource, "status");
    let expected = json!({"status": {"phase": "Failed", "message": "p ended", "startTime": "1970-01-01T00:00:00Z"}});
    assert_eq!(patch.body(&fitting, &around), Ok(expected));
}

#[test]
fn weights_and_delays_come_from_the_object() {
    let stage = crash();
    let weight = |annotations: Value| stage.weight(&pod("db", "True", annotations));
    assert_eq!(weight(json!({})), Some(2));
    assert_eq!(weight(json!({"weight": "7"})), Some(7));
    assert_eq!(weight(json!({"weight": "much"})), None);
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let delay = |annotations: Value| stage.delay(&pod("db", "True", annotations), now, 0);
    assert_eq!(delay(json!({})), Duration::from_millis(1500));
    assert_eq!(delay(json!({"delay": "1m0.5s"})), Duration::from_millis(60_500));
    assert_eq!(delay(json!({"delay": "2026-01-01T00:00:10Z"})), Duration::from_secs(10));
    assert_eq!(delay(json!({"delay": "2025-01-01T00:00:10Z"})), Duration::ZERO);
    assert_eq!(delay(json!({"delay": "soon"})), Duration::from_millis(1500));
    assert_eq!(delay(json!({"delay": ""})), Duration::ZERO);
}

#[test]
fn jitter_lies_between_the_delays() {
    let text = CRASH.replace(
        "durationMilliseconds: 1500",
        "durationMilliseconds: 1000\n    jitterDurationMilliseconds: 5000",
    );
    let stages = Stages::parse(&text).expect("a stage");
    let delay = |draw| stages.0[0].delay(&pod("db", "True", json!({})), Timestamp::UNIX_EPOCH, draw);
    assert_eq!(delay(0), Duration::from_secs(1));
    for draw in [1, 77, u64::MAX / 3, u64::MAX] {
        assert!((1.0..5.0).contains(&delay(draw).as_secs_f64()), "{draw}");
    }
    // A jitter below the delay is the delay.
    let text = text.replace("jitterDurationMilliseconds: 5000", "jitterDurationMilliseconds: 10");
    let stages = Stages::parse(&text).expect("a stage");
    let delay = stages.0[0].delay(&pod("db", "True", json!({})), Timestamp::UNIX_EPOCH, 5);
    assert_eq!(delay, Duration::from_millis(10));
}

#[test]
fn patches_have_a_root_and_a_form() {
    let stage = |steps: &str| {
        let text = format!(
            "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {{name: s}}\nspec:\n  resourceRef: {{apiGroup: apps/v1, kind: Deployment}}\n  selector: {{}}\n  steps:\n{steps}"
        );
        Stages::parse(&text).expect("a stage")
    };
    let around = Surroundings {
        now: Timestamp::UNIX_EPOCH,
        started: Timestamp::UNIX_EPOCH,
        node: None,
        node_ip: &str::to_owned,
        pod_ip: &String::new,
    };
    let body = |stages: &Stages| match &stages.0[0].steps[0] {
        Step::Patch(patch) => patch.body(&json!({"x": 1}), &around).expect("a patch"),
        other => panic!("{other:?}"),
    };
    let merged = stage("  - patch: {root: metadata, template: '{\"labels\": {\"x\": \"{{ .x }}\"}}'}");
    assert_eq!(body(&merged), json!({"metadata": {"labels": {"x": "1"}}}));
    let operations =
        stage("  - patch: {root: spec, type: json, template: '[{\"op\": \"remove\", \"path\": \"/paused\"}]'}");
    assert_eq!(body(&operations), json!([{"op": "remove", "path": "/spec/paused"}]));
    let whole = stage("  - patch: {type: merge, template: '{\"a\": 1}'}");
    assert_eq!(body(&whole), json!({"a": 1}));
}

#[test]
fn what_is_refused() {
    let check = |from: &str, to: &str, expected: &str| {
        let error = Stages::parse(&CRASH.replace(from, to)).expect_err(to);
        assert!(
            error.contains("stage \"crash\": ") && error.contains(expected),
            "{error}"
        );
    };
    check("weight: 2", "wieght: 2", "unknown field `wieght`");
    check("weight: 2", "weight: -2", "invalid value: integer `-2`");
    check(
        "durationMilliseconds",
        "durationSeconds",
        "unknown field `durationSeconds`",
    );
    check("operator: DoesNotExist", "operator: Like", "unknown variant `Like`");
    check("operator: DoesNotExist", "operator: In", "In and NotIn need values");
    check(".metadata.deletionTimestamp", "nosuch | todate", "nosuch is not known");
    check(
        "!has(self.metadata.ownerReferences)",
        "!has(other.x)",
        "undeclared reference to 'other'",
    );
    check("{{ Now | Quote }}", "{{ range .spec.containers }}", "range has no end");
    check("{{ Now | Quote }}", "{{ Here }}", "function \"Here\" not defined");
    check("type: Warning", "type: Loud", "Normal or Warning, not \"Loud\"");
    check("kind: Stage", "kind: Plan", "kwok.x-k8s.io/v1alpha1 and Stage");
    let cut = Stages::parse("a: [").expect_err("no YAML");
    assert!(!cut.is_empty());
    let without = CRASH.split("  selector:").next().expect("the beginning");
    assert!(Stages::parse(without).expect("it fits nothing").0.is_empty());
}
