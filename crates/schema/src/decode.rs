//! Bytes from outside become values, with the checks and the words of Kubernetes' decoders.
//!
//! [`json`] and [`yaml`] keep the findings for strict field validation: keys that stand twice. The last one wins.
//! [`stored`] reads texts that this server has written before.
//!
//! Invariants: no input makes them panic, run out of stack or out of proportion to its size; a number is an `i64` where
//! it is written as a whole number that fits, otherwise an `f64`, as in Kubernetes' unstructured objects. A tree of
//! values is many times as large as its text where the text is all brackets, so the surplus of a document counts (see
//! [`budget::produce`](crate::budget::produce)).
//!
//! Not here: whether the fields are known and have the right types ([`structural`](crate::structural)).

mod json;
mod yaml;

use serde::Deserialize as _;
use serde_json::Value;

/// How deep lists and objects may nest. Go allows 10,000; no object comes near either, and every later step recurses.
pub const MAX_DEPTH: usize = 500;

/// How deep a stored text may nest: earlier versions let in objects that are a little deeper than [`MAX_DEPTH`] with
/// their managed fields.
pub const MAX_STORED_DEPTH: usize = 2 * MAX_DEPTH;

/// Kubernetes reports no more doubled keys than this of one document.
const MAX_DUPLICATES: usize = 100;

/// A decoded document.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The document. Of several YAML documents it is the first; without any it is `null`.
    pub value: Value,
    /// The findings of strict field validation: `duplicate field "data.a"` in JSON, `line 5: key "name" already set in
    /// map` in YAML.
    pub duplicates: Vec<String>,
}

/// Why bytes are no document, in the words of Go's decoders: `unexpected end of JSON input`,
/// `yaml: line 1: did not find expected node content`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    message: String,
}

impl DecodeError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// Reads a JSON document.
///
/// ```
/// use kubewright_schema::decode;
/// let decoded = decode::json(br#"{"data":{"a":"1","a":"2"}}"#)?;
/// assert_eq!(decoded.value["data"]["a"], "2");
/// assert_eq!(decoded.duplicates, [r#"duplicate field "data.a""#]);
/// let error = decode::json(b"{bad").unwrap_err();
/// assert_eq!(error.to_string(), "invalid character 'b' looking for beginning of object key string");
/// # Ok::<(), decode::DecodeError>(())
/// ```
///
/// # Errors
/// When it is not JSON or nests deeper than [`MAX_DEPTH`].
pub fn json(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    json::decode(bytes, false)
}

/// As [`json`], but as Go reads into a struct: an object that stands twice is read into the same one, so that both say
/// something.
///
/// ```
/// use kubewright_schema::decode;
/// let decoded = decode::json_struct(br#"{"spec":{"a":1},"spec":{"b":2}}"#)?;
/// assert_eq!(decoded.value.to_string(), r#"{"spec":{"a":1,"b":2}}"#);
/// # Ok::<(), decode::DecodeError>(())
/// ```
///
/// # Errors
/// As [`json`].
pub fn json_struct(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    json::decode(bytes, true)
}

/// Reads the first YAML document, by the rules of YAML 1.1 (`yes` is a boolean), as Kubernetes does.
///
/// ```
/// use kubewright_schema::decode;
/// let decoded = decode::yaml(b"kind: ConfigMap\ndata: {a: yes}\n")?;
/// assert_eq!(decoded.value["data"]["a"], true);
/// # Ok::<(), decode::DecodeError>(())
/// ```
///
/// # Errors
/// When it is not YAML, cannot be written as JSON, nests deeper than [`MAX_DEPTH`], or grows out of proportion by
/// aliases.
pub fn yaml(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    yaml::decode(bytes)
}

/// Reads a text that was written by `serde_json`, and nests no deeper than [`MAX_STORED_DEPTH`]: one that was stored.
///
/// ```
/// use kubewright_schema::decode;
/// let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
/// assert_eq!(decode::stored(deep.as_bytes())?.to_string(), deep);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// When it is not JSON.
pub fn stored(text: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    let value = Value::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// How deep lists and objects nest in a JSON text, without reading it.
///
/// ```
/// use kubewright_schema::decode;
/// assert_eq!(decode::nesting(br#"{"a": [{}, "[[["], "\"[": 1}"#), 3);
/// ```
pub fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                // Up to the closing quote; an escaped one does not count.
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

/// The form that storing gives to numbers: Go writes `1.0` as `1`, and reads it back as a whole number.
///
/// ```
/// use kubewright_schema::decode;
/// let mut value = serde_json::json!({"a": 1.0, "b": 1.5});
/// decode::settle_numbers(&mut value);
/// assert_eq!(value.to_string(), r#"{"a":1,"b":1.5}"#);
/// ```
pub fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *value = Value::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(fields) => fields.values_mut().for_each(settle_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The whole number that a float is, if it is one that an `i64` holds.
fn whole(float: f64) -> Option<i64> {
    // Exclusive at the upper end: the next smaller float is below 2⁶³.
    let fits = float.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
    #[allow(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
    fits.then_some(float as i64)
}

/// The beginning of a document as the API server shows it in errors: `<empty>`, JSON objects as they are, everything
/// else in hexadecimal, each cut after 30 bytes.
///
/// ```
/// use kubewright_schema::decode;
/// assert_eq!(decode::excerpt(b"{bad"), "{bad");
/// assert_eq!(decode::excerpt(b"a: ["), "613a205b");
/// ```
pub fn excerpt(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let text = match bytes.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if bytes.len() > SHOWN {
        format!("{text} ...")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_those_of_the_api_server() {
        let check = |bytes: &str, expected: &str| assert_eq!(excerpt(bytes.as_bytes()), expected);
        check("", "<empty>");
        check("{\"kind\":", "{\"kind\":");
        check(
            "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\"}",
            "{\"apiVersion\":\"v1\",\"kind\":\"Con ...",
        );
        check("kind: ConfigMap\n", "6b696e643a20436f6e6669674d61700a");
        check(&"a".repeat(31), &format!("{} ...", "61".repeat(30)));
    }
}
