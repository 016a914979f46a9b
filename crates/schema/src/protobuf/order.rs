//! The order in which Kubernetes writes the fields of a built-in kind: that of its Go structs, `kind` and `apiVersion`
//! first.
//!
//! Clients that compare bytes see the difference, and people find `metadata.name` where they look for it. The table of
//! messages is written in that order, so it knows. Maps (`labels`, `data`), custom resources and fields that a struct
//! does not have are sorted, as in Go.
//!
//! Invariant: the order never changes the written value.

use std::cell::RefCell;

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Map, Value};

use super::special::Special;
use super::table::{self, Message, Shape, Type, has_keys};

/// The order of the fields of a value, and of its parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order(Inner);

#[derive(Clone, Copy, Debug, Default)]
enum Inner {
    #[default]
    Sorted,
    /// That of the kind that the value says it is of.
    Kind,
    Struct(&'static Message),
    /// Sorted keys, each with such a struct.
    Map(&'static Message),
}

/// Where a field stands among the others.
#[derive(Debug)]
pub(super) struct Place {
    name: &'static str,
    rank: usize,
    order: Order,
}

/// The fields of `metav1.TypeMeta`; it is embedded first.
const TYPE_META: [&str; 2] = ["kind", "apiVersion"];

impl Order {
    /// Keys in the order of their bytes.
    pub const SORTED: Order = Order(Inner::Sorted);

    /// That of a kind such as `apps/v1`, `Deployment`; [`Order::SORTED`] for a kind that is not built in.
    pub fn of_kind(api_version: &str, kind: &str) -> Order {
        let message = match api_version.strip_prefix("meta.k8s.io/") {
            Some(_) => table::of_meta(kind),
            None => table::kind(api_version, kind),
        };
        Order(message.map_or(Inner::Sorted, Inner::Struct))
    }

    /// The order in which this value is written: where it is that of its kind, the value says of which.
    #[must_use]
    pub fn within(self, value: &Value) -> Order {
        match self.0 {
            Inner::Kind => Order::of_object(value),
            _ => self,
        }
    }

    /// Whether keys are sorted, here and in all parts.
    pub fn is_sorted(self) -> bool {
        matches!(self.0, Inner::Sorted)
    }

    /// That of the kind which an object says it is of.
    fn of_object(value: &Value) -> Order {
        let text = |key| value.get(key).and_then(Value::as_str);
        match (text("apiVersion"), text("kind")) {
            (Some(api_version), Some(kind)) => Order::of_kind(api_version, kind),
            // The core group's discovery has no apiVersion, a habit from before there were groups.
            (None, Some(kind)) if table::is_unversioned(kind) => Order::of_kind("v1", kind),
            _ => Order::SORTED,
        }
    }
}

/// Puts the fields of objects in order, one object after the other. The items of a list mostly have the same keys,
/// whose order is determined once.
#[derive(Debug, Default)]
pub struct Row<'v> {
    /// The fields of the last object, by their names.
    fields: Vec<(&'v str, &'v Value)>,
    /// The fields in the order in which they are written: rank, index in `fields`, and the order of their own fields.
    turns: Vec<(usize, usize, Order)>,
}

impl<'v> Row<'v> {
    /// The fields of the next object, each with the order of its own fields. All objects of a row have one order.
    pub fn entries(
        &mut self,
        map: &'v Map<String, Value>,
        order: Order,
    ) -> impl Iterator<Item = (&'v str, &'v Value, Order)> {
        if has_keys(map, &self.fields) {
            let values = self.fields.iter_mut().zip(map.values());
            values.for_each(|((_, present), value)| *present = value);
        } else {
            self.fields.clear();
            self.fields.extend(map.iter().map(|(key, value)| (key.as_str(), value)));
            self.arrange(order);
        }
        self.turns.iter().map(|(_, at, order)| {
            let (key, value) = self.fields[*at];
            (key, value, *order)
        })
    }

