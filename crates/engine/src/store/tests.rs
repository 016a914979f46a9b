use super::*;
use proptest::prelude::*;

/// key, uid, version, label
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object(ObjectKey, String, String, String);

struct ObjectMeta;

impl Meta<Object> for ObjectMeta {
    fn key(object: &Object) -> Option<ObjectKey> {
        Some(object.0.clone())
    }
    fn uid(object: &Object) -> Option<&str> {
        Some(&object.1)
    }
    fn resource_version(object: &Object) -> Option<&str> {
        Some(&object.2)
    }
    fn supersedes(new: &Object, stored: &Object) -> bool {
        new.3 == "whole" && stored.3 == "part"
    }
}

type TestStore = Store<Object, ObjectMeta>;

/// `object("ns/name", 1, 5)`: uid 1, version 5.
fn object(name: &str, uid: u32, version: u32) -> Arc<Object> {
    labelled(name, uid, version, "")
}

fn labelled(name: &str, uid: u32, version: u32, label: &str) -> Arc<Object> {
    let (namespace, name) = name.split_once('/').map_or((None, name), |(ns, name)| (Some(ns), name));
    Arc::new(Object(
        ObjectKey::new(namespace, name),
        uid.to_string(),
        version.to_string(),
        label.to_owned(),
    ))
}

fn end(version: &str) -> Delta<Object> {
    Delta::ReplaceEnd {
        resource_version: version.into(),
        authoritative: false,
    }
}

/// Lists `objects` at `version`; answers the changes, in words.
fn replace(store: &mut TestStore, version: &str, objects: &[Arc<Object>]) -> Vec<String> {
    apply(
        store,
        [Delta::ReplaceBegin, Delta::ReplaceItems(objects.to_vec()), end(version)],
    )
}

fn apply(store: &mut TestStore, deltas: impl IntoIterator<Item = Delta<Object>>) -> Vec<String> {
    let events: Vec<Event<Object>> = deltas.into_iter().flat_map(|delta| store.apply(delta)).collect();
    store.check().expect("indexes and counts agree with the objects");
    events.iter().map(words).collect()
}

fn words(event: &Event<Object>) -> String {
    match event {
        Event::Added { object, initial: true } => format!("initial {} {}", object.0, object.2),
        Event::Added { object, initial: false } => format!("added {} {}", object.0, object.2),
        Event::Modified { old, new } => format!("modified {} {}->{}", new.0, old.2, new.2),
        Event::Deleted {
            key,
            object,
            final_state_unknown: false,
        } => format!("deleted {key} {}", object.2),
        Event::Deleted {
            key,
            object,
            final_state_unknown: true,
        } => format!("lost {key} {}", object.2),
    }
}

fn version(store: &TestStore) -> Option<&str> {
    store.resource_version().map(ResourceVersion::as_str)
}

fn names(snapshot: &Snapshot<Object>) -> Vec<String> {
    snapshot.items.iter().map(|object| object.0.to_string()).collect()
}

#[test]
fn rf4_partial_replace_is_invisible() {
    let mut store = TestStore::new();
    replace(&mut store, "5", &[object("a", 1, 1)]);
    let staged = [Delta::ReplaceBegin, Delta::ReplaceItems(vec![object("b", 2, 6)])];
    assert!(apply(&mut store, staged).is_empty());
    assert_eq!(
        (names(&store.list(None)), version(&store)),
        (vec!["a".to_owned()], Some("5"))
    );
    assert!(
        apply(&mut store, [Delta::ReplaceAborted, end("9")]).is_empty(),
        "the end of an aborted list is no end"
    );
    assert_eq!(
        (names(&store.list(None)), version(&store)),
        (vec!["a".to_owned()], Some("5"))
    );
}

#[test]
fn s4_replace_is_one_step() {
    let mut store = TestStore::new();
    replace(
        &mut store,
        "5",
        &[object("kept", 1, 1), object("changed", 2, 2), object("gone", 3, 3)],
    );
    let kept = store.get(&ObjectKey::cluster("kept")).expect("listed");
    let events = replace(
        &mut store,
        "9",
        &[
            object("kept", 1, 1),
            object("changed", 2, 7),
            object("new", 4, 8),
            object("new", 4, 8),
        ],
    );
    assert_eq!(events, ["lost gone 3", "modified changed 2->7", "added new 8"]);
    assert!(
        Arc::ptr_eq(&kept, &store.get(&ObjectKey::cluster("kept")).expect("listed")),
        "unchanged: the old Arc stays"
    );
    assert_eq!(
        (names(&store.list(None)).join(" "), version(&store)),
        ("changed kept new".to_owned(), Some("9"))
    );
}

