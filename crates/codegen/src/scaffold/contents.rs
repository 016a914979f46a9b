//! The contents of the files of a resource: its types and its controller, as context for templates.
//!
//! Not here: webhooks and conversions (`webhook_contents.rs`), and the places and registrations of the files (`tree.rs`).

use minijinja::context;

use crate::names::rust;
use crate::project::{Project, Resource};
use crate::source::layout_chain;

use super::render::{article, reexport, render, signature};
use super::subject::{TypePath, has_stub, type_path};

/// A controller of a resource: its name, and the name that its file has when it is not named after the kind.
pub(super) struct ControllerFile {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
}

/// The controllers of a resource with their files.
pub(super) fn controllers(project: &Project, resource: &Resource) -> Vec<ControllerFile> {
    let default = project.default_controller_name(resource);
    let names = project.controller_names(resource).into_iter();
    names
        .map(|name| ControllerFile {
            file_name: (name != default).then(|| name.clone()),
            name,
        })
        .collect()
}

/// What the templates of a resource are filled with.
pub(super) struct Contents<'r> {
    pub(super) project: &'r Project,
    pub(super) resource: &'r Resource,
    pub(super) types: TypePath,
    pub(super) header: &'r str,
}

impl<'r> Contents<'r> {
    pub(super) fn of(project: &'r Project, resource: &'r Resource, header: &'r str) -> Contents<'r> {
        Contents {
            types: type_path(project, resource),
            project,
            resource,
            header,
        }
    }

    /// The variable that holds an object.
    pub(super) fn var(&self) -> String {
        let stem = rust::module(&self.resource.kind);
        match stem.as_str() {
            "ctx" | "old" | "new" | "request" | "cluster" | "action" | "errors" | "wanted" => "object".to_owned(),
            _ => stem,
        }
    }

    pub(super) fn plural_var(&self) -> String {
        let plural = rust::module(&self.resource.plural());
        if plural == self.var() {
            format!("all_{plural}")
        } else {
            plural
        }
    }

    pub(super) fn is_stub(&self) -> bool {
        has_stub(self.project, self.resource)
    }

    pub(super) fn is_foreign_crate(&self) -> bool {
        self.resource.external && !self.is_stub()
    }

    /// `api/src/v1/mod.rs`.
    pub(super) fn version_text(&self) -> String {
        render(
            "rust/version.rs",
            context! {
                header => self.header,
                api_version => self.resource.api_version(),
                full_group => self.resource.full_group(),
                version => self.resource.version,
            },
        )
    }

    /// The types of an own kind, or the stand-in for a kind of another project. `storage`: whether this version is the
    /// stored one.
    pub(super) fn types_text(&self, storage: bool) -> String {
        let template = if self.resource.external {
            "rust/external_types.rs"
        } else {
            "rust/types.rs"
        };
        render(
            template,
            context! {
                header => self.header,
                full_group => self.resource.full_group(),
                api_version => self.resource.api_version(),
                version => self.resource.version,
                kind => self.resource.kind,
                article => article(&self.resource.kind),
                // kubebuilder's plugin deploy-image has this condition.
                condition => if self.image().is_some() { "Available" } else { "Ready" },
                type => rust::kind(&self.resource.kind),
                plural => self.resource.plural(),
                derived_plural => kube_plural(&rust::kind(&self.resource.kind)),
                // Most kinds are; of another project's kind PROJECT does not say it.
                namespaced => self.resource.external || self.resource.is_namespaced(),
                storage,
                deploys => self.image().is_some(),
                port => self.image().and_then(|image| image.container_port),
            },
        )
    }

    pub(super) fn types_line(&self) -> String {
        let ty = rust::kind(&self.resource.kind);
        let module = format!("{}_types", rust::part(&self.resource.kind));
        reexport(&module, &[ty.clone(), format!("{ty}Spec"), format!("{ty}Status")])
    }

    /// A controller's reconciler type.
    pub(super) fn reconciler(&self, controller: &ControllerFile) -> String {
        match &controller.file_name {
            Some(name) => format!("{}Reconciler", rust::camel(name)),
            None => format!("{}Reconciler", self.resource.kind),
        }
    }

    pub(super) fn controller_text(&self, controller: &ControllerFile) -> String {
        if let Some(image) = self.runs_image(controller) {
            return self.image_controller_text(controller, &image);
        }
        let reconciler = self.reconciler(controller);
        let default = self.resource.kind.to_lowercase();
        let named = (controller.name != default).then(|| format!(".named({:?})", controller.name));
        // Its own status writes are no reason to reconcile again.
        let predicate = format!(".with_predicate::<{}>(predicate::generation_changed)", self.types.path);
        let predicate = self.resource.api.is_some().then_some(predicate);
        let calls: Vec<String> = named.into_iter().chain(predicate).collect();
        let arguments = [
            "&self".to_owned(),
            format!("{}: Arc<{}>", self.var(), self.types.path),
            "ctx: Context".to_owned(),
        ];
        render(
            "rust/controller.rs",
            context! {
                header => self.header,
                name => controller.name,
                kind => self.resource.kind,
                plural => self.resource.plural(),
                article => article(&self.resource.kind),
                use => self.types.import,
                path => self.types.path,
                own => self.resource.api.is_some(),
                var => self.var(),
                signature => signature("async fn reconcile", &arguments, "Result<Action>"),
                chain => layout_chain(
                    &format!("Controller::of({reconciler})"),
                    &calls,
                    "    ",
                ),
                reconciler,
            },
        )
    }

    pub(super) fn controller_test(&self, controller: &ControllerFile) -> (String, String) {
        let layout = self.project.layout(self.resource);
        let module = path(
            &self.project.crate_name(),
            &[&["controller".to_owned()][..], &layout.controller_modules].concat(),
            &layout.controller_module(controller.file_name.as_deref()),
        );
        let stem = match &controller.file_name {
            Some(name) => rust::part(name),
            None => rust::part(&self.resource.kind),
        };
        let own = self.resource.api.is_some();
        // Own kinds are tested through the operator, so that the test holds for any reconciler.
        let mut uses: Vec<String> = if own {
            Vec::new()
        } else {
            vec![format!("{module}::{}", self.reconciler(controller))]
        };
        uses.extend(self.types.import.clone());
        sort_uses(&mut uses);
        let file = self.test_file(&format!("{stem}_controller"));
        if let Some(image) = self.runs_image(controller) {
            return (file, self.image_controller_test(controller, &image));
        }
        let template = if self.is_foreign_crate() {
            "rust/registered_test.rs"
        } else {
            "rust/controller_test.rs"
        };
        let text = render(
            template,
            context! {
                header => self.header,
                name => controller.name,
                own,
                external => self.is_stub(),
                namespaced => self.resource.external || self.resource.is_namespaced(),
                stem => rust::part(&self.resource.kind),
                fn_article => article(&self.resource.kind),
                uses,
                crate => self.project.crate_name(),
                path => self.types.path,
                var => self.var(),
                plural_var => self.plural_var(),
                reconciler => self.reconciler(controller),
            },
        );
        (file, text)
    }

    /// `tests/it/guestbook_controller.rs`; with the group before it in a project of several groups.
    pub(super) fn test_file(&self, stem: &str) -> String {
        format!("tests/it/{}.rs", self.test_name(stem))
    }

    pub(super) fn test_name(&self, stem: &str) -> String {
        let layout = self.project.layout(self.resource);
        let group = layout
            .controller_modules
            .iter()
            .map(|group| format!("{}_", group.trim_end_matches('_')));
        group.collect::<String>() + stem
    }

    /// The same kind in another version.
    pub(super) fn version(&self, version: &str) -> Resource {
        Resource {
            version: version.to_owned(),
            path: None,
            ..self.resource.clone()
        }
    }
}

/// The plural that kube's derive guesses when nothing is said; ours is said unless both agree.
fn kube_plural(kind: &str) -> String {
    let word = kind.to_lowercase();
    // Only the simplest case is the same everywhere; everything else is said.
    if word.ends_with(['s', 'x', 'y', 'h', 'z', 'o', 'f', 'e', 'n', 'm', 'd']) {
        String::new()
    } else {
        word + "s"
    }
}

/// The order in which rustfmt keeps `use` lines.
pub(super) fn sort_uses(uses: &mut [String]) {
    uses.sort_by(|left, right| {
        let mut pairs = left.split("::").zip(right.split("::"));
        pairs
            .find_map(|(a, b)| {
                let order = names_first(a, b);
                (order != std::cmp::Ordering::Equal).then_some(order)
            })
            .unwrap_or_else(|| left.len().cmp(&right.len()))
    });
}

/// Lower-case names stand before types, and `*` last.
fn names_first(a: &str, b: &str) -> std::cmp::Ordering {
    let rank = |name: &str| match name.chars().next() {
        Some('*') => 2,
        Some(c) if c.is_ascii_uppercase() => 1,
        _ => 0,
    };
    rank(a).cmp(&rank(b)).then_with(|| crate::source::name_order(a, b))
}

pub(super) fn path(krate: &str, modules: &[String], last: &str) -> String {
    let mut path = krate.to_owned();
    for module in modules.iter().map(String::as_str).chain([last]) {
        path.push_str("::");
        path.push_str(module);
    }
    path
}
