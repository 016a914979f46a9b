//! `watches.yaml`: a list of kinds, and what brings the objects of each about.
//!
//! This is the part that operators of every sort share: the text with the environment in it, group, version and kind,
//! the selector, `reconcilePeriod`; [`Entry`] hands out the other fields one by one. Field names are matched as Go's
//! decoder matches them, whatever the case. An error names the file and the line; a field that nobody took is a
//! warning ([`Entry::unknown`]), as the programs that the file was written for ignore it.

mod duration;
mod environment;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright::kube::core::{GroupVersionKind, Selector};
use kubewright_codegen::outline::Outline;
use serde_json::{Map, Value};

pub use duration::{duration, next_after};
pub use environment::expand;

/// Why a `watches.yaml` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {why}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct Error {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1, where the error belongs to one.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub why: String,
}

/// A kind of a `watches.yaml`.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The kind.
    pub kind: GroupVersionKind,
    /// Which of its objects; `None` for all.
    pub selector: Option<Selector>,
    /// How long after a reconcile the next one is due, where the file says it.
    pub reconcile_period: Option<Duration>,
    place: Place,
    fields: Map<String, Value>,
}

/// Where an entry stands.
#[derive(Clone)]
struct Place {
    file: Arc<Path>,
    outline: Arc<Outline>,
    index: String,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line(&[]))
    }
}

impl Place {
    /// The line of a field of the entry.
    fn line(&self, path: &[&str]) -> usize {
        let mut here = vec![self.index.as_str()];
        here.extend(path);
        self.outline.line_of(&here)
    }
}

/// Reads a file; its text is expanded with the environment of `variable` first.
///
/// # Errors
/// When it cannot be read or is not a list of kinds; a kind that stands twice.
pub fn read(path: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Entry>, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| Error {
        file: path.to_owned(),
        line: None,
        why: format!("it cannot be read: {error}; name the file with --watches-file"),
    })?;
    parse(path, &expand(&text, variable))
}

/// Reads the text of a file.
///
/// ```
/// use std::path::Path;
/// let text = "- {group: shop.example.com, version: v1, kind: Shop, role: shop}\n";
/// let entries = kubewright_operators::watches::parse(Path::new("watches.yaml"), text)?;
/// assert_eq!(entries[0].kind.kind, "Shop");
/// # Ok::<(), kubewright_operators::watches::Error>(())
/// ```
///
/// # Errors
/// As [`read`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<Entry>, Error> {
    let fail = |line, why: String| Error {
        file: path.to_owned(),
        line,
        why,
    };
    let decoded = kubewright_schema::decode::yaml(text.as_bytes()).map_err(|error| {
        let text = error.to_string();
        let line = text
            .split("line ")
            .nth(1)
            .map(|rest| rest.split(|c: char| !c.is_ascii_digit()));
        fail(line.and_then(|mut digits| digits.next()?.parse().ok()), text)
    })?;
    let list = match decoded.value {
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        _ => {
            return Err(fail(
                Some(1),
                "it is a list of kinds: each begins with \"- version:\" or another field".to_owned(),
            ));
        }
    };
    let outline = Arc::new(Outline::of(text).unwrap_or(Outline {
        shape: kubewright_codegen::outline::Shape::Leaf,
        first: 1,
        last: 1,
        flow: false,
    }));
    let file: Arc<Path> = Arc::from(path);
    let mut entries = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, item) in list.into_iter().enumerate() {
        let place = Place {
            file: file.clone(),
            outline: outline.clone(),
            index: index.to_string(),
        };
        let entry = Entry::new(place, item)?;
        let kind = &entry.kind;
        if !seen.insert((kind.group.clone(), kind.version.clone(), kind.kind.clone())) {
            return Err(entry.error(
                &["kind"],
                format!("{} stands twice; a kind has one entry", entry.shown()),
            ));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    fn new(place: Place, item: Value) -> Result<Entry, Error> {
        let Value::Object(fields) = item else {
            return Err(Error {
                file: place.file.to_path_buf(),
                line: Some(place.line(&[])),
                why: "an entry has fields: group, version, kind, and what belongs to them".to_owned(),
            });
        };
        let mut entry = Entry {
            kind: GroupVersionKind::gvk("", "", ""),
            selector: None,
            reconcile_period: None,
            place,
            fields,
        };
        let group = entry.take_text("group")?.unwrap_or_default();
        let version = entry.take_text("version")?.unwrap_or_default();
        let kind = entry.take_text("kind")?.unwrap_or_default();
        for (name, value) in [("version", &version), ("kind", &kind)] {
            if value.is_empty() {
                return Err(entry.error(
                    &[name],
                    format!(
                        "an entry needs a {name}, such as {name}: {}",
                        if name == "kind" { "Memcached" } else { "v1alpha1" }
                    ),
                ));
            }
        }
        entry.kind = GroupVersionKind::gvk(&group, &version, &kind);
        entry.reconcile_period = entry.take_duration("reconcilePeriod")?;
        if let Some(selector) = entry.take("selector").filter(|selector| !selector.is_null()) {
            let wrong = |why: String| entry.error(&["selector"], format!("it is no label selector: {why}"));
            let read: LabelSelector = serde_json::from_value(selector).map_err(|error| wrong(error.to_string()))?;
            let selector = Selector::try_from(read).map_err(|error| wrong(error.to_string()))?;
            entry.selector = Some(selector).filter(|selector| !selector.selects_all());
        }
        Ok(entry)
    }

    /// The kind in words, as Go prints it: `cache.example.com/v1alpha1, Kind=Memcached`.
    #[must_use]
    pub fn shown(&self) -> String {
        shown(&self.kind)
    }

    /// An error at a field, which a path below the entry names.
    #[must_use]
    pub fn error(&self, path: &[&str], why: impl Into<String>) -> Error {
        Error {
            file: self.place.file.to_path_buf(),
            line: Some(self.place.line(path)),
            why: why.into(),
        }
    }

    /// Takes a field out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let key = match self.fields.contains_key(name) {
            true => name.to_owned(),
            false => self.fields.keys().find(|key| key.eq_ignore_ascii_case(name))?.clone(),
        };
        self.fields.remove(&key)
    }

    fn take_as<T>(&mut self, name: &str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, Error> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(self.error(&[name], format!("{name} is {what}, not {value}"))),
            },
        }
    }

    /// Takes a text.
    ///
    /// # Errors
    /// When it is something else.
    pub fn take_text(&mut self, name: &str) -> Result<Option<String>, Error> {
        self.take_as(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// When it is something else.
    pub fn take_bool(&mut self, name: &str) -> Result<Option<bool>, Error> {
        self.take_as(name, "true or false", Value::as_bool)
    }

    /// Takes a whole number.
    ///
    /// # Errors
    /// When it is something else.
    pub fn take_number(&mut self, name: &str) -> Result<Option<i64>, Error> {
        self.take_as(name, "a whole number", Value::as_i64)
    }

    /// Takes a map.
    ///
    /// # Errors
    /// When it is something else.
    pub fn take_map(&mut self, name: &str) -> Result<Option<Map<String, Value>>, Error> {
        self.take_as(name, "a map", |value| value.as_object().cloned())
    }

    /// Takes a duration as Go writes it, such as `1m30s`; one that is not positive is none.
    ///
    /// # Errors
    /// When it is something else.
    pub fn take_duration(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        let what = "a duration, such as 30s, 5m or 1h30m";
        let taken = self.take_as(name, what, |value| duration(value.as_str()?))?;
        Ok(taken.filter(|period| !period.is_zero()))
    }

    /// The fields that nobody has taken, each with its place.
    pub fn unknown(&self) -> impl Iterator<Item = Error> + '_ {
        self.fields.keys().map(|name| {
            self.error(
                &[name],
                format!("there is no field {name:?} in an entry; it is ignored"),
            )
        })
    }
}

