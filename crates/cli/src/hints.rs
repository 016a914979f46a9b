//! Words of older tutorials that clap refuses, and what to type instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What was typed (a command, perhaps with a flag), and what to do now.
const OLD: [(&str, &str); 9] = [
    (
        "alpha webhook",
        "kubewright create webhook --group … --version … --kind …, with --defaulting or --programmatic-validation",
    ),
    (
        "create webhook --type",
        "--defaulting for a mutating webhook, --programmatic-validation for a validating one",
    ),
    (
        "create webhook --operations",
        "name the operations in the code: .mutating(|webhook| webhook.operations([…]))",
    ),
    ("create api --example", "leave it out: every API has a sample"),
    ("create api --pattern", "leave it out: there is one pattern"),
    ("init --dep", "leave it out: dependencies are in Cargo.toml"),
    (
        "init --component-config",
        "leave it out: settings are flags of the operator",
    ),
    ("init --repo-path", "--repo"),
    (
        "generate all",
        "kubewright manifests; what is not a manifest is written by derives at compile time",
    ),
];

/// What to type instead of the word that clap refused.
pub(crate) fn instead(wrong: &clap::Error, typed: &[String]) -> Option<&'static str> {
    let refused = match wrong.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return None,
    };
    let Some(ContextValue::String(refused)) = wrong.get(refused) else {
        return None;
    };
    let command = typed
        .iter()
        .take(2)
        .take_while(|word| !word.starts_with('-') && *word != refused);
    let words: Vec<&str> = command.chain([refused]).map(String::as_str).collect();
    let words = words.join(" ");
    OLD.iter().find(|(old, _)| *old == words).map(|(_, now)| *now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_words_get_the_present_ones_and_only_where_they_were_used() {
        use clap::CommandFactory as _;
        let told = |line: &str| {
            let typed: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let words = std::iter::once("kubewright").chain(line.split_whitespace());
            let wrong = crate::Arguments::command().try_get_matches_from(words);
            let instead = wrong.err().and_then(|wrong| instead(&wrong, &typed));
            format!("{line}\n  {}", instead.unwrap_or("-"))
        };
        let told = [
            "alpha webhook --group g --type=mutating --operations=create",
            "create webhook --group g --version v1 --kind K --type=validating",
            "create webhook --group g --version v1 --kind K --operations=create",
            "create api --group g --version v1 --kind K --example",
            "init --dep",
            "init --repo-path=x",
            "generate all",
            "alpha update",
            "deploy --type=x",
            "install --namespace x",
            "bundle --example",
            "create api --group g --version v1 --kind K --namespaced=false",
        ]
        .map(told);
        insta::assert_snapshot!(told.join("\n"), @r"
        alpha webhook --group g --type=mutating --operations=create
          kubewright create webhook --group … --version … --kind …, with --defaulting or --programmatic-validation
        create webhook --group g --version v1 --kind K --type=validating
          --defaulting for a mutating webhook, --programmatic-validation for a validating one
        create webhook --group g --version v1 --kind K --operations=create
          name the operations in the code: .mutating(|webhook| webhook.operations([…]))
        create api --group g --version v1 --kind K --example
          leave it out: every API has a sample
        init --dep
          leave it out: dependencies are in Cargo.toml
        init --repo-path=x
          --repo
        generate all
          kubewright manifests; what is not a manifest is written by derives at compile time
        alpha update
          -
        deploy --type=x
          -
        install --namespace x
          -
        bundle --example
          -
        create api --group g --version v1 --kind K --namespaced=false
          -
        ");
    }
}
