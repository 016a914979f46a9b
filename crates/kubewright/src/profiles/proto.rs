//! The format of profiles (`profile.proto` of github.com/google/pprof), as much of it as a CPU profile needs, written
//! by hand: a protobuf message is numbers, and texts with their lengths before them.
//!
//! Invariants: texts, functions and places are written once, and named by number; numbers of functions and places begin
//! with 1, of texts with 0, which is the empty text.

use std::collections::BTreeMap;
use std::time::Duration;

/// When a profile was taken.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Since 1970.
    pub(super) began: Duration,
    pub(super) length: Duration,
    /// Between two samples.
    pub(super) period: Duration,
}

/// The functions that a place in the program is in, the innermost first, each with its line.
type Lines = Vec<(u64, u32)>;

/// A profile being written.
pub(super) struct Encoder {
    texts: BTreeMap<String, u64>,
    functions: BTreeMap<(u64, u64), u64>,
    locations: BTreeMap<Lines, u64>,
    /// The samples' messages.
    message: Message,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder {
            texts: BTreeMap::from([(String::new(), 0)]),
            functions: BTreeMap::new(),
            locations: BTreeMap::new(),
            message: Message::default(),
        }
    }
}

impl Encoder {
    /// The number of a function.
    pub(super) fn function(&mut self, name: &str, file: &str) -> u64 {
        let function = (self.text(name), self.text(file));
        number(&mut self.functions, function, 1)
    }

    /// The number of a place in the program.
    pub(super) fn location(&mut self, lines: Lines) -> u64 {
        number(&mut self.locations, lines, 1)
    }

    /// A stack, the innermost place first, that was found so often.
    pub(super) fn sample(&mut self, locations: &[u64], count: u64, period: Duration, thread: &str) {
        let (key, thread) = (self.text("thread"), self.text(thread));
        let mut sample = Message::default();
        for location in locations {
            sample.number(1, *location);
        }
        sample.number(2, count);
        sample.number(2, count.saturating_mul(nanos(period)));
        let mut label = Message::default();
        label.number(1, key);
        label.number(2, thread);
        sample.message(3, &label);
        self.message.message(2, &sample);
    }

    /// The whole profile.
    pub(super) fn finish(mut self, span: Span) -> Vec<u8> {
        let counted = self.value_type("samples", "count");
        let timed = self.value_type("cpu", "nanoseconds");
        let mut profile = Message::default();
        profile.message(1, &counted);
        profile.message(1, &timed);
        profile.0.append(&mut self.message.0);
        for (lines, id) in &self.locations {
            let mut location = Message::default();
            location.number(1, *id);
            for (function, at) in lines {
                let mut line = Message::default();
                line.number(1, *function);
                line.number(2, u64::from(*at));
                location.message(4, &line);
            }
            profile.message(4, &location);
        }
        for ((name, file), id) in &self.functions {
            let mut function = Message::default();
            function.number(1, *id);
            function.number(2, *name);
            function.number(3, *name);
            function.number(4, *file);
            profile.message(5, &function);
        }
        let mut texts: Vec<(&String, &u64)> = self.texts.iter().collect();
        texts.sort_by_key(|(_, id)| **id);
        for (text, _) in texts {
            profile.bytes(6, text.as_bytes());
        }
        profile.number(9, nanos(span.began));
        profile.number(10, nanos(span.length));
        profile.message(11, &timed);
        profile.number(12, nanos(span.period));
        profile.0
    }

    fn value_type(&mut self, what: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.text(what));
        message.number(2, self.text(unit));
        message
    }

    fn text(&mut self, text: &str) -> u64 {
        match self.texts.get(text) {
            Some(id) => *id,
            None => number(&mut self.texts, text.to_owned(), 0),
        }
    }
}

/// The number of a thing; a new one gets the next.
fn number<K: Ord>(known: &mut BTreeMap<K, u64>, thing: K, first: u64) -> u64 {
    let next = first + known.len() as u64;
    *known.entry(thing).or_insert(next)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A protobuf message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
