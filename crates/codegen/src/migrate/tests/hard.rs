//! Go that Rust, JSON or a schema cannot express: the Rust made of it, the notes and the errors.

use super::*;

/// The project with these types in a file of their own, after `package v1`.
fn with(types: &str) -> Result<Migrated, Diagnostic> {
    let mut files = project();
    files
        .0
        .insert("api/v1/more.go".to_owned(), format!("package v1\n\n{types}\n"));
    carried(&files)
}

/// The types in Rust and the notes, or the error. An expected text after `!` is absent.
fn check(types: &str, expected: &[&str]) {
    let said = match with(types) {
        Ok(done) => format!("{}\n{}", done.files.0["api/src/v1/types.rs"], done.notes.join("\n")),
        Err(wrong) => format!("refused: {wrong}"),
    };
    for expected in expected {
        match expected.strip_prefix('!') {
            Some(absent) => assert!(!said.contains(absent), "{types}\n{absent} in\n{said}"),
            None => assert!(said.contains(expected), "{types}\n{expected} is not in\n{said}"),
        }
    }
}

fn field(line: &str, expected: &[&str]) {
    check(&format!("type Odd struct {{\n\t{line}\n}}"), expected);
}

#[test]
fn names_that_are_one_in_rust_stay_two() {
    check(
        "type Odd struct {\n\tA string `json:\"fooBar\"`\n\tB string `json:\"foo_bar\"`\n\tC string `json:\"FooBar\"`\n}",
        &[
            "    pub foo_bar: String,",
            "#[serde(rename = \"foo_bar\")]\n    pub foo_bar_2: String,",
            "#[serde(rename = \"FooBar\")]\n    pub foo_bar_3: String,",
        ],
    );
    for (json, name) in [
        ("self", "pub self_: String"),
        ("Self", "#[serde(rename = \"Self\")]\n    pub self_: String"),
        ("crate", "pub crate_: String"),
        ("super", "pub super_: String"),
        ("async", "pub async_: String"),
        ("a-b.c", "#[serde(rename = \"a-b.c\")]\n    pub a_b_c: String"),
        ("größe", "#[serde(rename = \"größe\")]\n    pub gr_e: String"),
        ("大小", "#[serde(rename = \"大小\")]\n    pub __: String"),
        ("3d", "pub _3d: String"),
        ("-,", "#[serde(rename = \"-\")]\n    pub __: String"),
    ] {
        field(&format!("A string `json:\"{json}\"`"), &[name]);
    }
    check(
        "type Odd struct {\n\tPart struct {\n\t\tA int `json:\"a\"`\n\t} `json:\"part\"`\n}\n\ntype OddPart struct{}",
        &["pub part: OddPart_,", "pub struct OddPart_ {", "pub struct OddPart {"],
    );
    check(
        "type A struct {\n\tX struct {\n\t\tA int `json:\"a\"`\n\t} `json:\"bC\"`\n}\n\ntype AB struct {\n\tX struct {\n\t\tB int `json:\"b\"`\n\t} `json:\"c\"`\n}",
        &["pub b_c: ABC,", "pub c: ABC_,", "pub struct ABC {", "pub struct ABC_ {"],
    );
}

