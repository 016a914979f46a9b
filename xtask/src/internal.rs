//! Writes the tables of kube-apiserver's own Go structs, `crates/schema/data/kubernetes-1.36.internal` and those of later
//! versions, which have only the structs that changed.
//!
//! Messages of kube-apiserver show values by the structs that it works with, whose fields have other names, another
//! order and no `omitempty`. Their source are the Go modules `kubernetes`, `apiextensions-apiserver`, `kube-aggregator`
//! and `apimachinery`. The output depends on the input alone; its form is described in the header that is written into
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The oldest version that is served, whose table is whole. Those of later versions have the lines that differ.
const OLDEST: &str = "36";

const HEADER: &str = "\
# Structs by which kube-apiserver 1.36 shows values, written by `cargo xtask generate-internal`; see NOTICE.md. A line for each struct.
#
#   [package group]      the structs below are those of the package; kinds among them are of that API group, `-` for none
#   NAME FIELD:TYPE …    FIELD as it is shown, `?` after it when it vanishes with an empty value; without a name the fields of
#                        the struct stand in place. TYPE: a scalar or the NAME of a struct (of another package: package.NAME);
#                        before it, `*` for a pointer, `[]` for a list, `{}` for a map.
";

/// Package, API group (`-` for none), module, folder in the module.
const PACKAGES: &[(&str, &str, &str, &str)] = &[
    ("meta", "-", "apimachinery", "pkg/apis/meta/v1"),
    (
        "admissionregistration",
        "admissionregistration.k8s.io",
        "kubernetes",
        "pkg/apis/admissionregistration",
    ),
    (
        "apiextensions",
        "apiextensions.k8s.io",
        "apiextensions-apiserver",
        "pkg/apis/apiextensions",
    ),
    (
        "apiregistration",
        "apiregistration.k8s.io",
        "kube-aggregator",
        "pkg/apis/apiregistration",
    ),
    ("apps", "apps", "kubernetes", "pkg/apis/apps"),
    (
        "authentication",
        "authentication.k8s.io",
        "kubernetes",
        "pkg/apis/authentication",
    ),
    (
        "authorization",
        "authorization.k8s.io",
        "kubernetes",
        "pkg/apis/authorization",
    ),
    ("autoscaling", "autoscaling", "kubernetes", "pkg/apis/autoscaling"),
    ("batch", "batch", "kubernetes", "pkg/apis/batch"),
    (
        "certificates",
        "certificates.k8s.io",
        "kubernetes",
        "pkg/apis/certificates",
    ),
    (
        "coordination",
        "coordination.k8s.io",
        "kubernetes",
        "pkg/apis/coordination",
    ),
    ("core", "", "kubernetes", "pkg/apis/core"),
    ("discovery", "discovery.k8s.io", "kubernetes", "pkg/apis/discovery"),
    (
        "flowcontrol",
        "flowcontrol.apiserver.k8s.io",
        "kubernetes",
        "pkg/apis/flowcontrol",
    ),
    ("networking", "networking.k8s.io", "kubernetes", "pkg/apis/networking"),
    (
        "storagemigration",
        "storagemigration.k8s.io",
        "kubernetes",
        "pkg/apis/storagemigration",
    ),
    ("node", "node.k8s.io", "kubernetes", "pkg/apis/node"),
    ("policy", "policy", "kubernetes", "pkg/apis/policy"),
    ("rbac", "rbac.authorization.k8s.io", "kubernetes", "pkg/apis/rbac"),
    ("resource", "resource.k8s.io", "kubernetes", "pkg/apis/resource"),
    ("scheduling", "scheduling.k8s.io", "kubernetes", "pkg/apis/scheduling"),
    ("storage", "storage.k8s.io", "kubernetes", "pkg/apis/storage"),
];

/// Types that Go writes with code of their own, and what the table calls them.
const SPECIAL: &[(&str, &str)] = &[
    ("resource.Quantity", "quantity"),
    ("intstr.IntOrString", "intstr"),
    ("meta.Time", "time"),
    ("meta.MicroTime", "time"),
    ("meta.Duration", "duration"),
    ("meta.FieldsV1", "any"),
    ("apiextensions.JSON", "any"),
    ("runtime.Object", "any"),
    ("runtime.RawExtension", "any"),
    ("runtime.Unknown", "any"),
    ("interface{}", "any"),
    ("any", "any"),
    ("string", "string"),
    ("types.UID", "string"),
    ("corev1.Protocol", "string"),
    ("types.NodeName", "string"),
    ("bool", "bool"),
    ("int", "int"),
    ("int16", "int"),
    ("int32", "int"),
    ("int64", "int"),
    ("uint16", "int"),
    ("uint32", "int"),
    ("float64", "int"),
    ("time.Duration", "int"),
];

