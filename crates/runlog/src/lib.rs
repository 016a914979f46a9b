//! The run log: what happened in a cluster and its operators, once, in order.
//!
//! An [`Entry`] is one thing that happened: a request and its answer, a commit, an event that a watch delivered, the begin
//! or the end of a reconcile, a step of a test, a fault. The API server writes what it sees of every client; the fault
//! explorer writes what it sees of the operator. All readers (timelines, reports, `kubewright log`) read this one form.
//!
//! As a file it is lines of JSON in members of gzip, so that `zcat` reads it and it can be read while it grows: see
//! [`Packer`] and [`Unpacker`]. The first line is the [`Head`] with the version.
//!
//! Invariants: a reader of version *n* reads every log of version *n*; a member is whole or not there; no input makes a
//! reader panic or take memory without bound. Not here: files, threads and clocks (`kubewright-server`'s `run_log`).
//!
//! # Where to change what
//!
//! | to change | go to | its test |
//! |---|---|---|
//! | what an entry holds, how it is told in a line | `entry.rs` | the table there |
//! | how entries are packed and read | `packed.rs` | the tests there |
//! | what the API server writes | `crates/apiserver/src/recording.rs` | `crates/cluster/tests/it/run_log.rs` |
//! | how the file is written and bounded | `crates/server/src/run_log.rs` | the tests there |

mod entry;
mod packed;

pub use entry::{Call, Entry, Named, What, resource};
pub use packed::{Head, LogError, Packer, Unpacker, VERSION};

/// Takes the entries of a run. It must not wait: the API server calls it while it holds locks.
pub trait Recorder: Send + Sync + 'static {
    /// Takes an entry, and gives it its time.
    fn record(&self, entry: Entry);
}
