//! Controllers, webhooks and roles: skeletons beside Go's functions, and the rights of Go's markers.
//!
//! A role's rules stand on the controller in whose file Go has them; those of other files belong to the whole operator.

use std::collections::BTreeSet;

use super::origin::Source;
use super::{markers, words};

/// The Go file of a kind's controller: the one that says so, the one that is called so, or one that makes such objects.
pub(super) fn controller_of<'s>(kind: &str, sources: &'s [Source]) -> Option<&'s Source> {
    let name = kind.to_lowercase();
    let fits = |source: &&Source| {
        let file = source.path.rsplit('/').next().unwrap_or_default();
        let watches = source.text.lines().any(|line| {
            let asked = line
                .split_once("For(&")
                .map(|(_, rest)| rest.split('{').next().unwrap_or_default());
            asked.is_some_and(|asked| asked.rsplit('.').next() == Some(kind))
        });
        (watches, file.starts_with(&name))
    };
    let candidates = sources.iter().filter(|source| source.reconciles(kind));
    // The first of those that fit best.
    candidates.rev().max_by_key(fits)
}

/// The rules of files that no controller was made of, said by the operator.
pub(super) fn of_operator(library: &str, sources: &[Source], told: &BTreeSet<String>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for source in sources.iter().filter(|source| !told.contains(&source.path)) {
        for rule in rules(source) {
            let line = format!("        .rbac(Rule::new(){})\n", rule.calls());
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let Some(at) = library.rfind("\n}").filter(|_| !lines.is_empty()) else {
        return library.to_owned();
    };
    let (before, after) = library.split_at(at + 1);
    let all = format!("{before}{}{after}", lines.concat());
    all.replacen("use kubewright::Operator;", "use kubewright::{Operator, Rule};", 1)
}

/// The arguments of a marker `+kubebuilder:rbac`: names and texts.
#[derive(PartialEq)]
pub(super) struct RbacRule(Vec<(&'static str, Vec<String>)>);

impl RbacRule {
    /// The words of a part.
    pub(super) fn words(&self, part: &str) -> Vec<String> {
        let parts = self.0.iter().filter(|(name, _)| *name == part);
        parts.flat_map(|(_, words)| words.clone()).collect()
    }

    /// As the attribute on a reconciler.
    fn attribute(&self) -> String {
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(name, words)| format!("{name} = {:?}", words.join(";")))
            .collect();
        format!("#[rbac({})]\n", parts.join(", "))
    }

    /// As calls on a `Rule`.
    fn calls(&self) -> String {
        let call = |(name, words): &(&str, Vec<String>)| match *name {
            "namespace" | "role_name" => format!(".{name}({:?})", words.join(";")),
            _ => format!(".{name}({words:?})"),
        };
        self.0.iter().map(call).collect()
    }
}

/// The arguments of the marker, and those of the attribute.
const ARGUMENTS: [(&str, &str); 7] = [
    ("groups", "groups"),
    ("resources", "resources"),
    ("resourceNames", "resource_names"),
    ("urls", "urls"),
    ("verbs", "verbs"),
    ("namespace", "namespace"),
    ("roleName", "role_name"),
];

/// What the markers of a file say of roles in words that controller-gen refuses: a note for each.
pub(super) fn wrong_rules(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for marker in &source.file.markers {
        let Some(said) = markers::Marker::arguments(marker, "kubebuilder:rbac") else {
            continue;
        };
        let unknown = said.keys().find(|key| !ARGUMENTS.iter().any(|(known, _)| known == key));
        let why = match unknown {
            Some(unknown) => format!("{unknown:?} is none of its arguments"),
            None if words::words(&said, "verbs").is_empty() => "it has no verbs, so it grants nothing".to_owned(),
            None => continue,
        };
        found.push(format!("{}: +{marker}: {why}", source.path));
    }
    found
}

/// The rules of roles that a file's markers ask for.
pub(super) fn rules(source: &Source) -> Vec<RbacRule> {
    let mut found: Vec<RbacRule> = Vec::new();
    for marker in &source.file.markers {
        let Some(said) = markers::Marker::arguments(marker, "kubebuilder:rbac") else {
            continue;
        };
        let of = ARGUMENTS.into_iter().filter(|(key, _)| said.contains_key(*key));
        let words = |key: &str| {
            let mut words = words::words(&said, key);
            // controller-gen's other name for Kubernetes' core group.
            for word in words
                .iter_mut()
                .filter(|word| key == "groups" && word.as_str() == "core")
            {
                word.clear();
            }
            words.retain(|word| key == "groups" || !word.is_empty());
            words
        };
        if words("verbs").is_empty() {
            continue;
        }
        let rule = RbacRule(of.map(|(key, name)| (name, words(key))).collect());
        if !found.contains(&rule) {
            found.push(rule);
        }
    }
    found
}

/// A controller's skeleton: it does nothing yet, has the rights of Go's, and has Go's text below, where there is one.
pub(super) fn controller(text: &str, source: Option<&Source>) -> String {
    let mut out = String::new();
    let mut skips = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed == "use kubewright::conditions;" {
            continue;
        }
        if trimmed.starts_with("// A child is created or updated") {
            skips = true;
            out.push_str(match source {
                Some(_) => "        // What Go's Reconcile does stands below this file's code.\n",
                None => "        // No Reconcile of Go was found.\n",
            });
        }
        if trimmed.starts_with("Ok(Action::await_change())") {
            skips = false;
            let variable = text
                .split("async fn reconcile(")
                .nth(1)
                .and_then(|rest| rest.split(": Arc<").next())
                .and_then(|before| before.rsplit([' ', ',', '\n']).next());
            out.push_str(&format!("        let _ = ({}, ctx);\n", variable.unwrap_or("ctx")));
        }
        if skips || trimmed.starts_with("// #[rbac(") {
            continue;
        }
        if trimmed.starts_with("impl Reconciler for") {
            out.extend(source.map(rules).unwrap_or_default().iter().map(RbacRule::attribute));
        }
        out.push_str(line);
        out.push('\n');
    }
    unless_said(out, source) + &source.map(beside).unwrap_or_default()
}

/// The scaffold's predicate lets a controller sleep through changes of annotations, of deletion and of status. It stands
/// in a carried controller only where Go has it.
fn unless_said(text: String, source: Option<&Source>) -> String {
    if source.is_some_and(|source| source.text.contains("GenerationChangedPredicate")) {
        return text;
    }
    const END: &str = "(predicate::generation_changed)";
    let Some((before, after)) = text.split_once(END) else {
        return text;
    };
    let Some(begin) = before.rfind(".with_predicate::<") else {
        return text;
    };
    let kept = before[..begin].trim_end();
    let kept = kept.replace("use kubewright::predicate;\n", "");
    // What is left of the chain fits into a line.
    format!("{}{after}", kept.replace("\n        .named(", ".named("))
}

/// Go's functions, as comments.
pub(super) fn beside(source: &Source) -> String {
    let mut out = format!("\n// {} in Go, to be said in Rust above:\n//\n", source.path);
    for function in &source.file.functions {
        for line in source.text[function.span.clone()].lines() {
            out.push_str(format!("// {}", line.replace('\t', "    ")).trim_end());
            out.push('\n');
        }
        out.push_str("//\n");
    }
    out.truncate(out.trim_end_matches("//\n").len());
    out
}

#[cfg(test)]
mod tests {
    use super::super::go;
    use super::*;

    #[test]
    fn markers_that_grant_nothing_are_noted() {
        for (marker, wrong) in [
            ("groups=a,resources=b,verbs=get;list", None),
            ("urls=/metrics,verbs=get", None),
            ("groups=a,resources=b", Some("it has no verbs")),
            (
                "groups=a,resources=b,verb=get",
                Some("\"verb\" is none of its arguments"),
            ),
            (
                "groups=a,resource=b,verbs=get",
                Some("\"resource\" is none of its arguments"),
            ),
        ] {
            let text = format!("package a\n\n// +kubebuilder:rbac:{marker}\nfunc f() {{}}\n");
            let source = Source {
                path: "a/b.go".to_owned(),
                import: String::new(),
                file: go::parse(&text).unwrap(),
                text,
            };
            let found = wrong_rules(&source);
            match wrong {
                None => assert_eq!(found, Vec::<String>::new()),
                Some(wrong) => assert!(
                    matches!(&found[..], [one] if one.starts_with("a/b.go: ") && one.contains(wrong)),
                    "{found:?}"
                ),
            }
        }
    }
}
