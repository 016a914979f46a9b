//! Where in an object a field is, spelled as Kubernetes spells it (`field.Path`): `spec.containers[0].name`,
//! `metadata.annotations[example.com/a]`.

use std::fmt;

use crate::budget;

/// What one step of a path costs besides its text: looking the value up that is there.
const STEP: usize = 2;

/// A path into an object. Cheap enough to extend while walking; each step makes a new path and leaves the old one, and is counted as work
/// (see [`budget`]): rules that look at objects walk with these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// The object itself; displays as the empty text.
    pub fn root() -> FieldPath {
        FieldPath::default()
    }

    /// A path that is already spelled.
    pub fn new(path: impl Into<String>) -> FieldPath {
        FieldPath(path.into())
    }

    /// The field `name` of a struct.
    #[must_use]
    pub fn key(&self, name: &str) -> FieldPath {
        self.spend(name.len());
        if self.0.is_empty() {
            FieldPath(name.to_owned())
        } else {
            FieldPath([&self.0, ".", name].concat())
        }
    }

    /// An item of a list.
    #[must_use]
    pub fn index(&self, index: usize) -> FieldPath {
        self.spend(0);
        FieldPath(format!("{}[{index}]", self.0))
    }

    /// The entry of a map, in brackets.
    #[must_use]
    pub fn map_key(&self, key: &str) -> FieldPath {
        self.spend(key.len());
        FieldPath([&self.0, "[", key, "]"].concat())
    }

    fn spend(&self, added: usize) {
        budget::spend(STEP);
        budget::spend_on_text(self.0.len() + added);
    }

    /// The spelled path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<FieldPath> for String {
    fn from(path: FieldPath) -> String {
        path.0
    }
}

impl From<&FieldPath> for String {
    fn from(path: &FieldPath) -> String {
        path.0.clone()
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
}
