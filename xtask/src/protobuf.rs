//! Writes the table of protobuf messages of all versions that are served, `crates/schema/data/kubernetes.protobuf`.
//!
//! Its source are the Go modules that publish the Kubernetes API. Their `generated.proto` files have the messages with
//! tags and types; the Go types beside them have the JSON name of each field, whether it is a pointer (then a zero is a
//! value) and whether it is inlined. The two are joined on (package, message, tag), and a field that one has and the
//! other has not is an error.
//!
//! No tag ever changes its meaning, so one table serves all versions: a run adds the messages and fields of one version,
//! and keeps those that only others have ([`union`]). A schema says which of them a version knows.
//!
//! The output depends on the input and on the committed file alone. Its form is described in the header that is written into it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const OUTPUT: &str = "crates/schema/data/kubernetes.protobuf";

const HEADER: &str = "\
# Protobuf messages of Kubernetes 1.36 to 1.37, written by `cargo xtask generate-protobuf`; see NOTICE.md. A line for each message.
#
#   [prefix apiVersion]     the messages below are prefix.NAME; kinds among them are of that apiVersion
#   NAME TAG:FIELD:TYPE …   in the order of Go's struct. FIELD is the JSON name; without one the fields of the message are
#                           inlined, `.` stands for the whole value. TYPE: a scalar or the NAME of a message (of another package: its full name);
#                           before it, `*` for a pointer, `[]` for a list, `{}` for a map with string keys.
";

/// The one beta version that is served.
const METRICS: &str = "metrics/pkg/apis/metrics/v1beta1";

/// Messages that Go reads and writes with code of their own; the schema crate knows them by name.
const SPECIAL: &[&str] = &[
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.api.resource.QuantityValue",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Duration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apimachinery.pkg.runtime.Unknown",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];

/// Runs `cargo xtask generate-protobuf --source DIR [--version VERSION] [--check]`.
///
/// `--source` is the folder `k8s.io` of a Go module cache, `--version` the version of the modules in it. `--check`
/// writes nothing and fails when the committed file is not what would be written.
///
/// # Errors
/// The source that could not be read or understood, or a disagreement between the messages and the types; with
/// `--check`, that the file is not current.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let packages = packages(&options)?;
    let text = table(&packages)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no workspace above it")?;
    let file = root.join(OUTPUT);
    let text = union(&read(&file).unwrap_or_default(), &text);
    if options.check {
        return match read(&file)? == text {
            true => Ok(()),
            false => Err(format!(
                "{OUTPUT} is not current: run `cargo xtask generate-protobuf` without --check"
            )),
        };
    }
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// The new table with the sections, messages and fields that only the old one has. A field stands behind the one that it
/// stood behind.
fn union(old: &str, new: &str) -> String {
    let mut sections = sections(new);
    for (head, messages) in self::sections(old) {
        let section = match sections.iter().position(|(known, _)| *known == head) {
            Some(place) => &mut sections[place].1,
            None => {
                sections.push((head, Vec::new()));
                sections.sort();
                let place = sections.iter().position(|(known, _)| *known == head);
                &mut sections[place.unwrap_or_default()].1
            }
        };
        for (name, fields) in messages {
            match section.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => join(known, &fields),
                None => section.push((name, fields)),
            }
        }
        section.sort_by_key(|(name, _)| *name);
    }
    let mut text = HEADER.to_owned();
    for (head, messages) in sections {
        text.push_str(&format!("\n{head}\n"));
        for (name, fields) in messages {
            text.push_str(&[&[name], &fields[..]].concat().join(" "));
            text.push('\n');
        }
    }
    text
}

/// Heads of sections with their messages, each with its fields.
type Sections<'a> = Vec<(&'a str, Vec<(&'a str, Vec<&'a str>)>)>;

