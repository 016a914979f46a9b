//! Kinds whose controller runs an image: PROJECT's memory of the plugin deploy-image, in kubebuilder's form.
//!
//! The entry is a list of resources with their options, all of them texts. Invariant: unknown parts of an entry stay
//! there. Not here: the scaffold of such a kind ([`crate::scaffold`]), and the image in `config/manager`
//! ([`crate::config`]).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Project, Resource};
use crate::names;

/// The key under which PROJECT remembers the plugin; the same as kubebuilder's.
pub const DEPLOY_IMAGE: &str = "deploy-image.go.kubebuilder.io/v1-alpha";

/// The plugin's options for a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployedImage {
    /// The command of the container instead of the image's own: `memcached,--memory-limit=64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_command: Option<String>,
    /// The port that the container listens on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_port: Option<String>,
    /// The image.
    pub image: String,
    /// The user that the container runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<String>,
}

/// One entry of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Deployed {
    pub(crate) domain: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) options: DeployedImage,
}

impl Deployed {
    fn is_kind(&self, resource: &Resource) -> bool {
        self.kind == resource.kind && names::full_group(&self.group, &self.domain) == resource.full_group()
    }

    /// The variable in which the operator is told the image: `MEMSTORE_IMAGE`.
    pub(crate) fn variable(&self) -> String {
        variable(&self.kind)
    }
}

/// The variable of a kind.
pub(crate) fn variable(kind: &str) -> String {
    format!("{}_IMAGE", kind.to_uppercase())
}

impl Project {
    /// The kinds that the plugin deploy-image made, in the order of the file.
    pub(crate) fn deployed(&self) -> Vec<Deployed> {
        let entries = self.plugins.get(DEPLOY_IMAGE);
        let entries = entries.and_then(|plugin| plugin["resources"].as_array());
        let entries = entries.into_iter().flatten();
        entries
            .filter_map(|entry| serde_json::from_value(entry.clone()).ok())
            .filter(|there: &Deployed| !there.kind.is_empty())
            .collect()
    }

    /// The image that the controller of a kind runs. All versions of a kind have the fields that follow from it.
    #[must_use]
    pub fn deployed_image(&self, resource: &Resource) -> Option<DeployedImage> {
        let found = self.deployed().into_iter().find(|there| there.is_kind(resource));
        found.map(|there| there.options)
    }

    /// The same, only for the version that the plugin made with its controller.
    pub(crate) fn made_with_image(&self, resource: &Resource) -> Option<DeployedImage> {
        let is_it = |there: &Deployed| there.is_kind(resource) && there.version == resource.version;
        self.deployed().into_iter().find(is_it).map(|there| there.options)
    }

    /// Enters a kind, or replaces its entry.
    pub(crate) fn remember_image(&mut self, resource: &Resource, options: &DeployedImage) {
        self.forget_image(resource);
        let mut entry = json!({"domain": resource.domain});
        if !resource.group.is_empty() {
            entry["group"] = json!(resource.group);
        }
        entry["kind"] = json!(resource.kind);
        entry["options"] = json!(options);
        entry["version"] = json!(resource.version);
        let plugin = self.plugins.entry(DEPLOY_IMAGE.to_owned()).or_insert_with(|| json!({}));
        match plugin["resources"].as_array_mut() {
            Some(entries) => entries.push(entry),
            None => plugin["resources"] = json!([entry]),
        }
    }

    /// Takes a version of a kind out, and the plugin with the last one.
    fn forget_image(&mut self, resource: &Resource) {
        self.forget_images(|entry| entry.is_kind(resource) && entry.version == resource.version);
    }

    /// The same for a kind, once the project has no version of it any more: until then the fields of the others follow
    /// from the entry.
    pub(crate) fn forget_images_of_kind(&mut self, resource: &Resource) {
        if !self.apis().any(|other| other.same_kind(resource)) {
            self.forget_images(|entry| entry.is_kind(resource));
        }
    }

    fn forget_images(&mut self, gone: impl Fn(&Deployed) -> bool) {
        let Some(entries) = self
            .plugins
            .get_mut(DEPLOY_IMAGE)
            .and_then(|plugin| plugin.get_mut("resources"))
            .and_then(Value::as_array_mut)
        else {
            return;
        };
        entries.retain(|entry| {
            let entry: Deployed = serde_json::from_value(entry.clone()).unwrap_or_default();
            !gone(&entry)
        });
        if entries.is_empty() {
            self.plugins.remove(DEPLOY_IMAGE);
        }
    }

    /// The plugin's entries that cannot be read.
    pub(super) fn unreadable_images(&self) -> Vec<(usize, String)> {
        let entries = self.plugins.get(DEPLOY_IMAGE);
        let entries = entries.and_then(|plugin| plugin["resources"].as_array());
        let read = |entry: &Value| serde_json::from_value::<Deployed>(entry.clone()).err();
        let entries = entries.into_iter().flatten().enumerate();
        entries
            .filter_map(|(at, entry)| read(entry).map(|why| (at, why.to_string())))
            .collect()
    }
}
