//! Nodes that have the pod's images already (`imagelocality`).

use kubewright_objects::api::core::v1::PodSpec;

use super::{BEST, Feasible};
use kubewright_objects::NodeView;

/// Images of less than this in all are nothing.
const FEW: i64 = 23 << 20;
/// What more than this a container has, does not count.
const MANY: i64 = 1000 << 20;

/// Nodes with more of the images are better. An image counts by its size, and by the share of all nodes that have it,
/// so that pods do not heap up where an image came first.
pub(super) fn scores(spec: &PodSpec, nodes: &[Feasible<'_>], all: &[&NodeView]) -> Option<Vec<i64>> {
    if all.iter().all(|node| images(node).next().is_none()) {
        return None;
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let names: Vec<Option<&str>> = containers.map(|container| container.image.as_deref()).collect();
    let volumes = spec.volumes.iter().flatten();
    let volumes = volumes.filter_map(|volume| Some(volume.image.as_ref()?.reference.as_deref()));
    let most = MANY.saturating_mul(i64::try_from(names.len()).unwrap_or(i64::MAX));
    let wanted = names.iter().copied().chain(volumes);
    let wanted: Vec<(String, usize)> = wanted
        .map(|name| {
            let name = tagged(name.unwrap_or_default());
            let with = all.iter().filter(|node| size(node, &name).is_some()).count();
            (name, with)
        })
        .collect();
    let score = |(node, _): &Feasible<'_>| {
        let sizes = wanted.iter().filter_map(|(name, with)| {
            let spread = *with as f64 / all.len() as f64;
            Some((size(node, name)? as f64 * spread) as i64)
        });
        let sum = sizes.fold(0_i64, i64::saturating_add).clamp(FEW, most.max(FEW));
        let part = i128::from(sum.saturating_sub(FEW)).saturating_mul(i128::from(BEST));
        let part = part.checked_div(i128::from(most.saturating_sub(FEW)));
        part.and_then(|part| i64::try_from(part).ok()).unwrap_or(0)
    };
    Some(nodes.iter().map(score).collect())
}

/// The names of the images that a node says it has, with their sizes in bytes.
fn images<'a>(node: &'a NodeView) -> impl Iterator<Item = (&'a str, i64)> + use<'a> {
    let images = node
        .node
        .status
        .iter()
        .flat_map(|status| status.images.iter().flatten());
    images.flat_map(|image| {
        let names = image.names.iter().flatten();
        names.map(|name| (name.as_str(), image.size_bytes.unwrap_or(0)))
    })
}

/// Of a name that is told twice the later one counts.
fn size(node: &NodeView, name: &str) -> Option<i64> {
    images(node)
        .filter(|(there, _)| *there == name)
        .map(|(_, size)| size)
        .last()
}

/// The name with its tag (`normalizedImageName`).
fn tagged(name: &str) -> String {
    if name.rfind(':') <= name.rfind('/') {
        return format!("{name}:latest");
    }
    name.to_owned()
}