#[test]
fn types_may_contain_themselves_behind_pointers_lists_and_maps() {
    let told = "it leads back to a type that contains it";
    check(
        "type Odd struct {\n\tNext *Odd `json:\"next,omitempty\"`\n}",
        &[
            "#[schemars(with = \"Option<serde_json::Value>\")]\n    pub next: Option<Box<Odd>>,",
            told,
            "api/v1/more.go:4",
        ],
    );
    check(
        "type Odd struct {\n\tParts []Odd `json:\"parts,omitempty\"`\n\tOthers map[string]*Odd `json:\"others\"`\n}",
        &[
            "Option<Vec<Odd>>",
            "BTreeMap<String, Odd>",
            "with = \"serde_json::Value\"",
            told,
        ],
    );
    check(
        "type Odd struct {\n\tOther *Other `json:\"other\"`\n}\n\ntype Other struct {\n\tOdd *Odd `json:\"odd,omitempty\"`\n}",
        &[
            "pub other: Option<Box<Other>>,",
            "pub odd: Option<Box<Odd>>,",
            "Other.Odd (api/v1/more.go:8): it leads back",
            "!Odd.Other (",
        ],
    );
    check(
        "type Odd map[string]Odd",
        &["pub struct Odd(#[schemars(with = \"serde_json::Value\")]", told],
    );
    check(
        "type Odd struct {\n\t// +kubebuilder:validation:Schemaless\n\t// +kubebuilder:pruning:PreserveUnknownFields\n\tNext *Odd `json:\"next,omitempty\"`\n}",
        &["pub next: Option<Box<Odd>>,", "!it leads back"],
    );
    check(
        "type Odd struct {\n\t*Odd `json:\",inline\"`\n\tA int `json:\"a\"`\n}",
        &["embeds itself", "!flatten"],
    );
    check(
        "type Odd struct {\n\tA Other `json:\"a\"`\n}\n\ntype Other struct {\n\tB [2]Odd `json:\"b\"`\n}",
        &[
            "refused",
            "api/v1/more.go:3",
            "api/v1/more.go:7",
            "invalid recursive type",
        ],
    );
    // Neither JSON nor the schema has such fields.
    for hidden in [
        "root *Odd",
        "Root *Odd `json:\"-\"`",
        "Root struct { A *Odd } `json:\"-\"`",
    ] {
        check(
            &format!(
                "type Odd struct {{\n\tOther *Other `json:\"other,omitempty\"`\n}}\n\ntype Other struct {{\n\t{hidden}\n\tA int `json:\"a\"`\n}}"
            ),
            &["pub other: Option<Other>,", "!leads back", "!refused"],
        );
    }
    check(
        "type Odd struct {\n\tinner Odd\n\tA int `json:\"a\"`\n}",
        &["refused", "invalid recursive type"],
    );
}

#[test]
fn markers_with_invalid_values_are_refused_with_their_place() {
    for (marker, line, why) in [
        ("validation:Maximum=abc", "A int", "abc is not a number"),
        ("validation:MinLength=x", "A string", "x is not an integer"),
        ("validation:Enum=", "A string", "missing argument"),
        ("validation:Pattern=`[a-`", "A string", "no regular expression"),
        ("default=word", "A *int32", "the default is not an integer"),
    ] {
        let line = format!("// +kubebuilder:{marker}\n\t{line} `json:\"a\"`");
        field(&line, &["refused", "at: api/v1/more.go:5", why]);
    }
    check(
        "// +kubebuilder:validation:MaxLength=x\ntype Odd string",
        &["refused", "at: api/v1/more.go:4", "x is not an integer"],
    );
    field(
        "// +kubebuilder:validation:MinLength=-1\n\tA string `json:\"a\"`",
        &["\"minLength\" = -1"],
    );
}

