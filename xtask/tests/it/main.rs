//! Rules of the repository that no compiler checks: dependencies, sources and paths (`tidy`), names of fields
//! (`fields`), and the book (`book`).

mod book;
mod fields;
mod tidy;
