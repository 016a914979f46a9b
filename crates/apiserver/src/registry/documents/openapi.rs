//! OpenAPI documents that were made of one snapshot, and of those before it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;

use crate::registry::hash;

/// Documents made so far.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Of custom kinds, shared with the snapshots before and after.
    pub(crate) recent: Arc<Mutex<Recent>>,
    pub(crate) index: OnceLock<Arc<Document>>,
    /// Hash of the document of version 2, which is large and seldom asked for, and therefore made anew each time.
    pub(crate) v2: OnceLock<String>,
}

impl Cache {
    /// For the snapshot that follows.
    pub(crate) fn next(&self) -> Self {
        Self {
            recent: self.recent.clone(),
            ..Self::default()
        }
    }
}

/// Documents of custom kinds may have this many bytes together.
const RECENT_BYTES: usize = 4 * 1024 * 1024;

/// The documents of custom kinds that were asked for last.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    pub(crate) documents: VecDeque<(String, Arc<Document>)>,
    pub(crate) bytes: usize,
}

impl Recent {
    pub(crate) fn get(&self, path: &str, hash: &str) -> Option<Arc<Document>> {
        let mut known = self.documents.iter();
        let found = known.find(|(known, document)| known == path && document.hash == hash);
        found.map(|(_, document)| document.clone())
    }

    pub(crate) fn add(&mut self, path: &str, document: &Arc<Document>) {
        self.bytes += document.body.len();
        self.documents.push_back((path.to_owned(), document.clone()));
        while self.bytes > RECENT_BYTES {
            let Some((_, oldest)) = self.documents.pop_front() else {
                break;
            };
            self.bytes -= oldest.body.len();
        }
    }
}

/// An OpenAPI document, as JSON text.
#[derive(Clone, Debug)]
pub struct Document {
    /// JSON text.
    pub body: Bytes,
    /// Hash of the text, or of its sources, as in the index: the query parameter `hash` and, in quotes, the ETag.
    pub hash: String,
}

impl Document {
    pub(crate) fn new(body: String) -> Arc<Self> {
        Self::with(hash(body.as_bytes()), body)
    }

    pub(crate) fn with(hash: String, body: String) -> Arc<Self> {
        Arc::new(Self {
            hash,
            body: Bytes::from(body),
        })
    }

    /// The ETag header: the hash in quotes.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }
}
