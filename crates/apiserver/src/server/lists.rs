//! Lists on their way to the client: the contents of a page, and its JSON.
//!
//! Most objects of a list are never decoded here: their stored text is sent as it is. So a list holds entries of the
//! storage, and opens those that must be seen. A long list is not put together at once: its length is known from the
//! texts, and the pieces are made while the client reads ([`LongBody`]), so that it costs no second copy of everything
//! it shows.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;
use kubewright_schema::protobuf::order::{Order, Ordered};
use serde_json::{Value, json};

use super::respond::{encode, prefix, say_version, shown_from};
use super::watch::Selection;
use crate::body::{Body, LongBody};
use crate::json;
use crate::model::form::bare;
use crate::model::form::full;
use crate::model::{Resource, object};
use crate::storage::{Entry, StoredObject};
use crate::table::{self, Options, Rows, frame, write_partial};
use crate::wire::yaml;

/// A list and its metadata.
pub(crate) struct List {
    pub(crate) resource_version: String,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
    pub(crate) items: Vec<Item>,
}

/// An object of a list.
#[derive(Clone)]
pub(crate) enum Item {
    /// As it is kept: perhaps no code needs to read it.
    Kept(Arc<Entry>),
    /// As it was read, or made.
    Read(Arc<StoredObject>),
}

impl Item {
    /// Whether the selection shows it. An entry that was not read belongs to a list without a selector.
    pub(crate) fn is_chosen(&self, selection: &Selection) -> bool {
        match self {
            Item::Kept(_) => true,
            Item::Read(object) => selection.shows(object),
        }
    }
}

/// About how long the pieces of a long list are, and how long a list may be that is sent in one.
const PIECE: usize = 64 * 1024;
const WHOLE: usize = 2 * PIECE;

