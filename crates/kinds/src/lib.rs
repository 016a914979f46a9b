//! The built-in kinds: the part of each in the pipeline, as rows of data and small functions.
//!
//! `rows` says which kinds there are and how they are served, `strategies` has their defaults and rules, `cells` the
//! columns of `kubectl get`. Other crates need one value of this: [`built_in`].
//!
//! Not here: the handling of a row (crate `apiserver`, which does not know this one), and the facts that other code
//! must know of single kinds ([`kubewright_model::facts`]).

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

mod cells;
mod rows;
mod strategies;

use kubewright_model::BuiltIn;

/// All built-in kinds. The rows are made once.
pub fn built_in() -> BuiltIn {
    BuiltIn {
        rows: rows::rows(),
        metrics: rows::metrics(),
        token_request: rows::token_request(),
        scale: rows::scale(),
        custom_scale: rows::custom_scale(),
        order_of_store: rows::order_of_store,
    }
}
