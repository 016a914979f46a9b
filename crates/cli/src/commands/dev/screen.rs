//! The live screen: the state on top, then the one thing that matters: the first compiler error while there is one,
//! else the events.
//!
//! [`frame`] draws a [`State`] into lines; the [`Terminal`] puts them on the screen and leaves the terminal as it found
//! it, even after a panic or a signal. No cursor addressing of single cells: a frame is small, and the terminal shows
//! it at once.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use unicode_width::UnicodeWidthChar as _;

use super::state::{BuildState, OperatorState, State};
use crate::output::{BAD, CHANGE, DIM, GOOD, STRONG, paint};
use crate::shell;

/// The most pieces of advice that are pinned; older ones wait until these are answered.
const MAX_PINNED: usize = 3;
/// The columns of an entry's time; its text stays to the right of them.
const INDENT: usize = 12;

/// The lines of a screen of this size. Never more than `height`, never wider than `width`.
pub(crate) fn frame(state: &State, width: usize, height: usize, now: Instant) -> Vec<String> {
    let mut lines = wrapped(header(state, now), width);
    let rule = paint(DIM, "─".repeat(width));
    lines.push(rule.clone());
    let mut footer = vec![rule];
    footer.extend(wrap(
        &paint(
            DIM,
            "q quit · r build again · s apply samples · l show or hide the operator's own lines",
        ),
        width,
    ));
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
        // At least a few lines of the events meanwhile.
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
        if feed.len() >= left {
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

/// The newest advice that is not answered, newest first.
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
            paint(STRONG, format!("KUBECONFIG={}", shell::word(kubeconfig)))
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
        1 => lines.push(format!("{}{}", name("advice"), paint(BAD, "1 piece, not answered yet"))),
        count => lines.push(format!(
            "{}{}",
            name("advice"),
            paint(BAD, format!("{count} pieces, not answered yet"))
        )),
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
    // The longest run is named, because a person may wait for it.
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

/// Ends all colours.
const RESET: &str = "\u{1b}[0m";

fn wrapped(lines: impl IntoIterator<Item = String>, width: usize) -> Vec<String> {
    lines.into_iter().flat_map(|line| wrap(&line, width)).collect()
}

/// The unit of a line: a letter with its columns, or the code of a colour, which takes none.
struct Piece {
    text: String,
    columns: usize,
}

/// The pieces of a line. Tabs become spaces; other characters that would move the cursor are left out.
fn pieces(line: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut column = 0;
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        let (text, columns) = match next {
            '\u{1b}' => {
                let mut code = String::from(next);
                for part in rest.by_ref() {
                    code.push(part);
                    if part.is_ascii_alphabetic() {
                        break;
                    }
                }
                (code, 0)
            }
            '\t' => {
                let spaces = 8 - column % 8;
                pieces.extend((1..spaces).map(|_| Piece {
                    text: " ".to_owned(),
                    columns: 1,
                }));
                column += spaces - 1;
                (" ".to_owned(), 1)
            }
            letter => match letter.width() {
                Some(columns) => (letter.to_string(), columns),
                None => continue,
            },
        };
        column += columns;
        pieces.push(Piece { text, columns });
    }
    pieces
}

/// Breaks a line where the screen ends, between words where it can; the rest is indented as an entry is. Nothing is
/// lost but the space at a break.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut pieces = pieces(line);
    let mut lines = Vec::new();
    let mut colour = String::new();
    let mut indent = 0;
    loop {
        let end = fitting(&pieces, width - indent);
        let rest = pieces.split_off(end);
        let mut text = format!("{}{colour}", " ".repeat(indent));
        for piece in &pieces {
            text.push_str(&piece.text);
            if piece.text.starts_with('\u{1b}') {
                colour.clone_from(&piece.text);
            }
        }
        let done = rest.iter().all(|piece| piece.columns == 0);
        if !done {
            text.push_str(RESET);
        }
        lines.push(text);
        if done {
            return lines;
        }
        pieces = rest;
        let spaces = pieces.iter().take_while(|piece| piece.text == " ").count();
        pieces.drain(..spaces.min(pieces.len() - 1));
        indent = if width > 4 * INDENT { INDENT } else { 0 };
    }
}

/// How many pieces fit: up to the last space when a word would be torn, and at least one.
fn fitting(pieces: &[Piece], room: usize) -> usize {
    let mut taken = 0;
    let mut space = None;
    for (index, piece) in pieces.iter().enumerate() {
        if taken + piece.columns > room {
            return match space {
                // A word that begins far to the left fills the line: it is torn.
                Some(at) if piece.text != " " && 2 * at > room => at,
                _ => index.max(1),
            };
        }
        taken += piece.columns;
        if piece.text == " " {
            space = Some(index);
        }
    }
    pieces.len()
}

