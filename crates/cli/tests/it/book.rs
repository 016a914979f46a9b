//! The pages of the book agree with the command: every `console` block of `docs/src/commands` is typed and compared.
//!
//! A line `$ kubewright …` is run in a project; the lines below it are its output (standard output, then standard
//! error), compared by snapbox: `[..]` stands for any text within a line, a line `...` for any lines. A command that
//! runs until Ctrl-C gets it when all lines were seen, in this order.
//!
//! The pages of the reference (flags, error codes) are written out of the program: `KUBEWRIGHT_UPDATE_BOOK=1` renews
//! them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use snapbox::filter::NormalizeToExpected;
use snapbox::{Assert, Data};

use crate::support;
use crate::support::project::{Project, REMOTE_KUBECONFIG, deployable};

/// Commands of the blocks, each with the lines that are expected.
fn blocks(page: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line != "```console" {
            continue;
        }
        for line in lines.by_ref().take_while(|line| *line != "```") {
            match line.strip_prefix("$ kubewright") {
                Some(typed) => {
                    blocks.push((typed.split_whitespace().map(str::to_owned).collect(), Vec::new()));
                }
                None => blocks
                    .last_mut()
                    .expect("a block begins with a command")
                    .1
                    .push(line.to_owned()),
            }
        }
    }
    blocks
}

/// Whether a line matches the expected one.
fn fits(expected: &str, line: &str) -> bool {
    let expected = Data::text(expected);
    NormalizeToExpected::new()
        .redact()
        .normalize(Data::text(line), &expected)
        == expected
}

/// A project as the pages assume it: called guestbook, with a kubeconfig of a cluster far away.
fn project() -> Project {
    let project = Project::new();
    project.write("prod.yaml", REMOTE_KUBECONFIG);
    project.source(
        "the operator",
        r####"
    writeln!(socket, "{}", r##"{"observed":{"reconcileStarted":{"controller":"guestbook","request":{"namespace":"default","name":"hello"},"reconcileId":1,"causes":[{"kind":"created","object":{"apiVersion":"webapp.my.domain/v1","kind":"Guestbook","namespace":"default","name":"hello"}}],"ready":0,"delayed":0}}}"##).unwrap();
    writeln!(socket, "{}", r##"{"observed":{"written":{"controller":"guestbook","verb":"patch","object":{"apiVersion":"apps/v1","kind":"Deployment","namespace":"default","name":"hello"},"subresource":null,"changes":[{"path":"spec.replicas","before":1,"after":3}]}}}"##).unwrap();
"####,
    );
    project
}

fn check_long(project: &Project, arguments: &[&str], expected: &[String]) {
    // The live screen is for terminals.
    let plain: &[&str] = if arguments == ["dev"] { &["--plain"] } else { &[] };
    let mut process = project
        .command(&[arguments, plain].concat())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = process.stdout.take().unwrap();
    let (send, printed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            // A test that failed reads no more.
            let _ = send.send(line);
        }
    });
    let end = Instant::now() + Duration::from_secs(90);
    let mut seen = Vec::new();
    for line in expected {
        loop {
            let Ok(found) = printed.recv_timeout(end.saturating_duration_since(Instant::now())) else {
                let _ = process.kill();
                panic!("{arguments:?} never said\n{line}\nafter\n{}", seen.join("\n"));
            };
            seen.push(found);
            if fits(line, &seen[seen.len() - 1]) {
                break;
            }
        }
    }
    let sent = Command::new("kill").args(["-INT", &process.id().to_string()]).status();
    assert!(sent.unwrap().success() && process.wait().unwrap().success());
}

