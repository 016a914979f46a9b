//! Stages: the lives of pods, in kwok's vocabulary (`kwok.x-k8s.io/v1alpha1`, kind Stage).
//!
//! The first stage whose selector fits a pod on a simulated node plays for it: after its delay it sends an event,
//! changes finalizers, merges its template into the status, or deletes. The pod of which a stage has said the status is
//! the stages' from then on; all others live as simulated pods do. Pure. Invariant: a field of a stage that is not
//! understood is refused when the stage is read, in words.
//!
//! Not here: stages of other kinds than Pod, weights, Go templates beyond values (`template`), jq beyond paths and
//! `select` (`select`).

mod select;
mod template;

use std::time::Duration;

use kubewright::EventType;
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use self::select::Requirement;
use self::template::Template;

/// The stages of a cluster, in their order.
#[derive(Clone, Debug, Default)]
pub struct Stages(Vec<Stage>);

#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) name: String,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    expressions: Vec<Requirement>,
    pub(super) delay: Duration,
    pub(super) event: Option<(EventType, String, String)>,
    pub(super) delete: bool,
    pub(super) finalizers: Option<Finalizers>,
    status: Option<Template>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Finalizers {
    empty: bool,
    add: Vec<String>,
    remove: Vec<String>,
}

impl Finalizers {
    /// The result for these.
    pub(super) fn of(&self, present: &[String]) -> Vec<String> {
        let stays = |one: &&String| !self.empty && !self.remove.contains(one);
        let mut next: Vec<String> = present.iter().filter(stays).cloned().collect();
        next.extend(self.add.iter().filter(|one| !present.contains(one)).cloned());
        next
    }
}

impl Stages {
    /// Reads stages from YAML, one or more documents.
    ///
    /// # Errors
    /// The error, with the stage that it is about.
    pub fn parse(text: &str) -> Result<Stages, String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
        let documents = documents.iter().filter(|document| !document.is_null());
        documents.map(Stage::of).collect::<Result<_, _>>().map(Stages)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The stage that plays for a pod.
    pub(super) fn of(&self, pod: &Value) -> Option<&Stage> {
        self.0.iter().find(|stage| stage.selects(pod))
    }
}

/// An object of which only these keys are understood.
fn only<'a>(value: &'a Value, at: &str, known: &[&str]) -> Result<&'a Value, String> {
    let Some(map) = value.as_object() else {
        return if value.is_null() {
            Ok(value)
        } else {
            Err(format!("{at} is no object"))
        };
    };
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(unknown) => Err(format!(
            "{at}.{unknown} is not supported; known there: {}",
            known.join(", ")
        )),
        None => Ok(value),
    }
}

fn pairs(value: &Value, at: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = value.as_object().into_iter().flatten();
    let pair = |(key, value): (&String, &Value)| {
        let text = value.as_str().ok_or_else(|| format!("{at}.{key} is no text"))?;
        Ok((key.clone(), text.to_owned()))
    };
    pairs.map(pair).collect()
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    // kwok writes finalizers as `- value: name`.
    all.filter_map(|one| one.as_str().or_else(|| one["value"].as_str()).map(str::to_owned))
        .collect()
}

impl Stage {
    fn of(document: &Value) -> Result<Stage, String> {
        let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Stage::read(document, &name).map_err(|why| format!("stage {name:?}: {why}"))
    }

