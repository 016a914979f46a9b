//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::FieldSet;

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Every other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who owns fields: name, operation and subresource together, for updates with the version that they were written in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// `fieldManager`, or the beginning of the User-Agent.
    pub name: String,
    /// Apply or Update.
    pub operation: Operation,
    /// `v1`, `apps/v1`; empty for Apply, where one manager is the same in all versions.
    pub api_version: String,
    /// `status`, `scale`; empty for the main resource.
    pub subresource: String,
}

impl Manager {
    /// A manager that writes in this version.
    pub fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Manager {
        let name = if name.is_empty() { "unknown" } else { name };
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Manager {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

/// The fields that a manager owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    /// The fields.
    pub fields: FieldSet,
    /// The version in which the paths of the fields are.
    pub api_version: String,
    /// When the entry last changed; RFC 3339 in seconds.
    pub time: Option<String>,
}

/// The field managers of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFields {
    /// The entries.
    pub entries: BTreeMap<Manager, Owned>,
}

/// Whether a client asks for the ownership to be forgotten: `[]`, or one entry without anything.
pub fn is_reset(managed_fields: &Value) -> bool {
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    match managed_fields.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(nothing),
        _ => false,
    }
}

impl ManagedFields {
    /// Reads `metadata.managedFields`; absent and null are no entries.
    ///
    /// # Errors
    /// The error in an entry.
    pub fn decode(managed_fields: Option<&Value>) -> Result<ManagedFields, String> {
        let list = match managed_fields {
            None | Some(Value::Null) => return Ok(ManagedFields::default()),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(format!("managedFields must be a list, not {other}")),
        };
        let mut entries = BTreeMap::new();
        for (at, entry) in list.iter().enumerate() {
            let (manager, owned) = decode_entry(entry, at)?;
            entries.insert(manager, owned);
        }
        Ok(ManagedFields { entries })
    }

    /// Writes `metadata.managedFields`; none when no manager owns a field.
    pub fn encode(self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        let mut entries: Vec<(Manager, Owned)> = self.entries.into_iter().collect();
        // Entries without a time come first, as the zero time would.
        entries.sort_by(|(one, a), (other, b)| {
            (one.operation, &a.time).cmp(&(other.operation, &b.time)).then_with(|| {
                (&one.name, &a.api_version, &one.subresource).cmp(&(&other.name, &b.api_version, &other.subresource))
            })
        });
        let entries = entries.into_iter();
        Some(entries.map(|(manager, owned)| encode_entry(manager, owned)).collect())
    }
}

fn decode_entry(entry: &Value, at: usize) -> Result<(Manager, Owned), String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("");
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    if text("apiVersion").is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
        other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
    }
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(fields) => FieldSet::decode(fields)?,
    };
    let mut manager = Manager::new(text("manager"), operation, text("apiVersion"), text("subresource"));
    text("manager").clone_into(&mut manager.name);
    let time = text("time");
    let owned = Owned {
        fields,
        api_version: text("apiVersion").to_owned(),
        time: (!time.is_empty()).then(|| time.to_owned()),
    };
    Ok((manager, owned))
}

fn encode_entry(manager: Manager, owned: Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, text: String| {
        if !text.is_empty() {
            entry.insert(key.to_owned(), Value::String(text));
        }
    };
    put("manager", manager.name);
    put("operation", manager.operation.as_str().to_owned());
    put("apiVersion", owned.api_version);
    put("time", owned.time.unwrap_or_default());
    put("fieldsType", "FieldsV1".to_owned());
    put("subresource", manager.subresource);
    entry.insert("fieldsV1".to_owned(), owned.fields.encode());
    Value::Object(entry)
}
