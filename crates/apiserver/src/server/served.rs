//! Whether the target of a path is served: its group, and its resource in this scope.
//!
//! Not here: the subresource and the method there (`endpoint`).

use std::sync::Arc;

use super::route::ResourcePath;
use crate::model::status::Status;
use crate::model::{Connection, Resource, Subresource, Way};
use crate::registry::Snapshot;

/// The missing part of a path that is not served.
pub(super) enum Missing {
    /// Its group and version are not served.
    Group,
    /// They are, and the resource is not, or not in this scope.
    Resource,
}

/// The row that a path is about.
pub(super) fn find(kinds: &Snapshot, path: &ResourcePath) -> Result<Arc<Resource>, Missing> {
    let Some(resource) = kinds.lookup(&path.group, &path.version, &path.plural) else {
        // In a group that only definitions serve, a resource that none of them serves is no path at all.
        return Err(match kinds.is_built_in_group(&path.group) {
            true => Missing::Resource,
            false => Missing::Group,
        });
    };
    let scope_fits = resource.namespaced || path.namespace.is_none() || resource.is_namespace();
    let is_proxied = matches!(
        path.subresource.as_deref().and_then(|name| resource.subresource(name)),
        Some(Subresource::Connect(Connection { to: Way::Proxy, .. }))
    );
    let in_scope = scope_fits && (!resource.namespaced || path.namespace.is_some() || path.name.is_none());
    if !in_scope {
        // Definitions make no path of the other scope.
        return Err(match resource.custom {
            Some(_) => Missing::Group,
            None => Missing::Resource,
        });
    }
    if path.below.len() > 1 && !is_proxied {
        return Err(Missing::Resource);
    }
    if path.namespace.as_deref() == Some("") || path.name.as_deref() == Some("") {
        return Err(Missing::Resource);
    }
    Ok(resource)
}

/// A name that cannot be a segment of a path names nothing.
pub(super) fn check_path_name(name: &str) -> Result<(), Status> {
    let messages = kubewright_schema::names::path_segment_name(name);
    if messages.is_empty() {
        return Ok(());
    }
    let why = format!("Name parameter invalid: {name:?}: {}", messages.join(";"));
    Err(Status::bad_request(why))
}
