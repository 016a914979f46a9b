//! The service account that an operator runs as: the roles that `kubewright manifests` would write, bound to it, and
//! its kubeconfig.
//!
//! A right that is missing shows here as the API server's refusal, and not first in production. The names are those of
//! a deployment (`config/default`): namespace `PROJECT-system`, account `controller-manager`, roles with the prefix
//! `PROJECT-`. Not here: which rules an operator needs (the crate codegen), and advice about a refusal (`advice.rs`).

use std::path::Path;

use kubewright::k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use kubewright::k8s_openapi::api::core::v1::ServiceAccount;
use kubewright::kube::api::PostParams;
use kubewright::kube::config::{AuthInfo, Kubeconfig, NamedAuthInfo};
use kubewright::kube::{Api, Client};
use kubewright_codegen::{Diagnostic, Place, codes};
use kubewright_demo::account::{self, ACCOUNT};
use serde_json::{Value, json};

use super::objects::{self, Item};
use super::webhooks::LABEL;
use crate::target::write;

/// The file of the generated roles in `config/rbac`, for an operator that declares none.
pub(crate) const GENERATED: &str = "role.yaml";
/// Roles there that people own and that a deployment binds as well: for leader election, and for the metrics' readers.
pub(crate) const FURTHER: [&str; 2] = ["leader_election_role.yaml", "metrics_auth_role.yaml"];
/// How long a token is valid: longer than any session.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// The account of a project's operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    project: String,
}

impl Account {
    /// That of the project in this folder.
    pub(crate) fn of(root: &Path) -> Account {
        let name = root.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        Account::named(&name)
    }

    /// That of the operator of this name.
    pub(crate) fn named(name: &str) -> Account {
        let project = name.replace(['_', '.'], "-");
        Account { project }
    }

    /// The namespace of its deployment.
    pub(crate) fn namespace(&self) -> String {
        account::namespace(&self.project)
    }

    /// The user of the account: `system:serviceaccount:guestbook-system:controller-manager`.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace())
    }

    /// Creates the account with these roles, and removes its other roles.
    ///
    /// # Errors
    /// KWR0703 with the server's words.
    pub(crate) async fn grant(&self, client: &Client, roles: &[Value]) -> Result<(), Diagnostic> {
        let items: Vec<Item> = self.objects(roles).into_iter().map(item).collect();
        for item in &items {
            objects::apply_configuration(client, item).await?;
        }
        objects::prune(client, objects::RBAC, &items).await
    }

    fn objects(&self, roles: &[Value]) -> Vec<Value> {
        account::objects(&self.project, roles, &json!({LABEL.0: LABEL.1}))
    }

    /// Writes a kubeconfig with this account's token in the place of the credentials that `of` holds, readable by its
    /// owner alone.
    ///
    /// # Errors
    /// KWR0703 with the server's words, KWR0003 when the file cannot be written.
    pub(crate) async fn write(&self, client: &Client, of: Kubeconfig, path: &Path) -> Result<(), Diagnostic> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &self.namespace());
        let spec = TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest {
            spec: Some(spec),
            ..TokenRequest::default()
        };
        let granted = accounts
            .create_token_request(ACCOUNT, &PostParams::default(), &request)
            .await;
        let token = granted.map(|granted| granted.status.unwrap_or_default().token.unwrap_or_default());
        let token = token.map_err(|why| {
            Diagnostic::new(
                codes::dev::REFUSED,
                format!("the API server gives no token to {}", self.user()),
            )
            .because(objects::message(&why))
            .fix("--as-admin runs the operator with the rights of the kubeconfig")
        })?;
        write(&self.with_token(of, token), path)
    }

    fn with_token(&self, mut config: Kubeconfig, token: String) -> Kubeconfig {
        let current = config.current_context.clone();
        config
            .contexts
            .retain(|context| Some(&context.name) == current.as_ref());
        for context in config.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
            context.user = Some(self.user());
            // As in a pod, where the client's own namespace is the account's.
            context.namespace = Some(self.namespace());
        }
        let credentials = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };
        config.auth_infos = vec![NamedAuthInfo {
            name: self.user(),
            auth_info: Some(credentials),
            other: Default::default(),
        }];
        config
    }
}

