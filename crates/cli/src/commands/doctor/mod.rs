//! `kubewright doctor`: looks at the machine, the cluster and the project, and reports of each thing whether it will
//! do, and if not the fix.
//!
//! A [`Check`] is a finding with its [`Status`]. `machine` inspects processes, files and sockets, and rates them with
//! pure functions; `drift` compares PROJECT with the operator's declaration, without input or output; `installed`
//! compares a cluster's definitions with the project's. Invariant: the exit status is 1 exactly when a check is [`Status::Bad`].

use std::path::Path;

use clap::Args;
use kubewright_codegen::project::{self, Project as Declared};
use kubewright_codegen::{Code, codes, manifests};
use serde_json::json;

use crate::files::Disk;
use crate::output::{BAD, CHANGE, DIM, Failure, Format, GOOD, STRONG, count, paint};
use crate::program::{self, BuildOptions, declaration};
use crate::project::Project;

mod deadlock;
mod drift;
mod installed;
mod machine;

/// Check this machine, the cluster of the kubeconfig and the project, and say what to do
///
/// Exits with status 1 if there is an error; remarks do not count.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Do not build the project; checks that need its declaration are left out
    #[arg(long)]
    no_build: bool,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCandidates::new(crate::complete::contexts))]
    context: Option<String>,
}

/// The rating of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Good,
    /// Worth knowing; nothing fails because of it.
    Remark,
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// The subject: `rust`, `port 8081`, `controller guestbook`.
    what: String,
    state: Status,
    /// The finding.
    found: String,
    code: Option<Code>,
    fix: Option<String>,
}

impl Check {
    fn new(what: impl Into<String>, state: Status, found: impl Into<String>) -> Check {
        Check {
            what: what.into(),
            state,
            found: found.into(),
            code: None,
            fix: None,
        }
    }

    fn good(what: impl Into<String>, found: impl Into<String>) -> Check {
        Check::new(what, Status::Good, found)
    }

    fn remark(what: impl Into<String>, found: impl Into<String>) -> Check {
        Check::new(what, Status::Remark, found)
    }

    fn bad(what: impl Into<String>, found: impl Into<String>) -> Check {
        Check::new(what, Status::Bad, found)
    }

    fn code(mut self, code: Code) -> Check {
        self.code = Some(code);
        self
    }

    fn fix(mut self, fix: impl Into<String>) -> Check {
        self.fix = Some(fix.into());
        self
    }

    /// A check that failed with an error.
    fn of(what: impl Into<String>, state: Status, why: impl Into<Failure>) -> Check {
        let why = why.into();
        let mut found = why.attempted;
        for cause in &why.causes {
            found.push_str(&format!(": {cause}"));
        }
        Check {
            fix: why.fix,
            code: why.code,
            ..Check::new(what, state, found)
        }
    }

