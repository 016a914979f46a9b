use serde_json::json;

use super::*;

fn run(text: &str, object: &Value) -> Result<String, String> {
    let around = Surroundings {
        now: kubewright::k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        started: kubewright::k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        node: Some("n"),
        node_ip: &|name| format!("ip-of-{name}"),
        pod_ip: &|| "10.0.0.1".to_owned(),
    };
    Template::of(text)?.text(object, &around)
}

fn object() -> Value {
    json!({
        "name": "p",
        "count": 3,
        "labels": {"b": "2", "a": "1"},
        "items": [{"name": "x", "on": true}, {"name": "y"}],
        "empty": [],
        "none": null,
    })
}

/// The results are those of Go 1.26's `text/template` with sprig 3 and kwok's functions.
#[test]
fn what_templates_write() {
    let check = |text: &str, expected: &str| assert_eq!(run(text, &object()).as_deref(), Ok(expected), "{text}");
    // Values and paths.
    check("{{ .name }}, {{.count}}", "p, 3");
    check(
        "{{ .nothing }}{{ .nothing.deeper }}{{ .none }}",
        "<no value><no value><no value>",
    );
    check("{{ $.labels.a }}{{ (index .items 1).name }}", "1y");
    check(
        "{{ \"a\\\"b\" }}{{ `c\\d` }}{{ 'x' }}{{ 1.5 }}{{ -2 }}{{ 0x10 }}{{ true }}",
        "a\"bc\\d1201.5-216true",
    );
    check(
        "{{ .labels }} {{ .items }}",
        "map[a:1 b:2] [map[name:x on:true] map[name:y]]",
    );
    // Space and comments.
    check("a {{- .name -}} b", "apb");
    check("a\n{{- /* not here */ -}}\nb{{/* nor here */}}", "ab");
    check("{{ \"}}\" }}", "}}");
    // Branches.
    check("{{ if .count }}yes{{ else }}no{{ end }}", "yes");
    check(
        "{{ if .empty }}yes{{ else if eq .name \"p\" }}second{{ else }}no{{ end }}",
        "second",
    );
    check(
        "{{ if not .none }}none{{ end }}{{ if and .count .empty }}both{{ end }}",
        "none",
    );
    check(
        "{{ with .labels }}{{ .a }}{{ else }}no{{ end }}{{ with .none }}{{ else with .name }}{{ . }}{{ end }}",
        "1p",
    );
    check("{{ with $x := .name }}{{ $x }}{{ end }}", "p");
    // Loops.
    check("{{ range .items }}{{ .name }};{{ end }}", "x;y;");
    check(
        "{{ range $at, $item := .items }}{{ $at }}={{ $item.name }};{{ end }}",
        "0=x;1=y;",
    );
    check(
        "{{ range $key, $value := .labels }}{{ $key }}{{ $value }}{{ end }}",
        "a1b2",
    );
    check(
        "{{ range .empty }}x{{ else }}nothing{{ end }}{{ range .nothing }}x{{ end }}",
        "nothing",
    );
    check("{{ range 3 }}{{ . }}{{ end }}", "012");
    check(
        "{{ range $x := until 5 }}{{ if eq $x 1 }}{{ continue }}{{ end }}{{ if eq $x 3 }}{{ break }}{{ end }}{{ $x }}{{ end }}",
        "02",
    );
    // Variables.
    check(
        "{{ $x := 1 }}{{ range .items }}{{ $x = add $x 1 }}{{ end }}{{ $x }}",
        "3",
    );
    check("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}", "21");
    check(
        "{{ $found := false }}{{ range .items }}{{ if .on }}{{ $found = true }}{{ end }}{{ end }}{{ $found }}",
        "true",
    );
    // Templates with names.
    check(
        "{{ define \"one\" }}<{{ . }}>{{ end }}{{ template \"one\" .name }}{{ block \"two\" .count }}[{{ . }}]{{ end }}",
        "<p>[3]",
    );
    // Go's functions.
    check(
        "{{ eq .count 3 }} {{ eq .count \"3\" }} {{ ne .name \"p\" }} {{ eq .name \"x\" \"p\" }} {{ eq .nothing \"a\" }}",
        "true true false true false",
    );
    check(
        "{{ lt 1 2 }} {{ ge \"b\" \"a\" }} {{ len .items }} {{ len .name }}",
        "true true 2 1",
    );
    check(
        "{{ or .nothing dict }} {{ or .none .name }} {{ and .name 0 }}",
        "map[] p 0",
    );
    check(
        "{{ printf \"%s-%03d-%q-%v-%.1f-%t-%x%%\" .name .count .name .empty 1.25 true 255 }}",
        "p-003-\"p\"-[]-1.2-true-ff%",
    );
    check(
        "{{ printf \"%d\" .name }}{{ printf \"%s\" }}",
        "%!d(string=p)%!s(MISSING)",
    );
    check(
        "{{ print 1 \"a\" }}{{ index .labels \"zz\" }}{{ slice .name 0 1 }}",
        "1a<no value>p",
    );
    check("{{ .name | printf \"%s%s\" \"x\" | Quote }}", "\"xp\"");
    // kwok's.
    check(
        "{{ Quote .name }} {{ Quote .count }} {{ Quote .labels }}",
        "\"p\" \"3\" \"{\\\"a\\\":\\\"1\\\",\\\"b\\\":\\\"2\\\"}\"",
    );
    check("{{ Now }}", "1970-01-01T00:00:00Z");
    check("x:{{ YAML .labels 1 }}y", "x:\n  a: \"1\"\n  b: \"2\"\n  y");
    check(
        "{{ NodeName }} {{ NodeIP }} {{ NodeIPWith \"m\" }} {{ index (NodeIPsWith \"m\") 0 }}",
        "n ip-of-n ip-of-m ip-of-m",
    );
    check(
        "{{ PodIPWith \"m\" false \"\" \"\" \"\" }} {{ PodIPWith \"m\" true \"\" \"\" \"\" }}",
        "10.0.0.1 ip-of-m",
    );
    check(
        "{{ range NodeConditions }}{{ .type }} {{ end }}",
        "Ready MemoryPressure DiskPressure PIDPressure NetworkUnavailable ",
    );
    // sprig's.
    check(
        "{{ default \"d\" .nothing }} {{ default \"d\" .name }} {{ coalesce 0 \"\" 2 }} {{ ternary 1 2 true }}",
        "d p 2 1",
    );
    check(
        "{{ upper .name }} {{ trimPrefix \"a\" \"ab\" }} {{ replace \"a\" \"b\" \"aa\" }} {{ trunc -1 \"ab\" }} {{ title \"a b\" }}",
        "P b bb b A B",
    );
    check(
        "{{ list 1 2 | join \"-\" }} {{ splitList \",\" \"a,b\" | last }} {{ has 1 (list 1) }} {{ dict \"a\" 1 | toJson }}",
        "1-2 b true {\"a\":1}",
    );
    check(
        "{{ hasKey .labels \"a\" }} {{ keys .labels | sortAlpha | join \",\" }} {{ get .labels \"a\" }}",
        "true a,b 1",
    );
    check(
        "{{ div 7 2 }} {{ mod 7 2 }} {{ max 1 5 2 }} {{ mul 2 3 }} {{ int \"12\" }} {{ add1 1 }}",
        "3 1 5 6 12 2",
    );
    check(
        "{{ \"a\" | b64enc | b64dec }} {{ indent 2 \"a\\nb\" }} {{ quote .name .none }} {{ contains \"b\" \"abc\" }}",
        "a   a\n  b \"p\" true",
    );
}

