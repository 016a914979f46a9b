//! The groups of `kubewright --help`: what somebody looks for stands together.
//!
//! clap lists commands in one column, so the list is written here, from the commands as they are; a command that no
//! group names is listed under the last one.

use clap::Command;
use clap::builder::StyledStr;

/// The groups, with their commands in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Project",
        &["init", "create", "edit", "delete", "upgrade", "migrate", "alpha"],
    ),
    (
        "Develop",
        &[
            "manifests",
            "dev",
            "run",
            "test",
            "explore",
            "ansible-operator",
            "helm-operator",
        ],
    ),
    (
        "Deploy",
        &[
            "install",
            "uninstall",
            "deploy",
            "undeploy",
            "status",
            "build-installer",
            "bundle",
        ],
    ),
    ("Cluster", &["cluster", "controllers", "log", "assets", "demo"]),
    ("Help", &["doctor", "explain", "completion", "version", "help"]),
];

/// The command, with its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let template = template(&command);
    command.help_template(template)
}

fn template(command: &Command) -> StyledStr {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let mut text = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, commands) in listed(command) {
        text.push_str(&format!("\n{header}{group}:{header:#}\n"));
        for (name, about) in commands {
            let padding = " ".repeat(WIDTH.saturating_sub(name.len()));
            text.push_str(&format!("  {literal}{name}{literal:#}{padding}  {about}\n"));
        }
    }
    text.push_str(&format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}"));
    StyledStr::from(text)
}

/// Columns of the names.
const WIDTH: usize = 16;

/// The groups that have commands, each command with its description.
fn listed(command: &Command) -> Vec<(&'static str, Vec<(String, String)>)> {
    let mut groups: Vec<(&str, Vec<(String, String)>)> = Vec::new();
    let about = |name: &str| match command.find_subcommand(name) {
        Some(found) if !found.is_hide_set() => Some(found.get_about().map(ToString::to_string).unwrap_or_default()),
        Some(_) => None,
        // clap adds it when it parses.
        None => (name == "help").then(|| "Print help for a command".to_owned()),
    };
    for (group, names) in GROUPS {
        let found = names.iter().filter_map(|name| Some(((*name).to_owned(), about(name)?)));
        groups.push((group, found.collect()));
    }
    let is_listed = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = command
        .get_subcommands()
        .map(Command::get_name)
        .filter(|name| !is_listed(name));
    if let Some((_, last)) = groups.last_mut() {
        last.extend(others.filter_map(|name| Some((name.to_owned(), about(name)?))));
    }
    groups.retain(|(_, commands)| !commands.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::Arguments::command();
        let listed: Vec<String> = listed(&command)
            .into_iter()
            .flat_map(|(_, commands)| commands.into_iter().map(|(name, _)| name))
            .collect();
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let count = listed.iter().filter(|name| *name == command.get_name()).count();
            assert_eq!(count, 1, "{}", command.get_name());
            assert!(command.get_name().len() <= WIDTH, "{}", command.get_name());
            assert!(
                command.get_about().is_some(),
                "{} has no description",
                command.get_name()
            );
        }
    }

    /// Operators in other languages take the flags of the programs that they stand for.
    fn has_flags_of_others(command: &Command) -> bool {
        command.get_name().ends_with("-operator")
    }

    #[test]
    fn a_short_flag_has_one_meaning() {
        let mut known = std::collections::BTreeMap::new();
        let mut commands = vec![crate::Arguments::command()];
        while let Some(command) = commands.pop() {
            if has_flags_of_others(&command) {
                continue;
            }
            for argument in command.get_arguments() {
                let (Some(short), Some(long)) = (argument.get_short(), argument.get_long()) else {
                    continue;
                };
                let first = known.entry(short).or_insert_with(|| long.to_owned());
                assert_eq!(first, long, "-{short} of {}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
        for (short, long) in [
            ('n', "namespace"),
            ('o', "output"),
            ('q', "quiet"),
            ('v', "verbose"),
            ('y', "yes"),
        ] {
            assert_eq!(known.get(&short).map(String::as_str), Some(long));
        }
    }

    #[test]
    fn flags_mean_the_same_everywhere() {
        let mut commands = vec![crate::Arguments::command()];
        let mut seen = std::collections::BTreeMap::<&str, std::collections::BTreeSet<String>>::new();
        while let Some(command) = commands.pop() {
            if has_flags_of_others(&command) {
                continue;
            }
            for flag in ["dry-run", "diff", "check", "kubeconfig", "context", "release", "yes"] {
                let found = command
                    .get_arguments()
                    .find(|argument| argument.get_long() == Some(flag));
                if let Some(help) = found.and_then(|argument| argument.get_help()) {
                    let first = help.to_string();
                    let first = first
                        .split(['[', ';', ':'])
                        .next()
                        .unwrap_or_default()
                        .trim()
                        .to_owned();
                    seen.entry(flag).or_default().insert(first);
                }
            }
            commands.extend(command.get_subcommands().cloned());
        }
        for (flag, meanings) in seen {
            // A cluster that the command starts writes a kubeconfig; `dev` can do both.
            let most = if flag == "kubeconfig" { 3 } else { 1 };
            assert!(meanings.len() <= most, "--{flag}: {meanings:?}");
        }
    }
}