impl List {
    /// The `metadata` of a list. Upstream prints an empty `continue` for custom resources, and only for them.
    pub(crate) fn metadata(&self, custom: bool) -> Value {
        let mut metadata = json!({});
        if !self.resource_version.is_empty() {
            metadata["resourceVersion"] = json!(self.resource_version);
        }
        if custom || !self.continue_token.is_empty() {
            metadata["continue"] = json!(self.continue_token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

impl Item {
    /// The object, opened if it is not.
    pub(crate) fn object(&self) -> Arc<StoredObject> {
        match self {
            Item::Kept(entry) => entry.object(),
            Item::Read(object) => object.clone(),
        }
    }

    fn encoded(&self) -> &Bytes {
        match self {
            Item::Kept(entry) => entry.encoded(),
            Item::Read(object) => object.encoded(),
        }
    }

    /// The form in which the list shows it.
    fn shown(self, resource: &Resource) -> ItemText {
        if let Some(from) = shown_from(resource, self.encoded()) {
            return ItemText::Stored(self, from);
        }
        ItemText::Made(encode(resource, &self.value(resource)))
    }

    /// The object in the form in which the list shows it.
    pub(super) fn value(&self, resource: &Resource) -> Value {
        let object = self.object();
        match resource.custom {
            Some(_) => full(resource, object.value()),
            None => bare(resource, object.value()),
        }
    }
}

/// An item of a list as JSON.
enum ItemText {
    /// The stored text from somewhere on, with the prefix of the list in the place of its beginning.
    Stored(Item, usize),
    Made(Vec<u8>),
}

impl ItemText {
    /// The memory that it takes, besides what storage has anyway.
    fn held(&self) -> usize {
        let own = match self {
            ItemText::Made(text) => text.capacity(),
            // Storage may have another one by now, or has it in another form.
            ItemText::Stored(Item::Read(object), _) => object.encoded().len(),
            ItemText::Stored(Item::Kept(_), _) => 0,
        };
        size_of::<ItemText>() + own
    }

    /// Two pieces that follow each other. With a prefix an item says its kind, which begins the object: the item's own
    /// brace goes.
    fn text<'a>(&'a self, prefix: &'a str) -> (&'a [u8], &'a [u8]) {
        match self {
            ItemText::Made(text) => (&[], text),
            ItemText::Stored(item, from) => match item.encoded().get(*from..) {
                Some(rest) if !prefix.is_empty() => (prefix.as_bytes(), rest),
                _ => (&[], item.encoded()),
            },
        }
    }
}

/// The JSON of a list.
pub(super) fn body(resource: &Resource, list: List) -> Body {
    let custom = resource.custom.is_some();
    let kind = format!("\"kind\":{}", json!(resource.list_kind));
    let version = format!("\"apiVersion\":{}", json!(resource.api_version()));
    let order = if custom {
        Order::SORTED
    } else {
        Order::of_kind("meta.k8s.io/v1", "ListMeta")
    };
    let metadata = list.metadata(custom);
    let metadata =
        serde_json::to_string(&Ordered::new(&metadata, order)).expect("a JSON value can be written to memory");
    // Go writes lists of custom resources from maps, so that their keys are sorted.
    let (head, tail) = if custom {
        (
            format!("{{{version},\"items\":["),
            format!("],{kind},\"metadata\":{metadata}}}\n"),
        )
    } else {
        (
            format!("{{{kind},{version},\"metadata\":{metadata},\"items\":["),
            "]}\n".to_owned(),
        )
    };
    let prefix = if custom { prefix(resource) } else { String::new() };
    let items: Vec<ItemText> = (list.items.into_iter()).map(|item| item.shown(resource)).collect();
    let length_of = |item: &ItemText| {
        let (first, rest) = item.text(&prefix);
        first.len() + rest.len()
    };
    let texts: usize = items.iter().map(length_of).sum();
    let length = head.len() + texts + items.len().saturating_sub(1) + tail.len();
    let is_short = length <= WHOLE;
    let held = items.iter().map(ItemText::held).sum();
    let mut pieces = Pieces {
        begun: Some(head),
        prefix,
        tail,
        items: items.into_iter(),
        size: if is_short { WHOLE } else { PIECE },
        left: length,
    };
    if is_short {
        return Body::Full(pieces.next().unwrap_or_default());
    }
    Body::Long(LongBody::new(length, held, pieces))
}

/// The pieces of a list's JSON, made one after the other.
struct Pieces {
    /// The text before the first item; `None` when it was given.
    begun: Option<String>,
    prefix: String,
    tail: String,
    items: std::vec::IntoIter<ItemText>,
    /// About how many bytes make a piece.
    size: usize,
    /// Bytes that were not given yet.
    left: usize,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let first = self.begun.take();
        let mut comma = first.is_none();
        let mut out = Vec::with_capacity(self.left.min(self.size + self.size / 8));
        out.extend_from_slice(first.unwrap_or_default().as_bytes());
        while out.len() < self.size {
            let Some(item) = self.items.next() else {
                out.extend_from_slice(self.tail.as_bytes());
                break;
            };
            if std::mem::replace(&mut comma, true) {
                out.push(b',');
            }
            let (first, rest) = item.text(&self.prefix);
            out.extend_from_slice(first);
            out.extend_from_slice(rest);
        }
        self.left = self.left.saturating_sub(out.len());
        Some(Bytes::from(out))
    }
}

/// The `PartialObjectMetadataList` that shows these items.
pub(super) fn partial_list(list: &List, version: &str, items: Value) -> Value {
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": list.metadata(false), "items": items,
    })
}

/// The JSON of that list, out of stored texts; `None` when one of them must be made from its object, or when there are
/// none.
pub(super) fn partial_body(resource: &Resource, list: &List, version: &str) -> Option<Bytes> {
    const END: &[u8] = b"]}";
    let (first, others) = list.items.split_first()?;
    let empty = json::text(&Ordered::by_kind(&partial_list(list, version, json!([]))));
    let mut out = empty.strip_suffix(END)?.to_vec();
    if !write_partial(&mut out, resource, first.encoded(), version) {
        return None;
    }
    for item in others {
        out.push(b',');
        if !write_partial(&mut out, resource, item.encoded(), version) {
            return None;
        }
    }
    out.extend_from_slice(END);
    out.push(b'\n');
    Some(Bytes::from(out))
}

