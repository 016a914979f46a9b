//! Who asks: the result of authentication (which the API server does).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use kubewright_schema::names;

/// The group whose members may do everything, regardless of the rules.
pub const SYSTEM_MASTERS: &str = "system:masters";
/// The group of all nodes.
pub const SYSTEM_NODES: &str = "system:nodes";
/// The prefix of a node's user name.
pub const NODE_PREFIX: &str = "system:node:";
/// The name of a request without credentials.
pub const SYSTEM_ANONYMOUS: &str = "system:anonymous";
/// The group of all users with credentials.
pub const SYSTEM_AUTHENTICATED: &str = "system:authenticated";
/// The group of all requests without credentials.
pub const SYSTEM_UNAUTHENTICATED: &str = "system:unauthenticated";

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The user name of a ServiceAccount: `system:serviceaccount:NAMESPACE:NAME`.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// Namespace and name of the ServiceAccount that a user name stands for; none for any other user.
///
/// ```
/// use kubewright_model::user::split_service_account;
/// assert_eq!(split_service_account("system:serviceaccount:shop:robot"), Some(("shop", "robot")));
/// assert_eq!(split_service_account("system:serviceaccount:shop"), None);
/// ```
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let valid = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

/// The groups of every ServiceAccount of a namespace, without `system:authenticated`.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

/// An authenticated user (`user.Info` of apiserver, `UserInfo` in an AdmissionReview).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user name, such as the CN of a client certificate.
    pub name: String,
    /// A stable id where the authenticator has one, else empty.
    pub uid: String,
    /// Groups, such as the O entries of a client certificate and `system:authenticated`.
    pub groups: Vec<String>,
    /// Further facts that the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The cluster's administrator: `kubernetes-admin` in `system:masters`.
    pub fn admin() -> UserInfo {
        UserInfo::authenticated("kubernetes-admin", [SYSTEM_MASTERS])
    }

    /// A request without credentials.
    pub fn anonymous() -> UserInfo {
        UserInfo {
            name: SYSTEM_ANONYMOUS.to_owned(),
            groups: vec![SYSTEM_UNAUTHENTICATED.to_owned()],
            ..UserInfo::default()
        }
    }

    /// A user with credentials: the groups given, and `system:authenticated`.
    ///
    /// ```
    /// use kubewright_model::user::UserInfo;
    /// let user = UserInfo::authenticated("jane", ["dev"]);
    /// assert!(user.in_group("system:authenticated") && user.in_group("dev"));
    /// ```
    pub fn authenticated<'a>(name: &str, groups: impl IntoIterator<Item = &'a str>) -> UserInfo {
        let mut groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
        if !groups.iter().any(|group| group == SYSTEM_AUTHENTICATED) {
            groups.push(SYSTEM_AUTHENTICATED.to_owned());
        }
        UserInfo {
            name: name.to_owned(),
            groups,
            ..UserInfo::default()
        }
    }

    /// A ServiceAccount, in the groups that its tokens say (`serviceaccount.UserInfo`).
    ///
    /// ```
    /// use kubewright_model::user::UserInfo;
    /// let robot = UserInfo::service_account("shop", "robot");
    /// assert_eq!(robot.name, "system:serviceaccount:shop:robot");
    /// assert!(robot.in_group("system:serviceaccounts:shop"));
    /// ```
    pub fn service_account(namespace: &str, name: &str) -> UserInfo {
        let groups = service_account_groups(namespace);
        UserInfo::authenticated(
            &service_account_name(namespace, name),
            groups.iter().map(String::as_str),
        )
    }

    /// The `authentication.k8s.io/v1` UserInfo: as reviews and webhooks are shown a user. Empty fields are absent.
    pub fn to_value(&self) -> Value {
        let mut info = Map::new();
        for (field, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                info.insert(field.to_owned(), json!(text));
            }
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(info)
    }

    /// The node that the user is: `system:node:<name>` in the group `system:nodes` (`NodeIdentity`). The name may be
    /// empty.
    pub fn node(&self) -> Option<&str> {
        let name = self.name.strip_prefix(NODE_PREFIX)?;
        self.in_group(SYSTEM_NODES).then_some(name)
    }

    /// Whether the user is a member of `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }
}
