//! Readers and checks under texts that nobody would write: random ones (`fuzz`), and those that cost most (`hostile`).

mod fuzz;
mod hostile;
