//! CronJobs: their schedule, and the template of their jobs.
//!
//! A schedule has the form of Kubernetes' parser (five fields, or a word with `@`), and its errors have that parser's
//! words.
//!
//! Not here: which time zones there are (`kubewright_schema::zones`), and when a schedule is due, which is the
//! controller's.

use kubewright_schema::error::FieldError;
use kubewright_schema::zones;
use serde_json::Value;

use super::check::{At, Errors, ensure, fill, fill_text, not_negative};
use super::jobs::job_template;
use super::pods;
use super::workloads::WORKLOAD;
use kubewright_model::duration;
use kubewright_model::{MetadataChecks, Strategy};

/// How CronJobs are written.
pub(crate) const CRON_JOB: Strategy = Strategy {
    status_metadata_checks: MetadataChecks::NONE,
    default,
    validate_create: |new| {
        let mut errors = Errors::default();
        errors.extend(cron_job(new));
        let name = At::root(new).keys(&["metadata", "name"]);
        // The controller appends eleven characters to name the jobs.
        if name.text().len() > 52 {
            errors.invalid(&name, "must be no more than 52 characters");
        }
        errors.into_vec()
    },
    validate_update: |new, _| cron_job(new),
    fields: &[
        not_negative(&["spec", "successfulJobsHistoryLimit"], "validateCronJobSpec"),
        not_negative(&["spec", "failedJobsHistoryLimit"], "validateCronJobSpec"),
    ],
    validate_status: |_, _| Vec::new(),
    warnings: |new, old| {
        let name = old.is_none().then(|| pods::warnings::names_of_pods(new)).flatten();
        let mut warnings: Vec<String> = name.into_iter().collect();
        if pods::warnings::are_told(new, old) {
            let template = At::root(new).keys(&["spec", "jobTemplate", "spec", "template"]);
            warnings.extend(pods::warnings::warnings(&template));
        }
        warnings
    },
    ..WORKLOAD
};

fn default(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    ensure(object, "status");
    let Some(spec) = ensure(object, "spec") else { return };
    fill_text(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = ensure(spec, "jobTemplate") {
        ensure(template, "metadata");
        if let Some(job) = ensure(template, "spec") {
            pods::defaults::template(job);
        }
    }
}

/// `validateCronJobSpec`, `validateScheduleFormat` and `validateTimeZone`.
fn cron_job(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let schedule = spec.key("schedule");
    if schedule.text().is_empty() {
        errors.required(&schedule, "");
    } else if let Err(why) = parse(schedule.text()) {
        errors.invalid(&schedule, why);
    }
    if schedule.text().contains("TZ") {
        errors.invalid(
            &schedule,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    }
    errors.non_negative(&spec.key("startingDeadlineSeconds"));
    let zone = spec.key("timeZone");
    if zone.present() && zone.text().is_empty() {
        errors.invalid(&zone, "timeZone must be nil or non-empty string");
    } else if zone.text().eq_ignore_ascii_case("local") {
        errors.invalid(
            &zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    let is_part = |part: &str| !matches!(part, "." | "..");
    if zone.text().contains("..") && zone.text().split('/').all(is_part) {
        errors.invalid(&zone, "time: invalid location name"); // `time.LoadLocation`
    } else if let Err(why) = zones::check(zone.text()) {
        errors.invalid(&zone, why);
    }
    errors.one_of(&spec.key("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], true);
    job_template(&mut errors, &spec.key("jobTemplate"));
    errors.into_vec()
}

/// A field of a schedule: its bounds, and words for its numbers, the first one for `min`.
struct Field {
    min: u64,
    max: u64,
    words: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field {
        min: 0,
        max: 59,
        words: &[],
    },
    Field {
        min: 0,
        max: 23,
        words: &[],
    },
    Field {
        min: 1,
        max: 31,
        words: &[],
    },
    Field {
        min: 1,
        max: 12,
        words: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Field {
        min: 0,
        max: 6,
        words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

/// Whether this is a schedule; if not, why.
fn parse(schedule: &str) -> Result<(), String> {
    // A zone at the beginning is read, so that the rest is checked; the caller refuses it.
    let schedule = match schedule.split_once(' ') {
        Some((zone, rest)) if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => {
            let (_, name) = zone.split_once('=').unwrap_or_default();
            zones::check(name).map_err(|why| format!("provided bad location {name}: {why}"))?;
            rest.trim()
        }
        _ => schedule,
    };
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            range(part, field)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    const KNOWN: [&str; 7] = [
        "@yearly",
        "@annually",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
    ];
    if KNOWN.contains(&text) {
        return Ok(());
    }
    let Some(every) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    duration::check(every).map_err(|why| format!("failed to parse duration {text}: {why}"))
}

fn range(text: &str, field: &Field) -> Result<(), String> {
    let (bounds, steps): (&str, Vec<&str>) = {
        let mut parts = text.split('/');
        (parts.next().unwrap_or(""), parts.collect())
    };
    let ends: Vec<&str> = bounds.split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (field.min, field.max),
        [only] => {
            let value = number_or_word(only, field)?;
            (value, value)
        }
        [low, high] => (number_or_word(low, field)?, number_or_word(high, field)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match steps.as_slice() {
        [] => 1,
        [step] => {
            if ends.len() == 1 {
                end = field.max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < field.min {
        return Err(format!(
            "beginning of range ({start}) below minimum ({}): {text}",
            field.min
        ));
    }
    if end > field.max {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", field.max));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number_or_word(text: &str, field: &Field) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match (field.min..).zip(field.words).find(|(_, word)| **word == lower) {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        ));
    }
    let value: i64 = text
        .parse()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: value out of range"))?;
    u64::try_from(value).map_err(|_| format!("negative number ({value}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for (text, wanted) in [
            ("*/5 * * * *", Ok(())),
            ("0 0 * jan mon-FRI", Ok(())),
            ("@every 1h30m", Ok(())),
            ("@every 1.5h", Ok(())),
            (
                "@every 5",
                Err("failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ),
            (
                "@every 5x",
                Err("failed to parse duration @every 5x: time: unknown unit \"x\" in duration \"5x\""),
            ),
            (
                "30-10 * * * *",
                Err("beginning of range (30) beyond end of range (10): 30-10"),
            ),
            (
                "- * * * *",
                Err("failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ),
            (
                "é * * * *",
                Err("failed to parse int from é: strconv.Atoi: parsing \"é\": invalid syntax"),
            ),
        ] {
            assert_eq!(parse(text), wanted.map_err(str::to_owned), "{text}");
        }
    }
}
