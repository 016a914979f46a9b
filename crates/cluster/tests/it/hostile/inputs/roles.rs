//! Roles whose rules multiply, and reviews that walk through them.

use crate::hostile::input::{Input, Request, create, get, input, post};
use crate::hostile::values::{CLUSTER_BINDINGS, CLUSTER_ROLES, PODS, ROLES, items, object, role};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input(
            "a Role of 1.9 KB with 90 verbs, groups and resources each",
            &[201, 403, 413],
            || as_writer(create(ROLES, "cube", role("cube", &cube(90)))),
        ),
        input(
            "a Role of 90 KB with 5,000 verbs, groups and resources each",
            &[201, 403, 413],
            || as_writer(create(ROLES, "cube", role("cube", &cube(5_000)))),
        ),
        input(
            "a Role with 20,000 rules by somebody who may not",
            &[201, 403, 413],
            || {
                let rules = items(20_000, |index| {
                    format!(r#"{{"verbs":["get"],"apiGroups":["g{index}"],"resources":["r"]}}"#)
                });
                as_writer(create(ROLES, "cube", role("cube", &rules)))
            },
        ),
        input(
            "a review of all rules of somebody with a Role of 5,000 by 5,000",
            &[201, 413],
            || {
                let roles = create(CLUSTER_ROLES, "cube", cluster_role("cube", &cube(5_000)));
                let review = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview",
                "spec":{"namespace":"default"}}"#;
                post(
                    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                    "application/json",
                    review,
                )
                .header("Impersonate-User", "writer")
                .after(roles)
                .after(binding("cube"))
            },
        ),
        input(
            "a review of all rules of somebody with 10 bindings",
            &[201, 413],
            || {
                let review = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview",
                "spec":{"namespace":"default"}}"#;
                let review = post(
                    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                    "application/json",
                    review,
                )
                .header("Impersonate-User", "writer")
                .after(create(CLUSTER_ROLES, "cube", cluster_role("cube", &cube(2_000))));
                (0..10).fold(review, |review, index| {
                    review.after(binding_named(&format!("b{index}"), "cube"))
                })
            },
        ),
        input("a request by somebody in 1,000 groups", &[403, 431], || {
            let request = get(PODS).header("Impersonate-User", "nobody");
            (0..1_000).fold(request, |request, index| {
                request.header("Impersonate-Group", &format!("g{index}"))
            })
        }),
    ]
}

/// One rule with so many verbs, groups and resources.
fn cube(side: usize) -> String {
    let words = |letter| items(side, move |index| format!("\"{letter}{index}\""));
    format!(
        r#"[{{"verbs":{},"apiGroups":{},"resources":{}}}]"#,
        words('v'),
        words('g'),
        words('r')
    )
}

fn cluster_role(name: &str, rules: &str) -> String {
    object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        name,
        "",
        &format!("\"rules\":{rules}"),
    )
}

fn binding(role: &str) -> Request {
    binding_named(role, role)
}

fn binding_named(name: &str, role: &str) -> Request {
    let rest = format!(
        r#""roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"{role}"}},
        "subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"writer"}}]"#
    );
    let body = object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name, "", &rest);
    create(CLUSTER_BINDINGS, name, body)
}

/// As a user who may write Roles, and is checked for the rights that they grant.
fn as_writer(request: Request) -> Request {
    let rules = r#"[{"verbs":["create"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"]}]"#;
    request
        .header("Impersonate-User", "writer")
        .after(create(CLUSTER_ROLES, "writers", cluster_role("writers", rules)))
        .after(binding("writers"))
}
