//! Observations as lines of JSON, one [`Message`] each.
//!
//! Writer and reader are two processes of one machine that may be built from different versions: a reader that does not
//! know a message says so and goes on. Not here: the socket, see `stream.rs`.

use serde::{Deserialize, Deserializer, Serialize};

use super::Observation;

/// One line of an operator's messages to `kubewright dev`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Message {
    /// The first line: the operator and its controllers.
    Hello {
        /// The operator's name.
        operator: String,
        /// The names of its controllers, each of which will say [`Observation::ControllerStarted`].
        controllers: Vec<String>,
    },
    /// Something happened.
    Observed(Observation),
    /// So many observations were lost before this line, because the reader was too slow.
    Missed {
        /// How many.
        count: u64,
    },
}

/// `Arc<str>` as text.
pub(super) mod text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Arc::from)
    }
}

/// `Option<Arc<str>>` as text or null.
pub(super) mod optional_text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        text: &Option<Arc<str>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<str>>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Arc::from))
    }
}

/// The verbs of writes, which are known to be these.
pub(super) fn verb<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    const VERBS: &[&str] = &["create", "update", "patch", "delete"];
    let verb_text = String::deserialize(deserializer)?;
    VERBS
        .iter()
        .find(|verb| **verb == verb_text)
        .copied()
        .ok_or_else(|| serde::de::Error::unknown_variant(&verb_text, VERBS))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{Cause, FieldChange, ObjectRef, Outcome, Request, changes_between};

    /// A written message can be read, and reads the same.
    fn check(message: &Message) -> String {
        let line = serde_json::to_string(message).expect("observations are plain data");
        let read: Message = serde_json::from_str(&line).expect("what was written can be read");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), line);
        assert!(!line.contains('\n'), "one line each");
        format!("{read:?}")
    }

    #[test]
    fn messages_survive_the_way() {
        let object = ObjectRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: Some("default".into()),
            name: "hello".into(),
        };
        let changed = Cause::changed_in(
            object.clone(),
            changes_between(&json!({"spec": {"replicas": 1}}), &json!({"spec": {"replicas": 3}})),
        );
        let started = check(&Message::Observed(Observation::ReconcileStarted {
            controller: "guestbook".into(),
            request: Request::new(Some("default"), "hello"),
            reconcile_id: 4,
            causes: vec![
                changed,
                Cause::retry(2, "no luck".into()),
                Cause::requested("asked for"),
            ],
            ready: 2,
            delayed: 1,
        }));
        assert!(
            started.contains("Deployment default/hello changed: spec.replicas 1 → 3"),
            "{started}"
        );
        check(&Message::Observed(Observation::ReconcileFinished {
            controller: "guestbook".into(),
            request: Request::new(None, "hello"),
            reconcile_id: 4,
            outcome: Outcome::Retry {
                error: "line one\nline two".into(),
                attempt: 1,
                after: Duration::from_millis(5),
            },
            took: Duration::from_micros(1500),
        }));
        check(&Message::Observed(Observation::Written {
            controller: None,
            verb: "patch",
            object,
            subresource: Some("status".into()),
            changes: vec![FieldChange {
                path: "status.ready".into(),
                before: None,
                after: Some(json!(2)),
            }],
        }));
        check(&Message::Missed { count: 3 });
    }

    #[test]
    fn what_is_not_known_is_an_error_and_not_a_guess() {
        for line in [
            r#"{"observed":{"leaderElected":{}}}"#,
            r#"{"observed":{"written":{"controller":null,"verb":"merge","object":{"apiVersion":"v1","kind":"A","namespace":null,"name":"b"},"subresource":null,"changes":[]}}}"#,
        ] {
            assert!(serde_json::from_str::<Message>(line).is_err(), "{line}");
        }
    }
}
