//! The resources that the containers of a pod ask for together.

use serde_json::Value;

use super::amounts::{self, ResourceList};
use crate::values::{get, items};

/// The resources that the containers of a pod with this spec ask for, without the pod-level resources.
pub fn containers_need(spec: &Value, field: &str) -> ResourceList {
    together(spec, field, |container, _| {
        amounts::parse(get(container, &["resources", field]))
    })
}

/// The resources that all containers together need: the sum of those that run together, and at least the need of each
/// one before them. `of` computes the need of one that stays, given the name of the list that holds its status.
pub fn together<'a>(
    spec: &'a Value,
    field: &str,
    of: impl Fn(&'a Value, &'static str) -> ResourceList,
) -> ResourceList {
    let mut sum = ResourceList::new();
    for container in items(spec, &["containers"]) {
        amounts::add(&mut sum, &of(container, "containerStatuses"));
    }
    let (mut sidecars, mut before) = (ResourceList::new(), ResourceList::new());
    for container in items(spec, &["initContainers"]) {
        let mut needed;
        if get(container, &["restartPolicy"]) == "Always" {
            let own = of(container, "initContainerStatuses");
            amounts::add(&mut sum, &own);
            amounts::add(&mut sidecars, &own);
            needed = sidecars.clone();
        } else {
            needed = amounts::parse(get(container, &["resources", field]));
            amounts::add(&mut needed, &sidecars);
        }
        amounts::at_least(&mut before, &needed);
    }
    amounts::at_least(&mut sum, &before);
    sum
}
