//! `create webhook`: defaults, validation and conversion of a kind, one after the other or at once.
//!
//! The file of a kind's webhooks is written once; later parts are put into it beside a person's own code. So it does
//! not matter whether two webhooks were created by one command or by two.

use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::names;
use crate::plan::{Files, Plan};
use crate::project::{Resource, Webhooks};

use super::contents::Contents;
use super::create_api::{add_dependency, put, unknown};
use super::subject::{self, External, Subject, has_stub};
use super::tree::LIB;
use super::webhook_contents::webhook_paths;
use super::{Change, bad_name};

/// The options of `create webhook`.
#[derive(Clone, Debug, Default)]
pub struct CreateWebhook {
    /// The kind.
    pub subject: Subject,
    /// A webhook that fills in defaults.
    pub defaulting: bool,
    /// A webhook that validates.
    pub validation: bool,
    /// Conversion between versions, with this one as the hub.
    pub conversion: bool,
    /// The versions that are converted to and from the hub.
    pub spoke: Vec<String>,
    /// The path of the first, when it is not the usual one.
    pub defaulting_path: Option<String>,
    /// The path of the second.
    pub validation_path: Option<String>,
    /// Where the type of another project comes from.
    pub external: External,
    /// Whether to write over existing files.
    pub force: bool,
}

/// Plans webhooks.
///
/// # Errors
/// When the request contradicts itself or the project, or a file was rewritten where it would be changed.
pub fn create_webhook<'a>(files: &'a dyn Files, options: &CreateWebhook) -> Result<Plan<'a>, Diagnostic> {
    let mut change = Change::of(files, options.force)?;
    let attempted = format!("cannot create the webhook for {}", options.subject.title());
    subject::check(&options.subject, &attempted)?;
    flags(options, &attempted)?;
    let (mut resource, is_new) = resolve(&change, options, &attempted)?;
    let before = resource.webhooks.clone().unwrap_or_default();
    is_free(options, &before, &resource, &attempted)?;
    change.modules_stand(&resource, &attempted)?;
    if !is_new && !options.force {
        change.type_stands(&resource, &attempted)?;
    }
    spokes(&change, options, &resource, &attempted)?;
    let mut webhooks = before.clone();
    webhooks.defaulting |= options.defaulting;
    webhooks.validation |= options.validation;
    webhooks.conversion |= options.conversion;
    for spoke in &options.spoke {
        if !webhooks.spoke.contains(spoke) {
            webhooks.spoke.push(spoke.clone());
        }
    }
    if options.defaulting {
        webhooks.defaulting_path.clone_from(&options.defaulting_path);
    }
    if options.validation {
        webhooks.validation_path.clone_from(&options.validation_path);
    }
    resource.webhooks = Some(webhooks);
    paths_are_free(&change, &resource, &attempted)?;
    put(&mut change, &resource);
    if let Some(module) = resource.module.clone().filter(|_| is_new) {
        add_dependency(&mut change, &module, &attempted)?;
    }
    if is_new && has_stub(&change.project, &resource) {
        change.write_types(&resource, true)?;
    }
    write(&mut change, &resource, &before, options)?;
    if options.conversion {
        convert(&mut change, &resource, options)?;
    }
    if resource.core {
        change.plan.notes.push(format!(
            "a webhook for {} is asked about the operator's own objects, too: one that fails could keep the operator from starting. config/ leaves the \
             operator's namespace out; think of kube-system as well",
            resource.kind
        ));
    }
    change.plan.notes.extend(options.external.of_go());
    let mut plan = change.finish()?;
    plan.next.push("kubewright manifests".to_owned());
    Ok(plan)
}

fn flags(options: &CreateWebhook, attempted: &str) -> Result<(), Diagnostic> {
    let wrong = |why: &str, fix: &str| Err(Diagnostic::new(codes::project::FLAGS, attempted).because(why).fix(fix));
    if !(options.defaulting || options.validation || options.conversion) {
        return wrong(
            "no webhook was requested",
            "pass at least one of --defaulting, --programmatic-validation and --conversion",
        );
    }
    if options.defaulting_path.is_some() && !options.defaulting {
        return wrong(
            "--defaulting-path is the path of a defaulting webhook",
            "add --defaulting",
        );
    }
    if options.validation_path.is_some() && !options.validation {
        return wrong(
            "--validation-path is the path of a validating webhook",
            "add --programmatic-validation",
        );
    }
    if !options.spoke.is_empty() && !options.conversion {
        return wrong("--spoke names a version for conversion", "add --conversion");
    }
    let paths = [
        ("--defaulting-path", &options.defaulting_path),
        ("--validation-path", &options.validation_path),
    ];
    for (flag, path) in paths {
        if let Some(path) = path {
            names::webhook_path(path).map_err(|wrong| bad_name(attempted, flag, path, &wrong))?;
        }
    }
    if options.defaulting_path.is_some() && options.defaulting_path == options.validation_path {
        return wrong("two webhooks cannot have the same path", "give each a path of its own");
    }
    Ok(())
}

