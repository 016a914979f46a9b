//! The options of requests (`CreateOptions`, `UpdateOptions`, `PatchOptions`, `DeleteOptions`, `ListOptions`) and their
//! errors.

use kubewright_schema::error::{FieldError, Reason};
use serde_json::{Map, Value, json};

use crate::model::Minor;
use crate::model::status::Status;
use crate::wire::query::Query;

/// How unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The options of a write, from the query.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// The client's own value of it, if any.
    pub(crate) given_validation: Option<&'static str>,
    /// Empty when the client gives none.
    pub(crate) field_manager: String,
    /// Takes fields away from their owners (apply only).
    pub(crate) force: bool,
}

/// An unsupported value, with the supported ones in upstream's order, which is not always the alphabet's.
fn unsupported(field: &str, value: Value, supported: &[&str]) -> FieldError {
    let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    FieldError {
        reason: Reason::NotSupported,
        field: field.to_owned(),
        bad_value: Some(value),
        detail: format!("supported values: {}", quoted.join(", ")),
    }
}

fn check_dry_run(values: &[String], errors: &mut Vec<FieldError>) {
    if values.iter().any(|value| value != "All") {
        errors.push(unsupported("dryRun", json!(values), &["All"]));
    }
}

fn check_field_manager(manager: &str, errors: &mut Vec<FieldError>) {
    const MAX: usize = 128;
    if manager.len() > MAX {
        errors.push(FieldError::too_long("fieldManager", MAX));
    }
    for (at, c) in manager.chars().enumerate() {
        if c.is_control() {
            let message = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
            errors.push(FieldError::invalid("fieldManager", json!(manager), message));
        }
    }
}

impl WriteOptions {
    /// Reads the options of a POST, PUT or PATCH; `kind` is the name of the options in errors.
    pub(crate) fn parse(query: &Query, kind: &str) -> Result<WriteOptions, Status> {
        WriteOptions::checked(query, kind, false)
    }

    /// Reads the options of an apply.
    pub(crate) fn parse_apply(query: &Query) -> Result<WriteOptions, Status> {
        WriteOptions::checked(query, "PatchOptions", true)
    }

    fn checked(query: &Query, kind: &str, apply: bool) -> Result<WriteOptions, Status> {
        let mut errors = Vec::new();
        if apply && query.get("fieldManager").is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        check_field_manager(query.get("fieldManager"), &mut errors);
        if !apply && kind == "PatchOptions" && query.has("force") {
            errors.push(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        check_dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(unsupported(
                    "fieldValidation",
                    json!(other),
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        if errors.is_empty() {
            Ok(WriteOptions {
                dry_run: query.has("dryRun"),
                field_validation,
                given_validation: ["Ignore", "Warn", "Strict"]
                    .into_iter()
                    .find(|known| *known == query.get("fieldValidation")),
                field_manager: query.get("fieldManager").to_owned(),
                force: query.flag("force"),
            })
        } else {
            Err(Status::invalid_options(kind, &errors))
        }
    }
}

impl WriteOptions {
    /// The options as admission sees them, without `kind` and `apiVersion`.
    pub(crate) fn to_value(&self) -> Value {
        let mut options = json!({});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if !self.field_manager.is_empty() {
            options["fieldManager"] = json!(self.field_manager);
        }
        if let Some(given) = self.given_validation {
            options["fieldValidation"] = json!(given);
        }
        options
    }
}

/// The effect of a delete on an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    /// The deprecated `orphanDependents`.
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// Deletes only what cannot be read (`ignoreStoreReadErrorWithClusterBreakingPotential`; not looked at before 1.37).
    pub(crate) unreadable_only: Option<bool>,
}

/// What [`DeleteOptions::unreadable_only`] is called.
const UNREADABLE_ONLY: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    /// The options as admission sees them, without `kind` and `apiVersion`.
    pub(crate) fn to_value(&self) -> Value {
        let mut options = json!({});
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                options[key] = value;
            }
        };
        put("gracePeriodSeconds", self.grace_period.map(|seconds| json!(seconds)));
        let mut preconditions = Map::new();
        for (key, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(value) = value {
                preconditions.insert(key.to_owned(), json!(value));
            }
        }
        put(
            "preconditions",
            (!preconditions.is_empty()).then_some(Value::Object(preconditions)),
        );
        put("orphanDependents", self.orphan_dependents.map(|orphan| json!(orphan)));
        put(
            "propagationPolicy",
            self.propagation.map(|policy| {
                json!(match policy {
                    Propagation::Background => "Background",
                    Propagation::Foreground => "Foreground",
                    Propagation::Orphan => "Orphan",
                })
            }),
        );
        put("dryRun", self.dry_run.then(|| json!(["All"])));
        put(UNREADABLE_ONLY, self.unreadable_only.map(Value::from));
        options
    }

