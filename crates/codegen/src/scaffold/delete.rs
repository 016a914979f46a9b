//! `delete`: removes the files of `create`, as long as they were not edited.

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, Plan};
use crate::project::{Resource, Webhooks};

use super::Change;
use super::contents::{Contents, ControllerFile, controllers};
use super::create_api::put;
use super::subject::{self, Subject, has_stub};
use super::tree::{API_LIB, FAULTS, LIB, test_at};

/// The options of `delete`.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// The kind.
    pub subject: Subject,
    /// Of an API, only the controller of this name.
    pub controller_name: Option<String>,
    /// Of webhooks, only the one that fills in defaults.
    pub defaulting: bool,
    /// Of webhooks, only the one that validates.
    pub validation: bool,
    /// Of webhooks, only the conversion.
    pub conversion: bool,
    /// Whether to delete also edited files.
    pub force: bool,
}

/// Files that are deleted, each with the text that the scaffold wrote.
type Scaffolded = Vec<(String, String)>;

/// Plans the removal of a kind with its controllers, or of one controller.
///
/// # Errors
/// When the project does not have it, webhooks stand on it, a file was edited and `force` is not set, or a registration
/// was rewritten by hand.
pub fn delete_api<'a>(files: &'a dyn Files, options: &Delete) -> Result<Plan<'a>, Diagnostic> {
    let mut change = Change::of(files, options.force)?;
    let attempted = format!("cannot delete the API {}", options.subject.title());
    subject::check(&options.subject, &attempted)?;
    let resource = resolve(&change, &options.subject, &attempted)?;
    let (project, header) = (change.project.clone(), change.header.clone());
    let contents = Contents::of(&project, &resource, &header);
    let layout = project.layout(&resource);
    let wanted = options.controller_name.as_deref();
    let gone: Vec<_> = controllers(&project, &resource)
        .into_iter()
        .filter(|controller| wanted.is_none_or(|name| name == controller.name))
        .collect();
    if let Some(name) = wanted.filter(|_| gone.is_empty()) {
        let has = project.controller_names(&resource).join(", ");
        return Err(Diagnostic::new(codes::project::UNKNOWN, attempted)
            .because(format!("{} has no controller {name}; it has: {has}", resource.title()))
            .fix("name one that it has with --controller-name"));
    }
    if wanted.is_none() {
        is_unused(&change, &resource, &attempted)?;
    }
    let mut scaffolded = Scaffolded::new();
    for controller in &gone {
        let file_name = controller.file_name.as_deref();
        // A controller that was made before the project had several groups is called as its kind alone.
        let earlier = ControllerFile {
            name: resource.kind.to_lowercase(),
            file_name: controller.file_name.clone(),
        };
        let (test, text) = contents.controller_test(controller);
        let candidates = [contents.controller_text(controller), contents.controller_text(&earlier)];
        scaffolded.push(as_written(&change, layout.controller_file(file_name), candidates)?);
        let test = test_at(&change.plan, &test)?;
        scaffolded.push(as_written(&change, test, [text, contents.controller_test(&earlier).1])?);
    }
    let types = wanted.is_none() && (resource.api.is_some() || has_stub(&project, &resource));
    if types {
        let stored = !is_not_stored(&change, &resource)?;
        scaffolded.push((layout.types_file(), contents.types_text(stored)));
    }
    // Without a kind there is no sample.
    let is_last = project
        .apis()
        .all(|other| other.is(&resource.full_group(), &resource.version, &resource.kind));
    if wanted.is_none() && is_last {
        scaffolded.push((test_at(&change.plan, FAULTS)?, change.faults_test()));
    }
    remove(&mut change, &scaffolded, &attempted)?;
    for controller in &gone {
        let module = layout.controller_module(controller.file_name.as_deref());
        let mut modules = vec!["controller".to_owned()];
        modules.extend(layout.controller_modules.clone());
        let call = format!("controller({}::{module}::controller())", modules.join("::"));
        unregister(&mut change, &call, &attempted)?;
        change.undeclare(LIB, &modules, &module)?;
    }
    if types {
        let call = format!("crd::<{}>()", contents.types.whole);
        unregister(&mut change, &call, &attempted)?;
        forget_types(&mut change, &resource)?;
    }
    if wanted.is_some() {
        let mut left = resource.clone();
        left.controller = left.controller && !gone.iter().any(|controller| controller.file_name.is_none());
        left.controllers
            .retain(|controller| !gone.iter().any(|gone| gone.name == controller.name));
        put(&mut change, &left);
    } else {
        let there = |other: &Resource| other.is(&resource.full_group(), &resource.version, &resource.kind);
        change.project.resources.retain(|other| !there(other));
        change.project.forget_images_of_kind(&resource);
        forget_base(&mut change, &resource)?;
    }
    say_what_is_left(&mut change, &resource)?;
    let mut plan = change.finish()?;
    plan.next.push("kubewright manifests".to_owned());
    Ok(plan)
}

