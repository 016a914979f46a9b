//! `config/rbac/role.yaml`: the rights of the operator, derived from its declaration, and nothing more.
//!
//! | declared | allowed |
//! |---|---|
//! | a controller for a kind | `get`, `list`, `watch` of its objects: what a cache needs |
//! | … that has a status | `get`, `patch`, `update` of `KIND/status` |
//! | … that owns something | `update` of `KIND/finalizers`: an owner reference that blocks deletion asks for it where OwnerReferencesPermissionEnforcement is on |
//! | … that holds a finalizer | `patch` of its objects: that is how it is added and removed |
//! | `owns` | `create`, `get`, `list`, `patch`, `watch`: what `ctx.apply` needs. The garbage collector deletes |
//! | `watches` | `get`, `list`, `watch` |
//! | any controller | `create`, `patch` of core `events` |
//! | `#[rbac]` | what it says |
//!
//! The role that the operator's account is bound to is always there; without a controller and without rules it allows
//! nothing.
//!
//! A rule for another namespace is a Role there, with a binding. `config/default` puts all objects into the operator's
//! namespace; replacements put these back.
//!
//! An operator that works in one namespace is allowed all this in that namespace, `#[rbac]` without a namespace
//! included. A cluster-scoped kind needs a ClusterRole, which such a project does not bind: that is a warning.
//!
//! To write its own kind (changes of spec), or to delete or replace a child, a controller says so with `#[rbac]`. Leases
//! belong to the leader election role, which is not generated. Rules are put together as controller-gen does, so that a role reads the same whichever
//! tool wrote it: one rule for each resource, then equal ones joined by verbs, resources, groups and URLs, sorted.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Findings;
use super::declaration::{Declaration, Kind, Rule};
use crate::codes::rbac as codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::kustomize::object;
use crate::names::near;
use crate::plan::Files;

/// The role that the operator's service account is bound to.
pub(crate) const ROLE: &str = "manager-role";

/// The operator's account, and the namespace that kustomize replaces, as the scaffold writes them.
const ACCOUNT: &str = "controller-manager";
const PLACEHOLDER: &str = "system";
/// Where a role belongs, in a place that kustomize leaves alone.
const NAMESPACE: &str = "kubewright.dev/namespace";

const READ: &[&str] = &["get", "list", "watch"];
/// Server-side apply is a patch, which needs `create` as well for what is not there.
const APPLY: &[&str] = &["create", "get", "list", "patch", "watch"];

/// The verbs of requests for resources (`k8s.io/apiserver`, `RequestInfoFactory`), and those that Kubernetes' own
/// admission and RBAC ask about.
const VERBS: &[&str] = &[
    "*",
    "approve",
    "attest",
    "bind",
    "create",
    "delete",
    "deletecollection",
    "escalate",
    "get",
    "impersonate",
    "list",
    "patch",
    "sign",
    "update",
    "use",
    "watch",
];
/// The verbs of requests for other paths.
const URL_VERBS: &[&str] = &["*", "delete", "get", "head", "options", "patch", "post", "put"];

