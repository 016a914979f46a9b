//! go.mod: the path of the module, and the modules that it requires.
//!
//! The grammar is that of Go's reference (`go.dev/ref/mod`): lines of a verb and its words, or blocks of them.
//! Invariant: a file whose form Go would refuse is an error with its line, never half a list.

use std::collections::BTreeSet;

/// A go.mod that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GoMod {
    /// The prefix of imports of its packages.
    pub(super) module: Option<String>,
    pub(super) rows: Vec<Row>,
}

/// A module that go.mod requires.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) module: String,
    /// The module that replaces it, or a folder when it begins with a dot or slash.
    pub(super) actual: String,
    pub(super) version: String,
}

/// The verbs whose words are not needed here.
const OTHERS: [&str; 8] = [
    "go",
    "toolchain",
    "godebug",
    "exclude",
    "retract",
    "tool",
    "ignore",
    "deprecated",
];

/// Reads a go.mod.
///
/// # Errors
/// The line and the reason, where Go would refuse the file.
pub(super) fn read(text: &str) -> Result<GoMod, (usize, String)> {
    let mut made = GoMod::default();
    let (mut required, mut replaced) = (Vec::new(), Vec::new());
    let mut block: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: String| (at + 1, why);
        let words = words(line);
        let (verb, words) = match (&block, words.as_slice()) {
            (_, []) | (None, [_, "(", ")"]) => continue,
            (Some(_), [")"]) => {
                block = None;
                continue;
            }
            (None, [verb, "("]) => {
                block = Some((at + 1, (*verb).to_owned()));
                continue;
            }
            (Some((_, verb)), words) => (verb.as_str(), words),
            (None, [verb, words @ ..]) => (*verb, words),
        };
        match (verb, words) {
            ("module", [module]) if made.module.is_none() => made.module = Some((*module).to_owned()),
            ("module", [_]) => return Err(wrong("the module is named twice".to_owned())),
            ("require", [module, version]) => required.push(row(module, module, version)),
            ("replace", words) => replaced.push(replacement(words).ok_or_else(|| wrong(usage("replace")))?),
            ("module" | "require", _) => return Err(wrong(usage(verb))),
            (other, _) if OTHERS.contains(&other) => {}
            (other, _) => return Err(wrong(format!("{other} is not a directive of go.mod"))),
        }
    }
    if let Some((line, verb)) = block {
        return Err((line, format!("the block {verb} ( is not closed")));
    }
    if made.module.is_none() {
        return Err((1, "no line names the module (module example.com/operator)".to_owned()));
    }
    let names: BTreeSet<String> = replaced.iter().map(|row: &Row| row.module.clone()).collect();
    required.retain(|row| !names.contains(&row.module));
    required.extend(replaced);
    made.rows = required;
    Ok(made)
}

/// The words of a line, without quotes and comments. A bracket is a word of its own (`require(`).
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next().filter(|_| !rest.starts_with("//")) {
        let (word, after) = match first {
            '"' | '`' => rest[1..].split_once(first).unwrap_or((&rest[1..], "")),
            '(' | ')' => rest.split_at(1),
            _ => {
                let is_end = |letter: char| letter.is_whitespace() || matches!(letter, '(' | ')');
                let end = rest.find(is_end).unwrap_or(rest.len());
                rest.split_at(rest.find("//").map_or(end, |comment| comment.min(end)))
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

fn usage(verb: &str) -> String {
    let form = match verb {
        "module" => "module PATH",
        "require" => "require PATH VERSION",
        _ => "replace PATH [VERSION] => PATH [VERSION]",
    };
    format!("the directive has the form {form}")
}

fn row(module: &str, actual: &str, version: &str) -> Row {
    Row {
        module: module.to_owned(),
        actual: actual.to_owned(),
        version: version.to_owned(),
    }
}

fn replacement(words: &[&str]) -> Option<Row> {
    let arrow = words.iter().position(|word| *word == "=>")?;
    match (&words[..arrow], &words[arrow + 1..]) {
        ([module] | [module, _], [actual]) => Some(row(module, actual, "")),
        ([module] | [module, _], [actual, version]) => Some(row(module, actual, version)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_go_would_refuse_is_refused_with_its_line() {
        let check = |text: &str, wanted: Result<&str, (usize, &str)>| match (read(text), wanted) {
            (Ok(made), Ok(module)) => assert_eq!(made.module.as_deref(), Some(module), "{text}"),
            (Err((at, why)), Err((line, part))) => assert!(at == line && why.contains(part), "{text}: {at} {why}"),
            (found, _) => panic!("{text}: {found:?}"),
        };
        check("module example.com/a // ours\n", Ok("example.com/a"));
        check("module (\n\t\"example.com/a\"\n)\ngo 1.26\n", Ok("example.com/a"));
        check(
            "// module b\n\nmodule `example.com/a`\n\nretract [v1.0.0, v1.1.0]\n",
            Ok("example.com/a"),
        );
        check(
            "module(\n\texample.com/a\n)\nrequire(\n\tb v1.0.0\n)\n",
            Ok("example.com/a"),
        );
        check("module a\nrequire ()\nexclude()\nreplace b => \"./b (2)\"\n", Ok("a"));
        check("module a// ours\n", Ok("a"));
        check("module a\nrequire(\n\tb v1.0.0\n", Err((2, "is not closed")));
        check("", Err((1, "no line names the module")));
        check("go 1.26\n", Err((1, "no line names the module")));
        check("module a\nmodule b\n", Err((2, "twice")));
        check("module a\n\nrequire (\n\tb v1.0.0\n", Err((3, "is not closed")));
        check("module a\nrequire b\n", Err((2, "require PATH VERSION")));
        check("module a\nreplace b c\n", Err((2, "replace PATH")));
        check("module a\n<<<<<<< HEAD\n", Err((2, "<<<<<<< is not a directive")));
    }
}
