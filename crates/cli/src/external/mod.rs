//! External plug-ins: programs that take part in `init`, `edit`, `create api` and `create webhook`, found, asked and
//! listened to.
//!
//! Which ones is said by `--plugins`, or by `layout` in PROJECT for all commands. [`Chain::prepare`] looks before the
//! arguments are read, because a plug-in has flags of its own: they are taken out, and the rest is kubewright's.
//! [`Chain::run`] hands the plan to one program after the other; each sees the files that the ones before it wrote. As
//! with kubebuilder, external plug-ins that are named alone for `create` run instead of the layout, and after it when
//! its key is named, too. Not here: the protocol ([`kubewright_codegen::external`]); running a program (`process`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory};
use kubewright_codegen::external::{Flag, Key, Request, Response};
use kubewright_codegen::project::{LAYOUT, Project};
use kubewright_codegen::{Diagnostic, Plan, codes, scaffold};

use crate::files::Disk;

mod process;

/// The commands that plug-ins take part in.
const COMMANDS: [&[&str]; 4] = [&["init"], &["edit"], &["create", "api"], &["create", "webhook"]];

/// Flags that are kubewright's alone, and whether a value follows.
const OURS: [(&str, bool); 4] = [("plugins", true), ("output", true), ("dry-run", false), ("diff", false)];

/// A program that takes part.
#[derive(Clone, Debug)]
struct Program {
    key: Key,
    path: PathBuf,
    /// The flags that it takes, when it says.
    flags: Option<Vec<Flag>>,
}

impl Program {
    /// Asks about a command: `flags` or `metadata`. None when the program does not know it; its errors are reported
    /// when it runs.
    fn ask(&self, command: &str, what: &str) -> Option<Response> {
        let asked = Request::about(command, what);
        let answer = process::run(&self.key, &self.path, Path::new("."), &asked, process::Words::Hidden).ok()?;
        Response::parse(&self.key, &answer).ok()
    }
}

/// The external plug-ins of one command, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    command: String,
    programs: Vec<Program>,
    /// Plug-ins that are named and not installed.
    missing: Vec<Key>,
    /// The keys of all plug-ins, kubewright's own included.
    keys: Vec<String>,
    /// The arguments of the programs.
    arguments: Vec<String>,
    /// Whether kubewright's own scaffold runs, too.
    own: bool,
}

impl Chain {
    /// Finds the plug-ins of a command line, and takes their flags out of it.
    pub(crate) fn prepare(typed: Vec<OsString>) -> (Vec<OsString>, Chain) {
        // An argument that is not text is refused by the reader of the arguments.
        let arguments: Option<Vec<String>> = typed.iter().map(|word| word.to_str().map(str::to_owned)).collect();
        let arguments = arguments.unwrap_or_default();
        let Some((command, rest)) = command_of(&arguments) else {
            return (typed, Chain::default());
        };
        let said = said_keys(&arguments[rest..]);
        let keys = match (&said, command.as_str()) {
            (Some(keys), _) => keys.clone(),
            (None, "init") => Vec::new(),
            (None, _) => Disk::here()
                .and_then(|disk| Project::load(&disk))
                .map_or_else(|_| Vec::new(), |project| project.layout),
        };
        let mut chain = Chain {
            command,
            own: said.is_none() || keys.iter().any(|key| scaffold::is_own_plugin(key)),
            keys,
            ..Chain::default()
        };
        for key in chain.keys.iter().filter(|key| !scaffold::is_own_plugin(key)) {
            let Some(key) = Key::parse(key) else { continue };
            match process::find(&key) {
                Some(path) => chain.programs.push(Program { key, path, flags: None }),
                None => chain.missing.push(key),
            }
        }
        if chain.programs.is_empty() {
            return (typed, chain);
        }
        for program in &mut chain.programs {
            // A program that does not list its flags gets all of them.
            let answer = program.ask(&chain.command, "flags");
            program.flags = answer.and_then(|answer| answer.flags().map(<[Flag]>::to_vec));
        }
        chain.arguments = theirs(&arguments[rest..]);
        let known = known_flags(&chain.command);
        let left = chain.without_theirs(&arguments[rest..], &known);
        let left = typed.into_iter().take(rest).chain(left.into_iter().map(OsString::from));
        (left.collect(), chain)
    }