/// The YAML of a list that is not empty, one item after the other as in [`table_body`].
pub(super) fn yaml_body(resource: &Resource, list: &List) -> Bytes {
    let part = |value: Value| yaml::encode(&value, yaml::Style::OBJECTS);
    let mut out = part(json!({"apiVersion": resource.api_version()}));
    out.push_str("items:\n");
    for item in &list.items {
        // A list below a key is not indented.
        out.push_str(&part(Value::Array(vec![item.value(resource)])));
    }
    let metadata = list.metadata(resource.custom.is_some());
    out.push_str(&part(json!({"kind": resource.list_kind, "metadata": metadata})));
    Bytes::from(out)
}

/// The JSON of the Table of a list. One row is made at a time: the decoded objects of a whole list take many times
/// their text.
pub(super) fn table_body(resource: &Resource, list: List, options: Options, version: &str) -> Bytes {
    const END: &[u8] = b"]}";
    let metadata = list.metadata(false);
    let table = |rows: Vec<Value>| {
        let mut table = frame(resource, metadata.clone(), options, rows);
        table["apiVersion"] = json!(version);
        json::text(&Ordered::by_kind(&table))
    };
    let mut out = table(Vec::new());
    if !list.items.is_empty() {
        // Rows come last. Without any, some kinds have null in their place.
        out = table(vec![json!({})]);
        out.truncate(out.len() - b"{}".len() - END.len());
        write_rows(&mut out, resource, list.items, options, version);
        out.extend_from_slice(END);
    }
    out.push(b'\n');
    Bytes::from(out)
}

/// The name of the one that a list marks as default: the last that was made, and the first by its name of several.
fn default_of(resource: &Resource, items: &[Item]) -> Option<String> {
    let since = resource.strategy.default_since?;
    let marked = items.iter().filter_map(|item| {
        let stored = item.object();
        let made = since(stored.value())?.to_owned();
        Some((made, Reverse(object::name(stored.value()).to_owned())))
    });
    marked.max().map(|(_, Reverse(name))| name)
}