/// A key that a person pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Build,
    Samples,
    Log,
}

impl Key {
    fn of(byte: u8) -> Option<Key> {
        match byte {
            b'q' | b'Q' => Some(Key::Quit),
            b'r' | b'R' => Some(Key::Build),
            b's' | b'S' => Some(Key::Samples),
            b'l' | b'L' => Some(Key::Log),
            _ => None,
        }
    }
}

/// The terminal as it was, while the screen is ours.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal, taken over. It is given back when this is dropped, when the program panics, and by [`restore`].
pub(crate) struct Terminal;

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
        // Keys come at once and are not shown; Ctrl-C stays a signal, and Ctrl-Z, after which a shell would write into
        // our screen, nothing.
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
        // Another screen, no cursor, no wrapping of lines.
        write("\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[2J");
        Some(Terminal)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Shows a frame, all at once.
    pub(crate) fn draw(&self, lines: &[String]) {
        let mut text = String::from("\u{1b}[?2026h\u{1b}[H");
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\u{1b}[K");
        }
        text.push_str("\u{1b}[J\u{1b}[?2026l");
        write(&text);
    }

    /// Gives keys to `pressed` for as long as it wants them.
    pub(crate) fn keys(&self, pressed: impl Fn(Key) + Send + 'static) {
        // A thread: reading a terminal cannot be taken back, so it ends with the process.
        std::thread::spawn(move || {
            let mut byte = [0];
            while let Ok(1) = std::io::Read::read(&mut std::io::stdin(), &mut byte) {
                if let Some(key) = Key::of(byte[0]) {
                    pressed(key);
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

/// Gives the terminal back, if it is taken. May be called at any time, more than once.
pub(crate) fn restore() {
    let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    write("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l");
    // A terminal that is gone needs nothing.
    let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    let logged = std::mem::take(&mut *LOGGED.lock().unwrap_or_else(PoisonError::into_inner));
    let _ = std::io::stderr().write_all(&logged);
}

/// Where logs go: to standard error, but not across the screen while it is ours; then they come when it is given back.
pub(crate) struct Log;

/// Log lines from while the screen was ours; the newest, up to a limit.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// Bytes of logs that are kept.
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
    use unicode_width::UnicodeWidthStr as _;

    fn drawn(state: &State, width: usize, height: usize) -> String {
        let lines = frame(state, width, height, state.started + Duration::from_secs(75));
        assert!(lines.len() <= height);
        let plain: Vec<String> = lines
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert!(plain.iter().all(|line| line.width() <= width), "{plain:#?}");
        plain.join("\n")
    }

    fn state() -> State {
        let mut state = State::new(Instant::now(), "guestbook".into());
        let facts = [
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
        for fact in facts {
            let now = state.started;
            state.apply(&Update::Event(fact), now);
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
        q quit · r build again · s apply samples · l show or hide the operator's own lines
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
        q quit · r build again · s apply samples · l show or hide the operator's own lines
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
    fn advice_stays_until_it_is_answered() {
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
         advice      1 piece, not answered yet
        ──────────────────────────────────────────────────────────────────────
        the operator lacks a right [KWR0723]
          because: secrets is forbidden: User
                    "system:serviceaccount:guestbook-system:controller-manager
                    " cannot list resource "secrets"
          fix: #[rbac(groups = "", resources = "secrets", verbs = "list")]
        ──────────────────────────────────────────────────────────────────────
        q quit · r build again · s apply samples · l show or hide the
                    operator's own lines
        "#);
        state.apply(&Update::Event(Event::Resolved("b".into())), now);
        assert_eq!(state.advice().len(), 1);
        state.apply(&Update::Event(Event::Resolved("a".into())), now);
        assert_eq!(state.advice().len(), 0);
        // A new operator begins anew.
        state.apply(&Update::Event(advice), now);
        state.apply(&Update::Event(Event::Started { build: 2, pid: None }), now);
        assert_eq!(state.advice().len(), 0);
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
        // A letter of East Asia takes two columns, an accent none.
        check("漢字漢字", 5, &["漢字", "漢字"]);
        check("e\u{301}e\u{301}", 2, &["e\u{301}e\u{301}"]);
        check("漢", 1, &["漢"]);
        let coloured = wrap("\u{1b}[31mred and red\u{1b}[0m", 8);
        assert_eq!(coloured, ["\u{1b}[31mred and\u{1b}[0m", "\u{1b}[31mred\u{1b}[0m"]);
    }
}
