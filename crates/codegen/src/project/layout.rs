//! Where the files of a resource live, and the names of its modules in Rust.
//!
//! One group: `api/src/v1`, `src/controller`, `src/webhook/v1`. Several: the group's folder comes before
//! (`api/src/crew/v1`, `src/controller/crew`, `src/webhook/crew/v1`). Types of other projects that have no crate live
//! in `api/src/external/<group>/<version>`.

use super::{Project, Resource};
use crate::names::rust;

/// The places of one resource in one project; see [`Project::layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The modules below the crate of the types: `["v1"]`, `["crew", "v1"]`.
    pub api_modules: Vec<String>,
    /// The modules below `controller`: none, or the group.
    pub controller_modules: Vec<String>,
    /// The modules below `webhook`: the version, in a project of several groups below the group.
    pub webhook_modules: Vec<String>,
    /// The kind in lower case, which the names of files begin with.
    pub stem: String,
}

impl Project {
    /// Where the files of a resource live.
    ///
    /// ```
    /// use kubewright_codegen::project::{Project, Resource};
    /// let mut project = Project::new("fleet", "fleet.example");
    /// let berth = Resource::own("dock.harbour", "fleet.example", "v1beta1", "Berth", true);
    /// assert_eq!(project.layout(&berth).types_file(), "api/src/v1beta1/berth_types.rs");
    /// project.multigroup = true;
    /// assert_eq!(project.layout(&berth).types_file(), "api/src/dock_harbour/v1beta1/berth_types.rs");
    /// ```
    #[must_use]
    pub fn layout(&self, resource: &Resource) -> Layout {
        let version = rust::module(&resource.version);
        let group = rust::module(match resource.group.as_str() {
            "" => resource.domain.as_str(),
            group => group,
        });
        let mut api_modules = Vec::new();
        if resource.external {
            api_modules.push("external".to_owned());
        }
        if self.multigroup || resource.external {
            api_modules.push(group.clone());
        }
        api_modules.push(version.clone());
        let grouped = |last: Option<String>| {
            let group = self.multigroup.then(|| group.clone());
            group.into_iter().chain(last).collect()
        };
        Layout {
            api_modules,
            controller_modules: grouped(None),
            webhook_modules: grouped(Some(version)),
            stem: rust::part(&resource.kind),
        }
    }
}

impl Layout {
    /// The folder of the types: `api/src/v1`.
    #[must_use]
    pub fn api_folder(&self) -> String {
        format!("api/src/{}", self.api_modules.join("/"))
    }

    /// The file of the types: `api/src/v1/guestbook_types.rs`.
    #[must_use]
    pub fn types_file(&self) -> String {
        format!("{}/{}_types.rs", self.api_folder(), self.stem)
    }

    /// The file of the conversion to and from the hub: `api/src/v2/guestbook_conversion.rs`.
    #[must_use]
    pub fn conversion_file(&self) -> String {
        format!("{}/{}_conversion.rs", self.api_folder(), self.stem)
    }

    /// The folder of controllers: `src/controller`.
    #[must_use]
    pub fn controller_folder(&self) -> String {
        folder("src/controller", &self.controller_modules)
    }

    /// The module of a controller: `guestbook_controller`. `name`: when it has one of its own.
    #[must_use]
    pub fn controller_module(&self, name: Option<&str>) -> String {
        match name {
            Some(name) => format!("{}_controller", rust::part(name)),
            None => format!("{}_controller", self.stem),
        }
    }

    /// The file of a controller: `src/controller/guestbook_controller.rs`.
    #[must_use]
    pub fn controller_file(&self, name: Option<&str>) -> String {
        format!("{}/{}.rs", self.controller_folder(), self.controller_module(name))
    }

    /// The folder of webhooks: `src/webhook/v1`.
    #[must_use]
    pub fn webhook_folder(&self) -> String {
        folder("src/webhook", &self.webhook_modules)
    }

    /// The module of the webhooks: `guestbook_webhook`.
    #[must_use]
    pub fn webhook_module(&self) -> String {
        format!("{}_webhook", self.stem)
    }

    /// The file of the webhooks: `src/webhook/v1/guestbook_webhook.rs`.
    #[must_use]
    pub fn webhook_file(&self) -> String {
        format!("{}/{}.rs", self.webhook_folder(), self.webhook_module())
    }
}

fn folder(root: &str, modules: &[String]) -> String {
    let mut folder = root.to_owned();
    for module in modules {
        folder.push('/');
        folder.push_str(module);
    }
    folder
}
