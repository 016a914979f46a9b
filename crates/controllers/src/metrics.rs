//! Metrics that users set on objects, for autoscalers: those of pods and other objects, and those of other systems.
//!
//! An annotation with the prefix `custom.metrics.kubewright.dev/` and the name of a metric is the metric of its object;
//! on a HorizontalPodAutoscaler it is a load that the ready pods share. With `external.metrics.kubewright.dev/` on a
//! Namespace it is a metric of another system. The value is a quantity, or several with labels that metric selectors
//! match: `queue=tasks: 30; queue=mails: 4`. Pure. The use of the figures: `horizontalpodautoscaler`.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kubewright::kube::core::{Selector, SelectorExt as _};

use kubewright_objects::meta;
use kubewright_objects::quantity::milli;

/// The prefixes of annotations, after the groups of the APIs.
const CUSTOM: &str = "custom.metrics.kubewright.dev";
const EXTERNAL: &str = "external.metrics.kubewright.dev";
/// The longest name of an annotation after its prefix.
const LONGEST: usize = 63;

/// The annotation with a metric of its object.
///
/// ```
/// use kubewright_controllers::metrics::custom;
///
/// assert_eq!(custom("requests-per-second"), "custom.metrics.kubewright.dev/requests-per-second");
/// assert_eq!(custom("http:requests"), "custom.metrics.kubewright.dev/http_requests");
/// ```
pub fn custom(metric: &str) -> String {
    key(CUSTOM, metric)
}

/// The annotation of a Namespace with a metric of another system.
pub fn external(metric: &str) -> String {
    key(EXTERNAL, metric)
}

/// Characters that a key cannot have are underscores, and a name that is too long is cut.
fn key(prefix: &str, metric: &str) -> String {
    let may_be = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = metric.chars().map(|c| if may_be(c) { c } else { '_' }).collect();
    let is_edge = |c: char| !c.is_ascii_alphanumeric();
    let name: String = name.trim_matches(is_edge).chars().take(LONGEST).collect();
    format!("{prefix}/{}", name.trim_end_matches(is_edge))
}

/// One value of a metric: its labels, and the amount in thousandths.
type Series = (BTreeMap<String, String>, i128);

/// The values of a metric that a selector matches, in thousandths; none where nothing is set.
///
/// # Errors
/// The annotation cannot be read, or the selector.
pub(crate) fn values(
    of: &ObjectMeta,
    annotation: &str,
    selector: Option<&LabelSelector>,
) -> Result<Option<Vec<i128>>, String> {
    let Some(text) = meta::annotation(of, annotation) else {
        return Ok(None);
    };
    let selector = match selector {
        None => Selector::default(),
        Some(selector) => Selector::try_from(selector.clone()).map_err(|error| error.to_string())?,
    };
    let series = read(text).map_err(|why| {
        let name = meta::name(of);
        format!("the annotation {annotation} of {name} is {text:?}: {why}")
    })?;
    let matching = series.into_iter().filter(|(labels, _)| selector.matches(labels));
    let matching: Vec<i128> = matching.map(|(_, amount)| amount).collect();
    Ok(Some(matching).filter(|matching| !matching.is_empty()))
}

fn read(text: &str) -> Result<Vec<Series>, String> {
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    parts.map(one).collect()
}

fn one(text: &str) -> Result<Series, String> {
    let (labels, amount) = text
        .rsplit_once(':')
        .map_or(("", text), |(labels, amount)| (labels, amount));
    let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
    let labels = labels.map(|label| {
        let (key, value) = label
            .split_once('=')
            .ok_or_else(|| format!("{label:?} is no label such as queue=tasks"))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    });
    let labels = labels.collect::<Result<_, String>>()?;
    let amount = amount.trim();
    let milli = milli(&Quantity(amount.to_owned())).filter(|milli| *milli >= 0);
    let milli = milli.ok_or_else(|| format!("{amount:?} is no quantity such as 30 or 1500m"))?;
    Ok((labels, milli))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn names_become_keys() {
        let check = |metric: &str, expected: &str| {
            assert_eq!(external(metric), format!("external.metrics.kubewright.dev/{expected}"));
        };
        check("queue_length", "queue_length");
        check(
            "pubsub.googleapis.com|subscription|num_undelivered_messages",
            "pubsub.googleapis.com_subscription_num_undelivered_messages",
        );
        check(":up", "up");
        check(&format!("{}-{}", "a".repeat(62), "b".repeat(9)), &"a".repeat(62));
    }

    #[test]
    fn values_are_read() {
        let check = |text: &str, selector: Value, expected: Result<Option<Vec<i128>>, &str>| {
            let annotation = custom("m");
            let of = json!({ "name": "web", "annotations": { annotation.as_str(): text } });
            let of: ObjectMeta = serde_json::from_value(of).expect("metadata");
            let selector: Option<LabelSelector> = serde_json::from_value(selector).expect("a selector");
            let found = values(&of, &annotation, selector.as_ref());
            let expected = expected
                .map_err(|why| format!("the annotation custom.metrics.kubewright.dev/m of web is {text:?}: {why}"));
            assert_eq!(found, expected);
        };
        let tasks = || json!({ "matchLabels": { "queue": "tasks" } });
        check("30", json!(null), Ok(Some(vec![30_000])));
        check("30", tasks(), Ok(None));
        let two = "queue=tasks, vhost=a: 1500m; queue=mails: 4";
        check(two, json!(null), Ok(Some(vec![1500, 4000])));
        check(two, tasks(), Ok(Some(vec![1500])));
        check("much", json!(null), Err("\"much\" is no quantity such as 30 or 1500m"));
        check("-1", json!(null), Err("\"-1\" is no quantity such as 30 or 1500m"));
        check(
            "tasks: 3",
            json!(null),
            Err("\"tasks\" is no label such as queue=tasks"),
        );
        check("", json!(null), Ok(None));
    }
}