/// Plans the removal of webhooks: of all of a kind, or of those that are named.
///
/// # Errors
/// As [`delete_api`].
pub fn delete_webhook<'a>(files: &'a dyn Files, options: &Delete) -> Result<Plan<'a>, Diagnostic> {
    let mut change = Change::of(files, options.force)?;
    let attempted = format!("cannot delete the webhook of {}", options.subject.title());
    subject::check(&options.subject, &attempted)?;
    let resource = resolve(&change, &options.subject, &attempted)?;
    let there = resource.webhooks.clone().unwrap_or_default();
    let all = !(options.defaulting || options.validation || options.conversion);
    let gone = Webhooks {
        defaulting: there.defaulting && (all || options.defaulting),
        validation: there.validation && (all || options.validation),
        conversion: there.conversion && (all || options.conversion),
        ..Webhooks::default()
    };
    let missing = (options.defaulting && !gone.defaulting)
        || (options.validation && !gone.validation)
        || (options.conversion && !gone.conversion);
    if !gone.any() || missing {
        return Err(Diagnostic::new(codes::project::UNKNOWN, attempted)
            .because(format!("{} has no such webhook", resource.title()))
            .fix(those_that_are(&there)));
    }
    let mut left = resource.clone();
    let mut webhooks = there.clone();
    webhooks.defaulting &= !gone.defaulting;
    webhooks.validation &= !gone.validation;
    webhooks.conversion &= !gone.conversion;
    if gone.defaulting {
        webhooks.defaulting_path = None;
    }
    if gone.validation {
        webhooks.validation_path = None;
    }
    if gone.conversion {
        webhooks.spoke.clear();
    }
    left.webhooks = webhooks.any().then_some(webhooks);
    take_out(&mut change, &resource, &left, &attempted)?;
    if gone.conversion {
        forget_conversions(&mut change, &resource, &there, &attempted)?;
    }
    put(&mut change, &left);
    if left.webhooks.is_none() && left.api.is_none() && !left.has_controller() {
        let is_it = |other: &Resource| other.is(&left.full_group(), &left.version, &left.kind);
        change.project.resources.retain(|other| !is_it(other));
        if has_stub(&change.project, &left) {
            let (project, header) = (change.project.clone(), change.header.clone());
            let file = (
                project.layout(&left).types_file(),
                Contents::of(&project, &left, &header).types_text(true),
            );
            remove(&mut change, &vec![file], &attempted)?;
            forget_types(&mut change, &left)?;
        }
    }
    say_what_is_left(&mut change, &resource)?;
    let mut plan = change.finish()?;
    plan.next.push("kubewright manifests".to_owned());
    Ok(plan)
}

