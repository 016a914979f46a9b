//! The objects: Pods as a cluster has them, 4.8 KB each, with the managedFields that the API server adds.
//!
//! The text is fixed except for the values that differ between the pods of one Deployment in a real cluster; pieces are
//! put together when they are sent, which takes the server less than a microsecond.

use std::fmt::Write;

/// How many pods a namespace has.
const PER_NAMESPACE: usize = 500;

/// The pod that ends a measurement has this name, and this number.
pub(crate) const MARKER: usize = 0;

/// The part of an object that is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Whole,
    Metadata,
}

/// The text between the pieces that differ, for both views.
pub(crate) struct Pods {
    whole: Vec<Piece>,
    metadata: Vec<Piece>,
}

enum Piece {
    Text(&'static str),
    Name,
    Namespace,
    Uid,
    Number,
    Version,
    Sent,
}

impl Pods {
    pub(crate) fn new() -> Pods {
        Pods {
            whole: pieces(concat!(
                r#"{"kind":"Pod","apiVersion":"v1","metadata":"#,
                include_str!("pod-metadata.json"),
                ",",
                include_str!("pod-rest.json")
            )),
            metadata: pieces(concat!(
                r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
                include_str!("pod-metadata.json"),
                "}"
            )),
        }
    }

    /// Appends a pod as of a version. `sent`: nanoseconds since 1970, or 0.
    pub(crate) fn write(&self, number: usize, version: u64, sent: u128, view: View, to: &mut String) {
        let pieces = match view {
            View::Whole => &self.whole,
            View::Metadata => &self.metadata,
        };
        for piece in pieces {
            let written = match piece {
                Piece::Text(text) => {
                    to.push_str(text);
                    Ok(())
                }
                Piece::Name if number == MARKER => write!(to, "marker"),
                Piece::Name => write!(to, "checkout-7c9d8f6b54-{number:05}"),
                Piece::Namespace => write!(to, "team-{:03}", number / PER_NAMESPACE),
                Piece::Uid => write!(to, "3f1c2d4e-5a6b-4c7d-8e9f-{number:012x}"),
                Piece::Number => write!(to, "{}", number % 250),
                Piece::Version => write!(to, "{version}"),
                Piece::Sent => write!(to, "{sent}"),
            };
            written.expect("a String takes everything");
        }
    }
}

/// Cuts a text at its `@WORD@` places. Lines and their indentation are for people who read the file.
fn pieces(text: &'static str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (at, part) in text.split('@').enumerate() {
        if at % 2 == 0 {
            pieces.extend(part.lines().map(|line| Piece::Text(line.trim())));
            continue;
        }
        pieces.push(match part {
            "NAME" => Piece::Name,
            "NAMESPACE" => Piece::Namespace,
            "UID" => Piece::Uid,
            "NUMBER" => Piece::Number,
            "VERSION" => Piece::Version,
            "SENT" => Piece::Sent,
            other => unreachable!("the text of the pods has no {other}"),
        });
    }
    pieces
}
