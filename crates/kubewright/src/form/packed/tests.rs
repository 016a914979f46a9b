use super::*;
use crate::form::{Form, cut, typed};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{DynamicObject, PartialObjectMeta};

const KIND: TypeId = TypeId::of::<ConfigMap>();

fn cache(budget: usize) -> Arc<Decoders> {
    decoders(Budget::fixed(budget))
}

/// Of ConfigMaps.
pub(super) fn decoders(budget: Budget) -> Arc<Decoders> {
    let decoders = Decoders::new(budget);
    decoders.add(&Form::of::<ConfigMap>(), None);
    decoders
}

pub(super) fn config(name: &str, data: &str, decoders: &Arc<Decoders>) -> Arc<Packed> {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"a":"b"}},"ownerReferences":[{{"apiVersion":"v1","kind":"K","name":"o","uid":"u"}}]}},"data":{data}}}"#
    );
    let mut lean = Vec::new();
    let head = cut::lean(text.as_bytes(), None, &mut lean).expect("an object");
    let lean = String::from_utf8(lean).expect("text");
    Packed::unread(&lean, head, Kept::Whole, None, decoders)
}

pub(super) fn is_decoded(packed: &Packed) -> bool {
    let states = packed.states();
    states.iter().any(|(_, state)| state.held().is_some())
}

#[test]
fn what_is_read_again_stays_decoded() {
    let some = r#"{"a":"b"}"#;
    let room_for_two = 2 * config("a", some, &cache(usize::MAX)).text.len();
    let cache = cache(room_for_two);
    let [a, b, c] = ["a", "b", "c"].map(|name| config(name, some, &cache));
    let decoded = || [&a, &b, &c].map(|packed| is_decoded(packed));
    assert_eq!(decoded(), [false; 3]);
    for packed in [&a, &b, &c] {
        packed.unpack(KIND).expect("a ConfigMap");
    }
    assert_eq!(decoded(), [true, true, false], "there is room for two");
    drop(c.unpack(KIND));
    assert_eq!(decoded(), [false, true, true], "what is read again has a place");
    assert!(
        matches!(a.states()[..], [(_, State::AtRest(None, true))]),
        "nothing keeps its room"
    );
    drop(a.look(KIND));
    assert_eq!(decoded(), [false, true, true], "what is looked at has none");
    drop(a.arrive(KIND));
    assert_eq!(decoded(), [false, true, true], "nor has what passes by");
}

/// Of a kind that does not fit, the last few objects are there for who comes next.
#[test]
fn what_passes_by_takes_no_places_from_what_is_read() {
    let some = r#"{"a":"b"}"#;
    let length = config("10", some, &cache(usize::MAX)).text.len();
    // There are sixteen times as many places as for what passes by.
    let cache = cache(32 * length);
    let objects: Vec<_> = (10..74).map(|name| config(&name.to_string(), some, &cache)).collect();
    let decoded = |range: std::ops::Range<usize>| objects[range].iter().filter(|object| is_decoded(object)).count();
    let read = |object: &Arc<Packed>| drop(object.unpack(KIND).expect("a ConfigMap"));
    objects[..32].iter().for_each(read);
    for object in &objects[32..] {
        object.arrive(KIND).expect("a ConfigMap");
    }
    assert_eq!((decoded(0..32), decoded(32..62), decoded(62..64)), (32, 0, 2));
    // A reconcile reads what was told of just now; that is no reason to keep it.
    read(&objects[63]);
    assert_eq!(decoded(0..32), 32);
    read(&objects[63]);
    assert_eq!((decoded(0..32), decoded(63..64)), (31, 1));
    for object in &objects[40..50] {
        object.arrive(KIND).expect("a ConfigMap");
    }
    assert_eq!((decoded(0..32), decoded(63..64)), (31, 1), "it stays");
}

