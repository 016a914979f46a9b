//! Which requests are entered, and how much of them (`Policy` of `audit.k8s.io/v1`; evaluated as by
//! `policyRuleEvaluator`).
//!
//! The first rule that fits decides. A request that no rule fits is not entered.

use std::collections::BTreeSet;

use kubewright_schema::decode;
use kubewright_schema::error::{FieldError, aggregate};
use kubewright_schema::names;
use serde::Deserialize;
use serde_json::Value;

use crate::authorization::Attributes;
use crate::model::user::UserInfo;

/// How much is written about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// User, time and request.
    Metadata,
    /// The object that was sent as well.
    Request,
    /// And the object of the answer.
    RequestResponse,
}

const LEVELS: [(&str, Level); 4] = [
    ("None", Level::None),
    ("Metadata", Level::Metadata),
    ("Request", Level::Request),
    ("RequestResponse", Level::RequestResponse),
];

impl Level {
    /// As policies and events spell it.
    pub fn as_str(self) -> &'static str {
        LEVELS
            .iter()
            .find(|(_, level)| *level == self)
            .map_or("None", |(name, _)| name)
    }

    fn parse(text: &str) -> Option<Level> {
        LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| *level)
    }
}

/// When events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

const STAGES: [(&str, Stage); 4] = [
    ("RequestReceived", Stage::RequestReceived),
    ("ResponseStarted", Stage::ResponseStarted),
    ("ResponseComplete", Stage::ResponseComplete),
    ("Panic", Stage::Panic),
];

impl Stage {
    pub(super) fn as_str(self) -> &'static str {
        STAGES
            .iter()
            .find(|(_, stage)| *stage == self)
            .map_or("", |(name, _)| name)
    }

    fn parse(text: &str) -> Option<Stage> {
        STAGES.iter().find(|(name, _)| *name == text).map(|(_, stage)| *stage)
    }
}

/// Why a policy cannot be used, in the words of kube-apiserver where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

/// The rules of an audit log.
///
/// ```
/// use kubewright_apiserver::audit::Policy;
/// let policy = Policy::parse(b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")?;
/// assert!(policy.warnings().is_empty());
/// # Ok::<(), kubewright_apiserver::audit::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    warnings: Vec<String>,
}

#[derive(Clone, Debug)]
struct Rule {
    chosen: Chosen,
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
    verbs: BTreeSet<String>,
    resources: Vec<GivenResources>,
    namespaces: BTreeSet<String>,
    paths: Vec<String>,
}

/// The parts of a request that are logged by a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) level: Level,
    pub(super) omitted: BTreeSet<Stage>,
    pub(super) omit_managed_fields: bool,
}

