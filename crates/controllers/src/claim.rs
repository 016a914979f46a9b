//! Which objects a controller may count as its own: adoption and release (client-go's `ControllerRefManager`).
//!
//! A workload controller owns the objects that carry its controller reference and fit its selector. An orphan that fits
//! is adopted; one of its own that no longer fits is released. The decision is pure ([`decide`]); the two writes are
//! here as well, because both say on which version of the object they were decided: a dependent that changed in between
//! answers with a conflict and is looked at again.
//!
//! Invariants: something that another controller owns is never touched; an owner under deletion neither adopts nor
//! releases.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubewright::kube::api::Patch;
use kubewright::kube::core::Selector;
use kubewright::{Client, Context, Object, Request, Result, View};
use kubewright_objects::api::core::v1::Pod;
use serde_json::json;

use super::selecting::Selecting;
use kubewright_objects::meta;

/// The decision about one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is ours already.
    Owned,
    /// It has no controller and fits.
    Adopt,
    /// It is ours and does not fit any more.
    Release,
    /// It is none of our business.
    Ignore,
}

/// Decides about one object.
pub(crate) fn decide(owner: &ObjectMeta, selector: &Selector, object: &ObjectMeta) -> Claim {
    let fits = meta::fits(selector, object);
    match meta::controller_of(object) {
        Some(controller) if controller.uid != meta::uid(owner) => Claim::Ignore,
        Some(_) if fits => Claim::Owned,
        Some(_) if meta::is_deleting(owner) => Claim::Ignore,
        Some(_) => Claim::Release,
        None if !fits || meta::is_deleting(owner) || meta::is_deleting(object) => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// All objects of kind `P` that belong to the owner, after adoption and release. `worth_adopting` says which orphans
/// the owner wants at all.
///
/// # Errors
/// When a read or a write fails; a dependent that changed in between answers with a conflict.
pub(crate) async fn all<O: Object, P: Object>(
    ctx: &Context,
    owner: &O,
    selector: &Selector,
    worth_adopting: impl Fn(&P) -> bool,
) -> Result<Vec<Arc<P>>> {
    tied(ctx, owner, selector, None, worth_adopting).await
}

/// Views of the pods of an owner that fit it, after adoption and release. None of thousands is decoded when nothing is
/// to be adopted or released.
///
/// # Errors
/// As those of [`all`].
pub(crate) async fn views<O: Object, V: View<Pod>>(
    ctx: &Context,
    owner: &O,
    selector: &Selector,
    fits: impl Fn(&V) -> bool,
    worth_adopting: impl Fn(&Pod) -> bool,
) -> Result<Vec<Arc<V>>> {
    // Read before the owned pods: an orphan that is adopted in between is then in both lists, and in neither otherwise.
    let orphans = ctx.client().orphans::<Pod>(ctx.request().namespace(), selector).await?;
    let mut owned = owned_views(ctx, owner, |_: &V| true).await?;
    let is_settled = orphans.is_empty() && owned.iter().all(|pod| fits(pod));
    if !is_settled && !meta::is_deleting(owner.meta()) {
        all(ctx, owner, selector, worth_adopting).await?;
        return owned_views(ctx, owner, fits).await;
    }
    owned.retain(|pod| fits(pod));
    Ok(owned)
}

/// Views of the pods whose controller this is, as far as they fit.
///
/// # Errors
/// When the read fails.
pub(crate) async fn owned_views<O: Object, V: View<Pod>>(
    ctx: &Context,
    owner: &O,
    fits: impl Fn(&V) -> bool,
) -> Result<Vec<Arc<V>>> {
    let (namespace, uid) = (ctx.request().namespace(), meta::uid(owner.meta()));
    let mut owned = ctx.client().owned_views::<Pod, V>(namespace, uid).await?;
    owned.retain(|pod| fits(pod));
    Ok(owned)
}

/// [`all`], with a finalizer that adopted objects get and released ones lose.
///
/// # Errors
/// As those of [`all`].
pub(crate) async fn tied<O: Object, P: Object>(
    ctx: &Context,
    owner: &O,
    selector: &Selector,
    finalizer: Option<&str>,
    worth_adopting: impl Fn(&P) -> bool,
) -> Result<Vec<Arc<P>>> {
    let client = ctx.client();
    let (mut ours, mut may_adopt_answer) = (vec![], None);
    for object in candidates::<P>(ctx, meta::uid(owner.meta()), selector).await? {
        match decide(owner.meta(), selector, object.meta()) {
            Claim::Owned => ours.push(object),
            Claim::Ignore => {}
            Claim::Release => drop(release(client, &*object, meta::uid(owner.meta()), finalizer).await?),
            Claim::Adopt if !worth_adopting(&object) => {}
            Claim::Adopt => {
                if may_adopt_answer.is_none() {
                    may_adopt_answer = Some(may_adopt(client, owner).await?);
                }
                if may_adopt_answer == Some(true) {
                    ours.extend(adopt(client, &*object, meta::reference_to(owner), finalizer).await?);
                }
            }
        }
    }
    Ok(ours)
}

/// The objects that may belong to the owner: those that it controls, and orphans that its selector fits, by name.
/// Objects of other controllers are not looked at (`FilterPodsByOwner`).
async fn candidates<P: Object>(ctx: &Context, owner: &str, selector: &Selector) -> Result<Vec<Arc<P>>> {
    let (client, namespace) = (ctx.client(), ctx.request().namespace());
    let orphans = client.orphans::<P>(namespace, selector).await?;
    let mut candidates = client.owned_by::<P>(namespace, owner).await?;
    if orphans.is_empty() {
        // As nearly always; they are in order.
        return Ok(candidates);
    }
    // An object adopted between the two requests is in both answers.
    let owned: BTreeSet<String> = candidates
        .iter()
        .map(|object| meta::uid(object.meta()).to_owned())
        .collect();
    candidates.extend(
        orphans
            .into_iter()
            .filter(|object| !owned.contains(meta::uid(object.meta()))),
    );
    candidates.sort_by(|one, other| meta::name(one.meta()).cmp(meta::name(other.meta())));
    Ok(candidates)
}

/// Whether the owner still exists under its uid and is not being deleted, asked of the API server itself.
///
/// Adoption is the one write that a stale cache makes dangerous: an owner that is gone already would take children that
/// nothing collects before the garbage collector finds the dangling reference.
pub(crate) async fn may_adopt<K: Object>(client: &Client, owner: &K) -> Result<bool> {
    let owner = owner.meta();
    let fresh = client.live::<K>(owner.namespace.as_deref(), meta::name(owner)).await?;
    Ok(fresh.is_some_and(|fresh| fresh.meta().uid == owner.uid && !meta::is_deleting(fresh.meta())))
}

/// Writes our controller reference, and the finalizer, into an orphan. `None` when the object is gone meanwhile.
async fn adopt<K: Object>(
    client: &Client,
    object: &K,
    owner: OwnerReference,
    finalizer: Option<&str>,
) -> Result<Option<Arc<K>>> {
    let mut owners = object.meta().owner_references.clone().unwrap_or_default();
    owners.push(owner);
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    if let Some(finalizer) = finalizer.filter(|wanted| finalizers.iter().all(|there| there != wanted)) {
        finalizers.push(finalizer.to_owned());
    }
    write(client, object, &owners, &finalizers).await
}

/// Takes our reference, and the finalizer, out of an object. `None` when the object is gone meanwhile.
async fn release<K: Object>(
    client: &Client,
    object: &K,
    owner_uid: &str,
    finalizer: Option<&str>,
) -> Result<Option<Arc<K>>> {
    let mut owners = object.meta().owner_references.clone().unwrap_or_default();
    owners.retain(|owner| owner.uid != owner_uid);
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    finalizers.retain(|there| Some(there.as_str()) != finalizer);
    write(client, object, &owners, &finalizers).await
}

async fn write<K: Object>(
    client: &Client,
    object: &K,
    owners: &[OwnerReference],
    finalizers: &[String],
) -> Result<Option<Arc<K>>> {
    let meta = object.meta();
    // The lists are replaced as a whole, so the version that they were computed from goes along; so does the uid, since
    // names are reused.
    let mut patch = json!({ "metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": if owners.is_empty() { None } else { Some(owners) },
    }});
    if meta.finalizers.as_deref().unwrap_or_default() != finalizers {
        patch["metadata"]["finalizers"] = json!((!finalizers.is_empty()).then_some(finalizers));
    }
    match client
        .patch::<K, _>(meta.namespace.as_deref(), meta::name(meta), &Patch::Merge(patch))
        .await
    {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The selectors of all objects of a controller: the possible owners of an orphan. Cheap to clone.
///
/// Remember a selector *before* listing the objects that it selects: an orphan that comes before is in the list, one
/// that comes later finds the selector.
#[derive(Clone, Default)]
pub(crate) struct Selectors(Selecting);

impl Selectors {
    /// The object of this key selects that.
    pub(crate) fn remember(&self, request: &Request, selector: &Selector) {
        self.0.remember(request, selector);
    }

    /// Whether the object of this key was looked at before.
    pub(crate) fn knows(&self, request: &Request) -> bool {
        self.0.knows(request)
    }

    /// The object of this key is gone.
    pub(crate) fn forget(&self, request: &Request) {
        self.0.forget(request);
    }

    /// The objects that may adopt this one; none when it has a controller.
    pub(crate) fn for_orphan(&self, meta: &ObjectMeta) -> Vec<Request> {
        match meta::controller_of(meta) {
            Some(_) => vec![],
            None => self.0.chosen(meta, |selector| meta::fits(selector, meta)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    fn object(app: &str, owner: Option<&str>, deleting: bool) -> ObjectMeta {
        ObjectMeta {
            uid: Some("me".to_owned()),
            labels: Some([("app".to_owned(), app.to_owned())].into()),
            owner_references: owner.map(|uid| {
                vec![OwnerReference {
                    uid: uid.to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            }),
            deletion_timestamp: deleting.then(|| meta::time(kubewright::k8s_openapi::jiff::Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn claims() {
        let selector = meta::selector(
            "x",
            &LabelSelector {
                match_labels: Some([("app".to_owned(), "web".to_owned())].into()),
                ..LabelSelector::default()
            },
        )
        .expect("a good selector");
        let check = |owner_deleting: bool, of: ObjectMeta, expected: Claim| {
            let owner = object("", None, owner_deleting);
            assert_eq!(
                decide(&owner, &selector, &of),
                expected,
                "owner deleting {owner_deleting}, {of:?}"
            );
        };
        check(false, object("web", Some("me"), false), Claim::Owned);
        check(false, object("web", Some("me"), true), Claim::Owned);
        check(true, object("web", Some("me"), false), Claim::Owned);
        check(false, object("lab", Some("me"), false), Claim::Release);
        check(true, object("lab", Some("me"), false), Claim::Ignore);
        check(false, object("web", None, false), Claim::Adopt);
        check(false, object("web", None, true), Claim::Ignore);
        check(true, object("web", None, false), Claim::Ignore);
        check(false, object("lab", None, false), Claim::Ignore);
        check(false, object("web", Some("another"), false), Claim::Ignore);
    }
}
