//! KWR0300–KWR0399: CustomResourceDefinitions, and the declaration from which all manifests are made.

use super::{Code, Explanation};

/// Variants of an enum do not fit into one structural schema.
pub const UNION: Code = Code(301);
/// A type has no structural schema.
pub const TYPE: Code = Code(302);
/// A keyword that no schema has.
pub const KEYWORD: Code = Code(303);
/// A marker names a field that is not there.
pub const FIELD: Code = Code(304);
/// An API server refuses the schema.
pub const INVALID: Code = Code(305);
/// A CEL rule is wrong.
pub const CEL: Code = Code(306);
/// A CEL rule may cost too much.
pub const CEL_COST: Code = Code(307);
/// A default does not fit its schema.
pub const DEFAULT: Code = Code(308);
/// Versions of a kind do not fit together.
pub const VERSIONS: Code = Code(309);
/// The storage version is not set.
pub const STORAGE: Code = Code(310);
/// A definition is too large.
pub const SIZE: Code = Code(311);
/// A rule that is never checked.
pub const RULE: Code = Code(312);
/// Floating point numbers.
pub const FLOAT: Code = Code(313);
/// An unknown format.
pub const FORMAT: Code = Code(314);
/// A group, version, kind, plural or scope is wrong.
pub const NAME: Code = Code(315);
/// A selectable field is wrong.
pub const PATH: Code = Code(316);
/// A column is wrong.
pub const COLUMN: Code = Code(317);
/// kube's generator panicked.
pub const PANIC: Code = Code(318);
/// A schema that may not be as intended.
pub const DOUBT: Code = Code(319);
/// A path of `scale` is wrong.
pub const SCALE: Code = Code(320);
/// A comment with a marker of Go.
pub const COMMENT: Code = Code(321);
/// A change of a definition breaks existing objects or clients.
pub const BREAKING: Code = Code(322);
/// The operator's declaration cannot be read.
pub const DECLARATION: Code = Code(390);
/// The operator cannot be built or run.
pub const BUILD: Code = Code(391);
/// Generated files are not current.
pub const STALE: Code = Code(392);
/// A list in `config/` names a generated file that is not there.
pub const DANGLING: Code = Code(393);
/// A generated file is named by no list in `config/`.
pub const UNLISTED: Code = Code(394);
/// Parts of the operator do not fit together.
pub const PARTS: Code = Code(395);

