//! What the stored FlowSchemas and PriorityLevelConfigurations say, in a form that a request is compared with.
//!
//! Invariant: the order of FlowSchemas is that of their precedence, then of their names, so that a request has one first
//! match (`digestFlowSchemasLocked`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use kubewright_schema::budget;
use serde_json::Value;

use super::levels::{Limits, Queuing, Response};
use crate::authorization::Attributes;
use crate::model::user::{UserInfo, split_service_account};
use crate::storage::{Derived, SharedMap, StoredObject};
use crate::values::get;

pub(super) const FLOW_SCHEMAS: &str = "flowschemas.flowcontrol.apiserver.k8s.io";
pub(super) const PRIORITY_LEVELS: &str = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";

/// A FlowSchema: which requests belong to a priority level, and which of them form one flow.
#[derive(Debug)]
pub(super) struct FlowSchema {
    pub(super) name: Arc<str>,
    pub(super) uid: HeaderValue,
    pub(super) level: Arc<str>,
    pub(super) counts: Arc<Counts>,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

/// What the requests of a FlowSchema met, for `/metrics`.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) dispatched: AtomicU64,
    pub(super) executing: AtomicU64,
    pub(super) waiting: AtomicU64,
    /// By [`super::levels::Reason`].
    pub(super) rejected: [AtomicU64; 4],
}

impl Counts {
    pub(super) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// What tells the flows of a FlowSchema apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinguisher {
    /// All requests are one flow.
    Nothing,
    User,
    Namespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug)]
pub(super) struct PriorityLevel {
    pub(super) uid: HeaderValue,
    /// None: its requests never wait.
    pub(super) limited: Option<Response>,
    shares: u64,
    lendable_percent: u64,
    borrowing_percent: Option<u64>,
}

/// The priority levels by name.
pub(super) type PriorityLevels = BTreeMap<Arc<str>, Arc<PriorityLevel>>;

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    schemas: SharedMap<(i64, Arc<str>), Arc<FlowSchema>>,
    precedences: SharedMap<Arc<str>, i64>,
    /// Replaced when one of them changes, and so the same as long as none does.
    pub(super) levels: Arc<PriorityLevels>,
}

impl Derived for Settings {
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        if store == PRIORITY_LEVELS {
            let levels = Arc::make_mut(&mut self.levels);
            match object {
                Some(object) => levels.insert(key.into(), Arc::new(PriorityLevel::read(object.value()))),
                None => levels.remove(key),
            };
            return;
        }
        let before = self
            .precedences
            .remove(key)
            .map(|precedence| (precedence, Arc::from(key)));
        let before = before.and_then(|place| self.schemas.remove(&place));
        if let Some(object) = object {
            let counts = before.map(|before| before.counts.clone()).unwrap_or_default();
            let schema = FlowSchema::read(key, object.value(), counts);
            let precedence = get(object.value(), &["spec", "matchingPrecedence"])
                .as_i64()
                .unwrap_or(1_000);
            self.precedences.insert(key.into(), precedence);
            self.schemas.insert((precedence, key.into()), Arc::new(schema));
        }
    }
}

impl Settings {
    /// The first FlowSchema that matches a request, with its level. One whose level is not there matches nothing.
    pub(super) fn first_match(
        &self,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Option<(&Arc<FlowSchema>, &Arc<PriorityLevel>)> {
        self.schemas.values().find_map(|schema| {
            let level = self.levels.get(&schema.level)?;
            schema.matches(user, attributes).then_some((schema, level))
        })
    }

    pub(super) fn schemas(&self) -> impl Iterator<Item = &Arc<FlowSchema>> {
        self.schemas.values()
    }
}

/// The limits of each level that has some, where all levels together have so many seats (`updateLocked`: the nominal
/// limit is rounded up).
pub(super) fn limits(levels: &PriorityLevels, seats: u64) -> BTreeMap<Arc<str>, (Limits, Response)> {
    let shares: u64 = levels.values().fold(0, |sum, level| sum.saturating_add(level.shares));
    let of = |whole: u64, percent: u64| whole.saturating_mul(percent).saturating_add(50) / 100;
    let limited = levels.iter().filter_map(|(name, level)| {
        let response = level.limited?;
        let nominal = seats.saturating_mul(level.shares).div_ceil(shares.max(1));
        let limits = Limits {
            nominal,
            lendable: of(nominal, level.lendable_percent),
            borrowable: level.borrowing_percent.map(|percent| of(nominal, percent)),
        };
        Some((name.clone(), (limits, response)))
    });
    limited.collect()
}

impl PriorityLevel {
    fn read(object: &Value) -> PriorityLevel {
        let is_exempt = get(object, &["spec", "type"]) == "Exempt";
        let part = get(object, &["spec", if is_exempt { "exempt" } else { "limited" }]);
        let number = |value: &Value, default: u64| value.as_u64().unwrap_or(default);
        let response = get(part, &["limitResponse"]);
        let queuing = get(response, &["queuing"]);
        PriorityLevel {
            uid: header(get(object, &["metadata", "uid"])),
            shares: number(get(part, &["nominalConcurrencyShares"]), if is_exempt { 0 } else { 30 }),
            lendable_percent: number(get(part, &["lendablePercent"]), 0).min(100),
            borrowing_percent: get(part, &["borrowingLimitPercent"]).as_u64(),
            limited: (!is_exempt).then(|| match get(response, &["type"]).as_str() {
                Some("Queue") => Response::Queue(Queuing {
                    queues: number(get(queuing, &["queues"]), 64),
                    hand_size: number(get(queuing, &["handSize"]), 8),
                    length_limit: number(get(queuing, &["queueLengthLimit"]), 50),
                }),
                _ => Response::Reject,
            }),
        }
    }
}

impl FlowSchema {
    fn read(name: &str, object: &Value, counts: Arc<Counts>) -> FlowSchema {
        let spec = get(object, &["spec"]);
        FlowSchema {
            name: name.into(),
            uid: header(get(object, &["metadata", "uid"])),
            level: text(get(spec, &["priorityLevelConfiguration", "name"])).into(),
            counts,
            distinguisher: match get(spec, &["distinguisherMethod", "type"]).as_str() {
                Some("ByUser") => Distinguisher::User,
                Some("ByNamespace") => Distinguisher::Namespace,
                _ => Distinguisher::Nothing,
            },
            rules: items(get(spec, &["rules"])).map(Rule::read).collect(),
        }
    }

