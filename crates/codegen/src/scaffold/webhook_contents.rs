//! The contents of the files of webhooks and conversions: their types, their tests, and their place in `fn operator()`.

use minijinja::context;

use crate::diagnostic::Diagnostic;
use crate::names::rust;
use crate::plan::Files;
use crate::project::{Project, Resource, webhook_path};
use crate::source::layout_chain;

use super::contents::{Contents, path, sort_uses};
use super::render::{article, render, signature};
use super::subject::type_path;
use super::tree::test_at;

/// The paths of a resource's admission webhooks.
pub(super) fn webhook_paths(resource: &Resource) -> Vec<String> {
    let webhooks = resource.webhooks.clone().unwrap_or_default();
    let usual = |verb: &str| webhook_path(verb, &resource.full_group(), &resource.version, &resource.kind);
    let mutating = webhooks
        .defaulting
        .then(|| webhooks.defaulting_path.unwrap_or_else(|| usual("mutate")));
    let validating = webhooks
        .validation
        .then(|| webhooks.validation_path.unwrap_or_else(|| usual("validate")));
    mutating.into_iter().chain(validating).collect()
}

impl Contents<'_> {
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
                field => self.spec_fields()[0],
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

    /// The file of the tests: `tests/it/guestbook_webhook.rs`, or `tests/it/guestbook_v2_webhook.rs` when the first is
    /// that of another version.
    fn webhook_test_file(&self, files: &dyn Files) -> Result<String, Diagnostic> {
        let at = |stem: &str| test_at(files, &self.test_file(stem));
        let plain = at(&self.project.layout(self.resource).webhook_module())?;
        let versioned = at(&Contents::versioned_webhook(self.project, self.resource))?;
        if files.read(&versioned)?.is_some() {
            return Ok(versioned);
        }
        let of_another = self.project.resources.iter().any(|other| {
            let webhooks = other.webhooks.clone().unwrap_or_default();
            let is_other = other.same_kind(self.resource) && other.version != self.resource.version;
            is_other && (webhooks.defaulting || webhooks.validation)
        });
        let text = files.read(&plain)?.filter(|_| of_another);
        let module = format!("{}::*", self.webhook_test_module());
        let is_ours = |text: &String| {
            text.contains(&module) || webhook_paths(self.resource).iter().any(|path| text.contains(path))
        };
        Ok(if text.is_none_or(|text| is_ours(&text)) {
            plain
        } else {
            versioned
        })
    }

    /// `guestbook_v2_webhook`.
    pub(super) fn versioned_webhook(project: &Project, resource: &Resource) -> String {
        format!(
            "{}_{}_webhook",
            project.layout(resource).stem,
            rust::part(&resource.version)
        )
    }

    /// The module that the tests are about.
    fn webhook_test_module(&self) -> String {
        let layout = self.project.layout(self.resource);
        path(
            &self.project.crate_name(),
            &[&["webhook".to_owned()][..], &layout.webhook_modules].concat(),
            &layout.webhook_module(),
        )
    }

    /// The tests of the webhooks: file, and text. None when there are only conversions.
    pub(super) fn webhook_test(&self, files: &dyn Files) -> Result<Option<(String, String)>, Diagnostic> {
        let webhooks = self.resource.webhooks.clone().unwrap_or_default();
        if !(webhooks.defaulting || webhooks.validation) {
            return Ok(None);
        }
        let file = self.webhook_test_file(files)?;
        if self.is_foreign_crate() {
            let paths: Vec<String> = webhook_paths(self.resource);
            let context = context! { header => self.header, kind => self.resource.kind, crate => self.project.crate_name(), paths };
            return Ok(Some((file, render("rust/webhook_registered_test.rs", context))));
        }
        let items: Vec<String> = self.webhook_test_items().into_iter().map(|(_, item)| item).collect();
        let mut uses = vec![format!("{}::*", self.webhook_test_module())];
        uses.extend(self.types.import.clone());
        sort_uses(&mut uses);
        let context = context! { header => self.header, kind => self.resource.kind, uses, items };
        Ok(Some((file, render("rust/webhook_test.rs", context))))
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

    /// `guestbook_v2_conversion`.
    pub(super) fn conversion_stem(stem: &str, spoke: &str) -> String {
        format!("{stem}_{}_conversion", rust::part(spoke))
    }

    /// The test and the conversion between this version, the hub, and a spoke: (test file, its text, conversion file,
    /// its text).
    pub(super) fn conversion(&self, spoke: &Resource) -> [(String, String); 2] {
        let side = |resource: &Resource| {
            let layout = self.project.layout(resource);
            let module = layout.api_modules.join("::");
            let last = layout.api_modules.last().cloned().unwrap_or_default();
            context! { version => resource.version, module, type => format!("{last}::{}", rust::kind(&resource.kind)) }
        };
        let layout = self.project.layout(spoke);
        let test = self.test_name(&Contents::conversion_stem(&layout.stem, &spoke.version));
        let uses = |krate: &str| {
            let mut uses: Vec<String> = [self.resource, spoke]
                .iter()
                .map(|resource| format!("{krate}::{}", self.project.layout(resource).api_modules.join("::")))
                .collect();
            sort_uses(&mut uses);
            uses
        };
        let context = |krate: &str| {
            context! {
                header => self.header,
                kind => self.resource.kind,
                hub => side(self.resource),
                spoke => side(spoke),
                fields => self.spec_fields(),
                uses => uses(krate),
                test,
            }
        };
        [
            (layout.conversion_file(), render("rust/conversion.rs", context("crate"))),
            (
                format!("tests/it/{test}.rs"),
                render("rust/conversion_test.rs", context(&self.project.api_crate())),
            ),
        ]
    }
}
