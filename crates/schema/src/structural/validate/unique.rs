//! `uniqueItems`: whether the items of a list are all different. Each is written as a text that only equal values have,
//! and equal texts are next to each other once all are in order: lists are as long as a body allows, and looking at
//! pairs would take quadratic time.

use std::fmt::Write as _;

use serde_json::Value;

use crate::budget;

/// Whether no two items are equal, as [`same`](super::same) has it.
pub(super) fn are(items: &[Value]) -> bool {
    let mut texts: Vec<String> = items.iter().map(text).collect();
    texts.sort_unstable();
    texts.is_sorted_by(|one, next| one < next)
}

fn text(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    budget::produce(text.len());
    budget::spend_on_text(text.len());
    text
}

/// Lengths go before what has them, so that no two values have one text.
fn write(value: &Value, text: &mut String) {
    budget::spend(1);
    // Writing into a text cannot fail.
    let _ = match value {
        Value::Null => write!(text, "-"),
        Value::Bool(is) => write!(text, "{is}"),
        // 1 and 1.0 are one number, and so are 0 and -0.
        Value::Number(number) => write!(text, "n{:x};", (number.as_f64().unwrap_or(f64::NAN) + 0.0).to_bits()),
        Value::String(string) => write!(text, "s{};{string}", string.len()),
        Value::Array(items) => {
            let begun = write!(text, "a{};", items.len());
            items.iter().for_each(|item| write(item, text));
            begun
        }
        Value::Object(fields) => {
            let begun = write!(text, "o{};", fields.len());
            for (key, value) in fields {
                let _ = write!(text, "{};{key}", key.len());
                write(value, text);
            }
            begun
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::same;
    use super::*;

    fn some_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!(true)),
            Just(json!(0)),
            Just(json!(-0.0)),
            Just(json!(1)),
            Just(json!(1.0)),
            Just(json!("")),
            Just(json!("1")),
            Just(json!("a1;")),
        ];
        leaf.prop_recursive(2, 6, 2, |inner| {
            prop_oneof![
                prop::collection::btree_map("[ab]", inner.clone(), 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            ]
        })
    }

    proptest! {
        #[test]
        fn equal_are_those_that_are_the_same(one in some_value(), other in some_value()) {
            prop_assert_eq!(!are(&[one.clone(), json!("between"), other.clone()]), same(&one, &other));
        }
    }

    #[test]
    fn a_long_list_costs_what_its_items_cost() {
        let list: Vec<Value> = (0..50_000).map(|index| json!({"a": index})).collect();
        let limits = budget::Limits {
            steps: 500_000,
            bytes: 4_000_000,
        };
        assert_eq!(budget::within(limits, || are(&list)), Ok(true));
    }
}
