//! The rules of a definition that is being written.

use std::collections::BTreeSet;

use super::{CompiledRule, Rule, compile_rule};
use crate::declare::declare_in;
use crate::error::FieldError;
use crate::path::FieldPath;
use crate::schema::{ListType, Schema, SchemaRef, Type};
use crate::{Minor, budget};
use kubewright_cel::types::Decl;

/// The most that a single rule may cost.
const RULE_LIMIT: u64 = 10_000_000;
/// The most that all rules of a schema may cost together.
const TOTAL_LIMIT: u64 = 100_000_000;
/// The largest request, in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// The name of the type of `self`; its parts are named after it.
const SELF_TYPE: &str = "selfType";

/// The errors in the rules of a schema; empty when there are none.
///
/// `schema` is the `openAPIV3Schema` of a version, `at` its place. `mistakes` are the errors that were already found in
/// it: the rules of a schema with a mistake in it, or below it, are not compiled. `unchanged` says that the definition
/// had the same schema before: then no single rule is too expensive, so that a newer server takes the definitions of an
/// older one.
///
/// ```
/// use kubewright_schema::{Minor, SchemaRef, rules::check, path::FieldPath};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({"type": "object", "properties": {
///     "size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self"}]},
/// }})).unwrap();
/// let errors = check(&schema, &FieldPath::new("schema"), &[], false, Minor::V36);
/// assert_eq!(errors[0].field, "schema.properties[size].x-kubernetes-validations[0].rule");
/// assert_eq!(errors[0].detail, "cel expression must evaluate to a bool");
/// ```
pub fn check(
    schema: &SchemaRef,
    at: &FieldPath,
    mistakes: &[FieldError],
    unchanged: bool,
    minor: Minor,
) -> Vec<FieldError> {
    let mut checker = Checker {
        mistakes: mistakes.iter().map(|error| error.field.as_str()).collect(),
        unchanged,
        minor,
        errors: Vec::new(),
        total: 0,
        expensive: Vec::new(),
    };
    let root = Place {
        at: at.clone(),
        root: true,
        cardinality: Some(1),
        uncorrelatable: None,
    };
    checker.schema(schema, &root);
    checker.totals(at);
    checker.errors
}

/// Where a schema stands.
struct Place {
    at: FieldPath,
    root: bool,
    /// How many values there may be of it; none when nothing bounds their number.
    cardinality: Option<u64>,
    /// The outermost list whose items have no old value.
    uncorrelatable: Option<FieldPath>,
}

struct Checker<'a> {
    /// The fields in which mistakes were found.
    mistakes: BTreeSet<&'a str>,
    unchanged: bool,
    minor: Minor,
    errors: Vec<FieldError>,
    total: u64,
    /// The most expensive rules, the first being the worst.
    expensive: Vec<(FieldPath, u64)>,
}

impl Checker<'_> {
    fn schema(&mut self, schema: &Schema, place: &Place) {
        let child = |at: FieldPath, schema_of: &Schema| Place {
            at,
            root: schema_of.embedded_resource,
            cardinality: place
                .cardinality
                .zip(multiplicity(schema))
                .map(|(cardinality, times)| cardinality.saturating_mul(times)),
            uncorrelatable: place.uncorrelatable.clone(),
        };
        if let Some(values) = &schema.additional_properties {
            self.schema(values, &child(place.at.key("additionalProperties"), values));
        }
        for (name, property) in &schema.properties {
            self.schema(property, &child(place.at.key("properties").map_key(name), property));
        }
        if let Some(items) = &schema.items {
            let mut below = child(place.at.key("items"), items);
            if schema.list_type != Some(ListType::Map) && below.uncorrelatable.is_none() {
                below.uncorrelatable = Some(place.at.clone());
            }
            self.schema(items, &below);
        }
        if !schema.validations.is_empty() && !self.is_mistaken(&place.at) {
            self.rules(schema, place);
        }
    }

    /// Whether a mistake was found in the schema at this place or below it.
    fn is_mistaken(&self, at: &FieldPath) -> bool {
        let begins = |with: &str| {
            let mut from = self.mistakes.range(with..);
            from.next().is_some_and(|field| field.starts_with(with))
        };
        budget::spend_on_text(at.as_str().len());
        self.mistakes.contains(at.as_str()) || begins(&format!("{at}.")) || begins(&format!("{at}["))
    }

    fn rules(&mut self, schema: &Schema, place: &Place) {
        let at = place.at.key("x-kubernetes-validations");
        let Some(decl) = declare_in(self.minor, schema, place.root, SELF_TYPE) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                       unable to convert structural schema to CEL declarations";
            return self.errors.push(FieldError::internal(&at, why));
        };
        for (index, rule) in schema.validations.iter().enumerate() {
            let compiled = compile_rule(Rule::read(rule), &decl, self.minor);
            self.rule(&compiled, &decl, &at.index(index), place);
        }
    }

    fn rule(&mut self, compiled: &CompiledRule, decl: &Decl, at: &FieldPath, place: &Place) {
        let rule = &compiled.rule;
        let here = at.key("rule");
        let max_cost = match &compiled.program {
            Some(Ok(program)) => program.max_cost,
            _ => 0,
        };
        let times = place
            .cardinality
            .unwrap_or(MAX_REQUEST / (decl.min_serialized_size + 1));
        self.observe(&here, "estimated rule cost", max_cost.saturating_mul(times));
        if let Some(Err(why)) = &compiled.program {
            self.errors.push(FieldError::invalid(&here, rule.shown(), why.as_str()));
        }
        match &compiled.message {
            Some(Err(why)) => {
                let at = at.key("messageExpression");
                self.errors.push(FieldError::invalid(&at, rule.shown(), why.as_str()));
            }
            Some(Ok(message)) => {
                let at = at.key("messageExpression");
                self.observe(&at, "estimated messageExpression cost", message.max_cost);
            }
            None => {}
        }
        if compiled.uses_old_self {
            if let Some(within) = &place.uncorrelatable {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                self.errors.push(FieldError::invalid(&here, rule.rule.as_str(), why));
            }
        } else if let Some(optional) = rule.optional_old_self {
            let why = "may not be set if oldSelf is not used in rule";
            self.errors
                .push(FieldError::invalid(at.key("optionalOldSelf"), optional, why));
        }
    }

    /// Adds the cost of one expression, and refuses it when it alone is too much.
    fn observe(&mut self, at: &FieldPath, name: &str, cost: u64) {
        if cost > RULE_LIMIT && !self.unchanged {
            let why = over_budget(name, cost, RULE_LIMIT);
            self.errors.push(FieldError::forbidden(at, why));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= TOTAL_LIMIT / 100 {
            self.expensive.push((at.clone(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(4);
        }
    }

    fn totals(&mut self, at: &FieldPath) {
        if self.total <= TOTAL_LIMIT {
            return;
        }
        for (at, _) in &self.expensive {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.push(FieldError::forbidden(at, why));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let why = over_budget(name, self.total, TOTAL_LIMIT);
        self.errors.push(FieldError::forbidden(at, why));
    }
}

/// By how much a schema multiplies the number of its children; none when nothing bounds it.
fn multiplicity(schema: &Schema) -> Option<u64> {
    let bound = match schema.type_ {
        Some(Type::Object)
            if schema.additional_properties.is_some() || schema.additional_properties_allowed.is_some() =>
        {
            schema.max_properties?
        }
        Some(Type::Array) => schema.max_items?,
        _ => 1,
    };
    Some(u64::try_from(bound).unwrap_or(0))
}

fn over_budget(name: &str, cost: u64, limit: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the text shows a few digits")]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
