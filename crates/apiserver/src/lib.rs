//! The Kubernetes API server without IO: storage and watch, the resource table, verbs, admission, CRDs, discovery,
//! tables.
//!
//! One pipeline serves every kind, built-in or custom: authenticate → route → authorize → decode → strategy → mutating
//! admission → validate → validating admission → compare-and-swap → fan out → encode. A kind is a row of data and small
//! functions (see [`model::Resource`]), never a handler of its own.
//!
//! Invariants:
//! - only [`storage`] assigns a resourceVersion: one counter for the whole server;
//! - nothing here reads a clock, draws entropy, opens a socket or a file, or starts a thread: see [`Env`];
//! - no request makes [`ApiServer::handle`] panic, whatever it contains.
//!
//! Not here: TLS and HTTP framing (the cluster's listener), controllers, files (the shell passes storage a
//! [`storage::journal::Journal`]).
//!
//! # Where to change what
//!
//! | change | in | checked by |
//! |---|---|---|
//! | which paths and verbs are served, and what answers them | `src/server/route.rs`, `src/server/served.rs`, `src/server/endpoint.rs` | `src/server/tests.rs` |
//! | the stages of a write, or their order | `src/server/write/stages.rs`, which lists them beside upstream's | `src/server/tests.rs` |
//! | what clients share, and the share of one | `src/shares.rs` | the promises there, at random |
//! | which requests go to the server behind an APIService, and what it gets to see | `src/server/aggregate.rs`; whether it is available: `src/server/aggregate/probes.rs` | the tables there, `crates/cluster/tests/it/aggregated.rs` |
//! | which priority level a request belongs to, and who waits for whom | `src/flow_control` | the random run there, `src/server/flow_tests.rs` |
//! | what a watch or a list returns | `src/server/watch.rs`, `src/server/read.rs`, `src/storage` | `src/storage/conformance.rs` |
//! | which write is recorded in `managedFields` | `src/server/managed.rs` | `testdata/apply.json`, recorded |
//! | how versions of custom resources are converted | `src/server/convert.rs`, `src/server/conversion_review.rs` | `src/server/webhook_tests.rs` |
//! | what happens when a CRD is deleted | `src/server/upkeep/endings.rs`, `src/server/upkeep/definitions.rs` | the tables there |
//! | what every cluster has from the start | `src/server/upkeep/bootstrap.rs`, `data/rbac.json` | `src/server/upkeep/bootstrap/fresh.rs` writes `data/bootstrap.txt` again and compares |
//! | what a write needs of other objects | `src/storage/follow.rs`, `src/registry/definitions.rs`, `src/server/upkeep/claims.rs` | `src/server/growth_tests.rs` counts what storage returns |
//! | who may do what | `src/authorization`; where it is asked: `src/server/authorize.rs` | `testdata/authorization.json`, recorded |
//! | the authorization webhook | `src/authorization/webhook` | `src/authorization/webhook/tests.rs` |
//! | what kubelets may read or write | `src/authorization/node`, `src/admission/node_restriction` | `testdata/node.json`, recorded |
//! | which user a token stands for, or its claims | `src/authentication` | the table there, `src/server/token_tests.rs` |
//! | what is in the audit log | `src/audit`; annotations: grep for `annotate` | `testdata/audit.json`, recorded |
//! | what is in a run log | `src/recording.rs`; its form: `crates/runlog` | `crates/cluster/tests/it/run_log.rs` |
//! | which admission plugins there are, and their order | `src/admission/standard.rs` | the drop-in server of the command |
//! | which requests webhooks and policies match | `src/admission/matching.rs` | `src/server/webhook_tests.rs` |
//! | what webhooks receive or may return | `src/admission/webhook` | `src/server/webhook_tests.rs` |
//! | how admission policies act | `src/admission/policy` | `testdata/policies.json`, recorded |
//! | what the Pod Security Standards forbid | `src/admission/pod_security` | `testdata/pod-security.json`, recorded |
//! | what charges a quota (what it counts: `model`) | `src/admission/quota.rs` | `src/server/quota_tests.rs` |
//! | what OpenAPI documents say | `src/openapi`; the conversion to version 2: `src/openapi/v2` | the tables there; `testdata/openapi-v2.pb`, recorded |
//! | what `exec`, `attach`, `cp` and `port-forward` are checked for | `src/server/special/connect.rs` | the table there |
//! | what `kubectl top` and autoscalers get | `src/server/special/metrics.rs` | `src/server/special/metrics/tests.rs` |

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

pub mod admission;
pub mod audit;
pub mod authentication;
pub mod authorization;
mod body;
pub mod discovery;
mod flow_control;
pub mod forward;
mod json;
pub mod meter;
pub mod openapi;
mod recording;
pub mod registry;
pub mod server;
pub mod shares;
pub mod storage;
pub mod table;
mod wire;

pub use admission::{OPTIONAL_PLUGINS, SEPARABLE_PLUGINS};
pub use body::{Body, LongBody, WatchBody};
pub use env::Env;
pub use flow_control::Seats;
pub use kubewright_model as model;
pub use kubewright_model::{env, outbound, quota};
use kubewright_model::{scheme, values};
pub use kubewright_schema::base64;
pub use kubewright_schema::budget::Trial;
pub use kubewright_schema::{names, quantity};
pub use model::status::Status;
pub use model::user::UserInfo;
pub use model::{Minor, ServiceRange};
pub use model::{object, status, user};
pub use server::{
    Admitted, ApiServer, Arrival, Config, Connect, ForkPoint, LogOptions, MAX_BODY, Parts, Place, Streams, TooLong,
    Wants, Weight, first_broken_escape,
};
pub use wire::websocket;
