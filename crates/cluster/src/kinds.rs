//! The built-in kinds of every cluster of this process: derived data is made once.

use std::sync::{Arc, LazyLock};

use kubewright_apiserver::registry::Kinds;

/// All of them.
pub(crate) static KINDS: LazyLock<Arc<Kinds>> = LazyLock::new(|| Kinds::new(kubewright_kinds::built_in()));
