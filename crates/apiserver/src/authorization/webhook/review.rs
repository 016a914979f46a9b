//! The SubjectAccessReview that is sent, and the decision in its answer (`webhook.go` of apiserver's authorizer
//! plugin).

use kubewright_schema::{fields, labels};
use serde_json::{Map, Value, json};

use super::super::{Attributes, Decision, Verdict};
use crate::model::user::UserInfo;

/// Answers to questions longer than this are not remembered (`maxControlledAttrSize`): a client must not fill the
/// cache.
const LONGEST: usize = 10_000;

/// A version of SubjectAccessReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `authorization.k8s.io/v1`
    V1,
    /// `authorization.k8s.io/v1beta1`, whose groups are in the field `group`.
    V1beta1,
}

impl Version {
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Version::V1 => "authorization.k8s.io/v1",
            Version::V1beta1 => "authorization.k8s.io/v1beta1",
        }
    }
}

/// The question as `spec` of a review in version v1. Fields without a value are absent, as Go's `omitempty` leaves
/// them.
pub(super) fn spec(user: &UserInfo, attributes: &Attributes) -> Value {
    let mut spec = Map::new();
    if attributes.is_resource() {
        spec.insert("resourceAttributes".to_owned(), resource_attributes(attributes));
    } else {
        let asked = texts([("path", &attributes.path), ("verb", &attributes.verb)]);
        spec.insert("nonResourceAttributes".to_owned(), Value::Object(asked));
    }
    spec.append(&mut texts([("user", &user.name)]));
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    spec.append(&mut texts([("uid", &user.uid)]));
    Value::Object(spec)
}

fn texts<'a>(fields: impl IntoIterator<Item = (&'a str, &'a String)>) -> Map<String, Value> {
    let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
    given
        .map(|(name, text)| (name.to_owned(), Value::from(text.as_str())))
        .collect()
}

fn resource_attributes(attributes: &Attributes) -> Value {
    let mut asked = texts([
        ("namespace", &attributes.namespace),
        ("verb", &attributes.verb),
        ("group", &attributes.group),
        ("version", &attributes.version),
        ("resource", &attributes.resource),
        ("subresource", &attributes.subresource),
        ("name", &attributes.name),
    ]);
    let of_fields: Vec<Value> = attributes.field_selector.iter().map(field_requirement).collect();
    let of_labels: Vec<Value> = attributes.label_selector.iter().filter_map(label_requirement).collect();
    for (name, requirements) in [("fieldSelector", of_fields), ("labelSelector", of_labels)] {
        if !requirements.is_empty() {
            asked.insert(name.to_owned(), json!({ "requirements": requirements }));
        }
    }
    Value::Object(asked)
}

/// `fieldSelectorToAuthorizationAPI`
fn field_requirement(requirement: &fields::Requirement) -> Value {
    let operator = match requirement.operator {
        fields::Operator::Equals => "In",
        fields::Operator::NotEquals => "NotIn",
    };
    json!({"key": requirement.field, "operator": operator, "values": [requirement.value]})
}

/// `labelSelectorToAuthorizationAPI`: comparisons of numbers cannot be said.
fn label_requirement(requirement: &labels::Requirement) -> Option<Value> {
    use labels::Operator;
    let operator = match requirement.operator() {
        Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
        Operator::NotIn | Operator::NotEquals => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        _ => return None,
    };
    let mut asked = json!({"key": requirement.key(), "operator": operator});
    let values: Vec<&str> = requirement.values().collect();
    if !values.is_empty() {
        asked["values"] = json!(values);
    }
    Some(asked)
}

/// Whether the answer may be remembered (`shouldCache`).
pub(super) fn is_short(attributes: &Attributes) -> bool {
    let texts = [
        &attributes.namespace,
        &attributes.verb,
        &attributes.group,
        &attributes.version,
        &attributes.resource,
        &attributes.subresource,
        &attributes.name,
        &attributes.path,
    ];
    texts.iter().map(|text| text.len()).sum::<usize>() < LONGEST
}

/// The whole review.
pub(super) fn document(version: Version, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let (Version::V1beta1, Some(fields)) = (version, spec.as_object_mut())
        && let Some(groups) = fields.remove("groups")
    {
        fields.insert("group".to_owned(), groups);
    }
    json!({
        "kind": "SubjectAccessReview",
        "apiVersion": version.api_version(),
        "metadata": {"creationTimestamp": null},
        "spec": spec,
        "status": {"allowed": false},
    })
}

/// The status of the answer (`SubjectAccessReviewStatus`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) allowed: bool,
    pub(super) denied: bool,
    pub(super) reason: String,
}

impl Status {
    /// Of a review that was answered.
    pub(super) fn of(answer: &Value, version: Version) -> Result<Status, String> {
        let text = |field: &str| answer.get(field).and_then(Value::as_str).unwrap_or("");
        let found = (text("apiVersion"), text("kind"));
        if found != (version.api_version(), "SubjectAccessReview") {
            return Err(format!(
                "the answer is {:?} of {:?}, not \"SubjectAccessReview\" of {:?}",
                found.1,
                found.0,
                version.api_version()
            ));
        }
        let flag = |field: &str| match answer.pointer(&format!("/status/{field}")) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("status.{field} of the answer is no bool")),
        };
        Ok(Status {
            allowed: flag("allowed")?,
            denied: flag("denied")?,
            reason: answer
                .pointer("/status/reason")
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned(),
        })
    }

    pub(super) fn decision(&self) -> Decision {
        let verdict = match (self.denied, self.allowed) {
            (true, _) => Verdict::Deny,
            (false, true) => Verdict::Allow,
            (false, false) => Verdict::NoOpinion,
        };
        let mut decision = Decision::new(verdict, self.reason.as_str());
        if self.denied && self.allowed {
            "webhook subject access review returned both allow and deny response".clone_into(&mut decision.error);
        }
        decision
    }
}