#[test]
fn what_is_no_template() {
    let check = |text: &str, expected: &str| {
        let why = Template::of(text).err().unwrap_or_default();
        assert!(why.contains(expected), "{text}: {why}");
    };
    check("a\n{{ nosuch .x }}", "line 2: function \"nosuch\" not defined");
    check("{{ .a", "{{ without }}");
    check("{{ if .a }}", "if has no end");
    check("{{ end }}", "unexpected {{end}}");
    check("{{ range .a }}{{ else }}{{ else }}{{ end }}", "a second else");
    check("{{ $x }}", "undefined variable \"$x\"");
    check("{{ $x = 1 }}", "undefined variable \"$x\"");
    check(
        "{{ if true }}{{ $x := 1 }}{{ end }}{{ $x }}",
        "undefined variable \"$x\"",
    );
    check("{{ break }}", "break outside of range");
    check("{{ .a .b }}", "can't give argument to non-function");
    check("{{ 1 | 2 }}", "behind | is a function");
    check("{{ template \"none\" }}", "\"none\" is not defined");
    check("{{ (len .a }}", "( without )");
    check("{{ len .a) }}", "unexpected )");
    check("{{ \"a\"\"b\" }}", "without a space");
    check("{{ }}", "missing value for command");
    check("{{ \"a }}", "{{ without }}");
    check("{{ /* a }}", "comment is not closed");
    check(&"{{ if true }}".repeat(200), "nested more than");
    check(&format!("{{{{ {} }}}}", "(".repeat(200)), "nested more than");
}

#[test]
fn what_a_template_cannot_do_with_an_object() {
    let check = |text: &str, expected: &str| {
        let why = run(text, &object()).err().unwrap_or_default();
        assert!(why.contains(expected), "{text}: {why}");
    };
    check("{{ .name.first }}", "can't evaluate field first");
    check("{{ index .items 5 }}", "index out of range: 5");
    check("{{ index .nothing 0 }}", "index of untyped nil");
    check("{{ range .name }}{{ end }}", "range can't iterate over p");
    check("{{ eq .name 1 true }}", "incompatible types");
    check("{{ div 1 0 }}", "division by zero");
    check("{{ fail \"no\" }}", "error calling fail: no");
    check("{{ upper 1 2 }}", "wrong number of args for upper: want 1 got 2");
    // Nothing grows without end, or turns for ever.
    check("{{ repeat 100000000 \"aaaa\" }}", "longer than");
    check("{{ range 1000000000 }}a{{ end }}", "takes more than");
    check(
        "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}",
        "call each other",
    );
    check(
        "{{ $x := \"aaaaaaaaaaaaaaaa\" }}{{ range 64 }}{{ $x = printf \"%s%s\" $x $x }}{{ end }}",
        "longer than",
    );
}