    fn arrange(&mut self, order: Order) {
        self.turns.clear();
        let fields = self.fields.iter().enumerate();
        match order.0 {
            Inner::Struct(message) => {
                // Both are sorted by their names.
                let mut places = message.places();
                self.turns.extend(fields.map(|(at, (key, _))| {
                    let (rank, order) = place(&mut places, key);
                    (rank, at, order)
                }));
                // Fields that the struct does not have stay sorted.
                self.turns.sort_unstable_by_key(|(rank, at, _)| (*rank, *at));
            }
            Inner::Map(message) => {
                let order = Order(Inner::Struct(message));
                self.turns.extend(fields.map(|(at, _)| (at, at, order)));
            }
            Inner::Sorted | Inner::Kind => self.turns.extend(fields.map(|(at, _)| (at, at, Order::SORTED))),
        }
    }
}

/// The place of a key among those that are left; the ones before it are left no more.
fn place(places: &mut &[Place], key: &str) -> (usize, Order) {
    let passed = places.iter().take_while(|place| place.name < key).count();
    *places = &places[passed..];
    match places.first().filter(|place| place.name == key) {
        Some(place) => (TYPE_META.len() + place.rank, place.order),
        // A field may have such a name (`kind` of a reference): it stands where its struct has it.
        None => match TYPE_META.iter().position(|name| *name == key) {
            Some(rank) => (rank, Order::SORTED),
            None => (usize::MAX, Order::SORTED),
        },
    }
}

/// The places of the fields of a message, by name.
pub(super) fn places(message: &'static Message) -> Vec<Place> {
    let mut places = Vec::new();
    collect(message, &mut places);
    places.sort_by_key(|place| place.name);
    places
}

fn collect(message: &'static Message, places: &mut Vec<Place>) {
    for field in message.written() {
        match field.type_ {
            Type::Message(inner) if field.is_inline() => collect(inner, places),
            type_ => places.push(Place {
                name: field.json,
                rank: places.len(),
                order: Order(order_of(type_, field.shape)),
            }),
        }
    }
}

fn order_of(type_: Type, shape: Shape) -> Inner {
    let message = match type_ {
        Type::Message(message) => Some(message).filter(|message| message.whole().is_none()),
        Type::Special(Special::SchemaOrArray | Special::SchemaOrBool | Special::SchemaOrStrings) => table::schema(),
        // An object within an object, such as that of a row of a Table.
        Type::Special(Special::Json) => return Inner::Kind,
        _ => None,
    };
    match (message, shape) {
        (None, _) => Inner::Sorted,
        (Some(message), Shape::Map) => Inner::Map(message),
        (Some(message), _) => Inner::Struct(message),
    }
}

/// A value that is written in an order.
///
/// ```
/// use kubewright_schema::protobuf::order::Ordered;
/// use serde_json::json;
///
/// let object = json!({"apiVersion": "v1", "data": {"b": "2", "a": "1"}, "kind": "ConfigMap", "metadata": {"labels": {}, "name": "a"}});
/// let text = serde_json::to_string(&Ordered::by_kind(&object))?;
/// assert_eq!(text, r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","labels":{}},"data":{"a":"1","b":"2"}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ordered<'a> {
    value: &'a Value,
    order: Order,
}

impl<'a> Ordered<'a> {
    /// A value with the order of its fields.
    pub fn new(value: &'a Value, order: Order) -> Ordered<'a> {
        Ordered { value, order }
    }

    /// An object in the order of the kind that it says it is of.
    pub fn by_kind(value: &'a Value) -> Ordered<'a> {
        Ordered::new(value, Order(Inner::Kind))
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let order = self.order.within(self.value);
        match self.value {
            value if order.is_sorted() => value.serialize(serializer),
            Value::Object(map) => write_map(map, order, &mut Row::default(), serializer),
            Value::Array(items) => {
                let row = RefCell::new(Row::default());
                let mut written = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    match value {
                        // An object of a list of objects may be of any kind.
                        Value::Object(map) if !matches!(order.0, Inner::Kind) => {
                            written.serialize_element(&InRow { map, order, row: &row })?;
                        }
                        value => written.serialize_element(&Ordered { value, order })?,
                    }
                }
                written.end()
            }
            value => value.serialize(serializer),
        }
    }
}

/// An object of a list.
struct InRow<'a, 'r> {
    map: &'a Map<String, Value>,
    order: Order,
    row: &'r RefCell<Row<'a>>,
}

impl Serialize for InRow<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // An object is written before the next one of its list: nothing else holds the row.
        let mut row = self.row.borrow_mut();
        write_map(self.map, self.order, &mut row, serializer)
    }
}

