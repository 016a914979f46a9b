//! The walk over the bytes of an object with the table in hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value, json};

use super::table::{Field, Message, Shape, Type};
use super::wire::{Reader, Wire};
use super::{MAX_DEPTH, MAX_VALUES, ProtobufError};
use crate::{budget, measure};

/// The memory of a field beside its text: its place, and its name in a map.
const VALUE: usize = 64;
/// How many entries of a map share a node.
const ENTRIES: usize = 6;

/// The use of its limits by one body.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    values: usize,
}

impl Decoder {
    /// Reads the fields of a message into an object. A field that comes twice is merged or overwritten, as protobuf has
    /// it.
    pub(super) fn message(
        &mut self,
        message: &'static Message,
        data: &[u8],
        depth: usize,
        into: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        if depth > MAX_DEPTH {
            return Err(ProtobufError::TooDeep);
        }
        let mut reader = Reader::new(data, message.name);
        while let Some((tag, wire)) = reader.field()? {
            self.count()?;
            if let Some(field) = message.field(tag) {
                self.field(field, wire, depth, into)?;
            }
        }
        Ok(())
    }

    /// Counts a value, which may have cost two bytes.
    pub(super) fn count(&mut self) -> Result<(), ProtobufError> {
        self.values += 1;
        budget::spend(4);
        budget::produce(VALUE);
        if self.values > MAX_VALUES {
            Err(ProtobufError::TooManyValues)
        } else {
            Ok(())
        }
    }

    fn field(
        &mut self,
        field: &'static Field,
        wire: Wire<'_>,
        depth: usize,
        into: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        if let (true, Type::Message(message)) = (field.is_inline(), field.type_) {
            let data = wire.bytes(message.name)?;
            return self.message(message, data, depth + 1, into);
        }
        match field.shape {
            Shape::One => {
                let before = into.remove(field.json).unwrap_or(Value::Null);
                let value = self.value(field, wire, depth, before)?;
                if !value.is_null() && (field.pointer || !is_zero(&value, field.type_)) {
                    into.insert(field.json.to_owned(), value);
                }
            }
            Shape::List => {
                let list = into.entry(field.json).or_insert_with(|| json!([]));
                let Value::Array(list) = list else {
                    unreachable!("a field is a list always or never")
                };
                self.items(field, wire, depth, list)?;
            }
            Shape::Map => {
                let (key, value) = self.entry(field, wire.bytes(field.json)?, depth)?;
                budget::produce(measure::text_held(key.len()));
                let map = into.entry(field.json).or_insert_with(|| json!({}));
                let map = map.as_object_mut().expect("a field is a map always or never");
                map.insert(key, value);
                if map.len() % ENTRIES == 1 {
                    budget::produce(measure::map_held(1));
                }
            }
        }
        Ok(())
    }

    /// One item, or several numbers that were packed into one field.
    fn items(
        &mut self,
        field: &'static Field,
        wire: Wire<'_>,
        depth: usize,
        list: &mut Vec<Value>,
    ) -> Result<(), ProtobufError> {
        let (Wire::Bytes(packed), Type::Int32 | Type::Int64 | Type::Bool) = (wire, field.type_) else {
            list.push(self.value(field, wire, depth, Value::Null)?);
            return Ok(());
        };
        let mut reader = Reader::new(packed, "packed");
        while !reader.is_empty() {
            self.count()?;
            let number = Wire::Varint(reader.number()?);
            list.push(self.value(field, number, depth, Value::Null)?);
        }
        Ok(())
    }

    /// The key and the value of a map's entry, which is a message of two fields. Either may be left out when it is
    /// zero.
    fn entry(&mut self, field: &'static Field, data: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(data, "map");
        while let Some((tag, wire)) = reader.field()? {
            self.count()?;
            match tag {
                1 => key = wire.text(field.json)?,
                2 => value = Some(self.value(field, wire, depth, Value::Null)?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            None => self.value(field, zero(field.type_), depth, Value::Null)?,
        };
        Ok((key, value))
    }

    /// One value of a field's type. `before`: the value of an earlier occurrence of the field, for messages.
    fn value(
        &mut self,
        field: &'static Field,
        wire: Wire<'_>,
        depth: usize,
        before: Value,
    ) -> Result<Value, ProtobufError> {
        let name = field.json;
        Ok(match field.type_ {
            Type::String => Value::String(wire.text(name)?),
            Type::Bytes => Value::String(STANDARD.encode(wire.bytes(name)?)),
            Type::Bool => json!(wire.varint(name)? != 0),
            Type::Int32 => json!(wire.varint(name)? as i32),
            Type::Int64 => json!(wire.varint(name)? as i64),
            Type::Double => double(f64::from_bits(wire.fixed64(name)?))?,
            Type::Special(special) => special.decode(self, name, wire.bytes(name)?, depth)?,
            Type::Message(message) => self.nested(message, wire.bytes(name)?, depth + 1, before)?,
        })
    }

    fn nested(
        &mut self,
        message: &'static Message,
        data: &[u8],
        depth: usize,
        before: Value,
    ) -> Result<Value, ProtobufError> {
        let mut fields = match before {
            Value::Object(fields) => fields,
            // The list that is the whole of such a message.
            list @ Value::Array(_) => Map::from_iter([(".".to_owned(), list)]),
            _ => Map::new(),
        };
        self.message(message, data, depth, &mut fields)?;
        budget::produce(measure::map_held(fields.len()));
        Ok(match message.whole() {
            Some(whole) => fields.remove(whole.json).unwrap_or_else(|| json!([])),
            None => Value::Object(fields),
        })
    }
}

/// Whether a value is the one that Go's encoder writes for a scalar that was not set.
fn is_zero(value: &Value, type_: Type) -> bool {
    match value {
        _ if matches!(type_, Type::Special(_) | Type::Message(_)) => false,
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// The value of a map's entry that has none.
fn zero(type_: Type) -> Wire<'static> {
    match type_ {
        Type::Bool | Type::Int32 | Type::Int64 => Wire::Varint(0),
        Type::Double => Wire::Fixed64(0),
        Type::String | Type::Bytes | Type::Special(_) | Type::Message(_) => Wire::Bytes(&[]),
    }
}

/// A floating-point number as Go writes it: without a fraction when it has none.
fn double(number: f64) -> Result<Value, ProtobufError> {
    /// Up to here every whole number is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Ok(json!(number as i64));
    }
    let number = Number::from_f64(number).ok_or_else(|| ProtobufError::NotANumber(number.to_string()))?;
    Ok(Value::Number(number))
}