/// A list that says more of the same versions replaces them, and one that says less does not.
#[test]
fn a_list_that_says_more_replaces_what_has_not_changed() {
    let mut store = TestStore::new();
    replace(
        &mut store,
        "1",
        &[labelled("a", 1, 1, "part"), labelled("b", 2, 1, "whole")],
    );
    let told = replace(
        &mut store,
        "2",
        &[labelled("a", 1, 1, "whole"), labelled("b", 2, 1, "part")],
    );
    assert_eq!(told.len(), 1, "{told:?}");
    let says = |name: &str| store.get_by_name(None, name).map(|object| object.3.clone());
    assert_eq!(
        (says("a"), says("b")),
        (Some("whole".to_owned()), Some("whole".to_owned()))
    );
}

#[test]
fn s4_object_that_is_listed_twice_counts_in_its_newer_state() {
    let mut store = TestStore::new();
    replace(&mut store, "7", &[object("a", 1, 7)]);
    assert!(replace(&mut store, "9", &[object("a", 1, 5), object("a", 1, 7)]).is_empty());
    assert_eq!(
        replace(&mut store, "9", &[object("a", 1, 9), object("a", 1, 7)]),
        ["modified a 7->9"]
    );
}

#[test]
fn df2_missing_key_is_deleted_once() {
    let mut store = TestStore::new();
    replace(&mut store, "5", &[object("a", 1, 1)]);
    assert_eq!(replace(&mut store, "6", &[]), ["lost a 1"]);
    assert!(replace(&mut store, "7", &[]).is_empty());
    let stream = [
        Delta::ReplaceBegin,
        Delta::ReplaceItems(vec![object("b", 1, 8)]),
        Delta::ReplaceDeleted(ObjectKey::cluster("b")),
        end("9"),
    ];
    assert!(
        apply(&mut store, stream).is_empty(),
        "it came and went within the initial stream"
    );
}

#[test]
fn df2_deleted_within_the_initial_stream_is_swept() {
    let mut store = TestStore::new();
    replace(&mut store, "5", &[object("a", 1, 1)]);
    let stream = [
        Delta::ReplaceBegin,
        Delta::ReplaceItems(vec![object("a", 1, 1)]),
        Delta::ReplaceDeleted(ObjectKey::cluster("a")),
        end("9"),
    ];
    assert_eq!(apply(&mut store, stream), ["lost a 1"]);
}

#[test]
fn df8_new_uid_is_delete_then_add() {
    let mut store = TestStore::new();
    replace(&mut store, "5", &[object("a", 1, 1)]);
    assert_eq!(
        replace(&mut store, "9", &[object("a", 2, 8)]),
        ["lost a 1", "added a 8"]
    );
    assert_eq!(
        apply(&mut store, [Delta::Modified(object("a", 3, 12))]),
        ["lost a 8", "added a 12"]
    );
    assert_eq!(apply(&mut store, [Delta::Deleted(object("a", 4, 15))]), ["lost a 12"]);
}

#[test]
fn rf1_older_event_is_ignored() {
    let mut store = TestStore::new();
    replace(&mut store, "5", &[object("a", 1, 5)]);
    for stale in [
        Delta::Modified(object("a", 1, 4)),
        Delta::Added(object("a", 1, 5)),
        Delta::Added(object("a", 9, 3)),
    ] {
        assert!(apply(&mut store, [stale]).is_empty());
    }
    assert!(
        apply(&mut store, [Delta::Deleted(object("a", 1, 4))]).is_empty(),
        "deleted before what we have was made"
    );
    assert_eq!(version(&store), Some("5"));
}

