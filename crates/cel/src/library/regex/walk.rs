//! Expressions whose sets are large and repeated: `^[\pL\pN]{1,253}$`.
//!
//! The `regex` crate writes each copy of a set out as sequences of bytes, half a million parts for this one. Here a set
//! is kept once, and a part is a character, as in Go. All paths through the expression are followed at once, one
//! character after the other (Pike's machine), and each step of each path is counted.

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use kubewright_values::budget;

/// A set of characters: its ranges, in order.
type Set = Box<[(char, char)]>;

/// An instruction. Jumps are relative, so that a copy of a part is a copy of its instructions.
#[derive(Clone, Copy, Debug)]
enum Step {
    Char(char),
    Set(u32),
    Look(Look),
    /// The first is preferred.
    Split(i32, i32),
    Jump(i32),
    End,
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    sets: Vec<Set>,
    /// Whether it can only match at the start of the text.
    anchored: bool,
}

/// A path: the next instruction, and where its match began.
type Path = (usize, usize);

/// The paths at one place of the text. No two of them are at the same instruction: the first is preferred.
#[derive(Default)]
struct Paths {
    paths: Vec<Path>,
    /// The place at which a path last came to each instruction, counted from 1.
    seen: Vec<u32>,
}

/// A place in the text, with its neighbours.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    before: Option<char>,
    after: Option<char>,
}

impl Program {
    /// The program of an expression of about so many parts.
    pub(super) fn new(expression: &Hir, parts: usize) -> Self {
        budget::spend(parts);
        budget::produce(parts.saturating_mul(size_of::<Step>() + 2 * size_of::<u32>()));
        let anchored = expression.properties().look_set_prefix().contains(Look::Start);
        let mut program = Self {
            steps: Vec::new(),
            sets: Vec::new(),
            anchored,
        };
        program.write(expression);
        program.steps.push(Step::End);
        program
    }

