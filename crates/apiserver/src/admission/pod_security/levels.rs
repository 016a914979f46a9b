//! Levels, versions and the labels of a namespace that choose them (the Pod Security Standards' `LevelVersion` and
//! `Policy`).
//!
//! Invariant: a label that cannot be read fails closed for the mode `enforce` (restricted) and open for `warn` and
//! `audit`.

use kubewright_schema::error::FieldError;
use kubewright_schema::path::FieldPath;
use serde_json::Value;

use crate::values::get;

const PREFIX: &str = "pod-security.kubernetes.io/";
const VERSION_TEXT: &str = r#"must be "latest" or "v1.x""#;
const LEVEL_TEXT: &str = "must be one of privileged, baseline, restricted";

/// How much a pod may do; later ones allow less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        match text {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// The rules of which minor version of Kubernetes 1 count; `None`: the latest.
pub(super) type Version = Option<u64>;

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(None);
    }
    let minor = text.strip_prefix("v1.")?;
    let plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
    // More than Go's int can hold is no version there, either.
    let minor: i64 = minor.parse().ok().filter(|_| plain)?;
    Some(u64::try_from(minor).ok())
}

/// A level in a version, shown as `restricted:latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    const DEFAULT: LevelVersion = LevelVersion {
        level: Level::Privileged,
        version: None,
    };
}

impl std::fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.version {
            None => write!(f, "{}:latest", self.level.as_str()),
            Some(minor) => write!(f, "{}:v1.{minor}", self.level.as_str()),
        }
    }
}

/// The levels that the labels of a namespace ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

impl Policy {
    /// Whether nothing is forbidden, told or warned of.
    pub(super) fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn]
            .iter()
            .all(|mode| mode.level == Level::Privileged)
    }
}

/// Reads the labels of a namespace, and their errors.
pub(super) fn policy(namespace: &Value) -> (Policy, Vec<FieldError>) {
    let mut labels = Labels {
        of: get(namespace, &["metadata", "labels"]),
        errors: Vec::new(),
    };
    let mut policy = Policy {
        enforce: LevelVersion::DEFAULT,
        audit: LevelVersion::DEFAULT,
        warn: LevelVersion::DEFAULT,
    };
    let enforced = labels.level("enforce", Level::Restricted);
    policy.enforce.level = enforced.unwrap_or(Ok(Level::Privileged)).unwrap_or_else(|level| level);
    policy.enforce.version = labels.version("enforce").unwrap_or(None);
    let audited = labels.level("audit", Level::Privileged);
    policy.audit.level = audited.unwrap_or(Ok(Level::Privileged)).unwrap_or_else(|level| level);
    policy.audit.version = labels.version("audit").unwrap_or(None);
    let warned = labels.level("warn", Level::Privileged);
    let warned_version = labels.version("warn");
    policy.warn.level = warned.unwrap_or(Ok(Level::Privileged)).unwrap_or_else(|level| level);
    policy.warn.version = warned_version.unwrap_or(None);
    // If the enforced level is stricter than the level of warnings, warnings use it, too.
    if let (None, Some(Ok(level))) = (warned, enforced)
        && level > policy.warn.level
    {
        policy.warn.level = level;
        if warned_version.is_none() {
            policy.warn.version = policy.enforce.version;
        }
    }
    (policy, labels.errors)
}

struct Labels<'a> {
    of: &'a Value,
    errors: Vec<FieldError>,
}

impl Labels<'_> {
    fn read<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>, what: &str) -> Option<Option<T>> {
        let key = format!("{PREFIX}{name}");
        let text = self.of.get(&key)?.as_str().unwrap_or("");
        let parsed = parse(text);
        if parsed.is_none() {
            let path = FieldPath::root().key("metadata").key("labels").map_key(&key);
            self.errors.push(FieldError::invalid(path.to_string(), text, what));
        }
        Some(parsed)
    }

    /// The level of a mode; `Err` is the level that counts instead of one that cannot be read.
    fn level(&mut self, mode: &str, otherwise: Level) -> Option<Result<Level, Level>> {
        let read = self.read(mode, Level::parse, LEVEL_TEXT)?;
        Some(read.ok_or(otherwise))
    }

    fn version(&mut self, mode: &str) -> Option<Version> {
        let read = self.read(&format!("{mode}-version"), parse_version, VERSION_TEXT)?;
        Some(read.unwrap_or(None))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(labels: &[(&str, &str)], enforce: &str, warn: &str, errors: usize) {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| (format!("{PREFIX}{key}"), json!(value)))
            .collect();
        let (policy, found) = policy(&json!({"metadata": {"labels": labels}}));
        let shown = (policy.enforce.to_string(), policy.warn.to_string(), found.len());
        assert_eq!(shown, (enforce.to_owned(), warn.to_owned(), errors), "{labels:?}");
    }

    #[test]
    fn labels_choose_levels() {
        check(&[], "privileged:latest", "privileged:latest", 0);
        check(&[("enforce", "baseline")], "baseline:latest", "baseline:latest", 0);
        check(
            &[("enforce", "restricted"), ("enforce-version", "v1.24")],
            "restricted:v1.24",
            "restricted:v1.24",
            0,
        );
        check(
            &[("enforce", "baseline"), ("warn", "restricted")],
            "baseline:latest",
            "restricted:latest",
            0,
        );
        check(
            &[("enforce", "restricted"), ("warn", "privileged")],
            "restricted:latest",
            "privileged:latest",
            0,
        );
        check(
            &[
                ("enforce", "restricted"),
                ("enforce-version", "v1.24"),
                ("warn-version", "v1.30"),
            ],
            "restricted:v1.24",
            "restricted:v1.30",
            0,
        );
        check(&[("enforce", "strict")], "restricted:latest", "privileged:latest", 1);
        check(
            &[
                ("audit", "x"),
                ("audit-version", "1.2"),
                ("warn", "y"),
                ("warn-version", "v1.02"),
            ],
            "privileged:latest",
            "privileged:latest",
            4,
        );
        check(
            &[("enforce-version", "v1.99999999999999999999")],
            "privileged:latest",
            "privileged:latest",
            1,
        );
    }
}
