//! One thing that happened, and the line that tells of it.
//!
//! Invariant: what a log of this version can hold is all here; a field that is empty is not written.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A request, as kube-apiserver's `RequestInfo` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural: `deployments`; empty for a path that is no resource, such as `/version`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// `status`, `scale`, `eviction`; empty for the object itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The namespace; empty for all of them, and without namespaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name; empty for a collection.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The path, for what is no resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl Call {
    /// Whether it is this verb of this resource: `call.is("update", "deployments")`, `call.is("patch",
    /// "deployments/status")`.
    #[must_use]
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.verb == verb && self.resource == plural && self.subresource == subresource
    }
}

/// The plural with its group, as kubectl takes it.
#[must_use]
pub fn resource(call: &Call) -> String {
    match call.group.as_str() {
        "" => call.resource.clone(),
        group => format!("{}.{group}", call.resource),
    }
}

/// The objects that a call can be about: resource with its group, namespace, name.
pub type Named = (String, String, String);

/// One thing that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Since the begin of the log, or of the run in its own time; in microseconds as JSON.
    #[serde(with = "micros")]
    pub at: Duration,
    /// The run, in a log of several; empty in a log of one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// After which step of the user; the steps count from 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub step: usize,
    /// Which process of the explored operator; they count from 1, and 0 is everybody else.
    #[serde(skip_serializing_if = "is_zero")]
    pub process: usize,
    /// The user of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// What the client calls itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// Of requests, commits and events; empty otherwise.
    pub call: Call,
    /// What it is.
    pub what: What,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// A write, and what came of it.
    Write {
        /// The status code; `None` when there was no answer.
        code: Option<u16>,
        /// Whether it changed anything.
        effective: bool,
        /// The revision that the answer names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<u64>,
        /// What it does not say, and should. Known while it runs; not in the file.
        #[serde(skip)]
        lacks: Option<&'static str>,
    },
    /// A request that writes nothing, or the begin of a watch.
    Read {
        /// The status code.
        code: u16,
    },
    /// An object was created, changed or deleted.
    Commit {
        /// `ADDED`, `MODIFIED` or `DELETED`.
        kind: String,
        /// Its revision.
        revision: u64,
        /// The object after it, as JSON; of one that is deleted its last state.
        object: String,
    },
    /// A watch delivered an event.
    Event {
        /// Its kind: `ADDED`.
        kind: String,
        /// The revision of the object.
        revision: u64,
    },
    /// A reconcile begins or ends.
    Reconcile {
        /// Whether it begins.
        begins: bool,
        /// Of what, and why or how.
        text: String,
    },
    /// A line for people: a step, a fault.
    Told(String),
    /// A line that the operator printed.
    Printed(String),
    /// So many entries were lost before this one, because the writer could not keep up.
    Missed {
        /// How many.
        count: u64,
    },
}

impl Default for What {
    fn default() -> What {
        What::Told(String::new())
    }
}

impl Entry {
    /// The object that the call names.
    #[must_use]
    pub fn named(&self) -> Named {
        let Call { namespace, name, .. } = &self.call;
        (resource(&self.call), namespace.clone(), name.clone())
    }