fn write_rows(out: &mut Vec<u8>, resource: &Resource, mut items: Vec<Item>, options: Options, version: &str) {
    if let Some(order) = resource.strategy.table_order {
        items.sort_by_cached_key(|item| order(&full(resource, item.object().value())));
    }
    let rows = Rows::new(resource, options);
    let order = Order::of_kind(version, "TableRow");
    let default = default_of(resource, &items);
    for (index, item) in items.into_iter().enumerate() {
        let stored = item.object();
        let object = full(resource, stored.value());
        let mut row = rows.row(table::Shown {
            object: &object,
            stored: Some(stored.value()),
        });
        if default.as_deref() == Some(object::name(&object)) {
            row["cells"][0] = Value::from(format!("{} (default)", object::name(&object)));
        }
        say_version(&mut row, options, version);
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&json::text(&Ordered::new(&row, order)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::server::respond::{json_text, table_of};
    use crate::table::IncludeObject;

    /// The body of a list of so many ConfigMaps of about a kilobyte, and how many pieces it has.
    fn listed(count: usize) -> (Vec<u8>, usize, Option<usize>) {
        let kinds = Registry::new().snapshot();
        let resource = kinds.lookup("", "v1", "configmaps").expect("it is built in");
        let item = |index: usize| {
            let object = Arc::new(StoredObject::new(
                7,
                json!({"metadata": {"name": index.to_string()}, "data": {"k": "x".repeat(1000)}}),
            ));
            match index % 2 {
                0 => Item::Read(object),
                // No other code holds the object, so the entry opens its text.
                _ => Item::Kept(Entry::of(&object)),
            }
        };
        let list = List {
            resource_version: "7".to_owned(),
            continue_token: String::new(),
            remaining: None,
            items: (0..count).map(item).collect(),
        };
        match body(&resource, list) {
            Body::Full(bytes) => (bytes.to_vec(), 1, None),
            Body::Long(long) => {
                let length = long.len();
                let pieces: Vec<Bytes> = long.collect();
                (pieces.concat(), pieces.len(), Some(length))
            }
            Body::Watch(_) | Body::Forwarded(_) => panic!("a list is whole"),
        }
    }

    #[test]
    fn a_list_is_whole_however_it_is_sent() {
        for (count, pieces) in [(0, 1), (1, 1), (100, 1), (200, 4), (1000, 17)] {
            let (text, made, announced) = listed(count);
            let read: Value = serde_json::from_slice(&text).expect("JSON");
            let items = read["items"].as_array().expect("items");
            let names: Vec<String> = items
                .iter()
                .filter_map(|item| Some(item["metadata"]["name"].as_str()?.to_owned()))
                .collect();
            assert_eq!(names, (0..count).map(|index| index.to_string()).collect::<Vec<_>>());
            assert_eq!(made, pieces, "pieces of {count}");
            assert_eq!(
                announced.unwrap_or(text.len()),
                text.len(),
                "the announced length of {count}"
            );
        }
    }

    /// Holds the Table that is written row by row against the one that is made as a whole.
    fn check_table(group: &str, plural: &str, items: &[Value], include: IncludeObject, version: &str) {
        let kinds = Registry::new().snapshot();
        let resource = kinds.lookup(group, "v1", plural).expect("it is built in");
        let options = Options {
            include,
            now: jiff::Timestamp::UNIX_EPOCH,
            headers: true,
        };
        let stored: Vec<_> = (items.iter())
            .map(|item| Arc::new(StoredObject::new(7, item.clone())))
            .collect();
        let list = List {
            resource_version: "7".to_owned(),
            continue_token: "more".to_owned(),
            remaining: Some(3),
            items: stored.iter().cloned().map(Item::Read).collect(),
        };
        let objects: Vec<Value> = stored.iter().map(|item| full(&resource, item.value())).collect();
        let shown = objects.iter().zip(&stored).map(|(object, stored)| table::Shown {
            object,
            stored: Some(stored.value()),
        });
        let whole = table_of(&resource, shown, list.metadata(false), options, version);
        let (wanted, text) = (json_text(&whole, false), table_body(&resource, list, options, version));
        let read = |text: &[u8]| String::from_utf8(text.to_vec()).expect("UTF-8");
        assert_eq!(read(&text), read(&wanted), "{plural} with {include:?} in {version}");
    }

    #[test]
    fn a_table_is_the_same_row_by_row() {
        let pod = |name: &str, phase: &str| {
            let labels = json!({"b": "1", "a": "2"});
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": []}, "status": {"phase": phase}})
        };
        let schema =
            |name: &str, first: u64| json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": first}});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}});
        let scaled = json!({"metadata": {"name": "s"}, "spec": {"maxReplicas": 3, "metrics": [metric]}});
        let lists: [(&str, &str, Vec<Value>); 6] = [
            ("", "pods", Vec::new()),
            (
                "",
                "pods",
                vec![pod("a", "Running"), pod("b", "Succeeded"), pod("c", "Failed")],
            ),
            ("", "limitranges", Vec::new()),
            ("", "limitranges", vec![json!({"metadata": {"name": "l"}})]),
            (
                "flowcontrol.apiserver.k8s.io",
                "flowschemas",
                vec![schema("a", 9), schema("b", 1), schema("c", 5)],
            ),
            ("autoscaling", "horizontalpodautoscalers", vec![scaled]),
        ];
        for (group, plural, items) in &lists {
            for include in [IncludeObject::None, IncludeObject::Metadata, IncludeObject::Object] {
                for version in ["meta.k8s.io/v1", "meta.k8s.io/v1beta1"] {
                    check_table(group, plural, items, include, version);
                }
            }
        }
    }

    #[test]
    fn yaml_is_the_same_item_by_item() {
        let kinds = Registry::new().snapshot();
        let resource = kinds.lookup("", "v1", "configmaps").expect("it is built in");
        let item = |data: Value| {
            let object = json!({"metadata": {"name": "a"}, "data": data});
            Item::Read(Arc::new(StoredObject::new(7, object)))
        };
        let long = "word ".repeat(30);
        let list = List {
            resource_version: "7".to_owned(),
            continue_token: "more".to_owned(),
            remaining: None,
            items: vec![
                item(json!({"k": "v", "list": "- a\n- b\n"})),
                item(json!({})),
                item(json!({"long": long})),
            ],
        };
        let items: Vec<Value> = list.items.iter().map(|item| item.value(&resource)).collect();
        let whole =
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": list.metadata(false), "items": items});
        let wanted = yaml::encode(&whole, yaml::Style::OBJECTS);
        assert_eq!(String::from_utf8(yaml_body(&resource, &list).to_vec()), Ok(wanted));
    }
}