    fn text(&self) -> String {
        let sign = match self.state {
            Status::Good => paint(GOOD, "✓"),
            Status::Remark => paint(CHANGE, "•"),
            Status::Bad => paint(BAD, "✗"),
        };
        let code = self.code.filter(|_| self.state != Status::Good);
        let code = code.map(|code| paint(DIM, format!(" [{code}]"))).unwrap_or_default();
        let mut text = format!("  {sign} {:<14} {}{code}", self.what, self.found);
        if let Some(fix) = &self.fix {
            text.push_str(&format!("\n    {:<14} fix: {fix}", ""));
        }
        text
    }
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here();
        let root = project.as_ref().map(|project| project.root.clone()).ok();
        let here = root.clone().unwrap_or_else(|| Path::new(".").to_path_buf());
        let mut bad = 0;
        let mut section = |title: &str, checks: Vec<Check>| {
            output.say(&paint(STRONG, title), &json!({"event": "section", "section": title}));
            for check in checks {
                bad += usize::from(check.state == Status::Bad);
                let state = match check.state {
                    Status::Good => "good",
                    Status::Remark => "remark",
                    Status::Bad => "bad",
                };
                let event = json!({
                    "event": "check", "section": title, "what": check.what, "state": state, "found": check.found, "code": check.code,
                    "fix": check.fix,
                });
                output.say(&check.text(), &event);
            }
        };
        let working = crate::progress::during("looking at the machine and the cluster");
        section("machine", machine::machine(&here).await);
        section(
            "cluster",
            machine::cluster(self.context.as_deref(), root.as_deref()).await,
        );
        drop(working);
        match project {
            Ok(project) => section("project", self.project(&project).await),
            Err(why) => section(
                "project",
                vec![Check::remark("project", why.causes.join(": ")).fix(why.fix.unwrap_or_default())],
            ),
        }
        match bad {
            0 => Ok(()),
            1 => Err(Failure::new("1 check failed")),
            count => Err(Failure::new(format!("{count} checks failed"))),
        }
    }

    async fn project(&self, project: &Project) -> Vec<Check> {
        let mut checks = Vec::new();
        let said = match said(project) {
            Ok(said) => said,
            Err(check) => return vec![check],
        };
        if let Some(said) = &said {
            checks.push(Check::good(
                "PROJECT",
                format!("{}, {}", said.name, count(said.resources.len(), "resource")),
            ));
        }
        if self.no_build {
            return checks;
        }
        let options = BuildOptions {
            root: project.root.clone(),
            ..BuildOptions::default()
        };
        let program = match program::built(&options).await {
            Ok((program, took)) => {
                checks.push(Check::good("build", format!("compiles ({:.1} s)", took.as_secs_f64())));
                program
            }
            Err(why) => {
                checks.push(Check::of("build", Status::Bad, why));
                return checks;
            }
        };
        match declaration::ask(&program, &project.root).await {
            Ok(declaration) => {
                checks.extend([drift::version(&declaration.kubewright, env!("CARGO_PKG_VERSION"))]);
                if let Some(said) = &said {
                    checks.extend(drift::drift(said, &declaration));
                }
                checks.extend(deadlock::deadlocks(&declaration));
                checks.extend(generated(&declaration, &project.root));
            }
            Err(why) => checks.push(Check::of("declaration", Status::Bad, why)),
        }
        checks
    }
}

/// Whether the generated files agree with the code; nothing in a project that has none yet.
fn generated(declaration: &manifests::Declaration, root: &Path) -> Option<Check> {
    let disk = Disk::new(root);
    if !root.join(manifests::CRDS).is_dir() && !root.join(manifests::ROLES).is_file() {
        return None;
    }
    let planned = manifests::Options::of_project(&disk)
        .map_err(|why| vec![why])
        .and_then(|options| manifests::plan(declaration, &disk, &options));
    Some(match planned {
        Ok(plan) => match plan.changes().map(|(path, _)| path).collect::<Vec<_>>()[..] {
            [] => Check::good("generated", "what is written from the code is current"),
            ref stale => Check::bad("generated", format!("out of date: {}", stale.join(", ")))
                .code(codes::crds::STALE)
                .fix("kubewright manifests"),
        },
        Err(wrong) => {
            let first = wrong
                .into_iter()
                .next()
                .map(|why| Check::of("generated", Status::Bad, why));
            first.unwrap_or_else(|| Check::bad("generated", "cannot be made"))
        }
    })
}

/// The declaration in PROJECT; `None` in a project without one.
fn said(project: &Project) -> Result<Option<Declared>, Check> {
    if !project.scaffolded {
        return Ok(None);
    }
    let text = crate::regular::text(&project.root.join(project::FILE))
        .map_err(|why| Check::bad("PROJECT", format!("cannot be read: {why}")).code(codes::files::IO))?;
    Declared::parse(&text)
        .map(Some)
        .map_err(|why| Check::of("PROJECT", Status::Bad, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_what_was_found_and_what_to_do() {
        let plain = |check: Check| anstream::adapter::strip_str(&check.text()).to_string();
        insta::assert_snapshot!(plain(Check::good("rust", "1.95.0")), @"  ✓ rust           1.95.0");
        let bad = Check::bad("rust", "1.70.0 is too old")
            .code(codes::machine::TOOLCHAIN)
            .fix("rustup update stable");
        insta::assert_snapshot!(plain(bad), @r"
          ✗ rust           1.70.0 is too old [KWR0802]
                           fix: rustup update stable
        ");
    }
}
