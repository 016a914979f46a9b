//! Where in an object a field is, spelled as Kubernetes spells it (`field.Path`): `spec.containers[0].name`,
//! `metadata.annotations[example.com/a]`.

use std::fmt;

use crate::budget;

/// The cost of one step of a path besides its text: looking up the value there.
const STEP: usize = 2;

/// A path into an object. Cheap enough to extend while walking; each step makes a new path and leaves the old one, and
/// is counted as work (see [`budget`]): rules that look at objects walk with these.
///
/// Nearly all paths are short and are never shown, so a short one is kept where it is and asks for no memory.
#[derive(Clone)]
pub struct FieldPath(Spelled);

#[derive(Clone)]
enum Spelled {
    /// So many bytes of these: parts of texts, put one after the other.
    Short(u8, [u8; SHORT]),
    Long(String),
}

/// As long as most paths are that lead into the containers of a template.
const SHORT: usize = 62;

impl FieldPath {
    /// The object itself; displays as the empty text.
    pub fn root() -> FieldPath {
        FieldPath(Spelled::Short(0, [0; SHORT]))
    }

    /// A path that is already spelled.
    pub fn new(path: impl Into<String>) -> FieldPath {
        FieldPath(Spelled::Long(path.into()))
    }

    /// The field `name` of a struct.
    #[must_use]
    pub fn key(&self, name: &str) -> FieldPath {
        let dot = if self.is_root() { None } else { Some(b'.') };
        self.and(dot, name, None)
    }

    /// An item of a list.
    #[must_use]
    pub fn index(&self, index: usize) -> FieldPath {
        let mut digits = [0; 20];
        self.and(Some(b'['), decimal(index, &mut digits), Some(b']'))
    }

    /// The entry of a map, in brackets.
    #[must_use]
    pub fn map_key(&self, key: &str) -> FieldPath {
        self.and(Some(b'['), key, Some(b']'))
    }

    /// The path with a text behind it, between two signs of ASCII.
    fn and(&self, before: Option<u8>, text: &str, after: Option<u8>) -> FieldPath {
        let signs = usize::from(before.is_some()) + usize::from(after.is_some());
        let end = self.len().saturating_add(text.len()).saturating_add(signs);
        // A step, and a text that is read through.
        budget::spend(STEP + 1 + end / 32);
        if let Spelled::Short(length, bytes) = &self.0
            && end <= SHORT
        {
            let (mut bytes, mut at) = (*bytes, usize::from(*length));
            let mut put = |part: &[u8]| {
                bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            };
            before.iter().for_each(|sign| put(&[*sign]));
            put(text.as_bytes());
            after.iter().for_each(|sign| put(&[*sign]));
            return FieldPath(Spelled::Short(at as u8, bytes));
        }
        let mut longer = String::with_capacity(end);
        longer.push_str(self.as_str());
        longer.extend(before.map(char::from));
        longer.push_str(text);
        longer.extend(after.map(char::from));
        FieldPath(Spelled::Long(longer))
    }

    /// The spelled path.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Spelled::Short(length, bytes) => {
                let bytes = bytes.get(..usize::from(*length)).unwrap_or_default();
                // Whole texts were put there, and nothing else.
                std::str::from_utf8(bytes).unwrap_or_default()
            }
            Spelled::Long(text) => text,
        }
    }

    /// Whether this is the object itself.
    pub fn is_root(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        match &self.0 {
            Spelled::Short(length, _) => usize::from(*length),
            Spelled::Long(text) => text.len(),
        }
    }
}

/// The digits of a number.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &str {
    let mut begin = digits.len();
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' | u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        begin = place;
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[begin..]).unwrap_or_default()
}

impl Default for FieldPath {
    fn default() -> FieldPath {
        FieldPath::root()
    }
}

impl PartialEq for FieldPath {
    fn eq(&self, other: &FieldPath) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for FieldPath {}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FieldPath").field(&self.as_str()).finish()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<FieldPath> for String {
    fn from(path: FieldPath) -> String {
        match path.0 {
            Spelled::Short(..) => path.as_str().to_owned(),
            Spelled::Long(text) => text,
        }
    }
}

impl From<&FieldPath> for String {
    fn from(path: &FieldPath) -> String {
        path.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_spelled_as_kubernetes_spells_them() {
        let path = FieldPath::root().key("spec").key("containers").index(0).key("name");
        assert_eq!(path.to_string(), "spec.containers[0].name");
        let annotations = FieldPath::new("metadata.annotations");
        assert_eq!(
            annotations.map_key("example.com/a").to_string(),
            "metadata.annotations[example.com/a]"
        );
    }

    #[test]
    fn long_paths_are_spelled_as_short_ones_are() {
        let check = |path: FieldPath, expected: &str| {
            assert_eq!(path.as_str(), expected);
            assert_eq!(path, FieldPath::new(expected));
            assert_eq!(String::from(path), expected);
        };
        check(FieldPath::root(), "");
        check(FieldPath::root().index(0), "[0]");
        check(FieldPath::new("a").index(usize::MAX), &format!("a[{}]", usize::MAX));
        for length in SHORT - 4..SHORT + 4 {
            let (letters, wide) = ("x".repeat(length), "ü".repeat(length));
            check(FieldPath::root().key(&letters), &letters);
            check(FieldPath::root().key(&letters).index(7), &format!("{letters}[7]"));
            check(
                FieldPath::root().key(&letters).key("y").key("z"),
                &format!("{letters}.y.z"),
            );
            check(FieldPath::root().map_key(&letters), &format!("[{letters}]"));
            check(
                FieldPath::root().key("a").map_key(&wide[..length & !1]),
                &format!("a[{}]", &wide[..length & !1]),
            );
        }
    }
}
