//! Which requests a webhook or a policy is about: rules, selectors, and the versions that a rule covers besides its
//! own.
//!
//! [`Criteria`] is read once from a configuration and asked for each request. It answers in which version of the kind
//! the request is seen: its own, or with `matchPolicy: Equivalent` another one that a rule names.
//!
//! Invariants: rules decide before the errors of selectors are reported, so that a webhook or policy that does not
//! apply never fails a request; an earlier rule wins over a later one. [`ByResource`] says whose criteria a request
//! need not be held against at all.
//!
//! Not here: match conditions, which need CEL.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright_schema::error::aggregate;
use kubewright_schema::labels::Selector;
use kubewright_schema::path::FieldPath;
use kubewright_schema::schema::GroupVersionKind;
use serde_json::Value;

use super::{Attributes, Operation, Session};
use crate::model::Resource;
use crate::model::object;
use crate::model::status::Status;
use crate::storage::SharedMap;
use crate::values::get;

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// Whether the request is about the configuration of admission itself, which no webhook and no policy may keep from
/// being repaired.
pub fn is_exempt(attributes: &Attributes) -> bool {
    const PLURALS: [&str; 6] = [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ];
    attributes.resource.group == ADMISSION_GROUP && PLURALS.contains(&attributes.resource.plural.as_ref())
}

/// The request as the matching webhook or policy sees it.
#[derive(Clone, Debug)]
pub struct Matched {
    /// The resource that the rule names: that of the request, or another version of it.
    pub resource: Arc<Resource>,
    /// The kind in which objects are to be shown.
    pub kind: GroupVersionKind,
}

impl Matched {
    /// The request as it came.
    pub fn own(attributes: &Attributes) -> Matched {
        Matched {
            resource: attributes.resource.clone(),
            kind: attributes.kind.clone(),
        }
    }

    /// Whether objects must be converted before they are shown.
    pub fn is_converted(&self, attributes: &Attributes) -> bool {
        self.kind != attributes.kind
    }

    /// An object of the request as it is to be shown; null stays null.
    ///
    /// # Errors
    /// Those of a conversion webhook.
    pub async fn show<'o>(
        &self,
        session: &Session<'_>,
        attributes: &Attributes,
        object: &'o Value,
    ) -> Result<Cow<'o, Value>, Status> {
        if object.is_null() || !self.is_converted(attributes) {
            return Ok(Cow::Borrowed(object));
        }
        session
            .convert(object.clone(), &attributes.resource, &self.resource)
            .await
            .map(Cow::Owned)
    }
}

/// Whether objects in a namespace, outside of any, or both are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
}

/// A `RuleWithOperations`, or a `NamedRuleWithOperations`.
#[derive(Clone, Debug)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    names: Vec<String>,
    scope: Scope,
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == wanted)
}

impl Rule {
    /// Reads a rule as it is stored (validated and defaulted).
    pub fn new(rule: &Value) -> Rule {
        let split = |text: String| match text.split_once('/') {
            Some((resource, sub)) => (resource.to_owned(), sub.to_owned()),
            None => (text, String::new()),
        };
        Rule {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: texts(rule, "resources").into_iter().map(split).collect(),
            names: texts(rule, "resourceNames"),
            scope: match get(rule, &["scope"]).as_str() {
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                _ => Scope::All,
            },
        }
    }

    /// Whether the rule covers the request, seen as one to `resource`.
    fn matches(&self, attributes: &Attributes, resource: &Resource) -> bool {
        let star = |pattern: &str, wanted: &str| pattern == "*" || pattern == wanted;
        self.scope_fits(attributes, resource)
            && holds(&self.operations, attributes.operation.as_str())
            && holds(&self.groups, &resource.group)
            && holds(&self.versions, &resource.version)
            && self
                .resources
                .iter()
                .any(|(plural, sub)| star(plural, &resource.plural) && star(sub, &attributes.subresource))
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    fn scope_fits(&self, attributes: &Attributes, resource: &Resource) -> bool {
        let namespaced = !attributes.namespace.is_empty() && !is_namespaces(resource);
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => namespaced,
            Scope::Cluster => !namespaced,
        }
    }
}

fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// The criteria by which a webhook (`rules`, `matchPolicy`, selectors) or a policy (`MatchResources`) selects requests.
#[derive(Clone, Debug)]
pub struct Criteria {
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
    /// Whether no rules at all choose everything: so for the binding of a policy, not for a webhook.
    open: bool,
}

impl Criteria {
    /// Of an entry of `webhooks`, as it is stored.
    pub fn of_webhook(webhook: &Value) -> Criteria {
        Criteria::new(webhook, "rules", false)
    }

    /// Of `matchConstraints` of a policy or `matchResources` of a binding, as it is stored. A policy or binding without
    /// one matches every request, and needs no criteria.
    pub fn of_match_resources(resources: &Value) -> Criteria {
        Criteria::new(resources, "resourceRules", true)
    }

    fn new(from: &Value, field: &str, open: bool) -> Criteria {
        let selector = |field: &str| {
            Selector::from_label_selector(get(from, &[field]), &FieldPath::root().key(field))
                .map_err(|errors| aggregate(&errors))
        };
        let rules = |field: &str| {
            let list = from.get(field).and_then(Value::as_array);
            list.into_iter().flatten().map(Rule::new).collect()
        };
        Criteria {
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            rules: rules(field),
            excluded: rules("excludeResourceRules"),
            equivalent: get(from, &["matchPolicy"]) == "Equivalent",
            open,
        }
    }

