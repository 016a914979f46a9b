//! Names: the rules for those of groups, versions, kinds and projects, and their forms in Rust.
//!
//! The rules are Kubernetes' (DNS-1123, DNS-1035) and, where a name becomes a Rust type or module, Rust's too. A name
//! is checked before anything is planned, so that no half of a project is written with a name that the other half
//! cannot bear. Inside: `plural` guesses plurals, [`rust`] makes identifiers. Not here: whether a name is taken, which
//! [`crate::project`] knows.

use std::fmt;

use kubewright_schema::names::{dns1035_label, dns1123_label, dns1123_subdomain};

mod plural;
pub mod rust;

pub(crate) use plural::generated_plural;
pub use plural::plural;

/// Why a name cannot be used, and a name that could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName {
    /// The reason, without the name.
    pub why: String,
    /// The fix.
    pub fix: String,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl BadName {
    fn new(why: impl Into<String>, fix: impl Into<String>) -> BadName {
        BadName {
            why: why.into(),
            fix: fix.into(),
        }
    }
}

/// The verdict of a check.
pub type Checked = Result<(), BadName>;

/// The first group name that Kubernetes takes and that `text` may have meant.
fn lowered(text: &str, also: &[char]) -> String {
    let mut last = '-';
    let mut name = String::new();
    for c in text.to_lowercase().chars() {
        let c = if c.is_ascii_alphanumeric() || also.contains(&c) {
            c
        } else {
            '-'
        };
        if !(matches!(c, '-' | '.') && matches!(last, '-' | '.')) {
            name.push(c);
        }
        last = c;
    }
    name.trim_matches(|c| c == '-' || c == '.').to_owned()
}

/// A name to take instead, if it is one that `wrong` has nothing against.
fn offer(name: &str, otherwise: &str, wrong: fn(&str) -> Vec<String>) -> String {
    let letters = name.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
    match [name, letters].into_iter().find(|name| wrong(name).is_empty()) {
        Some(name) => format!("for example `{name}`"),
        None => otherwise.to_owned(),
    }
}

/// Projects whose namespace `<name>-system` is that of a widespread system. The list need not be whole: `deploy` touches
/// no namespace that lacks the project's label.
const TAKEN: [&str; 10] = [
    "calico",
    "cattle",
    "cilium",
    "crossplane",
    "flux",
    "gatekeeper",
    "gmp",
    "istio",
    "longhorn",
    "metallb",
];

/// The name of a project: a DNS-1123 label, because it is part of the name of a namespace (`<name>-system`) and of
/// every object in it.
///
/// ```
/// use kubewright_codegen::names;
/// assert!(names::project("guestbook").is_ok());
/// let wrong = names::project("My Project").unwrap_err();
/// assert_eq!(wrong.fix, "for example `my-project`");
/// ```
///
/// # Errors
/// When it is no DNS-1123 label, so long that the names made of it would be too long, or the name of a system whose
/// namespace the operator would take over.
pub fn project(name: &str) -> Checked {
    let fix = || offer(&lowered(name, &[]), "take a name such as `guestbook`", dns1123_label);
    if let Some(why) = dns1123_label(name).into_iter().next() {
        return Err(BadName::new(why, fix()));
    }
    // The longest name that is made of it: `<name>-controller-manager-metrics-service`, a Service and so a DNS-1035
    // label.
    const LONGEST: usize = 63 - "-controller-manager-metrics-service".len();
    if name.len() > LONGEST {
        return Err(BadName::new(
            format!(
                "names made of it (`{name}-controller-manager-metrics-service`) would be longer than 63 characters"
            ),
            format!("take a name of at most {LONGEST} characters"),
        ));
    }
    if name == "kube" || name.starts_with("kube-") {
        return Err(BadName::new(
            format!(
                "the operator's namespace would be `{name}-system`, and Kubernetes keeps those that begin with `kube-`"
            ),
            format!("for example `my-{name}`"),
        ));
    }
    if TAKEN.contains(&name) {
        return Err(BadName::new(
            format!("the operator's namespace would be `{name}-system`, which is that of {name} itself"),
            format!("for example `{name}-operator`"),
        ));
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(BadName::new(
            "a Rust package and a Service must not begin with a digit",
            format!("for example `operator-{name}`"),
        ));
    }
    Ok(())
}

