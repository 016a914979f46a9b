//! Who may write owner references, with the plugin OwnerReferencesPermissionEnforcement and without.

use serde_json::{Value, json};

use super::Config;
use super::tests::World;
use crate::UserInfo;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A reference to an owner.
fn owner(api_version: &str, kind: &str, blocks: bool) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": format!("u-{kind}"), "blockOwnerDeletion": blocks})
}

/// A server on which `writer` writes ConfigMaps, `cleaner` deletes them as well, and `finalizer` also blocks the
/// deletion of Deployments and, but for the namespace of his role, of Nodes.
fn world(is_on: bool) -> World {
    let mut config = Config::default();
    if is_on {
        let name = "OwnerReferencesPermissionEnforcement".to_owned();
        config.enabled_plugins.insert(name);
    }
    let world = World::of(config, |_| {});
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let write = rule("", "configmaps", &["create", "update", "patch"]);
    let delete = rule("", "configmaps", &["delete"]);
    let finalize = [
        rule("apps", "deployments/finalizers", &["update"]),
        rule("", "nodes/finalizers", &["update"]),
    ];
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    for (user, rules) in [
        ("writer", json!([write])),
        ("cleaner", json!([write, delete])),
        ("finalizer", json!([write, delete, finalize[0], finalize[1]])),
    ] {
        let metadata = json!({"name": user});
        world.must(
            201,
            &format!("POST {roles}/roles"),
            &json!({"metadata": metadata, "rules": rules}),
        );
        let binding = json!({"metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        world.must(201, &format!("POST {roles}/rolebindings"), &binding);
    }
    world
}

#[track_caller]
fn check(world: &World, user: &str, line: &str, references: &[&Value], want: Result<u16, &str>) {
    let name = line.rsplit('/').next().unwrap_or_default();
    let name = if line.starts_with("POST") {
        json!("new")
    } else {
        json!(name)
    };
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": references}});
    let kind = if line.starts_with("PATCH") {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let user = match user {
        "admin" => UserInfo::admin(),
        user => UserInfo::authenticated(user, []),
    };
    let line = format!("{line}?dryRun=All");
    let answer = world.send(&line, &[("content-type", kind)], body.to_string(), user.clone());
    let message = answer.body["message"].as_str().unwrap_or_default();
    match want {
        Ok(code) => assert_eq!(answer.code, code, "{} {line} {references:?}: {message}", user.name),
        Err(why) => assert_eq!(
            (answer.code, message.split_once(" is forbidden: ").unwrap_or_default().1),
            (403, why),
            "{} {line} {references:?}",
            user.name
        ),
    }
}

#[test]
fn owner_references_need_rights_of_their_own() {
    const DELETE: &str = "cannot set an ownerRef on a resource you can't delete: , <nil>";
    const FINALIZE: &str =
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    let world = world(true);
    let [plain, blocking] = [false, true].map(|blocks| owner("apps/v1", "Deployment", blocks));
    let node = owner("v1", "Node", true);
    let unknown = owner("x.io/v1", "Odd", true);
    for (name, references) in [
        ("free", json!([])),
        ("owned", json!([plain])),
        ("held", json!([blocking])),
    ] {
        let map = json!({"metadata": {"name": name, "ownerReferences": references}});
        world.must(201, &format!("POST {MAPS}"), &map);
    }
    let (post, free, owned, held) = (
        format!("POST {MAPS}"),
        format!("PATCH {MAPS}/free"),
        format!("PATCH {MAPS}/owned"),
        format!("PATCH {MAPS}/held"),
    );
    // Who creates an object may say whose it is.
    check(&world, "writer", &post, &[], Ok(201));
    check(&world, "writer", &post, &[&plain], Ok(201));
    check(&world, "writer", &post, &[&blocking], Err(FINALIZE));
    check(&world, "cleaner", &post, &[&blocking], Err(FINALIZE));
    check(&world, "finalizer", &post, &[&plain, &blocking], Ok(201));
    // A role of a namespace gives no right to what has none.
    check(&world, "finalizer", &post, &[&node], Err(FINALIZE));
    let no_match = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion x.io/v1 Kind Odd: \
                    no matches for kind \"Odd\" in version \"x.io/v1\"";
    check(&world, "finalizer", &post, &[&unknown], Err(no_match));
    for reference in [&blocking, &node, &unknown] {
        check(&world, "admin", &post, &[reference], Ok(201));
    }
    // Who changes them could as well have deleted the object.
    check(&world, "writer", &free, &[], Ok(200));
    check(&world, "writer", &owned, &[&plain], Ok(200));
    check(&world, "writer", &held, &[&blocking], Ok(200));
    check(&world, "writer", &free, &[&plain], Err(DELETE));
    check(&world, "writer", &owned, &[], Err(DELETE));
    check(&world, "writer", &format!("PUT {MAPS}/owned"), &[], Err(DELETE));
    check(&world, "cleaner", &free, &[&plain], Ok(200));
    check(&world, "cleaner", &owned, &[], Ok(200));
    check(&world, "cleaner", &owned, &[&blocking], Err(FINALIZE));
    check(&world, "cleaner", &held, &[&plain], Ok(200));
    check(&world, "finalizer", &owned, &[&blocking], Ok(200));
    check(&world, "finalizer", &held, &[&blocking, &node], Err(FINALIZE));
}

#[test]
fn they_need_none_unless_the_plugin_is_named() {
    let world = world(false);
    let reference = owner("apps/v1", "Deployment", true);
    world.must(201, &format!("POST {MAPS}"), &json!({"metadata": {"name": "free"}}));
    check(&world, "writer", &format!("POST {MAPS}"), &[&reference], Ok(201));
    check(&world, "writer", &format!("PATCH {MAPS}/free"), &[&reference], Ok(200));
}
