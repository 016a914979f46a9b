//! The operator runs under its own role: that of the project's `config/rbac`, which `kubewright manifests` writes and a
//! deployment applies.
//!
//! A right that is missing there shows in a test as the API server's refusal, and not first in production. A package
//! without the folder has no role to go by: its operator runs as the administrator. Where the folder is and the role is
//! not, it was not generated yet, which is an error: a test that passes as the administrator says nothing. Not here: the
//! advice about a refusal, see `failures.rs`.

use std::path::{Path, PathBuf};

use kubewright::kube::api::{DynamicObject, PostParams};
use kubewright::kube::core::ApiResource;
use kubewright::kube::{self, Api, ResourceExt as _};
use serde_json::json;

use crate::error::{Error, Result};

/// The account of the operator's Deployment, as the scaffold names it.
const ACCOUNT: &str = "controller-manager";
/// The files whose roles the account is bound to: generated from the code, for leader election, and for the metrics'
/// readers.
const FILES: [&str; 3] = ["role.yaml", ELECTION, "metrics_auth_role.yaml"];
const ELECTION: &str = "leader_election_role.yaml";

/// The roles of a project.
pub(crate) struct Rights {
    /// The name of the operator; its account lives in a namespace of this name.
    namespace: String,
    roles: Vec<DynamicObject>,
}

impl Rights {
    /// Those of the package that is tested; `None` when it has no folder for them.
    pub(crate) fn of_package(operator: &str) -> Result<Option<Rights>> {
        let folder = folder_of_package();
        folder.map(|folder| Rights::in_folder(&folder, operator)).transpose()
    }

    /// Namespace and name of the account that an operator of the package that is tested has; `None` when it has no
    /// generated role.
    pub(crate) fn account_of_package(operator: &str) -> Option<(String, &'static str)> {
        folder_of_package()?;
        Some((namespace_of(operator), ACCOUNT))
    }

    /// Whether an operator of the package that is tested may elect a leader: as the administrator, or by its role.
    pub(crate) fn may_elect_in_package() -> Result<bool> {
        let Some(folder) = folder_of_package() else {
            return Ok(true);
        };
        let path = folder.join(ELECTION);
        path.try_exists().map_err(|error| {
            let why = format!("{}: {error}", path.display());
            Error::Runtime(kubewright::Error::Configuration(why))
        })
    }

    /// Those of a folder with a generated role.
    pub(crate) fn in_folder(folder: &Path, operator: &str) -> Result<Rights> {
        let mut roles = read(&folder.join(FILES[0]))?;
        for name in &FILES[1..] {
            let path = folder.join(name);
            if path.exists() {
                roles.extend(read(&path)?);
            }
        }
        let namespace = namespace_of(operator);
        Ok(Rights { namespace, roles })
    }

    /// As [`in_folder`](Rights::in_folder), of a project of any framework: the operator lives in the namespace that its
    /// kustomization names, in this folder or in `default` beside it.
    pub(crate) fn of_project(folder: &Path, operator: &str) -> Result<Rights> {
        let mut rights = Rights::in_folder(folder, operator)?;
        let default = folder.join("../default");
        for file in [folder, &default].map(|folder| folder.join("kustomization.yaml")) {
            // What cannot be read is kustomize's to tell.
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let parsed = serde_saphyr::from_str::<serde_json::Value>(&text).unwrap_or_default();
            if let Some(namespace) = parsed["namespace"].as_str() {
                rights.namespace = namespace.to_owned();
                break;
            }
        }
        Ok(rights)
    }

    /// Namespace and name of the operator's account.
    pub(crate) fn account(&self) -> (&str, &'static str) {
        (&self.namespace, ACCOUNT)
    }

    /// The Roles and ClusterRoles, as they stand in the files.
    pub(crate) fn roles(&self) -> &[DynamicObject] {
        &self.roles
    }

    /// Creates the roles and binds the account to them.
    pub(crate) async fn grant(&self, kube: &kube::Client, operator: &str) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        create(kube, namespace).await?;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": self.namespace},
        });
        create(kube, account).await?;
        for role in &self.roles {
            let kind = role.types.clone().unwrap_or_default().kind;
            let name = format!("{operator}-{}", role.name_any());
            // A Role without a namespace is for the operator's own; other namespaces may not be there yet.
            let namespace = (kind == "Role").then(|| role.namespace().unwrap_or_else(|| self.namespace.clone()));
            if let Some(namespace) = &namespace {
                create(
                    kube,
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
                )
                .await?;
            }
            let metadata = json!({"name": name, "namespace": namespace});
            let mut made = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata});
            made["rules"] = role.data["rules"].clone();
            create(kube, made).await?;
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace}],
            });
            create(kube, binding).await?;
        }
        Ok(())
    }
}

fn namespace_of(operator: &str) -> String {
    format!("{operator}-system")
}

/// The folder for the role of the package that is tested.
fn folder_of_package() -> Option<PathBuf> {
    // Cargo runs tests in the folder of their package, and says so besides.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let folder = package.join("config").join("rbac");
    folder.is_dir().then_some(folder)
}

/// The Roles and ClusterRoles of a file.
fn read(path: &Path) -> Result<Vec<DynamicObject>> {
    let wrong = |why: String| {
        Error::Runtime(kubewright::Error::Configuration(format!(
            "the operator cannot run under its role: {}: {why}; write it anew with kubewright manifests, or use TestCluster::run_as_admin",
            path.display()
        )))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let documents: Vec<Option<DynamicObject>> =
        serde_saphyr::from_multiple(&text).map_err(|error| wrong(error.to_string()))?;
    let mut roles = Vec::new();
    for object in documents.into_iter().flatten() {
        let kind = object
            .types
            .as_ref()
            .map(|types| types.kind.as_str())
            .unwrap_or_default();
        if !["Role", "ClusterRole"].contains(&kind) {
            return Err(wrong(format!("it holds a {kind:?}, not only roles")));
        }
        roles.push(object);
    }
    Ok(roles)
}

/// Creates an object; one that is there already, of another operator of this test, is left as it is.
async fn create(kube: &kube::Client, object: serde_json::Value) -> Result<()> {
    let attempted = format!(
        "create the {} of the operator's rights",
        object["kind"].as_str().unwrap_or_default()
    );
    let object: DynamicObject = serde_json::from_value(object).map_err(|error| Error::Runtime(error.into()))?;
    let kind = object.types.clone().unwrap_or_default();
    let kind = kube::core::GroupVersionKind::try_from(kind)
        .map_err(|error| Error::Runtime(kubewright::Error::Configuration(error.to_string())))?;
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(kube.clone(), &namespace, &resource),
        None => Api::all_with(kube.clone(), &resource),
    };
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        Err(source) => Err(Error::Api { attempted, source }),
    }
}
