//! The tutorial, made from its pages alone: a reader who types every block gets an operator that works.
//!
//! A block below a line `` `FILE`: `` is the file as a whole, or, as a block of `diff`, a change of it. Below
//! `` `FILE` has: `` it is a piece of a file that the command wrote. A block of `console` is commands with their output;
//! a line `...` stands for any lines, and times, ports and numbers of processes are compared as such. While `dev` runs,
//! a block of `text` is lines that it prints. `dev` ends with its page.
//!
//! Building the operator takes minutes, so it is asked for (see `support::operators`). Without it the scaffolding
//! commands are typed, all files are written and changed, and rustfmt must have nothing to say about them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;

use crate::support::operators;
use crate::support::running_dev::RunningDev;
use crate::support::{self, RunningCluster};

/// What a reader does with a block.
#[derive(Debug, PartialEq)]
enum Part {
    Write { file: String, text: String },
    Change { file: String, diff: String },
    Find { file: String, text: String },
    Type { line: String, output: Vec<String> },
    Await(Vec<String>),
}

fn parts(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    // The file that the next blocks are about, and whether the last line that was no block named it.
    let (mut file, mut is_made, mut is_named) = (String::new(), false, false);
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            let named = line.strip_prefix('`').and_then(|rest| rest.split_once('`'));
            match named {
                Some((name, rest @ (":" | " has:"))) => {
                    (file, is_made, is_named) = (name.to_owned(), rest != ":", true);
                }
                _ if line.is_empty() => {}
                _ => is_named = false,
            }
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let text = body.iter().map(|line| format!("{line}\n")).collect();
        let part = match language {
            "console" => {
                for line in body {
                    match (line.strip_prefix("$ "), parts.last_mut()) {
                        (Some(line), _) => parts.push(Part::Type {
                            line: line.to_owned(),
                            output: Vec::new(),
                        }),
                        (None, Some(Part::Type { output, .. })) => output.push(line.to_owned()),
                        (None, _) => panic!("a block of console begins with a command: {line}"),
                    }
                }
                continue;
            }
            "text" => Part::Await(body.iter().map(|line| (*line).to_owned()).collect()),
            "sh" => continue,
            "diff" => Part::Change {
                file: file.clone(),
                diff: text,
            },
            _ => {
                assert!(is_named, "the line above a block names its file: {text}");
                let file = file.clone();
                match is_made {
                    true => Part::Find { file, text },
                    false => Part::Write { file, text },
                }
            }
        };
        parts.push(part);
    }
    parts
}

/// The text with the change made, which fits in one place only.
fn changed(text: &str, diff: &str) -> Result<String, String> {
    let side = |left_out: char| -> String {
        let kept = diff.lines().filter(|line| !line.starts_with(left_out));
        kept.map(|line| format!("{}\n", line.get(1..).unwrap_or_default()))
            .collect()
    };
    let (before, after) = (side('+'), side('-'));
    match text.matches(&before).count() {
        1 => Ok(text.replacen(&before, &after, 1)),
        count => Err(format!("{count} places look so:\n{before}")),
    }
}