    /// Whether kubewright's own scaffold runs. A new project always has it.
    pub(crate) fn runs_own(&self) -> bool {
        self.own || self.programs.is_empty() || self.command == "init" || self.command == "edit"
    }

    /// Of these keys, those that no program has: kubewright's own and unknown ones, for the scaffold.
    pub(crate) fn own_keys(&self, keys: Vec<String>) -> Vec<String> {
        let is_program = |key: &String| self.programs.iter().any(|program| program.key.title() == *key);
        keys.into_iter().filter(|key| !is_program(key)).collect()
    }

    /// The keys of the programs, for PROJECT.
    pub(crate) fn titles(&self) -> Vec<String> {
        self.programs.iter().map(|program| program.key.title()).collect()
    }

    /// Lets each program add to the plan.
    ///
    /// # Errors
    /// When one fails, takes too long, or gives an answer that cannot be taken. The plan is not to be carried out then.
    pub(crate) fn run(&self, root: &Path, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
        if let Some(key) = self.missing.first() {
            return Err(
                Diagnostic::new(codes::project::EXTERNAL, "cannot run all plug-ins of the project")
                    .because(format!("there is no program for {} in {}", key.title(), place()))
                    .fix("install it there, or take it out of --plugins and of layout in PROJECT"),
            );
        }
        let mut keys: Vec<String> = self.keys.clone();
        if self.runs_own() && !keys.iter().any(|key| scaffold::is_layout(key)) {
            keys.insert(0, LAYOUT.to_owned());
        }
        // A folder that is about to be made has nothing to stand in.
        let root = if root.is_dir() { root } else { Path::new(".") };
        for program in &self.programs {
            let request = Request::of(&self.command, &self.arguments, &keys, plan)?;
            let answer = process::run(&program.key, &program.path, root, &request, process::Words::Shown)?;
            Response::parse(&program.key, &answer)?.apply(&program.key, plan)?;
        }
        Ok(())
    }

    /// The help for the named plug-ins.
    pub(crate) fn help(&self) -> String {
        let mut text = String::new();
        for program in &self.programs {
            let answer = program.ask(&self.command, "metadata");
            text += &format!("\nPlug-in {}:\n", program.key.title());
            if let Some(metadata) = answer.as_ref().and_then(Response::metadata) {
                for lines in [&metadata.description, &metadata.examples] {
                    text.extend(lines.lines().map(|line| format!("  {line}\n")));
                }
            }
            for flag in program.flags.iter().flatten() {
                text += &format!("      --{} <{}>  {}\n", flag.name, flag.kind.to_uppercase(), flag.usage);
            }
        }
        text
    }

    /// The arguments that are kubewright's: without flags that only a plug-in knows.
    fn without_theirs(&self, arguments: &[String], known: &[String]) -> Vec<String> {
        let mut left = Vec::new();
        let mut at = arguments.iter().peekable();
        while let Some(argument) = at.next() {
            let name = argument.strip_prefix("--").unwrap_or_default();
            let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
            let mut declared = self.programs.iter().flat_map(|program| program.flags.iter().flatten());
            let flag = declared.find(|flag| flag.name == name);
            let takes_all = self.programs.iter().any(|program| program.flags.is_none());
            if name.is_empty() || known.iter().any(|known| known == name) || (flag.is_none() && !takes_all) {
                left.push(argument.clone());
                continue;
            }
            let is_switch = flag.is_some_and(|flag| flag.kind == "bool");
            let value_follows = at.peek().is_some_and(|next| !next.starts_with("--"));
            if !has_value && !is_switch && value_follows {
                at.next();
            }
        }
        left
    }
}

/// Adds to an error about an unknown plugin where programs are looked for.
pub(crate) fn or_where(wrong: Diagnostic, keys: &[String]) -> Diagnostic {
    let is_unknown = |key: &&String| !scaffold::is_own_plugin(key) && Key::parse(key).is_some();
    match keys.iter().find(is_unknown) {
        Some(key) if wrong.code == codes::project::PLUGIN => {
            wrong.because(format!("nor is there a program for {key} in {}", place()))
        }
        _ => wrong,
    }
}