/// The roles of an operator, the ClusterRole first. `namespace`: the operator works in this namespace only, so rules
/// about namespaced kinds are those of a Role there.
pub(super) fn roles(
    declaration: &Declaration,
    files: &dyn Files,
    namespace: Option<&str>,
    found: &mut Findings,
) -> Vec<Value> {
    let mut rules = Vec::new();
    for controller in &declaration.controllers {
        derive(controller, declaration, namespace, &mut rules);
    }
    let explicit = declaration
        .controllers
        .iter()
        .flat_map(|controller| controller.rbac.iter().map(move |rule| (controller.name.as_str(), rule)))
        .chain(declaration.rbac.iter().map(|rule| ("", rule)));
    for (controller, rule) in explicit {
        check(controller, rule, files, &mut found.errors);
        found.warnings.extend(unknown(rule, declaration, files));
        let mut rule = rule.clone();
        if let Some(namespace) = namespace
            && rule.namespace.is_empty()
            && !is_cluster_wide(&rule, declaration)
        {
            namespace.clone_into(&mut rule.namespace);
        }
        rules.push(rule);
    }
    if let Some(namespace) = namespace {
        found.warnings.extend(unbound(&rules, namespace));
    }
    let mut roles: BTreeMap<(String, String), Vec<Rule>> = BTreeMap::new();
    // The account is bound to this one (config/rbac/role_binding.yaml), also when it allows nothing.
    roles.insert((namespace.unwrap_or_default().to_owned(), ROLE.to_owned()), Vec::new());
    for rule in rules {
        let own = rule.namespace.is_empty() || Some(rule.namespace.as_str()) == namespace;
        let name = match (rule.role_name.as_str(), own) {
            ("", true) => ROLE.to_owned(),
            // Names are told apart before kustomize puts each object into its namespace.
            ("", false) => format!("{ROLE}-{}", rule.namespace),
            (said, _) => said.to_owned(),
        };
        roles.entry((rule.namespace.clone(), name)).or_default().push(rule);
    }
    let roles = told_apart(roles);
    let mut roles: Vec<Value> = roles
        .into_iter()
        .map(|((namespace, name), rules)| role(&namespace, &name, &rules))
        .collect();
    for role in roles.iter_mut().filter(|role| is_elsewhere(role, namespace)) {
        role["metadata"]["annotations"] = json!({NAMESPACE: role["metadata"]["namespace"]});
    }
    roles
}

/// A name that was given to roles of several namespaces is followed by the namespace: kustomize, which puts all objects into
/// one namespace first, takes no two objects of one kind and name.
fn told_apart(roles: BTreeMap<(String, String), Vec<Rule>>) -> BTreeMap<(String, String), Vec<Rule>> {
    let is_shared = |name: &str| {
        roles
            .keys()
            .filter(|(namespace, other)| !namespace.is_empty() && other == name)
            .count()
            > 1
    };
    let shared: Vec<String> = roles
        .keys()
        .map(|(_, name)| name.clone())
        .filter(|name| is_shared(name))
        .collect();
    let renamed = |((namespace, name), rules): ((String, String), Vec<Rule>)| {
        let name = match shared.contains(&name) && !namespace.is_empty() {
            true => format!("{name}-{namespace}"),
            false => name,
        };
        ((namespace, name), rules)
    };
    roles.into_iter().map(renamed).collect()
}

/// The bindings of the operator's account to all roles but the first, which `config/rbac/role_binding.yaml` binds.
pub(super) fn bindings(roles: &[Value]) -> Vec<Value> {
    let bound = roles.iter().filter(|role| role["metadata"]["name"] != ROLE);
    bound
        .map(|role| {
            let kind = role["kind"].as_str().unwrap_or_default();
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            let mut metadata = Map::from_iter([("name".to_owned(), json!(binding(name)))]);
            if let Some(namespace) = role["metadata"].get("namespace") {
                metadata.insert("namespace".to_owned(), namespace.clone());
            }
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": format!("{kind}Binding"),
                "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                // The names of the scaffold; kustomize makes the final ones of them.
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": PLACEHOLDER}],
            })
        })
        .collect()
}

fn binding(role: &str) -> String {
    format!("{role}-binding")
}

/// kustomize replacements that put roles and their bindings back where the rules say: `namespace:` of `config/default`
/// has put everything into the operator's namespace. They are carried out last.
pub(super) fn replacements(roles: &[Value], own: Option<&str>) -> Vec<Value> {
    let elsewhere = roles.iter().filter(|role| is_elsewhere(role, own));
    elsewhere
        .flat_map(|role| {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            let to = |kind: &str, name: &str, field: &str| json!({"select": {"kind": kind, "name": name}, "fieldPaths": [field]});
            let from = |kind: &str, name: &str, field: &str| json!({"kind": kind, "name": name, "fieldPath": field});
            let binding = binding(name);
            let field = "metadata.namespace";
            [
                json!({
                    "source": from("Role", name, &format!("metadata.annotations.[{NAMESPACE}]")),
                    "targets": [to("Role", name, field), to("RoleBinding", &binding, field)],
                }),
                // Across namespaces kustomize does not follow the name of the account.
                json!({
                    "source": from("ServiceAccount", ACCOUNT, "metadata.name"),
                    "targets": [to("RoleBinding", &binding, "subjects.0.name")],
                }),
                json!({
                    "source": from("ServiceAccount", ACCOUNT, field),
                    "targets": [to("RoleBinding", &binding, "subjects.0.namespace")],
                }),
            ]
        })
        .collect()
}

