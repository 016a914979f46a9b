//! `matchConditions` of an authorization webhook: CEL expressions that all must hold before it is asked (KEP-3221).
//!
//! Invariant: expressions are compiled when the settings are read; one that does not compile is an error there.

use std::sync::{Arc, LazyLock};

use kubewright_cel::eval::{Bindings, MATCH_CONDITIONS_BUDGET, Patterns, evaluate};
use kubewright_cel::types::{Decl, Type};
use kubewright_cel::value::Value as Cel;
use kubewright_cel::{Environment, Program, compile};
use kubewright_schema::{Minor, budget};
use serde_json::{Map, Value, json};

/// Compiled conditions. Empty ones always hold.
#[derive(Clone, Default)]
pub struct Conditions(Arc<Vec<Condition>>);

struct Condition {
    source: String,
    program: Program,
}

impl std::fmt::Debug for Conditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.sources()).finish()
    }
}

impl PartialEq for Conditions {
    fn eq(&self, other: &Conditions) -> bool {
        self.sources().eq(other.sources())
    }
}

impl Conditions {
    /// Compiles expressions over `request`, the `spec` of a SubjectAccessReview in version v1.
    ///
    /// # Errors
    /// The index of the first expression that does not compile, and why.
    pub fn compile<'a>(sources: impl IntoIterator<Item = &'a str>) -> Result<Conditions, (usize, String)> {
        let compiled = sources.into_iter().enumerate().map(|(at, source)| {
            let program = compile_one(source).map_err(|why| (at, why))?;
            Ok(Condition {
                source: source.to_owned(),
                program,
            })
        });
        let compiled: Result<Vec<_>, _> = compiled.collect();
        Ok(Conditions(Arc::new(compiled?)))
    }

    fn sources(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|condition| condition.source.as_str())
    }

    /// Whether the webhook is asked about a request; a single false condition decides, even when others fail with
    /// errors.
    pub(super) fn evaluate(&self, spec: &Value, patterns: &Patterns) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let request = seen(spec);
        let bindings = Bindings::new().with("request", Cel::from_json(&request));
        let mut budget = MATCH_CONDITIONS_BUDGET;
        let mut errors: Vec<String> = Vec::new();
        for condition in &*self.0 {
            let outcome = evaluate(&condition.program, &bindings, patterns, budget);
            budget = budget.saturating_sub(outcome.cost);
            match outcome.result {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(other) => errors.push(format!("{} is no bool", other.type_name())),
                Err(why) => errors.push(format!("cel evaluation error: {why}")),
            }
        }
        match super::super::aggregate(errors) {
            none if none.is_empty() => Ok(true),
            why => Err(why),
        }
    }
}

fn compile_one(source: &str) -> Result<Program, String> {
    let environment = Environment::new()
        .of_minor(Minor::OLDEST)
        .variable("request", REQUEST.clone());
    let program = compile(source, &environment).map_err(|issues| format!("compilation failed: {issues}"))?;
    match program.result_type() {
        Type::Bool => Ok(program),
        _ => Err("must evaluate to bool".to_owned()),
    }
}

/// The spec as expressions see it: all texts of a present part are there, empty or not (`convertObjectToUnstructured`).
fn seen(spec: &Value) -> Value {
    const RESOURCE: [&str; 7] = [
        "namespace",
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "name",
    ];
    let mut seen = spec.clone();
    let fill = |map: Option<&mut Value>, names: &[&str]| {
        if let Some(Value::Object(map)) = map {
            for name in names {
                map.entry(*name).or_insert_with(|| json!(""));
            }
        }
    };
    fill(Some(&mut seen), &["user", "uid"]);
    fill(seen.get_mut("resourceAttributes"), &RESOURCE);
    fill(seen.get_mut("nonResourceAttributes"), &["path", "verb"]);
    if let Some(map) = seen.as_object_mut() {
        map.entry("groups").or_insert_with(|| json!([]));
        map.entry("extra").or_insert_with(|| Value::Object(Map::new()));
    }
    seen
}

static REQUEST: LazyLock<Decl> = LazyLock::new(|| {
    budget::unlimited(|| {
        let text = || Decl::new(Type::String);
        let texts = || Decl::new(Type::list(Type::String));
        let requirement = Decl::object(
            "kubernetes.SelectorRequirement",
            [("key", text()), ("operator", text()), ("values", texts())],
        );
        let selector = |name: &str| {
            let requirements = Decl::new(Type::list(requirement.ty.clone()));
            Decl::object(name, [("rawSelector", text()), ("requirements", requirements)])
        };
        let resource = [
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
            ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
        ];
        let path = [("path", text()), ("verb", text())];
        let extra = Decl::new(Type::map(Type::String, Type::list(Type::String)));
        let spec = [
            (
                "resourceAttributes",
                Decl::object("kubernetes.ResourceAttributes", resource),
            ),
            (
                "nonResourceAttributes",
                Decl::object("kubernetes.NonResourceAttributes", path),
            ),
            ("user", text()),
            ("groups", texts()),
            ("extra", extra),
            ("uid", text()),
        ];
        Decl::object("kubernetes.SubjectAccessReviewSpec", spec)
    })
});
