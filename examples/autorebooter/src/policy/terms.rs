//! A policy with its defaults.

use std::time::Duration;

use autorebooter_api::v1alpha1::{DatabaseType, FirstObservation, Mode, RebootPolicySpec};

use crate::world::{Question, What};

/// The channel of PostgreSQL that is listened on unless the policy names another.
const CHANNEL: &str = "autoreboot";

/// Delays and choices of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long until the value is read again.
    pub poll_interval: Duration,
    /// How long a value must rest.
    pub debounce: Duration,
    /// How long a restart keeps the next one waiting.
    pub min_restart_interval: Duration,
    /// The effect of the first value.
    pub first: FirstObservation,
}

impl Terms {
    /// Those of a policy.
    pub fn of(spec: &RebootPolicySpec) -> Terms {
        let or = |given: Option<kubewright::kube::core::Duration>, seconds| {
            given.map_or(Duration::from_secs(seconds), Duration::from)
        };
        Terms {
            poll_interval: or(spec.source.poll_interval, 30).max(Duration::from_secs(1)),
            debounce: or(spec.debounce, 10),
            min_restart_interval: or(spec.min_restart_interval, 300),
            first: spec.on_first_observation.unwrap_or_default(),
        }
    }
}

/// The question to the database; `None` when the policy has none, which validation forbids.
pub fn question(spec: &RebootPolicySpec) -> Option<Question> {
    let watched = &spec.source.watch;
    let what = match (&watched.table, &watched.query) {
        (Some(table), None) => What::Column {
            schema: table.schema.clone(),
            table: table.name.clone(),
            column: table.column.clone(),
            condition: table.condition.clone(),
        },
        (None, Some(query)) => What::Query(query.clone()),
        _ => return None,
    };
    let is_told = spec.source.type_ == DatabaseType::Postgres && spec.source.mode.unwrap_or_default() != Mode::Poll;
    let channel = spec.source.channel.as_deref().unwrap_or(CHANNEL);
    Some(Question {
        what,
        channel: is_told.then(|| channel.to_owned()),
    })
}

/// The value in words, for events: `column settings.version`.
pub fn described(what: &What) -> String {
    match what {
        What::Column { table, column, .. } => format!("column {table}.{column}"),
        What::Query(_) => "the answer of the query".to_owned(),
    }
}
