//! Objects that were asked for lately, kept so that they need not be read again.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::storage::StoredObject;

/// Texts of the objects that are kept open may have this many bytes; their trees are ten to twenty times as large.
pub(super) const RECENT_BYTES: usize = 512 * 1024;

/// Objects that were asked for lately, kept so that they need not be read again.
#[derive(Default)]
pub(super) struct Recent {
    pub(super) objects: VecDeque<Arc<StoredObject>>,
    pub(super) bytes: usize,
}

impl Recent {
    pub(super) fn add(&mut self, object: Arc<StoredObject>) {
        self.bytes += object.encoded().len();
        self.objects.push_back(object);
        while self.bytes > RECENT_BYTES {
            let Some(oldest) = self.objects.pop_front() else { break };
            self.bytes -= oldest.encoded().len();
        }
    }
}
