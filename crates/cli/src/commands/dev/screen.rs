//! The live screen: the state on top; below it the first compiler error while there is one, else the entries.
//!
//! [`frame`] renders a [`State`] as lines; the [`Terminal`] shows them, and is restored at the end, even after a panic or
//! a signal. A frame is small and is written as a whole, so there is no library of widgets here: lines that come with
//! ANSI styles from the compiler and the operator, hanging indents, and Ctrl-C as a signal would have to be added to it.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice};
use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use textwrap::core::display_width;
use textwrap::{WordSeparator, WordSplitter};

use super::state::{BuildState, OperatorState, State};
use crate::output::{BAD, CHANGE, DIM, GOOD, STRONG, paint, shell_word};

/// The number of pieces of advice that are pinned; older ones are shown when these are resolved.
const MAX_PINNED: usize = 3;
/// The width of an entry's time; the text of the entry is to the right of it.
const INDENT: usize = 12;

/// The lines of a screen of this size. Never more than `height`, never wider than `width`.
pub(crate) fn frame(state: &State, width: usize, height: usize, now: Instant) -> Vec<String> {
    let mut lines = wrapped(header(state, now), width);
    let rule = paint(DIM, "─".repeat(width));
    lines.push(rule.clone());
    let mut footer = vec![rule];
    let keys = match state.scroll {
        0 => "q quit · r rebuild · s apply samples · l show or hide the operator's output · ↑ ↓ scroll".to_owned(),
        lines => format!("{lines} lines back · ↓ or PgDn forward · G to the newest"),
    };
    footer.extend(wrap(&paint(DIM, keys), width));
    let room = height.saturating_sub(lines.len() + footer.len());
    let mut body = Vec::new();
    if let Some(failed) = &state.failed {
        let more = match failed.errors {
            1 => String::new(),
            count => format!(" (the first of {count} errors)"),
        };
        body.extend(wrap(
            &paint(BAD, format!("does not compile{more}; what runs is the last good build")),
            width,
        ));
        body.extend(wrapped(failed.rendered.lines().map(str::to_owned), width));
        // A few lines are left for entries.
        body.truncate(room.saturating_sub(4).max(room.min(6)));
        body.push(String::new());
        body.truncate(room);
    } else if !state.advice().is_empty() {
        body.extend(wrapped(pinned(state), width));
        body.truncate(room.saturating_sub(4).max(room.min(6)));
        body.push(String::new());
        body.truncate(room);
    }
    let left = room - body.len();
    let mut feed: Vec<String> = Vec::new();
    for entry in state.entries.iter().rev().filter(|entry| state.show_log || !entry.log) {
        if feed.len() >= left + state.scroll {
            break;
        }
        feed.extend(
            entry
                .text
                .lines()
                .rev()
                .flat_map(|line| wrap(line, width).into_iter().rev()),
        );
    }
    // Further back than the first line there is nothing.
    let back = state.scroll.min(feed.len().saturating_sub(left));
    feed.drain(..back);
    feed.truncate(left);
    body.extend(feed.into_iter().rev());
    body.resize(room, String::new());
    lines.extend(body);
    lines.extend(footer);
    lines.truncate(height);
    for line in &mut lines {
        line.push_str(RESET);
    }
    lines
}

/// The advice that is not resolved, newest first.
fn pinned(state: &State) -> Vec<String> {
    let mut lines = Vec::new();
    for (_, advice) in state.advice().iter().rev().take(MAX_PINNED) {
        let text = advice.to_string();
        let mut parts = text.lines();
        lines.extend(parts.next().map(|head| paint(BAD, head)));
        lines.extend(parts.map(str::to_owned));
    }
    lines
}

