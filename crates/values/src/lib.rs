//! The values of Kubernetes, before any schema: quantities, names, formats, paths of fields, and the errors about them.
//!
//! The budget of a request is here, too ([`budget`]): all code that walks over a client's data counts its steps there.
//!
//! Pure: no clock, no IO, ordered collections only. Not here: shapes of objects (`kubewright-schema`) and expressions
//! (`kubewright-cel`).
//!
//! # Where to change what
//!
//! | change | in | checked by |
//! |---|---|---|
//! | what one request may cost | `Limits::REQUEST` in `src/budget.rs`; where it is counted: grep for `budget::` | the hostile inputs of `schema` and `apiserver` |
//! | which names and labels are valid | `src/names.rs` | the table there |
//! | which versions of Kubernetes can be served | `src/minor.rs` | the table there |
//! | the message about a field | `src/error.rs` | the table there |

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))] // of times: clippy.toml lists what else is added

// the cost of a request
pub mod budget;
pub mod measure;
pub mod stack;
// values
pub mod base64;
pub mod error;
pub mod formats;
pub mod go;
mod list_type;
mod minor;
pub mod names;
pub mod path;
pub mod quantity;
pub mod zones;

pub use list_type::ListType;
pub use minor::{Minor, PerMinor, UnknownMinor};
