//! The 403 of a refusal, in Kubernetes' words.

use super::Attributes;
use crate::model::status::{Details, Status};
use crate::model::user::UserInfo;

/// The answer to a request that `user` may not make; `reason` is that of the authorizer, or empty.
pub(crate) fn refused(user: &UserInfo, attributes: &Attributes, reason: &str) -> Status {
    let tail = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    let name = &user.name;
    let verb = &attributes.verb;
    if !attributes.is_resource() {
        let path = &attributes.path;
        let message = format!("forbidden: User \"{name}\" cannot {verb} path \"{path}\"{tail}");
        return Status::failure(403, "Forbidden", message).with_empty_details();
    }
    let group = &attributes.group;
    let qualified = if group.is_empty() || attributes.resource.is_empty() {
        attributes.resource.clone()
    } else {
        format!("{}.{group}", attributes.resource)
    };
    let object = match (qualified.as_str(), attributes.name.as_str()) {
        ("", _) => "forbidden:".to_owned(),
        (qualified, "") => format!("{qualified} is forbidden:"),
        (qualified, name) => format!("{qualified} \"{name}\" is forbidden:"),
    };
    let scope = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", attributes.namespace)
    };
    let resource = attributes.combined_resource();
    let message = format!(
        "{object} User \"{name}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}{tail}"
    );
    Status::failure(403, "Forbidden", message).with_details(Details {
        name: attributes.name.clone(),
        group: group.clone(),
        kind: attributes.resource.clone(),
        ..Details::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// verb, group, resource, subresource, namespace, name, path, reason; the message
    type Case = ([&'static str; 8], &'static str);

    const CASES: &[Case] = &[
        (
            ["list", "", "pods", "", "default", "", "", ""],
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            ["get", "apps", "deployments", "scale", "a", "d", "", ""],
            "deployments.apps \"d\" is forbidden: User \"jane\" cannot get resource \"deployments/scale\" in API group \"apps\" in the \
             namespace \"a\"",
        ),
        (
            [
                "create",
                "",
                "nodes",
                "",
                "",
                "",
                "",
                "RBAC: clusterrole.rbac.authorization.k8s.io \"x\" not found",
            ],
            "nodes is forbidden: User \"jane\" cannot create resource \"nodes\" in API group \"\" at the cluster scope: RBAC: \
             clusterrole.rbac.authorization.k8s.io \"x\" not found",
        ),
        (
            ["post", "", "", "", "", "", "/apis", ""],
            "forbidden: User \"jane\" cannot post path \"/apis\"",
        ),
        (
            ["", "", "pods", "", "", "", "", ""],
            "pods is forbidden: User \"jane\" cannot  resource \"pods\" in API group \"\" at the cluster scope",
        ),
        (
            ["get", "", "", "", "", "pods", "", ""],
            "forbidden: User \"jane\" cannot get resource \"\" in API group \"\" at the cluster scope",
        ),
    ];

    #[test]
    fn a_refusal_names_the_user_and_the_request() {
        for ([verb, group, resource, subresource, namespace, name, path, reason], want) in CASES {
            let attributes = Attributes {
                verb: (*verb).to_owned(),
                group: (*group).to_owned(),
                resource: (*resource).to_owned(),
                subresource: (*subresource).to_owned(),
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
                path: (*path).to_owned(),
                ..Attributes::default()
            };
            let status = refused(&UserInfo::authenticated("jane", []), &attributes, reason);
            assert_eq!((status.code, status.message.as_str()), (403, *want));
        }
    }
}
