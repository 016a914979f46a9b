//! Dates and durations far away.

use crate::hostile::input::{Input, Request, create, delete, get, input};
use crate::hostile::values::{CONFIG_MAPS, CRON_JOBS, EVENTS, JOBS, LEASES, PODS, config_map, object, pod, scaled};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input(
            "a pod deleted with a grace period of 10^12 seconds",
            &[200, 202, 400, 422],
            || graceful("1000000000000"),
        ),
        input(
            "a pod deleted with a grace period of 2^63 - 1 seconds",
            &[200, 202, 400, 422],
            || graceful("9223372036854775807"),
        ),
        input(
            "a pod deleted with a grace period of -2^63 seconds",
            &[200, 202, 400, 422],
            || graceful("-9223372036854775808"),
        ),
        input("a grace period of 2^63 - 1 in the query", &[200, 202, 400, 422], || {
            let pods = create(PODS, "late", pod("late", "\"nodeName\":\"n\""));
            delete(&format!("{PODS}/late"), "")
                .query("gracePeriodSeconds=9223372036854775807")
                .after(pods)
        }),
        input("a pod with a termination grace period of 2^63 - 1", &[200, 202], || {
            let spec = "\"nodeName\":\"n\",\"terminationGracePeriodSeconds\":9223372036854775807";
            delete(&format!("{PODS}/late"), "{}").after(create(PODS, "late", pod("late", spec)))
        }),
        input("a pod with an active deadline of 2^63 - 1", &[201, 422], || {
            create(
                PODS,
                "late",
                pod("late", "\"activeDeadlineSeconds\":9223372036854775807"),
            )
        }),
        input("an object created in the year 9999", &[201, 400], || {
            created("9999-12-31T23:59:59Z")
        }),
        input("an object created in the year 0", &[201, 400], || {
            created("0000-01-01T00:00:00Z")
        }),
        input(
            "an object created in a leap second, far in the east",
            &[201, 400],
            || created("1990-12-31T23:59:60+23:59"),
        ),
        input("an object created in the year -9999", &[400], || {
            created("-9999-01-01T00:00:00Z")
        }),
        input("a Lease renewed in the year 9999", &[201, 400], || {
            lease("\"renewTime\":\"9999-12-31T23:59:59.999999Z\"")
        }),
        input("an Event of the last second of the year 9999", &[201], || {
            event("9999-12-31T23:59:59.999999999Z")
        }),
        input("an Event at a time of 100,000 decimals", &[201], || {
            event(&format!("2026-01-02T03:04:05.{}Z", "1".repeat(100_000)))
        }),
        input("an Event in a zone of 60 minutes", &[201], || {
            event("2026-01-02T03:04:05+00:60")
        }),
        input("a Lease of 2^31 - 1 seconds", &[201], || {
            lease("\"leaseDurationSeconds\":2147483647")
        }),
        input("a Job that may go 2^31 - 1 seconds after its end", &[201], || {
            job("\"ttlSecondsAfterFinished\":2147483647,\"activeDeadlineSeconds\":9223372036854775807")
        }),
        input("a CronJob for the 31st of February", &[201, 422], || {
            cron("0 0 31 2 *", "")
        }),
        input("a CronJob with a schedule of 500,000 minutes", &[201, 422], || {
            cron(&format!("{} * * * *", vec!["1"; scaled(500_000)].join(",")), "")
        }),
        input("a CronJob that steps by 2^64", &[422], || {
            cron("*/18446744073709551616 * * * *", "")
        }),
        input("a CronJob with a deadline of 2^63 - 1 seconds", &[201], || {
            cron("* * * * *", ",\"startingDeadlineSeconds\":9223372036854775807")
        }),
        input("a CronJob in a time zone of 100,000 letters", &[422], || {
            cron("* * * * *", &format!(",\"timeZone\":\"{}\"", "x".repeat(100_000)))
        }),
        input("a list that may take 2^63 - 1 seconds", &[200, 400], || {
            get(CONFIG_MAPS).query("timeoutSeconds=9223372036854775807")
        }),
    ]
}

fn graceful(seconds: &str) -> Request {
    delete(&format!("{PODS}/late"), format!("{{\"gracePeriodSeconds\":{seconds}}}")).after(create(
        PODS,
        "late",
        pod("late", "\"nodeName\":\"n\""),
    ))
}

fn created(time: &str) -> Request {
    let metadata = format!("\"creationTimestamp\":\"{time}\",\"deletionTimestamp\":\"{time}\"");
    create(CONFIG_MAPS, "late", config_map("late", &metadata, ""))
}

fn event(time: &str) -> Request {
    let times =
        format!(r#""involvedObject":{{"namespace":"default"}},"firstTimestamp":"{time}","lastTimestamp":"{time}""#);
    create(EVENTS, "late", object("v1", "Event", "late", "", &times))
}

fn lease(spec: &str) -> Request {
    let spec = format!(r#""spec":{{"holderIdentity":"a",{spec}}}"#);
    create(
        LEASES,
        "late",
        object("coordination.k8s.io/v1", "Lease", "late", "", &spec),
    )
}

const TEMPLATE: &str = r#""template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}"#;

fn job(spec: &str) -> Request {
    let spec = format!(r#""spec":{{{TEMPLATE},{spec}}}"#);
    create(JOBS, "late", object("batch/v1", "Job", "late", "", &spec))
}

fn cron(schedule: &str, more: &str) -> Request {
    let spec = format!(r#""spec":{{"schedule":"{schedule}","jobTemplate":{{"spec":{{{TEMPLATE}}}}}{more}}}"#);
    create(CRON_JOBS, "late", object("batch/v1", "CronJob", "late", "", &spec))
}