/// A policy as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GivenPolicy {
    rules: Option<Vec<GivenRule>>,
    omit_stages: Option<Vec<String>>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GivenRule {
    level: Option<String>,
    users: Option<Vec<String>>,
    user_groups: Option<Vec<String>>,
    verbs: Option<Vec<String>>,
    resources: Option<Vec<GivenResources>>,
    namespaces: Option<Vec<String>>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Option<Vec<String>>,
    omit_stages: Option<Vec<String>>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GivenResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

const POLICY_FIELDS: [&str; 6] = [
    "apiVersion",
    "kind",
    "metadata",
    "omitManagedFields",
    "omitStages",
    "rules",
];
const RULE_FIELDS: [&str; 9] = [
    "level",
    "namespaces",
    "nonResourceURLs",
    "omitManagedFields",
    "omitStages",
    "resources",
    "userGroups",
    "users",
    "verbs",
];
const RESOURCES_FIELDS: [&str; 3] = ["group", "resourceNames", "resources"];

impl Policy {
    /// Reads a policy, in YAML or JSON. Unknown fields are no errors, as upstream; see [`Policy::warnings`].
    ///
    /// # Errors
    /// The error, with the path of the field (`LoadPolicyFromBytes`, `ValidatePolicy`).
    pub fn parse(text: &[u8]) -> Result<Policy, PolicyError> {
        let failed = |why: String| PolicyError(format!("failed decoding: {why}"));
        let document = decode::yaml(text).map_err(|why| failed(why.to_string()))?.value;
        check_kind(&document)?;
        let mut warnings = Vec::new();
        unknown_fields(&document, &mut warnings);
        let given: GivenPolicy = serde_json::from_value(document).map_err(|why| failed(why.to_string()))?;
        let errors = check(&given);
        if !errors.is_empty() {
            return Err(PolicyError(aggregate(&errors)));
        }
        let rules = given.rules.unwrap_or_default();
        if rules.is_empty() {
            return Err(PolicyError("loaded illegal policy with 0 rules".to_owned()));
        }
        let everywhere = stages(given.omit_stages.as_deref());
        let omit_managed_fields = given.omit_managed_fields.unwrap_or(false);
        let rule = |rule: GivenRule| Rule::new(rule, &everywhere, omit_managed_fields);
        Ok(Policy {
            rules: rules.into_iter().map(rule).collect(),
            warnings,
        })
    }

    /// Fields of the policy that mean nothing.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The parts of a request that are logged; none if no rule fits.
    pub(super) fn evaluate(&self, user: &UserInfo, attributes: &Attributes) -> Option<&Chosen> {
        let rule = self.rules.iter().find(|rule| rule.fits(user, attributes))?;
        (rule.chosen.level != Level::None).then_some(&rule.chosen)
    }
}

impl Rule {
    fn new(given: GivenRule, everywhere: &BTreeSet<Stage>, omit_managed_fields: bool) -> Rule {
        let set = |list: Option<Vec<String>>| list.unwrap_or_default().into_iter().collect();
        Rule {
            chosen: Chosen {
                level: given.level.as_deref().and_then(Level::parse).unwrap_or_default(),
                omitted: stages(given.omit_stages.as_deref())
                    .union(everywhere)
                    .copied()
                    .collect(),
                omit_managed_fields: given.omit_managed_fields.unwrap_or(omit_managed_fields),
            },
            users: set(given.users),
            groups: set(given.user_groups),
            verbs: set(given.verbs),
            resources: given.resources.unwrap_or_default(),
            namespaces: set(given.namespaces),
            paths: given.non_resource_urls.unwrap_or_default(),
        }
    }

    /// `ruleMatches`.
    fn fits(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let among = |set: &BTreeSet<String>, text: &str| set.is_empty() || set.contains(text);
        if !among(&self.users, &user.name) || !among(&self.verbs, &attributes.verb) {
            return false;
        }
        if !self.groups.is_empty() && !user.groups.iter().any(|group| self.groups.contains(group)) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.is_resource() && self.fits_resource(attributes);
        }
        if !self.paths.is_empty() {
            return !attributes.is_resource() && self.paths.iter().any(|spec| fits_path(spec, &attributes.path));
        }
        true
    }

    /// `ruleMatchesResource`.
    fn fits_resource(&self, attributes: &Attributes) -> bool {
        if !self.namespaces.is_empty() && !self.namespaces.contains(&attributes.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|given| given.fits(attributes))
    }
}

impl GivenResources {
    fn fits(&self, attributes: &Attributes) -> bool {
        if self.group != attributes.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.contains(&attributes.name) {
            return false;
        }
        let combined = attributes.combined_resource();
        let subresource = attributes.subresource.as_str();
        self.resources.iter().any(|spec| {
            spec == "*"
                || *spec == combined
                || (!subresource.is_empty() && spec.strip_prefix("*/") == Some(subresource))
                || spec.strip_suffix("/*") == Some(attributes.resource.as_str())
        })
    }
}

/// `pathMatches`.
fn fits_path(spec: &str, path: &str) -> bool {
    let below = || spec.ends_with('*') && path.starts_with(spec.trim_end_matches('*'));
    spec == "*" || spec == path || below()
}

fn stages(names: Option<&[String]>) -> BTreeSet<Stage> {
    let names = names.unwrap_or_default().iter();
    names.filter_map(|name| Stage::parse(name)).collect()
}

fn check_kind(document: &Value) -> Result<(), PolicyError> {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or("");
    match (text("apiVersion"), text("kind")) {
        ("audit.k8s.io/v1", "Policy") => Ok(()),
        ("", _) | (_, "") => Err(PolicyError(
            "it must say `apiVersion: audit.k8s.io/v1` and `kind: Policy`".to_owned(),
        )),
        (version, kind) => Err(PolicyError(format!(
            "failed decoding: no kind {kind:?} is registered for version {version:?}: a policy is a Policy of audit.k8s.io/v1"
        ))),
    }
}

fn unknown_fields(document: &Value, warnings: &mut Vec<String>) {
    let mut look = |value: &Value, known: &[&str], at: &str| {
        let keys = value.as_object().into_iter().flatten().map(|(key, _)| key);
        for key in keys.filter(|key| !known.contains(&key.as_str())) {
            warnings.push(format!("unknown field \"{at}{key}\""));
        }
    };
    look(document, &POLICY_FIELDS, "");
    let items = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    for (at, rule) in items(document, "rules").iter().enumerate() {
        look(rule, &RULE_FIELDS, &format!("rules[{at}]."));
        for (index, resources) in items(rule, "resources").iter().enumerate() {
            look(
                resources,
                &RESOURCES_FIELDS,
                &format!("rules[{at}].resources[{index}]."),
            );
        }
    }
}

