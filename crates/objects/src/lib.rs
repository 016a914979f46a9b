//! The built-in types of the controllers and the kubelets, what both read of them, and a set of requests that wait.
//!
//! The controllers (`kubewright-controllers`) and the nodes (`kubewright-nodes`) do not know each other, so that an
//! edit in one compiles nothing of the other; what both need is here, and as small as that.
//!
//! # Where to change what
//!
//! | file | what |
//! |---|---|
//! | `api` | the types of the objects themselves |
//! | `meta` | metadata: owners, labels, selectors, times |
//! | `pods` | phases, conditions and availability of pods, and which of several goes first |
//! | `node` | labels and the condition of Nodes, and which are simulated |
//! | `node_affinity` | which nodes a pod may run on by its selector and its required affinity |
//! | `quantity` | amounts as numbers |
//! | `requests` | what a pod requests and a node has: resources, ports |
//! | `usage` | what pods use: the annotations of simulated ones, and the [`Meter`](usage::Meter) that knows it of all |
//! | `tolerations` | whether a toleration fits a taint |
//! | `disruption_target` | the condition of a pod that is about to be disrupted |
//! | `install` | objects that a part of the control plane brings along |
//! | `views` | Pods and Nodes without what most controllers do not read |
//! | `Waiting` | which requests wait for an object of another kind |
//!
//! Invariants: readings (all but `install`) are pure and never fail, for the API server has validated what is stored; the
//! set holds requests alone, never objects. Not here: anything that only one of the two needs.

pub mod api;
pub mod disruption_target;
mod install;
pub mod meta;
pub mod node;
pub mod node_affinity;
pub mod pods;
pub mod quantity;
pub mod requests;
pub mod tolerations;
pub mod usage;
mod views;
mod waiting;

pub use install::install;
pub use views::{NodeView, PodView};
pub use waiting::Waiting;
