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

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

pub mod admission;
pub mod audit;
pub mod authentication;
pub mod authorization;
mod body;
pub mod discovery;
mod json;
pub mod meter;
pub mod openapi;
pub mod registry;
pub mod server;
pub mod storage;
pub mod table;
mod wire;

pub use admission::{OPTIONAL_PLUGINS, SEPARABLE_PLUGINS};
pub use body::{Body, LongBody, WatchBody};
pub use env::Env;
pub use kubewright_model as model;
pub use kubewright_model::{env, outbound, quota};
use kubewright_model::{scheme, values};
pub use kubewright_schema::base64;
pub use kubewright_schema::budget::Trial;
pub use kubewright_schema::{names, quantity};
pub use model::ServiceRange;
pub use model::status::Status;
pub use model::user::UserInfo;
pub use model::{object, status, user};
pub use server::{
    Admitted, ApiServer, Config, Connect, LogOptions, MAX_BODY, Parts, Place, Streams, TooLong, Wants, Weight,
    first_broken_escape,
};
pub use wire::websocket;
