//! Which nodes a pod is offered: all of them in a small cluster, in a large one so many that would do, from where the
//! pod before it stopped (`numFeasibleNodesToFind`, `nextStartNodeIndex`).
//!
//! Pure. Invariant: a pod that fits any node is offered one. Not here: `percentageOfNodesToScore`, which cannot be set.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright_objects::NodeView;
use kubewright_objects::node;

/// In a smaller cluster every node is looked at (`minFeasibleNodesToFind`).
const LEAST: usize = 100;

/// How many nodes that would do are enough.
pub(super) fn enough(nodes: usize) -> usize {
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes.saturating_mul(percent) / 100).max(LEAST)
}

/// The nodes in the order in which they are looked at, beginning with this one of them: one of each zone in turn
/// (`nodeTree.list`), so that those that are looked at lie in all zones.
pub(super) fn order(nodes: &[Arc<NodeView>], start: usize) -> Vec<&NodeView> {
    let mut all: Vec<&NodeView> = nodes.iter().map(|node| &**node).collect();
    if enough(nodes.len()) >= nodes.len() {
        return all;
    }
    if nodes.iter().any(|node| node.is_zoned) {
        all = in_turn(all);
    }
    let count = all.len();
    all.rotate_left(start.checked_rem(count).unwrap_or(0));
    all
}

/// One of each zone in turn.
fn in_turn(nodes: Vec<&NodeView>) -> Vec<&NodeView> {
    // The number of a node in its zone goes before the zone; the zones are in the order of their first nodes.
    let mut zones: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    let mut turns = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let next = zones.len();
        let (zone, there) = zones.entry(node::zone_key(&node.node)).or_insert((next, 0));
        turns.push((*there, *zone));
        *there = there.saturating_add(1);
    }
    let mut in_turn: Vec<_> = turns.into_iter().zip(nodes).collect();
    in_turn.sort_by_key(|(turn, _)| *turn);
    in_turn.into_iter().map(|(_, node)| node).collect()
}

#[cfg(test)]
mod tests {
    use kubewright::View as _;
    use kubewright_objects::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    #[test]
    fn so_many_are_enough() {
        let check = |nodes: usize, expected: usize| assert_eq!(enough(nodes), expected, "{nodes}");
        // As `TestNumFeasibleNodesToFind` has them: all of a hundred, 42 % of a thousand, 5 % of 6,000.
        check(10, 100);
        check(100, 100);
        check(1_000, 420);
        check(6_000, 300);
    }

    #[test]
    fn zones_take_turns() {
        let node = |number: usize, zone: Option<&str>| {
            let labels = zone.map(|zone| json!({ node::ZONE: zone }));
            let node = json!({ "metadata": { "name": number.to_string(), "labels": labels } });
            let node: Node = serde_json::from_value(node).expect("a node");
            Arc::new(NodeView::of(&node))
        };
        let check = |zone: &dyn Fn(usize) -> Option<&'static str>, count: usize, start: usize, first: &[&str]| {
            let nodes: Vec<_> = (0..count).map(|number| node(number, zone(number))).collect();
            let order = order(&nodes, start);
            let names: Vec<&str> = order.iter().map(|node| node.name()).collect();
            assert_eq!(names[..first.len()], *first, "{count} nodes from {start}");
            let mut all: Vec<usize> = names.iter().filter_map(|name| name.parse().ok()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        };
        let halves = |number: usize| Some(if number < 100 { "a" } else { "b" });
        check(&|_| None, 3, 1, &["0", "1", "2"]);
        check(&|_| None, 200, 198, &["198", "199", "0"]);
        check(&halves, 200, 0, &["0", "100", "1", "101"]);
        check(&halves, 200, 3, &["101", "2", "102"]);
        check(&halves, 103, 0, &["0", "100", "1", "101", "2", "102", "3", "4"]);
        check(&halves, 200, 1_001, &["100", "1"]);
    }
}
