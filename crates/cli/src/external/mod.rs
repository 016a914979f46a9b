//! External plug-ins: programs that take part in `init`, `edit`, `create api` and `create webhook`, found, asked and
//! listened to.
//!
//! Which ones is said by `--plugins`, or by `layout` in PROJECT for all commands. [`Chain::prepare`] looks at the
//! arguments before they are read, because a plug-in has flags of its own, and adds those to the command.
//! [`Chain::run`] hands the plan to one program after the other; each sees the files that the ones before it wrote. As
//! with kubebuilder, external plug-ins that are named alone for `create` run instead of the layout, and after it when
//! its key is named, too. Not here: the protocol ([`kubewright_codegen::external`]); running a program (`process`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use kubewright_codegen::external::{Flag, Key, Request, Response};
use kubewright_codegen::project::{LAYOUT, Project};
use kubewright_codegen::{Diagnostic, Plan, codes, scaffold};

use crate::files::Disk;

mod process;

/// The commands that plug-ins take part in.
const COMMANDS: [&[&str]; 4] = [&["init"], &["edit"], &["create", "api"], &["create", "webhook"]];

/// Flags that are kubewright's alone, and whether a value follows.
const OURS: [(&str, bool); 11] = [
    ("--plugins", true),
    ("--output", true),
    ("-o", true),
    ("--color", true),
    ("--dry-run", false),
    ("--diff", false),
    ("--quiet", false),
    ("-q", false),
    ("--verbose", false),
    ("-v", false),
    ("-vv", false),
];

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
        let answer = process::run(&self.key, &self.path, Path::new("."), &asked, process::Stderr::Hidden).ok()?;
        Response::parse(&self.key, &answer).ok()
    }

    /// The description of a command in the help.
    fn help(&self, command: &str) -> String {
        let mut text = format!("Plug-in {}:\n", self.key.title());
        let answer = self.ask(command, "metadata");
        if let Some(metadata) = answer.as_ref().and_then(Response::metadata) {
            for lines in [&metadata.description, &metadata.examples] {
                text.extend(lines.lines().map(|line| format!("  {line}\n")));
            }
        }
        text
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
    /// Finds the plug-ins of a command line, and adds their flags to the command.
    pub(crate) fn prepare(typed: &[OsString], mut whole: Command) -> (Command, Chain) {
        let Some(line) = CommandLine::of(typed, &whole) else {
            return (whole, Chain::default());
        };
        let said = &line.keys;
        let keys = match (said, line.path) {
            (Some(keys), _) => keys.clone(),
            (None, ["init"]) => Vec::new(),
            (None, _) => Disk::here()
                .and_then(|disk| Project::load(&disk))
                .map_or_else(|_| Vec::new(), |project| project.layout),
        };
        let mut chain = Chain {
            command: line.path.join(" "),
            own: said.is_none() || keys.iter().any(|key| scaffold::is_own_plugin(key)),
            arguments: line.arguments(typed),
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
        for program in &mut chain.programs {
            // A program that does not list its flags gets all of them.
            let answer = program.ask(&chain.command, "flags");
            program.flags = answer.and_then(|answer| answer.flags().map(<[Flag]>::to_vec));
        }
        chain.add_flags(&mut whole, &line);
        (whole, chain)
    }

    /// Adds the flags of the programs to the command that was typed, and what it says to its help.
    fn add_flags(&self, whole: &mut Command, line: &CommandLine) {
        let Some(command) = at(whole, line.path) else { return };
        for program in &self.programs {
            let heading = format!("Flags of {}", program.key.title());
            let listed = program.flags.as_ref().map(|flags| flags.iter().map(listed).collect());
            let flags: Vec<Arg> = listed.unwrap_or_else(|| line.unknown.iter().map(|name| any(name)).collect());
            for flag in flags {
                let has = |known: &Arg| known.get_long() == flag.get_long();
                let is_known = ["help", "output", "color", "quiet", "verbose"]
                    .map(Some)
                    .contains(&flag.get_long());
                if !is_known && !command.get_arguments().any(has) {
                    change(command, |command| command.arg(flag.help_heading(heading.clone())));
                }
            }
        }
        if line.help {
            let texts: Vec<String> = self
                .programs
                .iter()
                .map(|program| program.help(&self.command))
                .collect();
            change(command, |command| command.after_help(texts.join("\n")));
        }
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
            let answer = process::run(&program.key, &program.path, root, &request, process::Stderr::Shown)?;
            Response::parse(&program.key, &answer)?.apply(&program.key, plan)?;
        }
        Ok(())
    }
}

