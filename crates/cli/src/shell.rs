//! Texts that a person types into a shell.

/// A word as a shell must be given it: quoted where it holds more than letters, digits and the like.
pub(crate) fn word(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:@%+=,".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        for (text, expected) in [
            ("/home/a/kubeconfig", "/home/a/kubeconfig"),
            ("/my projects/it's", r"'/my projects/it'\''s'"),
            // A shell would put the home folder in its place.
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
