//! Reviews: questions that are answered and not stored. Whether a user may do something, what the present user may do,
//! and who the present user is.
//!
//! A review goes the way of a create up to admission; then its kind answers. The answer is the question with a status,
//! but for SelfSubjectReview and SelfSubjectRulesReview, which answer with a status alone.
//!
//! Not here: how the question is decided (see [`crate::authorization`]).

use std::collections::BTreeMap;

use http::HeaderMap;
use kubewright_schema::apply;
use kubewright_schema::error::FieldError;
use kubewright_schema::fields::{self, FieldSelector};
use kubewright_schema::labels::{self, Selector};
use kubewright_schema::names;
use serde_json::{Value, json};

use crate::authorization::{Attributes, Decision, Rule, Verdict};
use crate::model::Operation;
use crate::model::object;
use crate::model::status::Status;
use crate::model::user::UserInfo;
use crate::model::{Minor, Resource, Verbs};
use crate::server::Call;
use crate::server::managed;
use crate::server::options::WriteOptions;
use crate::server::respond::Reply;
use crate::server::write::Written;
use crate::values::{At, Errors};
use crate::wire::negotiate::{self, Output, Transform};
use crate::wire::query::Query;

/// The kinds of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubjectAccess,
    SelfSubjectRules,
    SelfSubject,
}

impl Review {
    pub(crate) fn of(resource: &Resource) -> Option<Review> {
        Some(match (resource.group.as_ref(), resource.kind.as_ref()) {
            ("authorization.k8s.io", "SubjectAccessReview") => Review::SubjectAccess,
            ("authorization.k8s.io", "LocalSubjectAccessReview") => Review::LocalSubjectAccess,
            ("authorization.k8s.io", "SelfSubjectAccessReview") => Review::SelfSubjectAccess,
            ("authorization.k8s.io", "SelfSubjectRulesReview") => Review::SelfSubjectRules,
            ("authentication.k8s.io", "SelfSubjectReview") => Review::SelfSubject,
            _ => return None,
        })
    }
}

/// The form of an answer. A review is no row of a Table: where a client takes other forms as well, the next one is for
/// it.
pub(crate) fn output(resource: &Resource, headers: &HeaderMap, query: &Query, streams: bool) -> Result<Output, Status> {
    let output = negotiate::output_of(headers, query, streams, resource.custom.is_some())?;
    if resource.verbs != Verbs::CreateOnly || !matches!(output.transform, Transform::Table(_)) {
        return Ok(output);
    }
    negotiate::output_without(headers, query, streams, |kind| kind == "Table")
}

impl Call<'_> {
    /// Answers a review.
    pub(crate) async fn review(&mut self, review: Review) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let mut object = self.object_in_body(&options)?;
        self.fit_namespace(&mut object)?;
        let writer = self.tracked_writer(&options);
        self.warnings.extend(object::dedup_owners(&mut object, false));
        object::wipe_system_fields(&mut object);
        let now = crate::env::rfc3339(self.server.env.now());
        managed::track_create(
            &self.resource,
            &writer.tracking,
            &mut object,
            &now,
            &apply::Views::new(),
        );
        let name = object::name(&object).to_owned();
        let attributes = writer.attributes(Operation::Create, "", self.namespace(), &name);
        let session = writer.session();
        let mutated = writer.mutate(&session, &attributes, &mut object, None).await;
        self.warnings.extend(session.take_warnings());
        mutated?;
        self.check(review, &object)?;
        let validated = writer.validate(&session, &attributes, &object, None).await;
        self.warnings.extend(session.take_warnings());
        validated?;
        let answer = self.answer(review, object, &now).await;
        Ok(self.show(201, Written::Shown(answer)))
    }

    /// The errors in the question.
    fn check(&self, review: Review, object: &Value) -> Result<(), Status> {
        let errors = match review {
            Review::SelfSubject => return Ok(()),
            Review::SelfSubjectRules => {
                let namespace = object.pointer("/spec/namespace").and_then(Value::as_str);
                return match namespace.unwrap_or("") {
                    "" => Err(Status::bad_request("no namespace on request")),
                    _ => Ok(()),
                };
            }
            other => validate(object, other, self.server.config.minor),
        };
        if errors.is_empty() {
            return Ok(());
        }
        // Upstream has forgotten the kind by the time it says this.
        Err(Status::invalid(&self.resource.group, "", "", &errors))
    }

    async fn answer(&self, review: Review, mut object: Value, now: &str) -> Value {
        let authorizer = &*self.server.authorizer;
        let shell = |metadata: Value| json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata});
        match review {
            Review::SelfSubject => {
                let mut answer = shell(json!({ "creationTimestamp": now }));
                answer["status"] = json!({ "userInfo": self.user.to_value() });
                answer
            }
            Review::SelfSubjectRules => {
                let namespace = object.pointer("/spec/namespace").and_then(Value::as_str);
                let known = authorizer.rules_for(self.user, namespace.unwrap_or(""));
                let mut answer = shell(json!({}));
                answer["spec"] = json!({});
                answer["status"] = json!({ "incomplete": known.incomplete });
                // Rules may be many: they are moved into the answer.
                let (resources, paths) = rules_by_sort(known.rules);
                answer["status"]["resourceRules"] = Value::Array(resources);
                answer["status"]["nonResourceRules"] = Value::Array(paths);
                if !known.error.is_empty() {
                    answer["status"]["evaluationError"] = json!(known.error);
                }
                answer
            }
            Review::SubjectAccess | Review::LocalSubjectAccess | Review::SelfSubjectAccess => {
                let spec = object.get("spec").cloned().unwrap_or_default();
                let (attributes, error) = attributes_of(&spec);
                let answer = match review {
                    Review::SelfSubjectAccess => authorizer.decide(self.user, &attributes),
                    _ => authorizer.decide(&subject_of(&spec), &attributes),
                };
                object["status"] = status_of(&answer.decision().await, &error);
                object
            }
        }
    }
}

