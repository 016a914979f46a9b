//! Files that Go leaves out of a build: by their name (`a_windows.go`) or a line before `package`
//! (`//go:build ignore`, and `// +build ignore` where there is none of the first form).
//!
//! As `go/build` decides it for Linux on amd64, since an operator runs there.

/// Tags that are set: of the system and of the compiler.
const TAGS: [&str; 5] = ["linux", "unix", "amd64", "gc", "cgo"];
/// Systems that a file's name may end with (`KnownOS` in Go's `internal/syslist`).
const SYSTEMS: &[&str] = &[
    "aix",
    "android",
    "darwin",
    "dragonfly",
    "freebsd",
    "hurd",
    "illumos",
    "ios",
    "js",
    "linux",
    "nacl",
    "netbsd",
    "openbsd",
    "plan9",
    "solaris",
    "wasip1",
    "windows",
    "zos",
];
/// Processors that a file's name may end with (`KnownArch`).
const PROCESSORS: &[&str] = &[
    "386",
    "amd64",
    "amd64p32",
    "arm",
    "arm64",
    "arm64be",
    "armbe",
    "loong64",
    "mips",
    "mips64",
    "mips64le",
    "mips64p32",
    "mips64p32le",
    "mipsle",
    "ppc",
    "ppc64",
    "ppc64le",
    "riscv",
    "riscv64",
    "s390",
    "s390x",
    "sparc",
    "sparc64",
    "wasm",
];

/// Whether Go does not look at a file or folder of this name.
pub(super) fn is_ignored(name: &str) -> bool {
    name.starts_with(['_', '.'])
}

/// Whether a file of this name may declare types of an API: a Go file that is neither a test nor generated.
pub(super) fn is_source(name: &str) -> bool {
    let is_left_out = name.ends_with("_test.go") || name.starts_with("zz_generated") || is_ignored(name);
    name.ends_with(".go") && !is_left_out
}

/// The reason why Go does not build a file, if there is one.
pub(super) fn excluded(path: &str, text: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if let Some(part) = other_system(name) {
        return Some(format!("its name says {part}"));
    }
    let header = Header::of(text);
    match header.constraint {
        Some(line) => (!holds(line)).then(|| format!("//go:build {line}")),
        None => {
            let old = header.old.into_iter().find(|line| !holds_in_old_form(line));
            old.map(|line| format!("// +build {line}"))
        }
    }
}

/// The system or processor in a file's name, unless it is that of the build (`goodOSArchFile`).
fn other_system(name: &str) -> Option<&str> {
    let name = name.split('.').next().unwrap_or_default();
    // The first part does not count: `linux.go` is built everywhere.
    let mut parts = name.split_once('_')?.1.rsplit('_');
    let last = parts.next().unwrap_or_default();
    let before = parts.next().unwrap_or_default();
    let system = match PROCESSORS.contains(&last) && SYSTEMS.contains(&before) {
        true => before,
        false => last,
    };
    let is_other = |part: &&str| (SYSTEMS.contains(part) || PROCESSORS.contains(part)) && !TAGS.contains(part);
    [last, system].into_iter().find(is_other)
}

/// The lines of a file before `package` that say when it is built.
#[derive(Default)]
struct Header<'t> {
    /// The expression of `//go:build`.
    constraint: Option<&'t str>,
    /// Those of `// +build`, all of which must hold.
    old: Vec<&'t str>,
}

