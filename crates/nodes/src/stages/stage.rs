//! A stage that was read: whom it fits, when it plays, and its steps. Pure.
//!
//! Semantics are those of kwok's `pkg/utils/lifecycle`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use kubewright::EventType;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_cel::eval::{Bindings, PER_CALL_LIMIT, Patterns, evaluate};
use kubewright_cel::types::{Decl, Type};
use kubewright_cel::value::Value as Computed;
use kubewright_cel::{Environment, Program, compile};
use serde_json::{Value, json};

use super::jq::Query;
use super::spec::{self, Operator, PatchType};
use super::template::{Surroundings, Template};

/// The group and version of stages.
const VERSION: &str = "kwok.x-k8s.io/v1alpha1";

/// A stage.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    expressions: Vec<Expression>,
    weight: i64,
    weight_from: Option<Source>,
    delay: Option<Timing>,
    jitter: Option<Timing>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
enum Expression {
    Cel(Box<Program>),
    Jq(Query, Operator, Vec<String>),
}

/// Where a number or a time comes from.
#[derive(Debug)]
enum Source {
    Cel(Box<Program>),
    Jq(Query),
}

#[derive(Debug)]
struct Timing {
    usual: Option<SignedDuration>,
    from: Option<Source>,
}

/// What a stage does, one after the other.
#[derive(Debug)]
pub(super) enum Step {
    Event(EventType, String, String),
    Finalizers(spec::Finalizers),
    Delete,
    Patch(Patch),
    Apply(Apply),
}

#[derive(Debug)]
pub(super) struct Patch {
    pub(super) subresource: String,
    root: String,
    template: Template,
    pub(super) form: PatchType,
    pub(super) user: Option<String>,
}

#[derive(Debug)]
pub(super) struct Apply {
    template: Template,
    pub(super) subresource: String,
    pub(super) form: PatchType,
    pub(super) user: Option<String>,
}

impl Stage {
    /// Reads a stage; `None` when it fits nothing, because it has no selector.
    ///
    /// # Errors
    /// What is wrong with it, with its name.
    pub(super) fn of(document: Value) -> Result<Option<Stage>, String> {
        let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Stage::read(document, &name).map_err(|why| format!("stage {name:?}: {why}"))
    }

    fn read(document: Value, name: &str) -> Result<Option<Stage>, String> {
        let text = |field: &str| document[field].as_str().unwrap_or_default();
        if (text("apiVersion"), text("kind")) != (VERSION, "Stage") {
            return Err(format!("its apiVersion and kind are not {VERSION} and Stage"));
        }
        let spec = spec::read(document)?.spec;
        let Some(selector) = spec.selector else {
            return Ok(None);
        };
        let is_builtin = spec.resource_ref.api_version == "v1" && matches!(&*spec.resource_ref.kind, "Pod" | "Node");
        let (delay, jitter) = match spec.delay {
            None => (None, None),
            Some(delay) => {
                let jitters = delay.jitter_duration_milliseconds.is_some() || delay.jitter_duration_from.is_some();
                let usual = Some(delay.duration_milliseconds.unwrap_or(0));
                let jitter = (delay.jitter_duration_milliseconds, delay.jitter_duration_from);
                (
                    Some(Timing::of(usual, delay.duration_from)?),
                    jitters.then(|| Timing::of(jitter.0, jitter.1)).transpose()?,
                )
            }
        };
        let steps = match (spec.steps.is_empty(), spec.next) {
            (true, Some(next)) => of_next(next),
            _ => spec.steps,
        };
        let mut all = Vec::new();
        for step in steps {
            Step::add(step, is_builtin, &mut all)?;
        }
        Ok(Some(Stage {
            name: name.to_owned(),
            api_version: spec.resource_ref.api_version,
            kind: spec.resource_ref.kind,
            labels: selector.match_labels,
            annotations: selector.match_annotations,
            expressions: selector
                .match_expressions
                .into_iter()
                .map(Expression::of)
                .collect::<Result<_, _>>()?,
            weight: i64::from(spec.weight),
            weight_from: spec.weight_from.map(Source::of).transpose()?,
            delay,
            jitter,
            steps: all,
        }))
    }

    /// Whether it is for objects of this kind.
    pub(super) fn is_of(&self, api_version: &str, kind: &str) -> bool {
        self.api_version == api_version && self.kind == kind
    }

    /// Whether it fits an object. An expression that cannot be evaluated for it does not.
    pub(super) fn fits(&self, object: &Value) -> bool {
        let has = |of: &str, pairs: &BTreeMap<String, String>| {
            let map = &object["metadata"][of];
            pairs
                .iter()
                .all(|(key, value)| map[key.as_str()].as_str() == Some(value))
        };
        has("labels", &self.labels)
            && has("annotations", &self.annotations)
            && self.expressions.iter().all(|expression| expression.holds(object))
    }