#[test]
fn pages_say_what_the_command_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/commands");
    let mine = [
        "dev",
        "run",
        "doctor",
        "explain",
        "completion",
        "cluster",
        "demo",
        "version",
        "assets",
        "nodes",
        "processes",
    ];
    let pages = mine.iter().map(|name| folder.join(format!("{name}.md")));
    // These are about more than one command.
    let pages: Vec<PathBuf> = pages
        .chain([folder.join("../manifests.md"), folder.join("../guides/versions.md")])
        .collect();
    let cluster = support::RunningCluster::start(&[]);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = blocks(&text);
        assert!(!blocks.is_empty(), "{} shows nothing", page.display());
        let project = project();
        fs::copy(cluster.kubeconfig(), project.path().join("cluster.yaml")).unwrap();
        for (arguments, expected) in blocks {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if arguments == ["dev"] || arguments.first() == Some(&"cluster") {
                check_long(&project, &arguments, &expected);
                continue;
            }
            check_page(&page, &arguments, &expected, project.command(&arguments));
        }
    }
}

fn check_page(page: &Path, arguments: &[&str], expected: &[String], mut command: Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    // Cargo says where it waits for another cargo, and colors nothing here.
    // On a busy machine a step may take long enough for a line about it.
    let lines: Vec<&str> = out
        .lines()
        .chain(err.lines())
        .filter(|line| !line.contains("Blocking") && !line.starts_with('…'))
        .collect();
    let place = format!("{}: kubewright {}", page.display(), arguments.join(" "));
    let compared = Assert::new().normalize_paths(false).try_eq(
        Some(&place),
        Data::text(lines.join("\n")),
        Data::text(expected.join("\n")),
    );
    compared.unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// The pages that begin in an empty folder called guestbook.
#[test]
fn pages_about_scaffolding_say_what_the_command_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/commands");
    for name in [
        "init",
        "create",
        "edit",
        "delete",
        "plugins",
        "build-installer",
        "bundle",
        "upgrade",
        "alpha",
    ] {
        let page = folder.join(format!("{name}.md"));
        let blocks = blocks(&fs::read_to_string(&page).unwrap());
        assert!(!blocks.is_empty(), "{} shows nothing", page.display());
        let place = tempfile::tempdir().unwrap();
        let project = place.path().join("guestbook");
        fs::create_dir(&project).unwrap();
        for (arguments, expected) in blocks {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
            command
                .current_dir(&project)
                .args(&arguments)
                .env_remove("EXTERNAL_PLUGINS_PATH")
                .env_remove("KUBEWRIGHT_PATH");
            if arguments.contains(&"--image") {
                generated(&project);
            }
            check_page(&page, &arguments, &expected, command);
        }
    }
}

/// The pages about clusters begin in a project whose generated files are there.
#[test]
fn pages_about_clusters_say_what_the_command_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/commands");
    let cluster = support::RunningCluster::start(&[]);
    for name in ["install", "deploy"] {
        let page = folder.join(format!("{name}.md"));
        let blocks = blocks(&fs::read_to_string(&page).unwrap());
        assert!(!blocks.is_empty(), "{} shows nothing", page.display());
        let project = deployable(false);
        fs::copy(cluster.kubeconfig(), project.path().join("cluster.yaml")).unwrap();
        for (arguments, expected) in blocks {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut command = Command::new(support::KUBEWRIGHT);
            command
                .current_dir(project.path())
                .args(&arguments)
                .env_remove("IMG")
                .env_remove("KUBECONFIG");
            check_page(&page, &arguments, &expected, command);
        }
    }
}