/// Where programs are looked for, in words.
fn place() -> String {
    process::folder().map_or_else(|| "a home folder".to_owned(), |folder| folder.display().to_string())
}

/// The command of a command line, and where its own arguments begin.
fn command_of(arguments: &[String]) -> Option<(String, usize)> {
    let mut words = Vec::new();
    let mut at = 1;
    while let Some(argument) = arguments.get(at) {
        at += 1;
        if argument == "--output" {
            at += 1;
            continue;
        }
        if argument.starts_with('-') {
            continue;
        }
        words.push(argument.as_str());
        if COMMANDS.contains(&words.as_slice()) {
            return Some((words.join(" "), at));
        }
        if words.len() > 1 {
            return None;
        }
    }
    None
}

/// The keys of `--plugins`.
fn said_keys(arguments: &[String]) -> Option<Vec<String>> {
    let mut found: Option<Vec<String>> = None;
    for (at, argument) in arguments.iter().enumerate() {
        let value = match argument.strip_prefix("--plugins") {
            Some("") => arguments.get(at + 1).map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        if let Some(value) = value {
            let keys = value.split(',').map(|key| key.trim().to_owned());
            found.get_or_insert_default().extend(keys.filter(|key| !key.is_empty()));
        }
    }
    found
}

/// The arguments for plug-ins: all except those that only kubewright reads.
fn theirs(arguments: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = arguments.iter();
    while let Some(argument) = at.next() {
        let name = argument.strip_prefix("--").unwrap_or_default();
        let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
        match OURS.iter().find(|(ours, _)| *ours == name) {
            Some((_, true)) if !has_value => drop(at.next()),
            Some(_) => {}
            None => found.push(argument.clone()),
        }
    }
    found
}

/// The flags that kubewright's own command takes.
fn known_flags(command: &str) -> Vec<String> {
    let whole = crate::Arguments::command();
    let mut found = &whole;
    for word in command.split(' ') {
        found = found.find_subcommand(word).unwrap_or(found);
    }
    let own = found.get_arguments().chain(whole.get_arguments());
    let named = own.filter(|argument| !matches!(argument.get_action(), ArgAction::Help));
    let mut names: Vec<String> = named
        .filter_map(|argument| argument.get_long().map(str::to_owned))
        .collect();
    names.push("help".to_owned());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_command_is_found_between_flags() {
        for (line, expected) in [
            ("kubewright init --plugins a/v1", Some(("init", 2))),
            ("kubewright --output json create api --group g", Some(("create api", 5))),
            ("kubewright create --output=json webhook", Some(("create webhook", 4))),
            ("kubewright deploy --plugins a/v1", None),
            ("kubewright create", None),
            ("kubewright", None),
        ] {
            let found = command_of(&words(line));
            let found = found.as_ref().map(|(command, at)| (command.as_str(), *at));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn each_gets_its_flags() {
        let program = |flags: Option<&[(&str, &str)]>| Program {
            key: Key::parse("sample/v1").unwrap(),
            path: PathBuf::new(),
            flags: flags.map(|flags| {
                let flag = |(name, kind): &(&str, &str)| Flag {
                    name: (*name).to_owned(),
                    kind: (*kind).to_owned(),
                    ..Flag::default()
                };
                flags.iter().map(flag).collect()
            }),
        };
        let known = known_flags("create api");
        let check = |flags: Option<&[(&str, &str)]>, typed: &str, left: &str, given: &str| {
            let chain = Chain {
                programs: vec![program(flags)],
                ..Chain::default()
            };
            assert_eq!(chain.without_theirs(&words(typed), &known).join(" "), left, "{typed}");
            assert_eq!(theirs(&words(typed)).join(" "), given, "{typed}");
        };
        let declared: &[(&str, &str)] = &[("namespace", "string"), ("fast", "bool")];
        check(
            Some(declared),
            "--group g --plugins sample/v1 --namespace x --fast --kind K --dry-run",
            "--group g --plugins sample/v1 --kind K --dry-run",
            "--group g --namespace x --fast --kind K",
        );
        check(
            Some(declared),
            "--namespace=x --slow y",
            "--slow y",
            "--namespace=x --slow y",
        );
        check(
            None,
            "--slow y --fast --output json --kind K",
            "--output json --kind K",
            "--slow y --fast --kind K",
        );
    }
}
