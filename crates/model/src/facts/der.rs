//! DER (X.690): the values of a text of bytes, one after the other, and a value as bytes.
//!
//! The reader takes the definite and shortest lengths and the short tags of DER alone, so that no other reader finds
//! other values in the same bytes; what it does not take it refuses in the words of Go's `encoding/asn1`. It reads each
//! byte once for each level and sorts nothing: the readers of other crates sort the members of each set, which takes
//! minutes for a large set in another order.
//!
//! Invariant: no input makes it panic. Not here: what the values mean.

/// Tags that X.509 and PKCS#10 use.
pub mod tag {
    /// BOOLEAN.
    pub const BOOLEAN: u8 = 0x01;
    /// INTEGER.
    pub const INTEGER: u8 = 0x02;
    /// BIT STRING.
    pub const BITS: u8 = 0x03;
    /// OCTET STRING.
    pub const OCTETS: u8 = 0x04;
    /// OBJECT IDENTIFIER.
    pub const IDENTIFIER: u8 = 0x06;
    /// SEQUENCE and SEQUENCE OF.
    pub const SEQUENCE: u8 = 0x30;
    /// SET and SET OF.
    pub const SET: u8 = 0x31;
}

/// The tags that are written in several bytes; nothing that is read here has them.
const LONG_TAG: u8 = 0x1f;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// Its tag, with its class and whether it is constructed.
    pub tag: u8,
    /// What it holds.
    pub contents: &'a [u8],
    /// The whole of it: tag, length, contents.
    pub whole: &'a [u8],
}

/// The values that are still to be read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Of all values in these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Of the contents of the one value that these bytes are, which has this tag.
    ///
    /// # Errors
    /// When it has another one, cannot be read, or something follows it.
    pub fn of_one(bytes: &'a [u8], wanted: u8) -> Result<Reader<'a>, &'static str> {
        let mut all = Reader::new(bytes);
        let contents = all.enter(wanted)?;
        all.end()?;
        Ok(contents)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tag of the next value.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// That nothing is left.
    ///
    /// # Errors
    /// When something is.
    pub fn end(&self) -> Result<(), &'static str> {
        match self.is_empty() {
            true => Ok(()),
            false => Err("asn1: syntax error: trailing data"),
        }
    }

    /// The next value, which has this tag.
    ///
    /// # Errors
    /// When it has another one, or cannot be read.
    pub fn value(&mut self, wanted: u8) -> Result<Value<'a>, &'static str> {
        match self.any()? {
            value if value.tag == wanted => Ok(value),
            _ => Err("asn1: structure error: tags don't match"),
        }
    }

    /// The contents of the next value, which has this tag.
    ///
    /// # Errors
    /// When it has another one, or cannot be read.
    pub fn enter(&mut self, wanted: u8) -> Result<Reader<'a>, &'static str> {
        self.value(wanted).map(|value| Reader(value.contents))
    }

    /// The bytes of the next value, a BIT STRING of whole bytes.
    ///
    /// # Errors
    /// When it is none, or cannot be read.
    pub fn bytes(&mut self) -> Result<&'a [u8], &'static str> {
        match self.value(tag::BITS)?.contents {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err("asn1: syntax error: invalid padding bits in BIT STRING"),
        }
    }

    /// The next value, whatever its tag.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn any(&mut self) -> Result<Value<'a>, &'static str> {
        const TRUNCATED: &str = "asn1: syntax error: data truncated";
        let all = self.0;
        let [tag, first, rest @ ..] = all else {
            return Err("asn1: syntax error: sequence truncated");
        };
        if tag & LONG_TAG == LONG_TAG {
            return Err("asn1: structure error: tags don't match");
        }
        let (length, rest) = match first {
            0..0x80 => (usize::from(*first), rest),
            0x80 => return Err("asn1: syntax error: indefinite length found (not DER)"),
            long => {
                let count = usize::from(long & 0x7f);
                let (digits, rest) = rest
                    .split_at_checked(count)
                    .ok_or("asn1: syntax error: truncated tag or length")?;
                (length(digits)?, rest)
            }
        };
        let (contents, rest) = rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(Value {
            tag: *tag,
            contents,
            whole: all.get(..all.len() - rest.len()).unwrap_or_default(),
        })
    }
}

/// A length of several bytes.
fn length(digits: &[u8]) -> Result<usize, &'static str> {
    let mut length = 0;
    for digit in digits {
        if length >= 1 << 23 {
            return Err("asn1: structure error: length too large");
        }
        length = (length << 8) | usize::from(*digit);
        if length == 0 {
            return Err("asn1: structure error: superfluous leading zeros in length");
        }
    }
    if length < 0x80 {
        return Err("asn1: structure error: non-minimal length");
    }
    Ok(length)
}

/// A value of this tag with these contents.
pub fn value(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let length: usize = contents.iter().map(|part| part.len()).sum();
    let mut made = vec![tag];
    match u8::try_from(length) {
        Ok(short @ 0..0x80) => made.push(short),
        _ => {
            let digits = length.to_be_bytes();
            let leading = digits.iter().take_while(|digit| **digit == 0).count();
            let used = digits.get(leading..).unwrap_or_default();
            // A usize has eight bytes at most.
            made.push(0x80 | u8::try_from(used.len()).unwrap_or(8));
            made.extend_from_slice(used);
        }
    }
    contents.iter().for_each(|part| made.extend_from_slice(part));
    debug_assert!(
        length >= 1 << 23 || Reader::new(&made).any().is_ok_and(|read| read.whole == made),
        "what is written can be read"
    );
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words as those of kube-apiserver 1.36, but where tags differ.
    #[test]
    fn what_is_no_der_is_refused() {
        let check = |bytes: &[u8], want: Result<&[u8], &str>| {
            let read = Reader::new(bytes).any().map(|value| value.contents);
            assert_eq!(read, want, "{bytes:x?}");
        };
        check(&[0x30, 0], Ok(&[]));
        check(&[0x04, 2, 7, 8, 9], Ok(&[7, 8]));
        check(&[], Err("asn1: syntax error: sequence truncated"));
        check(&[0x30], Err("asn1: syntax error: sequence truncated"));
        check(
            &[0x30, 0x80, 0, 0],
            Err("asn1: syntax error: indefinite length found (not DER)"),
        );
        let large = [0x30, 0x84, 0xff, 0xff, 0xff, 0xff];
        check(&large, Err("asn1: structure error: length too large"));
        check(&[0x30, 3, 0x30], Err("asn1: syntax error: data truncated"));
        check(&[0x30, 0x84, 0xff], Err("asn1: syntax error: truncated tag or length"));
        check(
            &[0x30, 0x82, 0, 1, 0],
            Err("asn1: structure error: superfluous leading zeros in length"),
        );
        check(&[0x30, 0x81, 1, 0], Err("asn1: structure error: non-minimal length"));
        check(&[0x3f, 0x81, 0x01, 0], Err("asn1: structure error: tags don't match"));
    }

    #[test]
    fn a_value_is_written_as_it_is_read() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let contents = vec![7; length];
            let made = value(tag::OCTETS, &[&contents[..length / 2], &contents[length / 2..]]);
            let mut reader = Reader::new(&made);
            let read = reader.value(tag::OCTETS).map(|value| (value.contents, value.whole));
            assert_eq!(read, Ok((contents.as_slice(), made.as_slice())), "{length}");
            assert_eq!(reader.end(), Ok(()));
        }
    }
}
