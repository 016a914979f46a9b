//! Fields on the wire, for code that writes a message by its numbers: a tag, a wire type, and the value.
//!
//! The caller knows the fields of a message, and whether a zero is worth writing.

/// A number of any integer type, or a flag. A negative number is extended to 64 bits first.
pub fn varint(tag: u32, value: u64, out: &mut Vec<u8>) {
    key(tag, 0, out);
    number(value, out);
}

/// A floating-point number.
pub fn double(tag: u32, value: f64, out: &mut Vec<u8>) {
    key(tag, 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A string, bytes, or a message that has been written already.
pub fn bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    key(tag, 2, out);
    number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A message that `write` appends to `out`: its length is known when it has been written.
///
/// ```
/// use kubewright_schema::protobuf::write;
///
/// let mut out = Vec::new();
/// write::nested(9, &mut out, |out| {
///     write::bytes(1, b"hi", out);
///     Ok::<(), std::convert::Infallible>(())
/// })?;
/// assert_eq!(out, b"\x4a\x04\x0a\x02hi");
/// # Ok::<(), std::convert::Infallible>(())
/// ```
///
/// # Errors
/// That of `write`, which leaves `out` unusable.
pub fn nested<E>(tag: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    key(tag, 2, out);
    let start = out.len();
    // Most messages are so short that their length takes one byte.
    out.push(0);
    let begin = out.len();
    write(out)?;
    let length = out.len() - begin;
    if length <= 0x7f {
        out[start] = length as u8;
        return Ok(());
    }
    let mut head = Vec::with_capacity(5);
    number(length as u64, &mut head);
    // The written bytes move by the few bytes of their length.
    out.splice(start..begin, head);
    Ok(())
}

fn number(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn key(tag: u32, wire_type: u64, out: &mut Vec<u8>) {
    number(u64::from(tag) << 3 | wire_type, out);
}
