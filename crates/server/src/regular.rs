//! Files that can be read to an end.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt as _;

/// Refuses a kind of file that cannot be read to an end: a reader of a FIFO waits for a writer that may never come, and
/// a device may have no end. Regular files and folders pass.
///
/// # Errors
/// Of kind [`InvalidInput`](io::ErrorKind::InvalidInput), for a FIFO, a socket or a device.
pub fn require_regular(kind: FileType) -> io::Result<()> {
    let other = match () {
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => return Ok(()),
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {other}, not a regular file"),
    ))
}
