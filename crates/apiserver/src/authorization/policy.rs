//! The stored Roles, ClusterRoles, RoleBindings and ClusterRoleBindings, indexed by their subjects.
//!
//! A [`Policy`] follows the four stores ([`Followed`]), so that an answer follows from every write that ended before
//! the question, and costs microseconds. It is asked for every request of every user, and most roles and bindings are
//! written by users who have one namespace: so a decision looks at an index that is published, without any lock, and
//! at the bindings and roles of its own user and namespace alone. A write of a role costs others nothing: it is read by
//! the first request of a user who is bound to it. A write of a binding is taken in before it is answered.
//!
//! Invariants: the index can be thrown away and rebuilt from storage; a binding is found by each of its subjects; each
//! step of a decision is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kubewright_schema::budget;
use kubewright_schema::error::quote;
use serde_json::Value;

use super::compiled::{CompiledRule, Role};
use super::{GROUP, Rule};
use crate::model::user::{UserInfo, service_account_name};
use crate::storage::{Derived, Followed, SharedMap, Storage, StoredObject};

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
#[derive(Debug)]
struct Binding {
    name: Arc<str>,
    /// Empty for a cluster role binding.
    namespace: Arc<str>,
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
            ("ClusterRoleBinding", binding.name.to_string())
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
    Rule(&'a CompiledRule, Source<'a>),
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    User,
    Group,
}

/// The bindings of a user or group by name, each with the number of its first subject that is meant.
type Bound = SharedMap<Arc<str>, usize>;

/// The bindings of one namespace, or those of the cluster.
#[derive(Clone, Debug, Default)]
struct Bindings {
    by_name: SharedMap<Arc<str>, Arc<Binding>>,
    users: SharedMap<Arc<str>, Bound>,
    groups: SharedMap<Arc<str>, Bound>,
}

impl Binding {
    /// Who is bound, with the numbers of the subjects that say so: the last first.
    fn bound(&self) -> impl Iterator<Item = (Who, String, usize)> {
        let subjects = self.subjects.iter().enumerate().rev();
        subjects.filter_map(|(number, subject)| {
            let (who, name) = subject.key(&self.namespace)?;
            Some((who, name, number))
        })
    }
}

impl Bindings {
    fn index(&mut self, who: Who) -> &mut SharedMap<Arc<str>, Bound> {
        match who {
            Who::User => &mut self.users,
            Who::Group => &mut self.groups,
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else {
            return;
        };
        for (who, key, _) in binding.bound() {
            self.index(who).remove_within(key.as_str(), name);
        }
    }

    fn insert(&mut self, binding: Binding) {
        self.remove(&binding.name);
        // The first subject is the last that is put.
        for (who, key, number) in binding.bound() {
            let bound = self.index(who).or_default(key.into());
            bound.insert(binding.name.clone(), number);
        }
        self.by_name.insert(binding.name.clone(), Arc::new(binding));
    }

    /// The bindings for a user, by name, each with the first subject that the user is.
    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = Source<'a>> {
        let own = self.users.get(user.name.as_str()).into_iter();
        // A review may name a group as often as it likes.
        budget::spend(user.groups.len());
        let groups: BTreeSet<&str> = user.groups.iter().map(String::as_str).collect();
        let of_groups = groups.into_iter().filter_map(|group| self.groups.get(group));
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for bound in own.chain(of_groups) {
            budget::spend(bound.len());
            for (name, number) in bound.iter() {
                let known = first.entry(name).or_insert(*number);
                *known = (*known).min(*number);
            }
        }
        first.into_iter().filter_map(|(name, number)| {
            budget::spend(1);
            let binding = self.by_name.get(name)?;
            let subject = binding.subjects.get(number)?;
            Some(Source { binding, subject })
        })
    }
}

/// All that is stored.
#[derive(Clone, Debug, Default)]
struct Index {
    cluster_roles: SharedMap<Arc<str>, Arc<Role>>,
    /// By `namespace/name`.
    roles: SharedMap<Arc<str>, Arc<Role>>,
    cluster_bindings: Bindings,
    bindings: SharedMap<Arc<str>, Bindings>,
}

