//! Operators without code: what brings an object about is an Ansible role or playbook, or a Helm chart, and the runtime
//! of kubewright does the rest.
//!
//! A file `watches.yaml`, as operator-sdk's operators have it, says which kind belongs to which role or chart.
//!
//! # Where to change what
//!
//! | to change | go to | its tests |
//! |---|---|---|
//! | how a `watches.yaml` is read, for both | `watches`; the environment in it: `watches/environment.rs` | the tables there |
//! | what a `watches.yaml` of Ansible may say | `ansible/watch.rs` | the table there |
//! | the variables that a role gets | `ansible/vars.rs`; their names: `ansible/snake.rs` | the tables there |
//! | the folder of a run, and its program | `ansible/input.rs`, `ansible/runner.rs` | `ansible.rs` in `tests/it` |
//! | what is made of events of Ansible | `ansible/events.rs`; how they are received: `ansible/receiver.rs` | the tables there |
//! | conditions in the status | `ansible/status.rs` | the tables there |
//! | what a role's requests lead to | `ansible/proxy` | `proxy.rs` in `tests/it` |
//! | the order of all that | `ansible/reconciler.rs`; what an operator is made of: `ansible/operator.rs` | `ansible.rs` in `tests/it` |
//! | what a `watches.yaml` of Helm may say | `helm/watch.rs`; `overrideValues`: `helm/overrides.rs`, `helm/assignment.rs` | the tables there |
//! | how the Helm program is run, and what is passed on of its words | `helm/program.rs` | the tables there |
//! | what Helm is asked to do with a release | `helm/releases.rs`; when: `helm/release.rs`, `helm/reconciler.rs` | the tables there, `helm/life.rs` in `tests/it` |
//! | which changes of a release's objects are undone, and how | `helm/drift.rs`, `helm/repair.rs` | the same |
//! | what wakes the owner of a release's objects | `helm/dependents.rs`; how they name it: `helm/owner.rs` | the tables there |

#[cfg(not(unix))]
compile_error!("operators of Ansible and Helm run on Linux and macOS; on Windows, use WSL 2");

pub mod ansible;
pub mod helm;
pub mod kinds;
pub mod watches;