    fn read(document: &Value, name: &str) -> Result<Stage, String> {
        only(document, "it", &["apiVersion", "kind", "metadata", "spec"])?;
        if (document["apiVersion"].as_str(), document["kind"].as_str())
            != (Some("kwok.x-k8s.io/v1alpha1"), Some("Stage"))
        {
            return Err("its apiVersion and kind are not kwok.x-k8s.io/v1alpha1 and Stage".to_owned());
        }
        let spec = only(&document["spec"], "spec", &["resourceRef", "selector", "delay", "next"])?;
        let kind = only(&spec["resourceRef"], "spec.resourceRef", &["apiGroup", "kind"])?;
        if kind["kind"].as_str() != Some("Pod") {
            return Err(format!(
                "spec.resourceRef.kind is {}; only stages of Pod are supported",
                kind["kind"]
            ));
        }
        let known = ["matchLabels", "matchAnnotations", "matchExpressions"];
        let selector = only(&spec["selector"], "spec.selector", &known)?;
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
        let delay = only(&spec["delay"], "spec.delay", &["durationMilliseconds"])?;
        let known = ["event", "delete", "finalizers", "statusTemplate"];
        let next = only(&spec["next"], "spec.next", &known)?;
        let event = only(&next["event"], "spec.next.event", &["type", "reason", "message"])?;
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let kind = if text("type") == "Warning" {
            EventType::Warning
        } else {
            EventType::Normal
        };
        let finalizers = only(&next["finalizers"], "spec.next.finalizers", &["empty", "add", "remove"])?;
        Ok(Stage {
            name: name.to_owned(),
            labels: pairs(&selector["matchLabels"], "spec.selector.matchLabels")?,
            annotations: pairs(&selector["matchAnnotations"], "spec.selector.matchAnnotations")?,
            expressions: expressions.map(Requirement::of).collect::<Result<_, _>>()?,
            delay: Duration::from_millis(delay["durationMilliseconds"].as_u64().unwrap_or(0)),
            event: event.is_object().then(|| (kind, text("reason"), text("message"))),
            delete: next["delete"].as_bool().unwrap_or(false),
            finalizers: finalizers.is_object().then(|| Finalizers {
                empty: finalizers["empty"].as_bool().unwrap_or(false),
                add: texts(&finalizers["add"]),
                remove: texts(&finalizers["remove"]),
            }),
            status: next["statusTemplate"].as_str().map(Template::of).transpose()?,
        })
    }

    fn selects(&self, pod: &Value) -> bool {
        let has = |of: &str, pairs: &[(String, String)]| {
            let map = &pod["metadata"][of];
            pairs
                .iter()
                .all(|(key, value)| map[key.as_str()].as_str() == Some(value))
        };
        has("labels", &self.labels)
            && has("annotations", &self.annotations)
            && self.expressions.iter().all(|wanted| wanted.holds(pod))
    }

    /// The stage's patch of a pod's status.
    pub(super) fn status(&self, pod: &Value, now: Timestamp) -> Result<Option<Value>, String> {
        self.status
            .as_ref()
            .map(|template| template.render(pod, now))
            .transpose()
    }
}

/// A pod as stages see it.
pub(super) fn seen(pod: &Pod) -> Value {
    serde_json::to_value(pod).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    matchExpressions:
    - key: .metadata.deletionTimestamp
      operator: DoesNotExist
    - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
      operator: In
      values: ["True"]
  delay:
    durationMilliseconds: 1500
  next:
    event: {type: Warning, reason: Crashed, message: it did}
    finalizers: {add: [{value: a}], remove: [{value: b}]}
    statusTemplate: |
      {{ $now := Now }}
      phase: Failed
      message: {{ .metadata.name }} ended
      startTime: {{ $now | Quote }}
"#;

    #[test]
    fn a_stage() {
        let stages = Stages::parse(CRASH).expect("a stage");
        let pod = |app: &str, ready: &str| json!({ "metadata": { "name": "p", "labels": { "app": app } }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        assert!(stages.of(&pod("web", "True")).is_none());
        assert!(stages.of(&pod("db", "False")).is_none());
        let stage = stages.of(&pod("db", "True")).expect("it fits");
        assert_eq!((stage.name.as_str(), stage.delay.as_millis()), ("crash", 1500));
        let finalizers = stage.finalizers.as_ref().expect("some");
        assert_eq!(finalizers.of(&["b".to_owned(), "c".to_owned()]), ["c", "a"]);
        let status = stage.status(&pod("db", "True"), Timestamp::UNIX_EPOCH);
        let expected = json!({ "phase": "Failed", "message": "p ended", "startTime": "1970-01-01T00:00:00Z" });
        assert_eq!(status, Ok(Some(expected)));
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
        check("kind: Pod", "kind: Node", "only stages of Pod are supported");
        check("  delay:", "  weight: 3\n  delay:", "spec.weight is not supported");
        check(
            "durationMilliseconds",
            "jitterDurationMilliseconds",
            "spec.delay.jitterDurationMilliseconds is not supported",
        );
        check("operator: DoesNotExist", "operator: Like", "operator \"Like\"");
        check(".metadata.deletionTimestamp", "now | todate", "now | todate");
        check(
            "{{ $now := Now }}",
            "{{ range .spec.containers }}",
            "range .spec.containers",
        );
        check("kind: Stage", "kind: Plan", "kwok.x-k8s.io/v1alpha1 and Stage");
    }
}
