//! Kubernetes' names as Rust identifiers.
//!
//! Groups may hold dots and hyphens, versions hyphens, and both may be reserved words; kinds may be called as things of
//! Rust's prelude are. Invariant: every function here answers an identifier that may stand anywhere, also as the name
//! of a file.

/// Words that cannot be a name of a module, and `test`, which would hide the attribute in many an editor's eyes.
const RESERVED: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Kinds that cannot be the name of a type beside which derived code stands: reserved, of the prelude, or imported
/// there.
const TAKEN: &[&str] = &[
    "Self",
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Condition",
    "Copy",
    "CustomResource",
    "Debug",
    "Default",
    "Deserialize",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "ExactSizeIterator",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Hash",
    "Into",
    "IntoIterator",
    "Iterator",
    "JsonSchema",
    "KubeSchema",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Send",
    "Serialize",
    "Sized",
    "Some",
    "String",
    "Sync",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Unpin",
    "Vec",
];

/// The name of a module for a group, a version or a controller: `dock.harbour` is `dock_harbour`, `type` is `type_`.
///
/// ```
/// use kubewright_codegen::names::rust::module;
/// assert_eq!(module("sea-lanes"), "sea_lanes");
/// assert_eq!(module("crate"), "crate_");
/// ```
#[must_use]
pub fn module(name: &str) -> String {
    let mut ident = part(name);
    if ident.starts_with(|c: char| c.is_ascii_digit()) || ident.is_empty() {
        ident.insert(0, '_');
    }
    if RESERVED.contains(&ident.as_str()) || ident.chars().all(|c| c == '_') {
        ident.push('_');
    }
    ident
}

/// A part of the name of a module, which more follows: as [`module`], but nothing is reserved here.
#[must_use]
pub fn part(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect()
}

/// The name of the type for a kind: the kind, unless Rust means something else by it (`Option` is `OptionResource`).
#[must_use]
pub fn kind(kind: &str) -> String {
    if TAKEN.contains(&kind) {
        format!("{kind}Resource")
    } else {
        kind.to_owned()
    }
}

/// A controller's name as the beginning of a type: `guestbook-backup` is `GuestbookBackup`.
#[must_use]
pub fn camel(name: &str) -> String {
    super::camel(name)
}

/// The crate that a package becomes in Rust paths: `my-app` is `my_app`.
#[must_use]
pub fn crate_name(package: &str) -> String {
    package.replace('-', "_")
}

/// The name of the package of a project: the project's, unless that is a word that cargo or Rust keeps for itself.
///
/// ```
/// use kubewright_codegen::names::rust::package;
/// assert_eq!(package("guestbook"), "guestbook");
/// assert_eq!(package("test"), "test-operator");
/// ```
#[must_use]
pub fn package(project: &str) -> String {
    // cargo refuses keywords and the names of its own folders; crates with the names of dependencies would hide them.
    const ALSO: &[&str] = &[
        "alloc",
        "build",
        "core",
        "deps",
        "examples",
        "incremental",
        "k8s-openapi",
        "kube",
        "kubewright",
        "kubewright-testing",
        "proc-macro",
        "proc_macro",
        "schemars",
        "serde",
        "serde-json",
        "std",
        "test",
        "tokio",
        "union",
        "tracing",
        "controller",
        "webhook",
    ];
    if RESERVED.contains(&project) || ALSO.contains(&project) {
        format!("{project}-operator")
    } else {
        project.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_identifier() {
        for name in [
            "crew",
            "dock.harbour",
            "sea-lanes",
            "type",
            "self",
            "crate",
            "v1-alpha",
            "3scale",
            "",
            "gen",
            "async",
        ] {
            let ident = module(name);
            assert!(syn::parse_str::<syn::Ident>(&ident).is_ok(), "{name} -> {ident}");
        }
        for name in ["Self", "Option", "Guestbook", "HTTPRoute"] {
            assert!(syn::parse_str::<syn::Ident>(&kind(name)).is_ok(), "{name}");
        }
        assert_eq!(camel("shift-audit"), "ShiftAudit");
    }
}
