//! KWR0001–KWR0099: files and folders of a project.

use super::{Code, Explanation};

/// Something is in the way of a file that is to be created.
pub const EXISTS: Code = Code(1);
/// A file that a command wants to change was changed by hand where the change would go.
pub const EDITED: Code = Code(2);
/// A file cannot be read or written.
pub const IO: Code = Code(3);

pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        code: EXISTS,
        title: "something is in the way",
        story: "A command that creates files never writes over one that it did not make. The file named in the message \
                exists already, and its content is not what the command would write.\n\nMove the file away, run the \
                command elsewhere, or, where the command has it, use `--force` to replace it. `--diff` shows what \
                would change.",
    },
    Explanation {
        code: EDITED,
        title: "a file was edited where the command would change it",
        story: "The command found the file, but not the place in it that it would change: it was rewritten by hand. \
                Nothing was written.\n\nMake the change yourself (the message says which), or restore the place, and \
                run the command again. `--diff` shows what would change.",
    },
    Explanation {
        code: IO,
        title: "a file cannot be read or written",
        story: "The operating system refused: the folder may be read-only, the disk full, or the file owned by \
                another user. A command prepares all of its files before it changes the first: nothing was \
                changed, unless the message names files that are written.\n\nFix what the message names, and run the \
                command again. `git status` and `git restore` show and take back what is written.",
    },
];