fn write_map<'v, S: Serializer>(
    map: &'v Map<String, Value>,
    order: Order,
    row: &mut Row<'v>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut written = serializer.serialize_map(Some(map.len()))?;
    for (key, value, order) in row.entries(map, order) {
        written.serialize_entry(key, &Ordered { value, order })?;
    }
    written.end()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(object: Value, want: &str) {
        let text = serde_json::to_string(&Ordered::by_kind(&object)).expect("JSON");
        assert_eq!(text, want);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), object);
    }

    #[test]
    fn fields_stand_as_in_gos_structs() {
        check(
            json!({"apiVersion": "v1", "kind": "Status", "code": 404, "details": {"causes": [{"field": "f", "message": "m", "reason": "r"}],
                "group": "g", "kind": "k", "name": "n", "retryAfterSeconds": 1, "uid": "u"}, "message": "m", "metadata": {}, "reason": "r",
                "status": "Failure"}),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"r","details":{"name":"n","group":"g","kind":"k","uid":"u","causes":[{"reason":"r","message":"m","field":"f"}],"retryAfterSeconds":1},"code":404}"#,
        );
        // Structs in lists, structs that are embedded, maps of quantities, and a field that no struct has.
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {"b": "", "a": ""}, "name": "p"}, "odd": {"b": 1, "a": 2},
                "spec": {"containers": [{"image": "i", "name": "c", "resources": {"requests": {"memory": "1", "cpu": "1"}, "limits": {}}}],
                    "initContainers": [], "volumes": [{"emptyDir": {}, "name": "v"}], "ephemeralContainers": [{"targetContainerName": "c", "name": "e"}]}}),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"","b":""}},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"initContainers":[],"containers":[{"name":"c","image":"i","resources":{"limits":{},"requests":{"cpu":"1","memory":"1"}}}],"ephemeralContainers":[{"name":"e","targetContainerName":"c"}]},"odd":{"a":2,"b":1}}"#,
        );
        // Items of one list with the same fields, with others, and something that is no item.
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": "i", "name": "a"}, {"image": "j", "name": "b"},
                {"args": [], "name": "c"}, 7, {}, {"image": "k", "odd": 1}, {"image": "l", "odd": 2}]}}),
            r#"{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"name":"a","image":"i"},{"name":"b","image":"j"},{"name":"c","args":[]},7,{},{"image":"k","odd":1},{"image":"l","odd":2}]}}"#,
        );
        // Schemas in schemas, by name and in the places that take something else as well.
        check(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"versions": [{"schema": {"openAPIV3Schema":
                {"properties": {"b": {"items": {"type": "string", "description": "d"}, "type": "array"}, "a": {"type": "object",
                    "additionalProperties": {"type": "string", "description": "d"}}}, "type": "object"}}, "name": "v1"}], "group": "g"}}),
            r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"group":"g","versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"object","additionalProperties":{"description":"d","type":"string"}},"b":{"type":"array","items":{"description":"d","type":"string"}}}}}}]}}"#,
        );
        // Discovery of the core group, which says no apiVersion.
        check(
            json!({"kind": "APIVersions", "serverAddressByClientCIDRs": [], "versions": ["v1"]}),
            r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#,
        );
        check(
            json!({"groupVersion": "v1", "kind": "APIResourceList", "resources": [{"kind": "Pod", "name": "pods", "namespaced": true}]}),
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod"}]}"#,
        );
        // A list has the order of its items.
        check(
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"data": {}, "metadata": {"name": "a"}}], "metadata": {}}),
            r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a"},"data":{}}]}"#,
        );
        // A Table, and the objects of its rows.
        check(
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "columnDefinitions": [{"description": "d", "format": "", "name": "Name",
                "priority": 0, "type": "string"}], "metadata": {"resourceVersion": "1"}, "rows": [{"cells": ["a"], "object": {"apiVersion": "v1",
                "kind": "ConfigMap", "metadata": {"name": "a", "labels": {}}}}]}),
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"columnDefinitions":[{"name":"Name","type":"string","format":"","description":"d","priority":0}],"rows":[{"cells":["a"],"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","labels":{}}}}]}"#,
        );
        // Custom resources are maps in Go.
        check(
            json!({"apiVersion": "ex.io/v1", "kind": "Foo", "data": 1, "metadata": {"name": "a", "labels": {}}}),
            r#"{"apiVersion":"ex.io/v1","data":1,"kind":"Foo","metadata":{"labels":{},"name":"a"}}"#,
        );
    }
}
