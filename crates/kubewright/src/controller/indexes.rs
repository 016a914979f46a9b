//! Reads that a controller declares: which objects its reconciler will ask for, and by which of their values.
//!
//! Invariants: an index lives as long as its controller, so that a controller that is added again finds its names free;
//! what is declared is listed before the first reconcile.

use std::any::TypeId;
use std::sync::Arc;

use super::all_keys::{AllKeys, Panics};
use super::sources::Any;
use crate::cache::{KindInformers, Scope, SharedInformer};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::form::{Form, with_typed};
use crate::object::{AnyObject, Object};
use crate::webhook::Kind;

/// The values under which an object is filed.
pub(super) type Values = Arc<dyn Fn(&Any) -> Vec<String> + Send + Sync>;

/// A read as it was declared.
pub(crate) struct Index {
    form: Form,
    kind: Kind,
    what: What,
}

enum What {
    /// The objects of a scope.
    Part(Scope),
    /// The objects by the values of an index.
    Filed { name: String, values: Values },
}

impl Index {
    pub(crate) fn of<K: Object>(name: String, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index {
        Index {
            form: Form::of::<K>(),
            kind: Kind::of::<K>(),
            what: What::Filed {
                name,
                values: typed_values(values),
            },
        }
    }

    /// The objects of a scope, without an index.
    pub(crate) fn reads<K: Object>(scope: Scope) -> Index {
        Index {
            form: Form::of::<K>(),
            kind: Kind::of::<K>(),
            what: What::Part(scope),
        }
    }

    /// Type, kind and name of an index; `None` where objects are only read.
    pub(crate) fn named(&self) -> Option<(TypeId, &str, &str)> {
        match &self.what {
            What::Filed { name, .. } => Some((self.form.id, &self.kind.kind, name)),
            What::Part(_) => None,
        }
    }

    /// The kind that it reads, for the declaration.
    pub(crate) fn kind(&self) -> Kind {
        self.kind.clone()
    }

    /// Starts the informers of the kind, and files their objects from now on.
    pub(super) fn start(
        &self,
        controller: &str,
        client: &Client,
        panics: &Panics,
        all: &AllKeys,
    ) -> Result<ActiveIndex> {
        let parts = match &self.what {
            What::Part(scope) => client.cache().declare_read(&self.form, scope.clone()),
            What::Filed { .. } => client.cache().pinned_of(&self.form),
        };
        match &self.what {
            What::Filed { name, values } => ActiveIndex::start(&parts, name, values, panics, all)
                .map_err(|error| Error::Configuration(format!("controller {controller}: {error}"))),
            What::Part(_) => Ok(ActiveIndex {
                name: None,
                informers: parts.iter().cloned().collect(),
            }),
        }
    }
}

/// A function of objects of one type, for objects of any.
pub(super) fn typed_values<K: AnyObject>(values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Values {
    Arc::new(move |object| with_typed(object, &values).unwrap_or_default())
}

/// An index that informers keep. It goes when this is dropped.
pub(crate) struct ActiveIndex {
    /// `None`: they are only read.
    name: Option<String>,
    /// Those that have it by now.
    informers: Vec<SharedInformer>,
}

impl ActiveIndex {
    /// Files the objects of these informers from now on.
    pub(super) fn start(
        parts: &KindInformers,
        name: &str,
        values: &Values,
        panics: &Panics,
        all: &AllKeys,
    ) -> Result<ActiveIndex> {
        parts.check_objects();
        let mut active = ActiveIndex {
            name: Some(name.to_owned()),
            informers: Vec::new(),
        };
        for informer in parts.iter() {
            let (values, panics, all) = (values.clone(), panics.clone(), all.clone());
            let what = format!("index {name}");
            let kind = parts.form().resource.kind.clone();
            let filed = move |object: &Any| {
                let values = panics.catch(&what, &kind, || values(object));
                // It is filed under nothing, so every key that it may concern looks again.
                values.map_err(|cause| all.wake_after_panic(cause)).unwrap_or_default()
            };
            informer.add_index(name, Box::new(filed))?;
            active.informers.push(informer.clone());
        }
        Ok(active)
    }

    /// The informers that it reads.
    pub(crate) fn informers(&self) -> &[SharedInformer] {
        &self.informers
    }
}

impl Drop for ActiveIndex {
    fn drop(&mut self) {
        for (informer, name) in self.informers.iter().zip(self.name.iter().cycle()) {
            informer.remove_index(name);
        }
    }
}