/// A line without what differs from run to run.
fn plain(line: &str) -> String {
    let mut plain = line.trim_end().to_owned();
    for (pattern, word) in [
        (r"\b\d+(\.\d+)? ?(ms|s|m|m\d+s)\b", "[time]"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:[port]"),
        (r"process \d+", "process [id]"),
        (r"\b[0-9a-f]{9,10}(-[a-z0-9]{5})?\b", "[hash]"),
        (r"\d+ of \d+ faults", "[count] faults"),
        (r"and \d+ more", "and [count] more"),
        (r"\b\d+:\d\d\.\d{3}\b", "[time]"),
        (r"'?/\S+/\.kubewright/", "[folder]/.kubewright/"),
        (r" +", " "),
    ] {
        plain = Regex::new(pattern).unwrap().replace_all(&plain, word).into_owned();
    }
    plain.trim().to_owned()
}

/// Whether the output is as expected; the error names the first line that is not there.
fn compare(expected: &[String], output: &str) -> Result<(), String> {
    let mut found = output.lines().map(plain).filter(|line| !line.is_empty()).peekable();
    let mut may_skip = false;
    for line in expected.iter().filter(|line| !line.is_empty()) {
        if line == "..." {
            may_skip = true;
            continue;
        }
        let line = plain(line);
        let is_there = match may_skip {
            true => found.any(|found| found == line),
            false => found.next_if_eq(&line).is_some(),
        };
        if !is_there {
            return Err(format!("no line {line:?}; the next is {:?}", found.peek()));
        }
        may_skip = false;
    }
    match found.next() {
        Some(line) if !may_skip => Err(format!("one line more: {line:?}")),
        _ => Ok(()),
    }
}

/// A reader, with what they have so far.
struct Reader {
    folder: PathBuf,
    builds: bool,
    dev: Option<RunningDev>,
    /// The line that sets KUBECONFIG.
    export: String,
}

impl Reader {
    fn follow(&mut self, part: Part) -> Result<(), String> {
        match part {
            Part::Write { file, text } => {
                fs::write(self.folder.join(&file), text).map_err(|why| format!("{file}: {why}"))
            }
            Part::Change { file, diff } => {
                let path = self.folder.join(&file);
                let text = fs::read_to_string(&path).map_err(|why| format!("{file}: {why}"))?;
                let text = changed(&text, &diff).map_err(|why| format!("{file}: {why}"))?;
                fs::write(path, text).map_err(|why| format!("{file}: {why}"))
            }
            Part::Find { .. } if !self.builds => Ok(()),
            Part::Find { file, text } => {
                let found = fs::read_to_string(self.folder.join(&file)).map_err(|why| format!("{file}: {why}"))?;
                found
                    .contains(&text)
                    .then_some(())
                    .ok_or_else(|| format!("{file} is\n{found}\nwithout\n{text}"))
            }
            Part::Type { line, output } => {
                let scaffolds = ["kubewright init", "kubewright create"];
                match self.builds || scaffolds.iter().any(|start| line.starts_with(start)) {
                    true => self.type_in(&line, &output),
                    false => Ok(()),
                }
            }
            Part::Await(lines) => {
                if let Some(dev) = &mut self.dev {
                    await_lines(dev, &lines);
                }
                Ok(())
            }
        }
    }

    fn type_in(&mut self, line: &str, expected: &[String]) -> Result<(), String> {
        let mut shell = operators::command("bash", &self.folder);
        shell
            .args(["-c", &format!("{}exec {line}", self.export)])
            .env("NO_COLOR", "1")
            .env("CARGO_TERM_COLOR", "never");
        if !line.contains("--nocapture") {
            // Tests print in their order.
            shell.env("RUST_TEST_THREADS", "1");
        }
        if line.starts_with("kubewright dev") {
            let mut dev = RunningDev::start(shell);
            await_lines(&mut dev, expected);
            self.export = format!("{}; ", dev.export());
            self.dev = Some(dev);
            return Ok(());
        }
        let output = shell.stdin(Stdio::null()).output().map_err(|why| why.to_string())?;
        let out = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        let fails = expected.iter().any(|line| line.contains("FAILED"));
        let compared = compare(expected, &out).and_then(|()| match output.status.success() != fails {
            true => Ok(()),
            false => Err(output.status.to_string()),
        });
        compared.map_err(|why| format!("$ {line}: {why}\n{out}\n{err}"))?;
        if line.starts_with("kubewright init") {
            operators::lock(&self.folder);
        }
        Ok(())
    }

    /// What a step leaves behind is formatted, and its manifests are current.
    fn end_page(&mut self) {
        if let Some(dev) = self.dev.take() {
            let seen = dev.end();
            assert!(!seen.contains("error["), "{seen}");
            self.export.clear();
        }
        let formatted = Command::new("rustfmt")
            .args([
                "--check",
                "--edition",
                "2024",
                "src/lib.rs",
                "api/src/lib.rs",
                "tests/it/main.rs",
            ])
            .current_dir(&self.folder)
            .output()
            .unwrap();
        assert!(
            formatted.status.success(),
            "{}",
            String::from_utf8_lossy(&formatted.stdout)
        );
        if self.builds {
            operators::type_in("kubewright manifests --check", &self.folder);
        }
    }
}

fn await_lines(dev: &mut RunningDev, lines: &[String]) {
    for line in lines.iter().filter(|line| *line != "...") {
        // Several changes may be one cause.
        dev.until_line(line, |found| plain(found).starts_with(&plain(line)));
    }
}

fn steps() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/tutorial");
    let mut pages: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    pages.sort();
    assert_eq!(pages.len(), 8, "the tutorial has eight steps");
    pages
}