fn status_of(decision: &Decision, error: &str) -> Value {
    let mut status = json!({ "allowed": decision.is_allowed() });
    if decision.verdict == Verdict::Deny {
        status["denied"] = json!(true);
    }
    for (field, text) in [("reason", decision.reason.as_str()), ("evaluationError", error)] {
        if !text.is_empty() {
            status[field] = json!(text);
        }
    }
    status
}

/// The rules for resources, and the rules for paths.
fn rules_by_sort(rules: Vec<Rule>) -> (Vec<Value>, Vec<Value>) {
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for mut rule in rules {
        let urls = std::mem::take(&mut rule.non_resource_urls);
        if !urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": urls}));
        }
        if !rule.resources.is_empty() {
            resources.push(rule.into_value());
        }
    }
    (resources, paths)
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The user about whom a SubjectAccessReview asks.
fn subject_of(spec: &Value) -> UserInfo {
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let extra = spec.get("extra").and_then(Value::as_object).into_iter().flatten();
    UserInfo {
        name: text("user"),
        uid: text("uid"),
        groups: texts(spec.get("groups")),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(Some(values))))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// The attributes that a review asks about, and the errors in its selectors.
fn attributes_of(spec: &Value) -> (Attributes, String) {
    if let Some(path) = spec.get("nonResourceAttributes").filter(|path| !path.is_null()) {
        let text = |field: &str| path.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        // Without a path it would be about a resource. Only `*` fits the empty path, and it fits this one as well.
        let path = Some(text("path")).filter(|path| !path.is_empty());
        let attributes = Attributes {
            verb: text("verb"),
            path: path.unwrap_or_else(|| " ".to_owned()),
            ..Attributes::default()
        };
        return (attributes, String::new());
    }
    let wanted = spec.get("resourceAttributes").unwrap_or(&Value::Null);
    let text = |field: &str| wanted.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let mut attributes = Attributes {
        verb: text("verb"),
        group: text("group"),
        version: Some(text("version"))
            .filter(|version| !version.is_empty())
            .unwrap_or_else(|| "*".to_owned()),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        ..Attributes::default()
    };
    let mut errors = Vec::new();
    let mut note = |field: &str, understood: bool, none: bool| {
        if !understood {
            let partially = if none { "" } else { "partially " };
            errors.push(format!(
                "spec.resourceAttributes.{field} {partially}ignored due to parse error"
            ));
        }
    };
    if let Some(selector) = wanted.get("fieldSelector").filter(|selector| !selector.is_null()) {
        let (requirements, understood) = field_requirements(selector);
        note("fieldSelector", understood, requirements.is_empty());
        attributes.field_selector = requirements;
    }
    if let Some(selector) = wanted.get("labelSelector").filter(|selector| !selector.is_null()) {
        let (requirements, understood) = label_requirements(selector);
        note("labelSelector", understood, requirements.is_empty());
        attributes.label_selector = requirements;
    }
    (attributes, errors.join("; "))
}

/// The parts of a selector in a review.
struct Parts<'a> {
    raw: &'a str,
    requirements: &'a [Value],
}