    /// What tells the flow of this request from the others of the FlowSchema.
    pub(super) fn distinguish<'r>(&self, user: &'r UserInfo, attributes: &'r Attributes) -> &'r str {
        match self.distinguisher {
            Distinguisher::Nothing => "",
            Distinguisher::User => &user.name,
            Distinguisher::Namespace => &attributes.namespace,
        }
    }

    /// `matchesFlowSchema`.
    fn matches(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        self.rules.iter().any(|rule| {
            budget::spend(1);
            rule.subjects.iter().any(|subject| subject.is(user)) && rule.covers(attributes)
        })
    }
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let subject = |subject: &Value| {
            let name = |part: &str| text(get(subject, &[part, "name"]));
            match get(subject, &["kind"]).as_str()? {
                "User" => Some(Subject::User(name("user"))),
                "Group" => Some(Subject::Group(name("group"))),
                "ServiceAccount" => Some(Subject::ServiceAccount {
                    namespace: text(get(subject, &["serviceAccount", "namespace"])),
                    name: name("serviceAccount"),
                }),
                _ => None,
            }
        };
        Rule {
            subjects: items(get(rule, &["subjects"])).filter_map(subject).collect(),
            resources: items(get(rule, &["resourceRules"]))
                .map(|rule| ResourceRule {
                    verbs: texts(get(rule, &["verbs"])),
                    groups: texts(get(rule, &["apiGroups"])),
                    resources: texts(get(rule, &["resources"])),
                    cluster_scope: get(rule, &["clusterScope"]) == true,
                    namespaces: texts(get(rule, &["namespaces"])),
                })
                .collect(),
            paths: items(get(rule, &["nonResourceRules"]))
                .map(|rule| PathRule {
                    verbs: texts(get(rule, &["verbs"])),
                    paths: texts(get(rule, &["nonResourceURLs"])),
                })
                .collect(),
        }
    }

    fn covers(&self, attributes: &Attributes) -> bool {
        budget::spend(self.resources.len().saturating_add(self.paths.len()));
        match attributes.is_resource() {
            true => self.resources.iter().any(|rule| rule.covers(attributes)),
            false => self.paths.iter().any(|rule| rule.covers(attributes)),
        }
    }
}

impl Subject {
    /// `matchesSubject`.
    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Subject::User(name) => name == "*" || *name == user.name,
            Subject::Group(name) => name == "*" || user.groups.contains(name),
            Subject::ServiceAccount { namespace, name } => {
                split_service_account(&user.name).is_some_and(|(its_namespace, its_name)| {
                    its_namespace == namespace && (name == "*" || its_name == name)
                })
            }
        }
    }
}

impl ResourceRule {
    /// `matchesResourceRule`.
    fn covers(&self, attributes: &Attributes) -> bool {
        let has = |allowed: &[String], wanted: &str| allowed.iter().any(|one| one == "*" || one == wanted);
        let in_scope = match attributes.namespace.as_str() {
            "" => self.cluster_scope,
            namespace => has(&self.namespaces, namespace),
        };
        let is_resource = |allowed: &String| match allowed.split_once('/') {
            Some((resource, subresource)) => resource == attributes.resource && subresource == attributes.subresource,
            None => allowed == "*" || attributes.subresource.is_empty() && *allowed == attributes.resource,
        };
        in_scope
            && has(&self.verbs, &attributes.verb)
            && has(&self.groups, &attributes.group)
            && self.resources.iter().any(is_resource)
    }
}

impl PathRule {
    /// `matchesNonResourceRule`.
    fn covers(&self, attributes: &Attributes) -> bool {
        let path = attributes.path.as_str();
        let is_path = |allowed: &String| match allowed.strip_suffix('*') {
            Some("") => true,
            Some(folder) if folder.ends_with('/') => path.starts_with(folder),
            _ => allowed == path,
        };
        self.verbs.iter().any(|verb| verb == "*" || *verb == attributes.verb) && self.paths.iter().any(is_path)
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}

fn texts(list: &Value) -> Vec<String> {
    items(list).map(text).collect()
}

/// A uid is made of digits and letters; anything else is not sent.
fn header(uid: &Value) -> HeaderValue {
    HeaderValue::from_str(uid.as_str().unwrap_or("")).unwrap_or(HeaderValue::from_static(""))
}
