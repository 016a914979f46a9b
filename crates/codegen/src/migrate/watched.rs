//! What the builder of a Go controller says: `.Owns` and `.Named` become calls on `Controller`; `.Watches` and predicates,
//! which call functions of Go, become notes.
//!
//! The text of the functions that call `ctrl.NewControllerManagedBy` is searched. Invariant: a kind whose Rust type is not
//! certain is a note, never a guess.

use crate::names::rust;
use crate::project::{Project, Resource};
use crate::source::Source as Edited;

use super::kubernetes;
use super::origin::Source;

/// What was found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Watched {
    /// Calls on the controller, without the dot.
    pub(super) calls: Vec<String>,
    /// What a person has to write.
    pub(super) notes: Vec<String>,
}

/// What a controller's file declares; `all` are the files of the project, and `name` is the one that the Rust controller has.
pub(super) fn of(source: &Source, all: &[Source], project: &Project, name: &str) -> Watched {
    let mut found = Watched::default();
    let builders = source
        .file
        .functions
        .iter()
        .map(|function| &source.text[function.span.clone()]);
    for text in builders.filter(|text| text.contains("NewControllerManagedBy(")) {
        let text: String = text
            .lines()
            .map(|line| format!("{}\n", without_comment(line)))
            .collect();
        for arguments in calls(&text, "Named(") {
            let said = arguments.trim().trim_matches('"');
            let is_text = arguments.trim().starts_with('"') && !said.contains(['"', '\\', '(']);
            match is_text {
                true if said == name => {}
                true => found.calls.push(format!("named({said:?})")),
                false => found
                    .notes
                    .push(note(source, &format!(".Named({arguments})"), "write `.named(…)`")),
            }
        }
        for arguments in calls(&text, "Owns(") {
            match rust_type(source, all, project, arguments) {
                Some(kind) => found.calls.push(format!("owns::<{kind}>()")),
                None => found
                    .notes
                    .push(note(source, &format!(".Owns({arguments})"), "write `.owns::<…>()`")),
            }
        }
        for arguments in calls(&text, "Watches(") {
            let kind = rust_type(source, all, project, arguments).unwrap_or_else(|| "…".to_owned());
            let what = format!(".Watches({arguments})");
            let fix = format!("write `.watches::<{kind}>(…)` with a function from the object to the keys to reconcile");
            found.notes.push(note(source, &what, &fix));
        }
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_.".contains(letter));
        for word in words.filter_map(|word| word.strip_prefix("predicate.")) {
            let fix = "write `.with_predicate::<…>(…)`; kubewright::predicate has some";
            let said = note(source, &format!("predicate.{word}"), fix);
            if word != "GenerationChangedPredicate" && !found.notes.contains(&said) {
                found.notes.push(said);
            }
        }
    }
    found
}

/// The controller's text with these calls.
pub(super) fn declared(path: &str, text: String, calls: &[String]) -> Result<String, crate::Diagnostic> {
    if calls.is_empty() {
        return Ok(text);
    }
    let mut edited = Edited::parse(path, &text)?;
    for call in calls {
        edited.append_call("controller", call)?;
    }
    Ok(edited.into_text())
}

fn note(source: &Source, what: &str, fix: &str) -> String {
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}: `{what}` was not carried over: {fix}", source.path)
}

/// A line without the comment at its end. A text of Go that has two slashes is cut as well, which no kind has.
fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// The arguments of each call of a method, up to the parenthesis that closes it. A line may end in the dot before it.
fn calls<'t>(text: &'t str, method: &str) -> Vec<&'t str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(method) {
        if !text[..at].trim_end().ends_with('.') {
            continue;
        }
        let rest = &text[at + method.len()..];
        let mut depth = 0usize;
        let end = rest.char_indices().find_map(|(at, letter)| {
            match letter {
                '(' => depth += 1,
                ')' if depth == 0 => return Some(at),
                ')' => depth -= 1,
                _ => {}
            }
            None
        });
        found.extend(end.map(|end| rest[..end].trim().trim_end_matches(',')));
    }
    found
}

/// The Rust type of the object in `&appsv1.Deployment{}, …`.
fn rust_type(source: &Source, all: &[Source], project: &Project, arguments: &str) -> Option<String> {
    let (named, _) = arguments.trim().strip_prefix('&')?.split_once("{}")?;
    let (package, kind) = named.trim().split_once('.')?;
    let import = source.file.imports.get(package)?;
    let declares = |other: &&Source| other.import == *import && other.file.types.iter().any(|ty| ty.name == kind);
    let own = all.iter().find(declares).and_then(|_| {
        let folder = |resource: &Resource| match project.multigroup {
            true => format!("/{}/{}", resource.group, resource.version),
            false => format!("/{}", resource.version),
        };
        project
            .apis()
            .find(|resource| resource.kind == kind && import.ends_with(&folder(resource)))
    });
    if let Some(resource) = own {
        let folder = project.layout(resource).api_folder();
        let modules = folder.strip_prefix("api/src/")?.replace('/', "::");
        return Some(format!("{}::{modules}::{}", project.api_crate(), rust::kind(kind)));
    }
    let is_object = import.starts_with("k8s.io/api/");
    let known = kubernetes::known(import, kind).filter(|_| is_object)?;
    Some(known.text).filter(|text| text.starts_with("k8s_openapi::"))
}