fn header(state: &State, now: Instant) -> Vec<String> {
    let name = |name: &str| format!(" {name:<11} ");
    let mut lines = vec![format!(
        " {}   {}",
        paint(STRONG, format!("kubewright dev · {}", state.project)),
        paint(DIM, clock(now.saturating_duration_since(state.started)))
    )];
    if let Some((address, kubeconfig)) = &state.cluster {
        lines.push(format!(
            "{}{address}   {}",
            name("cluster"),
            paint(STRONG, format!("KUBECONFIG={}", shell_word(kubeconfig)))
        ));
    }
    if !state.definitions.is_empty() {
        lines.push(format!("{}{}", name("definitions"), state.definitions.join(", ")));
    }
    let build = match &state.build {
        BuildState::Running { since, progress } => {
            let since = since
                .map(|since| now.saturating_duration_since(since))
                .unwrap_or_default();
            let progress = progress
                .map(|(done, total)| format!(" {done}/{total}"))
                .unwrap_or_default();
            paint(CHANGE, format!("compiling{progress} … {:.1} s", since.as_secs_f64()))
        }
        _ if state.failed.is_some() => {
            let place = state
                .failed
                .as_ref()
                .and_then(|failed| failed.place.clone())
                .unwrap_or_default();
            paint(BAD, format!("does not compile  {place}"))
        }
        BuildState::Done(took) => {
            let turnaround = state
                .turnaround
                .map(|took| format!("   last save → reconciled in {:.2} s", took.as_secs_f64()))
                .unwrap_or_default();
            format!("{} in {:.2} s{turnaround}", paint(GOOD, "compiled"), took.as_secs_f64())
        }
        BuildState::None => paint(DIM, "not yet"),
    };
    lines.push(format!("{}{build}", name("build")));
    lines.push(format!("{}{}", name("operator"), operator(state)));
    lines.push(format!("{}{}", name("queue"), queue(state, now)));
    match state.advice().len() {
        0 => {}
        count => lines.push(format!("{}{}", name("advice"), paint(BAD, format!("{count} open")))),
    }
    lines
}

fn operator(state: &State) -> String {
    let status = match state.operator {
        OperatorState::None => paint(DIM, "not running"),
        OperatorState::Starting => paint(CHANGE, "starting"),
        OperatorState::Ready => paint(GOOD, "running"),
        OperatorState::Stopping => paint(CHANGE, "stopping"),
        OperatorState::Crashed => paint(BAD, "crashed"),
    };
    let mut words = vec![status];
    if let Some(pid) = state.pid {
        words.push(format!("build {}, process {pid}", state.build_number));
        let counts = &state.counts;
        let errors = match counts.errors {
            0 => "0 errors".to_owned(),
            count => paint(BAD, format!("{count} errors")),
        };
        words.push(format!(
            "{} reconciles, {} writes, {errors}",
            counts.reconciles, counts.writes
        ));
    }
    words.join(" · ")
}

fn queue(state: &State, now: Instant) -> String {
    let (ready, delayed) = state.queues.values().fold((0, 0), |(ready, delayed), (more, later)| {
        (ready + more, delayed + later)
    });
    let mut words = format!("{} running · {ready} ready · {delayed} delayed", state.running.len());
    // The longest reconcile is named, because a person may wait for it.
    let longest = state.running.iter().min_by_key(|(_, since)| **since);
    if let Some(((controller, request), since)) = longest {
        let since = now.saturating_duration_since(*since);
        if since > Duration::from_secs(1) {
            words.push_str(&format!("   {controller} {request} for {:.0} s", since.as_secs_f64()));
        }
    }
    words
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// Ends all styles.
const RESET: &str = "\u{1b}[0m";

fn wrapped(lines: impl IntoIterator<Item = String>, width: usize) -> Vec<String> {
    lines.into_iter().flat_map(|line| wrap(&line, width)).collect()
}

/// Breaks a line where the screen ends, between words where it can; the rest is indented as an entry is.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(if width > 4 * INDENT { INDENT } else { 0 });
    let options = textwrap::Options::new(width.max(1))
        .subsequent_indent(&indent)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    let line = printable(line);
    let mut style = String::new();
    let styled = textwrap::wrap(&line, options).into_iter().map(|part| {
        let text = format!("{style}{part}");
        for code in part.split("\u{1b}[").skip(1).filter_map(|rest| rest.split('m').next()) {
            match code {
                "" | "0" => style.clear(),
                code => style.push_str(&format!("\u{1b}[{code}m")),
            }
        }
        text
    });
    styled.collect()
}

