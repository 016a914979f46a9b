//! Bodies that arrive in pieces: chunks, or frames of HTTP/2.
//!
//! Each piece costs about as much time as a kilobyte does, and, kept as it is, forty bytes of memory. A body in single
//! bytes would cost a hundred times what its length says, so the number of pieces has a bound of its own.

use bytes::{Bytes, BytesMut};

/// In how many pieces a body may come. Of the largest body each has 31 bytes then; programs send kilobytes.
pub(crate) const MAX_PIECES: usize = 100_000;

/// A piece counts as this many bytes at least where bytes are read and thrown away.
pub(crate) const MIN_PIECE: usize = 1024;

/// What has come of a body.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    first: Bytes,
    rest: BytesMut,
    count: usize,
}

impl Pieces {
    /// How many bytes have come.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Counts another piece; whether it may come.
    pub(crate) fn expect(&mut self) -> bool {
        self.count += 1;
        self.count <= MAX_PIECES
    }

    /// Nearly every body arrives in one piece; it is not copied.
    pub(crate) fn add(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.rest.is_empty() {
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.rest.extend_from_slice(&data);
    }

    /// All of them.
    pub(crate) fn whole(self) -> Bytes {
        if self.rest.is_empty() {
            self.first
        } else {
            self.rest.freeze()
        }
    }
}

/// The answer to a body in more pieces.
pub(crate) fn too_fine() -> String {
    format!("it comes in more than {MAX_PIECES} pieces")
}