/// `namespace/name`, or `name`.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

fn binding(key: &str, value: &Value) -> Binding {
    let (namespace, name) = split(key);
    let subjects = value.get("subjects").and_then(Value::as_array).into_iter().flatten();
    Binding {
        name: name.into(),
        namespace: namespace.into(),
        role: RoleRef::of(value),
        subjects: subjects.map(Subject::of).collect(),
    }
}

impl Index {
    /// Takes in the object stored at `key` now; `None`: there is none.
    fn take_in(&mut self, store: Store, key: &str, object: Option<&Arc<StoredObject>>) {
        let roles = match store {
            Store::ClusterRoles => &mut self.cluster_roles,
            Store::Roles => &mut self.roles,
            Store::ClusterRoleBindings | Store::RoleBindings => {
                return self.take_binding(key, object.map(|object| binding(key, object.value())));
            }
        };
        match object {
            Some(role) => roles.insert(key.into(), Role::new(role)),
            None => roles.remove(key),
        };
    }

    fn take_binding(&mut self, key: &str, binding: Option<Binding>) {
        let (namespace, name) = split(key);
        let bindings = match namespace {
            "" => &mut self.cluster_bindings,
            namespace => self.bindings.or_default(namespace.into()),
        };
        match binding {
            Some(binding) => bindings.insert(binding),
            None => bindings.remove(name),
        }
        if bindings.by_name.is_empty() {
            self.bindings.remove(namespace);
        }
    }

    fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<&[CompiledRule], ResolveError> {
        let (kind, found) = match role.kind.as_str() {
            "ClusterRole" => ("ClusterRole", self.cluster_roles.get(role.name.as_str())),
            "Role" => ("Role", self.roles.get(format!("{namespace}/{}", role.name).as_str())),
            other => return Err(ResolveError::Unsupported(other.to_owned())),
        };
        found.map(|role| role.rules()).ok_or_else(|| ResolveError::Missing {
            kind,
            name: role.name.clone(),
        })
    }
}

impl Derived for Index {
    fn apply(&mut self, store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        if let Some(store) = Store::named(store) {
            self.take_in(store, key, object);
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
            followed: Followed::by_writers(&STORES),
        }
    }

    /// After a write, and before its answer: what was written into this store is in force then, at the cost of its
    /// writer.
    pub(crate) fn settle_written(&self, store: &str) {
        if self.followed.follows(store) {
            self.followed.renew(&*self.storage);
        }
    }

    /// Shows every rule that is given to a user in a namespace, first those of the cluster, until `found` finds
    /// something.
    pub(crate) fn visit<T>(
        &self,
        user: &UserInfo,
        namespace: &str,
        mut found: impl FnMut(Visit<'_>) -> Option<T>,
    ) -> Option<T> {
        let index = self.followed.now(&*self.storage);
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
    }

    /// All rules that are given to a user in a namespace, and the roles that could not be found.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Vec<ResolveError>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        self.visit(user, namespace, |visit| {
            match visit {
                Visit::Rule(rule, _) => rules.push(rule.to_rule()),
                Visit::Error(error) => errors.push(error),
            }
            None::<()>
        });
        (rules, errors)
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub(crate) fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<Vec<Rule>, ResolveError> {
        let index = self.followed.now(&*self.storage);
        let rules = index.resolve(role, namespace)?;
        Ok(rules.iter().map(CompiledRule::to_rule).collect())
    }

    /// How many bindings of a namespace are in force, without a look at later changes.
    #[cfg(test)]
    pub(crate) fn published_bindings(&self, namespace: &str) -> usize {
        let index = self.followed.published();
        let bindings = index.as_ref().and_then(|index| index.bindings.get(namespace));
        bindings.map_or(0, |bindings| bindings.by_name.len())
    }

    /// Reads everything again, for tests of the index.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.followed.forget();
    }
}