/// Adds to an error about an unknown plugin where programs are looked for.
pub(crate) fn or_where(wrong: Diagnostic, keys: &[String]) -> Diagnostic {
    let is_unknown = |key: &&String| !scaffold::is_own_plugin(key) && Key::parse(key).is_some();
    match keys.iter().find(is_unknown) {
        Some(key) if wrong.code == codes::project::PLUGIN => {
            wrong.because(format!("and there is no program for {key} in {}", place()))
        }
        _ => wrong,
    }
}

/// Where programs are looked for, in words.
fn place() -> String {
    process::folder().map_or_else(|| "a home folder".to_owned(), |folder| folder.display().to_string())
}

/// What a command line says before the flags of plug-ins are known.
#[derive(Debug, PartialEq, Eq)]
struct CommandLine {
    /// The command.
    path: &'static [&'static str],
    /// The keys of `--plugins`.
    keys: Option<Vec<String>>,
    /// The names of flags that the command does not have.
    unknown: Vec<String>,
    /// Whether help is asked for.
    help: bool,
}

impl CommandLine {
    /// Reads a command line, with every flag that is not known as one that may have a value; `None`: no plug-in takes
    /// part.
    fn of(typed: &[OsString], whole: &Command) -> Option<CommandLine> {
        if !COMMANDS.iter().any(|path| typed.iter().any(|word| word == path[0])) {
            return None;
        }
        let help = Arg::new("help").short('h').long("help").action(ArgAction::SetTrue);
        let mut whole = whole.clone().disable_help_flag(true).arg(help.global(true));
        let mut unknown = Vec::new();
        let matches = loop {
            let wrong = match whole.clone().try_get_matches_from(typed) {
                Ok(matches) => break matches,
                Err(wrong) => wrong,
            };
            match unknown_flag(&wrong) {
                Some(name) if !unknown.contains(&name) => {
                    for path in COMMANDS {
                        if let Some(command) = at(&mut whole, path) {
                            change(command, |command| command.arg(any(&name)));
                        }
                    }
                    unknown.push(name);
                }
                // The error is told when the arguments are read.
                _ => break whole.ignore_errors(true).try_get_matches_from(typed).ok()?,
            }
        };
        let (mut path, mut leaf) = (Vec::new(), &matches);
        while let Some((name, below)) = leaf.subcommand() {
            path.push(name);
            leaf = below;
        }
        let path = COMMANDS.into_iter().find(|command| *command == path)?;
        let keys = leaf.try_get_many::<String>("plugins").ok()?;
        let trimmed = |key: &String| Some(key.trim().to_owned()).filter(|key| !key.is_empty());
        Some(CommandLine {
            path,
            keys: keys.map(|keys| keys.filter_map(trimmed).collect()),
            unknown,
            help: leaf.get_flag("help"),
        })
    }

    /// The arguments for plug-ins: all behind the command except those that only kubewright reads.
    fn arguments(&self, typed: &[OsString]) -> Vec<String> {
        let mut words = typed.iter().map(|word| word.to_string_lossy().into_owned());
        for name in self.path {
            words.find(|word| word == name);
        }
        let mut found = Vec::new();
        while let Some(word) = words.next() {
            let (name, has_value) = word.split_once('=').map_or((&*word, false), |(name, _)| (name, true));
            match OURS.iter().find(|(ours, _)| *ours == name) {
                Some((_, true)) if !has_value => drop(words.next()),
                Some(_) => {}
                None => found.push(word),
            }
        }
        found
    }
}

/// The name of the flag that clap does not know.
fn unknown_flag(wrong: &clap::Error) -> Option<String> {
    match wrong.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if wrong.kind() == ErrorKind::UnknownArgument => {
            flag.strip_prefix("--").map(str::to_owned)
        }
        _ => None,
    }
}

/// The command at a path.
fn at<'c>(whole: &'c mut Command, path: &[&str]) -> Option<&'c mut Command> {
    path.iter()
        .try_fold(whole, |command, name| command.find_subcommand_mut(name))
}

