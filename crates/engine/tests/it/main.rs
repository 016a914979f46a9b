//! The engine's promises under random faults: each module plays a protocol against a model.

mod election;
mod informer;
mod queue_model;
mod sharding;