fn sections(table: &str) -> Sections<'_> {
    let mut sections: Sections<'_> = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.starts_with('['), sections.last_mut()) {
            (false, Some((_, messages))) => {
                let mut words = line.split(' ');
                messages.push((words.next().unwrap_or_default(), words.collect()));
            }
            _ => sections.push((line, Vec::new())),
        }
    }
    sections
}

fn join<'a>(known: &mut Vec<&'a str>, old: &[&'a str]) {
    let tag = |field: &str| field.split(':').next().unwrap_or_default().to_owned();
    for (index, field) in old.iter().enumerate() {
        if known.iter().any(|one| tag(one) == tag(field)) {
            continue;
        }
        let before = index.checked_sub(1).map(|index| tag(old[index]));
        let place = known.iter().position(|one| Some(tag(one)) == before);
        known.insert(place.map_or(0, |place| place + 1), field);
    }
}

struct Options {
    source: PathBuf,
    version: String,
    check: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let usage = "usage: cargo xtask generate-protobuf --source DIR [--version 0.36.3] [--check]";
        let (mut source, mut version, mut check) = (None, "0.36.3".to_owned(), false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--source" => source = args.next().map(PathBuf::from),
                "--version" => {
                    version = args
                        .next()
                        .ok_or("generate-protobuf: --version without a value")?
                        .clone();
                }
                "--check" => check = true,
                other => return Err(format!("generate-protobuf: unknown argument {other:?}\n{usage}")),
            }
        }
        let source = source.ok_or(format!("generate-protobuf: --source is missing\n{usage}"))?;
        Ok(Self { source, version, check })
    }
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// One Go package.
struct Package {
    /// `io.k8s.api.core.v1`
    prefix: String,
    api_version: String,
    messages: BTreeMap<String, Vec<Field>>,
    types: BTreeMap<String, GoType>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    tag: u32,
    shape: &'static str,
    /// A scalar, a message of the same package, or the full name of one of another.
    type_: String,
}

enum GoType {
    Struct(BTreeMap<u32, GoField>),
    /// `type Verbs []string`
    Strings,
    /// Another name for a type of another package.
    Other,
}

struct GoField {
    json: String,
    pointer: bool,
    /// Where it stands in the struct, which is where it stands in JSON.
    position: usize,
}

/// All packages of generally available versions.
fn packages(options: &Options) -> Result<Vec<Package>, String> {
    let mut paths = vec![
        "apiextensions-apiserver/pkg/apis/apiextensions/v1".to_owned(),
        "apimachinery/pkg/api/resource".to_owned(),
        "apimachinery/pkg/apis/meta/v1".to_owned(),
        "apimachinery/pkg/runtime".to_owned(),
        "apimachinery/pkg/util/intstr".to_owned(),
        "kube-aggregator/pkg/apis/apiregistration/v1".to_owned(),
        METRICS.to_owned(),
    ];
    let api = options.source.join(format!("api@v{}", options.version));
    for group in folders(&api)? {
        let versions = folders(&api.join(&group))?;
        let stable = versions.into_iter().filter(|version| is_stable(version));
        paths.extend(stable.map(|version| format!("api/{group}/{version}")));
    }
    paths.sort();
    let read = |path: &String| package(options, path).map_err(|why| format!("{path}: {why}"));
    let mut packages = paths.iter().map(read).collect::<Result<Vec<Package>, _>>()?;
    // A field behind a gate may have a type of an alpha version: of such a package only what is used comes along.
    while let Some((path, name)) = beyond(&packages) {
        let whole = read(&path)?;
        let found = packages.iter().position(|known| known.prefix == whole.prefix);
        let place = found.unwrap_or_else(|| {
            packages.push(Package {
                prefix: whole.prefix.clone(),
                api_version: "-".to_owned(),
                messages: BTreeMap::new(),
                types: BTreeMap::new(),
            });
            packages.len() - 1
        });
        let fields = whole
            .messages
            .get(&name)
            .ok_or_else(|| format!("{path} has no message {name}"))?
            .clone();
        packages[place].types.extend(whole.types);
        packages[place].messages.insert(name, fields);
    }
    packages.sort_by(|a, b| a.prefix.cmp(&b.prefix));
    Ok(packages)
}