/// The code of an operator's problem with a type, by its word, and the advice.
pub(crate) fn of_problem(what: &str) -> (Code, &'static str) {
    match what {
        "union" => (
            UNION,
            "let all variants be of one type: give each of them fields (`Plain {}` instead of `Plain`), or rename a \
             field that means different things in two variants",
        ),
        "tuple" => (TYPE, "use a struct with named fields, or a list of one type"),
        "recursive" => (
            TYPE,
            "break the circle: put the inner part behind #[schemars(schema_with = \"…\")] with \
             `x-kubernetes-preserve-unknown-fields: true`, or flatten it into a list",
        ),
        "keyword" => (KEYWORD, "correct the word in #[schemars(extend(\"…\" = …))]"),
        "unknown-field" => (FIELD, "name fields as they are in JSON (after #[serde(rename_all)])"),
        "panic" => (
            PANIC,
            "say `schema = \"disabled\", derive = \"schemars::JsonSchema\"` in the #[kube(…)] of the kind: kube then \
             leaves its schema to kubewright",
        ),
        "bytes" => (
            DOUBT,
            "for bytes in base64, as Kubernetes has them: #[schemars(with = \"String\", extend(\"format\" = \
             \"byte\"))] on a k8s_openapi::ByteString",
        ),
        "set" => (
            DOUBT,
            "use a Vec with `x-kubernetes-list-type: map` and a key, if duplicates must be refused",
        ),
        "flatten" => (DOUBT, "give the map a field of its own, if its values must be checked"),
        _ => (TYPE, "use a type that a structural schema can say"),
    }
}

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: UNION,
        title: "the variants of an enum do not fit into one schema",
        story: "Kubernetes requires a *structural* schema: each value has one type, and all fields are named in one \
                place. An enum whose variants are objects fits (externally, internally or adjacently tagged): its \
                fields are put together, and `oneOf` says which belong to which variant. An enum in which one variant \
                is a text and another an object does not fit, nor do two variants that have a field of the same name \
                with different types.\n\nGive unit variants an empty body (`Plain {}`), rename the field in one of the \
                variants, or use a struct with optional fields and `#[schemars(extend(\"exactlyOneOf\" = [\"url\", \
                \"path\"]))]`.",
    },
    Explanation {
        code: TYPE,
        title: "a type has no structural schema",
        story: "Some Rust types have no structural schema: tuples of different types (JSON lists whose items differ), \
                recursive types, maps that are flattened beside typed fields in some ways.\n\nUse a struct with named \
                fields instead of a tuple. For data of any shape use `serde_json::Value`, which becomes \
                `x-kubernetes-preserve-unknown-fields: true`: it is stored unchecked.",
    },
    Explanation {
        code: KEYWORD,
        title: "an unknown keyword in a schema",
        story: "`#[schemars(extend(\"…\" = …))]` writes any keyword into the schema, so a misspelt one (`minimun`) \
                would be ignored. The keywords are those of `JSONSchemaProps` (`minimum`, `maxLength`, \
                `x-kubernetes-list-type`, …) and the markers `exactlyOneOf`, `atMostOneOf`, `atLeastOneOf` (with the \
                names of fields) and `immutable`.",
    },
    Explanation {
        code: FIELD,
        title: "a marker names a field that is not there",
        story: "`exactlyOneOf`, `atMostOneOf` and `atLeastOneOf` become CEL rules such as `has(self.url)`. The API \
                server refuses a rule about a field that the schema does not have. Name the fields as they are in \
                JSON: with `#[serde(rename_all = \"camelCase\")]` the field `config_map` is `configMap`.",
    },
    Explanation {
        code: INVALID,
        title: "an API server refuses the definition",
        story: "The definition was checked with the code of kubewright's own API server, which says what \
                kube-apiserver says. The message is the server's; the place is the Rust field behind it.\n\nCommon \
                causes: a list of type `map` without keys or whose keys are optional, a pattern that is no RE2 \
                expression (look-around and back references are not), a value without a type.",
    },
    Explanation {
        code: CEL,
        title: "a CEL rule is wrong",
        story: "A rule of `validation` does not compile against the schema: a field that is not there, a type that \
                does not fit, a syntax error. `self` is the value that the rule is attached to; optional fields need \
                `has(self.field)` first; names that are reserved in CEL are written with underscores \
                (`__namespace__`).\n\nA rule with `oldSelf` (also `immutable`) below a list needs that list to be of \
                type `map`, so that old and new items can be matched.",
    },
    Explanation {
        code: CEL_COST,
        title: "a CEL rule may cost too much",
        story: "The server estimates the maximum cost of a rule from the maximum size of the values that it reads, and \
                refuses rules above a budget. Lists, maps and texts without a bound count as very large.\n\nBound \
                them: `#[schemars(length(max = 32))]` on the list and `#[schemars(inner(length(max = 63)))]` on its \
                texts. Avoid `all` inside `all`. A `messageExpression` that turns a number into text costs much, too: \
                use a fixed `message`.",
    },
    Explanation {
        code: DEFAULT,
        title: "a default does not fit its schema",
        story: "The API server checks each default against the schema of its field: the type, the rules, unknown \
                fields. `#[serde(default)]` on a list writes `[]` into the schema, which `length(min = 1)` \
                forbids.\n\nMake the field an `Option`, let the function behind `#[serde(default = \"…\")]` return \
                something valid, or loosen the rule.",
    },
    Explanation {
        code: VERSIONS,
        title: "the versions of a kind do not fit together",
        story: "All versions of a kind share one CustomResourceDefinition, with one scope and one set of names. Two \
                types say different things about them, or claim the same version, or a conversion names a version \
                that is not registered with `Operator::crd`.",
    },
    Explanation {
        code: STORAGE,
        title: "the storage version is not set",
        story: "The API server stores objects of a kind in exactly one version. `#[derive(CustomResource)]` sets \
                `storage = true` for each type by default.\n\nDeclare a conversion with a hub \
                (`Operator::conversion(Conversion::hub::<v1::Guestbook>()…)`): the hub is stored. Or set \
                `#[kube(storage = false)]` on all versions but one.",
    },
    Explanation {
        code: SIZE,
        title: "a definition is large",
        story: "`kubectl apply` without `--server-side` keeps the whole object in an annotation of at most 262144 \
                bytes. A definition that embeds a pod template with all its descriptions is larger. The descriptions \
                of Kubernetes' own types are left out first, then all.\n\n`kubewright install` uses server-side apply, \
                which does not have this limit; one request may have about 1.5 MB. `--max-desc-len 0` leaves out all \
                descriptions.",
    },
    Explanation {
        code: RULE,
        title: "a rule that would never be checked",
        story: "The API server accepts `minLength` on a number, or an enum of numbers on a string, but never checks \
                them. The rule does not fit the type of the field: one of the two is a mistake.",
    },
    Explanation {
        code: FLOAT,
        title: "a floating point number in an API",
        story: "Clients in different languages write and round floating point numbers differently, so a value that is \
                read and written back may change, and server-side apply reports false conflicts. Kubernetes' own APIs \
                have none.\n\nUse an integer with a smaller unit, a `Quantity`, or a text. `--allow-dangerous-types` \
                (controller-gen's option) silences the warning.",
    },
    Explanation {
        code: FORMAT,
        title: "a format that means nothing to an API server",
        story: "An API server checks the formats that it knows and warns about others each time the definition is \
                written. Rust's integer types get the right format by themselves; this one was written with \
                `extend(\"format\" = …)` or comes from a type of another crate.",
    },
    Explanation {
        code: NAME,
        title: "a group, version, kind or plural is invalid",
        story: "The names of an API follow the rules of DNS: a group is a domain with a dot (`webapp.my.domain`), \
                plural and singular are lower-case labels, a kind in lower case is one too, a version is `v1`, \
                `v2beta1` or the like. They stand in `#[kube(…)]` of the type.",
    },
    Explanation {
        code: PATH,
        title: "a selectable field is invalid",
        story: "`#[kube(selectable = \".spec.color\")]` lets clients ask for objects by a field. The path must lead \
                to a text, an integer or a boolean of the schema, outside of lists and metadata; a kind has at most \
                eight.",
    },
    Explanation {
        code: COLUMN,
        title: "a printer column is invalid",
        story: "A column of `kubectl get` (`#[kube(printcolumn(…))]`) has a name, a type (`integer`, `number`, \
                `string`, `boolean`, `date`) and a JSON path that starts with a dot.\n\nThe path leads to a field of \
                the schema, by its name in JSON: `.spec.size`, `.status.conditions[?(@.type==\"Ready\")].status`, \
                `.metadata.creationTimestamp`. An API server accepts any path; a column whose path does not exist is \
                always empty, so this is an error here.",
    },
    Explanation {
        code: PANIC,
        title: "kube's generator panicked",
        story: "`K::crd()`, which `#[derive(CustomResource)]` writes, makes a schema of its own and panics for some \
                types, such as tagged enums of which two variants share a field. kubewright makes the schema itself \
                and needs from `K::crd()` only names and columns.\n\nSwitch kube's schema off: `#[kube(schema = \
                \"disabled\", derive = \"schemars::JsonSchema\")]` on the kind. The manifests are the same otherwise.",
    },
    Explanation {
        code: DOUBT,
        title: "a schema that may not be what you want",
        story: "The type has a schema, but perhaps another than intended. `Vec<u8>` is a list of numbers in JSON, \
                where Kubernetes writes bytes in base64 (`k8s_openapi::ByteString`). A set of objects is a list in \
                which duplicates are not refused. Values of a map that is flattened beside fields are not checked. A \
                `kube::core::Duration` is any string, unless the field has a pattern.",
    },
    Explanation {
        code: SCALE,
        title: "a path of `scale` is wrong",
        story: "`kubectl scale` and autoscalers read and write a kind through three paths of `#[kube(scale(…))]`: \
                `spec_replicas_path` below `.spec`, `status_replicas_path` below `.status`, both integers, and \
                `label_selector_path`, a text. Each is a plain path of fields that the schema has. An API server \
                accepts a path that does not exist, and scaling then fails.",
    },
    Explanation {
        code: COMMENT,
        title: "a marker of kubebuilder stands in a comment",
        story: "controller-gen reads comments such as `// +kubebuilder:validation:Minimum=1`. In Rust, attributes of \
                serde, schemars and kube, which the compiler checks, take their place; the comment has no effect (and \
                as a doc comment it would be part of the description). The warning names the attribute; the book has \
                all of them on the page \"Markers in Go and in Rust\" (`docs/src/markers.md` in kubewright's \
                repository).",
    },
    Explanation {
        code: BREAKING,
        title: "a change of a definition breaks existing objects or clients",
        story: "`kubewright manifests --compare REV` compares the definitions that the code declares with those of a \
                revision of the repository, or of a file, such as that of the last release. A change breaks when \
                stored data is dropped (a field is gone), when the API server refuses the definition (a stored \
                version is gone), or when objects and clients that were right are refused: another type, a value of \
                an enum that is gone, a new required field without a default, another `x-kubernetes-list-type`.\n\n\
                Changes that only tighten a check (a lower maximum, a new pattern or rule) are warnings. Existing \
                objects survive them: the API server does not refuse an update for a value that the update leaves as \
                it is. But a client that creates such an object fails.\n\nKeep the field or the value and stop using \
                it; give a new required field a default, or make it optional; for anything else, add a version: \
                `kubewright create api --version v2`, and `kubewright create webhook --conversion`.",
    },
    Explanation {
        code: DECLARATION,
        title: "the operator's declaration cannot be read",
        story: "`manifests`, `dev`, `run` and `doctor` build the operator and run it with the hidden subcommand \
                `__declaration`, which needs no cluster: `kubewright::run(operator()).await` answers it. The output \
                was something else, or comes from a library that is newer than this command.\n\nKeep `main` as \
                `kubewright init` writes it, print nothing to standard output, and keep the command and the library \
                at one version. `dev` goes on without a declaration: it applies what it finds in `config/crd/bases`, \
                and webhooks are not set up.",
    },
    Explanation {
        code: BUILD,
        title: "the operator cannot be built or run",
        story: "The command runs the compiled operator to learn what it declares, so the operator has to compile. The \
                compiler's first error is shown; generated files are unchanged.\n\nA package with several programs \
                says in Cargo.toml which one is the operator (`default-run = \"…\"`), or has it in `src/main.rs`.",
    },
    Explanation {
        code: STALE,
        title: "generated files are out of date",
        story: "`kubewright manifests --check` makes the manifests and compares them with the files, for CI. Run \
                `kubewright manifests` and commit what it writes.",
    },
    Explanation {
        code: DANGLING,
        title: "a list in config/ names a generated file that is not there",
        story: "`config/crd/kustomization.yaml`, `config/rbac/kustomization.yaml` and \
                `config/webhook/kustomization.yaml` name files that `kubewright manifests` makes from the code. The \
                code no longer declares the kind or webhook of one of them, so the file is gone and `config/` cannot \
                be rendered. `manifests` warns, `manifests --check` fails.\n\nUsually a line of `operator()` was lost: \
                a kind needs `.crd::<Kind>()`, a webhook its registration. To remove the kind or the webhook, use \
                `kubewright delete api` or `kubewright delete webhook`, which also remove it from PROJECT and from the \
                lists.",
    },
    Explanation {
        code: UNLISTED,
        title: "no list in config/ names a generated file",
        story: "The code declares a kind or a webhook that `config/` does not know, so `deploy` and `build-installer` \
                leave its manifest out. `kubewright create api` and `kubewright create webhook` write the lists; for a \
                declaration written by hand, add the file to `resources` of the kustomization that the message names.",
    },
    Explanation {
        code: PARTS,
        title: "parts of the operator do not fit together",
        story: "The operator compiles and would end at once when it starts: two controllers have one name, an index is \
                declared twice, a predicate is for a kind that its controller neither reconciles, owns nor watches, a \
                finalizer has no domain. The message names the part. `manifests` and `doctor` find it without a \
                cluster; in a test `TestCluster::run` fails with the same words.",
    },
];
