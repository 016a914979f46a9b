//! Expressions in jq, as stages have them: read once, run for many objects.
//!
//! An expression that fails for an object has no result, as in kwok (`expression.Query`). Not here: what jq reads from outside and
//! does there (`input`, `env`, `halt`, files).

use std::fmt;

use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Vars, data};
use jaq_json::{Val, read};
use kubewright_values::stack::with_room;
use serde_json::Value;

/// No stage needs more results than this: the rest is not asked for.
const MOST: usize = 10_000;

/// What reaches beyond the object: the end of the process, its environment and its output.
const FORBIDDEN: [&str; 7] = [
    "halt",
    "halt_error",
    "env",
    "debug",
    "debug_empty",
    "stderr",
    "stderr_empty",
];

/// An expression that was read.
pub(super) struct Query {
    text: String,
    filter: Filter<data::JustLut<Val>>,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Query {
    /// Reads an expression.
    ///
    /// # Errors
    /// When it is not understood.
    pub(super) fn of(text: &str) -> Result<Query, String> {
        // jq's own definitions nest deeper than what is left of the stack of a worker.
        with_room(|| Query::read(text))
    }

    fn read(text: &str) -> Result<Query, String> {
        let wrong = |what: &str| {
            format!(
                "{text:?} is not understood{what}; an expression in jq is such as .status.conditions[] | \
                 select(.type == \"Ready\") | .status"
            )
        };
        let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let definitions = definitions.filter(|definition| !FORBIDDEN.contains(&definition.name));
        let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let functions = functions.filter(|(name, ..)| !FORBIDDEN.contains(name));
        let arena = Arena::default();
        let program = File { code: text, path: () };
        let modules = Loader::new(definitions).load(&arena, program).map_err(|_| wrong(""))?;
        let filter = Compiler::default()
            .with_funs(functions)
            .compile(modules)
            .map_err(|errors| {
                let named = errors.first().and_then(|(_, errors)| errors.first());
                wrong(
                    &named
                        .map(|(name, _)| format!(": {name} is not known"))
                        .unwrap_or_default(),
                )
            })?;
        Ok(Query {
            text: text.to_owned(),
            filter,
        })
    }

    /// Its results for an object that are not null; none when it fails.
    pub(super) fn values(&self, object: &Value) -> Vec<Value> {
        with_room(|| self.run(object))
    }

    fn run(&self, object: &Value) -> Vec<Value> {
        let text = object.to_string();
        let Ok(input) = read::parse_single(text.as_bytes()) else {
            return Vec::new();
        };
        let ctx = Ctx::<data::JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let mut values = Vec::new();
        for value in self.filter.id.run((ctx, input)).take(MOST) {
            let Ok(value) = jaq_core::unwrap_valr(value) else {
                return Vec::new();
            };
            match serde_json::from_str(&value.to_string()) {
                Ok(Value::Null) => {}
                Ok(value) => values.push(value),
                // What is no JSON (nan) is no value either.
                Err(_) => return Vec::new(),
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions() {
        let object = json!({
            "metadata": {"name": "p", "annotations": {"a.b/c": "x"}, "ownerReferences": [{"kind": "Job"}]},
            "spec": {"replicas": 3, "hostNetwork": true},
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}], "none": null},
        });
        let check = |text: &str, expected: Value| {
            let values = Query::of(text).expect(text).values(&object);
            assert_eq!(Value::from(values), expected, "{text}");
        };
        check(".metadata.annotations[\"a.b/c\"]", json!(["x"]));
        check(".metadata.annotations.[\"a.b/c\"]", json!(["x"]));
        check(".metadata.labels[\"a\"]", json!([]));
        check(".spec.replicas", json!([3]));
        check(".status.none", json!([]));
        check(".status.nothing.deeper", json!([]));
        check(".status.nothing[].deeper", json!([]));
        check(
            ".status.conditions[] | select(.type == \"B\") | .status",
            json!(["True"]),
        );
        check(
            ".status.conditions.[] | select( .type == \"A\" ) | .status",
            json!(["False"]),
        );
        check(".metadata.ownerReferences.[].kind", json!(["Job"]));
        check(".spec.replicas // 1 | . + 1", json!([4]));
        check(".spec.hostNetwork", json!([true]));
        check(".status.conditions | length", json!([2]));
        check(".metadata.name | startswith(\"p\")", json!([true]));
        check("[.status.conditions[] | .type] | join(\",\")", json!(["A,B"]));
        check(".metadata.name | error", json!([]));
    }

    #[test]
    fn what_is_no_expression() {
        for (text, expected) in [
            (".a[", "not understood"),
            ("nothing_of(.a)", "nothing_of"),
            ("", "not understood"),
            ("halt", "halt is not known"),
            ("env.HOME", "env is not known"),
            ("$ENV.HOME", "$ENV is not known"),
        ] {
            let why = Query::of(text).err().unwrap_or_default();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
