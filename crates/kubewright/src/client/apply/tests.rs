use super::*;
use proptest::prelude::*;

fn state(wanted: &Value, object: &Value) -> State {
    let meta = ObjectMeta {
        uid: object["metadata"]["uid"].as_str().map(str::to_owned),
        ..Default::default()
    };
    State::of(&meta, wanted, object)
}

/// Whether an apply of `wanted` is sent, `after` some time, when the server had made `then` of it and the object is
/// `now`.
fn is_sent(wanted: &Value, then: &Value, now: &Value, after: Duration) -> bool {
    let (applied, start) = (Applied::default(), Instant::now());
    let key = (
        "m".to_owned(),
        ObjectRef::named(
            &crate::object::api_resource::<k8s_openapi::api::core::v1::ConfigMap>(),
            Some("a"),
            "x",
        ),
    );
    applied.remember(key.clone(), state(wanted, then), start);
    !applied.holds(&key, &state(wanted, now), start + after)
}

#[test]
fn an_apply_is_sent_when_it_could_change_something() {
    let check = |wanted: Value, then: Value, now: Value, expected: bool| {
        assert_eq!(
            is_sent(&wanted, &then, &now, Duration::ZERO),
            expected,
            "{wanted}: {then} → {now}"
        );
    };
    let wanted = || json!({"spec": {"replicas": 2}});
    let then = || json!({"spec": {"replicas": 2, "paused": false}});
    check(wanted(), then(), then(), false);
    check(
        wanted(),
        then(),
        json!({"spec": {"replicas": 2, "paused": true}}),
        false,
    );
    check(
        wanted(),
        then(),
        json!({"spec": {"replicas": 3, "paused": false}}),
        true,
    );
    check(
        wanted(),
        then(),
        json!({"metadata": {"uid": "2"}, "spec": {"replicas": 2, "paused": false}}),
        true,
    );
    let list = || json!({"c": [{"name": "a", "image": "x", "pull": "Always"}]});
    check(json!({"c": [{"name": "a", "image": "x"}]}), list(), list(), false);
    check(
        json!({"c": [{"name": "a", "image": "x"}]}),
        list(),
        json!({"c": []}),
        true,
    );
}

/// What was applied is remembered as long as it is asked for; a pass over more objects than are remembered finds
/// those that are, and what was deleted does not stay.
#[test]
fn the_memory_is_bounded_and_keeps_what_is_used() {
    let resource = crate::object::api_resource::<k8s_openapi::api::core::v1::ConfigMap>();
    let key = |number: usize| -> Key {
        (
            "m".to_owned(),
            ObjectRef::named(&resource, Some("a"), &format!("x{number}")),
        )
    };
    let wanted = json!({"spec": 1});
    let state = || state(&wanted, &wanted);
    let (applied, start) = (Applied::default(), Instant::now());
    let pass = |objects: std::ops::Range<usize>, now| {
        let mut sent = 0;
        for number in objects {
            if !applied.holds(&key(number), &state(), now) {
                sent += 1;
                applied.remember(key(number), state(), now);
            }
        }
        sent
    };
    assert_eq!(pass(0..MEMORY + 10, start), MEMORY + 10);
    assert_eq!(applied.memory().known.len(), MEMORY);
    assert_eq!(pass(0..MEMORY + 10, start), 10, "not everything again");
    // The first half is deleted, others come.
    let later = start + FORGOTTEN / 2;
    assert_eq!(pass(MEMORY / 2..MEMORY, later), 0);
    let later = start + FORGOTTEN + Duration::from_secs(1);
    // Room is made as they come, and at the latest after as many as are remembered.
    for _ in 0..4 {
        pass(MEMORY..MEMORY * 3 / 2, later);
    }
    assert_eq!(pass(MEMORY / 2..MEMORY * 3 / 2, later), 0);
    applied.forget(&key(MEMORY - 1));
    assert!(!applied.holds(&key(MEMORY - 1), &state(), later));
}

/// A field that was pruned may be known tomorrow.
#[test]
fn what_the_server_does_not_show_is_sent_again_in_time() {
    let check = |then: Value, later: bool| {
        let wanted = json!({"apiVersion": "v1", "kind": "X", "spec": {"cpu": "1000m"}});
        assert!(
            !is_sent(&wanted, &then, &then, RESEND - Duration::from_secs(1)),
            "{then}"
        );
        assert_eq!(is_sent(&wanted, &then, &then, RESEND), later, "{then}");
    };
    check(json!({"spec": {"cpu": "1000m"}}), false);
    check(json!({"spec": {"cpu": "1"}}), true);
    check(json!({"spec": {}}), true);
}

fn merge(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut result = target.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        match value {
            Value::Null => drop(result.remove(key)),
            value => drop(result.insert(key.clone(), merge(result.get(key).unwrap_or(&Value::Null), value))),
        }
    }
    Value::Object(result)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        "[ab]{0,1}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[abc]|name", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[abc]|metadata", value(), 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #[test]
    fn a_merge_patch_leads_from_one_value_to_the_other(before in object(), after in object()) {
        let patched = merge_patch_between(&before, &after).map_or(before.clone(), |patch| merge(&before, &patch));
        prop_assert_eq!(patched, after);
    }
}