#[test]
fn types_that_json_or_a_schema_cannot_express_are_noted() {
    let any = "pub a: serde_json::Value";
    for (ty, expected) in [
        (
            "map[int]string",
            ["BTreeMap<String, String>", "keys are of the type int"],
        ),
        (
            "map[Key]string",
            ["BTreeMap<String, String>", "keys are of the type uint8"],
        ),
        ("[][]byte", ["Vec<String>", "\"items:format\" = \"byte\""]),
        (
            "[]map[string][]byte",
            [
                "Vec<std::collections::BTreeMap<String, k8s_openapi::ByteString>>",
                "with = \"Vec<",
            ],
        ),
        ("[3]int", ["Vec<isize>", "pub a"]),
        ("[4]byte", ["Vec<u8>", "pub a"]),
        (
            "chan int",
            [
                "Odd.A (api/v1/more.go:4): a function or channel is any value",
                "!has no JSON tag",
            ],
        ),
        ("func() error", [any, "a function or channel is any value"]),
        (
            "complex128",
            [any, "complex128, which JSON does not have, is any value"],
        ),
        ("interface{ X() }", [any, "an interface is any value"]),
        ("Inner", [any, "Inner (an interface) is any value"]),
        ("Pair", [any, "Pair, which is generic, is any value"]),
        ("Pair[string, int]", [any, "a generic type is any value"]),
        ("float64", ["pub a: f64", "\"format\" = null"]),
        ("Alias", ["pub a: Alias", "pub struct Alias(pub String)"]),
        (
            "Level",
            [
                "pub a: Level",
                "Level (api/v1/more.go:15): its 3 constants were not carried over",
            ],
        ),
        ("OddValidator", ["pub a: OddValidator", "pub struct OddValidator"]),
    ] {
        let types = format!(
            "type Odd struct {{\n\tA {ty} `json:\"a\"`\n}}\n\ntype Key uint8\n\ntype Inner interface {{ X() }}\n\ntype Pair[K comparable, V any] struct {{ k K; v V }}\n\ntype Alias = string\n\ntype Level int\n\nconst (\n\tLow Level = iota\n\tMiddle\n\tHigh\n)\n\ntype OddValidator struct {{\n\tB int `json:\"b\"`\n}}"
        );
        check(&types, &expected);
    }
    field(
        "a string\n\tB string `json:\"b\"`\n\tC string `json:\"-\"`",
        &["pub b: String", "!pub a", "!pub c"],
    );
    field(
        "Name string `json:\",omitempty\"`",
        &["rename = \"Name\"", "its JSON tag has no name, so Go calls it Name"],
    );
    check(
        "type Odd struct {\n\tInner `json:\",inline\"`\n\tA int `json:\"a\"`\n}\n\ntype Inner interface { X() }",
        &["Inner is embedded and has no fields (an interface)", "!flatten"],
    );
    check(
        "type Odd struct {\n\tInner `json:\",inline\"`\n\tB *string `json:\"b,omitempty\"`\n}\n\ntype Inner struct {\n\t// +kubebuilder:validation:Enum=x;y\n\tB *string `json:\"b,omitempty\"`\n}",
        &[
            "pub inner: Inner,\n    #[serde(default, skip_serializing_if = \"Option::is_none\")]\n    #[schemars(extend(\"enum\" = [\"x\", \"y\"]))]\n    pub b: Option<String>,",
        ],
    );
}

#[test]
fn packages_that_go_does_not_build_are_refused_with_their_places() {
    let refused = |path: &str, text: &str, expected: &[&str]| {
        let mut files = project();
        files.0.insert(path.to_owned(), text.to_owned());
        let said = match carried(&files) {
            Ok(done) => done.notes.join("\n"),
            Err(wrong) => format!("refused: {wrong}"),
        };
        for expected in expected {
            assert!(said.contains(expected), "{path}: {expected} is not in {said}");
        }
    };
    refused(
        "api/v1/b.go",
        "package v2\n",
        &["refused", "at: api/v1/captain_types.go:1", "two packages in one folder"],
    );
    refused(
        "api/v1/b.go",
        "//go:build ignore\n\npackage main\n",
        &["a build for Linux (//go:build ignore), so nothing was made of them: api/v1/b.go"],
    );
    refused(
        "api/v1/b_windows.go",
        "package v1\n\ntype Rank int\n",
        &["its name says windows"],
    );
    refused(
        "api/v1/b.go",
        "package v1\n\ntype Rank int\n",
        &["refused", "Rank is declared in api/v1/b.go:3, too"],
    );
    refused(
        "api/v1/b.go",
        "package v1\n\ntype Odd struct {\n\tA int D\n}\n",
        &["refused", "at: api/v1/b.go:4"],
    );
    refused(
        "api/v1/b.go",
        "package v1\n\ntype Odd struct {\n\tA int `json:\"a'b\"`\n}\n",
        &["refused", "api/v1/b.go:4", "JSON name"],
    );
    refused(
        "go.mod",
        "go 1.26\n",
        &["refused", "at: go.mod:1", "no line names the module"],
    );
    refused(
        "go.mod",
        "module a\n\nrequire (\n",
        &["refused", "at: go.mod:3", "is not closed"],
    );
    for path in ["_old/b.go", "api/v1/_b.go", ".cache/b.go", "api/v1/.#b.go"] {
        let mut files = project();
        files.0.insert(path.to_owned(), "no Go\n".to_owned());
        assert!(carried(&files).is_ok(), "{path}");
    }
    let mut files = project();
    let tools = "// +build tools\n\npackage tools\n";
    let main = "package main\n";
    files
        .0
        .extend([("main.go", main), ("tools.go", tools)].map(|(path, text)| (path.to_owned(), text.to_owned())));
    let notes = carried(&files).unwrap().notes.join("\n");
    assert!(
        notes.contains("(// +build tools), so nothing was made of them: tools.go"),
        "{notes}"
    );
}

