//! An object that the server delivered and the shell could not turn into its type.
//!
//! The wire format of a Kubernetes object may hold values that a Rust type does not expect: a field of a newer version,
//! a custom resource whose schema was widened. Such an object must not stop its neighbours (invariant RF11), and it
//! must not be taken for absent either. So it travels beside the readable ones, through the reflector and into the
//! store, which remembers it until it changes or is deleted.
//!
//! Not here: decoding, and telling people.

use crate::key::ObjectKey;
use crate::meta::ResourceVersion;

/// The facts about an object that could not be decoded: its identity by its metadata, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// `metadata.namespace` and `metadata.name`.
    pub key: ObjectKey,
    /// `metadata.uid`, when the API says.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`, when the API says.
    pub resource_version: Option<ResourceVersion>,
    /// Why it could not be decoded, for people.
    pub message: String,
}