/// What may be said instead of a webhook that is not there.
fn those_that_are(webhooks: &Webhooks) -> String {
    let flags = [
        (webhooks.defaulting, "--defaulting"),
        (webhooks.validation, "--programmatic-validation"),
        (webhooks.conversion, "--conversion"),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .filter(|(is_there, _)| *is_there)
        .map(|(_, flag)| *flag)
        .collect();
    match flags.as_slice() {
        [] => "it has no webhooks: nothing needs to be done".to_owned(),
        flags => format!("it has: {}", flags.join(", ")),
    }
}

fn resolve(change: &Change<'_>, subject: &Subject, attempted: &str) -> Result<Resource, Diagnostic> {
    subject::find(&change.project, subject).cloned().ok_or_else(|| {
        Diagnostic::new(codes::project::UNKNOWN, attempted)
            .because(format!("the project has no {}", subject.title()))
            .because(format!("it has: {}", subject::list(&change.project)))
            .fix("name one of these, as PROJECT writes it: --group, --version, --kind")
    })
}

/// Webhooks and conversions stand on a type.
fn is_unused(change: &Change<'_>, resource: &Resource, attempted: &str) -> Result<(), Diagnostic> {
    let command = |hub: &Resource| {
        format!(
            "kubewright delete webhook --group {} --version {} --kind {}",
            hub.group, hub.version, hub.kind
        )
    };
    if resource.webhooks.as_ref().is_some_and(Webhooks::any) {
        return Err(Diagnostic::new(codes::project::TAKEN, attempted)
            .because(format!("{} has webhooks, which depend on it", resource.title()))
            .fix(format!("first {}", command(resource))));
    }
    let hub = change.project.resources.iter().find(|other| {
        other.same_kind(resource)
            && other
                .webhooks
                .as_ref()
                .is_some_and(|webhooks| webhooks.spoke.contains(&resource.version))
    });
    match hub {
        Some(hub) => Err(Diagnostic::new(codes::project::TAKEN, attempted)
            .because(format!("it is converted through {}", hub.title()))
            .fix(format!("first {} --conversion", command(hub)))),
        None => Ok(()),
    }
}

/// The file with the one of the texts that it has, or with the first when a person changed it.
fn as_written(change: &Change<'_>, path: String, candidates: [String; 2]) -> Result<(String, String), Diagnostic> {
    let there = change.plan.read(&path)?;
    let [usual, earlier] = candidates;
    let text = if there.as_ref() == Some(&earlier) {
        earlier
    } else {
        usual
    };
    Ok((path, text))
}

/// Removes files that are as the scaffold wrote them; others only by force.
fn remove(change: &mut Change<'_>, scaffolded: &Scaffolded, attempted: &str) -> Result<(), Diagnostic> {
    let mut edited = Vec::new();
    for (path, text) in scaffolded {
        match change.plan.read(path)? {
            Some(there) if there != *text && !change.force => edited.push(path.clone()),
            Some(there) => {
                if there != *text {
                    change.plan.notes.push(format!("deleted {path}, which was edited"));
                }
                change.plan.remove(path)?;
                change.undeclare_test(path)?;
            }
            None => {}
        }
    }
    if edited.is_empty() {
        return Ok(());
    }
    let mut wrong = Diagnostic::new(codes::project::KEPT, attempted)
        .because("these files are not as the scaffold wrote them, so somebody worked on them")
        .fix("save what you need and pass --force, which deletes them; nothing was changed");
    for path in edited {
        wrong = wrong.at(Place::file(path));
    }
    Err(wrong)
}

fn unregister(change: &mut Change<'_>, call: &str, attempted: &str) -> Result<(), Diagnostic> {
    let mut source = change.source(LIB)?;
    if !source.remove_call("operator", call) {
        return Err(Diagnostic::new(codes::files::EDITED, attempted)
            .at(Place::file(LIB))
            .because(format!(
                "`.{call}` is not at the end of fn operator(), where it could be taken out"
            ))
            .fix(format!(
                "take `.{call}` out by hand and run the command again; nothing was changed"
            )));
    }
    change.plan.write(LIB, source.into_text())
}

/// Takes the module of the types out, and the version's folder when nothing else is in it.
fn forget_types(change: &mut Change<'_>, resource: &Resource) -> Result<(), Diagnostic> {
    let layout = change.project.layout(resource);
    change.undeclare(API_LIB, &layout.api_modules, &format!("{}_types", layout.stem))
}

/// A kind without versions has no CRD.
fn forget_base(change: &mut Change<'_>, resource: &Resource) -> Result<(), Diagnostic> {
    if resource.api.is_some() && !change.project.apis().any(|other| other.same_kind(resource)) {
        let base = format!("config/crd/bases/{}_{}.yaml", resource.full_group(), resource.plural());
        change.plan.remove(&base)?;
    }
    Ok(())
}

fn is_not_stored(change: &Change<'_>, resource: &Resource) -> Result<bool, Diagnostic> {
    let path = change.project.layout(resource).types_file();
    Ok(change
        .plan
        .read(&path)?
        .is_some_and(|text| text.contains("storage = false")))
}

/// Takes webhooks out of their file, or the file away when none is left.
fn take_out(change: &mut Change<'_>, was: &Resource, left: &Resource, attempted: &str) -> Result<(), Diagnostic> {
    let (project, header) = (change.project.clone(), change.header.clone());
    let (before, after) = (
        Contents::of(&project, was, &header),
        Contents::of(&project, left, &header),
    );
    let layout = project.layout(was);
    let (there, now) = (
        was.webhooks.clone().unwrap_or_default(),
        left.webhooks.clone().unwrap_or_default(),
    );
    let mut scaffolded = vec![(layout.webhook_file(), before.webhook_text())];
    let tests = before.webhook_test(&change.plan)?;
    let test = tests.as_ref().map(|(path, _)| path.clone());
    scaffolded.extend(tests);
    for (function, is_gone) in [
        (
            "webhook",
            (there.defaulting || there.validation) && !(now.defaulting || now.validation),
        ),
        ("conversion", there.conversion && !now.conversion),
    ] {
        if is_gone {
            let call = change.webhook_call(was, function);
            unregister(change, &call, attempted)?;
        }
    }
    if !now.any() {
        remove(change, &scaffolded, attempted)?;
        let mut modules = vec!["webhook".to_owned()];
        modules.extend(layout.webhook_modules.clone());
        return change.undeclare(LIB, &modules, &layout.webhook_module());
    }
    // Some webhooks stay: both files are written anew when they were not edited; with --force they are, too.
    remove(change, &scaffolded, attempted)?;
    change.create(&layout.webhook_file(), after.webhook_text())?;
    // Under the name that it had.
    match (after.webhook_test(&change.plan)?, test) {
        (Some((_, text)), Some(path)) => change.create_test(&path, text),
        _ => Ok(()),
    }
}

fn forget_conversions(
    change: &mut Change<'_>,
    hub: &Resource,
    there: &Webhooks,
    attempted: &str,
) -> Result<(), Diagnostic> {
    let (project, header) = (change.project.clone(), change.header.clone());
    let contents = Contents::of(&project, hub, &header);
    for version in &there.spoke {
        let spoke = contents.version(version);
        let layout = project.layout(&spoke);
        let [conversion, (test, text)] = contents.conversion(&spoke);
        let test = test_at(&change.plan, &test)?;
        remove(change, &vec![conversion, (test, text)], attempted)?;
        change.undeclare(API_LIB, &layout.api_modules, &format!("{}_conversion", layout.stem))?;
    }
    Ok(())
}

/// Says where the deleted kind is still mentioned.
fn say_what_is_left(change: &mut Change<'_>, resource: &Resource) -> Result<(), Diagnostic> {
    if resource.api.is_none() {
        return Ok(());
    }
    let mut left = Vec::new();
    for folder in ["src", "tests", "api/src"] {
        for path in change.plan.list(folder)? {
            let mentions = change.plan.read(&path)?.is_some_and(|text| {
                text.split(|c: char| !c.is_ascii_alphanumeric())
                    .any(|word| word == resource.kind)
            });
            let scaffolded = change
                .project
                .apis()
                .any(|other| path == change.project.layout(other).types_file());
            if mentions && !scaffolded && path.ends_with(".rs") {
                left.push(path);
            }
        }
    }
    let still_there = change.project.resources.iter().any(|other| other.same_kind(resource));
    if !left.is_empty() && !still_there {
        change.plan.notes.push(format!(
            "left as they are, though they mention {}: {}",
            resource.kind,
            left.join(", ")
        ));
    }
    Ok(())
}
