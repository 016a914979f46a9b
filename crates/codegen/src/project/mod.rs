//! PROJECT: the parts of a project, in kubebuilder's file of version 3.
//!
//! [`Project`] is the file as data: read with [`Project::load`], changed by commands, written with
//! [`Project::to_text`]. Invariants: unknown fields are kept; reading and writing an unchanged file gives the same
//! data; the result of [`Project::load`] names nothing twice and only things that exist. Inside: `check` finds
//! contradictions, `layout` where files of a resource live, `deployed` which kinds run an image, `yaml` writes. Not
//! here: the files themselves ([`crate::scaffold`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diagnostic::{Diagnostic, Place};
use crate::names;
use crate::plan::Files;
use crate::{codes, names::rust};

mod check;
mod deployed;
mod layout;
mod manifest;
mod yaml;

pub(crate) use deployed::variable;
pub use deployed::{DEPLOY_IMAGE, DeployedImage};
pub use layout::Layout;
pub use manifest::default_run;

/// The name of the file.
pub const FILE: &str = "PROJECT";

/// The key under which kubewright's layout stands in `layout`.
pub const LAYOUT: &str = "rust.kubewright.dev/v1-alpha";

/// The key of a project whose kinds are Helm charts: operator-sdk's.
pub const CHARTS_LAYOUT: &str = "helm.sdk.operatorframework.io/v1";

/// The layout of projects whose kinds are Ansible roles, as operator-sdk names it.
pub const ANSIBLE_LAYOUT: &str = "ansible.sdk.operatorframework.io/v1";

const HEADER: &str = "# Kept by kubewright: which kinds, controllers and webhooks this project has.\n\
                      # Change it with the command (kubewright create, edit, delete); the form is kubebuilder's PROJECT, version 3.\n";

/// A project, as its PROJECT file describes it.
///
/// ```
/// use kubewright_codegen::project::{Project, Resource};
/// let mut project = Project::new("guestbook", "my.domain");
/// project.resources.push(Resource::own("webapp", "my.domain", "v1", "Guestbook", true));
/// let text = project.to_text();
/// assert_eq!(Project::parse(&text).unwrap(), project);
/// assert_eq!(project.resources[0].api_version(), "webapp.my.domain/v1");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// The version of the command that made the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli_version: Option<String>,
    /// The domain that the project's groups belong to: `my.domain`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Where the source lives, as kubebuilder's `--repo` says it: `github.com/me/guestbook`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// The name of the project: prefix of all its objects, and of its namespace.
    #[serde(rename = "projectName")]
    pub name: String,
    /// The plugins that made the files.
    #[serde(with = "one_or_many")]
    pub layout: Vec<String>,
    /// Whether types live in `api/src/<group>/<version>`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub multigroup: bool,
    /// Whether the operator watches only its own namespaces, with Roles instead of ClusterRoles.
    #[serde(default, skip_serializing_if = "is_false")]
    pub namespaced: bool,
    /// The kinds that the project has to do with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// The memory of plugins, by their keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, Value>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
    /// The comment above everything else.
    #[serde(skip, default = "header")]
    header: String,
}

/// A kind that the project uses: its own, one of Kubernetes, or a foreign one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// The group without the domain; for Kubernetes' core group the word `core`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The domain of the group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural, when it is not the one that follows from the kind; see [`Resource::plural`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plural: Option<String>,
    /// The Rust path of the module with the type: `guestbook_api::v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Present when the type is the project's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<Api>,
    /// Whether it has the controller that is named after the kind; other forms stand in `controllers`. See
    /// [`Project::controller_names`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub controller: bool,
    /// Its controllers, when there are several or one with a name of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<Controller>,
    /// Its webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Webhooks>,
    /// Whether the type comes from another project.
    #[serde(default, skip_serializing_if = "is_false")]
    pub external: bool,
    /// The dependency that an external type comes from: `crate@version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Whether the type is built into Kubernetes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub core: bool,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
}

