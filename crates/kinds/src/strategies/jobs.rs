//! Jobs: their defaults, how they select their pods, and the rules for their policies.

mod policies;

use kubewright_schema::error::FieldError;
use kubewright_schema::labels::Selector;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{
    At, Errors, FieldRule, Object, absent, check_fields, child, each, ensure, fill, fill_text, fixed, get, not_negative,
};
use super::job_status;
use super::pods;
use super::pods::scheduling::label_selector;
use super::workloads::{Restart, WORKLOAD, default_spec, pod_template};
use kubewright_model::{MetadataChecks, Strategy, StrategyContext, UnknownField};
use policies::{failure_policy, success_policy};

/// How Jobs are written.
pub(crate) const JOB: Strategy = Strategy {
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: default_job,
    prepare_create: prepare_job,
    validate_create: create,
    validate_update: update,
    warnings,
    validate_status: job_status::validate,
    orphan_by_default: true,
    warns_of_orphans: true,
    unknown_field: UnknownField::LabelOfKind,
    ..WORKLOAD
};

/// `SetDefaults_Job`.
fn default_job(object: &mut Value) {
    let Some(spec) = default_spec(object) else { return };
    if absent(spec, "completions") && absent(spec, "parallelism") {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let per_index = !absent(spec, "backoffLimitPerIndex");
    fill(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    let failure_policy = child(spec, "podFailurePolicy").map(|policy| {
        for rule in each(policy, "rules") {
            for pattern in each(rule, "onPodConditions") {
                fill_text(pattern, "status", "True");
            }
        }
    });
    fill(
        spec,
        "podReplacementPolicy",
        if failure_policy.is_some() {
            "Failed"
        } else {
            "TerminatingOrFailed"
        },
    );
    labels_of_template(object);
}

/// A job without labels takes those of its template.
fn labels_of_template(object: &mut Value) {
    let labels = get(object, &["spec", "template", "metadata", "labels"]).clone();
    if labels.as_object().is_none_or(Object::is_empty) {
        return;
    }
    let Some(metadata) = object.as_object_mut().and_then(|object| ensure(object, "metadata")) else {
        return;
    };
    if metadata
        .get("labels")
        .and_then(Value::as_object)
        .is_none_or(Object::is_empty)
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

/// A job selects its pods by its own uid, unless `manualSelector` says that the user does it.
fn prepare_job(object: &mut Value, context: &StrategyContext<'_>) {
    let uid = get(object, &["metadata", "uid"]).as_str().unwrap_or("").to_owned();
    let name = get(object, &["metadata", "name"]).as_str().unwrap_or("").to_owned();
    pods::drop_disabled_in_template(object, context);
    let Some(map) = object.as_object_mut() else { return };
    map.insert("status".to_owned(), json!({}));
    let Some(spec) = ensure(map, "spec") else { return };
    let is_labelled = spec.get("template").is_some_and(|template| {
        get(template, &["metadata", "labels"])
            .as_object()
            .is_some_and(|all| !all.is_empty())
    });
    if spec.get("manualSelector") != Some(&Value::Bool(true)) {
        if let Some(labels) = ensure(spec, "template")
            .and_then(|template| ensure(template, "metadata"))
            .and_then(|metadata| ensure(metadata, "labels"))
        {
            for (key, value) in [
                ("batch.kubernetes.io/controller-uid", &uid),
                ("batch.kubernetes.io/job-name", &name),
                ("controller-uid", &uid),
                ("job-name", &name),
            ] {
                // A label that the user gave is kept here; validation refuses it when its value differs.
                fill(labels, key, value.as_str());
            }
        }
        if let Some(selector) = ensure(spec, "selector").and_then(|selector| ensure(selector, "matchLabels")) {
            fill(selector, "batch.kubernetes.io/controller-uid", uid);
        }
    }
    // The labels that a Job took from its template are the same map upstream: labels added to the one are in the other.
    if context.unlabelled && is_labelled {
        kubewright_model::object::metadata_mut(object).remove("labels");
        labels_of_template(object);
    }
}

/// `jobTemplate` of a CronJob: a job whose selector the server will make.
pub(super) fn job_template(errors: &mut Errors, at: &At<'_>) {
    let spec = at.key("spec");
    job_spec(errors, &spec);
    let (selector, manual) = (spec.key("selector"), spec.key("manualSelector"));
    if selector.present() {
        errors.invalid(&selector, "`selector` will be auto-generated");
    }
    if manual.is_true() {
        errors.push(FieldError::not_supported(
            manual.path.to_string(),
            true,
            &["nil", "false"],
        ));
    }
}

/// More completions than this are tracked only with bounds on the failures.
const MANY: i64 = 100_000;

const NUMBERS: &[FieldRule] = &[
    not_negative(&["parallelism"], "validateJobSpec"),
    not_negative(&["completions"], "validateJobSpec"),
    not_negative(&["activeDeadlineSeconds"], "validateJobSpec"),
    not_negative(&["backoffLimit"], "validateJobSpec"),
    not_negative(&["ttlSecondsAfterFinished"], "validateJobSpec"),
    not_negative(&["backoffLimitPerIndex"], "validateJobSpec"),
    not_negative(&["maxFailedIndexes"], "validateJobSpec"),
];

/// `validateJobSpec`.
fn job_spec(errors: &mut Errors, spec: &At<'_>) {
    check_fields(errors, NUMBERS, spec, None);
    let per_index = spec.key("backoffLimitPerIndex");
    if spec.key("maxFailedIndexes").present() && !per_index.present() {
        errors.required(&per_index, "when maxFailedIndexes is specified");
    }
    managed_by(errors, &spec.key("managedBy"));
    let mode = spec.key("completionMode");
    errors.one_of_all(&mode, &["NonIndexed", "Indexed"]);
    match mode.text() {
        "Indexed" => indexed(errors, spec),
        // A CronJob leaves it to the Job.
        "NonIndexed" | "" => {
            for only in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if spec.key(only).present() {
                    errors.invalid(&spec.key(only), "requires indexed completion mode");
                }
            }
        }
        _ => {}
    }
    let failure = spec.key("podFailurePolicy");
    if failure.present() {
        failure_policy(errors, spec, &failure.key("rules"));
    }
    let success = spec.key("successPolicy");
    if success.present() && mode.text() != "Indexed" {
        errors.invalid(&success, "requires indexed completion mode");
    } else if success.present() {
        success_policy(errors, spec, &success.key("rules"));
    }
    let replacement: &[&str] = if failure.present() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    errors.one_of_all(&spec.key("podReplacementPolicy"), replacement);
    pod_template(errors, &spec.key("template"), Restart::NotAlways);
    let restart = spec.keys(&["template", "spec", "restartPolicy"]);
    if failure.present() && restart.text() == "OnFailure" {
        errors.invalid(
            &restart,
            "only \"Never\" is supported when podFailurePolicy is specified",
        );
    }
}

/// Who runs the job: `domain/path` (`ValidateJobSpec`).
fn managed_by(errors: &mut Errors, at: &At<'_>) {
    if !at.present() {
        return;
    }
    if at.text().is_empty() {
        errors.required(at, "");
    } else {
        errors.extend(names::domain_prefixed_path(&at.path, at.text()));
    }
    if at.text().len() > 63 {
        errors.push(FieldError::too_long(at.path.to_string(), 63));
    }
}

/// `validateJobSpec`.
fn indexed(errors: &mut Errors, spec: &At<'_>) {
    let (completions, parallelism) = (spec.key("completions"), spec.key("parallelism"));
    let failed = spec.key("maxFailedIndexes");
    let most = |errors: &mut Errors, at: &At<'_>, most: i64, when: &str| {
        if at.int().is_some_and(|number| number > most) {
            errors.invalid(at, format!("must be less than or equal to {most}{when}"));
        }
    };
    if !completions.present() {
        errors.required(&completions, "when completion mode is Indexed");
    }
    most(errors, &parallelism, MANY, " when completion mode is Indexed");
    if let (Some(all), Some(may_fail)) = (completions.int(), failed.int())
        && may_fail > all
    {
        errors.invalid(&failed, "must be less than or equal to completions");
    }
    most(errors, &failed, MANY, "");
    if completions.int().is_some_and(|all| all > MANY) && spec.key("backoffLimitPerIndex").present() {
        if !failed.present() {
            errors.required(&failed, "must be specified when completions is above 100000");
        }
        let when = " when completions are above 100000 and used with backoff limit per index";
        most(errors, &parallelism, 10_000, when);
        most(errors, &failed, 10_000, when);
    }
}

/// How many indexes a text such as `1,3-5` names; the error is Kubernetes' text. Upstream: `validateIndexesFormat`.
pub(super) fn number_of_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let index = |text: &str| {
        let number: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions {
            return Err(format!("too large index: {text:?}"));
        }
        Ok(number)
    };
    let decreasing = |last: i64, next: i64| format!("non-increasing order, previous: {last}, current: {next}");
    let (mut total, mut last) = (0, None);
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (start, end) = match interval.split('-').collect::<Vec<_>>().as_slice() {
            [only] => (index(only)?, index(only)?),
            [start, end] => {
                let (start, end) = (index(start)?, index(end)?);
                if start >= end {
                    return Err(decreasing(start, end));
                }
                (start, end)
            }
            _ => {
                return Err(format!(
                    "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
                ));
            }
        };
        if let Some(last) = last.filter(|last| *last >= start) {
            return Err(decreasing(last, start));
        }
        total += end - start + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The intervals of a list of indexes that [`number_of_indexes`] can read.
pub(super) fn indexes_in(text: &str) -> Vec<(i64, i64)> {
    let index = |text: &str| text.parse().unwrap_or(0);
    let intervals = text.split(',').filter(|interval| !interval.is_empty());
    intervals
        .map(|interval| match interval.split_once('-') {
            Some((start, end)) => (index(start), index(end)),
            None => (index(interval), index(interval)),
        })
        .collect()
}

/// The rules for new and changed jobs alike (`ValidateJobSpec`).
fn spec_with_selector(errors: &mut Errors, spec: &At<'_>) {
    job_spec(errors, spec);
    let selector = spec.key("selector");
    if selector.present() {
        label_selector(errors, &selector);
    } else {
        errors.required(&selector, "");
    }
    let labels = spec.keys(&["template", "metadata", "labels"]);
    let parsed = Selector::from_label_selector(selector.value, &selector.path);
    // No selector selects nothing.
    if !selector.present() || parsed.is_ok_and(|parsed| !parsed.matches(labels.value)) {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
}

/// A selector that the server makes, and the labels that go with it. `prefixed`: labels with the prefix of the group
/// are wanted as well. Upstream: `ValidateGeneratedSelector`.
fn generated_selector(errors: &mut Errors, job: &At<'_>, prefixed: bool) {
    let spec = job.key("spec");
    let selector = spec.key("selector");
    if spec.key("manualSelector").is_true() || !selector.present() {
        return;
    }
    let (uid, name) = (job.keys(&["metadata", "uid"]), job.keys(&["metadata", "name"]));
    if uid.text().is_empty() {
        errors.required(&uid, "");
    }
    let labels = spec.keys(&["template", "metadata", "labels"]);
    let mut expected = Object::new();
    let wanted = [
        ("controller-uid", uid.text()),
        ("job-name", name.text()),
        ("batch.kubernetes.io/controller-uid", uid.text()),
        ("batch.kubernetes.io/job-name", name.text()),
    ];
    for (key, value) in wanted.into_iter().take(if prefixed { 4 } else { 2 }) {
        expected.insert(key.to_owned(), value.into());
        let at = labels.moved(labels.path.map_key(key));
        match labels.value.get(key) {
            None => errors.required(&at, &format!("must be '{value}'")),
            Some(given) if given != value => errors.invalid(&at, format!("must be '{value}'")),
            Some(_) => {}
        }
    }
    let parsed = Selector::from_label_selector(selector.value, &selector.path);
    if parsed.is_ok_and(|parsed| !parsed.matches(&Value::Object(expected))) {
        errors.invalid(&selector, "`selector` not auto-generated");
    }
}

/// `ValidateJob`.
fn job(errors: &mut Errors, at: &At<'_>, prefixed: bool) {
    let spec = at.key("spec");
    generated_selector(errors, at, prefixed);
    spec_with_selector(errors, &spec);
    let completions = spec.key("completions").int().filter(|count| *count > 0);
    if let ("Indexed", Some(completions)) = (spec.key("completionMode").text(), completions) {
        // The pods of an indexed job are hosts of this name.
        let name = at.keys(&["metadata", "name"]);
        let longest = format!("{}-{}", name.text(), completions - 1);
        if !names::dns1123_label(&longest).is_empty() {
            errors.invalid(
                &name,
                format!("will not able to create pod with invalid DNS label: {longest}"),
            );
        }
    }
}

/// `ValidateJob`.
fn create(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    job(&mut errors, &At::root(new), true);
    errors.into_vec()
}

/// `ValidateJobUpdate`.
fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (at, before) = (At::root(new), At::root(old));
    let (spec, was) = (at.key("spec"), before.key("spec"));
    let label = |key: &str| was.keys(&["template", "metadata", "labels", key]).present();
    let prefixed = label("batch.kubernetes.io/job-name") && label("batch.kubernetes.io/controller-uid");
    job(&mut errors, &at, prefixed);
    // Kubernetes checks a changed spec twice, and tells both.
    spec_with_selector(&mut errors, &spec);
    let completions = spec.key("completions");
    if spec.key("completionMode").text() != "Indexed" {
        errors.immutable(&completions, &was.key("completions"));
    } else if completions.present()
        && completions.value != was.key("completions").value
        && completions.int() != spec.key("parallelism").int()
    {
        // The path stands so in Kubernetes.
        errors.invalid(&completions, "can only be modified in tandem with spec.parallelism");
    }
    errors.immutable(&spec.key("selector"), &was.key("selector"));
    template(&mut errors, &spec, &before);
    let rules = [
        fixed(&["completionMode"], "ValidateJobSpecUpdate"),
        fixed(&["podFailurePolicy"], "ValidateJobSpecUpdate"),
        fixed(&["backoffLimitPerIndex"], "ValidateJobSpecUpdate"),
        fixed(&["managedBy"], "ValidateJobSpecUpdate"),
        fixed(&["successPolicy"], "ValidateJobSpecUpdate"),
    ];
    check_fields(&mut errors, &rules, &spec, Some(&was));
    errors.into_vec()
}

/// The template never changes; but while a job is suspended and no pod of it runs, the placement and the resources of
/// its pods can be chosen. Upstream: `validatePodTemplateUpdate`.
fn template(errors: &mut Errors, spec: &At<'_>, old: &At<'_>) {
    let template = spec.key("template");
    let (was, status) = (old.key("spec"), old.key("status"));
    let suspended = was.key("suspend").is_true();
    let is_suspended = status
        .key("conditions")
        .items()
        .any(|condition| condition.key("type").text() == "Suspended" && condition.key("status").text() == "True");
    let started = status.key("startTime").present();
    let idle = status.key("active").int().unwrap_or(0) == 0;
    let mut allowed = was.key("template").value.clone();
    if !(suspended && (!started || is_suspended) && idle) {
        errors.immutable(&template, &was.key("template"));
        return;
    }
    let mut take = |path: &[&str], field: &str| {
        let wanted = get(template.value, path).get(field).cloned();
        let target = path
            .iter()
            .try_fold(&mut allowed, |value, key| value.get_mut(key))
            .and_then(Value::as_object_mut);
        let Some(target) = target else { return };
        match wanted {
            Some(wanted) => target.insert(field.to_owned(), wanted),
            None => target.remove(field),
        };
    };
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(&["spec"], field);
    }
    for field in ["annotations", "labels"] {
        take(&["metadata"], field);
    }
    let affinity = |value: &Value| {
        get(value, &["spec", "affinity"])
            .as_object()
            .cloned()
            .unwrap_or_default()
    };
    let (new_affinity, mut old_affinity) = (affinity(template.value), affinity(was.key("template").value));
    old_affinity.remove("nodeAffinity");
    if let Some(node) = new_affinity.get("nodeAffinity") {
        old_affinity.insert("nodeAffinity".to_owned(), node.clone());
    }
    if let Some(allowed) = child_of(&mut allowed) {
        if old_affinity.is_empty() && get(template.value, &["spec", "affinity"]).is_null() {
            allowed.remove("affinity");
        } else {
            allowed.insert("affinity".to_owned(), Value::Object(old_affinity));
        }
        resources(allowed, get(template.value, &["spec"]));
    }
    let (wanted, allowed) = (template.key("spec"), get(&allowed, &["spec"]).clone());
    if *wanted.value != allowed {
        errors.invalid(&wanted, "field is immutable");
    }
}