/// Whether a role is one of a namespace that is not the operator's.
fn is_elsewhere(role: &Value, own: Option<&str>) -> bool {
    let namespace = role["metadata"]["namespace"].as_str();
    namespace.is_some_and(|namespace| Some(namespace) != own && namespace != PLACEHOLDER)
}

/// Whether a rule is certainly about cluster-scoped kinds only.
fn is_cluster_wide(rule: &Rule, declaration: &Declaration) -> bool {
    let known = |group: &str, resource: &str| {
        let plural = resource.split('/').next().unwrap_or_default();
        let group = if group == "core" { "" } else { group };
        let mut own = declaration.crds.iter().map(|declared| &declared.crd["spec"]);
        object::is_cluster_scoped(group, plural)
            || own.any(|spec| spec["group"] == group && spec["names"]["plural"] == plural && spec["scope"] == "Cluster")
    };
    let mut each = rule
        .groups
        .iter()
        .flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)));
    !rule.urls.is_empty() || each.all(|(group, resource)| known(group, resource))
}

/// A project that works in one namespace binds its account to the Role there, and to nothing else.
fn unbound(rules: &[Rule], namespace: &str) -> Option<Diagnostic> {
    let wide = rules
        .iter()
        .filter(|rule| rule.namespace.is_empty() && rule.role_name.is_empty());
    let named: Vec<&str> = wide
        .flat_map(|rule| rule.resources.iter().chain(&rule.urls))
        .map(String::as_str)
        .collect();
    (!named.is_empty()).then(|| {
        Diagnostic::new(codes::UNBOUND, format!("no binding refers to the ClusterRole {ROLE}"))
            .at(Place::file(super::ROLES))
            .because(format!(
                "the operator works in the namespace {namespace} only and is bound to the Role there; in no namespace live: {}",
                named.join(", ")
            ))
            .fix(format!(
                "add a ClusterRoleBinding of {ROLE} to config/rbac and its kustomization.yaml, or kubewright edit --namespaced=false"
            ))
    })
}

fn role(namespace: &str, name: &str, rules: &[Rule]) -> Value {
    let rules: Vec<Value> = normalize(rules).iter().map(written).collect();
    let mut metadata = Map::from_iter([("name".to_owned(), json!(name))]);
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_empty() { "ClusterRole" } else { "Role" },
        "metadata": metadata,
        "rules": rules,
    })
}

/// The rights that follow from a controller's declaration.
fn derive(
    controller: &super::declaration::Controller,
    declaration: &Declaration,
    namespace: Option<&str>,
    rules: &mut Vec<Rule>,
) {
    let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<String>>();
    let rule = |kind: &Kind, part: &str, verbs: &[&str]| Rule {
        groups: vec![kind.group.clone()],
        resources: vec![format!("{}{part}", kind.plural)],
        verbs: texts(verbs),
        namespace: namespace.filter(|_| kind.namespaced).unwrap_or_default().to_owned(),
        ..Rule::default()
    };
    let own = &controller.reconciles;
    rules.extend(controller.owns.iter().map(|kind| rule(kind, "", APPLY)));
    rules.extend(controller.watches.iter().map(|kind| rule(kind, "", READ)));
    if controller.cluster.is_some() {
        return; // what it does is done elsewhere, under other rights
    }
    rules.push(rule(own, "", READ));
    if controller.finalizer.is_some() {
        rules.push(rule(own, "", &["patch"]));
    }
    if has_status(declaration, own) {
        rules.push(rule(own, "/status", &["get", "patch", "update"]));
    }
    if !controller.owns.is_empty() {
        rules.push(rule(own, "/finalizers", &["update"]));
    }
    if controller.events {
        let events = Kind {
            group: "events.k8s.io".to_owned(),
            plural: "events".to_owned(),
            namespaced: true,
            ..Kind::default()
        };
        rules.push(rule(&events, "", &["create", "patch"]));
    }
}