/// The first message that is used and not there: the path of its package, and its name.
fn beyond(packages: &[Package]) -> Option<(String, String)> {
    let has = |prefix: &str, name: &str| {
        packages
            .iter()
            .any(|package| package.prefix == prefix && package.messages.contains_key(name))
            || SPECIAL.contains(&format!("{prefix}.{name}").as_str())
    };
    for package in packages {
        for field in package.messages.values().flatten() {
            if SCALARS.contains(&field.type_.as_str()) {
                continue;
            }
            let (prefix, name) = field.type_.rsplit_once('.').unwrap_or((&package.prefix, &field.type_));
            if !has(prefix, name) {
                return Some((prefix.trim_start_matches("io.k8s.").replace('.', "/"), name.to_owned()));
            }
        }
    }
    None
}

/// `v1` and `v2`, not `v1beta1`, not `testdata`.
fn is_stable(version: &str) -> bool {
    version
        .strip_prefix('v')
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn folders(parent: &Path) -> Result<Vec<String>, String> {
    let unreadable = |error| format!("cannot list {}: {error}", parent.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(parent).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

fn package(options: &Options, path: &str) -> Result<Package, String> {
    let (module, rest) = path.split_once('/').ok_or("no path in the module")?;
    let folder = options.source.join(format!("{module}@v{}", options.version)).join(rest);
    Ok(Package {
        prefix: format!("io.k8s.{}", path.replace('/', ".")),
        api_version: api_version(path, &folder)?,
        messages: messages(&read(&folder.join("generated.proto"))?)?,
        types: go_types(&folder)?,
    })
}

/// The apiVersion, whose group stands in the package's register.go; `-` for packages that are no group.
fn api_version(path: &str, folder: &Path) -> Result<String, String> {
    let version = path.rsplit('/').next().unwrap_or("");
    if !is_stable(version) && path != METRICS {
        return Ok("-".to_owned());
    }
    let register = read(&folder.join("register.go"))?;
    let line = register
        .lines()
        .find(|line| line.contains("GroupName = \""))
        .ok_or("no GroupName in register.go")?;
    let group = line.split('"').nth(1).ok_or("GroupName is not a string")?;
    Ok(if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    })
}

/// The messages of a `generated.proto`.
fn messages(text: &str) -> Result<BTreeMap<String, Vec<Field>>, String> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("message ").and_then(|rest| rest.strip_suffix(" {")) else {
            continue;
        };
        let body = lines.by_ref().take_while(|line| *line != "}").map(str::trim);
        let fields = body
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .map(field)
            .collect::<Result<_, _>>();
        found.insert(name.to_owned(), fields.map_err(|why| format!("{name}: {why}"))?);
    }
    Ok(found)
}

/// Reads `repeated .k8s.io.api.core.v1.Container containers = 2;` or `map<string, bytes> data = 2;`.
fn field(line: &str) -> Result<Field, String> {
    let odd = || format!("not understood: {line}");
    let (declaration, tag) = line
        .strip_suffix(';')
        .and_then(|line| line.rsplit_once(" = "))
        .ok_or_else(odd)?;
    let (type_, _name) = declaration.rsplit_once(' ').ok_or_else(odd)?;
    let (shape, type_) = if let Some(type_) = type_.strip_prefix("optional ") {
        ("", type_)
    } else if let Some(type_) = type_.strip_prefix("repeated ") {
        ("[]", type_)
    } else if let Some(type_) = type_
        .strip_prefix("map<string, ")
        .and_then(|type_| type_.strip_suffix('>'))
    {
        ("{}", type_)
    } else {
        return Err(odd());
    };
    let type_ = match type_.strip_prefix(".k8s.io.") {
        Some(rest) => format!("io.k8s.{}", rest.replace('_', "-")),
        None => type_.to_owned(),
    };
    Ok(Field {
        tag: tag.parse().map_err(|_| odd())?,
        shape,
        type_,
    })
}