/// A kind in words, as Go prints it.
#[must_use]
pub fn shown(kind: &GroupVersionKind) -> String {
    match kind.group.is_empty() {
        true => format!("/{}, Kind={}", kind.version, kind.kind),
        false => format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Result<Vec<Entry>, String> {
        parse(Path::new("watches.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_error_names_file_and_line() {
        let check = |text: &str, expected: &str| match entries(text) {
            Ok(_) => panic!("{text}: it was taken"),
            Err(why) => assert!(why.starts_with(expected), "{text}\n{why}"),
        };
        check("a: b\n", "watches.yaml:1: it is a list of kinds");
        check(
            "---\n- version: v1\n  kind: A\n- text\n",
            "watches.yaml:4: an entry has fields",
        );
        check("- version: v1\n  group: g\n", "watches.yaml:1: an entry needs a kind");
        check("- kind: A\n", "watches.yaml:1: an entry needs a version");
        check("- kind: A\n  version: 1\n", "watches.yaml:2: version is a text, not 1");
        check(
            "- {version: v1, kind: A}\n- {version: v1, kind: B}\n- version: v1\n  kind: A\n",
            "watches.yaml:4: /v1, Kind=A stands twice",
        );
        check(
            "- version: v1\n  kind: A\n  reconcilePeriod: soon\n",
            "watches.yaml:3: reconcilePeriod is a duration, such as 30s, 5m or 1h30m, not \"soon\"",
        );
        check(
            "- version: v1\n  kind: A\n  selector:\n    matchLabels: [a]\n",
            "watches.yaml:3: it is no label selector",
        );
        check(
            "- version: v1\n  kind: A\n  selector:\n    matchExpressions: [{key: a, operator: Near}]\n",
            "watches.yaml:3: it is no label selector",
        );
        check("- version: v1\n  kind: [\n", "watches.yaml:");
        let missing = read(Path::new("/nowhere/watches.yaml"), &|_| None).expect_err("there is none");
        assert!(
            missing
                .to_string()
                .starts_with("/nowhere/watches.yaml: it cannot be read: ")
        );
    }

    #[test]
    fn common_fields_are_read() {
        let text = "- version: v1\n  group: g.io\n  kind: A\n  ManageStatus: yes\n  extra: 1\n  reconcilePeriod: 1m30s\n  \
                    selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: Exists}]}\n- {version: v1, kind: A, selector: {}, reconcilePeriod: 0s}\n";
        let mut read = entries(text).expect("it is right");
        assert_eq!(read[0].shown(), "g.io/v1, Kind=A");
        assert_eq!(read[0].reconcile_period, Some(Duration::from_secs(90)));
        assert_eq!(
            read[0].selector.as_ref().map(ToString::to_string).as_deref(),
            Some("a=b,c")
        );
        assert_eq!(read[0].take_bool("manageStatus"), Ok(Some(true)));
        let unknown: Vec<String> = read[0].unknown().map(|error| error.to_string()).collect();
        assert_eq!(
            unknown,
            ["watches.yaml:5: there is no field \"extra\" in an entry; it is ignored"]
        );
        assert_eq!((read[1].reconcile_period, read[1].selector.is_none()), (None, true));
        assert_eq!(entries("").map(|list| list.len()), Ok(0));
    }
}
