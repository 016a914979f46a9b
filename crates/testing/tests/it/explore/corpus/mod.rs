//! Known bugs of real operators, told again as pairs of small operators: one with the bug, and the same without it. By
//! them it is measured what a search for faults finds, and what it reports wrongly.
//!
//! Written from the public issues alone, in the way in which those operators are written: steps in a fixed order,
//! guarded by reads of a cache. Invariants: a pair differs in one place, which a comment names (*The mend*); without a
//! fault both do what the user wants, except for the bugs of inputs ([`Ends::Differ`]); the fixed one does so under
//! every fault of requests, watches, processes and other people.
//!
//! The test here plays each pair without any fault.

mod cass_operator_1023;
mod cassandra_398;
mod casskop_321;
mod casskop_370;
mod cockroach_918;
mod eck_5249;
mod generate_name;
pub(crate) mod kit;
mod kubernetes_67662;
mod mongodb_community_1074;
mod nifikop_49;
mod opensearch_1471;
mod psmdb_433;
mod psmdb_897;
mod pxc_918;
mod rabbitmq_782;
mod recreate;
mod scale_to_zero;
mod status_swallowed;
mod undisturbed;
mod zookeeper_314;
mod zookeeper_410;
mod zookeeper_453;

use kubewright::Operator;
use serde_json::Value;

pub(crate) use kubewright_testing::explore::Step;

/// A known bug, and the same operator without it.
pub(crate) struct Case {
    /// Project and number of the public issue: `rabbitmq-782`.
    pub(crate) name: &'static str,
    /// What goes wrong, in one sentence a user would write.
    pub(crate) bug: &'static str,
    /// How the two end when nothing disturbs them.
    pub(crate) undisturbed: Ends,
    /// The operator with its CRD: with the bug, or without it.
    pub(crate) operator: fn(fixed: bool) -> Operator,
    /// What its user does, step by step; after each step the cluster comes to rest.
    pub(crate) steps: fn() -> Vec<Step>,
    /// What holds at every revision with the fixed operator; most bugs need none to be seen.
    pub(crate) always: &'static [Invariant],
    /// What the user finds in the end.
    pub(crate) expected: &'static [Expected],
}

/// Whether a bug shows without any fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ends {
    /// It does not.
    Same,
    /// The steps are enough: it is a bug of inputs, or of the way on which a state was reached.
    Differ,
}

/// What a user relies on at any time.
pub(crate) struct Invariant {
    /// In words.
    pub(crate) what: &'static str,
    /// Whether it holds, given all objects of the cluster.
    pub(crate) holds: fn(&[Value]) -> bool,
}

/// A kind and a name, a field in it (a JSON pointer; empty for the object), and its value as JSON: empty for any, and
/// `gone` for none.
pub(crate) type Expected = (&'static str, &'static str, &'static str);

/// All of them: first those that need a fault, then those of inputs.
pub(crate) const CASES: &[Case] = &[
    rabbitmq_782::CASE,
    nifikop_49::CASE,
    casskop_370::CASE,
    cass_operator_1023::CASE,
    zookeeper_314::CASE,
    recreate::ZOOKEEPER,
    eck_5249::CASE,
    recreate::PSMDB,
    psmdb_433::CASE,
    casskop_321::CASE,
    cassandra_398::CASE,
    pxc_918::CASE,
    zookeeper_453::CASE,
    zookeeper_410::CASE,
    recreate::PXC,
    kubernetes_67662::CASE,
    opensearch_1471::CASE,
    generate_name::CASE,
    status_swallowed::CASE,
    mongodb_community_1074::CASE,
    cockroach_918::CASE,
    psmdb_897::CASE,
    scale_to_zero::CASE,
];
