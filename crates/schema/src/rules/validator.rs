//! The rules of a version, run on a resource.
//!
//! A rule runs on every value of its schema that is not null. One with `oldSelf` runs where the value has an old one,
//! or everywhere when its `oldSelf` is optional. A violation of a rule without `oldSelf` in an unchanged value is no
//! error but a warning (ratcheting). All rules share one budget; when it is spent, the rest is not run, and that is an
//! error.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::messages::{follow, violation};
use super::{Compiled, CompiledRule, Rule, compile_rule};
use crate::correlate::{Correlation, Items, OldItems};
use crate::declare::declare;
use crate::error::FieldError;
use crate::path::FieldPath;
use crate::schema::{Schema, SchemaRef, Type};
use kubewright_cel::eval::{Error, OUT_OF_BUDGET, PER_CALL_LIMIT, Patterns, RUNTIME_BUDGET, Variables, evaluate};
use kubewright_cel::names::escape;
use kubewright_cel::types::Decl;
use kubewright_cel::value::Value as CelValue;
use kubewright_values::Minor;

/// The longest message that an expression may give, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// The compiled rules of a schema.
///
/// ```
/// use kubewright_schema::{SchemaRef, rules::{Patterns, Validator}};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({"type": "object", "properties": {
///     "size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only grows"}]},
/// }})).unwrap();
/// let validator = Validator::new(&schema).expect("there is a rule");
/// let patterns = Patterns::default(); // kept as long as the rules are
/// let outcome = validator.validate(&json!({"size": 1}), Some(&json!({"size": 2})), &patterns);
/// assert_eq!(outcome.errors[0].to_string(), "size: Invalid value: 1: only grows");
/// ```
#[derive(Debug)]
pub struct Validator {
    root: Node,
}

/// The findings of the rules in a resource.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why the resource is refused; empty when it is not.
    pub errors: Vec<FieldError>,
    /// Errors in unchanged parts: a warning to the client.
    pub ratcheted: Vec<FieldError>,
}

/// The rules of one schema and of those below it.
#[derive(Debug)]
struct Node {
    schema: SchemaRef,
    decl: Option<Decl>,
    rules: Vec<CompiledRule>,
    properties: BTreeMap<String, Node>,
    values: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

impl Validator {
    /// Compiles the rules of a resource's schema; none when it has none.
    pub fn new(schema: &SchemaRef) -> Option<Self> {
        Self::of(schema, true)
    }

    fn of(schema: &SchemaRef, is_resource: bool) -> Option<Self> {
        let decl = has_rules(schema).then(|| declare(schema, is_resource, "selfType"))?;
        let root = Node::new(schema, decl.as_ref())?;
        Some(Self { root })
    }

    /// Runs the rules on a resource that is otherwise valid. `old` is the object before the change, if it is one.
    pub fn validate(&self, object: &Value, old: Option<&Value>, patterns: &Patterns) -> Outcome {
        let ratchet = Ratchet {
            current: old.map(|old| Correlation::new(object, old, &self.root.schema)),
            parent: None,
        };
        let mut outcome = self.run(&FieldPath::root(), object, old, ratchet, patterns);
        // The resource itself has no name.
        for error in outcome.errors.iter_mut().chain(&mut outcome.ratcheted) {
            if error.field.is_empty() {
                "<nil>".clone_into(&mut error.field);
            }
        }
        outcome
    }

    fn run<'a>(
        &'a self,
        at: &FieldPath,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
        patterns: &Patterns,
    ) -> Outcome {
        let mut run = Run {
            patterns,
            budget: Some(RUNTIME_BUDGET),
            outcome: Outcome::default(),
        };
        run.node(&self.root, at, value, old, ratchet);
        run.outcome
    }
}

/// The findings of a schema's rules in its default, at the place of the default: it must be valid when it replaces
/// itself, and when it is new.
pub(crate) fn check_default(schema: &SchemaRef, value: &Value, at: &FieldPath, patterns: &Patterns) -> Vec<FieldError> {
    let Some(validator) = Validator::of(schema, schema.embedded_resource) else {
        return Vec::new();
    };
    let errors = validator
        .run(at, value, Some(value), Ratchet::default(), patterns)
        .errors;
    if errors.is_empty() {
        validator.run(at, value, None, Ratchet::default(), patterns).errors
    } else {
        errors
    }
}

fn has_rules(schema: &Schema) -> bool {
    !schema.validations.is_empty()
        || schema.items.iter().any(|items| has_rules(items))
        || schema.additional_properties.iter().any(|values| has_rules(values))
        || schema.properties.values().any(|property| has_rules(property))
}

