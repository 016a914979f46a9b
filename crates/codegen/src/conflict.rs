//! Marks that `git merge` leaves in a file: a reader that fails at one reports the conflict, not that a colon is
//! missing.

use crate::diagnostic::{Diagnostic, Place};

/// The line (from 1) of the first mark.
fn line(text: &str) -> Option<usize> {
    let mut lines = text.lines();
    let at = lines.position(|line| line.starts_with("<<<<<<< "))?;
    let is_whole = lines.any(|line| line.starts_with(">>>>>>> "));
    is_whole.then_some(at + 1)
}

/// The error about a file that cannot be read: about the conflict in it, if there is one.
pub(crate) fn instead(wrong: Diagnostic, file: &str, text: &str) -> Diagnostic {
    let Some(line) = line(text) else { return wrong };
    let place = Place::file(file).line(line);
    Diagnostic::new(wrong.code, wrong.attempted)
        .at(place)
        .because("a merge left a conflict in the file")
        .fix(
            "choose one side, and take out the lines that begin with <<<<<<<, ======= and >>>>>>>; nothing was written",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_has_two_ends() {
        for (text, expected) in [
            ("a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> x\n", Some(2)),
            ("<<<<<<< HEAD\nb\n", None),
            ("a: |\n  <<<<<<< no\n  >>>>>>> x\n", None),
            ("", None),
        ] {
            assert_eq!(line(text), expected, "{text:?}");
        }
    }
}