/// The facts about a type of the project's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Api {
    /// The version of CustomResourceDefinition: `v1`.
    #[serde(default = "v1")]
    pub crd_version: String,
    /// Whether objects live in namespaces.
    #[serde(default, skip_serializing_if = "is_false")]
    pub namespaced: bool,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
}

/// A controller with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Controller {
    /// The name, as it stands in logs and metrics.
    pub name: String,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
}

/// The webhooks of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhooks {
    /// The version of the webhook configurations: `v1`.
    #[serde(default = "v1")]
    pub webhook_version: String,
    /// Whether there is a mutating webhook.
    #[serde(default, skip_serializing_if = "is_false")]
    pub defaulting: bool,
    /// Whether there is a validating webhook.
    #[serde(default, skip_serializing_if = "is_false")]
    pub validation: bool,
    /// Whether this version is the hub that others are converted through.
    #[serde(default, skip_serializing_if = "is_false")]
    pub conversion: bool,
    /// The versions that are converted to and from this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spoke: Vec<String>,
    /// The path of the mutating webhook, when it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaulting_path: Option<String>,
    /// The path of the validating webhook, when it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_path: Option<String>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
}

impl Default for Webhooks {
    fn default() -> Webhooks {
        Webhooks {
            webhook_version: v1(),
            defaulting: false,
            validation: false,
            conversion: false,
            spoke: Vec::new(),
            defaulting_path: None,
            validation_path: None,
            unknown: BTreeMap::new(),
        }
    }
}

fn v1() -> String {
    "v1".to_owned()
}

fn header() -> String {
    HEADER.to_owned()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// `layout` was one text in older files.
mod one_or_many {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }

    pub(super) fn serialize<S: Serializer>(layout: &[String], serializer: S) -> Result<S::Ok, S::Error> {
        layout.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
        Ok(match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(keys) => keys.split(',').map(|key| key.trim().to_owned()).collect(),
            OneOrMany::Many(keys) => keys,
        })
    }
}

impl Project {
    /// A project without resources.
    #[must_use]
    pub fn new(name: impl Into<String>, domain: impl Into<String>) -> Project {
        Project {
            cli_version: None,
            domain: domain.into(),
            repo: String::new(),
            name: name.into(),
            layout: vec![LAYOUT.to_owned()],
            multigroup: false,
            namespaced: false,
            resources: Vec::new(),
            plugins: BTreeMap::new(),
            unknown: BTreeMap::new(),
            header: header(),
        }
    }

    /// The project of these files, checked.
    ///
    /// # Errors
    /// When there is no PROJECT, or it cannot be used.
    pub fn load(files: &dyn Files) -> Result<Project, Diagnostic> {
        match files.read(FILE)? {
            Some(text) => {
                let project = Project::parse(&text)?;
                project.homeless().map_or(Ok(project), Err)
            }
            None => Err(Diagnostic::new(codes::project::NONE, "there is no project here")
                .because("this folder has no file named PROJECT")
                .fix("change into the folder of a project, or begin one: kubewright init --domain my.domain")),
        }
    }

