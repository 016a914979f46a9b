//! `kubewright bundle validate`: the rules of OLM and its catalogs, for the bundle in any folder.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use kubewright_codegen::bundle::validate::{self, Finding, Level, Options};
use kubewright_codegen::{Diagnostic, Place, codes};
use serde_json::{Value, json};

use crate::files::Disk;
use crate::output::{BAD, Failure, Format, GOOD, WARN, count, paint};
use crate::program::validation;

/// Validate the bundle in a folder, whoever wrote it. The exit status is 1 if there are errors
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Folder with manifests and metadata
    #[arg(value_name = "FOLDER", required_unless_present = "list_optional")]
    folder: Option<String>,

    /// Labels of further validators to run, such as suite=operatorframework or name=good-practices
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    select_optional: String,

    /// Values for further validators, such as k8s-version=1.25
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    optional_values: Vec<(String, String)>,

    /// List the further validators, and validate nothing
    #[arg(long)]
    list_optional: bool,

    #[arg(long, short = 'b', hide = true, value_name = "PROGRAM")]
    image_builder: Option<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "write KEY=VALUE".to_owned())
}

const ATTEMPTED: &str = "cannot validate the bundle";

impl Arguments {
    pub(super) async fn run(self, output: Format) -> Result<(), Failure> {
        if self.list_optional {
            list(output);
            return Ok(());
        }
        let folder = self.folder.unwrap_or_default();
        if !Path::new(&folder).is_dir() {
            return Err(Failure::from(
                Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
                    .at(Place::file(&folder))
                    .because("there is no such folder, and images are not pulled")
                    .fix(
                        "take the bundle out of an image first: docker cp $(docker create IMAGE -):/manifests bundle/, \
                         and /metadata likewise",
                    ),
            ));
        }
        let options = Options {
            select_optional: self.select_optional,
            optional_values: self.optional_values.into_iter().collect::<BTreeMap<_, _>>(),
            categories: categories()?,
        };
        let mut report = validate::validate(&Disk::new(&folder), &options)?;
        validation::definitions(&mut report).await?;
        match output {
            Format::Text => report.outputs.iter().for_each(|finding| say(finding, output)),
            Format::Json => output.say("", &json!(report)),
        }
        let number = |level: Level| report.outputs.iter().filter(|finding| finding.level == level).count();
        let (errors, warnings) = (number(Level::Error), number(Level::Warning));
        if !report.passed {
            return Err(Failure::from(Diagnostic::new(
                codes::config::INVALID_BUNDLE,
                format!("the bundle {folder} is not valid: {}", count(errors, "error")),
            )));
        }
        if output == Format::Text {
            let line = format!(
                "the bundle {folder} is {}: {}",
                paint(GOOD, "valid"),
                count(warnings, "warning")
            );
            output.say(&line, &Value::Null);
        }
        Ok(())
    }
}

/// A line for a person; its level has a color.
fn say(finding: &Finding, output: Format) {
    let (word, style) = match finding.level {
        Level::Error => ("error:", BAD),
        Level::Warning => ("warning:", WARN),
    };
    let message = finding
        .message
        .trim_start_matches("Error: ")
        .trim_start_matches("Warning: ");
    output.say(&format!("{} {message}", paint(style, word)), &Value::Null);
}

fn list(output: Format) {
    for (name, labels, description) in validate::optional() {
        output.say(
            &format!("{name:<22}{:<52}{description}", labels.join(",")),
            &json!({"name": name, "labels": labels, "description": description}),
        );
    }
}

/// The categories of a catalog of one's own: those of the file that OPERATOR_BUNDLE_CATEGORIES names.
fn categories() -> Result<Option<Vec<String>>, Failure> {
    let Some(path) = std::env::var_os("OPERATOR_BUNDLE_CATEGORIES").filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let path = Path::new(&path);
    let refused = |why: String| {
        Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
            .at(Place::file(path.display().to_string()))
            .because(why)
            .fix("OPERATOR_BUNDLE_CATEGORIES names a file such as {\"categories\": [\"Database\"]}")
    };
    let text = crate::regular::text(path).map_err(|why| refused(why.to_string()))?;
    let read: Value = serde_json::from_str(&text).map_err(|why| refused(why.to_string()))?;
    let found = read["categories"]
        .as_array()
        .ok_or_else(|| refused("it has no categories".to_owned()))?;
    Ok(Some(
        found.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    ))
}
