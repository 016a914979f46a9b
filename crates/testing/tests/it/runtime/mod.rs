//! The promises to operators, tried with a real API server: one program, because each test program costs a link. The names
//! of tests carry the letters of the invariants.
//!
//! # Which test checks which invariant of the runtime
//!
//! Files are those of this folder, unless the engine or a module of `kubewright` is named.
//!
//! | invariant | test |
//! |---|---|
//! | K1–K5 own writes: seen, awaited where they count, deletes, unknown outcomes, one uid | the engine's `receipts::tests` (exhaustive), `cache::scope::tests::k2_…`, `reads.rs`; many writers: `own_writes.rs` |
//! | RF5, RF11 lists in pages, objects that do not decode | `caches.rs`, `cache::wire::tests::rf11_…` |
//! | a watch that breaks at any byte | `crates/kubewright/tests/it` |
//! | objects at rest, lists cut as they arrive | `form::packed::tests`, `form::cut::tests` |
//! | a controller that wakes itself is told | the engine's `loop_detector::tests`, `reconciles.rs` |
//! | DF2 missed deletions, SI5–SI7 handlers, SI10 one watch for all users | `caches.rs`, `stores.rs` |
//! | C8 a failing kind fails alone, R4 sources first, M2 probes first, M3 runnables after caches | `managers.rs::r4_…`, `m3_…` |
//! | several namespaces are one view | `namespaces.rs` |
//! | Q5, Q6 waiting and waking, without starving others | `queue::tests` |
//! | profiles: one at a time, bounded, loopback | `profiles::tests` (feature `profiling`) |
//! | R1–R3, R5, R7 one at a time, nothing lost, errors and panics | `reconciles.rs`; errors of any type: `controllers.rs` |
//! | R3 mappings that look things up, sources from outside, predicates | the engine's `states::tests`, `predicate::tests`, `sources.rs` |
//! | M5 the first error, M6 controllers come and go, R6, M7 stop | `managers.rs`, `controllers.rs` |
//! | LE1–LE7 leader election | the engine's `election::tests` and `tests/it/election.rs`; `election.rs`, `terms.rs`, `fence.rs` |
//! | SH1–SH9 sharding | the engine's `tests/it/sharding.rs`, `sharding::assign::tests`, `sharding::shards::tests`; `sharding.rs`, `terms.rs` |
//! | LE8 fields of others in a Lease | `election::lease::tests::le8_…` |
//! | finalizers | `controller::finalizer::tests`, `finalizers.rs` |
//! | W1–W4 webhooks, patches, dry runs, conversions | `webhook::tests`, `webhook::merge::tests`, `webhook::json_patch::tests`; `../webhooks` |
//! | W5 certificates are read again, W6 webhooks before caches, W7 limits | `../webhooks/https.rs`, `webhook::body::tests`, `health::tests` |
//! | E1–E9 events | `events.rs` |
//! | one layer retries, every request ends, K6 | the engine's `retry::tests`, `client::send::tests`, `writes.rs` |
//! | nothing is sent that changes nothing | `apply::tests`, `apply.rs`, `restart.rs` |

mod api;
mod apply;
mod caches;
mod clusters;
mod controllers;
mod decodes;
mod election;
mod engaged;
mod events;
mod fence;
mod finalizers;
mod indexes;
mod managers;
mod metrics;
mod namespaces;
mod orphans;
mod own_writes;
mod reads;
mod reconciles;
mod restart;
mod rights;
mod server;
mod sharding;
mod soak;
mod sources;
mod stores;
mod terms;
mod transforms;
mod twice;
mod verbs;
mod views;
mod writes;