fn item(object: Value) -> Item {
    Item {
        object,
        place: Place::file("config/rbac"),
    }
}

/// The roles in these files of a project's `config/rbac`; none where there is no such file.
///
/// # Errors
/// KWR0703 when a file cannot be read.
pub(crate) fn roles_of(root: &Path, files: &[&str]) -> Result<Vec<Value>, Diagnostic> {
    let mut roles = Vec::new();
    for name in files {
        let text = match crate::regular::text(&root.join("config/rbac").join(name)) {
            Ok(text) => text,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => continue,
            Err(why) => return Err(unreadable(name, why)),
        };
        let found: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|why| unreadable(name, why))?;
        let is_role = |role: &Value| role["kind"] == "Role" || role["kind"] == "ClusterRole";
        roles.extend(found.into_iter().filter(is_role));
    }
    Ok(roles)
}

fn unreadable(name: &str, why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(codes::dev::REFUSED, "cannot run the operator under its role")
        .at(Place::file(format!("config/rbac/{name}")))
        .because(why)
        .fix("correct the file; or run the operator with all rights: --as-admin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_the_roles_that_its_deployment_binds() {
        let account = Account::of(Path::new("/home/me/Guest_Book"));
        assert_eq!(
            account.user(),
            "system:serviceaccount:guest-book-system:controller-manager"
        );
        let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
        let made = account.objects(&[
            json!({"kind": "ClusterRole", "metadata": {"name": "manager-role"}, "rules": rules}),
            json!({"kind": "Role", "metadata": {"name": "manager-role", "namespace": "vault"}, "rules": rules}),
            json!({"kind": "Role", "metadata": {"name": "leader-election-role"}, "rules": rules}),
        ]);
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let names: Vec<String> = made
            .iter()
            .map(|object| {
                let metadata = &object["metadata"];
                format!(
                    "{} {} {}",
                    text(&object["kind"]),
                    text(&metadata["namespace"]),
                    text(&metadata["name"])
                )
            })
            .collect();
        insta::assert_snapshot!(names.join("\n"), @"
        Namespace - guest-book-system
        ServiceAccount guest-book-system controller-manager
        ClusterRole - guest-book-manager-role
        ClusterRoleBinding - guest-book-manager-role
        Namespace - vault
        Role vault guest-book-manager-role
        RoleBinding vault guest-book-manager-role
        Namespace - guest-book-system
        Role guest-book-system guest-book-leader-election-role
        RoleBinding guest-book-system guest-book-leader-election-role
        ");
        for binding in made.iter().filter(|object| text(&object["kind"]).ends_with("Binding")) {
            assert_eq!(binding["roleRef"]["name"], binding["metadata"]["name"]);
            assert_eq!(binding["subjects"][0]["namespace"], "guest-book-system");
        }
    }

    #[test]
    fn the_kubeconfig_holds_nothing_of_the_administrator() {
        let config: Kubeconfig = serde_saphyr::from_str(
            "apiVersion: v1\nkind: Config\ncurrent-context: me@here\nclusters:\n- name: here\n  cluster: {server: 'https://127.0.0.1:6443'}\n\
             contexts:\n- name: me@here\n  context: {cluster: here, user: me}\n- name: other\n  context: {cluster: there, user: you}\n\
             users:\n- name: me\n  user: {client-key-data: c2VjcmV0}\n- name: you\n  user: {token: hidden}\n",
        )
        .unwrap();
        let made = Account::named("guestbook").with_token(config, "t0ken".to_owned());
        let text = serde_json::to_string(&made).unwrap();
        assert!(text.contains("t0ken") && text.contains("guestbook-system"), "{text}");
        for foreign in ["c2VjcmV0", "hidden", "other"] {
            assert!(!text.contains(foreign), "{foreign} is in {text}");
        }
    }
}
