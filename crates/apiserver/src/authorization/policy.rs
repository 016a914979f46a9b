//! The stored Roles, ClusterRoles, RoleBindings and ClusterRoleBindings, indexed by their subjects.
//!
//! A [`Policy`] follows the four stores ([`Followed`]), so that an answer follows from every write that ended before
//! the question, and costs microseconds.
//!
//! Invariants: the index can be thrown away and rebuilt from storage; a binding is found by each of its subjects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kubewright_schema::budget;
use kubewright_schema::error::quote;
use serde_json::Value;

use super::{GROUP, Rule};
use crate::model::user::{UserInfo, service_account_name};
use crate::storage::{Derived, Followed, Storage, StoredObject};

const STORES: [&str; 4] = [
    "clusterroles.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    ClusterRoles,
    Roles,
    ClusterRoleBindings,
    RoleBindings,
}

impl Store {
    /// The one of [`STORES`] that has this name.
    fn named(name: &str) -> Option<Store> {
        let all = [
            Store::ClusterRoles,
            Store::Roles,
            Store::ClusterRoleBindings,
            Store::RoleBindings,
        ];
        all.into_iter()
            .zip(STORES)
            .find_map(|(store, known)| (known == name).then_some(store))
    }
}

/// Why the rules of a role reference are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// No such role.
    Missing {
        /// `Role` or `ClusterRole`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A reference to something that is neither Role nor ClusterRole.
    Unsupported(String),
}

impl fmt::Display for ResolveError {
    /// As the authorizer reports it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::Missing { kind, name } => {
                write!(f, "{}.{GROUP} {} not found", kind.to_lowercase(), quote(name))
            }
            ResolveError::Unsupported(kind) => write!(f, "unsupported role reference kind: {}", quote(kind)),
        }
    }
}

impl std::error::Error for ResolveError {}

/// A subject of a binding.
#[derive(Clone, Debug)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// A role binding or cluster role binding.
#[derive(Clone, Debug)]
struct Binding {
    name: String,
    /// Empty for a cluster role binding.
    namespace: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// To which role a binding refers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl RoleRef {
    /// The reference of a binding.
    pub(crate) fn of(binding: &Value) -> RoleRef {
        let text = |field: &str| {
            let value = binding.get("roleRef").and_then(|reference| reference.get(field));
            value.and_then(Value::as_str).unwrap_or("").to_owned()
        };
        RoleRef {
            group: text("apiGroup"),
            kind: text("kind"),
            name: text("name"),
        }
    }
}

/// From where a rule comes.
pub(crate) struct Source<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Source { binding, subject } = self;
        let (kind, name) = if binding.namespace.is_empty() {
            ("ClusterRoleBinding", binding.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", binding.name, binding.namespace))
        };
        let who = if subject.kind == "ServiceAccount" {
            let namespace = subject.namespace_in(&binding.namespace);
            format!("{}/{namespace}", subject.name)
        } else {
            subject.name.clone()
        };
        let (role, who) = (&binding.role, quote(&who));
        write!(
            f,
            "{kind} {} of {} {} to {} {who}",
            quote(&name),
            role.kind,
            quote(&role.name),
            subject.kind
        )
    }
}

/// The items that [`Policy::visit`] yields.
pub(crate) enum Visit<'a> {
    /// A rule that is given to the user.
    Rule(&'a Rule, Source<'a>),
    /// A binding of the user refers to a role that does not exist.
    Error(ResolveError),
}

impl Subject {
    fn of(value: &Value) -> Subject {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        Subject {
            kind: text("kind"),
            name: text("name"),
            namespace: text("namespace"),
        }
    }

    /// The namespace of a ServiceAccount: its own, or that of the binding.
    fn namespace_in<'a>(&'a self, binding: &'a str) -> &'a str {
        if self.namespace.is_empty() {
            binding
        } else {
            &self.namespace
        }
    }

