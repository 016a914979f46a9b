//! Semantic versions: `semver('1.2.3').isLessThan(semver('1.3.0'))`. Texts are checked here, for the words of
//! Kubernetes' errors.

use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;

use semver::{BuildMetadata, Prerelease};

use super::Called;
use super::Opaque;
use crate::error::Error;
use crate::value::Value;
use kubewright_values::error::quote;

/// A semantic version.
#[derive(Clone, Debug)]
pub struct Version(semver::Version);

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    let number = |number: u64| Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)));
    Some(match (overload, args) {
        ("string_to_semver", [Value::String(text)]) => value(Version::parse(text)),
        ("string_bool_to_semver", [Value::String(text), Value::Bool(lenient)]) => value(read(text, *lenient)),
        ("is_semver_string", [Value::String(text)]) => Ok(Value::Bool(Version::parse(text).is_ok())),
        ("is_semver_string_bool", [Value::String(text), Value::Bool(lenient)]) => {
            Ok(Value::Bool(read(text, *lenient).is_ok()))
        }
        ("semver_major", [Value::Opaque(Opaque::Semver(version))]) => number(version.0.major),
        ("semver_minor", [Value::Opaque(Opaque::Semver(version))]) => number(version.0.minor),
        ("semver_patch", [Value::Opaque(Opaque::Semver(version))]) => number(version.0.patch),
        (_, [Value::Opaque(Opaque::Semver(a)), Value::Opaque(Opaque::Semver(b))]) => {
            let order = a.compare(b);
            Ok(match overload {
                "semver_is_greater_than" => Value::Bool(order.is_gt()),
                "semver_is_less_than" => Value::Bool(order.is_lt()),
                "semver_compare_to" => Value::Int(match order {
                    Ordering::Less => -1,
                    Ordering::Equal => 0,
                    Ordering::Greater => 1,
                }),
                _ => return None,
            })
        }
        _ => return None,
    })
}

fn value<'a>(version: Result<Version, String>) -> Result<Value<'a>, Error> {
    version
        .map(|version| Value::Opaque(Opaque::Semver(Rc::new(version))))
        .map_err(Error::new)
}

fn read(text: &str, lenient: bool) -> Result<Version, String> {
    if lenient {
        normalize(text).and_then(|text| Version::parse(&text))
    } else {
        Version::parse(text)
    }
}

/// Without a leading `v`, without leading zeros, with all three numbers.
fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            *part = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".into());
    }
    Ok(parts.join("."))
}

fn number(text: &str, name: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "Invalid character(s) found in {} number {}",
            name.to_lowercase(),
            quote(text)
        ));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {}", quote(text)));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quote(text)))
}

impl Version {
    /// Reads a version, with the messages of the library that Kubernetes uses.
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let (rest, build) = apart(rest, '+');
        let (patch, prerelease) = apart(rest, '-');
        let (major, minor, patch) = (
            number(major, "Major")?,
            number(minor, "Minor")?,
            number(patch, "Patch")?,
        );
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        for identifier in prerelease.into_iter().flat_map(|all| all.split('.')) {
            if identifier.is_empty() {
                return Err("Prerelease is empty".into());
            }
            if identifier.len() > 1 && identifier.starts_with('0') && identifier.bytes().all(|b| b.is_ascii_digit()) {
                return Err(format!(
                    "Numeric PreRelease version must not contain leading zeroes {}",
                    quote(identifier)
                ));
            }
            if !plain(identifier) {
                return Err(format!(
                    "Invalid character(s) found in prerelease {}",
                    quote(identifier)
                ));
            }
        }
        for identifier in build.into_iter().flat_map(|all| all.split('.')) {
            if identifier.is_empty() {
                return Err("Build meta data is empty".into());
            }
            if !plain(identifier) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {}",
                    quote(identifier)
                ));
            }
        }
        let pre = Prerelease::new(prerelease.unwrap_or_default()).map_err(|error| error.to_string())?;
        let build = BuildMetadata::new(build.unwrap_or_default()).map_err(|error| error.to_string())?;
        Ok(Self(semver::Version {
            major,
            minor,
            patch,
            pre,
            build,
        }))
    }

    /// The order of precedence, in which builds count for nothing.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }
}

/// What stands before the mark, and what behind it.
fn apart(text: &str, mark: char) -> (&str, Option<&str>) {
    text.split_once(mark)
        .map_or((text, None), |(before, behind)| (before, Some(behind)))
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
