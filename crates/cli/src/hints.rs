//! Old spellings: words of older tutorials, and their present names.

/// The present spelling of something in these arguments, if one is old.
pub(crate) fn old_spelling(arguments: &[String]) -> Option<String> {
    let has = |begins: &str| arguments.iter().find(|argument| argument.starts_with(begins));
    let value = |begins: &str| {
        has(begins)
            .and_then(|argument| argument.split_once('='))
            .map(|(_, value)| value)
    };
    let words: Vec<&str> = arguments.iter().map(String::as_str).take(2).collect();
    if words == ["alpha", "webhook"] || has("--type").is_some() {
        let kind = match value("--type") {
            Some("validating") => "--programmatic-validation",
            _ => "--defaulting",
        };
        let operations = match has("--operations") {
            Some(_) => {
                "; which operations it is asked about stands in the code: .mutating(|webhook| webhook.operations([…]))"
            }
            None => "",
        };
        return Some(format!(
            "now it is: kubewright create webhook --group … --version … --kind … {kind}{operations}"
        ));
    }
    if let Some(old) = has("--namespace=").or_else(|| arguments.iter().find(|argument| *argument == "--namespace")) {
        let scope = value(old).unwrap_or("false");
        return Some(format!("now it is: --namespaced={scope}"));
    }
    let renamed = [
        ("--example", "samples are made for every API; leave it out"),
        ("--pattern", "there is one pattern; leave it out"),
        ("--dep", "dependencies are cargo's: leave it out"),
        ("--component-config", "settings are flags of the operator; leave it out"),
        ("--repo-path", "--repo"),
    ];
    renamed
        .iter()
        .find(|(old, _)| has(old).is_some())
        .map(|(_, now)| format!("now it is: {now}"))
        .or_else(|| match words.first().copied() {
            Some("alpha") => Some("there are no alpha commands: see kubewright --help".to_owned()),
            Some("generate") => {
                Some("derives write at compile time what it wrote; manifests: kubewright manifests".to_owned())
            }
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::old_spelling;

    #[test]
    fn old_spellings_get_the_present_one() {
        let told: Vec<String> = [
            "alpha webhook --group g --type=mutating --operations=create",
            "create webhook --kind K --type=validating",
            "create api --kind K --namespace=false",
            "alpha update",
            "create api --kind K --namespaced=false",
            "create api --kind K --example",
        ]
        .iter()
        .map(|line| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            format!(
                "{line}\n  {}",
                old_spelling(&arguments).unwrap_or_else(|| "-".to_owned())
            )
        })
        .collect();
        insta::assert_snapshot!(told.join("\n"), @r"
        alpha webhook --group g --type=mutating --operations=create
          now it is: kubewright create webhook --group … --version … --kind … --defaulting; which operations it is asked about stands in the code: .mutating(|webhook| webhook.operations([…]))
        create webhook --kind K --type=validating
          now it is: kubewright create webhook --group … --version … --kind … --programmatic-validation
        create api --kind K --namespace=false
          now it is: --namespaced=false
        alpha update
          there are no alpha commands: see kubewright --help
        create api --kind K --namespaced=false
          -
        create api --kind K --example
          now it is: samples are made for every API; leave it out
        ");
    }
}