/// The line without characters that would move the cursor: tabs become spaces, and of the escape sequences only colors
/// and styles stay.
fn printable(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        match next {
            '\u{1b}' => match rest.next() {
                Some('[') => {
                    let start = text.len();
                    text.push_str("\u{1b}[");
                    let end = rest
                        .by_ref()
                        .inspect(|part| text.push(*part))
                        .find(|part| ('@'..='~').contains(part));
                    if end != Some('m') {
                        text.truncate(start);
                    }
                }
                // A command to the terminal, such as a hyperlink or a title, up to its terminator.
                Some(']') => drop(rest.by_ref().find(|part| ['\u{7}', '\\'].contains(part))),
                _ => {}
            },
            '\t' => text.push_str(&" ".repeat(8 - display_width(&text) % 8)),
            letter if letter.is_control() => {}
            letter => text.push(letter),
        }
    }
    text
}

/// A key that a person pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Build,
    Samples,
    Log,
    /// So many lines back; negative: forward.
    Scroll(isize),
}

/// Lines of a page, as PgUp and PgDn move.
const PAGE: isize = 10;

impl Key {
    /// The first key of what the terminal has sent, and how many bytes it takes: one, or more for an arrow.
    fn first(bytes: &[u8]) -> (Option<Key>, usize) {
        let sequences: [(&[u8], isize); 8] = [
            (b"\x1b[A", 1),
            (b"\x1bOA", 1),
            (b"\x1b[B", -1),
            (b"\x1bOB", -1),
            (b"\x1b[5~", PAGE),
            (b"\x1b[6~", -PAGE),
            (b"\x1b[F", isize::MIN),
            (b"\x1b[4~", isize::MIN),
        ];
        if let Some((sequence, lines)) = sequences.iter().find(|(sequence, _)| bytes.starts_with(sequence)) {
            return (Some(Key::Scroll(*lines)), sequence.len());
        }
        let key = match bytes.first() {
            // Any other sequence is one key, which means nothing here.
            Some(0x1b) => return (None, bytes.len()),
            Some(b'q' | b'Q') => Some(Key::Quit),
            Some(b'r' | b'R') => Some(Key::Build),
            Some(b's' | b'S') => Some(Key::Samples),
            Some(b'l' | b'L') => Some(Key::Log),
            Some(b'k') => Some(Key::Scroll(1)),
            Some(b'j') => Some(Key::Scroll(-1)),
            Some(b'G') => Some(Key::Scroll(isize::MIN)),
            _ => None,
        };
        (key, 1)
    }
}

/// The terminal's modes as they were before it was taken.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal, in a mode for the screen. It is restored when this is dropped, when the program panics, and by
/// [`restore`].
pub(crate) struct Terminal {
    colored: bool,
}

