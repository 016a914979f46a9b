//! The wire format: tags, numbers, lengths. It knows nothing of messages and their fields.

use super::ProtobufError;

/// The value of a field as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// Groups and 32-bit numbers, which no message of Kubernetes has: they can only be skipped.
    Other(u8),
}

impl<'a> Wire<'a> {
    pub(super) fn varint(self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            Wire::Varint(number) => Ok(number),
            other => Err(other.wrong(field)),
        }
    }

    pub(super) fn fixed64(self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            Wire::Fixed64(number) => Ok(number),
            other => Err(other.wrong(field)),
        }
    }

    pub(super) fn bytes(self, field: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong(field)),
        }
    }

    /// A string. Go does not check that it is UTF-8, and replaces invalid bytes when it writes JSON.
    pub(super) fn text(self, field: &str) -> Result<String, ProtobufError> {
        self.bytes(field)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn wrong(self, field: &str) -> ProtobufError {
        let wire_type = match self {
            Wire::Varint(_) => 0,
            Wire::Fixed64(_) => 1,
            Wire::Bytes(_) => 2,
            Wire::Other(wire_type) => wire_type,
        };
        let mut letters = field.chars();
        let field = match field {
            // The one field that is embedded in Go's structs.
            "metadata" => "ObjectMeta".to_owned(),
            _ => letters
                .next()
                .into_iter()
                .flat_map(char::to_uppercase)
                .chain(letters)
                .collect(),
        };
        ProtobufError::WrongWireType { wire_type, field }
    }
}

/// Reads the fields of one message.
pub(super) struct Reader<'a> {
    data: &'a [u8],
    message: &'static str,
}

impl<'a> Reader<'a> {
    /// `message`: the name of the message, for errors.
    pub(super) fn new(data: &'a [u8], message: &'static str) -> Self {
        Self { data, message }
    }

    /// The next field; none at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtobufError> {
        if self.data.is_empty() {
            return Ok(None);
        }
        let (tag, wire_type) = self.key()?;
        let wire = match wire_type {
            4 => return Err(ProtobufError::EndGroup { message: self.message }),
            3 => {
                self.group()?;
                Wire::Other(3)
            }
            other => self.value(other)?,
        };
        Ok(Some((tag, wire)))
    }

    fn key(&mut self) -> Result<(u32, u8), ProtobufError> {
        let wire = self.number()?;
        // Go cuts the tag off at 32 bits.
        let tag = (wire >> 3) as i32;
        let number = u32::try_from(tag).ok().filter(|tag| *tag > 0);
        let number = number.ok_or(ProtobufError::IllegalTag {
            message: self.message,
            tag,
            wire,
        })?;
        Ok((number, (wire & 7) as u8))
    }

    fn value(&mut self, wire_type: u8) -> Result<Wire<'a>, ProtobufError> {
        Ok(match wire_type {
            0 => Wire::Varint(self.number()?),
            1 => {
                let bytes = self.take(8)?.first_chunk().expect("eight bytes were taken");
                Wire::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = i64::try_from(self.number()?).map_err(|_| ProtobufError::NegativeLength)?;
                Wire::Bytes(self.take(usize::try_from(length).map_err(|_| ProtobufError::UnexpectedEof)?)?)
            }
            5 => {
                self.take(4)?;
                Wire::Other(5)
            }
            other => return Err(ProtobufError::IllegalWireType(other)),
        })
    }

    /// Skips a group whose beginning has been read, with the groups in it.
    fn group(&mut self) -> Result<(), ProtobufError> {
        let mut open = 1_usize;
        while open > 0 {
            match self.key()?.1 {
                3 => open += 1,
                4 => open -= 1,
                other => drop(self.value(other)?),
            }
        }
        Ok(())
    }

    /// A number of seven bits a byte, lowest first.
    pub(super) fn number(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.data.split_first().ok_or(ProtobufError::UnexpectedEof)?;
            self.data = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ProtobufError::IntOverflow)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.data.split_at_checked(length).ok_or(ProtobufError::UnexpectedEof)?;
        self.data = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: &[u8], want: Result<&[(u32, Wire<'_>)], ProtobufError>) {
        let mut reader = Reader::new(data, "M");
        let mut got = Vec::new();
        let end = loop {
            match reader.field() {
                Ok(Some(field)) => got.push(field),
                Ok(None) => break Ok(got.as_slice()),
                Err(error) => break Err(error),
            }
        };
        assert_eq!(end, want, "{data:02x?}");
    }

    #[test]
    fn fields() {
        check(b"", Ok(&[]));
        check(b"\x08\x96\x01", Ok(&[(1, Wire::Varint(150))]));
        check(
            b"\x12\x02hi\x18\x00",
            Ok(&[(2, Wire::Bytes(b"hi")), (3, Wire::Varint(0))]),
        );
        check(b"\x09\x01\0\0\0\0\0\0\0", Ok(&[(1, Wire::Fixed64(1))]));
        check(b"\x0d\0\0\0\0", Ok(&[(1, Wire::Other(5))]));
        check(
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            Ok(&[(1, Wire::Varint(u64::MAX))]),
        );
        // A group in a group, and a field in each.
        check(
            b"\x0b\x10\x01\x13\x08\x02\x14\x0c\x10\x05",
            Ok(&[(1, Wire::Other(3)), (2, Wire::Varint(5))]),
        );
    }

    #[test]
    fn errors() {
        use ProtobufError::*;
        check(b"\x08", Err(UnexpectedEof));
        check(b"\x12\x05hi", Err(UnexpectedEof));
        check(b"\x09\x01", Err(UnexpectedEof));
        check(b"\x0b\x10\x01", Err(UnexpectedEof));
        check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Err(IntOverflow));
        check(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Err(NegativeLength));
        check(b"\x0c", Err(EndGroup { message: "M" }));
        check(
            b"\x00\x00",
            Err(IllegalTag {
                message: "M",
                tag: 0,
                wire: 0,
            }),
        );
        check(b"\x0f", Err(IllegalWireType(7)));
        let wrong = Wire::Varint(0).bytes("metadata").map_err(|error| error.to_string());
        assert_eq!(wrong, Err("proto: wrong wireType = 0 for field ObjectMeta".to_owned()));
    }
}
