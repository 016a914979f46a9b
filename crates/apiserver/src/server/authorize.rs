//! Who may do what.
//!
//! [`Authorizer`] is what a server asks before every request. [`MastersOnly`] is used until RBAC rules are evaluated: members of
//! `system:masters` may do everything, others may look at health, version and (with credentials) discovery, as the bootstrap policy
//! of upstream allows them.

use crate::status::{Details, Status};
use crate::user::{SYSTEM_AUTHENTICATED, SYSTEM_MASTERS, UserInfo};

/// What a request wants (`authorizer.Attributes`).
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// `get`, `list`, `create`, …; for paths that are no resource the method in small letters.
    pub verb: String,
    /// API group of the resource.
    pub group: String,
    /// Plural name of the resource; empty for a path that is no resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty for all or none.
    pub namespace: String,
    /// Name of the object, or empty.
    pub name: String,
    /// The path.
    pub path: String,
}

/// Decides about requests.
pub trait Authorizer: Send + Sync + 'static {
    /// Whether `user` may do it; `Err` holds a reason to show, which may be empty.
    ///
    /// # Errors
    /// The reason of the refusal.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<(), String>;
}

/// Everything for `system:masters`, next to nothing for others.
#[derive(Clone, Copy, Debug, Default)]
pub struct MastersOnly;

impl Authorizer for MastersOnly {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<(), String> {
        if user.in_group(SYSTEM_MASTERS) {
            return Ok(());
        }
        let path = attributes.path.trim_end_matches('/');
        let below = |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
        let public = ["/healthz", "/livez", "/readyz", "/version"].contains(&path);
        let discovery = user.in_group(SYSTEM_AUTHENTICATED) && (below("/api") || below("/apis") || below("/openapi"));
        if attributes.resource.is_empty() && attributes.verb == "get" && (public || discovery) {
            return Ok(());
        }
        Err(String::new())
    }
}

/// The 403 of a refusal.
pub(crate) fn refused(user: &UserInfo, attributes: &Attributes, reason: &str) -> Status {
    let tail = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    let name = &user.name;
    if attributes.resource.is_empty() {
        let message = format!(
            "forbidden: User \"{name}\" cannot {} path \"{}\"{tail}",
            attributes.verb, attributes.path
        );
        return Status::failure(403, "Forbidden", message).with_empty_details();
    }
    let resource = match attributes.subresource.as_str() {
        "" => attributes.resource.clone(),
        subresource => format!("{}/{subresource}", attributes.resource),
    };
    let group = &attributes.group;
    let qualified = if group.is_empty() {
        attributes.resource.clone()
    } else {
        format!("{}.{group}", attributes.resource)
    };
    let object = if attributes.name.is_empty() {
        qualified
    } else {
        format!("{qualified} \"{}\"", attributes.name)
    };
    let scope = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", attributes.namespace)
    };
    let verb = &attributes.verb;
    let message = format!(
        "{object} is forbidden: User \"{name}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}{tail}"
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

    #[test]
    fn who_may_what() {
        #[track_caller]
        fn check(user: &UserInfo, path: &str, resource: &str, allowed: bool) {
            let attributes = Attributes {
                verb: "get".to_owned(),
                path: path.to_owned(),
                resource: resource.to_owned(),
                ..Attributes::default()
            };
            assert_eq!(
                MastersOnly.authorize(user, &attributes).is_ok(),
                allowed,
                "{} {path}",
                user.name
            );
        }
        let (admin, anonymous, jane) = (
            UserInfo::admin(),
            UserInfo::anonymous(),
            UserInfo::authenticated("jane", []),
        );
        check(&admin, "/api/v1/pods", "pods", true);
        for user in [&anonymous, &jane] {
            check(user, "/healthz", "", true);
            check(user, "/version", "", true);
            check(user, "/api/v1/pods", "pods", false);
            check(user, "/metrics", "", false);
        }
        check(&anonymous, "/apis", "", false);
        check(&jane, "/apis/apps", "", true);
        check(&jane, "/apisx", "", false);
    }

    #[test]
    fn a_refusal_says_who_and_what() {
        let attributes = Attributes {
            verb: "list".to_owned(),
            resource: "pods".to_owned(),
            namespace: "default".to_owned(),
            ..Attributes::default()
        };
        let status = refused(&UserInfo::anonymous(), &attributes, "");
        assert_eq!(
            status.message,
            "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
        );
    }
}