#[test]
fn rf12_deleted_event_removes() {
    let mut store = TestStore::new();
    replace(&mut store, "5", &[object("a", 1, 5)]);
    assert_eq!(apply(&mut store, [Delta::Deleted(object("a", 1, 7))]), ["deleted a 7"]);
    assert!(apply(&mut store, [Delta::Deleted(object("a", 1, 7))]).is_empty());
    assert!(store.is_empty() && version(&store) == Some("7"));
}

#[test]
fn rf10_bookmark_emits_nothing() {
    let mut store = TestStore::new();
    replace(&mut store, "5", &[object("a", 1, 5)]);
    assert!(apply(&mut store, [Delta::Bookmark("8".into())]).is_empty());
    assert_eq!(version(&store), Some("8"));
}

#[test]
fn s5_version_moves_forward_only() {
    let mut store = TestStore::new();
    replace(&mut store, "50", &[]);
    apply(
        &mut store,
        [Delta::Bookmark("9".into()), Delta::Added(object("a", 1, 10))],
    );
    replace(&mut store, "49", &[]);
    assert_eq!((version(&store), store.history_resets()), (Some("50"), 0));
    let reset = Delta::ReplaceEnd {
        resource_version: "3".into(),
        authoritative: true,
    };
    apply(&mut store, [Delta::ReplaceBegin, reset]);
    assert_eq!((version(&store), store.history_resets()), (Some("3"), 1));
}

#[test]
fn si4_initial_flag_on_the_first_list_only() {
    let mut store = TestStore::new();
    assert_eq!(replace(&mut store, "5", &[object("a", 1, 1)]), ["initial a 1"]);
    assert_eq!(apply(&mut store, [Delta::Added(object("b", 2, 6))]), ["added b 6"]);
    assert_eq!(
        replace(&mut store, "9", &[object("b", 2, 6), object("c", 3, 8)]),
        ["lost a 1", "added c 8"]
    );
}

#[test]
fn s5_lists_have_an_order_and_the_version() {
    let mut store = TestStore::new();
    let objects = ["b/x", "a/z", "a/y", "node", "ab/x"].map(|name| object(name, 1, 1));
    replace(&mut store, "5", &objects);
    let all = store.list(None);
    assert_eq!(names(&all), ["node", "a/y", "a/z", "ab/x", "b/x"]);
    assert_eq!(all.resource_version, Some("5".into()));
    assert_eq!(names(&store.list(Some("a"))), ["a/y", "a/z"]);
    assert!(names(&store.list(Some("c"))).is_empty());
    assert!(store.get_by_name(Some("a"), "z").is_some() && store.get_by_name(None, "z").is_none());
    let spaces: Vec<(&str, usize)> = store.namespaces().iter().map(|(ns, count)| (&**ns, *count)).collect();
    assert_eq!(spaces, [("a", 2), ("ab", 1), ("b", 1)]);
}

#[test]
fn c4_indexes_are_backfilled_and_names_are_unique() {
    let mut store = TestStore::new();
    replace(
        &mut store,
        "5",
        &[
            labelled("a/x", 1, 1, "red"),
            labelled("b/x", 2, 2, "red"),
            labelled("b/y", 3, 3, "blue"),
        ],
    );
    store
        .add_index("label", |object: &Object| vec![object.3.clone()])
        .expect("the name is free");
    let taken = store.add_index("label", |_: &Object| Vec::<String>::new());
    assert_eq!(taken, Err(IndexError::Exists { name: "label".into() }));
    let by = |value: &str, namespace| names(&store.by_index("label", value, namespace).expect("the index exists"));
    assert_eq!(by("red", None), ["a/x", "b/x"]);
    assert_eq!(by("red", Some("b")), ["b/x"]);
    assert!(by("green", None).is_empty());
    let missing = store
        .by_index("color", "red", None)
        .expect_err("there is no such index");
    assert_eq!(
        missing,
        IndexError::Unknown {
            name: "color".into(),
            known: vec!["label".into()]
        }
    );
}

