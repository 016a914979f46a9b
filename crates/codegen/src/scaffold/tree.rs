//! The modules and registrations of a resource: what stands where, so that `create` writes it and `delete` finds it again.

use minijinja::context;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::names::{self, rust};
use crate::plan::Files;
use crate::project::{Project, Resource};
use crate::source::{Source, layout_chain};

use super::Change;
use super::render::{article, reexport, render, signature};
use super::subject::{TypePath, has_stub, type_path};

/// The file with `fn operator()`.
pub(super) const LIB: &str = "src/lib.rs";
/// The file of the crate with the types.
pub(super) const API_LIB: &str = "api/src/lib.rs";

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

/// Words for templates about a resource.
pub(super) struct Words<'r> {
    pub(super) project: &'r Project,
    pub(super) resource: &'r Resource,
    pub(super) types: TypePath,
    pub(super) header: &'r str,
}

impl<'r> Words<'r> {
    pub(super) fn of(project: &'r Project, resource: &'r Resource, header: &'r str) -> Words<'r> {
        Words {
            types: type_path(project, resource),
            project,
            resource,
            header,
        }
    }

    /// The variable that holds an object.
    fn var(&self) -> String {
        let stem = rust::module(&self.resource.kind);
        match stem.as_str() {
            "ctx" | "old" | "new" | "request" | "cluster" | "action" | "errors" | "wanted" => "object".to_owned(),
            _ => stem,
        }
    }

    fn plural_var(&self) -> String {
        let plural = rust::module(&self.resource.plural());
        if plural == self.var() {
            format!("all_{plural}")
        } else {
            plural
        }
    }

    fn is_stub(&self) -> bool {
        has_stub(self.project, self.resource)
    }

    fn is_foreign_crate(&self) -> bool {
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

    /// The types of an own kind, or the stand-in for a kind of another project. `storage`: whether this version is the stored one.
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
                type => rust::kind(&self.resource.kind),
                plural => self.resource.plural(),
                derived_plural => kube_plural(&rust::kind(&self.resource.kind)),
                // Most kinds are; of another project's kind PROJECT does not say it.
                namespaced => self.resource.external || self.resource.is_namespaced(),
                storage,
            },
        )
    }

    pub(super) fn types_line(&self) -> String {
        let ty = rust::kind(&self.resource.kind);
        let module = format!("{}_types", rust::part(&self.resource.kind));
        reexport(&module, &[ty.clone(), format!("{ty}Spec"), format!("{ty}Status")])
    }

    /// A controller's reconciler type.
    fn reconciler(&self, controller: &ControllerFile) -> String {
        match &controller.file_name {
            Some(name) => format!("{}Reconciler", rust::camel(name)),
            None => format!("{}Reconciler", self.resource.kind),
        }
    }

    pub(super) fn controller_text(&self, controller: &ControllerFile) -> String {
        let reconciler = self.reconciler(controller);
        let default = self.resource.kind.to_lowercase();
        let named = (controller.name != default).then(|| format!(".named({:?})", controller.name));
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
                    named.as_slice(),
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
        let mut uses = vec![format!("{module}::{}", self.reconciler(controller))];
        uses.extend(self.types.import.clone());
        sort_uses(&mut uses);
        let own = self.resource.api.is_some();
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
        (self.test_file(&format!("{stem}_controller")), text)
    }

    /// `tests/guestbook_controller.rs`; with the group before it in a project of several groups.
    pub(super) fn test_file(&self, stem: &str) -> String {
        format!("tests/{}.rs", self.test_name(stem))
    }

    fn test_name(&self, stem: &str) -> String {
        let layout = self.project.layout(self.resource);
        let group = layout
            .controller_modules
            .iter()
            .map(|group| format!("{}_", group.trim_end_matches('_')));
        group.collect::<String>() + stem
    }

    fn webhook_items(&self) -> Vec<(&'static str, String)> {
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        let mut items = Vec::new();
        if webhooks.defaulting {
            items.push(("Defaulter", self.defaulter()));
        }
        if webhooks.validation {
            items.push(("Validator", self.validator()));
        }
        items
    }

    /// The type that sets defaults, with its implementation.
    pub(super) fn defaulter(&self) -> String {
        let arguments = [
            "&self".to_owned(),
            format!("{}: &mut {}", self.var(), self.types.path),
            "_: &AdmissionRequest".to_owned(),
        ];
        self.item(
            "rust/defaulter.rs",
            context! { signature => signature("async fn default", &arguments, "Result<(), Denied>") },
        )
    }

    /// The type that validates, with its implementation.
    pub(super) fn validator(&self) -> String {
        let object = format!("{}: &{}", self.var(), self.types.path);
        let create = ["&self".to_owned(), object.clone(), "_: &AdmissionRequest".to_owned()];
        let update = [
            "&self".to_owned(),
            format!("_: &{}", self.types.path),
            object,
            "request: &AdmissionRequest".to_owned(),
        ];
        self.item(
            "rust/validator.rs",
            context! {
                create => signature("async fn create", &create, "Result<(), Denied>"),
                update => signature("async fn update", &update, "Result<(), Denied>"),
            },
        )
    }

    fn item(&self, template: &str, more: minijinja::Value) -> String {
        let text = render(
            template,
            context! {
                kind => self.resource.kind,
                type => self.resource.kind,
                plural => self.resource.plural(),
                article => article(&self.resource.kind),
                Article => if article(&self.resource.kind) == "an" { "An" } else { "A" },
                own => self.resource.api.is_some(),
                external => self.is_stub(),
                path => self.types.path,
                var => self.var(),
                crate => self.project.crate_name(),
                ..more
            },
        );
        text.trim_end().to_owned()
    }

    /// The calls of `fn webhook()`.
    pub(super) fn webhook_calls(&self) -> Vec<String> {
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        let kind = &self.resource.kind;
        let mut calls = Vec::new();
        if webhooks.defaulting {
            calls.push(format!("defaulter({kind}Defaulter)"));
            calls.extend(
                webhooks
                    .defaulting_path
                    .map(|path| format!("mutating(|webhook| webhook.path({path:?}))")),
            );
        }
        if webhooks.validation {
            calls.push(format!("validator({kind}Validator)"));
            calls.extend(
                webhooks
                    .validation_path
                    .map(|path| format!("validating(|webhook| webhook.path({path:?}))")),
            );
        }
        calls
    }

    /// `fn webhook()`.
    pub(super) fn webhook_function(&self) -> String {
        let calls: Vec<String> = self.webhook_calls().iter().map(|call| format!(".{call}")).collect();
        format!(
            "/// The webhooks of {}, and what the API server is told about them.\npub fn webhook() -> Webhook<{path}> {{\n    {}\n}}",
            self.resource.plural(),
            layout_chain(&format!("Webhook::of::<{}>()", self.types.path), &calls, "    "),
            path = self.types.path,
        )
    }

    /// `fn conversion()`.
    pub(super) fn conversion_function(&self) -> String {
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        let spokes: Vec<String> = webhooks
            .spoke
            .iter()
            .map(|spoke| format!(".{}", self.spoke_call(spoke)))
            .collect();
        format!(
            "/// The versions of {}: each is converted through `{}`.\npub fn conversion() -> Conversion<{path}> {{\n    {}\n}}",
            self.resource.plural(),
            self.resource.version,
            layout_chain(&format!("Conversion::hub::<{}>()", self.types.path), &spokes, "    "),
            path = self.types.path,
        )
    }

    pub(super) fn spoke_call(&self, version: &str) -> String {
        format!("spoke::<{}>()", type_path(self.project, &self.version(version)).whole)
    }

    /// The same kind in another version.
    pub(super) fn version(&self, version: &str) -> Resource {
        Resource {
            version: version.to_owned(),
            path: None,
            ..self.resource.clone()
        }
    }

    /// The whole file of webhooks, as one command writes it.
    pub(super) fn webhook_text(&self) -> String {
        let mut items: Vec<String> = self.webhook_items().into_iter().map(|(_, item)| item).collect();
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        if webhooks.defaulting || webhooks.validation {
            items.push(self.webhook_function());
        }
        if webhooks.conversion {
            items.push(self.conversion_function());
        }
        render(
            "rust/webhook.rs",
            context! {
                header => self.header,
                kind => self.resource.kind,
                article => article(&self.resource.kind),
                use => self.types.import,
                items,
            },
        )
    }

    /// The tests of the webhooks: file, and text. None when there are only conversions.
    pub(super) fn webhook_test(&self) -> Option<(String, String)> {
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        if !(webhooks.defaulting || webhooks.validation) {
            return None;
        }
        let layout = self.project.layout(self.resource);
        let file = self.test_file(&layout.webhook_module());
        if self.is_foreign_crate() {
            let paths: Vec<String> = self.webhook_paths();
            let context = context! { header => self.header, kind => self.resource.kind, crate => self.project.crate_name(), paths };
            return Some((file, render("rust/webhook_registered_test.rs", context)));
        }
        let items: Vec<String> = self.webhook_test_items().into_iter().map(|(_, item)| item).collect();
        let module = path(
            &self.project.crate_name(),
            &[&["webhook".to_owned()][..], &layout.webhook_modules].concat(),
            &layout.webhook_module(),
        );
        let mut uses = vec![format!("{module}::*")];
        uses.extend(self.types.import.clone());
        sort_uses(&mut uses);
        let context = context! { header => self.header, kind => self.resource.kind, uses, items };
        Some((file, render("rust/webhook_test.rs", context)))
    }

    /// The functions of the tests of the webhooks, with their names, in order.
    pub(super) fn webhook_test_items(&self) -> Vec<(&'static str, String)> {
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        let mut items = vec![("sample", self.item("rust/sample_fn.rs", context! {}))];
        if webhooks.defaulting {
            items.push((
                "defaults_are_set_once",
                self.item("rust/defaulter_test.rs", context! {}),
            ));
        }
        if webhooks.validation {
            items.push((
                "what_is_right_is_taken",
                self.item("rust/validator_test.rs", context! {}),
            ));
        }
        items
    }

    fn webhook_paths(&self) -> Vec<String> {
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        let usual = |verb: &str| {
            crate::project::webhook_path(
                verb,
                &self.resource.full_group(),
                &self.resource.version,
                &self.resource.kind,
            )
        };
        let mutating = webhooks
            .defaulting
            .then(|| webhooks.defaulting_path.unwrap_or_else(|| usual("mutate")));
        let validating = webhooks
            .validation
            .then(|| webhooks.validation_path.unwrap_or_else(|| usual("validate")));
        mutating.into_iter().chain(validating).collect()
    }

    /// `guestbook_v2_conversion`.
    pub(super) fn conversion_stem(stem: &str, spoke: &str) -> String {
        format!("{stem}_{}_conversion", rust::part(spoke))
    }

    /// The test and the conversion between this version, the hub, and a spoke: (test file, its text, conversion file, its text).
    pub(super) fn conversion(&self, spoke: &Resource) -> [(String, String); 2] {
        let side = |resource: &Resource| {
            let layout = self.project.layout(resource);
            let module = layout.api_modules.join("::");
            let last = layout.api_modules.last().cloned().unwrap_or_default();
            context! { version => resource.version, module, type => format!("{last}::{}", rust::kind(&resource.kind)) }
        };
        let layout = self.project.layout(spoke);
        let test = self.test_name(&Words::conversion_stem(&layout.stem, &spoke.version));
        let uses = |krate: &str| {
            let mut uses: Vec<String> = [self.resource, spoke]
                .iter()
                .map(|resource| format!("{krate}::{}", self.project.layout(resource).api_modules.join("::")))
                .collect();
            sort_uses(&mut uses);
            uses
        };
        let words = |krate: &str| {
            context! {
                header => self.header,
                kind => self.resource.kind,
                hub => side(self.resource),
                spoke => side(spoke),
                uses => uses(krate),
                test,
            }
        };
        [
            (layout.conversion_file(), render("rust/conversion.rs", words("crate"))),
            (
                format!("tests/{test}.rs"),
                render("rust/conversion_test.rs", words(&self.project.api_crate())),
            ),
        ]
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
fn sort_uses(uses: &mut [String]) {
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

fn path(krate: &str, modules: &[String], last: &str) -> String {
    let mut path = krate.to_owned();
    for module in modules.iter().map(String::as_str).chain([last]) {
        path.push_str("::");
        path.push_str(module);
    }
    path
}

/// What a line in a new `mod.rs` says it is about.
pub(super) enum About<'w> {
    /// A folder of controllers, webhooks, groups: in words.
    Words(String),
    /// A version of the API.
    Version(&'w Words<'w>),
}

impl Change<'_> {
    /// A Rust file to be edited.
    pub(super) fn source(&self, path: &str) -> Result<Source, Diagnostic> {
        match self.plan.read(path)? {
            Some(text) => Source::parse(path, &text),
            None => Err(Diagnostic::new(codes::files::EDITED, format!("cannot edit {path}"))
                .at(Place::file(path))
                .because("the file is not there")
                .fix("restore it (git checkout), or put what it held back; nothing was written")),
        }
    }

    /// Edits a Rust file.
    pub(super) fn edit(
        &mut self,
        path: &str,
        edit: impl FnOnce(&mut Source) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let mut source = self.source(path)?;
        edit(&mut source)?;
        self.plan.write(path, source.into_text())
    }

    /// Makes the modules below a file exist, each with a `mod.rs`, and declares `last` in the innermost. `root` is `src/lib.rs` or
    /// `api/src/lib.rs`; `modules` begins at its folder.
    pub(super) fn declare(
        &mut self,
        root: &str,
        modules: &[(String, About<'_>)],
        last: &str,
    ) -> Result<(), Diagnostic> {
        let mut file = root.to_owned();
        let mut folder = root.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        for (module, about) in modules {
            self.edit(&file, |source| {
                source.add_module(module);
                Ok(())
            })?;
            folder = format!("{folder}/{module}");
            file = format!("{folder}/mod.rs");
            let text = match about {
                About::Words(about) => render("rust/mod.rs", context! { header => self.header, about }),
                About::Version(words) => words.version_text(),
            };
            self.create_if_missing(&file, text)?;
        }
        self.edit(&file, |source| {
            source.add_module(last);
            Ok(())
        })
    }

    /// The same for modules that move: a new folder below the first is one of a group.
    pub(super) fn declare_words(&mut self, root: &str, modules: &[String], last: &str) -> Result<(), Diagnostic> {
        let groups: Vec<(String, String)> = self
            .project
            .resources
            .iter()
            .flat_map(|resource| {
                let modules = self.project.layout(resource).controller_modules;
                modules.into_iter().map(|module| (module, group_title(resource)))
            })
            .collect();
        let about = |module: &String| {
            let group = groups.iter().find(|(known, _)| known == module);
            match group {
                Some((_, title)) => format!("The group `{title}`."),
                None if root == LIB && modules.len() > 1 => format!("Webhooks for kinds of version `{module}`."),
                None => format!("Kinds of version `{module}`."),
            }
        };
        let modules: Vec<(String, About<'_>)> = modules
            .iter()
            .map(|module| (module.clone(), About::Words(about(module))))
            .collect();
        self.declare(root, &modules, last)
    }

    /// Takes the declaration of a module out of the innermost `mod.rs`, and every `mod.rs` that declares nothing any more with it.
    pub(super) fn undeclare(&mut self, root: &str, modules: &[String], last: &str) -> Result<(), Diagnostic> {
        let base = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut gone = last.to_owned();
        for depth in (0..=modules.len()).rev() {
            let folder = modules[..depth]
                .iter()
                .fold(base.to_owned(), |folder, module| folder + "/" + module);
            let file = if depth == 0 {
                root.to_owned()
            } else {
                format!("{folder}/mod.rs")
            };
            if self.plan.read(&file)?.is_none() {
                return Ok(());
            }
            let mut source = self.source(&file)?;
            source.remove_module(&gone);
            source.remove_reexport(&gone);
            let others = self.plan.list(&folder)?.into_iter().any(|path| path != file);
            let empty = source.modules().next().is_none() && !others;
            if depth > 0 && empty {
                self.plan.remove(&file)?;
                gone.clone_from(&modules[depth - 1]);
                continue;
            }
            return self.plan.write(&file, source.into_text());
        }
        Ok(())
    }

    /// Writes the types of a resource and registers them.
    pub(super) fn write_types(&mut self, resource: &Resource, storage: bool) -> Result<(), Diagnostic> {
        let (project, header) = (self.project.clone(), self.header.clone());
        let words = Words::of(&project, resource, &header);
        let layout = project.layout(resource);
        self.create(&layout.types_file(), words.types_text(storage))?;
        let last = layout.api_modules.len() - 1;
        let modules: Vec<(String, About<'_>)> = layout
            .api_modules
            .iter()
            .enumerate()
            .map(|(at, module)| {
                let about = if at == last {
                    About::Version(&words)
                } else if module == "external" && at == 0 {
                    About::Words("Kinds of other projects, as far as this one needs them.".to_owned())
                } else {
                    About::Words(format!("The group `{}`.", resource.full_group()))
                };
                (module.clone(), about)
            })
            .collect();
        let stem = format!("{}_types", layout.stem);
        self.declare(API_LIB, &modules, &stem)?;
        let line = words.types_line();
        self.edit(&format!("{}/mod.rs", layout.api_folder()), |source| {
            source.add_reexport(&stem, &line);
            Ok(())
        })?;
        if resource.api.is_some() {
            let call = format!("crd::<{}>()", words.types.whole);
            self.edit(LIB, |source| source.append_call("operator", &call))?;
        }
        Ok(())
    }

    /// Writes a controller with its test and registers it.
    pub(super) fn write_controller(
        &mut self,
        resource: &Resource,
        controller: &ControllerFile,
    ) -> Result<(), Diagnostic> {
        let (project, header) = (self.project.clone(), self.header.clone());
        let words = Words::of(&project, resource, &header);
        let layout = project.layout(resource);
        let file_name = controller.file_name.as_deref();
        self.create(&layout.controller_file(file_name), words.controller_text(controller))?;
        let (test, text) = words.controller_test(controller);
        self.create(&test, text)?;
        let mut modules = vec![(
            "controller".to_owned(),
            About::Words("The controllers: what happens to objects.".to_owned()),
        )];
        modules.extend(layout.controller_modules.iter().map(|group| {
            let about = format!("Controllers for the group `{}`.", group_title(resource));
            (group.clone(), About::Words(about))
        }));
        let module = layout.controller_module(file_name);
        self.declare(LIB, &modules, &module)?;
        let call = format!(
            "controller({}::controller())",
            path("controller", &layout.controller_modules, &module)
        );
        self.edit(LIB, |source| source.append_call("operator", &call))
    }

    /// The registrations of webhooks in `fn operator()`.
    pub(super) fn webhook_call(&self, resource: &Resource, function: &str) -> String {
        let layout = self.project.layout(resource);
        let module = path("webhook", &layout.webhook_modules, &layout.webhook_module());
        format!("{function}({module}::{function}())")
    }

    /// Declares the module of a resource's webhooks.
    pub(super) fn declare_webhook(&mut self, resource: &Resource) -> Result<(), Diagnostic> {
        let layout = self.project.layout(resource);
        let mut modules = vec![(
            "webhook".to_owned(),
            About::Words("The webhooks: what is filled in, refused and converted.".to_owned()),
        )];
        let last = layout.webhook_modules.len() - 1;
        modules.extend(layout.webhook_modules.iter().enumerate().map(|(at, module)| {
            let about = if at == last {
                format!("Webhooks for kinds of version `{}`.", resource.version)
            } else {
                format!("Webhooks for the group `{}`.", group_title(resource))
            };
            (module.clone(), About::Words(about))
        }));
        self.declare(LIB, &modules, &layout.webhook_module())
    }
}

fn group_title(resource: &Resource) -> String {
    match resource.full_group() {
        core if core.is_empty() => "core".to_owned(),
        group => group,
    }
}

/// The plural's check: whether it is already used for another kind of the group.
pub(super) fn plural_is_taken<'p>(project: &'p Project, resource: &Resource) -> Option<&'p Resource> {
    project.apis().find(|other| {
        other.full_group() == resource.full_group()
            && other.kind != resource.kind
            && other.plural() == resource.plural()
    })
}

/// The Rust types that a kind makes, which must not meet another kind's in the same module.
pub(super) fn types_meet<'p>(project: &'p Project, resource: &Resource) -> Option<&'p Resource> {
    let types = |kind: &str| {
        let name = rust::kind(kind);
        ["", "Spec", "Status"].map(|part| format!("{name}{part}"))
    };
    let mine = types(&resource.kind);
    let folder = project.layout(resource).api_folder();
    project.apis().find(|other| {
        let same_place = project.layout(other).api_folder() == folder;
        let meets = types(&other.kind).iter().any(|name| mine.contains(name));
        let same_file = rust::part(&other.kind) == rust::part(&resource.kind);
        same_place && other.kind != resource.kind && (meets || same_file)
    })
}

/// Whether two groups would become one module.
pub(super) fn groups_meet<'p>(project: &'p Project, resource: &Resource) -> Option<&'p Resource> {
    let modules = |resource: &Resource| project.layout(resource).api_modules;
    project.resources.iter().find(|other| {
        other.full_group() != resource.full_group()
            && modules(other) == modules(resource)
            && (project.multigroup || other.external)
    })
}

/// The plural that follows from the kind, in words of PROJECT: only another one is written there.
pub(super) fn irregular(kind: &str, plural: &str) -> Option<String> {
    (names::plural(kind) != plural).then(|| plural.to_owned())
}
