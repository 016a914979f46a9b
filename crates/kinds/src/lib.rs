//! The built-in kinds: what each adds to the pipeline, as rows of data and small functions.
//!
//! `rows` lists the kinds and how they are served, `strategies` has their defaults and rules, `cells` the columns of
//! `kubectl get`. Other crates need one value from here: [`built_in`].
//!
//! Not here: the code that serves a row (crate `apiserver`, which does not depend on this one), and the facts about
//! single kinds that other code needs ([`kubewright_model::facts`]).
//!
//! # Where to change what
//!
//! | change | in | checked by |
//! |---|---|---|
//! | serve another built-in kind | a row in `src/rows`, its file in `src/strategies` | columns in `testdata`, discovery in the testdata of `apiserver` |
//! | a kind, or a rule, that only some versions of Kubernetes have | `since`, `until` and `changed` of its row | the same |
//! | a default or a rule of a kind | `src/strategies` | the table in the same file |
//! | a rule of a single field | `fields` of the kind's strategy: path, rule, the Kubernetes function | the same |
//! | a column of `kubectl get` | `src/cells` | `testdata` |
//! | the rules of an admission policy | `src/strategies/admission_policies.rs` | the table there |

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

mod cells;
mod rows;
mod strategies;

use kubewright_model::{BuiltIn, Minor};

/// All built-in kinds of a version of Kubernetes. The rows are made once.
pub fn built_in(minor: Minor) -> BuiltIn {
    BuiltIn {
        minor,
        rows: rows::rows(minor),
        metrics: rows::metrics(minor),
        token_request: rows::token_request(minor),
        scale: rows::scale(minor),
        custom_scale: rows::custom_scale(minor),
        order_of_store: rows::order_of_store,
        tell: if minor >= Minor::V37 {
            strategies::declared::tell
        } else {
            |_, _, _, _, _| {}
        },
    }
}