/// The operator serves one webhook on a path; two would be found by `manifests` only.
fn paths_are_free(change: &Change<'_>, resource: &Resource, attempted: &str) -> Result<(), Diagnostic> {
    let mine = webhook_paths(resource);
    let is_other = |other: &&Resource| {
        other.full_group() != resource.full_group() || other.version != resource.version || other.kind != resource.kind
    };
    for other in change.project.resources.iter().filter(is_other) {
        if let Some(path) = webhook_paths(other).into_iter().find(|path| mine.contains(path)) {
            return Err(Diagnostic::new(codes::project::TAKEN, attempted)
                .because(format!("{path} is the path of a webhook for {} already", other.title()))
                .fix("name another with --defaulting-path or --validation-path"));
        }
    }
    Ok(())
}

/// The resource, and whether the project did not have it yet.
fn resolve(change: &Change<'_>, options: &CreateWebhook, attempted: &str) -> Result<(Resource, bool), Diagnostic> {
    if let Some(there) = subject::find(&change.project, &options.subject) {
        // An entry without a type, such as one made by hand, is nothing to build on.
        if there.api.is_some() || there.core || there.external {
            return Ok((there.clone(), false));
        }
    }
    if options.external.is_given() {
        let resource = subject::external(&change.project, &options.subject, &options.external, attempted)?;
        let there = change
            .project
            .find(&resource.full_group(), &resource.version, &resource.kind);
        return Ok(there.map_or((resource, true), |there| (there.clone(), false)));
    }
    match subject::core(&options.subject, attempted)? {
        Some(core) => Ok((core, true)),
        None => Err(unknown(change, &options.subject, attempted)),
    }
}

fn is_free(options: &CreateWebhook, there: &Webhooks, resource: &Resource, attempted: &str) -> Result<(), Diagnostic> {
    let new_spoke = options.spoke.iter().any(|spoke| !there.spoke.contains(spoke));
    let taken = [
        (options.defaulting && there.defaulting, "defaulting"),
        (options.validation && there.validation, "validating"),
        // A further spoke is something new.
        (options.conversion && there.conversion && !new_spoke, "conversion"),
    ];
    match taken.iter().find(|(taken, _)| *taken && !options.force) {
        Some((_, what)) => Err(Diagnostic::new(codes::project::TAKEN, attempted)
            .because(format!("{} has a {what} webhook already", resource.title()))
            .fix("omit what exists, or pass --force to overwrite it with the scaffold")),
        None => Ok(()),
    }
}

fn spokes(change: &Change<'_>, options: &CreateWebhook, hub: &Resource, attempted: &str) -> Result<(), Diagnostic> {
    if !options.conversion {
        return Ok(());
    }
    let wrong = |why: String, fix: String| {
        Err(Diagnostic::new(codes::project::UNKNOWN, attempted)
            .because(why)
            .fix(fix))
    };
    if hub.api.is_none() {
        return Err(Diagnostic::new(codes::project::FLAGS, attempted)
            .because(format!(
                "{} is not a kind of this project, so its versions are converted elsewhere",
                hub.title()
            ))
            .fix("leave --conversion out"));
    }
    let versions: Vec<&Resource> = change.project.apis().filter(|other| other.same_kind(hub)).collect();
    let listed: Vec<&str> = versions.iter().map(|other| other.version.as_str()).collect();
    for spoke in &options.spoke {
        if *spoke == hub.version {
            return wrong(
                format!("{spoke} is the hub and cannot be converted to itself"),
                "name the other versions with --spoke".to_owned(),
            );
        }
        if !listed.contains(&spoke.as_str()) {
            return wrong(
                format!(
                    "the project has no version {spoke} of {}; it has {}",
                    hub.kind,
                    listed.join(", ")
                ),
                format!(
                    "create it first: kubewright create api --group {} --version {spoke} --kind {} --resource --controller=false",
                    hub.group, hub.kind
                ),
            );
        }
    }
    let other_hub = versions.iter().find(|other| {
        other.version != hub.version && other.webhooks.as_ref().is_some_and(|webhooks| webhooks.conversion)
    });
    match other_hub {
        Some(other) => Err(Diagnostic::new(codes::project::TAKEN, attempted)
            .because(format!("{} is the hub of this kind", other.title()))
            .fix(format!(
                "add spokes to it: --version {} --conversion --spoke {}",
                other.version, hub.version
            ))),
        None => Ok(()),
    }
}