    /// The resources that it may choose requests to, or `*`. All versions of a resource have the same plural name, and
    /// so has the other group of Event.
    fn plurals(&self) -> impl Iterator<Item = &str> {
        let all = (self.open && self.rules.is_empty()).then_some("*");
        let of_rules = self.rules.iter().flat_map(|rule| &rule.resources);
        all.into_iter().chain(of_rules.map(|(plural, _)| plural.as_str()))
    }

    /// Whether the request is chosen, and how it is seen then. `object` and `old` as plugins get them.
    ///
    /// # Errors
    /// 404 for a namespace that is not there, 500 for a selector that cannot be read; only when the rules choose the
    /// request.
    pub fn matches(
        &self,
        session: &Session<'_>,
        attributes: &Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Option<Matched>, Status> {
        let namespace = self.namespace_fits(session, attributes, object);
        if matches!(namespace, Ok(false)) {
            return Ok(None);
        }
        let fits = self.object_fits(object, old);
        if matches!(fits, Ok(false)) || self.first(&self.excluded, session, attributes).is_some() {
            return Ok(None);
        }
        let found = if self.open && self.rules.is_empty() {
            Some(Matched::own(attributes))
        } else {
            self.first(&self.rules, session, attributes)
        };
        match found {
            None => Ok(None),
            Some(found) => namespace.and(fits).map(|_| Some(found)),
        }
    }

    fn first(&self, rules: &[Rule], session: &Session<'_>, attributes: &Attributes) -> Option<Matched> {
        if rules.iter().any(|rule| rule.matches(attributes, &attributes.resource)) {
            return Some(Matched::own(attributes));
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        let others = equivalents(session, attributes);
        rules.iter().find_map(|rule| {
            let resource = others.iter().find(|other| rule.matches(attributes, other))?;
            Some(Matched {
                kind: kind_for(attributes, resource),
                resource: resource.clone(),
            })
        })
    }

    fn namespace_fits(&self, session: &Session<'_>, attributes: &Attributes, object: &Value) -> Result<bool, Status> {
        let namespaces = attributes.resource.plural == "namespaces";
        if attributes.namespace.is_empty() && !namespaces {
            // A cluster-scoped object is never excluded by a namespace selector.
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(|why| Status::internal(why))?;
        if selector.is_empty() {
            return Ok(true);
        }
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if namespaces && attributes.subresource.is_empty() && written {
            return Ok(selector.matches(object::labels(object)));
        }
        let stored = session
            .namespace(&attributes.namespace)
            .ok_or_else(|| Status::namespace_not_found(&attributes.namespace))?;
        Ok(selector.matches(object::labels(stored.value())))
    }

    fn object_fits(&self, object: &Value, old: Option<&Value>) -> Result<bool, Status> {
        let selector = self.objects.as_ref().map_err(|why| Status::internal(why))?;
        let fits = |object: &Value| !object.is_null() && selector.matches(object::labels(object));
        Ok(selector.is_empty() || fits(object) || old.is_some_and(fits))
    }
}

/// Names of webhook configurations or policies by the resources that their [`Criteria`] may choose.
#[derive(Clone, Debug, Default)]
pub struct ByResource {
    names: SharedMap<Arc<str>, SharedMap<Arc<str>, ()>>,
}

impl ByResource {
    /// Adds a name with all its criteria.
    pub fn insert<'c>(&mut self, name: &str, criteria: impl Iterator<Item = &'c Criteria>) {
        for plural in criteria.flat_map(Criteria::plurals) {
            self.names.or_default(plural.into()).insert(name.into(), ());
        }
    }

    /// Removes a name that was added with these criteria.
    pub fn remove<'c>(&mut self, name: &str, criteria: impl Iterator<Item = &'c Criteria>) {
        for plural in criteria.flat_map(Criteria::plurals) {
            self.names.remove_within(plural, name);
        }
    }

    /// The names that may choose requests to a resource, in their order.
    pub fn of(&self, plural: &str) -> BTreeSet<&str> {
        let named = [plural, "*"].into_iter().filter_map(|plural| self.names.get(plural));
        named.flat_map(SharedMap::keys).map(|name| &**name).collect()
    }
}

/// The other rows under which the same objects are served: other versions, and the other group of Event.
fn equivalents(session: &Session<'_>, attributes: &Attributes) -> Vec<Arc<Resource>> {
    let others = session.kinds().equivalents(&attributes.resource).into_iter();
    others
        .filter(|row| has_subresource(row, &attributes.subresource))
        .collect()
}

fn has_subresource(row: &Resource, name: &str) -> bool {
    name.is_empty() || row.subresource(name).is_some()
}

/// Kind of the objects of the request in another version of its resource. A document that is posted to a subresource
/// has the same kind in all versions.
fn kind_for(attributes: &Attributes, resource: &Resource) -> GroupVersionKind {
    if attributes.is_own_kind() {
        resource.group_version_kind()
    } else {
        attributes.kind.clone()
    }
}