impl<'t> Header<'t> {
    /// As `parseFileHeader` finds them: only comments may stand before `//go:build`; `// +build` must stand above the
    /// last empty line that follows nothing but `//` lines.
    fn of(text: &'t str) -> Header<'t> {
        let mut header = Header::default();
        let mut pending = Vec::new();
        let (mut is_comment, mut has_ended) = (false, false);
        for line in text.lines().map(str::trim) {
            if line.is_empty() && !has_ended {
                header.old.append(&mut pending);
                continue;
            }
            has_ended |= !line.starts_with("//");
            if !is_comment && let Some(said) = line.strip_prefix("//") {
                match said.strip_prefix("go:build").filter(is_word_end) {
                    Some(expression) => header.constraint = Some(expression.trim()),
                    None if !has_ended => pending.extend(old_form(said)),
                    None => {}
                }
                continue;
            }
            if !passes(line, &mut is_comment) {
                break;
            }
        }
        header
    }
}

fn is_word_end(rest: &&str) -> bool {
    rest.is_empty() || rest.starts_with(char::is_whitespace)
}

/// The words behind `+build` in a comment.
fn old_form(comment: &str) -> Option<&str> {
    let rest = comment.trim_start().strip_prefix("+build").filter(is_word_end)?;
    Some(rest.trim())
}

/// Whether a line has only comments. `is_comment` says whether it begins and ends within one.
fn passes(line: &str, is_comment: &mut bool) -> bool {
    let mut rest = line;
    loop {
        if *is_comment {
            let Some((_, after)) = rest.split_once("*/") else {
                return true;
            };
            *is_comment = false;
            rest = after.trim_start();
        }
        if rest.is_empty() || rest.starts_with("//") {
            return true;
        }
        let Some(inside) = rest.strip_prefix("/*") else {
            return false;
        };
        *is_comment = true;
        rest = inside;
    }
}

/// Whether the words of a `// +build` hold: one of them, with all of its parts between commas (`parsePlusBuildExpr`).
fn holds_in_old_form(words: &str) -> bool {
    let is_tag = |tag: &str| tag.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let has = |tag: &str| is_tag(tag) && is_set(tag);
    let holds = |part: &str| match part.strip_prefix('!') {
        Some(tag) => !(tag.is_empty() || tag.starts_with('!') || has(tag)),
        None => has(part),
    };
    words.split_whitespace().any(|word| word.split(',').all(holds))
}

fn is_set(tag: &str) -> bool {
    TAGS.contains(&tag) || tag.starts_with("go1.")
}

/// Whether an expression holds: tags, `!`, `&&`, `||` and brackets.
fn holds(expression: &str) -> bool {
    let spaced = expression.replace("&&", " & ").replace("||", " | ");
    let spaced = spaced.replace('!', " ! ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    any(&mut words.iter().copied().peekable(), 0)
}

/// How deep brackets may nest; deeper ones do not hold.
const DEPTH: usize = 64;

type Words<'w, I> = std::iter::Peekable<I>;

fn any<'w>(words: &mut Words<'w, impl Iterator<Item = &'w str>>, depth: usize) -> bool {
    let mut found = all(words, depth);
    while words.next_if_eq(&"|").is_some() {
        found |= all(words, depth);
    }
    found
}

fn all<'w>(words: &mut Words<'w, impl Iterator<Item = &'w str>>, depth: usize) -> bool {
    let mut found = one(words, depth);
    while words.next_if_eq(&"&").is_some() {
        found &= one(words, depth);
    }
    found
}

fn one<'w>(words: &mut Words<'w, impl Iterator<Item = &'w str>>, depth: usize) -> bool {
    match words.next() {
        Some("!") if depth < DEPTH => !one(words, depth + 1),
        Some("(") if depth < DEPTH => {
            let found = any(words, depth + 1);
            words.next_if_eq(&")");
            found
        }
        Some(tag) => is_set(tag),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_out_as_go_leaves_them_out() {
        let check = |path: &str, text: &str, is_built: bool| {
            let why = excluded(path, text);
            assert_eq!(why.is_none(), is_built, "{path} {text:?}: {why:?}");
        };
        for (name, is_built) in [
            ("types.go", true),
            ("types_windows.go", false),
            ("types_linux.go", true),
            ("types_linux_arm64.go", false),
            ("types_windows_amd64.go", false),
            ("windows.go", true),
            ("js_types.go", true),
            ("types_windows.pb.go", false),
            ("types_linux.pb.go", true),
            ("types.windows.go", true),
            ("types_wasm.go", false),
            ("types_hurd_sparc64.go", false),
            ("types_nacl_amd64p32.go", false),
        ] {
            check(&format!("api/v1/{name}"), "package v1\n", is_built);
        }
        for (text, is_built) in [
            ("//go:build ignore\n\npackage v1\n", false),
            ("/* Copyright\n*/\n\n//go:build !windows\n\npackage v1\n", true),
            ("package v1\n\n//go:build ignore\n", true),
            ("//go:build (linux && !cgo) || darwin\npackage v1\n", false),
            ("//go:build linux && (amd64 || arm64)\npackage v1\n", true),
            ("//go:build !ignore_autogenerated\npackage v1\n", true),
            ("//go:build go1.26\npackage v1\n", true),
            ("// +build tools\n\npackage tools\n", false),
            ("//+build tools\n\n// More.\npackage tools\n", false),
            ("// +build tools\npackage tools\n", true),
            ("/* A */\n// +build tools\n\npackage tools\n", true),
            ("// +builder tools\n\npackage tools\n", true),
            ("// +build\n\npackage tools\n", false),
            ("// +build tools linux,!cgo !windows\n\npackage tools\n", true),
            ("// +build tools linux,!cgo\n\npackage tools\n", false),
            ("// +build linux\n// +build arm64\n\npackage tools\n", false),
            ("// +build !!linux a-b\n\npackage tools\n", false),
            ("//go:build linux\n// +build tools\n\npackage tools\n", true),
            ("//go:build\ttools\n\npackage tools\n", false),
            ("/* A */ package tools\n\n//go:build tools\n", true),
        ] {
            check("types.go", text, is_built);
        }
        assert!(!holds(&"(".repeat(10_000)));
    }
}