impl Node {
    fn new(schema: &SchemaRef, decl: Option<&Decl>) -> Option<Self> {
        // What an older version refuses is in no definition that it serves.
        let compile = |decl: &Decl| {
            let rules = schema.validations.iter();
            rules
                .map(|rule| compile_rule(Rule::read(rule), decl, Minor::NEWEST))
                .collect()
        };
        let of_items = decl.and_then(|decl| decl.items.as_deref());
        let below = |schema: &Option<SchemaRef>| Self::new(schema.as_ref()?, of_items).map(Box::new);
        let mut properties = BTreeMap::new();
        for (name, property) in &schema.properties {
            let node = match escape(name) {
                Some(escaped) => {
                    let field = decl.and_then(|decl| decl.as_object()?.fields.get(escaped.as_str()));
                    field.and_then(|field| Self::new(property, Some(&field.decl)))
                }
                None => declare(property, property.embedded_resource, "selfType")
                    .and_then(|decl| Self::new(property, Some(&decl))),
            };
            properties.extend(node.map(|node| (name.clone(), node)));
        }
        let node = Self {
            rules: decl.map(compile).unwrap_or_default(),
            properties,
            values: below(&schema.additional_properties),
            items: below(&schema.items),
            decl: decl.cloned(),
            schema: schema.clone(),
        };
        let empty =
            node.rules.is_empty() && node.properties.is_empty() && node.values.is_none() && node.items.is_none();
        (!empty).then_some(node)
    }

    /// The type as errors that have no value show it.
    fn type_name(&self) -> &'static str {
        self.schema.type_.map_or("", Type::as_str)
    }
}

/// The value before, and that of the nearest value around that has one.
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    current: Option<Correlation<'a>>,
    parent: Option<Correlation<'a>>,
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlation::is_unchanged)
    }

    fn key(self, name: &str) -> Self {
        let Some(current) = self.current else { return self };
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self::default();
        }
        Self::below(current, current.key(name))
    }

    /// An item of the list, whose items with their old ones are `items`.
    fn index(self, items: Option<&Items<'a>>, index: usize) -> Self {
        match (self.current, items) {
            (Some(current), Some(items)) => Self::below(current, items.index(index)),
            _ => self,
        }
    }

    fn below(parent: Correlation<'a>, current: Option<Correlation<'a>>) -> Self {
        Self {
            current,
            parent: Some(parent),
        }
    }
}

/// The variables of a rule.
struct Activation<'a> {
    this: Result<CelValue<'a>, Error>,
    old: Option<Result<CelValue<'a>, Error>>,
}

impl<'a> Variables<'a> for Activation<'a> {
    fn get(&self, name: &str) -> Option<Result<CelValue<'a>, Error>> {
        match name {
            "self" => Some(self.this.clone()),
            "oldSelf" => self.old.clone(),
            _ => None,
        }
    }
}

/// One validation.
struct Run<'p> {
    patterns: &'p Patterns,
    /// The budget that is left for rules; none when no more are run.
    budget: Option<u64>,
    outcome: Outcome,
}

