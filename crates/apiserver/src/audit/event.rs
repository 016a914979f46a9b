//! An event as it is written: fields in the order of Go's struct `Event`, one line of JSON, or the line of text of the
//! form `legacy`.

use std::collections::BTreeMap;

use kubewright_schema::error::quote;
use kubewright_schema::protobuf::order::Ordered;
use serde::Serialize;
use serde_json::Value;

use crate::model::user::UserInfo;

/// `audit.k8s.io/v1` Event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: &'static str,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: &'static str,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'a str,
    pub(super) user: User<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    pub(super) source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<&'a ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<Ordered<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Ordered<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Ordered<'a>>,
    pub(super) request_received_timestamp: &'a str,
    pub(super) stage_timestamp: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: &'a BTreeMap<String, String>,
}

/// `authentication.k8s.io/v1` UserInfo.
#[derive(Serialize)]
pub(super) struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> From<&'a UserInfo> for User<'a> {
    fn from(user: &'a UserInfo) -> User<'a> {
        User {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: &user.extra,
        }
    }
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthenticationMetadata {
    pub(super) impersonation_constraint: &'static str,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

impl Event<'_> {
    /// The event as a line of text, with its newline (`EventString`). `code` is that of the answer.
    pub(super) fn text(&self, code: Option<i64>) -> String {
        let none = |text: &str| quote(if text.is_empty() { "<none>" } else { text });
        let listed = |groups: &[String]| groups.iter().map(|group| quote(group)).collect::<Vec<_>>().join(",");
        // A user without a name has no groups.
        let groups = if self.user.username.is_empty() {
            &[]
        } else {
            self.user.groups
        };
        let namespace = self.object_ref.map_or("", |about| about.namespace.as_str());
        let acting = self.impersonated_user.as_ref();
        let for_groups = acting.map(|user| user.groups).filter(|groups| !groups.is_empty());
        format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} uri={} response=\"{}\"\n",
            without_zeros(self.request_received_timestamp),
            quote(self.audit_id),
            quote(self.stage),
            quote(self.source_ips.first().map_or("<unknown>", String::as_str)),
            quote(self.verb),
            none(self.user.username),
            none(&listed(groups)),
            quote(acting.map_or("<self>", |user| user.username)),
            quote(&for_groups.map_or_else(|| "<lookup>".to_owned(), listed)),
            quote(self.user_agent),
            none(namespace),
            quote(self.request_uri),
            code.map_or_else(|| "<deferred>".to_owned(), |code| code.to_string()),
        )
    }

    /// The line, with its newline.
    pub(super) fn line(&self) -> String {
        let mut line = String::from_utf8(crate::json::text(self)).expect("JSON is UTF-8");
        line.push('\n');
        line
    }
}

/// A time as Go's `RFC3339Nano` has it: the fraction of the second without the zeros at its end.
fn without_zeros(time: &str) -> String {
    match time.strip_suffix('Z') {
        Some(time) if time.contains('.') => format!("{}Z", time.trim_end_matches('0').trim_end_matches('.')),
        _ => time.to_owned(),
    }
}

/// An object without its `managedFields`, and those of the objects in it (`copyWithoutManagedFields`).
pub(super) fn without_managed_fields(object: &mut Value) {
    let remove = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    remove(object);
    let list = |object: &'_ mut Value, field: &str| match object.get_mut(field).map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
    if kind == "Table" {
        let mut rows = list(object, "rows");
        rows.iter_mut().filter_map(|row| row.get_mut("object")).for_each(remove);
        object["rows"] = Value::Array(rows);
    } else if kind.ends_with("List") && object.get("items").is_some_and(Value::is_array) {
        let mut items = list(object, "items");
        items.iter_mut().for_each(remove);
        object["items"] = Value::Array(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_go() {
        let check = |time: &str, expected: &str| assert_eq!(without_zeros(time), expected);
        check("2026-01-01T00:00:20.000000Z", "2026-01-01T00:00:20Z");
        check("2026-01-01T00:00:20.120000Z", "2026-01-01T00:00:20.12Z");
        check("2026-01-01T00:00:20Z", "2026-01-01T00:00:20Z");
    }
}