fn child_of(template: &mut Value) -> Option<&mut Object> {
    template.get_mut("spec")?.as_object_mut()
}

/// Takes the resources of containers that are the same into `spec`.
fn resources(spec: &mut Object, wanted: &Value) {
    for list in ["containers", "initContainers"] {
        let wanted = get(wanted, &[list]).as_array().cloned().unwrap_or_default();
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let Some(containers) = containers.filter(|containers| containers.len() == wanted.len()) else {
            continue;
        };
        for (container, wanted) in containers.iter_mut().zip(&wanted) {
            if container.get("name") == wanted.get("name") {
                super::check::keep(container, wanted, "resources");
            }
        }
    }
}

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let created = old.is_none();
    let mut warn = Vec::new();
    let at = At::root(new);
    if created {
        warn.extend(pods::warnings::names_of_pods(new));
    }
    let spec = at.key("spec");
    let above = |field: &str, bound: i64| spec.key(field).int().is_some_and(|number| number > bound);
    if spec.key("completionMode").text() == "Indexed" && above("completions", MANY) && above("parallelism", 10_000) {
        warn.push(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not \
             be able to track completedIndexes when a big number of indexes fail"
                .to_owned(),
        );
    }
    if pods::warnings::are_told(new, old) {
        warn.extend(pods::warnings::warnings(&spec.key("template")));
    }
    warn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes() {
        for (text, want) in [
            ("", Ok(0)),
            ("0,2-3", Ok(3)),
            ("2,1", Err("non-increasing order, previous: 2, current: 1")),
            ("3-3", Err("non-increasing order, previous: 3, current: 3")),
            ("5", Err("too large index: \"5\"")),
            ("x", Err("cannot convert string to integer for index: \"x\"")),
        ] {
            assert_eq!(number_of_indexes(text, 5), want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn rules_of_policies() {
        let spec = json!({
            "completionMode": "Indexed", "completions": 3,
            "podFailurePolicy": {"rules": [
                {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [2, 0, 2], "containerName": "x"}},
                {"action": "", "onPodConditions": []}
            ]},
            "successPolicy": {"rules": [{"succeededCount": 4, "succeededIndexes": "1"}]},
            "template": {"spec": {"containers": [{"name": "c"}], "restartPolicy": "OnFailure"}}
        });
        let mut errors = Errors::default();
        let at = At::root(&spec);
        failure_policy(&mut errors, &at, &at.keys(&["podFailurePolicy", "rules"]));
        success_policy(&mut errors, &at, &at.keys(&["successPolicy", "rules"]));
        let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(found.join("\n"), @r#"
        podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set
        podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template
        podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator
        podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 2
        podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0,2]: must be ordered
        podFailurePolicy.rules[1].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]
        podFailurePolicy.rules[1]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required
        successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified completions)
        successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 1 (the number of indexes in the specified succeededIndexes field)
        "#);
    }
}
