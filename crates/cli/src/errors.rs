//! The chain of an error's sources, for people.

use std::error::Error;

/// The messages of an error and of its sources, each once: many errors print their source themselves.
pub(crate) fn causes(error: &dyn Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !causes.iter().any(|cause| cause.contains(&text)) {
            causes.push(text);
        }
        next = error.source();
    }
    causes
}

/// The same in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    causes(error).join(": ")
}
