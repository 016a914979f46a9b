//! One named index of a store: values to keys.
//!
//! The values of an object are computed once, when it is stored, and kept beside it: removal never calls the user's
//! function again, so that a function that is not pure cannot leave stale entries. A failing function (error or panic)
//! leaves the object out of this index and is recorded until the object changes or goes.

use crate::dispatch::panic_message;
use crate::key::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Why an index could not be added or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The name is taken.
    #[error("cannot add index {name:?}: an index of this name exists already; use it, or choose another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no such index.
    #[error(
        "cannot read index {name:?}: there is no such index (known: {known:?}); declare it with `Controller::indexes`, or add it to the informer"
    )]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
}

/// An object that is missing from an index because the index function failed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFailure<'a> {
    /// The index.
    pub index: &'a str,
    /// The object.
    pub key: &'a ObjectKey,
    /// The error of the function, or its panic.
    pub message: &'a str,
}

/// The possible answers of an index function.
pub trait IndexValues {
    /// The values, or why there are none.
    ///
    /// # Errors
    /// The error about the object.
    fn into_values(self) -> Result<Vec<String>, String>;
}

impl IndexValues for Vec<String> {
    fn into_values(self) -> Result<Vec<String>, String> {
        Ok(self)
    }
}

impl IndexValues for Result<Vec<String>, String> {
    fn into_values(self) -> Result<Vec<String>, String> {
        self
    }
}

/// The objects that a function failed on, by index and key.
pub(super) type Failures = BTreeMap<(Arc<str>, ObjectKey), String>;

type Function<V> = Box<dyn Fn(&V) -> Result<Vec<String>, String> + Send + Sync>;

pub(super) struct Index<V: ?Sized> {
    pub(super) name: Arc<str>,
    function: Function<V>,
    pub(super) sets: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl<V: ?Sized> Index<V> {
    pub(super) fn new<F, R>(name: &str, function: F) -> Index<V>
    where
        F: Fn(&V) -> R + Send + Sync + 'static,
        R: IndexValues,
    {
        let function: Function<V> = Box::new(move |object| function(object).into_values());
        Index {
            name: Arc::from(name),
            function,
            sets: BTreeMap::new(),
        }
    }

    /// Files a new object; answers its values, for the removal.
    pub(super) fn insert(&mut self, key: &ObjectKey, object: &V, failures: &mut Failures) -> Box<[Arc<str>]> {
        let values = self.compute(key, object, failures);
        self.file(key, values)
    }

    /// Files a changed object anew, if its values changed: most changes do not touch them.
    pub(super) fn update(
        &mut self,
        key: &ObjectKey,
        object: &V,
        values: &mut Box<[Arc<str>]>,
        failures: &mut Failures,
    ) {
        if !failures.is_empty() {
            failures.remove(&(self.name.clone(), key.clone()));
        }
        let fresh = self.compute(key, object, failures);
        if !values.iter().map(|value| &**value).eq(fresh.iter().map(String::as_str)) {
            self.remove(key, values);
            *values = self.file(key, fresh);
        }
    }

    /// The function's values, in order and without duplicates; none, and a failure, when it fails.
    fn compute(&self, key: &ObjectKey, object: &V, failures: &mut Failures) -> BTreeSet<String> {
        let function = &self.function;
        let computed = catch_unwind(AssertUnwindSafe(|| function(object)))
            .unwrap_or_else(|payload| Err(format!("panic: {}", panic_message(payload.as_ref()))));
        match computed {
            Ok(values) => values.into_iter().collect(),
            Err(message) => {
                failures.insert((self.name.clone(), key.clone()), message);
                BTreeSet::new()
            }
        }
    }

    fn file(&mut self, key: &ObjectKey, values: BTreeSet<String>) -> Box<[Arc<str>]> {
        let shared = values.into_iter().map(|value| {
            let shared = match self.sets.get_key_value(value.as_str()) {
                Some((shared, _)) => shared.clone(),
                None => Arc::from(value),
            };
            self.sets.entry(shared.clone()).or_default().insert(key.clone());
            shared
        });
        shared.collect()
    }

    pub(super) fn remove(&mut self, key: &ObjectKey, values: &[Arc<str>]) {
        for value in values {
            let Some(set) = self.sets.get_mut(value) else { continue };
            set.remove(key);
            if set.is_empty() {
                self.sets.remove(value);
            }
        }
    }
}
