//! Schemas of Kubernetes objects: which values they allow, and how objects change.
//!
//! Pure: no clock, no IO, ordered collections only.
//!
//! # Where to change what
//!
//! | change | in | checked by |
//! |---|---|---|
//! | pruning, defaulting, validation of custom resources | `src/structural` | the tables there |
//! | what Go drops, writes or reports for a built-in type | `data/go-types.txt`, `data/go-names.txt` | the tables in `src/structural` |
//! | the order in which JSON is written | `src/protobuf/order.rs`; the order itself is in `data/kubernetes.protobuf` | the table there |
//! | how a patch is applied | `src/patch` | the tables there |
//! | field ownership | `src/apply` | the tables there; `testdata/apply.json` of `apiserver`, recorded |
//! | the rules of custom resources | `src/rules` | `testdata/cel-definitions.json`, recorded |
//! | how a message shows a value | `src/internal`, generated from Go's structs by `cargo xtask generate-internal` | the table there |
//! | the definitions of another version of Kubernetes | `data`, by `cargo xtask generate`; `src/schema/catalog.rs` | the table there |
//! | parse another kind of input | its parser, and a target in `tests/it/fuzz` | the target |

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

// values and patches
pub mod apply;
pub mod decode;
pub mod fields;
pub mod internal;
pub mod jsonpath;
pub mod labels;
pub mod patch;
pub mod protobuf;
// schemas and rules
pub mod check;
mod correlate;
pub mod declare;
pub mod definition;
pub mod rules;
pub mod schema;
mod sorted;
pub mod structural;
mod times;

// The types in the interface of this crate.
pub use kubewright_values::{
    Minor, PerMinor, UnknownMinor, base64, budget, error, go, measure, names, path, quantity, stack, zones,
};
pub use schema::{Schema, SchemaRef, catalog};
