//! The shell of the API server: what `kubewright-apiserver` decides without IO is given a socket, a disk, keys, a clock
//! and a network here.
//!
//! A request comes over [`serve`], or in process, to the [`Front`], which reads its body within bounds, lets the API
//! server answer and hands the answer on.
//!
//! # Where to change what
//!
//! | to change | go to | its tests |
//! |---|---|---|
//! | HTTPS: accepting, TLS, HTTP/1.1, HTTP/2 | `listen`; which TLS: `tls.rs`; which clients: `clients.rs` | `crates/cluster/tests/it/plain_kube.rs`, `bad_input.rs` there |
//! | what connections may cost | `places`, [`Limits`] in `places/limits.rs` | `crates/cluster/tests/it/crowds.rs`, `bad_input.rs` there |
//! | what requests under way may cost | `front`, `work.rs`, `shares.rs`, `pieces.rs`; the share of one: `shares.rs` of the API server | the tests there |
//! | how answers are sent | `response`; those that wait for their clients: `response/unsent.rs` | the tests there |
//! | the protocols of `kubectl exec`, `attach`, `cp` and `port-forward` | `streams`: WebSockets, SPDY/3.1, and their channels | the tests there; `crates/cli/tests/it/processes/streams.rs` |
//! | what is on disk | `durable`; raise `FORMAT` if an older version would misread it | the tests there: damage, failing disks, power cuts; `crates/cluster/tests/it/durable.rs` kills a loaded server |
//! | how webhooks are reached | `outbound.rs` | the tests there |
//! | how the servers behind APIServices are reached | `outbound/forward.rs` | `crates/cluster/tests/it/aggregated.rs` |
//! | certificates and keys: made, given, shown | `certificates.rs`, `csr.rs`, `signatures.rs`, `pki.rs`, `keys.rs`, `signer.rs`, `webhook_certificates.rs` | the tests there |
//! | the kubeconfig of a cluster | `kubeconfig.rs` | the tests there |
//! | the files of the audit log | `audit.rs` | the tests there |
//! | the file of a run log | `run_log.rs` | the tests there |
//!
//! Invariants: no client costs another one anything; nothing outlives the token that stops the server; nothing here
//! decides what a request means. Not here: the semantics of a request (`kubewright-apiserver`), what a cluster is made
//! of, its client in process and its webhook of authorization (`kubewright-cluster`).

#[cfg(not(unix))]
compile_error!("kubewright's cluster and command run on Linux and macOS; on Windows, use WSL 2");

mod audit;
mod certificates;
mod clients;
mod csr;
mod durable;
mod env;
mod error;
mod front;
mod keys;
pub mod kubeconfig;
mod listen;
mod outbound;
mod pieces;
mod pki;
mod places;
mod regular;
mod response;
mod run_log;
mod shares;
mod signatures;
mod signer;
pub mod streams;
mod tls;
mod webhook_certificates;
mod work;

pub use audit::{AuditFile, AuditStdout, Rotation};
pub use certificates::{Authority, FRONT_PROXY_USER, Purpose};
pub use durable::{
    DataDirError, FileJournal, Folder, Opened, Report, open as open_data_dir, panic_is_reported, repair,
};
pub use env::RealEnv;
pub use error::{Error, Result};
pub use front::{Connector, Front, Peer};
pub use keys::GivenKeys;
pub use listen::{Listening, Threads, serve};
pub use outbound::{FrontProxy, Functions, HttpsOutbound};
pub use pki::Pki;
pub use places::Limits;
pub use regular::require_regular;
pub use response::ResponseBody;
pub use run_log::RunLog;
pub use signer::ServiceAccountKey;
pub use tls::Tls;
pub use webhook_certificates::WebhookCertificates;
pub use work::Workers;