    /// Its weight among those that fit; `None` when the object says none.
    pub(super) fn weight(&self, object: &Value) -> Option<i64> {
        match &self.weight_from {
            None => Some(self.weight),
            Some(Source::Cel(program)) => match evaluated(program, object) {
                Some(Computed::Int(weight)) => Some(weight),
                _ => None,
            },
            Some(Source::Jq(query)) => match query.values(object).first() {
                Some(Value::String(text)) => text.parse().ok(),
                Some(Value::Number(number)) => number.as_i64(),
                _ => Some(self.weight),
            },
        }
    }

    /// How long it waits; `draw` is a random number.
    pub(super) fn delay(&self, object: &Value, now: Timestamp, draw: u64) -> Duration {
        let get = |timing: &Option<Timing>| timing.as_ref().and_then(|timing| timing.get(object, now));
        let positive = |span: SignedDuration| Duration::try_from(span).unwrap_or_default();
        let Some(least) = get(&self.delay) else {
            return Duration::ZERO;
        };
        match get(&self.jitter) {
            None => positive(least),
            Some(most) if most <= least => positive(most),
            Some(most) => {
                let span = most.as_nanos().saturating_sub(least.as_nanos()).unsigned_abs().max(1);
                let more = u64::try_from(u128::from(draw) % span).unwrap_or(u64::MAX);
                positive(least).saturating_add(Duration::from_nanos(more))
            }
        }
    }
}

/// The steps of `next`, in kwok's order.
fn of_next(next: spec::Next) -> Vec<spec::StageStep> {
    let mut steps = Vec::new();
    if next.event.is_some() {
        steps.push(spec::StageStep {
            event: next.event,
            ..spec::StageStep::default()
        });
    }
    if next.finalizers.is_some() {
        steps.push(spec::StageStep {
            finalizers: next.finalizers,
            ..spec::StageStep::default()
        });
    }
    let of_status = |template| spec::Patch {
        subresource: next.status_subresource.unwrap_or_else(|| "status".to_owned()),
        root: "status".to_owned(),
        template,
        form: None,
        impersonation: next.status_patch_as,
    };
    let patches = match next.patches.is_empty() {
        true => next
            .status_template
            .filter(|text| !text.is_empty())
            .map(of_status)
            .into_iter()
            .collect(),
        false => next.patches,
    };
    steps.extend(patches.into_iter().map(|patch| spec::StageStep {
        patch: Some(patch),
        ..spec::StageStep::default()
    }));
    if next.delete {
        steps.push(spec::StageStep {
            delete: true,
            ..spec::StageStep::default()
        });
    }
    steps
}

impl Step {
    /// One step of kwok's may be several: event, finalizers, deletion, patch, apply.
    fn add(step: spec::StageStep, is_builtin: bool, all: &mut Vec<Step>) -> Result<(), String> {
        if let Some(event) = step.event {
            let kind = match event.kind.as_str() {
                "Warning" => EventType::Warning,
                "Normal" | "" => EventType::Normal,
                other => return Err(format!("an event is Normal or Warning, not {other:?}")),
            };
            all.push(Step::Event(kind, event.reason, event.message));
        }
        all.extend(step.finalizers.map(Step::Finalizers));
        if step.delete {
            all.push(Step::Delete);
            return Ok(());
        }
        if let Some(patch) = step.patch {
            let usual = if is_builtin {
                PatchType::Strategic
            } else {
                PatchType::Merge
            };
            let form = patch.form.unwrap_or(usual);
            if form == PatchType::Apply {
                return Err("the type of a patch is json, merge or strategic".to_owned());
            }
            all.push(Step::Patch(Patch {
                subresource: patch.subresource,
                root: patch.root,
                template: Template::of(&patch.template)?,
                form,
                user: patch.impersonation.map(|user| user.username),
            }));
        }
        if let Some(apply) = step.apply {
            let form = apply.form.unwrap_or(PatchType::Apply);
            if form == PatchType::Json {
                return Err("the type of apply is apply, merge or strategic".to_owned());
            }
            all.push(Step::Apply(Apply {
                template: Template::of(&apply.template)?,
                subresource: apply.subresource,
                form,
                user: apply.impersonation.map(|user| user.username),
            }));
        }
        Ok(())
    }
}

