//! Inputs that were made to cost much, and what they cost: the steps and bytes that the budget of a request counts, never a clock.
//!
//! A table for each part of the crate, all through one `check`. What upstream takes is taken cheaply; what it refuses is refused with its
//! words; what it would work on for long is cancelled.

use kubewright_schema::budget::{self, Limits};
use kubewright_schema::patch;
use serde_json::{Value, json};

/// What becomes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    Refused,
    /// It costs more than a request may.
    Cancelled,
}
use Outcome::{Cancelled, Refused, Taken};

/// Does the work within so many steps and as many bytes as a request may make. The work answers whether the input was taken.
fn check(name: &str, steps: u64, expected: Outcome, work: impl FnOnce() -> bool) {
    let limits = Limits {
        steps,
        ..Limits::REQUEST
    };
    let found = match budget::within(limits, work) {
        Ok(true) => Taken,
        Ok(false) => Refused,
        Err(_) => Cancelled,
    };
    assert_eq!(found, expected, "{name}");
}

/// A list of the same item again and again.
fn times(count: usize, item: &Value) -> Value {
    Value::from(vec![item.clone(); count])
}

/// The values of the numbers below `count`.
fn numbered(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

#[test]
fn json_patches() {
    let check = |name: &str, steps: u64, expected: Outcome, document: &Value, patch: &Value| {
        check(name, steps, expected, || patch::json::apply(document, patch).is_ok());
    };
    let list = json!({"list": times(100_000, &json!(1))});
    let add = |path: &str| json!({"op": "add", "path": path, "value": 1});
    let (head, middle) = (times(2_000, &add("/list/0")), times(2_000, &add("/list/50000")));
    check("inserts at the head of a long list", 300_000, Taken, &list, &head);
    check("inserts in its middle", 300_000, Taken, &list, &middle);
    let both = json!([{"op": "remove", "path": "/list/0"}, {"op": "move", "from": "/list/-1", "path": "/list/0"}]);
    let both: Value = (0..2_000)
        .flat_map(|_| both.as_array().cloned().unwrap_or_default())
        .collect();
    check("removals and moves in turn", 400_000, Taken, &list, &both);
    let copy = |from: &str, path: &str| json!({"op": "copy", "from": from, "path": path});
    let doubling = numbered(40, |at| copy("/list", &format!("/copy{at}")));
    check("copies of a long list", 1_000_000, Refused, &list, &doubling);
    let maps = json!({"list": times(10_000, &json!({"": 0}))});
    let copies = numbered(10_000, |at| copy("/list", &format!("/{at}")));
    check(
        "copies of what is small on the wire alone",
        1_000_000,
        Cancelled,
        &maps,
        &copies,
    );
    let test = json!({"op": "test", "path": "", "value": json!({"list": times(50_000, &json!(1))})});
    check(
        "tests of a long list against another",
        1_000_000,
        Refused,
        &list,
        &times(1, &test),
    );
    let same = json!({"op": "test", "path": "/list/99999", "value": 1});
    check("tests of the last item", 1_000_000, Taken, &list, &times(10_000, &same));
    let path = "/a".repeat(100_000);
    check(
        "a path of many parts",
        1_000_000,
        Refused,
        &list,
        &times(10, &add(&path)),
    );
    check(
        "too many operations",
        1_000_000,
        Refused,
        &list,
        &times(10_001, &add("/a")),
    );
}