/// The domain that groups of a project belong to: a DNS-1123 subdomain.
///
/// # Errors
/// When it is none.
pub fn domain(name: &str) -> Checked {
    match dns1123_subdomain(name).into_iter().next() {
        Some(why) => Err(BadName::new(
            why,
            offer(
                &lowered(name, &['.']),
                "take a domain such as `my.domain`",
                dns1123_subdomain,
            ),
        )),
        None => Ok(()),
    }
}

/// A group without its domain (`webapp`), which may be empty: the domain alone is the group then.
///
/// # Errors
/// When group and domain together are no DNS-1123 subdomain with a dot, as CRDs ask for.
pub fn group(group: &str, domain: &str) -> Checked {
    let full = full_group(group, domain);
    if full.is_empty() {
        return Err(BadName::new(
            "group and domain are both empty",
            "name a group, such as `webapp`",
        ));
    }
    match dns1123_subdomain(&full).into_iter().next() {
        Some(why) => {
            let part = if dns1123_subdomain(group).is_empty() {
                domain
            } else {
                group
            };
            Err(BadName::new(
                why,
                offer(
                    &lowered(part, &['.']),
                    "take a group such as `webapp`",
                    dns1123_subdomain,
                ),
            ))
        }
        None => Ok(()),
    }
}

/// A group of the project's own: groups without a dot are Kubernetes'.
///
/// # Errors
/// When group and domain together have no dot.
pub fn own_group(group: &str, domain: &str) -> Checked {
    if full_group(group, domain).contains('.') {
        return Ok(());
    }
    Err(BadName::new(
        "the project has no domain, and a group without a dot cannot be that of a CustomResourceDefinition",
        format!("write the group in full, for example `{group}.my.domain`"),
    ))
}

/// Group and domain as they stand in an `apiVersion`: `webapp.my.domain`; the core group is empty.
///
/// ```
/// use kubewright_codegen::names::full_group;
/// assert_eq!(full_group("webapp", "my.domain"), "webapp.my.domain");
/// assert_eq!(full_group("", "my.domain"), "my.domain");
/// assert_eq!(full_group("apps", ""), "apps");
/// ```
#[must_use]
pub fn full_group(group: &str, domain: &str) -> String {
    match (group, domain) {
        ("", only) | (only, "") => only.to_owned(),
        (group, domain) => format!("{group}.{domain}"),
    }
}

/// A version: a DNS-1035 label, as CRDs and Rust modules ask for; `v1`, `v1beta1`.
///
/// # Errors
/// When it is empty or none.
pub fn version(name: &str) -> Checked {
    const FIX: &str = "versions look like `v1`, `v1alpha1` or `v2beta3`";
    if name.is_empty() {
        return Err(BadName::new("a version is needed", FIX));
    }
    match dns1035_label(name).into_iter().next() {
        Some(why) if name.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(BadName::new(why, format!("for example `v{}`", lowered(name, &[]))))
        }
        Some(why) => Err(BadName::new(why, FIX)),
        None => Ok(()),
    }
}

/// A kind: begins with an upper-case letter and holds only letters and digits, because it becomes a Rust type and, in
/// lower case, the singular name in the CRD.
///
/// ```
/// use kubewright_codegen::names;
/// assert!(names::kind("HTTPRoute").is_ok());
/// assert_eq!(names::kind("my-kind").unwrap_err().fix, "for example `MyKind`");
/// ```
///
/// # Errors
/// When it is empty, begins in lower case, or holds anything else.
pub fn kind(name: &str) -> Checked {
    let fix = || {
        offer(&camel(name), "take a kind such as `Guestbook`", |name| {
            dns1035_label(&name.to_lowercase())
        })
    };
    if name.is_empty() {
        return Err(BadName::new("a kind is needed", "take a kind such as `Guestbook`"));
    }
    if let Some(wrong) = name.chars().find(|c| !c.is_ascii_alphanumeric()) {
        return Err(BadName::new(
            format!("a kind is written in ASCII letters and digits, and {wrong:?} is none (it becomes a Rust type)"),
            fix(),
        ));
    }
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Err(BadName::new("a kind must start with an upper-case letter", fix()));
    }
    match dns1035_label(&name.to_lowercase()).into_iter().next() {
        Some(why) => Err(BadName::new(why, "take a shorter kind")),
        None => Ok(()),
    }
}

