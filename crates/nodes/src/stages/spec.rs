//! A Stage as it is written: the fields of `kwok.x-k8s.io/v1alpha1`.
//!
//! Invariant: a field that is not known is refused, so that everything that was read acts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    #[serde(rename = "apiVersion")]
    _api_version: Value,
    #[serde(rename = "kind")]
    _kind: Value,
    #[serde(default, rename = "metadata")]
    _metadata: Value,
    pub(super) spec: Spec,
    #[serde(default, rename = "status")]
    _status: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    pub(super) resource_ref: ResourceRef,
    /// Without one a stage fits nothing.
    pub(super) selector: Option<Selector>,
    #[serde(default)]
    pub(super) weight: u32,
    pub(super) weight_from: Option<From>,
    pub(super) delay: Option<Delay>,
    /// The older form of `steps`.
    pub(super) next: Option<Next>,
    #[serde(default)]
    pub(super) steps: Vec<StageStep>,
    /// The next stage is looked for as soon as the change is seen, which it is at once here.
    #[serde(rename = "immediateNextStage")]
    _immediate_next_stage: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ResourceRef {
    #[serde(rename = "apiGroup", default = "core")]
    pub(super) api_version: String,
    pub(super) kind: String,
}

fn core() -> String {
    "v1".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Selector {
    #[serde(default)]
    pub(super) match_labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) match_annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) match_expressions: Vec<Expression>,
}

/// A requirement in CEL, in jq, or in jq without its name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expression {
    pub(super) cel: Option<Cel>,
    pub(super) jq: Option<Requirement>,
    pub(super) key: Option<String>,
    pub(super) operator: Option<Operator>,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cel {
    pub(super) expression: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requirement {
    pub(super) key: String,
    pub(super) operator: Operator,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(super) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Where a value comes from.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct From {
    pub(super) cel: Option<Cel>,
    pub(super) jq: Option<Jq>,
    pub(super) expression_from: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Jq {
    pub(super) expression: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Delay {
    pub(super) duration_milliseconds: Option<u64>,
    pub(super) duration_from: Option<From>,
    pub(super) jitter_duration_milliseconds: Option<u64>,
    pub(super) jitter_duration_from: Option<From>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Next {
    pub(super) event: Option<Event>,
    pub(super) finalizers: Option<Finalizers>,
    #[serde(default)]
    pub(super) delete: bool,
    #[serde(default)]
    pub(super) patches: Vec<Patch>,
    pub(super) status_template: Option<String>,
    pub(super) status_subresource: Option<String>,
    pub(super) status_patch_as: Option<Impersonation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StageStep {
    pub(super) event: Option<Event>,
    pub(super) finalizers: Option<Finalizers>,
    #[serde(default)]
    pub(super) delete: bool,
    pub(super) patch: Option<Patch>,
    pub(super) apply: Option<Apply>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Event {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finalizers {
    #[serde(default)]
    pub(super) add: Vec<Finalizer>,
    #[serde(default)]
    pub(super) remove: Vec<Finalizer>,
    #[serde(default)]
    pub(super) empty: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finalizer {
    pub(super) value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    #[serde(default)]
    pub(super) subresource: String,
    #[serde(default)]
    pub(super) root: String,
    #[serde(default)]
    pub(super) template: String,
    #[serde(rename = "type")]
    pub(super) form: Option<PatchType>,
    pub(super) impersonation: Option<Impersonation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Apply {
    pub(super) template: String,
    #[serde(default)]
    pub(super) subresource: String,
    #[serde(rename = "type")]
    pub(super) form: Option<PatchType>,
    pub(super) impersonation: Option<Impersonation>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Impersonation {
    pub(super) username: String,
}

/// Reads a document. What is null is not there, as Go reads it.
pub(super) fn read(mut document: Value) -> Result<Document, String> {
    without_nulls(&mut document);
    serde_json::from_value(document).map_err(|why| why.to_string())
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
