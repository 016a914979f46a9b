//! Who asks: the result of authentication (see [`crate::authentication`]).

use std::collections::BTreeMap;

/// The group whose members may do everything, whatever the rules say.
pub const SYSTEM_MASTERS: &str = "system:masters";
/// The name of a request without credentials.
pub const SYSTEM_ANONYMOUS: &str = "system:anonymous";
/// The group of everybody with credentials.
pub const SYSTEM_AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody without credentials.
pub const SYSTEM_UNAUTHENTICATED: &str = "system:unauthenticated";

/// An authenticated user (`user.Info` of apiserver, `UserInfo` in an AdmissionReview).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user name, such as the CN of a client certificate.
    pub name: String,
    /// A stable id where the authenticator has one, else empty.
    pub uid: String,
    /// Groups, such as the O entries of a client certificate and `system:authenticated`.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
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
    /// use kubewright_apiserver::UserInfo;
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

    /// Whether the user is a member of `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }
}