/// The words of a text, put together as a kind is written.
fn camel(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let upper = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    };
    words
        .map(upper)
        .collect::<String>()
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .to_owned()
}

/// A plural: a DNS-1035 label; the name of the resource in URLs.
///
/// # Errors
/// When it is none.
pub fn plural_name(name: &str) -> Checked {
    match dns1035_label(name).into_iter().next() {
        Some(why) => Err(BadName::new(
            why,
            offer(&lowered(name, &[]), "take a plural such as `guestbooks`", dns1035_label),
        )),
        None => Ok(()),
    }
}

/// The name of a controller: a DNS-1035 label; it stands in logs, metrics and the names of files.
///
/// # Errors
/// When it is none.
pub fn controller(name: &str) -> Checked {
    match dns1035_label(name).into_iter().next() {
        Some(why) => Err(BadName::new(
            why,
            offer(
                &lowered(name, &[]),
                "take a name such as `guestbook-backup`",
                dns1035_label,
            ),
        )),
        None => Ok(()),
    }
}

/// The path of a webhook: begins with `/` and needs no escapes.
///
/// # Errors
/// When it is none, or is the one of conversion.
pub fn webhook_path(path: &str) -> Checked {
    const FIX: &str = "take a path such as `/mutate-webapp-my-domain-v1-guestbook`";
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
    if !path.starts_with('/') || path.len() < 2 || path.contains("//") || !path.chars().all(plain) {
        return Err(BadName::new(
            "the path of a webhook begins with `/` and is written in letters, digits, `-`, `.`, `_`, `~` and `/`",
            FIX,
        ));
    }
    if path == "/convert" {
        return Err(BadName::new("`/convert` is the path of conversion", FIX));
    }
    Ok(())
}

/// The known word that was probably meant: one that is a slip of the finger or two away.
pub(crate) fn near<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    let folded = word.to_lowercase();
    let allowed = |other: &str| (other.len().min(word.len()) / 3).clamp(1, 2);
    let mut fitting: Vec<(usize, &'w str)> = known
        .iter()
        .map(|other| (strsim::osa_distance(&folded, &other.to_lowercase()), *other))
        .filter(|(apart, other)| *apart <= allowed(other))
        .collect();
    fitting.sort_unstable();
    fitting.first().map(|(_, other)| *other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_or_refused_with_a_better_one() {
        let mut told = String::new();
        let mut check = |what: &str, name: &str, checked: Checked| {
            let verdict = match checked {
                Ok(()) => "ok".to_owned(),
                Err(bad) => format!("{} | {}", bad.why.split(" (e.g.").next().unwrap_or_default(), bad.fix),
            };
            told += &format!("{what} {name:?}: {verdict}\n");
        };
        for name in [
            "guestbook",
            "my-app2",
            "Bad_Name",
            "my project",
            "2nd",
            "",
            "a-name-that-is-rather-long-for-a-project",
            "kube",
            "kube-proxy",
            "istio",
            "kubewright",
        ] {
            check("project", name, project(name));
        }
        for (name, under) in [
            ("webapp", "my.domain"),
            ("", "my.domain"),
            ("dock.harbour", "fleet.example"),
            ("WebApp", "my.domain"),
            ("g", "My_Domain"),
            ("", ""),
        ] {
            check("group", name, group(name, under));
        }
        for name in ["v1", "v1alpha1", "V1", "1", "", "v1.2"] {
            check("version", name, version(name));
        }
        for name in ["HTTPRoute", "Self", "other", "My-Kind", "", "Größe"] {
            check("kind", name, kind(name));
        }
        for name in ["gateways", "Oth ers"] {
            check("plural", name, plural_name(name));
        }
        for name in ["/x", "x", "/convert", "/a b", "/"] {
            check("path", name, webhook_path(name));
        }
        insta::assert_snapshot!(told);
    }
}
