//! The parts of Go that are read, and that no other text is a panic.

use proptest::prelude::*;

use super::*;

fn named(name: &str) -> Type {
    Type::Named {
        package: None,
        name: name.to_owned(),
    }
}

#[test]
fn declarations_are_read_with_their_comments() {
    let file = parse(
        r#"// Copyright.

// Package v1 is here.
// +groupName=crew.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"example.com/other/v2"; _ "embed"
)

const (
	Low Level = "low" // trailing
	High      = Level("high")
	count     = 1 << iota
)

var x, y = map[string]func(a int) struct{}{"a": nil}, `raw
}`

// +kubebuilder:validation:Enum=low;high

// Level is how far.
type Level string

type (
	// Names are many.
	Names []string
	Pair[K comparable, V any] struct { k K }
)

// Spec says it.
//
// TODO(me): later.
type Spec struct {
	metav1.ObjectMeta `json:"metadata,omitempty"`
	*Inner
	// A and B.
	// +optional
	A, B *string `yaml:"a" json:"a,omitempty"` // +not:a:marker
	M map[string][]Level
	F func(int) (string, error)
	C <-chan struct{}
	Generic[*Inner]
	N struct { X int `json:"x"` }
}

/*
Reconcile does.
+kubebuilder:rbac:groups=a
*/
func (r *Reconciler[T]) Reconcile(ctx context.Context, f func() struct{}) (_ struct{ A int }, err error) {
	if x := '"'; x == '{' { return }
	return nil, fmt.Errorf("} %s", `{`)
}
"#,
    )
    .unwrap();
    assert_eq!(file.package, "v1");
    assert_eq!(
        file.markers,
        [
            "groupName=crew.example.com",
            "kubebuilder:validation:Enum=low;high",
            "optional",
            "kubebuilder:rbac:groups=a"
        ]
    );
    assert_eq!(file.imports["metav1"], "k8s.io/apimachinery/pkg/apis/meta/v1");
    assert_eq!(file.imports["v2"], "example.com/other/v2");
    let constants: Vec<(&str, &str)> = file
        .constants
        .iter()
        .map(|c| (c.of.as_deref().unwrap_or(""), c.text.as_str()))
        .collect();
    assert_eq!(constants, [("Level", "low"), ("Level", "high")]);
    let names: Vec<&str> = file.types.iter().map(|decl| decl.name.as_str()).collect();
    assert_eq!(names, ["Level", "Names", "Pair", "Spec"]);
    assert_eq!(file.types[0].doc.markers, ["kubebuilder:validation:Enum=low;high"]);
    assert_eq!(file.types[0].doc.text, ["Level is how far."]);
    assert_eq!(file.types[1].of, Type::List(Box::new(named("string"))));
    assert!(file.types[2].is_generic);
    let Type::Struct(fields) = &file.types[3].of else {
        panic!("{:?}", file.types[3])
    };
    let short: Vec<(Option<&str>, Option<&str>)> =
        fields.iter().map(|f| (f.name.as_deref(), f.json.as_deref())).collect();
    let wanted = [
        (None, Some("metadata,omitempty")),
        (None, None),
        (Some("A"), Some("a,omitempty")),
        (Some("B"), Some("a,omitempty")),
        (Some("M"), None),
        (Some("F"), None),
        (Some("C"), None),
        (None, None),
        (Some("N"), None),
    ];
    assert_eq!(short, wanted);
    assert_eq!(fields[2].doc.markers, ["optional"]);
    assert_eq!(file.functions[0].receiver.as_deref(), Some("Reconciler"));
    assert_eq!(file.functions[0].doc.markers, ["kubebuilder:rbac:groups=a"]);
}

#[test]
fn what_is_no_go_is_told_with_its_line() {
    for (text, line, why) in [
        ("", 1, "package is expected"),
        ("package a\n\nfoo\n", 3, "a declaration is expected"),
        ("package a\ntype B struct {\n\tC int D\n}\n", 3, "the end of a field"),
        ("package a\nfunc b() {\n", 2, "a bracket is not closed"),
        ("package a\nconst b = \"x\n", 2, "a string does not end"),
        ("package a\n/* x", 2, "a comment does not end"),
    ] {
        let (at, told) = parse(text).unwrap_err();
        assert!(at == line && told.contains(why), "{text:?}: {at} {told}");
    }
    let deep = format!("package a\ntype B {}int\n", "[]".repeat(10_000));
    assert!(parse(&deep).unwrap_err().1.contains("deeper"));
}

/// No value, and an error.
const WRONG: Option<&str> = Some("(wrong)");

#[test]
fn tags_are_read_as_go_reads_them() {
    for (tag, json) in [
        (r#"json:"c""#, Some("c")),
        (r#" yaml:"a b"  json:"c,omitempty""#, Some("c,omitempty")),
        (r#"json:"""#, Some("")),
        (r#"doc:"say \"c\"" json:"c""#, Some("c")),
        ("", None),
        (r#"yaml:"c""#, None),
        // Without the word nothing is lost.
        ("not a tag", None),
        (r#"json:"c" yaml:c"#, Some("c")),
        // With it, the field would get another name without a word.
        ("json:c", WRONG),
        (r#"json: "c""#, WRONG),
        (r#"json:"c"#, WRONG),
        (r#"yaml:c json:"c""#, WRONG),
    ] {
        let file = parse(&format!("package a\ntype B struct {{\n\tC int `{tag}`\n}}\n")).unwrap();
        let Type::Struct(fields) = &file.types[0].of else {
            panic!("{:?}", file.types[0])
        };
        assert_eq!(
            fields[0].json.as_deref(),
            json.filter(|json| Some(*json) != WRONG),
            "{tag}"
        );
        let wrong: Vec<usize> = file.wrong_tags.iter().map(|(line, _)| *line).collect();
        assert_eq!(wrong, if json == WRONG { vec![3] } else { vec![] }, "{tag}");
    }
}

#[test]
fn two_fields_of_one_name_are_wrong() {
    for (fields, wrong) in [
        ("A int `json:\"a\"`\nB int `json:\"b\"`", None),
        ("A int `json:\"a\"`\n\nB int `json:\"a,omitempty\"`", Some(5)),
        ("A, B int `json:\"a\"`", Some(3)),
        ("A int `json:\"-\"`\nB int `json:\"-\"`", None),
        ("A `json:\",inline\"`\nB `json:\",inline\"`", None),
    ] {
        let file = parse(&format!("package a\ntype B struct {{\n{fields}\n}}\n")).unwrap();
        let found: Vec<usize> = file.wrong_tags.iter().map(|(line, _)| *line).collect();
        assert_eq!(found, Vec::from_iter(wrong), "{fields}");
    }
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in "(package a\n)?([a-z]{1,6}|[\\[\\](){}*.,;:`\"'/+ \n=<-]|type |struct |func |map |//|/\\*){0,60}") {
        let _ = parse(&text);
    }
}
