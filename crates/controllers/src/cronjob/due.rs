//! The schedule of a CronJob at this moment: which run is due, and when to look again.
//!
//! Pure (`mostRecentScheduleTime` and its neighbours in `pkg/controller/cronjob/utils.go`).

use std::time::Duration;

use kubewright::jiff::SignedDuration;
use kubewright::jiff::tz::TimeZone;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::batch::v1::{CronJob, CronJobStatus, Job};

use super::schedule::Schedule;
use kubewright_objects::meta;

/// How long after the due time to look, so that clocks which differ a little do not make it early
/// (`nextScheduleDelta`).
const DELTA: Duration = Duration::from_millis(100);
/// More missed runs than these are told of.
const MANY: i64 = 100;

/// The run that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The time of the run to start.
    pub(super) start: Option<Timestamp>,
    /// Very many runs were missed before it.
    pub(super) many: bool,
    /// How long until the next one.
    pub(super) wait: Duration,
}

impl Due {
    pub(super) fn of(cron_job: &CronJob, status: &CronJobStatus, schedule: &Schedule, now: Timestamp) -> Due {
        let created = meta::created(&cron_job.metadata);
        let last = status.last_schedule_time.as_ref().map_or(created, |time| time.0);
        let deadline = cron_job.spec.starting_deadline_seconds;
        let oldest = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
        let earliest = oldest.map_or(last, |oldest| oldest.max(last));
        let start = schedule.most_recent(earliest, now);
        let from = schedule.most_recent(last, now).unwrap_or(last);
        let next = schedule.next(from.max(last));
        let wait = next.map_or(Duration::MAX, |next| {
            Duration::try_from(next.duration_since(now)).unwrap_or(Duration::ZERO)
        });
        Due {
            start,
            many: start.is_some() && has_missed_many(schedule, earliest, now),
            wait: wait.saturating_add(DELTA).min(LONGEST),
        }
    }
}

/// A timer that is longer is set anew: clocks are changed.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Counted by the distance of the first two.
fn has_missed_many(schedule: &Schedule, earliest: Timestamp, now: Timestamp) -> bool {
    let first = schedule.next(earliest);
    let second = first.and_then(|first| schedule.next(first));
    let (Some(first), Some(second)) = (first, second.filter(|second| *second <= now)) else {
        return false;
    };
    let between = second.duration_since(first).as_secs().max(1);
    now.duration_since(first).as_secs() / between + 1 > MANY
}

/// How a Job has ended, if it has: the type of its condition.
pub(super) fn finished(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let ends = |type_: &str| ["Complete", "Failed"].contains(&type_);
    let found = conditions
        .iter()
        .find(|condition| condition.status == "True" && ends(&condition.type_))?;
    Some(&found.type_)
}

/// The sort key of Jobs, the oldest first (`byJobStartTime`): those that have never started are the newest.
pub(super) fn age(job: &Job) -> impl Ord + use<> {
    let started = job.status.as_ref().and_then(|status| status.start_time.clone());
    (started.is_none(), started, job.metadata.name.clone())
}

/// The time in a zone as Go writes RFC 3339: `Z` for UTC, else the offset.
pub(super) fn rfc3339(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    match zoned.offset().seconds() {
        0 => zoned.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        _ => zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_is_due() {
        let now = "2026-11-23T10:00:30Z";
        let check = |schedule: &str,
                     deadline: Value,
                     created: &str,
                     last: Value,
                     start: Option<&str>,
                     many: bool,
                     wait: u64| {
            let cron_job: CronJob = serde_json::from_value(json!({
                "metadata": {"name": "c", "creationTimestamp": created},
                "spec": {"schedule": schedule, "startingDeadlineSeconds": deadline, "jobTemplate": {"spec": {"template": {}}}},
                "status": {"lastScheduleTime": last},
            }))
            .expect("a CronJob");
            let parsed = Schedule::parse(schedule, TimeZone::UTC).expect("a schedule");
            let status = cron_job.status.clone().unwrap_or_default();
            let due = Due::of(&cron_job, &status, &parsed, now.parse().expect("a time"));
            let found = (due.start.map(|start| start.to_string()), due.many, due.wait.as_secs());
            assert_eq!(
                found,
                (start.map(str::to_owned), many, wait),
                "{schedule} {deadline} {created} {last}"
            );
        };
        let before = "2026-11-23T10:00:10Z";
        check("* * * * *", Value::Null, before, Value::Null, None, false, 30);
        let minute = "2026-11-23T10:00:00Z";
        check(
            "* * * * *",
            Value::Null,
            "2026-11-23T09:59:30Z",
            Value::Null,
            Some(minute),
            false,
            30,
        );
        check(
            "* * * * *",
            Value::Null,
            "2024-01-01T00:00:00Z",
            json!(minute),
            None,
            false,
            30,
        );
        check(
            "* * * * *",
            Value::Null,
            "2024-01-01T00:00:00Z",
            Value::Null,
            Some(minute),
            true,
            30,
        );
        check(
            "* * * * *",
            json!(200),
            "2024-01-01T00:00:00Z",
            Value::Null,
            Some(minute),
            false,
            30,
        );
        check(
            "0 0 1 1 *",
            json!(100),
            "2024-06-01T00:00:00Z",
            Value::Null,
            None,
            false,
            86_400,
        );
        check(
            "0 0 1 1 *",
            Value::Null,
            "2024-06-01T00:00:00Z",
            Value::Null,
            Some("2026-01-01T00:00:00Z"),
            false,
            86_400,
        );
    }

    #[test]
    fn the_oldest_goes_first() {
        let job = |(name, start): &(&str, Value)| -> Job {
            let job = json!({ "metadata": { "name": name }, "status": { "startTime": start } });
            serde_json::from_value(job).expect("a Job")
        };
        let (early, late) = (json!("2026-11-23T10:00:00Z"), json!("2026-11-23T11:00:00Z"));
        let jobs = [("a", Value::Null), ("b", late), ("d", early.clone()), ("c", early)];
        let mut jobs: Vec<Job> = jobs.iter().map(job).collect();
        jobs.sort_by_key(age);
        let names: Vec<&str> = jobs.iter().filter_map(|job| job.metadata.name.as_deref()).collect();
        assert_eq!(names, ["c", "d", "b", "a"]);
    }

    #[test]
    fn times_are_written_in_their_zone() {
        let at: Timestamp = "2026-07-01T10:00:00Z".parse().expect("a time");
        let check = |zone: &str, expected: &str| {
            let zone = super::super::schedule::zone(zone).expect("a time zone");
            assert_eq!(rfc3339(at, &zone), expected);
        };
        check("UTC", "2026-07-01T10:00:00Z");
        check("Europe/Berlin", "2026-07-01T12:00:00+02:00");
        check("America/St_Johns", "2026-07-01T07:30:00-02:30");
    }
}
