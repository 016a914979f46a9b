//! The decisions of a controller's runtime, without their effects.
//!
//! This crate is the pure part of kubewright's runtime: Reflector → delta queue → [`store`] with indexes → [`dispatch`]
//! → [work queue](queue). Nothing here reads a clock, waits, opens a socket or draws a random number. Time
//! ([`time::Instant`]) and entropy (a plain `u64`) are passed in, and effects are returned as data
//! ([`reflector::Action`], [`queue::Next`]). A shell (the `kubewright` crate) does the input and output and holds the
//! locks.
//!
//! # How the parts work together
//!
//! ```text
//!  list pages, watch events ──► Reflector ──Action::Apply(Delta)──► DeltaQueue ──► Store::apply ──► Vec<Event> ──► Dispatcher
//!                                   │                                                                                │
//!                 Action::List / Watch / Wait ◄── the shell obeys                    handlers turn events into keys ──► WorkQueue
//! ```
//!
//! The lock that protects the [`dispatch::Dispatcher`] is held while a batch is applied to the store and its events are
//! dispatched, and while a snapshot is taken and a handler added. The store's own lock is released before handlers run,
//! so that they can read it.
//!
//! # Where to change what
//!
//! | to change | go to | its test |
//! |---|---|---|
//! | what happens after a 410, a silent server, a broken stream | `reflector.rs`, the first list as a stream: `reflector/initial.rs` | `reflector/tests.rs`; `tests/it/informer.rs` has a simulated server |
//! | which objects and indexes are kept | `store.rs`, a list that replaces all: `store/replace.rs` | `store/tests.rs` |
//! | retry, delay, priority | `queue.rs`, `backoff.rs`, `rate.rs` | `tests/it/queue_model.rs` |
//! | when a read waits for an own write | `receipts.rs` | `receipts/tests.rs` |
//! | leader election | `election.rs` | `tests/it/election.rs` |
//! | which replica works on which objects | `sharding.rs`, `sharding/assign.rs` | `tests/it/sharding.rs` |
//! | when a controller is reported to wake itself | `loop_detector.rs` | the tests there |
//!
//! # Which test checks which invariant
//!
//! RF: reflector, DF: delta queue, S: store, SI: shared informer, Q: work queue, R: reconcile, LE: leader election. The
//! shell tests the invariants that are missing here, because they are about tasks, timers or requests.
//!
//! | invariant | test |
//! |---|---|
//! | RF1 never back in time | `reflector::tests::rf1_list_older_than_the_store_is_refused`, `store::tests::rf1_older_event_is_ignored`, `tests/it/informer.rs` |
//! | RF2 eventually equal to the server | `tests/it/informer.rs::rf2_store_equals_server_after_faults` |
//! | RF3 resume from the last applied version | `reflector::tests::rf3_initial_events_do_not_move_the_resume_version` |
//! | RF4 nothing of a partial list is seen | `store::tests::rf4_partial_replace_is_invisible`, `reflector::tests::rf4_broken_list_is_aborted` |
//! | RF5 fall back to LIST | `reflector::tests::rf5_…` |
//! | RF6 no hot loop | `reflector::tests::rf6_…`, `tests/it/informer.rs::rf6_every_fault_backs_off`, `rf6_short_watches_back_off` |
//! | RF7 410 and too large versions | `reflector::tests::rf7_…` |
//! | RF8 stop at any point | `reflector::tests::rf8_stop_in_every_state` |
//! | RF10 bookmarks | `reflector::tests::rf10_bookmark_moves_versions`, `store::tests::rf10_bookmark_emits_nothing` |
//! | RF11 undecodable frame | `reflector::tests::rf11_bad_frame_resumes_before_it` |
//! | RF11 undecodable object | `reflector::tests::rf11_an_unreadable_object_passes_like_any_other`, `store::tests::rf11_…` |
//! | RF12 leaving the selector | `store::tests::rf12_deleted_event_removes` |
//! | RF13 a watch without its bookmarks is asked for again (ours) | `reflector::tests::rf13_…` |
//! | DF1 strict order | `delta::tests::df1_order_is_kept` |
//! | DF2 deletes missed in a gap | `store::tests::df2_missing_key_is_deleted_once`, `tests/it/informer.rs::df8_gap_shows_deletes_and_new_uids` |
//! | DF7 bounded | `delta::tests::df7_full_queue_hands_the_delta_back` |
//! | DF8 delete and recreate | `store::tests::df8_new_uid_is_delete_then_add` |
//! | one layer retries, no write twice | `retry::tests` |
//! | S1, S4 atomic replace | `store::tests::rf4_partial_replace_is_invisible`, `store::tests::s4_replace_is_one_step` |
//! | S2, S7 indexes equal their function, no leak | `store::tests::s2_index_equals_function` (property) |
//! | S3 immutable objects | by type: the store hands out `Arc<V>` and keeps the index values it computed |
//! | S5 version only forward, lists carry it | `store::tests::s5_version_moves_forward_only`, `s5_lists_have_an_order_and_the_version` |
//! | C4 late and duplicate indexes | `store::tests::c4_indexes_are_backfilled_and_names_are_unique` |
//! | S6 index failure is isolated | `store::tests::s6_failing_index_function_is_isolated` |
//! | SI1, SI3 valid history per handler | `tests/it/informer.rs` (property), `dispatch::tests::si1_late_joiner_sees_adds_first` |
//! | SI2 store is not older than the event | `tests/it/informer.rs` |
//! | SI4 initial list flag | `store::tests::si4_initial_flag_on_the_first_list_only`, `dispatch::tests::si1_late_joiner_sees_adds_first` |
//! | SI5 a handler has returned for its first list | `dispatch::mailbox::tests::si5_a_mark_is_passed_when_the_handler_has_returned` |
//! | SI6 removed handlers are silent | `dispatch::tests::si6_removed_handler_is_silent` |
//! | SI7 slow handler | `dispatch::mailbox::tests::si7_every_short_history_is_told_folded` (exhaustive), `si7_a_busy_key_keeps_its_place` |
//! | SI7 panicking handler | `dispatch::tests::si7_panic_is_isolated` |
//! | Q1–Q8, Q10, Q11 (Q7 also `backoff::tests`, `rate::tests`) | `queue::tests::q1_…` to `q11_…`, `tests/it/queue_model.rs` (property, against a naive model) |
//! | Q9 no starvation | `queue::tests::q9_low_is_served_within_its_bound` |
//! | K1–K4 reads see own writes | `receipts::tests::k_every_interleaving_of_some_tasks_on_one_key` (exhaustive), `receipts::tests::k1_…`, `k4_…` |
//! | R3 slow mapping loses no state | `states::tests::r3_no_state_is_lost_in_any_short_history` (exhaustive), `r3_more_states_than_are_kept_wake_everything` |
//! | R1, R2 | `tests/it/queue_model.rs`, `queue::tests::q3_add_while_processing_is_not_lost` |
//! | LE1, LE6 one leader, growing terms | `tests/it/election.rs` (property, several replicas and one Lease) |
//! | LE2–LE5, LE7 | `election::tests::le2_…` to `le7_…` |
//! | SH1–SH5 one replica at a time works on a shard, every shard is worked on | `tests/it/sharding.rs` (property, several replicas and their Leases) |
//! | R5 backoff resets | `queue::tests::r5_success_resets_the_backoff` |
//! | R6 nothing starts after shutdown | `queue::tests::q6_shutdown_hands_out_nothing` |
//! | a controller that wakes itself is told once (ours) | `loop_detector::tests` |
//! | R8 priority is the highest pending, kept by retries | `queue::tests::r8_priority_is_the_highest_pending` |

pub mod backoff;
pub mod delta;
pub mod dispatch;
pub mod election;
pub mod key;
pub mod loop_detector;
pub mod meta;
pub mod queue;
pub mod rate;
pub mod receipts;
pub mod reflector;
pub mod retry;
pub mod sharding;
pub mod states;
pub mod store;
pub mod time;
pub mod unreadable;

pub use delta::{Delta, DeltaQueue, Event};
pub use dispatch::{Dispatcher, HandlerId};
pub use key::ObjectKey;
pub use meta::{Meta, ResourceVersion};
pub use queue::WorkQueue;
pub use receipts::Receipts;
pub use reflector::Reflector;
pub use store::Store;
pub use time::Instant;
pub use unreadable::Unreadable;
