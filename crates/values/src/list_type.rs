//! How the items of a list are told apart: schemas say it, and merges, ownership and expressions act on it.

/// `x-kubernetes-list-type`: how the items of a list are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// The list is one value.
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects, told apart by the fields that the schema names (`x-kubernetes-list-map-keys`).
    Map,
}