#[test]
fn an_index_that_is_removed_leaves_the_others_as_they_are() {
    let mut store = TestStore::new();
    let broken = |_: &Object| -> Result<Vec<String>, String> { Err("no".to_owned()) };
    store.add_index("broken", broken).expect("free");
    store
        .add_index("label", |object: &Object| vec![object.3.clone()])
        .expect("free");
    replace(&mut store, "5", &[labelled("x", 1, 1, "red")]);
    store.remove_index("none such");
    store.remove_index("broken");
    assert!(!store.has_index("broken") && store.index_failures().next().is_none());
    apply(&mut store, [Delta::Modified(labelled("x", 1, 6, "blue"))]);
    let by = |value: &str| names(&store.by_index("label", value, None).expect("the index exists"));
    assert_eq!((by("red"), by("blue")), (vec![], vec!["x".to_owned()]));
    store.check().expect("the values are those of the objects");
    store
        .add_index("broken", |_: &Object| vec!["all".to_owned()])
        .expect("the name is free again");
    assert_eq!(names(&store.by_index("broken", "all", None).expect("exists")), ["x"]);
}

#[test]
fn s6_failing_index_function_is_isolated() {
    let mut store = TestStore::new();
    let picky = |object: &Object| match object.3.as_str() {
        "error" => Err("no error, please".to_owned()),
        "panic" => panic!("no panic, please"),
        label => Ok(vec![label.to_owned()]),
    };
    store.add_index("picky", picky).expect("the name is free");
    replace(
        &mut store,
        "5",
        &[
            labelled("e", 1, 1, "error"),
            labelled("p", 2, 2, "panic"),
            labelled("fine", 3, 3, "x"),
        ],
    );
    let failures = |store: &TestStore| -> Vec<String> {
        store
            .index_failures()
            .map(|f| format!("{} {} {}", f.index, f.key, f.message))
            .collect()
    };
    assert_eq!(
        failures(&store),
        ["picky e no error, please", "picky p panic: no panic, please"]
    );
    assert_eq!(
        (store.len(), names(&store.by_index("picky", "x", None).expect("exists"))),
        (3, vec!["fine".to_owned()])
    );
    apply(
        &mut store,
        [
            Delta::Modified(labelled("e", 1, 6, "x")),
            Delta::Deleted(labelled("p", 2, 7, "panic")),
        ],
    );
    assert!(failures(&store).is_empty(), "one was repaired, the other is gone");
    assert_eq!(
        names(&store.by_index("picky", "x", None).expect("exists")),
        ["e", "fine"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any history: the index answers exactly its function's values of the stored objects.
    #[test]
    fn s2_index_equals_function(steps in prop::collection::vec((0..4u8, 0..6u8, 1..3u32, 0..4u8), 1..60)) {
        let mut store = TestStore::new();
        store.add_index("label", |object: &Object| vec![object.3.clone(), "all".into(), "all".into()]).expect("free");
        let mut version = 0;
        for (what, name, uid, label) in steps {
            version += 1;
            let object = labelled(&format!("ns{}/o{name}", name % 2), uid, version, &label.to_string());
            match what {
                0 | 1 => drop(store.apply(Delta::Added(object))),
                2 => drop(store.apply(Delta::Deleted(object))),
                _ => drop(replace(&mut store, &version.to_string(), &[object])),
            }
            store.check().map_err(TestCaseError::fail)?;
            for value in ["0", "1", "2", "3"] {
                let want: Vec<String> =
                    store.iter().filter(|(_, object)| object.3 == value).map(|(key, _)| key.to_string()).collect();
                prop_assert_eq!(names(&store.by_index("label", value, None).expect("exists")), want);
            }
            prop_assert_eq!(store.by_index("label", "all", None).expect("exists").items.len(), store.len());
        }
    }
}

fn unreadable(name: &str, uid: u32, version: u32) -> Unreadable {
    Unreadable {
        key: object(name, uid, version).0.clone(),
        uid: Some(uid.to_string()),
        resource_version: Some(ResourceVersion::new(&version.to_string())),
        message: "spec: invalid type".to_owned(),
    }
}

fn unreadable_names(store: &TestStore) -> Vec<String> {
    store.unreadable().map(|object| object.key.to_string()).collect()
}

#[test]
fn rf11_an_unreadable_object_is_remembered_until_it_changes() {
    let mut store = TestStore::new();
    let list = [
        Delta::ReplaceBegin,
        Delta::ReplaceItems(vec![object("a", 1, 1)]),
        Delta::ReplaceUnreadable(vec![unreadable("b", 2, 2)]),
        end("5"),
    ];
    assert_eq!(apply(&mut store, list), ["initial a 1"]);
    assert_eq!(unreadable_names(&store), ["b"]);
    assert_eq!(store.take_unreported().len(), 1);
    assert!(store.take_unreported().is_empty(), "told once");
    assert!(store.unreadable_by_name(None, "b").is_some() && store.unreadable_by_name(None, "a").is_none());

    assert!(apply(&mut store, [Delta::Unreadable(unreadable("b", 2, 6))]).is_empty());
    assert_eq!(store.take_unreported().len(), 1, "it changed and is unreadable still");
    assert_eq!(apply(&mut store, [Delta::Modified(object("b", 2, 7))]), ["added b 7"]);
    assert!(unreadable_names(&store).is_empty());
    assert_eq!(version(&store), Some("7"));
}

#[test]
fn rf11_the_last_readable_state_stays_until_the_object_is_gone() {
    let check = |delta: Delta<Object>, want: &[&str], left: &[&str]| {
        let mut store = TestStore::new();
        replace(&mut store, "5", &[object("a", 1, 4)]);
        assert!(apply(&mut store, [Delta::Unreadable(unreadable("a", 1, 8))]).is_empty());
        assert_eq!(names(&store.list(None)), ["a"]);
        let name = format!("{delta:?}");
        assert_eq!(apply(&mut store, [delta]), want, "{name}");
        assert_eq!(unreadable_names(&store), left, "{name}");
    };
    check(Delta::UnreadableDeleted(unreadable("a", 1, 9)), &["lost a 4"], &[]);
    check(Delta::Deleted(object("a", 1, 9)), &["deleted a 9"], &[]);
    check(Delta::Modified(object("a", 1, 9)), &["modified a 4->9"], &[]);
    // Another incarnation: the one that was held is gone.
    check(Delta::Unreadable(unreadable("a", 2, 9)), &["lost a 4"], &["a"]);
    // RF1: an older object has no effect.
    check(Delta::Modified(object("a", 1, 7)), &[], &["a"]);
    check(Delta::UnreadableDeleted(unreadable("a", 1, 3)), &[], &["a"]);
    check(Delta::Unreadable(unreadable("a", 2, 7)), &[], &["a"]);
}

#[test]
fn rf11_a_relist_replaces_what_is_unreadable() {
    let relist = |deltas: Vec<Delta<Object>>| {
        let mut store = TestStore::new();
        replace(&mut store, "5", &[object("a", 1, 4), object("b", 2, 4)]);
        apply(&mut store, [Delta::Unreadable(unreadable("a", 1, 8))]);
        let bracket = [Delta::ReplaceBegin].into_iter().chain(deltas).chain([end("9")]);
        let events = apply(&mut store, bracket);
        (events, unreadable_names(&store))
    };
    let (b, bad) = (object("b", 2, 4), |name, uid| {
        Delta::ReplaceUnreadable(vec![unreadable(name, uid, 9)])
    });
    let items =
        |objects: &[&Arc<Object>]| Delta::ReplaceItems(objects.iter().map(|object| (*object).clone()).collect());
    assert_eq!(relist(vec![items(&[&b]), bad("a", 1)]), (vec![], vec!["a".into()]));
    assert_eq!(
        relist(vec![items(&[&b]), bad("a", 7)]),
        (vec!["lost a 4".into()], vec!["a".into()])
    );
    assert_eq!(relist(vec![items(&[&b])]), (vec!["lost a 4".into()], vec![]));
    let healed = relist(vec![items(&[&b, &object("a", 1, 9)])]);
    assert_eq!(healed, (vec!["modified a 4->9".into()], vec![]));
    // Unreadable in the initial stream, then deleted in it, or readable in the end.
    let gone = Delta::ReplaceDeleted(ObjectKey::cluster("b"));
    assert_eq!(
        relist(vec![bad("b", 2), gone]),
        (vec!["lost a 4".into(), "lost b 4".into()], vec![])
    );
    let after = relist(vec![bad("b", 2), items(&[&object("b", 2, 9)])]);
    assert_eq!(after, (vec!["lost a 4".into(), "modified b 4->9".into()], vec![]));
}