    /// Reads a PROJECT file and checks it.
    ///
    /// # Errors
    /// When it is no YAML, has another version than 3 or another layout than kubewright's, or contradicts itself.
    pub fn parse(text: &str) -> Result<Project, Diagnostic> {
        let broken = |why: String| {
            Diagnostic::new(codes::project::BROKEN, "cannot read the project")
                .at(Place::file(FILE))
                .because(why)
                .fix("correct PROJECT, or restore it from version control")
        };
        let decoded = kubewright_schema::decode::yaml(text.as_bytes())
            .map_err(|why| crate::conflict::instead(broken(why.to_string()), FILE, text))?;
        if let Some(twice) = decoded.duplicates.first() {
            return Err(broken(twice.clone()));
        }
        if !check::is_one_document(text) {
            return Err(broken(
                "it has several YAML documents (a line `---`), and only the first is read".to_owned(),
            ));
        }
        let Value::Object(mut fields) = decoded.value else {
            return Err(broken("it is not a YAML mapping".to_owned()));
        };
        check::is_ours(&fields)?;
        fields.remove("version");
        let mut resources = Vec::new();
        if let Some(listed) = fields.remove("resources") {
            let listed: Vec<Value> =
                serde_json::from_value(listed).map_err(|why| broken(format!("resources: {why}")))?;
            for (at, resource) in listed.into_iter().enumerate() {
                resources
                    .push(serde_json::from_value(resource).map_err(|why| broken(format!("resources[{at}]: {why}")))?);
            }
        }
        let mut project: Project =
            serde_json::from_value(Value::Object(fields)).map_err(|why| broken(why.to_string()))?;
        project.resources = resources;
        let comment: String = text
            .split_inclusive('\n')
            .take_while(|line| line.starts_with('#'))
            .collect();
        project.header = comment;
        match project.check().into_iter().next() {
            Some(wrong) => Err(wrong),
            None => Ok(project),
        }
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut value = serde_json::to_value(self).expect("texts, lists and maps are JSON");
        value["version"] = "3".into();
        format!("{}{}", self.header, yaml::print(&value))
    }

    /// The namespace that the operator is deployed to: `<name>-system`.
    #[must_use]
    pub fn namespace(&self) -> String {
        format!("{}-system", self.name)
    }

    /// The package of the operator, as cargo names it.
    #[must_use]
    pub fn package(&self) -> String {
        rust::package(&self.name)
    }

    /// The package with the types: `<name>-api`.
    #[must_use]
    pub fn api_package(&self) -> String {
        format!("{}-api", self.name)
    }

    /// The operator's crate in Rust paths.
    #[must_use]
    pub fn crate_name(&self) -> String {
        rust::crate_name(&self.package())
    }

    /// The crate with the types in Rust paths: `<name>_api`.
    #[must_use]
    pub fn api_crate(&self) -> String {
        rust::crate_name(&self.api_package())
    }

    /// The resource of a group (with its domain, as in `apiVersion`), version and kind.
    #[must_use]
    pub fn find(&self, full_group: &str, version: &str, kind: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|resource| resource.is(full_group, version, kind))
    }

    /// The same, to be changed.
    pub fn find_mut(&mut self, full_group: &str, version: &str, kind: &str) -> Option<&mut Resource> {
        self.resources
            .iter_mut()
            .find(|resource| resource.is(full_group, version, kind))
    }

    /// The resources whose types are the project's own, in the order of the file.
    pub fn apis(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|resource| resource.api.is_some())
    }

    /// Whether there is an admission webhook (which `config/webhook/manifests.yaml` is written for).
    #[must_use]
    pub fn has_admission_webhooks(&self) -> bool {
        self.resources
            .iter()
            .filter_map(|resource| resource.webhooks.as_ref())
            .any(|webhooks| webhooks.defaulting || webhooks.validation)
    }

    /// Whether there is any webhook, conversion included: whether a webhook server runs.
    #[must_use]
    pub fn has_webhooks(&self) -> bool {
        self.resources
            .iter()
            .filter_map(|resource| resource.webhooks.as_ref())
            .any(Webhooks::any)
    }

    /// The usual name of the controller of a kind: the kind in lower case, with its group before it in a project of
    /// several groups.
    #[must_use]
    pub fn default_controller_name(&self, resource: &Resource) -> String {
        let kind = resource.kind.to_lowercase();
        if self.multigroup && !resource.group.is_empty() {
            format!("{}-{kind}", resource.group.replace('.', "-"))
        } else {
            kind
        }
    }

    /// The names of the controllers of a kind, in the order of the file.
    #[must_use]
    pub fn controller_names(&self, resource: &Resource) -> Vec<String> {
        let default = resource.controller.then(|| self.default_controller_name(resource));
        let named = resource.controllers.iter().map(|controller| controller.name.clone());
        default.into_iter().chain(named).collect()
    }
}

