//! `kubewright bundle scorecard`: the suites basic and olm of OLM's scorecard, without a cluster.

use clap::Args;
use kubewright_codegen::bundle::scorecard::{self, State, Test};
use kubewright_codegen::{Diagnostic, Place, codes};
use serde_json::{Value, json};

use crate::files::Disk;
use crate::output::{BAD, Failure, Format, GOOD, count, paint};

/// Run the tests of OLM's scorecard that only read the bundle: the suites basic and olm
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder with manifests and metadata
    #[arg(value_name = "FOLDER", default_value = "bundle")]
    folder: String,

    /// Labels of the tests to run, such as suite=olm
    #[arg(
        long,
        short = 'l',
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    selector: String,

    /// List the tests, and run none
    #[arg(long, short = 'L')]
    list: bool,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        if !std::path::Path::new(&self.folder).is_dir() {
            return Err(Failure::from(
                Diagnostic::new(codes::config::INVALID_BUNDLE, "cannot run scorecard's tests")
                    .at(Place::file(&self.folder))
                    .because("there is no such folder")
                    .fix("name the folder that has manifests and metadata; kubewright bundle writes one"),
            ));
        }
        let tests = scorecard::run(&Disk::new(&self.folder), &self.selector)?;
        if output == Format::Json {
            let items: Vec<Value> = tests.iter().map(Test::to_json).collect();
            let list =
                json!({"apiVersion": "scorecard.operatorframework.io/v1alpha3", "kind": "TestList", "items": items});
            output.say("", &list);
        } else {
            tests.iter().for_each(|test| say(test, self.list, output));
        }
        let failed = tests.iter().filter(|test| test.state != State::Pass).count();
        if failed > 0 && !self.list {
            return Err(Failure::from(Diagnostic::new(
                codes::config::INVALID_BUNDLE,
                format!("{} of scorecard failed", count(failed, "test")),
            )));
        }
        Ok(())
    }
}

fn say(test: &Test, only_name: bool, output: Format) {
    let suite = test.spec["labels"]["suite"].as_str().unwrap_or("-");
    let state = match test.state {
        State::Pass => paint(GOOD, "pass"),
        State::Fail => paint(BAD, "fail"),
        State::Error => paint(BAD, "error"),
    };
    let head = if only_name { String::new() } else { format!("{state}  ") };
    output.say(&format!("{head}{suite}  {}", test.name), &Value::Null);
    if only_name {
        return;
    }
    for error in &test.errors {
        output.say(&format!("  error: {error}"), &Value::Null);
    }
    for suggestion in &test.suggestions {
        output.say(&format!("  suggestion: {suggestion}"), &Value::Null);
    }
}