impl Run<'_> {
    fn node<'a>(
        &mut self,
        node: &'a Node,
        at: &FieldPath,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
    ) {
        if value.is_null() {
            return;
        }
        self.rules(node, at, value, old, ratchet);
        match value {
            Value::Object(fields) => self.fields(node, at, fields, old.and_then(Value::as_object), ratchet),
            Value::Array(items) => {
                let Some(of_items) = &node.items else { return };
                let old = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let old = OldItems::new(&node.schema, old);
                let before = ratchet.current.map(Correlation::items);
                for (index, item) in items.iter().enumerate() {
                    if self.budget.is_none() {
                        return;
                    }
                    let below = ratchet.index(before.as_ref(), index);
                    self.node(of_items, &at.index(index), item, old.of(item), below);
                }
            }
            _ => {}
        }
    }

    fn fields<'a>(
        &mut self,
        node: &'a Node,
        at: &FieldPath,
        fields: &'a Map<String, Value>,
        old: Option<&'a Map<String, Value>>,
        ratchet: Ratchet<'a>,
    ) {
        for (name, value) in fields {
            let (below, at) = match (&node.values, node.properties.get(name)) {
                (Some(values), _) => (&**values, at.map_key(name)),
                (None, Some(property)) => (property, at.key(name)),
                (None, None) => continue,
            };
            if self.budget.is_none() {
                return;
            }
            let old = old.and_then(|old| old.get(name));
            self.node(below, &at, value, old, ratchet.key(name));
        }
    }

    fn refuse(&mut self, node: &Node, at: &FieldPath, detail: String) {
        self.outcome
            .errors
            .push(FieldError::invalid(at, node.type_name(), detail));
    }

    fn rules<'a>(
        &mut self,
        node: &'a Node,
        at: &FieldPath,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
    ) {
        let (Some(decl), false) = (&node.decl, node.rules.is_empty()) else {
            return;
        };
        if self.budget == Some(0) {
            self.budget = None;
            return self.refuse(node, at, OUT_OF_BUDGET.to_owned());
        }
        let old = old.filter(|old| !old.is_null());
        let this = CelValue::from_declared(value, decl);
        let old_value = old.map(|old| CelValue::from_declared(old, decl));
        let optional = match old_value.clone() {
            Some(old) => old.map(CelValue::some),
            None => Ok(CelValue::Optional(None)),
        };
        let mut activation = Activation { this, old: old_value };
        for compiled in &node.rules {
            let program = match &compiled.program {
                Some(Ok(program)) => program,
                Some(Err(why)) => {
                    self.refuse(node, at, format!("rule compile error: {why}"));
                    continue;
                }
                None => continue,
            };
            let is_optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old.is_none() && !is_optional {
                continue;
            }
            let swapped = is_optional.then(|| activation.old.replace(optional.clone()));
            self.rule(node, compiled, program, at, value, &activation, ratchet);
            if let Some(old) = swapped {
                activation.old = old;
            }
            if self.budget.is_none() {
                return;
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of them make one evaluation")]
    fn rule<'a>(
        &mut self,
        node: &'a Node,
        compiled: &'a CompiledRule,
        program: &'a Compiled,
        at: &FieldPath,
        value: &'a Value,
        activation: &Activation<'a>,
        ratchet: Ratchet<'a>,
    ) {
        let name = compiled.rule.name();
        let outcome = evaluate(&program.program, activation, self.patterns, PER_CALL_LIMIT);
        if !self.spend(outcome.cost) {
            return self.refuse(node, at, OUT_OF_BUDGET.to_owned());
        }
        match outcome.result {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => self.violated(node, compiled, at, value, activation, ratchet),
            Err(error @ Error::CostExceeded) => {
                let why = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                );
                self.refuse(node, at, why);
                self.budget = None;
            }
            Err(error @ Error::NoOverload(_)) => {
                let why = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                );
                self.refuse(node, at, why);
            }
            Err(error) => self.refuse(node, at, format!("{error} evaluating rule: {name}")),
        }
    }

    /// Takes a cost from the budget; false, and the end, when there is not so much left.
    fn spend(&mut self, cost: u64) -> bool {
        self.budget = self.budget.and_then(|budget| budget.checked_sub(cost));
        self.budget.is_some()
    }

    fn violated<'a>(
        &mut self,
        node: &'a Node,
        compiled: &'a CompiledRule,
        at: &FieldPath,
        value: &Value,
        activation: &Activation<'a>,
        ratchet: Ratchet<'a>,
    ) {
        let rule = &compiled.rule;
        let at = match follow(&rule.field_path, &node.schema) {
            Some(below) if !below.is_root() => at.key(below.as_str()),
            _ => at.clone(),
        };
        let error = match self.message(compiled, activation) {
            Err(why) => FieldError::invalid(&at, node.type_name(), why),
            Ok(message) => {
                let detail = message.unwrap_or_else(|| {
                    if rule.message.is_empty() {
                        format!("failed rule: {}", rule.name())
                    } else {
                        rule.name().to_owned()
                    }
                });
                violation(&at, value, rule, detail)
            }
        };
        if !compiled.uses_old_self && ratchet.is_unchanged() {
            self.outcome.ratcheted.push(error);
        } else {
            self.outcome.errors.push(error);
        }
    }

    /// The text of the message expression; none when there is no expression, or when its result cannot be shown.
    ///
    /// # Errors
    /// The budget is spent.
    fn message<'a>(
        &mut self,
        compiled: &'a CompiledRule,
        activation: &Activation<'a>,
    ) -> Result<Option<String>, String> {
        let Some(Ok(message)) = &compiled.message else {
            return Ok(None);
        };
        let outcome = evaluate(&message.program, activation, self.patterns, PER_CALL_LIMIT);
        if !self.spend(outcome.cost) {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned(),
            );
        }
        let text = match outcome.result {
            Ok(CelValue::String(text)) => text.trim().to_owned(),
            Err(Error::CostExceeded) => {
                self.budget = None;
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    crate::error::quote(&compiled.rule.message_expression)
                ));
            }
            _ => return Ok(None),
        };
        let shown = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
        Ok(shown.then_some(text))
    }
}
