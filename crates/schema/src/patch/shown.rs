//! A patched document as Kubernetes shows it in an error: what the patch went through is a map by then, with sorted keys,
//! and the rest still is the text of the object before, in the order of its Go structs.
//!
//! Not here: the values of a JSON patch in the client's own order. They have the order of the struct.

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Map, Value};

use super::json::unescape;
use crate::protobuf::order::{Order, Ordered, Row};

/// A document that `touched` was merged into. An object in `touched` is a place that the patch went through, anything else
/// is a value that it set.
///
/// ```
/// use kubewright_schema::{patch::shown::Shown, protobuf::order::Order};
/// use serde_json::json;
///
/// let patched = json!({"apiVersion": "v1", "data": {"a": 1}, "kind": "ConfigMap", "metadata": {"labels": {}, "name": "n"}});
/// let touched = json!({"data": {"a": 1}});
/// let shown = Shown::new(&patched, &touched, Order::of_kind("v1", "ConfigMap"));
/// let text = r#"{"apiVersion":"v1","data":{"a":1},"kind":"ConfigMap","metadata":{"name":"n","labels":{}}}"#;
/// assert_eq!(serde_json::to_string(&shown)?, text);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    value: &'a Value,
    touched: Option<&'a Value>,
    order: Order,
}

impl<'a> Shown<'a> {
    /// `order` is that of the object before the patch.
    pub fn new(value: &'a Value, touched: &'a Value, order: Order) -> Shown<'a> {
        let touched = Some(touched);
        Shown { value, touched, order }
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(Value::Object(touched)) = self.touched else {
            return match self.touched {
                None => Ordered::new(self.value, self.order).serialize(serializer),
                Some(_) => self.value.serialize(serializer),
            };
        };
        match self.value {
            Value::Object(map) => {
                let mut row = Row::default();
                let mut entries: Vec<_> = row.entries(map, self.order.within(self.value)).collect();
                entries.sort_unstable_by_key(|(key, _, _)| *key);
                let mut written = serializer.serialize_map(Some(map.len()))?;
                for (key, value, order) in entries {
                    let touched = touched.get(key);
                    written.serialize_entry(key, &Shown { value, touched, order })?;
                }
                written.end()
            }
            Value::Array(list) => {
                let mut written = serializer.serialize_seq(Some(list.len()))?;
                for (at, value) in list.iter().enumerate() {
                    let (touched, order) = (touched.get(&at.to_string()), self.order);
                    written.serialize_element(&Shown { value, touched, order })?;
                }
                written.end()
            }
            value => value.serialize(serializer),
        }
    }
}

/// The places in the patched document that the operations of a JSON patch go through, as [`Shown`] takes them. A path ends
/// where the document does, however long it is.
pub fn touched(operations: &Value, document: &Value) -> Value {
    let mut root = Value::Object(Map::new());
    let paths = operations.as_array().into_iter().flatten();
    for path in paths.flat_map(|operation| [operation["from"].as_str(), operation["path"].as_str()]) {
        let Some((outer, _)) = path.and_then(|path| path.rsplit_once('/')) else {
            continue;
        };
        let (mut at, mut within) = (&mut root, document);
        for step in outer.split('/').skip(1).map(unescape) {
            let inner = match within {
                Value::Object(map) => map.get(&*step),
                Value::Array(list) => step.parse().ok().and_then(|at: usize| list.get(at)),
                _ => None,
            };
            let (Some(inner), Value::Object(map)) = (inner, at) else {
                break;
            };
            at = map.entry(step).or_insert_with(|| Value::Object(Map::new()));
            within = inner;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_a_patch_went_through_is_sorted() {
        #[track_caller]
        fn check(touched: impl Fn(&Value) -> Value, wanted: &str) {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}, "name": "p"},
                "spec": {"containers": [{"image": "i", "name": "c"}, {"image": "j", "name": "d"}], "volumes": []}});
            let touched = &touched(&pod);
            let shown = Shown::new(&pod, touched, Order::of_kind("v1", "Pod"));
            assert_eq!(serde_json::to_string(&shown).expect("JSON"), wanted);
        }
        let patch = |path: &str| {
            let operations = json!([{"op": "test", "path": path}]);
            move |pod: &Value| touched(&operations, pod)
        };
        check(
            |_| json!({"metadata": {"name": "p"}}),
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{},"name":"p"},"spec":{"volumes":[],"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}}"#,
        );
        check(
            |_| json!({"spec": {"containers": []}}),
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{}},"spec":{"containers":[{"image":"i","name":"c"},{"image":"j","name":"d"}],"volumes":[]}}"#,
        );
        check(
            patch("/spec/containers/1/image"),
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{}},"spec":{"containers":[{"name":"c","image":"i"},{"image":"j","name":"d"}],"volumes":[]}}"#,
        );
        check(
            patch(&format!("/spec{}", "/".repeat(1_000_000))),
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{}},"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}],"volumes":[]}}"#,
        );
        check(
            |pod| {
                touched(
                    &json!([{"op": "copy", "from": "/metadata/name", "path": "/a~1b/x"}, {"path": 7}, {}]),
                    pod,
                )
            },
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{},"name":"p"},"spec":{"volumes":[],"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}}"#,
        );
    }
}