/// An object that changes all the time has one place, not those of all others.
#[test]
fn versions_that_are_gone_take_no_room() {
    let some = r#"{"a":"b"}"#;
    let length = config("a", some, &cache(usize::MAX)).text.len();
    let cache = cache(20 * length);
    let others: Vec<_> = (0..9).map(|number| config(&number.to_string(), some, &cache)).collect();
    for packed in &others {
        packed.unpack(KIND).expect("a ConfigMap");
    }
    for _ in 0..200 {
        config("h", some, &cache).unpack(KIND).expect("a ConfigMap");
    }
    assert!(others.iter().all(|packed| is_decoded(packed)));
}

#[test]
fn an_object_that_is_held_is_the_same_for_everybody() {
    let object = config("a", r#"{"a":"b"}"#, &cache(0));
    let read = || typed::<ConfigMap>(object.unpack(KIND).expect("a ConfigMap"));
    let held = read();
    assert_eq!(held.data.as_ref().map(|data| data["a"].as_str()), Some("b"));
    assert!(Arc::ptr_eq(&held, &read()));
    drop(held);
    assert!(!is_decoded(&object));
    assert_eq!(object.json().expect("an object")["data"]["a"], "b");
}

/// Each type reads the text in its way, keeps what it has read by itself, and fails by itself.
#[test]
fn several_types_read_one_text() {
    type Meta = PartialObjectMeta<ConfigMap>;
    let decoders = cache(1 << 20);
    let resource = Form::of::<ConfigMap>().resource;
    decoders.add(&Form::for_resource::<Meta>(&resource), None);
    decoders.add(&Form::for_resource::<DynamicObject>(&resource), None);
    let broken = config("a", "7", &decoders);
    assert!(broken.was_read(KIND).is_none());
    broken.look(KIND).expect_err("a number is no map");
    assert!(broken.was_read(KIND).is_some_and(|read| read.is_err()));
    let meta: Arc<Meta> = typed(broken.unpack(TypeId::of::<Meta>()).expect("its metadata are fine"));
    let types = meta.types.as_ref().expect("what the server calls such an answer");
    assert_eq!(
        (meta.metadata.name.as_deref(), types.kind.as_str()),
        (Some("a"), "PartialObjectMetadata")
    );
    let dynamic: Arc<DynamicObject> = typed(broken.unpack(TypeId::of::<DynamicObject>()).expect("it is JSON"));
    assert_eq!(dynamic.data["data"], 7);
    assert!(Arc::ptr_eq(
        &meta,
        &typed(broken.unpack(TypeId::of::<Meta>()).expect("it is kept"))
    ));
    broken
        .look(TypeId::of::<u8>())
        .expect_err("nobody has said how to read that");
}

#[test]
fn a_shelf_keeps_nothing_that_the_cache_has_dropped() {
    let cache = cache(1 << 20);
    let object = config("a", "{}", &cache);
    let held = Arc::downgrade(&object.unpack(KIND).expect("a ConfigMap"));
    drop(object);
    assert!(held.upgrade().is_none());
}

#[test]
fn the_metadata_are_read_without_the_rest() {
    let object = config("a", "7", &cache(0));
    assert_eq!(object.object_id().name, Some("a"));
    assert_eq!(object.metadata().name.as_deref(), Some("a"));
    assert_eq!(object.labels()["a"], "b");
    let owner = |object: &Packed| {
        let mut name = String::new();
        object.with_owners(&mut |owners| name = owners[0].name.clone());
        name
    };
    assert_eq!(owner(&object), "o");
    assert!(
        object.decoders.of(KIND).expect("it was added").take_broken().is_empty(),
        "nobody has read it"
    );
}

#[test]
fn what_cannot_be_decoded_is_noted_once_and_says_why_again() {
    let cache = cache(1 << 20);
    let object = config("a", "7", &cache);
    for _ in 0..2 {
        let why = object.unpack(KIND).expect_err("a number is no map");
        assert_eq!(&*why, "invalid type: integer `7`, expected a map");
    }
    let noted: Vec<String> = cache
        .of(KIND)
        .expect("it was added")
        .take_broken()
        .iter()
        .map(|noted| noted.key.to_string())
        .collect();
    assert_eq!(noted, ["a"]);
    assert_eq!(object.json().expect("JSON")["data"], 7);
}
