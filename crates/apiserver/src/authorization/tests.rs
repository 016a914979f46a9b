//! Matching and covering, checked against each other over all small rules; refusals and reasons as a kube-apiserver
//! gives them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::policy::Visit;
use super::*;
use crate::storage::{MemoryStorage, Storage};

/// All lists over an alphabet with at most `most` entries.
fn lists(alphabet: &[&str], most: usize) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..most {
        last = last
            .iter()
            .flat_map(|list| {
                alphabet
                    .iter()
                    .filter(|entry| !list.iter().any(|have| have == *entry))
                    .map(|entry| {
                        let mut longer = list.clone();
                        longer.push((*entry).to_owned());
                        longer
                    })
            })
            .collect();
        all.extend(last.clone());
    }
    all
}

/// Every rule over a small alphabet.
fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for verbs in lists(&["get", "*"], 1) {
        for api_groups in lists(&["", "*"], 1) {
            for resources in lists(&["a", "a/s", "*/s", "*"], 2) {
                for resource_names in lists(&["x"], 1) {
                    rules.push(Rule {
                        verbs: verbs.clone(),
                        api_groups: api_groups.clone(),
                        resources: resources.clone(),
                        resource_names,
                        non_resource_urls: Vec::new(),
                    });
                }
            }
        }
        for non_resource_urls in lists(&["/p", "/p/q", "/p/*", "*"], 2) {
            rules.push(Rule {
                verbs: verbs.clone(),
                non_resource_urls,
                ..Rule::default()
            });
        }
    }
    rules
}

/// Requests that tell the rules apart.
fn requests() -> Vec<Attributes> {
    let mut requests = Vec::new();
    for verb in ["get", "list"] {
        for group in ["", "g"] {
            for (resource, subresource) in [("a", ""), ("a", "s"), ("b", "s"), ("b", ""), ("a", "t")] {
                for name in ["", "x", "y"] {
                    requests.push(Attributes {
                        verb: verb.to_owned(),
                        group: group.to_owned(),
                        resource: resource.to_owned(),
                        subresource: subresource.to_owned(),
                        name: name.to_owned(),
                        ..Attributes::default()
                    });
                }
            }
        }
        for path in ["/p", "/p/q", "/p/r", "/q"] {
            requests.push(Attributes {
                verb: verb.to_owned(),
                path: path.to_owned(),
                ..Attributes::default()
            });
        }
    }
    requests
}

/// A user whose rules cover a rule may do all that it allows; the uncovered rest is named by parts that allow something
/// of it.
#[test]
fn a_rule_covers_what_it_allows() {
    let (rules, requests) = (rules(), requests());
    let allowed: Vec<Vec<bool>> = rules
        .iter()
        .map(|rule| requests.iter().map(|request| rule.allows(request)).collect())
        .collect();
    let mut covered = 0;
    for (one, owner) in rules.iter().enumerate() {
        for (other, wanted) in rules.iter().enumerate() {
            let missing = covers(std::slice::from_ref(owner), std::slice::from_ref(wanted));
            if missing.is_empty() {
                covered += 1;
                let beyond = (0..requests.len()).find(|&at| allowed[other][at] && !allowed[one][at]);
                assert_eq!(
                    beyond.map(|at| &requests[at].path),
                    None,
                    "{owner} does not cover {wanted}"
                );
            }
            let rest = |request: &Attributes| {
                missing
                    .iter()
                    .all(|part| !part.allows(request) || wanted.allows(request))
            };
            assert!(requests.iter().all(rest), "{owner} {wanted}: parts of what was wanted");
        }
    }
    assert!(covered > rules.len(), "at least every rule covers itself");
}

#[test]
fn missing_parts_are_put_together() {
    #[track_caller]
    fn check(wanted: &Value, want: &[&str]) {
        let wanted: Vec<Rule> = wanted.as_array().expect("rules").iter().map(Rule::from_value).collect();
        let mut lines: Vec<String> = rule::compact(covers(&[], &wanted))
            .iter()
            .map(ToString::to_string)
            .collect();
        lines.sort_unstable();
        assert_eq!(lines, want);
    }
    check(
        &json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "get"]},
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
                {"apiGroups": ["x"], "resources": ["y"], "resourceNames": ["n"], "verbs": ["list"]},
                {"apiGroups": ["x"], "resources": ["y"], "resourceNames": ["n", "o"], "verbs": ["watch"]},
                {"nonResourceURLs": ["/b"], "verbs": ["get", "put"]}]),
        &[
            "{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"list\" \"get\" \"get\"]}",
            "{APIGroups:[\"x\"], Resources:[\"y\"], ResourceNames:[\"n\"], Verbs:[\"list\" \"watch\"]}",
            "{APIGroups:[\"x\"], Resources:[\"y\"], ResourceNames:[\"o\"], Verbs:[\"watch\"]}",
            "{NonResourceURLs:[\"/b\"], Verbs:[\"get\"]}",
            "{NonResourceURLs:[\"/b\"], Verbs:[\"put\"]}",
        ],
    );
}