    /// From the body of a DELETE.
    pub(crate) fn from_value(body: &Value, minor: Minor) -> Result<DeleteOptions, Status> {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let flag = |key: &str| body.get(key).and_then(Value::as_bool);
        let dry_run: Vec<String> = body
            .get("dryRun")
            .and_then(Value::as_array)
            .map(|values| {
                values
                    .iter()
                    .map(|value| value.as_str().unwrap_or("").to_owned())
                    .collect()
            })
            .unwrap_or_default();
        DeleteOptions {
            grace_period: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            orphan_dependents: flag("orphanDependents"),
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            unreadable_only: flag(UNREADABLE_ONLY).filter(|_| minor >= Minor::V37),
            ..DeleteOptions::default()
        }
        .checked(
            text("/propagationPolicy").as_deref(),
            &dry_run,
            body.get("preconditions").is_some_and(Value::is_object),
        )
    }

    /// From the query of a DELETE without a body.
    pub(crate) fn from_query(query: &Query, minor: Minor) -> Result<DeleteOptions, Status> {
        let policy = query.all("propagationPolicy").first().map(String::as_str);
        let text = |key: &str| Some(query.get(key)).filter(|text| !text.is_empty()).map(str::to_owned);
        DeleteOptions {
            grace_period: query.number("gracePeriodSeconds")?,
            orphan_dependents: query.optional_flag("orphanDependents"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            unreadable_only: query.optional_flag(UNREADABLE_ONLY).filter(|_| minor >= Minor::V37),
            ..DeleteOptions::default()
        }
        .checked(
            policy,
            query.all("dryRun"),
            query.has("uid") || query.has("resourceVersion"),
        )
    }

    /// `conditional`: there are preconditions, if only empty ones.
    fn checked(mut self, policy: Option<&str>, dry_run: &[String], conditional: bool) -> Result<DeleteOptions, Status> {
        let mut errors = Vec::new();
        if let (Some(policy), Some(_)) = (policy, self.orphan_dependents) {
            let message = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", json!(policy), message));
        }
        self.propagation = match policy {
            None => None,
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                errors.push(unsupported(
                    "propagationPolicy",
                    json!(other),
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        check_dry_run(dry_run, &mut errors);
        if self.unreadable_only == Some(true) {
            let others = [
                ("propagationPolicy", policy.is_some()),
                ("orphanDependents", self.orphan_dependents.is_some()),
                ("gracePeriodSeconds", self.grace_period.is_some()),
                ("preconditions", conditional),
            ];
            let given = others.iter().filter(|(_, is_given)| *is_given);
            errors.extend(given.map(|(other, _)| {
                let why = format!("cannot be set together with .{other}");
                FieldError::invalid(UNREADABLE_ONLY, json!(true), why)
            }));
        }
        self.dry_run = !dry_run.is_empty();
        if errors.is_empty() {
            Ok(self)
        } else {
            Err(Status::invalid_options("DeleteOptions", &errors))
        }
    }

    /// Refuses the options that are for single objects only.
    pub(crate) fn check_collection(&self) -> Result<(), Status> {
        if self.unreadable_only != Some(true) {
            return Ok(());
        }
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let error = FieldError::invalid(UNREADABLE_ONLY, json!(true), why);
        Err(Status::invalid_options("DeleteOptions", &[error]))
    }
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// The server chooses.
    Unset,
    NotOlderThan,
    Exact,
}

/// Checks how `resourceVersion`, `resourceVersionMatch`, `continue` and `sendInitialEvents` go together, for lists and
/// watches.
pub(crate) fn version_match(query: &Query, watch: bool) -> Result<Match, Status> {
    const FIELD: &str = "resourceVersionMatch";
    let (version, wanted) = (query.get("resourceVersion"), query.get(FIELD));
    let mut errors = Vec::new();
    let initial_events = query.optional_flag("sendInitialEvents");
    if watch {
        // A watch from now, or from anything, is one with initial events that names no match of its own.
        let legacy = wanted.is_empty() && initial_events.is_none() && ["", "0"].contains(&version);
        if (legacy || !wanted.is_empty()) && !query.get("continue").is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if initial_events.is_some() {
            if wanted.is_empty() {
                let what = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                errors.push(FieldError::forbidden(FIELD, what));
            } else if wanted != "NotOlderThan" {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
                errors.push(unsupported(FIELD, json!(wanted), &["NotOlderThan"]));
            }
        } else if !wanted.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
            if wanted != "NotOlderThan" {
                errors.push(unsupported(FIELD, json!(wanted), &["NotOlderThan"]));
            }
        }
    } else {
        if initial_events.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        if !wanted.is_empty() {
            if version.is_empty() {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !query.get("continue").is_empty() {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !["Exact", "NotOlderThan"].contains(&wanted) {
                errors.push(unsupported(FIELD, json!(wanted), &["Exact", "NotOlderThan", ""]));
            }
            if wanted == "Exact" && version == "0" {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
    }
    if !errors.is_empty() {
        return Err(Status::invalid_options("ListOptions", &errors));
    }
    Ok(match wanted {
        "Exact" => Match::Exact,
        "NotOlderThan" => Match::NotOlderThan,
        _ => Match::Unset,
    })
}

/// Reads a resourceVersion; the error is the text that upstream puts in different answers.
pub(crate) fn parse_version(text: &str) -> Result<u64, String> {
    use std::num::IntErrorKind;
    // Unlike Rust, Go reads no sign.
    let read = match text.strip_prefix('+') {
        Some(_) => Err("invalid syntax"),
        None => text
            .parse()
            .map_err(|error: std::num::ParseIntError| match error.kind() {
                IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            }),
    };
    read.map_err(|why| format!("strconv.ParseUint: parsing {text:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T>(got: Result<T, Status>, want: &str) {
        let message = got.err().map_or_else(String::new, |status| status.message);
        assert_eq!(message, want);
    }

    fn query(text: &str) -> Query {
        Query::parse(text).expect("a short query")
    }

    #[test]
    fn versions_are_numbers_as_go_reads_them() {
        for (text, want) in [
            ("0", Ok(0)),
            ("00", Ok(0)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err("value out of range")),
            ("+1", Err("invalid syntax")),
            ("-1", Err("invalid syntax")),
            (" 5", Err("invalid syntax")),
            ("", Err("invalid syntax")),
        ] {
            let want = want.map_err(|why| format!("strconv.ParseUint: parsing {text:?}: {why}"));
            assert_eq!(parse_version(text), want, "{text}");
        }
    }

    #[test]
    fn write_options() {
        let of = |text: &str| WriteOptions::parse(&query(text), "CreateOptions");
        check(
            of("dryRun=All&dryRun=All&fieldValidation=Strict&fieldManager=kubectl"),
            "",
        );
        check(
            of("dryRun=Foo"),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"",
        );
        check(
            of("dryRun="),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\"",
        );
        check(
            of("fieldValidation=Foo"),
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        );
        check(
            of("fieldManager=a%09b"),
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)",
        );
    }

    #[test]
    fn delete_options() {
        check(
            DeleteOptions::from_query(&query("propagationPolicy=Orphan&gracePeriodSeconds=5"), Minor::OLDEST),
            "",
        );
        check(
            DeleteOptions::from_query(&query("propagationPolicy=Foo"), Minor::OLDEST),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Foo\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
        );
        check(
            DeleteOptions::from_value(
                &json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
                Minor::OLDEST,
            ),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
        );
    }

    #[test]
    fn list_options() {
        let list = |text: &str| version_match(&query(text), false);
        let watch = |text: &str| version_match(&query(text), true);
        let invalid = |what: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {what}");
        check(list("resourceVersion=5&resourceVersionMatch=Exact"), "");
        check(
            list("resourceVersionMatch=Exact"),
            &invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
        );
        check(
            list("resourceVersionMatch=Exact&resourceVersion=0"),
            &invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
        );
        check(
            list("resourceVersionMatch=Foo&resourceVersion=5"),
            &invalid(
                "resourceVersionMatch: Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
        );
        check(
            list("sendInitialEvents=true"),
            &invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        );
        check(watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), "");
        check(
            watch("sendInitialEvents=true"),
            &invalid(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        );
        check(
            watch("resourceVersionMatch=NotOlderThan"),
            &invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        );
    }
}