/// The types of a Go package, out of all its files that are written by hand.
fn go_types(folder: &Path) -> Result<BTreeMap<String, GoType>, String> {
    let unreadable = |error| format!("cannot list {}: {error}", folder.display());
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let name = file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.ends_with(".go")
            && !name.ends_with("_test.go")
            && !name.starts_with("zz_")
            && !name.starts_with("generated")
        {
            go_file(&read(&file)?, &mut found).map_err(|why| format!("{}: {why}", file.display()))?;
        }
    }
    Ok(found)
}

fn go_file(text: &str, found: &mut BTreeMap<String, GoType>) -> Result<(), String> {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((name, kind)) = line.strip_prefix("type ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let type_ = match kind.trim() {
            "struct {" => GoType::Struct(go_struct(&mut lines).map_err(|why| format!("{name}: {why}"))?),
            "struct{}" => GoType::Struct(BTreeMap::new()),
            "[]string" => GoType::Strings,
            _ => GoType::Other,
        };
        found.insert(name.to_owned(), type_);
    }
    Ok(())
}

fn go_struct<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<BTreeMap<u32, GoField>, String> {
    let mut fields = BTreeMap::new();
    for line in lines.by_ref().take_while(|line| *line != "}").map(str::trim) {
        if line.starts_with("//") {
            continue;
        }
        let Some((declaration, tags)) = line.split_once('`') else {
            continue;
        };
        let Some(protobuf) = tag_of(tags, "protobuf").filter(|tag| *tag != "-") else {
            continue;
        };
        let number = protobuf.split(',').nth(1).and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| format!("no tag: {line}"))?;
        let json = tag_of(tags, "json").unwrap_or("-");
        let mut json_words = json.split(',');
        let name = json_words.next().unwrap_or("").to_owned();
        // An embedded type is inlined, which 1.37 does not say any more.
        let is_embedded = declaration.split_whitespace().count() == 1;
        if name.is_empty() && !is_embedded && !json_words.any(|word| word == "inline") {
            return Err(format!("no JSON name: {line}"));
        }
        let type_ = declaration.split_whitespace().last().unwrap_or("");
        let position = fields.len();
        fields.insert(
            number,
            GoField {
                json: name,
                pointer: type_.starts_with('*'),
                position,
            },
        );
    }
    Ok(fields)
}

fn tag_of<'a>(tags: &'a str, key: &str) -> Option<&'a str> {
    let start = tags.find(&format!("{key}:\""))? + key.len() + 2;
    tags[start..].split('"').next()
}

const SCALARS: &[&str] = &["string", "bool", "int32", "int64", "double", "bytes"];

fn table(packages: &[Package]) -> Result<String, String> {
    let mut text = HEADER.to_owned();
    let mut names: Vec<String> = SPECIAL.iter().map(|name| (*name).to_owned()).collect();
    let mut used = Vec::new();
    for package in packages {
        let prefix = &package.prefix;
        let full = |name: &str| format!("{prefix}.{name}");
        let mut lines = Vec::new();
        for (name, fields) in &package.messages {
            if SPECIAL.contains(&full(name).as_str()) {
                continue;
            }
            if let Some(line) = line(package, name, fields).map_err(|why| format!("{prefix}.{name}: {why}"))? {
                lines.push(line);
                names.push(full(name));
                let messages = fields.iter().filter(|field| !SCALARS.contains(&field.type_.as_str()));
                used.extend(messages.map(|field| {
                    if field.type_.contains('.') {
                        field.type_.clone()
                    } else {
                        full(&field.type_)
                    }
                }));
            }
        }
        if !lines.is_empty() {
            let _ = write!(text, "\n[{prefix} {}]\n{}\n", package.api_version, lines.join("\n"));
        }
    }
    match used.iter().find(|name| !names.contains(name)) {
        Some(name) => Err(format!("{name} is used and not there")),
        None => Ok(text),
    }
}