/// A decision that takes long holds up nobody: neither another user's, nor a write, nor the decision that follows from
/// that write.
#[test]
fn nobody_waits_for_a_decision() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(16, 4));
    let policy = Policy::new(storage.clone());
    let write = |store: &str, key: &str, value: Value| {
        let store = format!("{store}.{GROUP}");
        storage.create(&store, key, value).expect("a new object");
        policy.settle_written(&store);
    };
    let bind = |namespace: &str, user: &str| {
        write("roles", &format!("{namespace}/r"), pods_role());
        let subjects = json!([{"kind": "User", "name": user}]);
        write(
            "rolebindings",
            &format!("{namespace}/b"),
            binding("Role", "r", &subjects),
        );
    };
    let may = |user: &str, namespace: &str| {
        let (user, wanted) = (UserInfo::authenticated(user, []), list_pods(namespace));
        let allows = |visit: Visit<'_>| matches!(visit, Visit::Rule(rule, _) if rule.allows(&wanted)).then_some(());
        policy.visit(&user, namespace, allows).is_some()
    };
    bind("attacker", "attacker");
    let (held, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let attacker = UserInfo::authenticated("attacker", []);
            policy.visit(&attacker, "attacker", |_| {
                held.wait();
                go_on.wait();
                None::<()>
            })
        });
        held.wait();
        assert!(!may("neighbor", "n"));
        bind("n", "neighbor");
        assert!(may("neighbor", "n") && !may("neighbor", "attacker"));
        go_on.wait();
    });
}

fn list_pods(namespace: &str) -> Attributes {
    Attributes {
        verb: "list".to_owned(),
        resource: "pods".to_owned(),
        namespace: namespace.to_owned(),
        ..Attributes::default()
    }
}

fn pods_role() -> Value {
    json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]})
}

fn binding(kind: &str, role: &str, subjects: &Value) -> Value {
    json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": subjects})
}

/// Every kind of subject, with the reason of the answer; and the index says the same when it is built anew.
#[test]
fn bindings_and_their_reasons() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(16, 4));
    let policy = Arc::new(Policy::new(storage.clone()));
    let authorizer = standard(policy.clone());
    let check = |user: &UserInfo, namespace: &str, allowed: bool, reason: &str| {
        for _ in 0..2 {
            let decision = authorizer.decide(user, &list_pods(namespace)).known();
            assert_eq!(
                (decision.is_allowed(), decision.reason.as_str()),
                (allowed, reason),
                "{}",
                user.name
            );
            policy.forget();
        }
    };
    let jane = UserInfo::authenticated("jane", ["dev"]);
    check(&jane, "a", false, "");
    check(&UserInfo::admin(), "a", true, "");
    let write = |store: &str, key: &str, value: &Value| {
        let store = format!("{store}.{GROUP}");
        let present = storage.get(&store, key).map(|present| present.revision());
        match present {
            None => storage.create(&store, key, value.clone()).expect("a new object"),
            Some(revision) => storage
                .update(&store, key, revision, value.clone())
                .expect("the present one"),
        };
    };
    let subjects = json!([{"kind": "Group", "name": "dev"}, {"kind": "User", "name": "jane"}]);
    write("rolebindings", "a/b", &binding("Role", "r", &subjects));
    check(
        &jane,
        "a",
        false,
        "RBAC: role.rbac.authorization.k8s.io \"r\" not found",
    );
    check(&jane, "b", false, "");
    write("clusterrolebindings", "c", &binding("ClusterRole", "c", &subjects));
    let both =
        "RBAC: [clusterrole.rbac.authorization.k8s.io \"c\" not found, role.rbac.authorization.k8s.io \"r\" not found]";
    check(&jane, "a", false, both);
    write("roles", "a/r", &pods_role());
    check(
        &jane,
        "a",
        true,
        "RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to Group \"dev\"",
    );
    write("clusterroles", "c", &pods_role());
    check(
        &jane,
        "",
        true,
        "RBAC: allowed by ClusterRoleBinding \"c\" of ClusterRole \"c\" to Group \"dev\"",
    );
    let accounts = json!([{"kind": "ServiceAccount", "name": "robot"}]);
    write("rolebindings", "a/b", &binding("ClusterRole", "c", &accounts));
    write("clusterrolebindings", "c", &binding("ClusterRole", "c", &accounts));
    check(&jane, "a", false, "");
    let robot = UserInfo::authenticated("system:serviceaccount:a:robot", []);
    check(
        &robot,
        "a",
        true,
        "RBAC: allowed by RoleBinding \"b/a\" of ClusterRole \"c\" to ServiceAccount \"robot/a\"",
    );
    check(&robot, "b", false, "");
    // More changes than a watcher may fall behind.
    for name in ["1", "2", "3", "4", "5", "6"] {
        write(
            "rolebindings",
            &format!("b/{name}"),
            &binding("ClusterRole", "c", &json!([{"kind": "User", "name": name}])),
        );
    }
    check(
        &UserInfo::authenticated("6", []),
        "b",
        true,
        "RBAC: allowed by RoleBinding \"6/b\" of ClusterRole \"c\" to User \"6\"",
    );
    let store = format!("rolebindings.{GROUP}");
    let revision = storage.get(&store, "b/6").expect("there").revision();
    storage.delete(&store, "b/6", revision).expect("there");
    check(&UserInfo::authenticated("6", []), "b", false, "");
}