    /// Whether it matches somewhere in the text.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.search(text, 0, true).is_some()
    }

    /// The first match that begins at this place or later, as Go prefers them.
    pub(super) fn find_at(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        self.search(text, from, false)
    }

    fn write(&mut self, part: &Hir) {
        match part.kind() {
            HirKind::Empty => {}
            HirKind::Literal(literal) => {
                let text = String::from_utf8_lossy(&literal.0);
                self.steps.extend(text.chars().map(Step::Char));
            }
            HirKind::Class(class) => {
                self.steps.push(Step::Set(count(self.sets.len())));
                self.sets.push(set(class));
            }
            HirKind::Look(look) => self.steps.push(Step::Look(*look)),
            HirKind::Capture(group) => self.write(&group.sub),
            HirKind::Concat(parts) => parts.iter().for_each(|part| self.write(part)),
            HirKind::Alternation(choices) => self.write_choices(choices),
            HirKind::Repetition(repetition) => self.write_repetition(repetition),
        }
    }

    fn write_choices(&mut self, choices: &[Hir]) {
        let mut ends = Vec::new();
        for (number, choice) in choices.iter().enumerate() {
            let split = self.steps.len();
            let last = number + 1 == choices.len();
            if !last {
                self.steps.push(Step::Jump(0));
            }
            self.write(choice);
            if !last {
                ends.push(self.steps.len());
                self.steps.push(Step::Jump(0));
                self.steps[split] = Step::Split(1, distance(split, self.steps.len()));
            }
        }
        for end in ends {
            self.steps[end] = Step::Jump(distance(end, self.steps.len()));
        }
    }

    fn write_repetition(&mut self, repetition: &Repetition) {
        let begin = self.steps.len();
        self.write(&repetition.sub);
        let body: Vec<Step> = self.steps.drain(begin..).collect();
        let greedy = repetition.greedy;
        let split = |into: i32, past: i32| {
            let (first, second) = if greedy { (into, past) } else { (past, into) };
            Step::Split(first, second)
        };
        let length = i32::try_from(body.len()).unwrap_or(i32::MAX);
        for _ in 0..repetition.min {
            self.steps.extend_from_slice(&body);
        }
        match repetition.max {
            Some(max) => {
                let optional = max.saturating_sub(repetition.min);
                for left in (1..=optional).rev() {
                    let past = i32::try_from(left).unwrap_or(i32::MAX).saturating_mul(length + 1);
                    self.steps.push(split(1, past));
                    self.steps.extend_from_slice(&body);
                }
            }
            None if repetition.min > 0 => self.steps.push(split(-length, 1)),
            // A body that may be empty is `(body+)?`: else the path through the empty body would be preferred wrongly.
            None if repetition.sub.properties().minimum_len() == Some(0) => {
                self.steps.push(split(1, length + 2));
                self.steps.extend_from_slice(&body);
                self.steps.push(split(-length, 1));
            }
            None => {
                self.steps.push(split(1, length + 2));
                self.steps.extend_from_slice(&body);
                self.steps.push(Step::Jump(-length - 1));
            }
        }
    }

    fn search(&self, text: &str, from: usize, any: bool) -> Option<(usize, usize)> {
        budget::spend(1 + self.steps.len() / 16);
        let (mut now, mut next) = (Paths::new(self.steps.len()), Paths::new(self.steps.len()));
        let mut found = None;
        let mut place = Place {
            at: from,
            before: text[..from].chars().next_back(),
            after: text[from..].chars().next(),
        };
        loop {
            if found.is_none() && (place.at == 0 || !self.anchored) {
                self.follow(&mut now, (0, place.at), place);
            }
            if now.paths.is_empty() && (found.is_some() || self.anchored) {
                return found;
            }
            budget::spend(1 + now.paths.len());
            let follower = place.after.map(|c| {
                let at = place.at + c.len_utf8();
                let after = text[at..].chars().next();
                (
                    c,
                    Place {
                        at,
                        before: Some(c),
                        after,
                    },
                )
            });
            for (step, start) in now.paths.drain(..) {
                if matches!(self.steps[step], Step::End) {
                    found = Some((start, place.at));
                    // The paths behind it are less preferred.
                    break;
                }
                if let Some((c, there)) = follower
                    && self.takes(step, c)
                {
                    self.follow(&mut next, (step + 1, start), there);
                }
            }
            if any && found.is_some() {
                return found;
            }
            let Some((_, there)) = follower else { return found };
            place = there;
            std::mem::swap(&mut now, &mut next);
        }
    }

    fn takes(&self, step: usize, c: char) -> bool {
        match self.steps[step] {
            Step::Char(other) => other == c,
            Step::Set(number) => {
                let set = &self.sets[number as usize];
                let behind = set.partition_point(|(low, _)| *low <= c);
                behind > 0 && c <= set[behind - 1].1
            }
            _ => false,
        }
    }

    /// Adds a path, and those that it becomes without a character.
    fn follow(&self, to: &mut Paths, (step, start): Path, place: Place) {
        let (mut open, mut steps, now) = (vec![step], 0, count(place.at + 1));
        while let Some(step) = open.pop() {
            steps += 1;
            if std::mem::replace(&mut to.seen[step], now) == now {
                continue;
            }
            let target = |by: i32| step.wrapping_add_signed(by as isize);
            match self.steps[step] {
                Step::Jump(by) => open.push(target(by)),
                Step::Split(first, second) => open.extend([target(second), target(first)]),
                Step::Look(look) if place.has(look) => open.push(step + 1),
                Step::Look(_) => {}
                Step::Char(_) | Step::Set(_) | Step::End => to.paths.push((step, start)),
            }
        }
        budget::spend(steps);
    }
}

impl Paths {
    fn new(steps: usize) -> Self {
        Self {
            paths: Vec::new(),
            seen: vec![0; steps],
        }
    }
}

impl Place {
    fn has(self, look: Look) -> bool {
        let is_word = |c: Option<char>| c.is_some_and(|c| c == '_' || c.is_ascii_alphanumeric());
        let (before, after) = (is_word(self.before), is_word(self.after));
        match look {
            Look::Start => self.before.is_none(),
            Look::End => self.after.is_none(),
            Look::StartLF => self.before.is_none_or(|c| c == '\n'),
            Look::EndLF => self.after.is_none_or(|c| c == '\n'),
            Look::WordAscii => before != after,
            Look::WordAsciiNegate => before == after,
            // Go has no others, and `translate` lets none pass.
            _ => false,
        }
    }
}

fn set(class: &Class) -> Set {
    let ranges: Set = match class {
        Class::Unicode(class) => class.iter().map(|range| (range.start(), range.end())).collect(),
        Class::Bytes(class) => {
            let ranges = class.iter();
            ranges.map(|range| (range.start().into(), range.end().into())).collect()
        }
    };
    budget::produce(size_of_val(&*ranges));
    ranges
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn distance(from: usize, to: usize) -> i32 {
    i32::try_from(to - from).unwrap_or(i32::MAX)
}
