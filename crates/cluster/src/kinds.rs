//! The built-in kinds of every cluster of this process: derived data is made once for each version of Kubernetes.

use std::sync::Arc;

use kubewright_apiserver::Minor;
use kubewright_apiserver::model::PerMinor;
use kubewright_apiserver::registry::Kinds;

/// All of a version.
pub(crate) fn of(minor: Minor) -> Arc<Kinds> {
    static KINDS: PerMinor<Arc<Kinds>> = PerMinor::new();
    KINDS
        .get_or_init(minor, || Kinds::new(kubewright_kinds::built_in(minor)))
        .clone()
}
