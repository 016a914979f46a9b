//! The effect of a failed pod (`podFailurePolicy`), and when enough has succeeded (`successPolicy`).
//!
//! Pure. Rules of `pod_failure_policy.go` and `success_policy.go` in kube-controller-manager; KEP-3329, KEP-3998.

use kubewright_objects::api::batch::v1::{
    Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
};
use kubewright_objects::api::core::v1::{ContainerStatus, Pod};

use super::indexes::Indexes;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The action of the first rule that fits a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts as a failure: no rule fits, or one says so.
    Count,
    /// It does not count.
    Ignore,
    /// Its index has failed for good.
    FailIndex,
    /// The Job has failed, in these words.
    FailJob(String),
}

/// Judges a pod that has failed.
pub(super) fn judge(job: &Job, pod: &Pod) -> Verdict {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    for (at, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let Some(matched) = (match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => exit_code(pod, codes),
            (None, Some(patterns)) => condition(pod, patterns),
            (None, None) => None,
        }) else {
            continue;
        };
        return match rule.action.as_str() {
            "Ignore" => Verdict::Ignore,
            "FailIndex" => Verdict::FailIndex,
            "FailJob" => Verdict::FailJob(format!("{matched} matching FailJob rule at index {at}")),
            _ => Verdict::Count,
        };
    }
    Verdict::Count
}

fn place(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", meta::name(&pod.metadata))
}

fn exit_code(pod: &Pod, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    let fits = |container: &&ContainerStatus| {
        let named = wanted
            .container_name
            .as_ref()
            .is_none_or(|name| *name == container.name);
        let code = ended(container).filter(|code| *code != 0);
        named
            && code.is_some_and(|code| match wanted.operator.as_str() {
                "In" => wanted.values.contains(&code),
                "NotIn" => !wanted.values.contains(&code),
                _ => false,
            })
    };
    let container = all.into_iter().find(fits)?;
    let code = ended(container)?;
    Some(format!(
        "Container {} for pod {} failed with exit code {code}",
        container.name,
        place(pod)
    ))
}

fn ended(container: &ContainerStatus) -> Option<i32> {
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn condition(pod: &Pod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<String> {
    let found = patterns.iter().find_map(|pattern| {
        let found = pods::condition(pod, &pattern.type_)?;
        let status = pattern.status.as_deref().unwrap_or("True");
        (found.status == status).then_some(&pattern.type_)
    })?;
    Some(format!("Pod {} has condition {found}", place(pod)))
}

/// Which rule of the success policy these indexes meet, in words.
pub(super) fn success(job: &Job, completions: i32, succeeded: &Indexes) -> Option<String> {
    let policy = job.spec.as_ref()?.success_policy.as_ref()?;
    let met = policy.rules.iter().position(|rule| {
        let wanted = rule
            .succeeded_indexes
            .as_deref()
            .map(|text| Indexes::parse(text, completions));
        match (wanted, rule.succeeded_count) {
            (Some(wanted), Some(count)) => wanted.common(succeeded) >= count,
            (Some(wanted), None) => wanted.common(succeeded) >= wanted.total(),
            (None, Some(count)) => succeeded.total() >= count,
            (None, None) => false,
        }
    })?;
    Some(format!("Matched rules at index {met}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(spec: Value) -> Job {
        let mut spec = spec;
        spec["template"] = json!({});
        serde_json::from_value(json!({"metadata": {"name": "work"}, "spec": spec})).expect("a Job")
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let job = job(json!({"podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [40, 42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1]}},
        ]}}));
        let check = |status: Value, expected: Verdict| {
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "status": status}))
                    .expect("a Pod");
            assert_eq!(judge(&job, &pod), expected, "{status}");
        };
        let exits = |name: &str, code: i32| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code}}});
        let statuses = |statuses: Vec<Value>| json!({"containerStatuses": statuses});
        check(json!({}), Verdict::Count);
        check(
            statuses(vec![exits("other", 0), exits("c", 42)]),
            Verdict::FailJob(
                "Container c for pod n/p failed with exit code 42 matching FailJob rule at index 1".to_owned(),
            ),
        );
        check(statuses(vec![exits("other", 42)]), Verdict::Count);
        check(statuses(vec![exits("other", 7)]), Verdict::FailIndex);
        check(statuses(vec![exits("c", 0)]), Verdict::Count);
        let disrupted = json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}], "containerStatuses": [exits("c", 42)]});
        check(disrupted, Verdict::Ignore);
    }

    #[test]
    fn enough_has_succeeded() {
        let check = |rules: Value, succeeded: &str, expected: Option<&str>| {
            let job = job(json!({"successPolicy": {"rules": rules}}));
            let met = success(&job, 10, &Indexes::parse(succeeded, 10));
            assert_eq!(met.as_deref(), expected, "{rules} with {succeeded}");
        };
        let rules = json!([{"succeededIndexes": "0,2-3"}, {"succeededIndexes": "4-6", "succeededCount": 2}, {"succeededCount": 5}]);
        check(rules.clone(), "0,2", None);
        check(rules.clone(), "0,2-3", Some("Matched rules at index 0"));
        check(rules.clone(), "4,6", Some("Matched rules at index 1"));
        check(rules, "1,4,7-9", Some("Matched rules at index 2"));
    }
}