#[test]
fn a_copy_of_an_api_is_left_out_where_project_says_which_is_meant() {
    let kind = "// +groupName=crew.example.com\n// +versionName=v1\npackage v1\n\ntype Mate struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\tmetav1.ObjectMeta `json:\"metadata,omitempty\"`\n\tSpec MateSpec `json:\"spec\"`\n}\n\ntype MateSpec struct {\n\tName string `json:\"name\"`\n}\n";
    let listed = |more: &str| {
        format!("- {{api: {{crdVersion: v1}}, domain: example.com, group: crew, kind: Mate, version: v1{more}}}\n")
    };
    let left = |folder: &str| format!("another declaration was left out: {folder}/mate.go:5");
    let undecided = "crew.example.com/v1 Mate is declared in other/api/mate.go:5, too, and PROJECT does not say";
    for (folders, resources, expected) in [
        (["api/v1", "legacy/api/v1"], listed(""), left("legacy/api/v1")),
        (["api/v1", "legacy/api/v1"], String::new(), left("legacy/api/v1")),
        (
            ["pkg/mates", "legacy/api"],
            listed(", path: example.com/fleet/legacy/api"),
            left("pkg/mates"),
        ),
        (
            ["old/apis/crew/v1", "apis/crew/v1"],
            listed(""),
            left("old/apis/crew/v1"),
        ),
        (["one/api", "other/api"], listed(""), undecided.to_owned()),
        (["one/api", "other/api"], String::new(), left("other/api")),
    ] {
        let mut files = project();
        for folder in folders {
            files.0.insert(format!("{folder}/mate.go"), kind.to_owned());
        }
        let listed = PROJECT.replace("resources:\n", &format!("resources:\n{resources}"));
        files.0.insert("PROJECT".to_owned(), listed);
        let said = match carried(&files) {
            Ok(done) => done.notes.join("\n"),
            Err(wrong) => wrong.to_string(),
        };
        assert!(
            said.contains(&expected),
            "{folders:?} {resources}: {expected} is not in {said}"
        );
    }
}

#[test]
fn a_default_that_names_a_constant_is_noted() {
    field(
        "// +default=ref(Most)\n\tA string `json:\"a\"`",
        &[
            "pub a: String",
            "the schema has no default for +default=ref(Most)",
            "!\"default\" =",
        ],
    );
    field(
        "// +kubebuilder:validation:Type=string\n\t// +kubebuilder:default=\"5\"\n\tA int64 `json:\"a\"`",
        &["\"default\" = \"5\""],
    );
    check(
        "// +kubebuilder:default=3\ntype Odd string",
        &["pub struct Odd(pub String)"],
    );
}