/// The file of the webhooks, its tests and its registrations.
fn write(
    change: &mut Change<'_>,
    resource: &Resource,
    before: &Webhooks,
    options: &CreateWebhook,
) -> Result<(), Diagnostic> {
    let (project, header) = (change.project.clone(), change.header.clone());
    let contents = Contents::of(&project, resource, &header);
    let layout = project.layout(resource);
    let file = layout.webhook_file();
    let there = change.plan.read(&file)?.is_some();
    if there && before.any() && !change.force {
        add(change, &contents, &file, before)?;
    } else {
        change.create(&file, contents.webhook_text())?;
        if let Some((path, text)) = contents.webhook_test(&change.plan)? {
            change.create_test(&path, text)?;
        }
    }
    change.declare_webhook(resource)?;
    if options.defaulting || options.validation {
        let call = change.webhook_call(resource, "webhook");
        change.edit(LIB, |source| source.append_call("operator", &call))?;
    }
    if options.conversion {
        let call = change.webhook_call(resource, "conversion");
        change.edit(LIB, |source| source.append_call("operator", &call))?;
    }
    Ok(())
}

/// Puts new parts beside present ones.
fn add(change: &mut Change<'_>, contents: &Contents<'_>, file: &str, before: &Webhooks) -> Result<(), Diagnostic> {
    let now = contents.resource.webhooks.clone().unwrap_or_default();
    let kind = &contents.resource.kind;
    change.edit(file, |source| {
        let admission = before.defaulting || before.validation;
        // A new part stands before the function that registers it, the defaulter before the validator.
        let anchor = if admission { "webhook" } else { "conversion" };
        let first = format!("{kind}Validator");
        if now.defaulting && !before.defaulting && !source.has_type(&format!("{kind}Defaulter")) {
            if source.has_type(&first) {
                source.insert_before_type(&first, &contents.defaulter());
            } else {
                source.insert_before(anchor, &contents.defaulter());
            }
        }
        if now.validation && !before.validation && !source.has_type(&first) {
            source.insert_before(anchor, &contents.validator());
        }
        if (now.defaulting || now.validation) && !source.has_function("webhook") {
            source.insert_before("conversion", &contents.webhook_function());
        } else if now.defaulting || now.validation {
            for call in contents.webhook_calls() {
                // Parts of the defaulter stand before the validator.
                let first = call.starts_with("defaulter(") || call.starts_with("mutating(");
                source.insert_call("webhook", &call, first.then_some("validator"))?;
            }
        }
        if now.conversion && !source.has_function("conversion") {
            source.append_item(&contents.conversion_function());
        } else if now.conversion {
            for spoke in &now.spoke {
                source.append_call("conversion", &contents.spoke_call(spoke))?;
            }
        }
        Ok(())
    })?;
    let Some((path, text)) = contents.webhook_test(&change.plan)? else {
        return Ok(());
    };
    match change.plan.read(&path)? {
        None => change.create_test(&path, text),
        Some(_) => change.edit(&path, |source| {
            for (function, item) in contents.webhook_test_items() {
                if !source.has_function(function) {
                    match function {
                        "defaults_are_set_once" => source.insert_before("what_is_right_is_taken", &item),
                        _ => source.append_item(&item),
                    }
                }
            }
            Ok(())
        }),
    }
}

/// Conversions, and which version is stored.
fn convert(change: &mut Change<'_>, hub: &Resource, options: &CreateWebhook) -> Result<(), Diagnostic> {
    let (project, header) = (change.project.clone(), change.header.clone());
    let contents = Contents::of(&project, hub, &header);
    for version in &options.spoke {
        let spoke = contents.version(version);
        let layout = project.layout(&spoke);
        let [(path, text), (test, of_test)] = contents.conversion(&spoke);
        change.create(&path, text)?;
        change.create_test(&test, of_test)?;
        change.edit(&format!("{}/mod.rs", layout.api_folder()), |source| {
            source.add_module(&format!("{}_conversion", layout.stem));
            Ok(())
        })?;
    }
    // The hub is the stored version, so that no read needs more than one conversion.
    for version in project.apis().filter(|other| other.same_kind(hub)) {
        let stored = version.version == hub.version;
        let path = project.layout(version).types_file();
        change.edit(&path, |source| {
            if source.set_storage(&version.kind, stored) {
                return Ok(());
            }
            Err(
                Diagnostic::new(codes::files::EDITED, "cannot determine which version is stored")
                    .at(crate::Place::file(path.clone()))
                    .because(format!("the file has no `#[kube(kind = {:?})]`", version.kind))
                    .fix(format!(
                        "restore the attribute, with `storage = {stored}`; nothing was written"
                    )),
            )
        })?;
    }
    Ok(())
}