#[test]
fn a_reader_gets_from_the_first_page_to_the_last() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("website");
    fs::create_dir(&folder).unwrap();
    let builds = operators::are_built() && support::kubectl_is_there();
    // The last page deploys to a cluster that runs in another terminal.
    let cluster = RunningCluster::start(&[]);
    let mut reader = Reader {
        folder,
        builds,
        dev: None,
        export: String::new(),
    };
    for page in steps() {
        if page.ends_with("8-deploy.md") {
            fs::copy(cluster.kubeconfig(), reader.folder.join("kubeconfig")).unwrap();
        }
        for part in parts(&fs::read_to_string(&page).unwrap()) {
            reader
                .follow(part)
                .unwrap_or_else(|why| panic!("{}: {why}", page.display()));
        }
        reader.end_page();
    }
}

#[test]
fn blocks_are_read() {
    let page = "`a.rs`:\n\n```rust\nfn a() {}\n```\n\n```diff\n-b\n+c\n```\nIt is:\n\n`m.yaml` has:\n\n```yaml\nx: 1\n```\n\n```console\n$ one\nout\n$ two\n```\n";
    let text = |text: &str| text.to_owned();
    let expected = [
        Part::Write {
            file: text("a.rs"),
            text: text("fn a() {}\n"),
        },
        Part::Change {
            file: text("a.rs"),
            diff: text("-b\n+c\n"),
        },
        Part::Find {
            file: text("m.yaml"),
            text: text("x: 1\n"),
        },
        Part::Type {
            line: text("one"),
            output: vec![text("out")],
        },
        Part::Type {
            line: text("two"),
            output: Vec::new(),
        },
    ];
    assert_eq!(parts(page), expected);
}

#[test]
fn a_change_fits_in_one_place() {
    let text = "one\ntwo\n\nthree\ntwo\n";
    let check = |diff: &str, expected: Option<&str>| {
        assert_eq!(changed(text, diff).ok().as_deref(), expected, "{diff}");
    };
    check(" one\n-two\n+2\n", Some("one\n2\n\nthree\ntwo\n"));
    check(" two\n \n+2.5\n three\n", Some("one\ntwo\n\n2.5\nthree\ntwo\n"));
    check("-two\n+2\n", None);
    check("-four\n", None);
}

#[test]
fn output_is_compared_line_by_line() {
    let output = "test a ... ok in 1.25s\nport 127.0.0.1:4000\nend\n";
    let check = |expected: &str, same: bool| {
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        assert_eq!(compare(&expected, output).is_ok(), same, "{expected:?}");
    };
    check("test a ... ok in 7 ms\nport 127.0.0.1:1\nend", true);
    check("...\nend", true);
    check("test a ... ok in 1s\n...", true);
    check("...\nport 127.0.0.1:1", false);
    check("port 127.0.0.1:1\nend", false);
    check("test a ... ok in 1s\nport 127.0.0.1:1\nend\nmore", false);
    check("test b ... ok in 1s\n...", false);
}