/// Whether the kind is the operator's own and has a status of its own.
fn has_status(declaration: &Declaration, kind: &Kind) -> bool {
    declaration.crds.iter().any(|declared| {
        let spec = &declared.crd["spec"];
        spec["group"] == kind.group.as_str()
            && spec["names"]["plural"] == kind.plural.as_str()
            && spec["versions"].as_array().into_iter().flatten().any(|version| {
                version["name"] == kind.version.as_str()
                    && version["subresources"]
                        .get("status")
                        .is_some_and(|status| !status.is_null())
            })
    })
}

/// An explicit rule must allow something.
fn check(controller: &str, rule: &Rule, files: &dyn Files, errors: &mut Vec<Diagnostic>) {
    let who = match controller {
        "" => "a rule of the operator".to_owned(),
        name => format!("a rule of the controller {name}"),
    };
    let why = if rule.verbs.is_empty() {
        "it has no verbs"
    } else if rule.urls.is_empty() && rule.resources.is_empty() {
        "it names neither resources nor URLs"
    } else if !rule.urls.is_empty() && (!rule.resources.is_empty() || !rule.groups.is_empty()) {
        "it names resources and URLs at once, which Kubernetes refuses"
    } else if rule.urls.is_empty() && rule.groups.is_empty() {
        "it names resources without their API group (the core group is \"\")"
    } else if !rule.urls.is_empty() && !rule.namespace.is_empty() {
        "URLs belong to no namespace"
    } else if let Some(why) = rule.verbs.iter().find_map(|verb| misspelt(verb, !rule.urls.is_empty())) {
        errors.push(
            Diagnostic::new(codes::RULE, format!("cannot write {who} into a role"))
                .at(place(rule, files).field(format!("verbs {:?}", rule.verbs)))
                .because(why)
                .fix("Kubernetes takes any verb and then allows nothing by it; write the one that is meant"),
        );
        return;
    } else {
        return;
    };
    let shown = format!(
        "groups {:?}, resources {:?}, verbs {:?}, urls {:?}",
        rule.groups, rule.resources, rule.verbs, rule.urls
    );
    errors.push(
        Diagnostic::new(codes::RULE, format!("cannot write {who} into a role"))
            .at(place(rule, files).field(shown))
            .because(why)
            .fix("#[rbac(groups = \"apps\", resources = \"deployments\", verbs = \"get;list;watch\")] has everything that a rule needs"),
    );
}

/// A doubt about a rule for the project's own group, whose resources are known. Kinds of other operators in the group are
/// not, so that only what is near a known one, or its singular, is certainly wrong; the rest is said too.
fn unknown(rule: &Rule, declaration: &Declaration, files: &dyn Files) -> Option<Diagnostic> {
    let own = || declaration.crds.iter().map(|declared| &declared.crd["spec"]);
    let of = |group: &str| -> Vec<&str> {
        let specs = own().filter(|spec| spec["group"] == group);
        specs.filter_map(|spec| spec["names"]["plural"].as_str()).collect()
    };
    let (resource, known) = rule.groups.iter().find_map(|group| {
        let known = of(group);
        let is_known = |resource: &&String| {
            let plural = resource.split('/').next().unwrap_or_default();
            plural == "*" || known.contains(&plural)
        };
        let stray = rule.resources.iter().find(|resource| !is_known(resource))?;
        (!known.is_empty()).then_some((stray, known))
    })?;
    let fix = match near(resource, &known) {
        Some(meant) => format!("{meant} is meant?"),
        None => format!("the project has {}", known.join(", ")),
    };
    Some(
        Diagnostic::new(
            codes::UNKNOWN,
            format!("no kind of this project has the resource {resource:?}"),
        )
        .at(place(rule, files).field(format!("resources {:?}", rule.resources)))
        .because("the rule allows nothing unless another operator defines it in the same group")
        .fix(fix),
    )
}

/// Where a rule stands. The compiler names files from the root of the workspace, which may lie above the project.
fn place(rule: &Rule, files: &dyn Files) -> Place {
    let Some((file, line, column)) = &rule.at else {
        return Place::default();
    };
    let file = file.replace('\\', "/");
    let is_there = |path: &&str| matches!(files.read(path), Ok(Some(_)));
    let below = file.match_indices('/').map(|(at, _)| &file[at + 1..]);
    let own = std::iter::once(file.as_str())
        .chain(below)
        .filter(|path| !path.starts_with('/'))
        .find(is_there);
    Place::file(own.unwrap_or(&file)).line(*line).column(*column)
}