impl<'a> Parts<'a> {
    fn of(selector: &'a Value) -> Parts<'a> {
        Parts {
            raw: selector.get("rawSelector").and_then(Value::as_str).unwrap_or(""),
            requirements: selector
                .get("requirements")
                .and_then(Value::as_array)
                .map_or(&[], Vec::as_slice),
        }
    }
}

/// The requirements that are understood, and whether all are.
fn field_requirements(selector: &Value) -> (Vec<fields::Requirement>, bool) {
    let parts = Parts::of(selector);
    if !parts.raw.is_empty() {
        let parsed = FieldSelector::parse(parts.raw);
        return parsed.map_or((Vec::new(), false), |selector| (selector.requirements().to_vec(), true));
    }
    let understood = parts.requirements.iter().map(|requirement| {
        let text = |field: &str| requirement.get(field).and_then(Value::as_str).unwrap_or("");
        let operator = match text("operator") {
            "In" => fields::Operator::Equals,
            "NotIn" => fields::Operator::NotEquals,
            _ => return None,
        };
        let [value] = <[String; 1]>::try_from(texts(requirement.get("values"))).ok()?;
        let field = text("key").to_owned();
        Some(fields::Requirement { field, operator, value })
    });
    let kept: Vec<_> = understood.flatten().collect();
    let all = kept.len() == parts.requirements.len();
    (kept, all)
}

/// The same for labels.
fn label_requirements(selector: &Value) -> (Vec<labels::Requirement>, bool) {
    let parts = Parts::of(selector);
    if !parts.raw.is_empty() {
        let parsed = Selector::parse(parts.raw);
        return parsed.map_or((Vec::new(), false), |selector| (selector.requirements().to_vec(), true));
    }
    let understood = parts.requirements.iter().map(|requirement| {
        let text = |field: &str| requirement.get(field).and_then(Value::as_str).unwrap_or("");
        let operator = match text("operator") {
            "In" => labels::Operator::In,
            "NotIn" => labels::Operator::NotIn,
            "Exists" => labels::Operator::Exists,
            "DoesNotExist" => labels::Operator::DoesNotExist,
            _ => return None,
        };
        labels::Requirement::new(text("key"), operator, texts(requirement.get("values"))).ok()
    });
    let kept: Vec<_> = understood.flatten().collect();
    let all = kept.len() == parts.requirements.len();
    (kept, all)
}

/// The errors in an access review.
fn validate(object: &Value, review: Review, minor: Minor) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let root = At::root(object);
    let spec = root.key("spec");
    let (resource, path) = (spec.key("resourceAttributes"), spec.key("nonResourceAttributes"));
    // As Go prints the fields of a struct that has no names for JSON.
    let shown = json!({"Path": path.key("path").text(), "Verb": path.key("verb").text()});
    let one = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    // From 1.37 on the error is about both of them.
    let (why, place) = match minor >= Minor::V37 {
        true => (one, &spec),
        false => ("cannot be specified in combination with resourceAttributes", &path),
    };
    if resource.present() && path.present() {
        errors.invalid_value(place, shown.clone(), why);
    }
    if !resource.present() && !path.present() {
        let place = if minor >= Minor::V37 { &spec } else { &resource };
        errors.invalid_value(place, Value::Null, one);
    }
    if review != Review::SelfSubjectAccess && spec.key("user").text().is_empty() && spec.key("groups").is_empty() {
        let why = "at least one of user or group must be specified";
        errors.invalid_value(&spec.key("user"), "", why);
    }
    validate_selector(&mut errors, &resource.key("fieldSelector"), false);
    validate_selector(&mut errors, &resource.key("labelSelector"), true);
    let local = review == Review::LocalSubjectAccess;
    let metadata = root.key("metadata");
    let allowed = |key: &str| key == "managedFields" || (local && key == "namespace");
    if metadata.entries().any(|(key, at)| !allowed(key) && !is_zero(at.value)) {
        let tail = if local { " except for namespace" } else { "" };
        errors.invalid_value(&metadata, metadata.value.clone(), format!("must be empty{tail}"));
    }
    if local && resource.present() {
        let namespace = resource.key("namespace");
        if namespace.text() != object::namespace(object) {
            errors.invalid_value(&namespace, namespace.text(), "must match metadata.namespace");
        }
    }
    if local && path.present() {
        errors.invalid_value(&path, shown, "disallowed on this kind of request");
    }
    errors.into_vec()
}

/// The values that Go does not tell from absence.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(flag) => !flag,
    }
}

fn validate_selector(errors: &mut Errors, at: &At<'_>, labels: bool) {
    if !at.present() {
        return;
    }
    let (raw, requirements) = (at.key("rawSelector"), at.key("requirements"));
    if !raw.text().is_empty() && !requirements.is_empty() {
        let why = "may not specified at the same time as requirements";
        errors.invalid_value(&raw, raw.text(), why);
    }
    if raw.text().is_empty() && requirements.is_empty() {
        let why = format!("when {} is specified, requirements or rawSelector is required", at.path);
        errors.required(&requirements, &why);
    }
    for requirement in requirements.items() {
        let (key, values) = (requirement.key("key"), requirement.key("values"));
        if !labels && key.text().is_empty() {
            errors.required(&key, "must be specified");
        }
        match requirement.key("operator").text() {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(values.path.to_string(), why));
            }
            _ => {}
        }
        if labels {
            errors.messages(&key, names::qualified_name(key.text()));
            for value in values.items() {
                errors.messages(&value, names::label_value(value.text()));
            }
        }
    }
}
