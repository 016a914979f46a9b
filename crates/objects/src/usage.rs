//! What pods use: the figures of simulated ones are annotations, and a [`Meter`] knows those of all.
//!
//! `kubewright.dev/usage-cpu: 250m` is the use of a pod, with a dot and a name behind it that of one container. The
//! usage of a pod without one of a container is shared by its other containers. Pure.

use crate::api::core::v1::{Container, Pod};
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::meta;
use super::quantity::milli;

/// Tells what pods use.
pub trait Meter: Send + Sync {
    /// The use of a resource by a pod, or by one of its containers, in thousandths; none when it is not known.
    fn used(&self, pod: &Pod, resource: &str, container: Option<&str>) -> Option<i128>;
}

/// The meter of simulated pods: their annotations say it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Annotated;

impl Meter for Annotated {
    fn used(&self, pod: &Pod, resource: &str, container: Option<&str>) -> Option<i128> {
        of_pod(pod, resource, container)
    }
}

/// The use of a resource by each of these containers, in thousandths; none where nothing is said.
pub fn said<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
    containers: &[&str],
    resource: &str,
) -> Vec<Option<i128>> {
    let says = |key: &str| {
        let amount = milli(&Quantity(annotation(key)?.to_owned()))?;
        (amount >= 0).then_some(amount)
    };
    let whole = says(&format!("kubewright.dev/usage-{resource}"));
    let own = containers
        .iter()
        .map(|name| says(&format!("kubewright.dev/usage-{resource}.{name}")));
    let mut all: Vec<Option<i128>> = own.collect();
    if let Some(whole) = whole {
        let known = all.iter().flatten().fold(0_i128, |sum, own| sum.saturating_add(*own));
        let mut rest = whole.saturating_sub(known).max(0);
        let mut others = i128::try_from(all.iter().filter(|own| own.is_none()).count()).unwrap_or(1);
        for one in all.iter_mut().filter(|own| own.is_none()) {
            let share = rest / others;
            *one = Some(share);
            (rest, others) = (rest - share, others - 1);
        }
    }
    all
}

/// The use of a resource by a pod, or by one of its containers, in thousandths; none when nothing is said.
pub fn of_pod(pod: &Pod, resource: &str, container: Option<&str>) -> Option<i128> {
    let names: Vec<&str> = containers(pod).map(|container| container.name.as_str()).collect();
    let said = said(|key| meta::annotation(&pod.metadata, key), &names, resource);
    let wanted = |name: &str| container.is_none_or(|wanted| wanted == name);
    let of_wanted = names.iter().zip(said).filter(|(name, _)| wanted(name));
    of_wanted.filter_map(|(_, said)| said).reduce(i128::saturating_add)
}

/// The containers that run as long as the pod does.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    sidecars.chain(spec.into_iter().flat_map(|spec| &spec.containers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_pod_is_shared() {
        let check = |annotations: &[(&str, &str)], expected: &[Option<i128>]| {
            let annotation = |key: &str| {
                let said = annotations
                    .iter()
                    .find(|(known, _)| format!("kubewright.dev/{known}") == key);
                said.map(|(_, amount)| *amount)
            };
            let names = ["a", "b", "c"];
            assert_eq!(
                said(annotation, &names[..expected.len()], "cpu"),
                expected,
                "{annotations:?}"
            );
        };
        check(&[], &[None]);
        check(&[("usage-memory", "1")], &[None]);
        check(&[("usage-cpu", "250m")], &[Some(250)]);
        check(&[("usage-cpu", "250m")], &[Some(83), Some(83), Some(84)]);
        check(&[("usage-cpu.b", "1")], &[None, Some(1000)]);
        check(
            &[("usage-cpu.b", "1"), ("usage-cpu", "3")],
            &[Some(1000), Some(1000), Some(1000)],
        );
        // Of two that say different things the nearer is believed.
        check(&[("usage-cpu.a", "2"), ("usage-cpu", "1")], &[Some(2000), Some(0)]);
        check(&[("usage-cpu", "much")], &[None]);
        check(&[("usage-cpu", "-1")], &[None]);
    }
}
