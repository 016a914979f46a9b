//! A write in the versions in which its managers wrote (`merge.Converter` upstream).
//!
//! Ownership is judged in the version that an entry names. Where the object cannot be had in that version, an ordinary
//! write drops all tracking, and an apply is refused: its conflicts cannot be determined.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::diff::{Diff, diff};
use super::managers::{ManagedFields, Owned};
use super::{ObjectType, check};

/// A write as it looks in another version of its kind.
#[derive(Clone, Debug)]
pub struct View {
    /// How fields are looked at in that version.
    pub kind: ObjectType,
    /// The object before, converted.
    pub live: Arc<Value>,
    /// The object after, converted.
    pub new: Arc<Value>,
}

/// The write as one version sees it.
#[derive(Clone, Debug)]
pub enum VersionView {
    /// It sees the write so.
    Converted(View),
    /// The version is not served any more: its managers own nothing (`IsMissingVersionError` upstream).
    NotServed,
    /// Nothing is converted to it, and why.
    Failed(String),
}

/// A write as the versions see it in which its managers wrote, by `apiVersion`. A version that is not here has the
/// fields of the write's own.
pub type Views = BTreeMap<String, VersionView>;

/// The changed and the removed fields, by the version in which they are compared.
pub(super) type Changes = BTreeMap<String, Diff>;

/// The error of an object in a version.
fn wrong(kind: &ObjectType, value: &Value) -> Option<String> {
    let errors = check::check(value, kind.shape());
    (!errors.is_empty()).then(|| check::joined(&errors))
}

/// The errors of a stored custom resource, or one that is to be stored, as a value of its type. A built-in object is of
/// its type already.
pub fn untyped(kind: &ObjectType, value: &Value) -> Option<String> {
    if !kind.is_custom() {
        return None;
    }
    let errors = check::check_stored(value, kind.shape());
    (!errors.is_empty()).then(|| check::joined(&errors))
}

/// Whether one of the objects of a write has such errors ([`untyped`]). They have most of their values in common.
pub(super) fn is_untyped(kind: &ObjectType, live: &Value, new: &Value) -> bool {
    untyped(kind, new).is_some() || kind.is_custom() && check::has_errors_beside(live, new, kind.shape())
}

/// Why the old object cannot be read in every version in which a manager wrote.
pub(super) fn unreadable(views: &Views) -> Option<String> {
    views.values().find_map(|seen| match seen {
        VersionView::Converted(view) => wrong(&view.kind, &view.live),
        VersionView::NotServed => None,
        VersionView::Failed(why) => Some(why.clone()),
    })
}

/// The first version that cannot read the object as it is to be, and why.
pub(super) fn unwritable(views: &Views) -> Option<(&str, String)> {
    views.iter().find_map(|(version, seen)| match seen {
        VersionView::Converted(view) => Some((version.as_str(), wrong(&view.kind, &view.new)?)),
        VersionView::NotServed | VersionView::Failed(_) => None,
    })
}

/// The differences as each version sees them; drops the entries of versions that are gone.
pub(super) fn changes(views: &Views, managed: &mut ManagedFields) -> Changes {
    let gone = |owned: &Owned| matches!(views.get(&owned.api_version), Some(VersionView::NotServed));
    managed.entries.retain(|_, owned| !gone(owned));
    let seen = views.iter().filter_map(|(version, seen)| match seen {
        VersionView::Converted(view) => Some((version.clone(), diff(&view.live, &view.new, view.kind.shape()))),
        VersionView::NotServed | VersionView::Failed(_) => None,
    });
    seen.collect()
}

/// Fits the entries to types that became atomic after they were written (`ReconcileFieldSetWithSchema` upstream).
pub(super) fn fit_entries(kind: &ObjectType, views: &Views, managed: &mut ManagedFields) -> bool {
    let mut changed = false;
    for owned in managed.entries.values_mut() {
        let kind = match views.get(&owned.api_version) {
            Some(VersionView::Converted(view)) => &view.kind,
            _ => kind,
        };
        changed |= owned.fields.close_atomic(kind.shape());
    }
    changed
}
