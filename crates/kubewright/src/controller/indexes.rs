//! Indexes that a controller declares: which objects its reconciler will ask for by a value of theirs.
//!
//! Invariant: an index lives as long as its controller, so that a controller that is added again finds its names free.

use std::sync::Arc;

use super::all_keys::{AllKeys, Panics};
use super::sources::Any;
use crate::cache::SharedInformer;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::form::{Form, with_typed};
use crate::object::Object;
use crate::webhook::Kind;

type Values = Arc<dyn Fn(&Any) -> Vec<String> + Send + Sync>;

/// An index as it was declared.
pub(crate) struct Index {
    form: Form,
    kind: Kind,
    name: String,
    values: Values,
}

impl Index {
    pub(crate) fn of<K: Object>(name: String, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index {
        Index {
            form: Form::of::<K>(),
            kind: Kind::of::<K>(),
            name,
            values: Arc::new(move |object| with_typed(object, &values).unwrap_or_default()),
        }
    }

    /// The kind that it reads, for the declaration.
    pub(crate) fn kind(&self) -> Kind {
        self.kind.clone()
    }

    /// Starts the informers of the kind, and files their objects from now on.
    pub(super) fn start(
        self,
        controller: &str,
        client: &Client,
        panics: &Panics,
        all: &AllKeys,
    ) -> Result<ActiveIndex> {
        let parts = client.cache().pinned_of(&self.form);
        parts.check_objects();
        let mut active = ActiveIndex {
            name: self.name,
            informers: Vec::new(),
        };
        for informer in parts.iter() {
            let (values, panics, all) = (self.values.clone(), panics.clone(), all.clone());
            let what = format!("index {}", active.name);
            let kind = self.kind.kind.clone();
            let filed = move |object: &Any| {
                let values = panics.catch(&what, &kind, || values(object));
                // It is filed under nothing, and whoever would have found it there must look again.
                values.map_err(|cause| all.wake_after_panic(cause)).unwrap_or_default()
            };
            informer
                .add_index(&active.name, Box::new(filed))
                .map_err(|error| Error::Configuration(format!("controller {controller}: {error}")))?;
            active.informers.push(informer.clone());
        }
        Ok(active)
    }
}

/// An index that informers keep. It goes when this is dropped.
pub(crate) struct ActiveIndex {
    name: String,
    /// Those that have it by now.
    informers: Vec<SharedInformer>,
}

impl ActiveIndex {
    /// The informers that it reads.
    pub(crate) fn informers(&self) -> &[SharedInformer] {
        &self.informers
    }
}

impl Drop for ActiveIndex {
    fn drop(&mut self) {
        for informer in &self.informers {
            informer.remove_index(&self.name);
        }
    }
}
