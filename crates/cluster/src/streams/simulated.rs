//! The log of a simulated container: no program runs in it, so its log is its history.
//!
//! Pure. It follows from the pod alone, so that a cluster that starts again says the same.

use jiff::Timestamp;
use serde_json::Value;

use kubewright_nodes::Line;

/// The log of a container, or of its previous life.
pub(crate) fn log(pod: &Value, container: &str, previous: bool) -> Vec<Line> {
    let Some(status) = status(pod, container) else {
        return Vec::new();
    };
    let image = status.get("image").and_then(Value::as_str).unwrap_or_default();
    let life = |state: &str| {
        let ended = status.pointer(&format!("/{state}/terminated"));
        let running = status.pointer(&format!("/{state}/running"));
        let began = running.or(ended).and_then(|life| time(life, "startedAt"));
        let start = began.map(|at| Line::new(at, format!("simulated: started {image:?}; no program runs")));
        let end = ended.and_then(|end| {
            let code = end.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
            let at = time(end, "finishedAt").or(began)?;
            Some(Line::new(at, format!("simulated: ended with exit code {code}")))
        });
        start.into_iter().chain(end).collect::<Vec<_>>()
    };
    let now = life("state");
    // Between two lives the latest one is shown, as a kubelet does.
    if previous || now.is_empty() {
        life("lastState")
    } else {
        now
    }
}

/// Whether the container's life goes on, so that there may be more to say.
pub(crate) fn is_running(pod: &Value, container: &str) -> bool {
    status(pod, container)
        .and_then(|status| status.pointer("/state/running"))
        .is_some_and(|running| !running.is_null())
}

fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let fields = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    fields.iter().find_map(|field| {
        let list = pod.pointer(&format!("/status/{field}"))?.as_array()?;
        list.iter()
            .find(|status| status.get("name").and_then(Value::as_str) == Some(container))
    })
}

fn time(life: &Value, field: &str) -> Option<Timestamp> {
    life.get(field).and_then(Value::as_str)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_happened_to_a_container() {
        let check = |status: Value, previous: bool, expected: &[&str]| {
            let pod = json!({ "status": { "containerStatuses": [status] } });
            let lines = log(&pod, "c", previous);
            let texts: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(&line.text)).collect();
            assert_eq!(texts, expected, "{pod}");
        };
        let started = "simulated: started \"i\"; no program runs";
        let ended = "simulated: ended with exit code 3";
        let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
        let over = json!({ "terminated": { "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z", "exitCode": 3 } });
        let status =
            |state: &Value, last: &Value| json!({ "name": "c", "image": "i", "state": state, "lastState": last });
        check(status(&running, &json!({})), false, &[started]);
        check(status(&running, &json!({})), true, &[]);
        check(status(&running, &over), true, &[started, ended]);
        check(status(&over, &json!({})), false, &[started, ended]);
        check(status(&json!({ "waiting": {} }), &over), false, &[started, ended]);
        check(json!({ "name": "other" }), false, &[]);
    }
}
