//! Bodies that arrive in pieces: chunks, or frames of HTTP/2.
//!
//! Each piece costs about as much time as a kilobyte does, and, kept as it is, forty bytes of memory. A body in single
//! bytes would cost a hundred times what its length says, so the number of pieces has a bound of its own.

use bytes::{Bytes, BytesMut};

/// In how many pieces a body may come. The pieces of the largest body then have 31 bytes each; programs send kilobytes.
pub(crate) const MAX_PIECES: usize = 100_000;

/// A piece counts as this many bytes at least where bytes are read and thrown away.
pub(crate) const MIN_PIECE: usize = 1024;

/// The part of a body that has come.
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

    /// Counts another piece. Returns whether it is within the bound.
    pub(crate) fn admit(&mut self) -> bool {
        self.count += 1;
        self.count <= MAX_PIECES
    }

    /// Adds the data of a piece. Nearly every body arrives in one piece, which is not copied.
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

/// The error for a body in more pieces.
pub(crate) fn too_fine() -> String {
    format!("it comes in more than {MAX_PIECES} pieces")
}