/// `ValidatePolicy`.
fn check(policy: &GivenPolicy) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_stages(policy.omit_stages.as_deref(), "omitStages", &mut errors);
    for (at, rule) in policy.rules.iter().flatten().enumerate() {
        check_rule(rule, &format!("rules[{at}]"), &mut errors);
    }
    errors
}

fn check_rule(rule: &GivenRule, at: &str, errors: &mut Vec<FieldError>) {
    let level = format!("{at}.level");
    match rule.level.as_deref().unwrap_or("") {
        "" => errors.push(FieldError::required(level, "")),
        text if Level::parse(text).is_some() => {}
        other => errors.push(FieldError::not_supported(level, other, &LEVELS.map(|(name, _)| name))),
    }
    let urls = rule.non_resource_urls.as_deref().unwrap_or_default();
    let path = format!("{at}.nonResourceURLs");
    for (index, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        let mut wrong = |why| errors.push(FieldError::invalid(format!("{path}[{index}]"), url.clone(), why));
        if !url.starts_with('/') {
            wrong("non-resource URL rules must begin with a '/' character");
        }
        if url.char_indices().any(|(at, c)| c == '*' && at + 1 < url.len()) {
            wrong("non-resource URL wildcards '*' must be the final character of the rule");
        }
    }
    check_resources(rule.resources.as_deref().unwrap_or_default(), at, errors);
    check_stages(rule.omit_stages.as_deref(), &format!("{at}.omitStages"), errors);
    let has = |list: bool| !urls.is_empty() && list;
    if has(rule.resources.as_ref().is_some_and(|list| !list.is_empty()))
        || has(rule.namespaces.as_ref().is_some_and(|list| !list.is_empty()))
    {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(path, urls, why));
    }
}

fn check_resources(resources: &[GivenResources], at: &str, errors: &mut Vec<FieldError>) {
    for given in resources {
        if !given.group.is_empty() && given.group != "*" {
            let wrong = names::dns1123_subdomain(&given.group);
            if !wrong.is_empty() {
                let field = format!("{at}.resources.group");
                errors.push(FieldError::invalid(field, given.group.clone(), wrong.join(",")));
            }
        }
        if !given.resource_names.is_empty() && given.resources.is_empty() {
            let why = "using resourceNames requires at least one resource";
            let field = format!("{at}.resources.resourceNames");
            errors.push(FieldError::invalid(field, given.resource_names.as_slice(), why));
        }
    }
}