fn change(command: &mut Command, change: impl FnOnce(Command) -> Command) {
    *command = change(std::mem::take(command));
}

/// A flag that a plug-in lists.
fn listed(flag: &Flag) -> Arg {
    let found = any(&flag.name).help(flag.usage.clone()).hide(false);
    let found = found.value_name(flag.kind.to_uppercase());
    if flag.kind == "bool" {
        found.require_equals(true)
    } else {
        found.num_args(1).allow_hyphen_values(true)
    }
}

/// A flag of which nothing is known: what follows is its value, unless it is a flag.
fn any(name: &str) -> Arg {
    // No argument of kubewright has an identifier with dashes in front.
    Arg::new(format!("--{name}"))
        .long(name.to_owned())
        .num_args(0..=1)
        .action(ArgAction::Append)
        .hide(true)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        let words = line.split_whitespace().map(OsString::from);
        std::iter::once("kubewright".into()).chain(words).collect()
    }

    #[test]
    fn the_command_and_its_keys_are_found_between_flags() {
        let check = |typed: &str, expected: Option<(&str, Option<&str>, &str)>| {
            let line = CommandLine::of(&words(typed), &crate::Arguments::command());
            let line = line.map(|line| {
                (
                    line.path.join(" "),
                    line.keys.map(|keys| keys.join(",")),
                    line.unknown.join(","),
                )
            });
            let expected =
                expected.map(|(path, keys, unknown)| (path.to_owned(), keys.map(str::to_owned), unknown.to_owned()));
            assert_eq!(line, expected, "{typed}");
        };
        check("init --plugins a/v1", Some(("init", Some("a/v1"), "")));
        check("--output json create api --group g", Some(("create api", None, "")));
        check(
            "create --output=json webhook --slow y --plugins=a/v1,b/v1 --fast --plugins c/v1 --version v1",
            Some(("create webhook", Some("a/v1,b/v1,c/v1"), "slow,fast")),
        );
        check("edit --plugins a/v1 --help", Some(("edit", Some("a/v1"), "")));
        check("edit --multigroup=maybe --plugins a/v1", Some(("edit", None, "")));
        check("deploy --plugins a/v1", None);
        check("create", None);
        check("", None);
    }

    #[test]
    fn each_gets_its_flags() {
        let check = |flags: Option<&[(&str, &str)]>, typed: &str, given: &str, refused: Option<&str>| {
            let flag = |(name, kind): &(&str, &str)| Flag {
                name: (*name).to_owned(),
                kind: (*kind).to_owned(),
                ..Flag::default()
            };
            let program = Program {
                key: Key::parse("sample/v1").unwrap(),
                path: PathBuf::new(),
                flags: flags.map(|flags| flags.iter().map(flag).collect()),
            };
            let chain = Chain {
                programs: vec![program],
                ..Chain::default()
            };
            let typed = words(&format!("create api {typed}"));
            let mut whole = crate::Arguments::command();
            let line = CommandLine::of(&typed, &whole).unwrap();
            assert_eq!(line.arguments(&typed).join(" "), given);
            chain.add_flags(&mut whole, &line);
            let wrong = whole.try_get_matches_from(&typed).err();
            assert_eq!(
                wrong.as_ref().and_then(unknown_flag).as_deref(),
                refused,
                "{given}: {wrong:?}"
            );
            assert!(wrong.is_none() || refused.is_some(), "{given}: {wrong:?}");
        };
        let declared: &[(&str, &str)] = &[("namespace", "string"), ("fast", "bool"), ("plural", "string")];
        let kind = "--group g --version v1 --kind K";
        check(
            Some(declared),
            &format!("{kind} --plugins sample/v1 --namespace -x --fast --plural ks --dry-run"),
            &format!("{kind} --namespace -x --fast --plural ks"),
            None,
        );
        check(
            Some(declared),
            &format!("--namespace=x --fast=false {kind} --slow y"),
            &format!("--namespace=x --fast=false {kind} --slow y"),
            Some("slow"),
        );
        check(
            None,
            &format!("--slow y --fast --output json {kind}"),
            &format!("--slow y --fast {kind}"),
            None,
        );
    }
}