    /// Whether it is a write, carried out or not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self.what, What::Write { .. })
    }

    /// Whether it is a write that changed something.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        matches!(self.what, What::Write { effective: true, .. })
    }

    /// Without the end that the server made up: what two runs have in common.
    #[must_use]
    pub fn plain(&self) -> String {
        if self.call.resource.is_empty() {
            return format!("{} {}", self.call.verb, self.call.path);
        }
        let (resource, namespace, name) = self.named();
        let subresource = match self.call.subresource.as_str() {
            "" => String::new(),
            subresource => format!("/{subresource}"),
        };
        format!("{} {resource}{subresource} {namespace}/{name}", self.call.verb)
    }

    /// One line of a timeline.
    #[must_use]
    pub fn line(&self) -> String {
        let (minutes, rest) = (self.at.as_secs() / 60, self.at.as_secs() % 60);
        let mut line = format!("{minutes:>3}:{rest:02}.{:03} ", self.at.subsec_millis());
        // Writing to a String cannot fail.
        let _ = match (self.process, self.client()) {
            (0, "") => write!(line, "        "),
            (0, client) => write!(line, "{client}  "),
            (process, _) => write!(line, "proc {process}  "),
        };
        let _ = match &self.what {
            What::Told(text) | What::Reconcile { text, .. } => write!(line, "{text}"),
            What::Event { kind, .. } => write!(line, "  hears {kind} {}", self.object()),
            What::Commit { kind, revision, .. } => write!(line, "{kind} {} ({revision})", self.object()),
            What::Read { code } => write!(line, "  {} → {code}", self.plain()),
            What::Printed(text) => write!(line, "  │ {text}"),
            What::Missed { count } => write!(line, "… {count} entries are missing: the log could not keep up"),
            What::Write {
                code,
                effective,
                revision,
                ..
            } => {
                let came = match (code, effective) {
                    (Some(code), true) => format!("{code}"),
                    (Some(code @ 200..300), false) => format!("{code}, no change"),
                    (Some(code), false) => format!("{code}"),
                    (None, true) => "carried out, no answer".to_owned(),
                    (None, false) => "no answer".to_owned(),
                };
                let _ = write!(line, "  {} → {came}", self.plain());
                match revision {
                    Some(revision) if *effective => write!(line, " ({revision})"),
                    _ => Ok(()),
                }
            }
        };
        line
    }

    /// Resource and name of the object.
    #[must_use]
    pub fn object(&self) -> String {
        let (resource, namespace, name) = self.named();
        match namespace.as_str() {
            "" => format!("{resource} {name}"),
            namespace => format!("{resource} {namespace}/{name}"),
        }
    }

    /// The program that asks, without its version, or the user of one that has no name.
    fn client(&self) -> &str {
        let program = self.agent.split(['/', ' ']).next().unwrap_or_default();
        if program.is_empty() { &self.user } else { program }
    }
}

/// A duration in whole microseconds.
mod micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_micros(u64::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_told_in_a_line() {
        let pod = Call {
            verb: "patch".into(),
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: "a".into(),
            name: "web".into(),
            ..Call::default()
        };
        let check = |change: fn(&mut Entry), what: What, expected: &str| {
            let mut entry = Entry {
                at: Duration::from_millis(61_002),
                call: pod.clone(),
                what,
                ..Entry::default()
            };
            change(&mut entry);
            assert_eq!(entry.line(), expected);
        };
        let write = |code, effective| What::Write {
            code,
            effective,
            revision: None,
            lacks: None,
        };
        let of_kubectl = |entry: &mut Entry| entry.agent = "kubectl/v1.36 (linux)".into();
        check(
            of_kubectl,
            write(Some(200), true),
            "  1:01.002 kubectl    patch deployments.apps a/web → 200",
        );
        check(
            |entry| entry.user = "jane".into(),
            write(Some(200), false),
            "  1:01.002 jane    patch deployments.apps a/web → 200, no change",
        );
        check(
            |entry| entry.process = 2,
            write(None, true),
            "  1:01.002 proc 2    patch deployments.apps a/web → carried out, no answer",
        );
        check(
            |entry| {
                entry.call = Call {
                    verb: "get".into(),
                    path: "/version".into(),
                    ..Call::default()
                }
            },
            What::Read { code: 200 },
            "  1:01.002           get /version → 200",
        );
        check(
            |entry| entry.call.namespace.clear(),
            What::Commit {
                kind: "ADDED".into(),
                revision: 7,
                object: "{}".into(),
            },
            "  1:01.002         ADDED deployments.apps web (7)",
        );
        check(
            of_kubectl,
            What::Event {
                kind: "DELETED".into(),
                revision: 7,
            },
            "  1:01.002 kubectl    hears DELETED deployments.apps a/web",
        );
        check(|_| (), What::Told("step 1".into()), "  1:01.002         step 1");
        check(
            |_| (),
            What::Missed { count: 3 },
            "  1:01.002         … 3 entries are missing: the log could not keep up",
        );
    }
}
