//! The steps that a schema makes with a value, on its way into the server.
//!
//! For **custom resources**, in this order: [`prune`] drops fields that the schema does not have, [`default`] fills in
//! absent ones, [`validate`] reports errors, in Kubernetes' words. Before that, when the CRD itself is written,
//! [`check_crd_schema`] says whether its schema is structural and its defaults are valid.
//!
//! For **built-in kinds**: [`type_check`] and [`prune`] answer as Go's decoder does, [`go_normalize`] gives the form
//! that a Go program writes after it has read a value.
//!
//! Invariants: nothing here panics, for any value and schema; pruning and defaulting are idempotent; a schema without a
//! word about a value leaves it alone.
//!
//! Not here: the rules of single kinds (a port is between 1 and 65535), which belong to the server's strategies, and
//! the rules that a definition brings along, which [`cel::rules`](crate::rules) runs. Values come with their depth
//! bounded by the decoder: the functions recurse.

mod convert;
mod crd_rules;
mod default;
mod prune;
pub(crate) mod types;
mod validate;

pub use crate::schema::go::{go_normalize, go_normalize_read};
pub use convert::{convert, convert_check};
pub(crate) use crd_rules::formless;
pub use crd_rules::{check_crd_schema, check_crd_schema_update};
pub use default::default;
pub use kubewright_values::formats::is_known as is_known_format;
pub use prune::{PruneOptions, prune, unknown_fields_as_written};
pub use types::{TypeError, time_check, type_check};
pub use validate::{validate, validate_update};

use std::fmt::Write as _;

use crate::{budget, measure};

/// A path as unknown fields are reported: `spec.list[0].zz`. Names in maps are joined with a dot as fields are.
#[derive(Default)]
struct Path(String);

impl Path {
    /// A copy for a message: there may be one for each field, and each as long as the names in it.
    fn to_message(&self) -> String {
        budget::produce(measure::text_held(self.0.len()));
        self.0.clone()
    }

    /// Goes one field deeper; the answer is the way back.
    fn enter(&mut self, name: &str) -> usize {
        let before = self.0.len();
        if before > 0 {
            self.0.push('.');
        }
        self.0.push_str(name);
        before
    }

    /// Goes one item deeper; the answer is the way back.
    fn enter_item(&mut self, index: usize) -> usize {
        let before = self.0.len();
        // Writing into a String cannot fail.
        let _ = write!(self.0, "[{index}]");
        before
    }

    /// Goes back to where `enter` was called.
    fn leave(&mut self, before: usize) {
        self.0.truncate(before);
    }

    /// Runs `body` one field deeper.
    fn field<T>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.enter(name);
        let result = body(self);
        self.leave(before);
        result
    }

    /// Runs `body` one item deeper.
    fn index<T>(&mut self, index: usize, body: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.enter_item(index);
        let result = body(self);
        self.leave(before);
        result
    }
}

/// The same for walks that need a text only where something is wrong: a step with the way to it.
#[derive(Clone, Copy)]
struct Place<'a> {
    step: Step<'a>,
    above: Option<&'a Place<'a>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> Place<'a> {
    const ROOT: Place<'static> = Place {
        step: Step::Root,
        above: None,
    };

    fn field(&'a self, name: &'a str) -> Place<'a> {
        let step = Step::Field(name);
        Place {
            step,
            above: Some(self),
        }
    }

    fn item(&'a self, index: usize) -> Place<'a> {
        let step = Step::Item(index);
        Place {
            step,
            above: Some(self),
        }
    }

    fn is_root(&self) -> bool {
        self.above.is_none()
    }

    /// The path as [`Path`] spells it.
    fn text(&self) -> String {
        let mut steps = Vec::new();
        let mut at = Some(self);
        while let Some(place) = at {
            steps.push(place.step);
            at = place.above;
        }
        let mut path = Path::default();
        for step in steps.into_iter().rev() {
            match step {
                Step::Root => {}
                Step::Field(name) => _ = path.enter(name),
                Step::Item(index) => _ = path.enter_item(index),
            }
        }
        budget::spend_on_text(path.0.len());
        path.0
    }
}
