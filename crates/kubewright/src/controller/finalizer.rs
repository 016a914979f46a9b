//! Finalizers, held by the runtime, so that a reconciler cannot forget one half.
//!
//! Invariants: `reconcile` runs only on objects that carry the finalizer, so that its effects elsewhere are undone; an
//! object that is being deleted is cleaned up and never reconciled; the finalizer goes when the cleanup says that it is
//! done, and not before; finalizers of others stay, because each change carries the resourceVersion that it was made
//! from; a release is made from the newest state, because a cleanup may write its own object, and so may others
//! meanwhile. A conflict is no reason for another cleanup.

use std::sync::Arc;
use std::time::Duration;

use kube::api::Patch;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use serde_json::json;

use crate::cache::SharedInformer;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::form::{Cached, Form};

/// How often a release is tried, when others write the object at the same time.
const TRIES: usize = 5;

/// How a cleanup ended; see [`Reconciler::cleanup`](crate::Reconciler::cleanup).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Cleanup {
    /// Nothing is left: the finalizer is removed, and the object goes.
    Done,
    /// Something is left: run again when something that is watched changes.
    AwaitChange,
    /// Something is left: run again after the delay, or earlier when something changes.
    RequeueAfter(Duration),
}

/// The step for an object.
pub(super) enum Step {
    Reconcile(Arc<dyn Cached>),
    CleanUp,
    /// It is being deleted, and this controller has nothing to do with it any more.
    Nothing,
}

/// Whether it is the object's time to be reconciled or cleaned up; adds the finalizer first where it is missing.
pub(super) async fn next_step(
    informer: &SharedInformer,
    object: Arc<dyn Cached>,
    ctx: &Context,
    finalizer: Option<&str>,
) -> Result<Step> {
    let Some(finalizer) = finalizer else {
        return Ok(Step::Reconcile(object));
    };
    let meta = object.metadata();
    match (meta.deletion_timestamp.is_some(), carries(&meta, finalizer)) {
        (false, true) => Ok(Step::Reconcile(object.clone())),
        (true, true) => Ok(Step::CleanUp),
        (true, false) => Ok(Step::Nothing),
        (false, false) => {
            let mut finalizers = meta.finalizers.clone().unwrap_or_default();
            finalizers.push(finalizer.to_owned());
            write(informer, &meta, ctx, &finalizers).await.map(Step::Reconcile)
        }
    }
}

/// Takes the finalizer away from the object of this uid, in its newest state.
pub(super) async fn release(
    informer: &SharedInformer,
    uid: Option<&str>,
    ctx: &Context,
    finalizer: &str,
) -> Result<()> {
    let (client, request) = (ctx.client(), ctx.request());
    let mut newest = client.get_requested(informer, request).await.ok().flatten();
    let mut tries = 0;
    loop {
        // What the cleanup wrote may have left the cache's part of the kind, or its form.
        let form = Form::for_resource::<PartialObjectMeta<DynamicObject>>(informer.resource());
        let found = match newest.take() {
            None => client.live_shared(&form, request.namespace(), request.name()).await?,
            cached => cached,
        };
        let Some(found) = found else { return Ok(()) };
        let meta = found.metadata();
        if meta.uid.as_deref() != uid || !carries(&meta, finalizer) {
            return Ok(());
        }
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.retain(|name| name != finalizer);
        tries += 1;
        match write(informer, &meta, ctx, &finalizers).await {
            Err(error) if error.is_conflict() && tries < TRIES => {
                tracing::debug!(object = %request, "the object has changed meanwhile; its finalizer is removed from the newer state");
            }
            Err(error) if !error.is_absent() => return Err(error),
            _ => return Ok(()),
        }
    }
}

fn carries(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|name| name == finalizer)
}

async fn write(
    informer: &SharedInformer,
    meta: &ObjectMeta,
    ctx: &Context,
    finalizers: &[String],
) -> Result<Arc<dyn Cached>> {
    let patch =
        json!({"metadata": {"resourceVersion": meta.resource_version, "uid": meta.uid, "finalizers": finalizers}});
    let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
    ctx.client()
        .patch_shared(informer.form(), namespace, name, None, &Patch::Merge(patch))
        .await
}

/// Kubernetes warns of names without a domain, and leaves them to itself.
pub(super) fn check(controller: &str, finalizer: &str) -> Result<()> {
    let parts = finalizer.split_once('/');
    let label = |text: &str, more: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inside = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        ends(text.chars().next()) && ends(text.chars().last()) && text.chars().all(inside)
    };
    let fits = |(domain, name): (&str, &str)| {
        domain.len() <= 253
            && domain.contains('.')
            && label(domain, "-.")
            && !domain.contains(|c: char| c.is_ascii_uppercase())
            && name.len() <= 63
            && label(name, "-_.")
    };
    if parts.is_some_and(fits) {
        return Ok(());
    }
    Err(Error::Configuration(format!(
        "controller {controller}: {finalizer:?} cannot be a finalizer; name it like shop.example.com/database, a domain of yours and a word"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_has_a_domain() {
        let fits = |name: &str, fits: bool| assert_eq!(check("c", name).is_ok(), fits, "{name:?}");
        fits("shop.example.com/database", true);
        fits("shop.example.com/Data_base.1", true);
        for wrong in [
            "",
            "/",
            "database",
            "shop/database",
            "shop.example.com/",
            "Shop.Example.com/a",
            "a.b/c/d",
            "a.b/-c",
            "a.b/ä",
        ] {
            fits(wrong, false);
        }
        fits(&format!("a.b/{}", "c".repeat(64)), false);
    }
}