impl Patch {
    /// The patch for an object.
    pub(super) fn body(&self, object: &Value, around: &Surroundings<'_>) -> Result<Value, String> {
        let mut value = self.template.value(object, around)?;
        if self.root.is_empty() {
            return Ok(value);
        }
        if self.form != PatchType::Json {
            return Ok(json!({ &self.root: value }));
        }
        for operation in value.as_array_mut().into_iter().flatten() {
            let path = format!("/{}{}", self.root, operation["path"].as_str().unwrap_or_default());
            operation["path"] = Value::from(path);
        }
        Ok(value)
    }
}

impl Apply {
    /// The object that is applied for this one.
    pub(super) fn body(&self, object: &Value, around: &Surroundings<'_>) -> Result<Value, String> {
        self.template.value(object, around)
    }
}

impl spec::Finalizers {
    /// The finalizers after this step.
    pub(super) fn after(&self, present: &[String]) -> Vec<String> {
        let named = |listed: &[spec::Finalizer], name: &String| listed.iter().any(|one| one.value == *name);
        let stays = |one: &&String| !self.empty && !named(&self.remove, one);
        let mut next: Vec<String> = present.iter().filter(stays).cloned().collect();
        for one in &self.add {
            if !next.contains(&one.value) {
                next.push(one.value.clone());
            }
        }
        next
    }
}

impl Expression {
    fn of(expression: spec::Expression) -> Result<Expression, String> {
        let (key, operator, values) = match (expression.jq, expression.cel, expression.key, expression.operator) {
            (Some(jq), None, None, None) => (jq.key, jq.operator, jq.values),
            (None, None, Some(key), Some(operator)) => (key, operator, expression.values),
            (None, Some(cel), None, None) => return program(&cel.expression).map(Expression::Cel),
            _ => return Err("an expression of a selector is one of cel, jq, and key with operator".to_owned()),
        };
        match (operator, values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => Err(format!("{key}: In and NotIn need values")),
            (Operator::Exists | Operator::DoesNotExist, false) => {
                Err(format!("{key}: Exists and DoesNotExist take no values"))
            }
            _ => Ok(Expression::Jq(Query::of(&key)?, operator, values)),
        }
    }

    fn holds(&self, object: &Value) -> bool {
        let (query, operator, wanted) = match self {
            Expression::Cel(program) => return matches!(evaluated(program, object), Some(Computed::Bool(true))),
            Expression::Jq(query, operator, wanted) => (query, operator, wanted),
        };
        let found = query.values(object);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let is_one = || found.iter().any(|value| wanted.contains(&text(value)));
        match operator {
            Operator::In => is_one(),
            Operator::NotIn => !is_one(),
            Operator::Exists => !found.is_empty(),
            Operator::DoesNotExist => found.is_empty(),
        }
    }
}

fn program(text: &str) -> Result<Box<Program>, String> {
    let environment = Environment::new().variable("self", Decl::new(Type::Dyn));
    compile(text, &environment).map(Box::new).map_err(|why| why.to_string())
}

fn evaluated<'a>(program: &'a Program, object: &'a Value) -> Option<Computed<'a>> {
    let variables = Bindings::new().with("self", Computed::from_json(object));
    evaluate(program, &variables, &Patterns::default(), PER_CALL_LIMIT)
        .result
        .ok()
}

impl Source {
    fn of(from: spec::From) -> Result<Source, String> {
        match (from.cel, from.jq, from.expression_from) {
            (Some(cel), None, None) => program(&cel.expression).map(Source::Cel),
            (None, Some(spec::Jq { expression }), None) | (None, None, Some(expression)) => {
                Query::of(&expression).map(Source::Jq)
            }
            _ => Err("a value comes from one of cel, jq and expressionFrom".to_owned()),
        }
    }
}

impl Timing {
    fn of(milliseconds: Option<u64>, from: Option<spec::From>) -> Result<Timing, String> {
        let milliseconds = milliseconds.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        Ok(Timing {
            usual: milliseconds.map(SignedDuration::from_millis),
            from: from.map(Source::of).transpose()?,
        })
    }

    /// A time of day is as long as it is away; a text is Go's duration, and an empty one is none.
    fn get(&self, object: &Value, now: Timestamp) -> Option<SignedDuration> {
        let text = match &self.from {
            None => return self.usual,
            Some(Source::Cel(program)) => match evaluated(program, object) {
                Some(Computed::Duration(duration)) => return Some(SignedDuration::from_nanos(duration.0)),
                Some(Computed::String(text)) => text.to_string(),
                _ => return None,
            },
            Some(Source::Jq(query)) => match query.values(object).into_iter().next() {
                Some(Value::String(text)) if text.is_empty() => return None,
                Some(Value::String(text)) => text,
                _ => return self.usual,
            },
        };
        let at = text.parse::<Timestamp>().ok().map(|at| at.duration_since(now));
        at.or_else(|| text.parse().ok()).or(self.usual)
    }
}