/// The line of a message; none for another name of a message of another package.
fn line(package: &Package, name: &str, fields: &[Field]) -> Result<Option<String>, String> {
    let go = match package.types.get(name) {
        Some(GoType::Struct(go)) => go,
        Some(GoType::Strings) => {
            let strings = matches!(fields, [field] if field.tag == 1 && field.type_ == "string" && field.shape == "[]");
            return if strings {
                Ok(Some(format!("{name} 1:.:[]string")))
            } else {
                Err("not a list of strings".to_owned())
            };
        }
        Some(GoType::Other) => return Ok(None),
        None => return Err("there is no Go type of this name".to_owned()),
    };
    if let Some(tag) = go.keys().find(|tag| !fields.iter().any(|field| field.tag == **tag)) {
        return Err(format!("tag {tag} is in the Go type alone"));
    }
    let mut sorted: Vec<&Field> = fields.iter().collect();
    sorted.sort_by_key(|field| go.get(&field.tag).map(|go| go.position));
    let mut line = name.to_owned();
    for Field { tag, shape, type_ } in sorted {
        let GoField { json, pointer, .. } = go
            .get(tag)
            .ok_or_else(|| format!("tag {tag} is in the message alone"))?;
        if json == "-" {
            return Err(format!("tag {tag} has no JSON form"));
        }
        let pointer = if *pointer { "*" } else { "" };
        let _ = write!(line, " {tag}:{json}:{pointer}{shape}{type_}");
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_old_table_has_stays() {
        let old = "# x\n\n[a v1]\nA 1:x:string 3:gone:bool 2:y:bool\nGone 1:z:string\n";
        let new = "[a v1]\nA 1:x:string 2:y:bool 4:new:string\nNew\n\n[b v1]\nB 1:x:string\n";
        let expected =
            "\n[a v1]\nA 1:x:string 3:gone:bool 2:y:bool 4:new:string\nGone 1:z:string\nNew\n\n[b v1]\nB 1:x:string\n";
        assert_eq!(union(old, new), format!("{HEADER}{expected}"));
        assert_eq!(union(&union(old, new), new), union(old, new));
    }

    #[test]
    fn fields_of_messages() {
        let check = |line: &str, tag: u32, shape: &'static str, type_: &str| {
            assert_eq!(
                field(line),
                Ok(Field {
                    tag,
                    shape,
                    type_: type_.to_owned()
                }),
                "{line}"
            );
        };
        check("optional string a = 3;", 3, "", "string");
        check("repeated int32 a = 1;", 1, "[]", "int32");
        check("map<string, bytes> a = 2;", 2, "{}", "bytes");
        check("optional Pod a = 24;", 24, "", "Pod");
        check(
            "map<string, .k8s.io.x_y.v1.Quantity> a = 9;",
            9,
            "{}",
            "io.k8s.x-y.v1.Quantity",
        );
        assert!(field("oneof a {").is_err());
    }

    #[test]
    fn fields_of_go() {
        // In JSON `b` stands before the fields of C.
        let text = "type A struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\t// a comment\n\tB *int32 `json:\"b,omitempty\" protobuf:\"varint,2,opt,name=b\"`\n\
                    \tC `json:\",inline\" protobuf:\"bytes,1,opt,name=c\"`\n}\n\ntype D []string\n";
        let mut found = BTreeMap::new();
        go_file(text, &mut found).expect("well-formed");
        let GoType::Struct(fields) = &found["A"] else {
            panic!("a struct")
        };
        let flat: Vec<(u32, &str, bool)> = fields
            .iter()
            .map(|(tag, field)| (*tag, field.json.as_str(), field.pointer))
            .collect();
        assert_eq!(flat, [(1, "", false), (2, "b", true)]);
        assert_eq!((fields[&1].position, fields[&2].position), (1, 0));
        assert!(matches!(found["D"], GoType::Strings));
    }
}