#[cfg(test)]
mod tests {
    use super::super::go;
    use super::super::tests::{carried, project as files};
    use super::*;

    fn watched(builder: &str) -> Watched {
        let text = format!(
            "package controller\n\nimport (\n\tappsv1 \"k8s.io/api/apps/v1\"\n\tcorev1 \"k8s.io/api/core/v1\"\n\tcrewv1 \"example.com/fleet/api/v1\"\n\tcertv1 \"github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1\"\n)\n\nfunc (r *R) SetupWithManager(mgr ctrl.Manager) error {{\n\treturn ctrl.NewControllerManagedBy(mgr).{builder}.\n\t\tComplete(r)\n}}\n\nfunc (r *R) other() {{ b.Owns(&corev1.Pod{{}}) }}\n"
        );
        let source = Source {
            path: "a/b.go".to_owned(),
            import: String::new(),
            file: go::parse(&text).unwrap(),
            text,
        };
        let types = files().0["api/v1/captain_types.go"].clone();
        let types = Source {
            path: "api/v1/captain_types.go".to_owned(),
            import: "example.com/fleet/api/v1".to_owned(),
            file: go::parse(&types).unwrap(),
            text: types,
        };
        let project = Project::parse(&carried(&files()).unwrap().files.0["PROJECT"]).unwrap();
        of(&source, &[types], &project, "captain")
    }

    #[test]
    fn the_builder_is_said_in_rust_or_noted() {
        for (builder, calls, notes) in [
            ("For(&crewv1.Captain{})", &[][..], &[][..]),
            (
                "For(&crewv1.Captain{}).Owns(&appsv1.Deployment{}).\n\t\tOwns(\n\t\t\t&corev1.Secret{}, // theirs\n\t\t)",
                &[
                    "owns::<k8s_openapi::api::apps::v1::Deployment>()",
                    "owns::<k8s_openapi::api::core::v1::Secret>()",
                ],
                &[],
            ),
            ("Owns(&crewv1.Captain{})", &["owns::<fleet_api::v1::Captain>()"], &[]),
            ("Named(\"captain\")", &[], &[]),
            ("Named(\"captain-of-ships\")", &["named(\"captain-of-ships\")"], &[]),
            ("Named(name(r, \"x\"))", &[], &["`.Named(name(r, \"x\"))`"]),
            // Nothing is guessed.
            ("Owns(&certv1.Certificate{})", &[], &["`.Owns(&certv1.Certificate{})`"]),
            ("Owns(&appsv1.Nothing{})", &[], &["`.Owns(&appsv1.Nothing{})`"]),
            ("Owns(owned(r))", &[], &["`.Owns(owned(r))`"]),
            (
                "Watches(&corev1.ConfigMap{},\n\t\t\thandler.EnqueueRequestsFromMapFunc(r.find),\n\t\t)",
                &[],
                &["`.watches::<k8s_openapi::api::core::v1::ConfigMap>(…)`"],
            ),
            // .Owns(&corev1.Pod{}) in a comment is no call.
            ("For(&crewv1.Captain{}) // .Owns(&corev1.Pod{})\n\t\t", &[], &[]),
            (
                "WithEventFilter(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))",
                &[],
                &["`predicate.Or`", "`predicate.LabelChangedPredicate`"],
            ),
        ] {
            let found = watched(builder);
            assert_eq!(found.calls, calls, "{builder}");
            assert_eq!(found.notes.len(), notes.len(), "{builder}: {:?}", found.notes);
            for (found, expected) in found.notes.iter().zip(notes) {
                assert!(
                    found.starts_with("a/b.go: ") && found.contains(expected),
                    "{builder}: {found}"
                );
            }
        }
    }

    #[test]
    fn children_of_a_go_controller_are_owned_in_rust() {
        let mut files = files();
        let path = "internal/controller/captain_controller.go";
        let text = files.0[path].replace(
            ".Complete(r)",
            ".Owns(&appsv1.Deployment{}).Named(\"fleet\").Complete(r)",
        );
        let text = text.replacen("\n", "\n\nimport appsv1 \"k8s.io/api/apps/v1\"\n", 1);
        files.0.insert(path.to_owned(), text);
        let done = carried(&files).unwrap();
        let controller = &done.files.0["src/controller/captain_controller.rs"];
        for call in [".named(\"fleet\")", ".owns::<k8s_openapi::api::apps::v1::Deployment>()"] {
            assert!(controller.contains(call), "{call} in {controller}");
        }
    }
}
