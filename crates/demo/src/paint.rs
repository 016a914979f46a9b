//! Styles of text for a terminal.
//!
//! They are ANSI codes in the text; `anstream` takes them out where the output is no terminal or `NO_COLOR` is set.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

/// Dim: built-in controllers, details.
pub const DIM: Style = Style::new().dimmed();
/// Strong: names of things that a person acts on.
pub const STRONG: Style = Style::new().bold();
/// Success.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Failure.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Doubt.
pub const WARN: Style = AnsiColor::Yellow.on_default().bold();
/// Changed values.
pub const CHANGE: Style = AnsiColor::Cyan.on_default();

/// `text` in `style`.
pub fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// A word as a shell must be given it: quoted where it holds more than letters, digits and the like.
pub fn shell_word(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:@%+=,".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_typed_is_quoted() {
        assert_eq!(shell_word("/home/a/kubeconfig"), "/home/a/kubeconfig");
        assert_eq!(shell_word("/my projects/it's"), r"'/my projects/it'\''s'");
        // A shell would put the home folder in its place.
        assert_eq!(shell_word("~"), "'~'");
        assert_eq!(shell_word(""), "''");
    }
}