impl Resource {
    /// A kind of the project's own.
    #[must_use]
    pub fn own(group: &str, domain: &str, version: &str, kind: &str, namespaced: bool) -> Resource {
        Resource {
            group: group.to_owned(),
            domain: domain.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            api: Some(Api {
                crd_version: v1(),
                namespaced,
                unknown: BTreeMap::new(),
            }),
            ..Resource::default()
        }
    }

    /// The group as it stands in `apiVersion`: with its domain; empty for the core group.
    #[must_use]
    pub fn full_group(&self) -> String {
        if self.core && self.group == "core" {
            return String::new();
        }
        names::full_group(&self.group, &self.domain)
    }

    /// Group and version as they stand in an object: `webapp.my.domain/v1`, `v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.full_group().as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The name of the resource in URLs.
    #[must_use]
    pub fn plural(&self) -> String {
        self.plural.clone().unwrap_or_else(|| names::plural(&self.kind))
    }

    /// Whether it is this kind; the group is meant with its domain.
    #[must_use]
    pub fn is(&self, full_group: &str, version: &str, kind: &str) -> bool {
        self.version == version && self.kind == kind && self.full_group() == full_group
    }

    /// Whether the other is a version of the same kind.
    #[must_use]
    pub fn same_kind(&self, other: &Resource) -> bool {
        self.kind == other.kind && self.full_group() == other.full_group()
    }

    /// Why not both kinds can be, when one of a group has a name of the other's: no API server accepts the second one.
    #[must_use]
    pub fn shares_a_name_with(&self, other: &Resource) -> Option<String> {
        if self.kind == other.kind || self.full_group() != other.full_group() {
            return None;
        }
        let (plural, singular) = (self.plural(), self.kind.to_lowercase());
        let names = [other.plural(), other.kind.to_lowercase()];
        if names.contains(&plural) {
            return Some(format!("{} has the plural {plural} already", self.title()));
        }
        if names.contains(&singular) {
            return Some(format!("{} has the singular {singular} already", self.title()));
        }
        let is_list = |list: &str, kind: &str| list.strip_suffix("List") == Some(kind);
        (is_list(&other.kind, &self.kind) || is_list(&self.kind, &other.kind)).then(|| {
            format!(
                "the list of one of {} and {} is called as the other",
                self.title(),
                other.title()
            )
        })
    }

    /// Whether it has a controller.
    #[must_use]
    pub fn has_controller(&self) -> bool {
        self.controller || !self.controllers.is_empty()
    }

    /// Whether its objects live in namespaces, as far as PROJECT says it (it does so for the project's own).
    #[must_use]
    pub fn is_namespaced(&self) -> bool {
        self.api.as_ref().is_some_and(|api| api.namespaced)
    }

    /// Its name in messages: `webapp.my.domain/v1 Guestbook`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.api_version(), self.kind)
    }
}

impl Webhooks {
    /// Whether there is one at all.
    #[must_use]
    pub fn any(&self) -> bool {
        self.defaulting || self.validation || self.conversion
    }
}

/// The usual path of a webhook: `/mutate-webapp-my-domain-v1-guestbook` (with `validate` for the other kind of
/// webhook).
///
/// ```
/// use kubewright_codegen::project::webhook_path;
/// assert_eq!(webhook_path("mutate", "", "v1", "Pod"), "/mutate--v1-pod");
/// ```
#[must_use]
pub fn webhook_path(verb: &str, full_group: &str, version: &str, kind: &str) -> String {
    format!(
        "/{verb}-{}-{version}-{}",
        full_group.replace('.', "-"),
        kind.to_lowercase()
    )
}

#[cfg(test)]
mod tests;
