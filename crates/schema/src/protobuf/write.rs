//! Fields on the wire, for code that writes a message by its numbers: a tag, a wire type, and the value.
//!
//! The caller knows the fields of a message, and whether a zero is worth writing. A [`Length`] takes the same writes,
//! but only counts their bytes.

use std::io::{self, Write};

/// Where fields are written to.
pub trait Sink: Write {
    /// One byte.
    fn byte(&mut self, byte: u8);

    /// Bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// Bytes that `write` writes, behind their length.
    ///
    /// # Errors
    /// That of `write`, which leaves the sink unusable.
    fn measured<E>(&mut self, write: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E>;
}

impl Sink for Vec<u8> {
    fn byte(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn measured<E>(&mut self, write: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let start = self.len();
        // Most messages are so short that their length takes one byte.
        self.push(0);
        let begin = self.len();
        write(self)?;
        let length = self.len() - begin;
        if length <= 0x7f {
            self[start] = length as u8;
            return Ok(());
        }
        let mut head = Vec::with_capacity(5);
        number(length as u64, &mut head);
        // The written bytes move by the few bytes of their length.
        self.splice(start..begin, head);
        Ok(())
    }
}

/// How many bytes were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length(pub usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Length {
    fn byte(&mut self, _: u8) {
        self.0 += 1;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn measured<E>(&mut self, write: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let begin = self.0;
        write(self)?;
        number((self.0 - begin) as u64, self);
        Ok(())
    }
}

/// A number of any integer type, or a flag. A negative number is extended to 64 bits first.
pub fn varint(tag: u32, value: u64, out: &mut impl Sink) {
    key(tag, 0, out);
    number(value, out);
}

/// A floating-point number.
pub fn double(tag: u32, value: f64, out: &mut impl Sink) {
    key(tag, 1, out);
    out.put(&value.to_le_bytes());
}

/// A string, bytes, or a message that has been written already.
pub fn bytes(tag: u32, bytes: &[u8], out: &mut impl Sink) {
    key(tag, 2, out);
    number(bytes.len() as u64, out);
    out.put(bytes);
}

/// A message that `write` appends to `out`: its length is known when it has been written.
///
/// ```
/// use kubewright_schema::protobuf::write::{Length, bytes, nested};
///
/// let mut out = Vec::new();
/// nested(9, &mut out, |out| {
///     bytes(1, b"hi", out);
///     Ok::<(), std::convert::Infallible>(())
/// })?;
/// assert_eq!(out, b"\x4a\x04\x0a\x02hi");
/// let mut length = Length::default();
/// bytes(9, b"\x0a\x02hi", &mut length);
/// assert_eq!(length, Length(6));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
///
/// # Errors
/// That of `write`, which leaves `out` unusable.
pub fn nested<S: Sink, E>(tag: u32, out: &mut S, write: impl FnOnce(&mut S) -> Result<(), E>) -> Result<(), E> {
    key(tag, 2, out);
    out.measured(write)
}

fn number(mut number: u64, out: &mut impl Sink) {
    while number > 0x7f {
        out.byte((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.byte(number as u8);
}

fn key(tag: u32, wire_type: u64, out: &mut impl Sink) {
    number(u64::from(tag) << 3 | wire_type, out);
}
