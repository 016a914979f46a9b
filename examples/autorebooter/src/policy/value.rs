//! Values as the status remembers them.

use sha2::{Digest as _, Sha256};

use crate::world::Value;

/// The longest value that a status shows, in characters.
const LONGEST: usize = 64;

/// `sha256:` and the hash of a value. NULL, no row and an empty text have hashes of their own.
pub fn hash(value: &Value) -> String {
    let mut hash = Sha256::new();
    for row in value {
        match row {
            // The length in front: no two lists of texts look alike.
            Some(text) => {
                hash.update([1]);
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text.as_bytes());
            }
            None => hash.update([0]),
        }
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// A value for people.
pub fn display(value: &Value) -> String {
    let whole = match value.as_slice() {
        [] => "(no row)".to_owned(),
        [None] => "NULL".to_owned(),
        [Some(one)] => one.clone(),
        many => format!("({} rows)", many.len()),
    };
    match whole.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_have_hashes_that_differ() {
        let row = |text: &str| Some(text.to_owned());
        let values = [
            vec![],
            vec![None],
            vec![row("")],
            vec![row("a"), row("b")],
            vec![row("ab")],
            vec![row("b"), row("a")],
            vec![row("a"), None],
        ];
        let hashes: std::collections::BTreeSet<String> = values.iter().map(hash).collect();
        assert_eq!(hashes.len(), values.len());
        assert_eq!(display(&vec![row(&"ä".repeat(65))]), format!("{}…", "ä".repeat(64)));
    }
}