fn check_stages(names: Option<&[String]>, at: &str, errors: &mut Vec<FieldError>) {
    for (index, name) in names.unwrap_or_default().iter().enumerate() {
        if Stage::parse(name).is_none() {
            let why = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic";
            errors.push(FieldError::invalid(format!("{at}[{index}]"), name.clone(), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(policy: &str, expected: &str) {
        assert_eq!(
            Policy::parse(policy.as_bytes()).unwrap_err().to_string(),
            expected,
            "{policy}"
        );
    }

    /// The words are those of kube-apiserver 1.36.3, but for `apiVersion` and types, which it tells by the names of its
    /// Go types.
    #[test]
    fn a_policy_that_cannot_be_used_says_why() {
        let rules = |rules: &str| format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}");
        refused("", "it must say `apiVersion: audit.k8s.io/v1` and `kind: Policy`");
        refused(
            "rules: []",
            "it must say `apiVersion: audit.k8s.io/v1` and `kind: Policy`",
        );
        refused(
            "{apiVersion: audit.k8s.io/v1beta1, kind: Policy, rules: [{level: Metadata}]}",
            "failed decoding: no kind \"Policy\" is registered for version \"audit.k8s.io/v1beta1\": a policy is a Policy of audit.k8s.io/v1",
        );
        refused(&rules("[]"), "loaded illegal policy with 0 rules");
        refused(
            &rules("[{level: Meta}, {}]"),
            "[rules[0].level: Unsupported value: \"Meta\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\", \
             rules[1].level: Required value]",
        );
        refused(
            &rules("[{level: None, resources: [{group: 'A/v1'}, {resourceNames: [x]}]}]"),
            "[rules[0].resources.group: Invalid value: \"A/v1\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
             is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), rules[0].resources.resourceNames: Invalid value: \
             [\"x\"]: using resourceNames requires at least one resource]",
        );
        refused(
            &rules("[{level: None, nonResourceURLs: [a, '/*/b'], namespaces: [x], omitStages: ['y1']}]"),
            "[rules[0].nonResourceURLs[0]: Invalid value: \"a\": non-resource URL rules must begin with a '/' character, \
             rules[0].nonResourceURLs[1]: Invalid value: \"/*/b\": non-resource URL wildcards '*' must be the final character of the rule, \
             rules[0].omitStages[0]: Invalid value: \"y1\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, \
             rules[0].nonResourceURLs: Invalid value: [\"a\",\"/*/b\"]: rules cannot apply to both regular resources and non-resource URLs]",
        );
        let wrong_type = Policy::parse(rules("[{level: None, resources: x}]").as_bytes()).unwrap_err();
        assert!(
            wrong_type
                .to_string()
                .starts_with("failed decoding: invalid type: string \"x\""),
            "{wrong_type}"
        );
    }

    #[test]
    fn what_means_nothing_is_told() {
        let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rule: [], rules: [{level: None, user: [a], resources: [{groups: x}]}]}";
        let policy = Policy::parse(policy.as_bytes()).unwrap();
        assert_eq!(
            policy.warnings(),
            [
                "unknown field \"rule\"",
                "unknown field \"rules[0].user\"",
                "unknown field \"rules[0].resources[0].groups\""
            ]
        );
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        #[track_caller]
        fn check(rule: &str, verb: &str, path: &str, expected: bool) {
            let policy = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{rule}, {{level: None}}]}}");
            let policy = Policy::parse(policy.as_bytes()).unwrap();
            let user = UserInfo::authenticated("jane", ["dev"]);
            let attributes = match path.strip_prefix('/') {
                Some(_) => Attributes {
                    verb: verb.to_owned(),
                    path: path.to_owned(),
                    ..Attributes::default()
                },
                None => {
                    let mut parts = path.split(' ').map(str::to_owned);
                    let mut next = || parts.next().unwrap_or_default();
                    Attributes {
                        verb: verb.to_owned(),
                        group: next(),
                        resource: next(),
                        subresource: next(),
                        namespace: next(),
                        name: next(),
                        ..Attributes::default()
                    }
                }
            };
            assert_eq!(policy.evaluate(&user, &attributes).is_some(), expected, "{rule} {path}");
        }
        check("{level: Metadata}", "get", " pods  ns p", true);
        check("{level: Metadata, users: [jane]}", "get", " pods  ns p", true);
        check("{level: Metadata, users: [joe]}", "get", " pods  ns p", false);
        check("{level: Metadata, userGroups: [x, dev]}", "get", "/version", true);
        check("{level: Metadata, userGroups: [x]}", "get", "/version", false);
        check("{level: Metadata, verbs: [list]}", "get", " pods  ns p", false);
        check("{level: Metadata, namespaces: [ns]}", "get", " pods  ns p", true);
        check("{level: Metadata, namespaces: [ns]}", "get", "/version", false);
        check("{level: Metadata, namespaces: ['']}", "get", " nodes   x", true);
        check(
            "{level: Metadata, resources: [{group: ''}]}",
            "get",
            " pods status ns p",
            true,
        );
        check(
            "{level: Metadata, resources: [{group: '*', resources: [pods]}]}",
            "get",
            " pods  ns p",
            true,
        );
        check(
            "{level: Metadata, resources: [{resources: [pods]}]}",
            "get",
            " pods status ns p",
            false,
        );
        check(
            "{level: Metadata, resources: [{resources: [pods/status]}]}",
            "get",
            " pods status ns p",
            true,
        );
        check(
            "{level: Metadata, resources: [{resources: ['pods/*']}]}",
            "get",
            " pods  ns p",
            true,
        );
        check(
            "{level: Metadata, resources: [{resources: ['*/status']}]}",
            "get",
            " pods status ns p",
            true,
        );
        check(
            "{level: Metadata, resources: [{resources: ['*/status']}]}",
            "get",
            " pods  ns p",
            false,
        );
        check(
            "{level: Metadata, resources: [{resources: [pods], resourceNames: [q]}]}",
            "get",
            " pods  ns p",
            false,
        );
        check(
            "{level: Metadata, resources: [{group: apps}]}",
            "get",
            " pods  ns p",
            false,
        );
        check(
            "{level: Metadata, nonResourceURLs: ['/healthz*']}",
            "get",
            "/healthz/ping",
            true,
        );
        check(
            "{level: Metadata, nonResourceURLs: ['/healthz']}",
            "get",
            "/healthz/ping",
            false,
        );
        check("{level: Metadata, nonResourceURLs: ['*']}", "get", " pods  ns p", false);
        check("{level: None}, {level: Metadata}", "get", "/version", false);
    }
}