/// Why a verb cannot be meant: it is nearly one that there is, or is HTTP's word. Any other may be one that an operator
/// asks about itself.
fn misspelt(verb: &str, of_urls: bool) -> Option<String> {
    let known = if of_urls { URL_VERBS } else { VERBS };
    if known.contains(&verb) {
        return None;
    }
    let meant = match verb {
        "post" => "`create`",
        "put" => "`update`",
        "read" => "`get`, `list` and `watch`",
        "write" => "`create`, `update` and `patch`",
        _ if verb.contains([',', ' ']) => return Some(format!("{verb:?} is not a verb; separate verbs with `;`")),
        _ => {
            return near(verb, known).map(|other| format!("there is no verb `{verb}`; did you mean `{other}`?"));
        }
    };
    Some(format!("there is no verb `{verb}`; did you mean {meant}?"))
}

fn written(rule: &Rule) -> Value {
    let mut out = Map::new();
    for (key, values) in [
        ("apiGroups", &rule.groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.urls),
        ("verbs", &rule.verbs),
    ] {
        if !values.is_empty() {
            out.insert(key.to_owned(), json!(values));
        }
    }
    Value::Object(out)
}

/// The key by which rules are told apart and sorted.
type Key = (String, String, String, String);

fn sorted(list: &mut Vec<String>) {
    list.sort();
    list.dedup();
}

fn key(rule: &mut Rule) -> Key {
    for list in [
        &mut rule.groups,
        &mut rule.resources,
        &mut rule.resource_names,
        &mut rule.urls,
    ] {
        sorted(list);
    }
    (
        rule.groups.join("&"),
        rule.resources.join("&"),
        rule.resource_names.join("&"),
        rule.urls.join("&"),
    )
}

/// controller-gen's normal form.
fn normalize(rules: &[Rule]) -> Vec<Rule> {
    let mut by_key: BTreeMap<Key, Rule> = BTreeMap::new();
    for rule in rules {
        let mut rule = rule.clone();
        for group in &mut rule.groups {
            if group == "core" {
                group.clear();
            }
        }
        let resources = std::mem::take(&mut rule.resources);
        if resources.is_empty() {
            insert(&mut by_key, rule);
            continue;
        }
        for resource in resources {
            let mut one = rule.clone();
            one.resources = vec![resource];
            insert(&mut by_key, one);
        }
    }
    let by_key = join(
        by_key,
        |rule| &mut rule.resources,
        |(groups, _, names, urls)| [groups, names, urls],
    );
    let by_key = join(
        by_key,
        |rule| &mut rule.groups,
        |(_, resources, names, urls)| [resources, names, urls],
    );
    let by_key = join(
        by_key,
        |rule| &mut rule.urls,
        |(groups, resources, names, _)| [groups, resources, names],
    );
    by_key
        .into_values()
        .map(|mut rule| {
            if rule.verbs.iter().any(|verb| verb == "*") {
                rule.verbs = vec!["*".to_owned()];
            }
            rule
        })
        .collect()
}

/// Adds a rule; the verbs of an equal one are added to it.
fn insert(by_key: &mut BTreeMap<Key, Rule>, mut rule: Rule) {
    let key = key(&mut rule);
    let known = by_key.entry(key).or_insert_with(|| Rule {
        verbs: Vec::new(),
        ..rule.clone()
    });
    known.verbs.extend(rule.verbs);
    sorted(&mut known.verbs);
}

/// Joins rules that differ in one list only.
fn join(
    by_key: BTreeMap<Key, Rule>,
    list: fn(&mut Rule) -> &mut Vec<String>,
    others: fn(Key) -> [String; 3],
) -> BTreeMap<Key, Rule> {
    let mut groups: BTreeMap<([String; 3], String), Rule> = BTreeMap::new();
    for (key, mut rule) in by_key {
        let same = (others(key), rule.verbs.join("&"));
        match groups.get_mut(&same) {
            Some(known) => list(known).append(list(&mut rule)),
            None => {
                groups.insert(same, rule);
            }
        }
    }
    let mut joined = BTreeMap::new();
    for rule in groups.into_values() {
        insert(&mut joined, rule);
    }
    joined
}