/// Runs `cargo xtask generate-internal --source DIR [--version VERSION] [--check]`.
///
/// `--source` is the folder `k8s.io` of a Go module cache, `--version` the version of Kubernetes in it. `--check`
/// writes nothing and fails when the committed file is not what would be written.
///
/// # Errors
/// The source that could not be read or understood; with `--check`, that the file is not current.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (mut source, mut version, mut check) = (None, "36.3".to_owned(), false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--source" => source = args.next().map(PathBuf::from),
            "--version" => {
                let given = args.next().and_then(|version| version.strip_prefix("1."));
                given
                    .ok_or("generate-internal: --version takes a version such as 1.36.3")?
                    .clone_into(&mut version);
            }
            "--check" => check = true,
            other => return Err(format!("generate-internal: unknown argument {other:?}")),
        }
    }
    let source = source.ok_or("usage: cargo xtask generate-internal --source DIR [--version 1.36.3] [--check]")?;
    let mut text = table(&source, &version)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no workspace above it")?;
    let minor = version.split('.').next().unwrap_or_default();
    let output = |minor: &str| format!("crates/schema/data/kubernetes-1.{minor}.internal");
    if minor != OLDEST {
        text = changed(&text, &read(&root.join(output(OLDEST)))?);
    }
    let output = output(minor);
    let file = root.join(&output);
    if check {
        return match read(&file)? == text {
            true => Ok(()),
            false => Err(format!(
                "{output} is not current: run `cargo xtask generate-internal` without --check"
            )),
        };
    }
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// The lines of a table that another one does not have, below their packages.
fn changed(table: &str, older: &str) -> String {
    let known: BTreeSet<&str> = older.lines().filter(|line| !line.starts_with('[')).collect();
    let mut text = String::new();
    let mut package = "";
    for line in table.lines() {
        if line.starts_with('[') {
            package = line;
        } else if !line.is_empty() && !line.starts_with('#') && !known.contains(line) {
            let _ = match std::mem::take(&mut package) {
                "" => writeln!(text, "{line}"),
                package => writeln!(text, "\n{package}\n{line}"),
            };
        }
    }
    format!("# What differs from the table of an older version, whose header says how it is read.\n{text}")
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// The definition behind the name of a type.
enum Type {
    /// Fields in their order.
    Struct(Vec<Field>),
    /// Another name of a type.
    Alias(String),
}

struct Field {
    /// As it is shown; empty for an embedded struct.
    name: String,
    /// `omitempty`, which structs ignore.
    omitted: bool,
    /// `omitzero`.
    omitted_zero: bool,
    type_: String,
}

type Types = BTreeMap<String, Type>;

fn table(source: &Path, minor: &str) -> Result<String, String> {
    let mut types = Types::new();
    for (package, _, module, folder) in PACKAGES {
        let major = if *module == "kubernetes" { "1" } else { "0" };
        let folder = source.join(format!("{module}@v{major}.{minor}")).join(folder);
        for file in ["types.go", "types_jsonschema.go", "group_version.go"] {
            let file = folder.join(file);
            if file.exists() {
                go_file(package, &read(&file)?, &mut types).map_err(|why| format!("{}: {why}", file.display()))?;
            }
        }
    }
    let mut text = HEADER.to_owned();
    for (package, group, ..) in PACKAGES {
        let _ = write!(text, "\n[{package} {group}]\n");
        let of_package = types
            .iter()
            .filter_map(|(name, type_)| Some((name.strip_prefix(&format!("{package}."))?, type_)));
        for (name, type_) in of_package {
            if let Type::Struct(fields) = type_
                && !SPECIAL
                    .iter()
                    .any(|(special, _)| *special == format!("{package}.{name}"))
                && !name.ends_with("List")
            {
                let line = line(package, fields, &types).map_err(|why| format!("{package}.{name}: {why}"))?;
                let _ = writeln!(text, "{name}{line}");
            }
        }
    }
    Ok(text)
}

fn line(package: &str, fields: &[Field], types: &Types) -> Result<String, String> {
    let mut line = String::new();
    for field in fields {
        let Field { name, type_, .. } = field;
        let type_ = resolve(type_, types)?;
        let is_struct = type_ == "time" || types.contains_key(&type_);
        let near = format!("{package}.");
        let type_ = type_.replacen(&near, "", usize::from(type_.contains(&near)));
        let omitted = if field.omitted_zero || (field.omitted && !is_struct) {
            "?"
        } else {
            ""
        };
        let _ = write!(line, " {name}{omitted}:{type_}");
    }
    Ok(line)
}

/// A type with all other names replaced by what they stand for.
fn resolve(type_: &str, types: &Types) -> Result<String, String> {
    for prefix in ["*", "[]", "{}"] {
        if let Some(rest) = type_.strip_prefix(prefix) {
            return Ok(if type_ == "[]byte" {
                "bytes".to_owned()
            } else {
                format!("{prefix}{}", resolve(rest, types)?)
            });
        }
    }
    if let Some((_, word)) = SPECIAL.iter().find(|(name, _)| *name == type_) {
        return Ok((*word).to_owned());
    }
    match types.get(type_) {
        Some(Type::Struct(_)) => Ok(type_.to_owned()),
        Some(Type::Alias(other)) => resolve(other, types),
        // A field behind a feature gate that is shut, which has no value.
        None if type_.starts_with("schedulingv1alpha3.") => Ok("any".to_owned()),
        None => Err(format!("{type_} is not known")),
    }
}

fn go_file(package: &str, text: &str, found: &mut Types) -> Result<(), String> {
    let text = without_blocks(text);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.split("//").next().unwrap_or("").trim_end();
        let Some((name, kind)) = line.strip_prefix("type ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let kind = kind.trim().trim_start_matches("= ");
        let type_ = match kind {
            "struct {" => Type::Struct(go_struct(package, &mut lines).map_err(|why| format!("{name}: {why}"))?),
            "struct{}" => Type::Struct(Vec::new()),
            "interface {" | "interface{}" => Type::Alias("any".to_owned()),
            other => Type::Alias(qualified(package, other)),
        };
        found.insert(format!("{package}.{name}"), type_);
    }
    Ok(())
}

/// The text without comments of the form `/* … */` that begin a line; in the middle of one it is a glob.
fn without_blocks(text: &str) -> String {
    let mut kept = String::new();
    let mut inside = false;
    for line in text.lines() {
        inside |= line.trim_start().starts_with("/*");
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
        inside &= !line.contains("*/");
    }
    kept
}

fn go_struct<'a>(package: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    for line in lines.by_ref().take_while(|line| *line != "}") {
        let (declaration, tags) = line.split_once('`').unwrap_or((line, ""));
        let declaration = declaration.split("//").next().unwrap_or("");
        let words: Vec<&str> = declaration.split_whitespace().collect();
        let json = tags
            .split_once("json:\"")
            .map(|(_, rest)| rest.split('"').next().unwrap_or(""));
        let mut json_words = json.unwrap_or("").split(',');
        let json_name = json_words.next().unwrap_or("");
        let flags: Vec<&str> = json_words.collect();
        let (name, type_) = match words.as_slice() {
            [] => continue,
            [embedded] => ("", *embedded),
            [name, type_] if !json_name.is_empty() => {
                let _ = name;
                (json_name, *type_)
            }
            [name, type_] => (*name, *type_),
            _ => return Err(format!("not understood: {line}")),
        };
        if name != "-" {
            fields.push(Field {
                name: name.to_owned(),
                omitted: flags.contains(&"omitempty"),
                omitted_zero: flags.contains(&"omitzero"),
                type_: qualified(package, type_),
            });
        }
    }
    Ok(fields)
}

