//! Rules of the repository that no compiler checks: arrows between crates, sources and paths (`tidy`), what may enter
//! the lock file (`dependencies`), names of fields (`fields`), and the book (`book`).

mod book;
mod dependencies;
mod fields;
mod tidy;
mod words;