    /// The user or the group that is meant.
    fn key(&self, binding: &str) -> Option<(Who, String)> {
        match self.kind.as_str() {
            "User" => Some((Who::User, self.name.clone())),
            "Group" => Some((Who::Group, self.name.clone())),
            "ServiceAccount" => match self.namespace_in(binding) {
                "" => None,
                namespace => Some((Who::User, service_account_name(namespace, &self.name))),
            },
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo, binding: &str) -> bool {
        match self.key(binding) {
            Some((Who::User, name)) => user.name == name,
            Some((Who::Group, name)) => user.in_group(&name),
            None => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    User,
    Group,
}

/// The bindings of one namespace, or those of the cluster.
#[derive(Debug, Default)]
struct Bindings {
    by_name: BTreeMap<String, Binding>,
    users: BTreeMap<String, BTreeSet<String>>,
    groups: BTreeMap<String, BTreeSet<String>>,
}

impl Bindings {
    fn index(&mut self, who: Who) -> &mut BTreeMap<String, BTreeSet<String>> {
        match who {
            Who::User => &mut self.users,
            Who::Group => &mut self.groups,
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else {
            return;
        };
        let keys = binding
            .subjects
            .iter()
            .filter_map(|subject| subject.key(&binding.namespace));
        for (who, key) in keys {
            let index = self.index(who);
            if let Some(names) = index.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    index.remove(&key);
                }
            }
        }
    }

    fn insert(&mut self, binding: Binding) {
        self.remove(&binding.name);
        let keys: Vec<_> = binding
            .subjects
            .iter()
            .filter_map(|subject| subject.key(&binding.namespace))
            .collect();
        for (who, key) in keys {
            self.index(who).entry(key).or_default().insert(binding.name.clone());
        }
        self.by_name.insert(binding.name.clone(), binding);
    }

    /// The bindings for a user, by name, each with the first subject that the user is.
    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = Source<'a>> {
        let own = self.users.get(&user.name).into_iter();
        // A review may name a group as often as it likes.
        budget::spend(user.groups.len());
        let groups: BTreeSet<&String> = user.groups.iter().collect();
        let of_groups = groups.into_iter().filter_map(|group| self.groups.get(group));
        let mut names: BTreeSet<&String> = BTreeSet::new();
        for bound in own.chain(of_groups) {
            budget::spend(bound.len());
            names.extend(bound);
        }
        names.into_iter().filter_map(|name| {
            let binding = self.by_name.get(name)?;
            let subject = binding.subjects.iter().find(|subject| {
                budget::spend(1 + user.groups.len() / 4);
                subject.is(user, &binding.namespace)
            })?;
            Some(Source { binding, subject })
        })
    }
}

/// All that is stored.
#[derive(Debug, Default)]
struct Index {
    cluster_roles: BTreeMap<String, Vec<Rule>>,
    /// By `namespace/name`.
    roles: BTreeMap<String, Vec<Rule>>,
    cluster_bindings: Bindings,
    bindings: BTreeMap<String, Bindings>,
}

/// `namespace/name`, or `name`.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

fn binding(key: &str, value: &Value) -> Binding {
    let (namespace, name) = split(key);
    let subjects = value.get("subjects").and_then(Value::as_array).into_iter().flatten();
    Binding {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        role: RoleRef::of(value),
        subjects: subjects.map(Subject::of).collect(),
    }
}

impl Index {
    /// Takes in the object stored at `key` now; `None`: there is none.
    fn take_in(&mut self, store: Store, key: &str, value: Option<&Value>) {
        let (namespace, name) = split(key);
        match (store, value) {
            (Store::ClusterRoles, Some(role)) => {
                self.cluster_roles.insert(key.to_owned(), Rule::all_of(role));
            }
            (Store::ClusterRoles, None) => {
                self.cluster_roles.remove(key);
            }
            (Store::Roles, Some(role)) => {
                self.roles.insert(key.to_owned(), Rule::all_of(role));
            }
            (Store::Roles, None) => {
                self.roles.remove(key);
            }
            (Store::ClusterRoleBindings, Some(value)) => self.cluster_bindings.insert(binding(key, value)),
            (Store::ClusterRoleBindings, None) => self.cluster_bindings.remove(name),
            (Store::RoleBindings, Some(value)) => {
                let bindings = self.bindings.entry(namespace.to_owned()).or_default();
                bindings.insert(binding(key, value));
            }
            (Store::RoleBindings, None) => {
                if let Some(bindings) = self.bindings.get_mut(namespace) {
                    bindings.remove(name);
                    if bindings.by_name.is_empty() {
                        self.bindings.remove(namespace);
                    }
                }
            }
        }
    }

    fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], ResolveError> {
        let (kind, found) = match role.kind.as_str() {
            "ClusterRole" => ("ClusterRole", self.cluster_roles.get(&role.name)),
            "Role" => ("Role", self.roles.get(&format!("{namespace}/{}", role.name))),
            other => return Err(ResolveError::Unsupported(other.to_owned())),
        };
        found.map(Vec::as_slice).ok_or_else(|| ResolveError::Missing {
            kind,
            name: role.name.clone(),
        })
    }
}

impl Derived for Index {
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        if let Some(store) = Store::named(store) {
            self.take_in(store, key, object.map(|object| object.value()));
        }
    }
}

/// The roles and bindings of a storage.
pub struct Policy {
    storage: Arc<dyn Storage>,
    followed: Followed<Index>,
}

impl Policy {
    /// The policy of the objects in `storage`, now and later. Nothing is read before the first question.
    pub fn new(storage: Arc<dyn Storage>) -> Policy {
        Policy {
            storage,
            followed: Followed::new(&STORES),
        }
    }

    fn with_index<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        self.followed.look(&*self.storage, look)
    }

    /// Shows every rule that is given to a user in a namespace, first those of the cluster, until `found` finds
    /// something.
    pub(crate) fn visit<T>(
        &self,
        user: &UserInfo,
        namespace: &str,
        mut found: impl FnMut(Visit<'_>) -> Option<T>,
    ) -> Option<T> {
        self.with_index(|index| {
            let local = index.bindings.get(namespace).filter(|_| !namespace.is_empty());
            for bindings in std::iter::once(&index.cluster_bindings).chain(local) {
                for Source { binding, subject } in bindings.of(user) {
                    let rules = match index.resolve(&binding.role, &binding.namespace) {
                        Ok(rules) => rules,
                        Err(error) => {
                            if let Some(answer) = found(Visit::Error(error)) {
                                return Some(answer);
                            }
                            continue;
                        }
                    };
                    for rule in rules {
                        if let Some(answer) = found(Visit::Rule(rule, Source { binding, subject })) {
                            return Some(answer);
                        }
                    }
                }
            }
            None
        })
    }

    /// All rules that are given to a user in a namespace, and the roles that could not be found.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Vec<ResolveError>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        self.visit(user, namespace, |visit| {
            match visit {
                Visit::Rule(rule, _) => {
                    rule.count();
                    rules.push(rule.clone());
                }
                Visit::Error(error) => errors.push(error),
            }
            None::<()>
        });
        (rules, errors)
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub(crate) fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<Vec<Rule>, ResolveError> {
        self.with_index(|index| index.resolve(role, namespace).map(<[Rule]>::to_vec))
    }

    /// Reads everything again, for tests of the index.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.followed.forget();
    }
}