/// `map[ResourceName]resource.Quantity` as `{}resource.Quantity`, `Volume` as `core.Volume`.
fn qualified(package: &str, type_: &str) -> String {
    for prefix in ["*", "[]"] {
        if let Some(rest) = type_.strip_prefix(prefix) {
            return format!("{prefix}{}", qualified(package, rest));
        }
    }
    if let Some((_, value)) = type_.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("{{}}{}", qualified(package, value));
    }
    match type_.split_once('.') {
        Some(("metav1", name)) => format!("meta.{name}"),
        Some(("api" | "v1", name)) => format!("core.{name}"),
        Some(_) => type_.to_owned(),
        None if type_.starts_with(char::is_uppercase) => format!("{package}.{type_}"),
        None => type_.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_become_lines() {
        let source = "type A struct {\n\tmetav1.ObjectMeta\n\t// why\n\tPorts []Port\n\tLimits Limits // words\n\tTagged *string `json:\"tagged,omitempty\" protobuf:\"x\"`\n}\n\
                      type Port struct {\n\tNumber int32\n}\ntype Limits map[Name]resource.Quantity\ntype Name string\n";
        let mut types = Types::new();
        types.insert("meta.ObjectMeta".to_owned(), Type::Struct(Vec::new()));
        go_file("core", source, &mut types).expect("the file is read");
        let Type::Struct(fields) = &types["core.A"] else {
            panic!("a struct")
        };
        assert_eq!(
            line("core", fields, &types).expect("a line"),
            " :meta.ObjectMeta Ports:[]Port Limits:{}quantity tagged?:*string"
        );
    }
}