impl Terminal {
    /// Takes the terminal, if standard input and output are one.
    pub(crate) fn take() -> Option<Terminal> {
        static HOOK: Once = Once::new();
        let (input, output) = (std::io::stdin(), std::io::stdout());
        if !input.is_terminal() || !output.is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
        {
            return None;
        }
        let before = termios::tcgetattr(&input).ok()?;
        let mut ours = before.clone();
        // Keys are read at once and not echoed. Ctrl-C stays a signal; Ctrl-Z is off, because after it a shell would write
        // to this screen.
        ours.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        ours.special_codes[SpecialCodeIndex::VSUSP] = 0;
        termios::tcsetattr(&input, OptionalActions::Now, &ours).ok()?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        crate::signals::before_the_end(restore);
        HOOK.call_once(|| {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                hook(panic);
            }));
        });
        // The alternate screen, no cursor, no wrapping of lines.
        write("\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[2J");
        let colored = AutoStream::choice(&output) != ColorChoice::Never;
        Some(Terminal { colored })
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Shows a frame.
    pub(crate) fn draw(&self, lines: &[String]) {
        write(&page(lines, self.colored));
    }

    /// Calls `pressed` for each key.
    pub(crate) fn keys(&self, pressed: impl Fn(Key) + Send + 'static) {
        // A thread, because reading a terminal cannot be cancelled; it ends with the process.
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = std::io::Read::read(&mut std::io::stdin(), &mut buffer) {
                let mut bytes = &buffer[..count];
                while !bytes.is_empty() {
                    let (key, taken) = Key::first(bytes);
                    bytes = &bytes[taken..];
                    if let Some(key) = key {
                        pressed(key);
                    }
                }
            }
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// What the terminal is sent for a frame: between the marks of a synchronized update each line, and the rest cleared.
fn page(lines: &[String], colored: bool) -> String {
    let line = |line: &String| match colored {
        true => format!("{line}\u{1b}[K"),
        false => format!("{}\u{1b}[K", anstream::adapter::strip_str(line)),
    };
    let lines: Vec<String> = lines.iter().map(line).collect();
    format!("\u{1b}[?2026h\u{1b}[H{}\u{1b}[J\u{1b}[?2026l", lines.join("\r\n"))
}

/// Restores the terminal, if it is taken. May be called at any time, more than once.
pub(crate) fn restore() {
    let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    write("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l");
    // The terminal may be gone.
    let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    let logged = std::mem::take(&mut *LOGGED.lock().unwrap_or_else(PoisonError::into_inner));
    let _ = std::io::stderr().write_all(&logged);
}

/// The writer of logs: standard error, or a buffer while the screen is shown, which is written when the terminal is
/// restored.
pub(crate) struct Log;

/// The newest logs while the screen is shown.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// The largest number of bytes in it.
const MAX_LOGGED: usize = 64 << 10;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return std::io::stderr().write(bytes);
        }
        let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        logged.extend_from_slice(bytes);
        let excess = logged.len().saturating_sub(MAX_LOGGED);
        logged.drain(..excess);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    // The terminal is gone, so there is no place for the error.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::super::state::{Event, Update};
    use super::*;
    use crate::program::Failed;
    use kubewright_codegen::{Diagnostic, codes};

    fn drawn(state: &State, width: usize, height: usize) -> String {
        let lines = frame(state, width, height, state.started + Duration::from_secs(75));
        assert!(lines.len() <= height);
        let plain: Vec<String> = lines
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert!(plain.iter().all(|line| display_width(line) <= width), "{plain:#?}");
        plain.join("\n")
    }

    fn state() -> State {
        let mut state = State::new(Instant::now(), "guestbook".into());
        let events = [
            Event::Cluster {
                description: "https://127.0.0.1:40001".into(),
                address: "https://127.0.0.1:40001".into(),
                kubeconfig: ".kubewright/kubeconfig".into(),
                milliseconds: Some(9.0),
            },
            Event::Compiled {
                took: Duration::from_millis(2100),
                new: true,
            },
            Event::Definitions(vec![("guestbooks.webapp.my.domain".into(), "created")]),
            Event::Started {
                build: 1,
                pid: Some(4711),
            },
        ];
        for event in events {
            let now = state.started;
            state.apply(&Update::Event(event), now);
        }
        state
    }

    #[test]
    fn the_state_stands_above_what_happens() {
        insta::assert_snapshot!(drawn(&state(), 100, 16), @"
         kubewright dev · guestbook   1:15
         cluster     https://127.0.0.1:40001   KUBECONFIG=.kubewright/kubeconfig
         definitions guestbooks.webapp.my.domain
         build       compiled in 2.10 s
         operator    starting · build 1, process 4711 · 0 reconciles, 0 writes, 0 errors
         queue       0 running · 0 ready · 0 delayed
        ────────────────────────────────────────────────────────────────────────────────────────────────────
            0.000 s build compiled in 2.10 s
            0.000 s definitions created guestbooks.webapp.my.domain
            0.000 s operator started (build 1, process 4711)




        ────────────────────────────────────────────────────────────────────────────────────────────────────
        q quit · r rebuild · s apply samples · l show or hide the operator's output · ↑ ↓ scroll
        ");
    }

    #[test]
    fn the_first_error_is_what_the_screen_shows() {
        let mut state = state();
        let now = state.started;
        let rendered = "error[E0308]: mismatched types\n  --> src/lib.rs:12:5\n   |\n12 |     \u{1b}[31m\"three\"\u{1b}[0m\n   |     ^^^^^^^ expected `i32`, found `&str`";
        let failed = Failed {
            rendered: rendered.into(),
            place: Some("src/lib.rs:12:5".into()),
            errors: 2,
        };
        state.apply(&Update::Event(Event::NotCompiled(failed)), now);
        insta::assert_snapshot!(drawn(&state, 100, 20), @r#"
         kubewright dev · guestbook   1:15
         cluster     https://127.0.0.1:40001   KUBECONFIG=.kubewright/kubeconfig
         definitions guestbooks.webapp.my.domain
         build       does not compile  src/lib.rs:12:5
         operator    starting · build 1, process 4711 · 0 reconciles, 0 writes, 0 errors
         queue       0 running · 0 ready · 0 delayed
        ────────────────────────────────────────────────────────────────────────────────────────────────────
        does not compile (the first of 2 errors); what runs is the last good build
        error[E0308]: mismatched types
          --> src/lib.rs:12:5
           |
        12 |     "three"
           |     ^^^^^^^ expected `i32`, found `&str`

            0.000 s build compiled in 2.10 s
            0.000 s definitions created guestbooks.webapp.my.domain
            0.000 s operator started (build 1, process 4711)
            0.000 s build does not compile: 2 errors, the first one is
        ────────────────────────────────────────────────────────────────────────────────────────────────────
        q quit · r rebuild · s apply samples · l show or hide the operator's output · ↑ ↓ scroll
        "#);
    }

    #[test]
    fn no_size_is_too_small() {
        let state = state();
        for (width, height) in [(1, 1), (10, 3), (20, 8), (300, 9)] {
            drawn(&state, width, height);
        }
    }

    #[test]
    fn advice_stays_until_it_is_resolved() {
        let mut state = state();
        let now = state.started;
        let found = Diagnostic::new(codes::dev::FORBIDDEN, "the operator lacks a right")
            .because("secrets is forbidden: User \"system:serviceaccount:guestbook-system:controller-manager\" cannot list resource \"secrets\"")
            .fix("#[rbac(groups = \"\", resources = \"secrets\", verbs = \"list\")]");
        let advice = Event::Advice("a".into(), Box::new(found.clone()));
        state.apply(&Update::Event(advice.clone()), now);
        for _ in 0..50 {
            state.apply(&Update::Log("one more line".into()), now);
        }
        insta::assert_snapshot!(drawn(&state, 70, 18), @r#"
         kubewright dev · guestbook   1:15
         cluster     https://127.0.0.1:40001
                    KUBECONFIG=.kubewright/kubeconfig
         definitions guestbooks.webapp.my.domain
         build       compiled in 2.10 s
         operator    starting · build 1, process 4711 · 0 reconciles, 0
                    writes, 0 errors
         queue       0 running · 0 ready · 0 delayed
         advice      1 open
        ──────────────────────────────────────────────────────────────────────
        the operator lacks a right [KWR0723]
          because: secrets is forbidden: User
                    "system:serviceaccount:guestbook-system:controller-manager
                    " cannot list resource "secrets"
          fix: #[rbac(groups = "", resources = "secrets", verbs = "list")]
        ──────────────────────────────────────────────────────────────────────
        q quit · r rebuild · s apply samples · l show or hide the operator's
                    output · ↑ ↓ scroll
        "#);
        state.apply(&Update::Event(Event::Resolved("b".into())), now);
        assert_eq!(state.advice().len(), 1);
        state.apply(&Update::Event(Event::Resolved("a".into())), now);
        assert_eq!(state.advice().len(), 0);
        // A new operator has no advice.
        state.apply(&Update::Event(advice), now);
        state.apply(&Update::Event(Event::Started { build: 2, pid: None }), now);
        assert_eq!(state.advice().len(), 0);
    }

    #[test]
    fn what_went_out_of_sight_can_be_read() {
        let mut state = state();
        let now = state.started;
        for number in 0..50 {
            state.apply(&Update::Log(format!("line {number}")), now);
        }
        let shows = |state: &State, line: &str| drawn(state, 100, 16).lines().any(|shown| shown.ends_with(line));
        assert!(shows(&state, "line 49") && !shows(&state, "line 5"));
        state.apply(&Update::Scroll(40), now);
        assert!(!shows(&state, "line 49") && shows(&state, "line 5"));
        // New lines do not move what is read.
        state.apply(&Update::Log("one more".into()), now);
        assert!(shows(&state, "line 5") && !shows(&state, "one more"));
        state.apply(&Update::Scroll(isize::MAX), now);
        assert!(shows(&state, "build compiled in 2.10 s"));
        state.apply(&Update::Scroll(isize::MIN), now);
        assert!(shows(&state, "one more"));
    }

    #[test]
    fn keys_are_letters_and_sequences() {
        let keys = |mut bytes: &[u8]| {
            let mut found = Vec::new();
            while !bytes.is_empty() {
                let (key, taken) = Key::first(bytes);
                found.extend(key);
                bytes = &bytes[taken..];
            }
            found
        };
        let back = |lines| Key::Scroll(lines);
        assert_eq!(keys(b"rq"), [Key::Build, Key::Quit]);
        assert_eq!(keys(b"\x1b[A\x1b[5~k"), [back(1), back(PAGE), back(1)]);
        assert_eq!(keys(b"\x1b[B\x1b[6~G"), [back(-1), back(-PAGE), back(isize::MIN)]);
        assert_eq!(keys(b"\x1b[200~s"), []);
        assert_eq!(keys(b"x\xff"), []);
    }

    #[test]
    fn a_page_without_colors_has_no_styles() {
        let lines = frame(&state(), 60, 12, Instant::now());
        let [colored, plain] = [true, false].map(|colored| page(&lines, colored));
        assert!(colored.contains("\u{1b}[1mkubewright dev"), "{colored:?}");
        assert!(plain.contains(" kubewright dev · guestbook "), "{plain:?}");
        let codes: Vec<&str> = plain
            .split('\u{1b}')
            .skip(1)
            .filter_map(|rest| rest.split(['K', 'H', 'J', 'h', 'l']).next())
            .collect();
        assert!(codes.iter().all(|code| ["[", "[?2026"].contains(code)), "{codes:?}");
    }

    #[test]
    fn lines_are_broken_where_the_screen_ends() {
        let check = |line: &str, width: usize, expected: &[&str]| {
            let shown: Vec<String> = wrap(line, width)
                .iter()
                .map(|line| anstream::adapter::strip_str(line).to_string())
                .collect();
            assert_eq!(shown, expected, "{line:?}");
        };
        check("", 10, &[""]);
        check("short", 10, &["short"]);
        check("exactly 10", 10, &["exactly 10"]);
        check("more than ten", 10, &["more than", "ten"]);
        check("a/path/without/a/space", 10, &["a/path/wit", "hout/a/spa", "ce"]);
        check("\u{1b}[31mred\u{1b}[0m", 3, &["red"]);
        check("a\tb", 20, &["a       b"]);
        check("back\u{8}\rhome", 20, &["backhome"]);
        check(
            "\u{1b}[2Jcleared \u{1b}]0;title\u{7}and \u{1b}cmoved\u{1b}[5A",
            30,
            &["cleared and moved"],
        );
        // A letter of East Asia takes two columns, an accent none.
        check("漢字漢字", 5, &["漢字", "漢字"]);
        check("e\u{301}e\u{301}", 2, &["e\u{301}e\u{301}"]);
        check("漢", 1, &["漢"]);
        let colored = wrap("\u{1b}[1m\u{1b}[31mred and red\u{1b}[0m", 8);
        assert_eq!(
            colored,
            ["\u{1b}[1m\u{1b}[31mred and", "\u{1b}[1m\u{1b}[31mred\u{1b}[0m"]
        );
    }
}