/// The files that `manifests` would have written, in the project of a page that goes on without it.
fn generated(project: &Path) {
    let generated = deployable(false);
    for file in [
        "config/rbac/role.yaml",
        "config/crd/bases/webapp.my.domain_guestbooks.yaml",
    ] {
        let target = project.join(file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(generated.path().join(file), target).unwrap();
    }
}

#[test]
fn every_command_has_a_page() {
    let summary = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/SUMMARY.md")).unwrap();
    let titles: Vec<&str> = summary
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- [")?.split_once(']'))
        .flat_map(|(titles, _)| titles.split(", "))
        .collect();
    let help = Command::new(support::KUBEWRIGHT).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands: Vec<&str> = listed(&help).collect();
    assert!(commands.contains(&"init"), "{help}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        assert!(titles.contains(&command), "there is no page about {command}");
    }
}

#[test]
fn the_table_of_mistakes_names_codes_that_exist() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/mistakes.md");
    let text = fs::read_to_string(page).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| mistake"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 15, "the fifteen and more");
    let project = Project::new();
    for row in rows {
        let (who, code) = (row[2], row[3]);
        assert_eq!(code.is_empty(), who.starts_with("nothing yet"), "{row:?}");
        if !code.is_empty() {
            let output = project.command(&["explain", code]).output().unwrap();
            assert!(
                output.status.success(),
                "{row:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

/// Compares a page that is made out of the program, or renews it.
pub(crate) fn check_made(name: &str, made: &str, compared: fn(&str) -> String) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src").join(name);
    if std::env::var_os("KUBEWRIGHT_UPDATE_BOOK").is_some() {
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        fs::write(&page, made).unwrap();
    }
    assert!(
        fs::read_to_string(&page).is_ok_and(|present| compared(&present) == compared(made)),
        "docs/src/{name} is not what the program says: KUBEWRIGHT_UPDATE_BOOK=1 cargo test -p kubewright-cli --test it book::the_pages_made"
    );
}

/// Options that every command has; the page about all commands shows them.
const GLOBAL: [&str; 5] = [
    "  -o, --output <FORMAT>",
    "      --color <WHEN>",
    "  -q, --quiet",
    "  -v, --verbose",
    "  -h, --help",
];

/// The lines of a help without the options that every command has.
fn without_global(help: &str) -> Vec<&str> {
    let mut is_left_out = false;
    let lines = help.lines().map(str::trim_end).filter(|line| {
        let is_option = line.starts_with("  -") || line.starts_with("      --");
        is_left_out = match is_option {
            true => GLOBAL.iter().any(|option| line.starts_with(option)),
            // What a flag means may be on the lines below it.
            false => is_left_out && line.starts_with("          "),
        };
        !is_left_out
    });
    lines.collect()
}

/// The commands that a help lists: in a column under headings.
fn listed(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
}

/// The help for a command, and for the commands below it.
fn help_of(command: &[&str], page: &mut String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubewright"))
        .args(command)
        .arg("-h")
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // `[=<BOOL>]` says it.
    let lines = without_global(&text)
        .join("\n")
        .replace(" [possible values: true, false]", "");
    page.push_str(&format!(
        "\n## kubewright {}\n\n```text\n{}\n```\n",
        command.join(" "),
        lines.trim_end().trim_end_matches("Options:").trim_end()
    ));
    if let Some((_, commands)) = lines.split_once("Commands:\n") {
        for name in listed(commands).filter(|name| *name != "help") {
            help_of(&[command, &[name]].concat(), page);
        }
    }
}

#[test]
fn the_pages_made_out_of_the_program_are_current() {
    // One page a command, beside the book: nobody reads them from the first to the last.
    let help = Command::new(support::KUBEWRIGHT).arg("-h").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let folder = "../commands";
    let mut index = format!(
        "# Flags of all commands\n\nAs `kubewright COMMAND -h` prints them; `--help` says more. [The book](../src/commands.md) says what the commands have in common.\n\n```text\n{}\n```\n\n",
        help.trim_end()
    );
    let mut names: Vec<&str> = listed(&help).filter(|name| *name != "help").collect();
    for name in &names {
        let mut page = format!("# kubewright {name}\n");
        help_of(&[name], &mut page);
        check_made(&format!("{folder}/{name}.md"), &page, str::to_owned);
    }
    names.sort_unstable();
    for name in &names {
        index.push_str(&format!("* [{name}]({name}.md)\n"));
    }
    check_made(&format!("{folder}/README.md"), &index, str::to_owned);
    let present = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands")).unwrap();
    assert_eq!(
        present.count(),
        names.len() + 1,
        "docs/commands has a page of no command"
    );

    let mut codes = "# Error codes\n\nAn error of the command, and many of the library, carry a code such as `[KWR0726]`. `kubewright explain KWR0726` says what causes it, and what to do.\n\n| code | |\n|---|---|\n".to_owned();
    for explanation in kubewright_codegen::codes::all() {
        codes.push_str(&format!("| {} | {} |\n", explanation.code, explanation.title));
    }
    check_made("codes.md", &codes, str::to_owned);
}
