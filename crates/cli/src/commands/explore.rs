//! `kubewright explore`: plays an operator, in any language, through faults, and tells what does not come right.
//!
//! Without a command the operator is the project's own program, which is built first: with cargo, or with go in a
//! project of kubebuilder. Exit status: 0 nothing was found (or all of it is accepted), 1 there are findings, 2 there is
//! no verdict. Not here: how runs are played (`kubewright_testing::explore`).

mod accepted;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;
use kubewright_testing::explore::{Failed, Finding, Outside, Progress, Report};
use serde_json::{Value, json};

use crate::MISUSED;
use crate::output::{DIM, Failure, Format, count, paint, shell_word};
use crate::program::{self, BuildOptions, Verbosity};
use crate::project::Project;
use crate::rollout::duration;
use crate::signals::stop_signal;
use accepted::Accepted;

/// How often the progress is told.
const INTERVAL: Duration = Duration::from_secs(5);

/// Play an operator, in any language, through crashes, lost answers and late watches, and tell what breaks
///
/// The operator is a program on this machine, as it is. Each run has an embedded cluster of its own, and the program
/// gets it with KUBECONFIG. The samples are applied, changed and deleted: once undisturbed, and then once for each
/// fault. A run that does not end as the undisturbed one is a finding.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The operator, as a shell takes it; {port} stands for a free port [default: the project's program, built first]
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,

    /// The folder of the objects that its user applies
    #[arg(long, value_name = "FOLDER", default_value = "config/samples")]
    samples: PathBuf,

    /// A file or folder of CRDs to install [default: config/crd/bases, config/crd, if they are there]
    #[arg(long, value_name = "PATH")]
    crds: Vec<PathBuf>,

    /// The folder with the operator's role.yaml [default: config/rbac, if it has one; else it has all permissions]
    #[arg(long, value_name = "FOLDER")]
    rbac: Option<PathBuf>,

    /// For how long runs with faults begin, after the undisturbed ones
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    budget: Duration,

    /// Play all faults, however long that takes
    #[arg(long)]
    exhaustive: bool,

    /// Play pairs of faults as well, when each was played alone
    #[arg(long)]
    pairs: bool,

    /// How many processes of the operator there are at a time: one of them leads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    replicas: u16,

    /// How many runs are played side by side [default: three for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,

    /// Play the faults in another order, which this number decides
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Play one finding again: its name in a report, or the file of a JSON report for all of its findings
    #[arg(long, value_name = "ID|FILE")]
    replay: Option<String>,

    /// Write what happens in every run into this file; `kubewright log` reads it
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// The file with accepted findings
    #[arg(long, value_name = "FILE", default_value = "faults.lock")]
    accepted: PathBuf,

    /// Accept what is found, for this reason: it is written into the file with accepted findings
    #[arg(long, value_name = "REASON")]
    accept: Option<String>,

    /// How long the program may take until it watches something
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    start: Duration,

    /// How long nothing happens until a step is over; more for an operator that works long between its requests, as
    /// Ansible does [default: as long as it takes to start, 1s to 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    rest: Option<Duration>,

    /// How long a state is waited for that may still come right
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    patience: Duration,
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Failure {
        let failure = Failure::new(failed.attempted);
        let failure = failed.because.into_iter().fold(failure, Failure::because);
        match failed.fix {
            Some(fix) => failure.fix(fix),
            None => failure,
        }
    }
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> ExitCode {
        let mut code = ExitCode::SUCCESS;
        let done = crate::block_on(async {
            if self.explored(output).await? {
                code = ExitCode::FAILURE;
            }
            Ok(())
        });
        match done {
            Ok(()) => code,
            Err(failure) => {
                output.failure(&failure);
                ExitCode::from(MISUSED)
            }
        }
    }

    /// Whether there are findings that are not accepted.
    async fn explored(self, output: Format) -> Result<bool, Failure> {
        let accepted = Accepted::read(&self.accepted)?;
        let faults = self.replayed()?;
        let mut explore = self.outside(output).await?;
        for fault in faults {
            explore = explore.replay(&fault)?;
        }
        let last = Mutex::new(None);
        let explore = explore
            .again(self.again())
            .progress(move |progress| tell(output, &last, progress));
        let stop = stop_signal()?;
        let _working = crate::progress::during("playing the samples");
        let report = tokio::select! {
            report = explore.run() => report?,
            () = stop => return Err(Failure::new("the exploration was interrupted")),
        };
        if let Some(reason) = &self.accept {
            accepted.with(&report, reason).write(&self.accepted)?;
        }
        Ok(show(output, &report, &accepted) && self.accept.is_none())
    }

    /// The faults that are to be played again.
    fn replayed(&self) -> Result<Vec<String>, Failure> {
        let Some(replay) = &self.replay else {
            return Ok(Vec::new());
        };
        let path = Path::new(replay);
        if !path.exists() {
            return Ok(vec![replay.clone()]);
        }
        let wrong = |why: String| {
            Failure::new(format!("cannot play {} again", path.display()))
                .because(why)
                .fix("name a fault such as crash-after@3, or a file that explore --output json has printed")
        };
        let text = crate::regular::text(path).map_err(|why| wrong(why.to_string()))?;
        let is_report = |line: &Value| line["findings"].is_array();
        let report = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .find(is_report);
        let report = report.ok_or_else(|| wrong("no line of it is a report in JSON".to_owned()))?;
        let ids = report["findings"].as_array().into_iter().flatten();
        let ids: Vec<String> = ids
            .filter_map(|finding| finding["id"].as_str().map(str::to_owned))
            .collect();
        match ids.is_empty() {
            true => Err(wrong("it names no fault".to_owned())),
            false => Ok(ids),
        }
    }

    async fn outside(&self, output: Format) -> Result<Outside, Failure> {
        let (command, folder) = match &self.command {
            Some(command) => (command.clone(), PathBuf::from(".")),
            None => program(output).await?,
        };
        let mut explore = Outside::of(command)
            // As `kubewright run` has it: webhooks need certificates.
            .variable("ENABLE_WEBHOOKS", "false")
            .budget(self.budget)
            .replicas(usize::from(self.replicas))
            .start(self.start)
            .patience(self.patience);
        let usual = ["config/crd/bases", "config/crd"].map(|path| folder.join(path));
        let crds: Vec<&PathBuf> = match self.crds.is_empty() {
            true => usual.iter().find(|path| path.is_dir()).into_iter().collect(),
            false => self.crds.iter().collect(),
        };
        for path in crds {
            explore = explore.crds(path)?;
        }
        explore = explore.samples(folder.join(&self.samples))?;
        let usual = folder.join("config/rbac");
        match self
            .rbac
            .clone()
            .or_else(|| usual.join("role.yaml").exists().then_some(usual))
        {
            Some(roles) => explore = explore.roles(roles),
            None => output.warning(
                "the operator has all permissions: there is no config/rbac/role.yaml (--rbac FOLDER)",
                &json!({"event": "note", "note": "the operator has all permissions"}),
            ),
        }
        if self.exhaustive {
            explore = explore.exhaustive();
        }
        if self.pairs {
            explore = explore.pairs();
        }
        if let Some(rest) = self.rest {
            explore = explore.rest(rest);
        }
        if let Some(path) = &self.log {
            explore = explore.log(path)?;
        }
        if let Some(jobs) = self.jobs {
            explore = explore.jobs(usize::from(jobs));
        }
        if let Some(seed) = self.seed {
            explore = explore.seed(seed);
        }
        Ok(explore.folder(folder))
    }

    /// How a finding is played again.
    fn again(&self) -> String {
        let mut words = vec!["kubewright explore".to_owned()];
        if let Some(command) = &self.command {
            words.push(format!("--command {}", shell_word(command)));
        }
        if self.samples != Path::new("config/samples") {
            words.push(format!("--samples {}", shell_word(&self.samples.to_string_lossy())));
        }
        for path in &self.crds {
            words.push(format!("--crds {}", shell_word(&path.to_string_lossy())));
        }
        if let Some(path) = &self.rbac {
            words.push(format!("--rbac {}", shell_word(&path.to_string_lossy())));
        }
        if self.replicas > 1 {
            words.push(format!("--replicas {}", self.replicas));
        }
        if let Some(rest) = self.rest {
            words.push(format!("--rest {rest:?}"));
        }
        words.push("--replay {}".to_owned());
        words.join(" ")
    }
}

/// Builds the project's own program; answers its command and the project's folder.
async fn program(output: Format) -> Result<(String, PathBuf), Failure> {
    let here = std::env::current_dir().map_err(|why| Failure::new("cannot read the current folder").because(why))?;
    let go = here
        .ancestors()
        .find(|folder| folder.join("PROJECT").is_file() && folder.join("go.mod").is_file());
    let Some(root) = go else {
        let none = |failure: Failure| failure.fix("name the operator's program with --command");
        let project = Project::here().map_err(|wrong| none(Failure::from(wrong)))?;
        let options = BuildOptions {
            root: project.root.clone(),
            release: false,
            features: None,
            verbosity: Verbosity::shown(),
        };
        let (program, _) = program::built(&options).await?;
        return Ok((shell_word(&program.to_string_lossy()), project.root));
    };
    let package = if root.join("cmd").is_dir() { "./cmd" } else { "." };
    let binary = root.join("bin").join("manager");
    output.say(
        &paint(DIM, format!("go build {package}")),
        &json!({"event": "build", "package": package}),
    );
    let _working = crate::progress::during(format!("go build {package}"));
    let built = tokio::process::Command::new("go")
        .args(["build", "-o"])
        .arg(&binary)
        .arg(package)
        .current_dir(root)
        .kill_on_drop(true)
        .status()
        .await;
    match built {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(Failure::new("cannot build the operator").because(format!("go build: {status}"))),
        Err(why) => {
            return Err(Failure::new("cannot build the operator")
                .because(why)
                .fix("install Go, or name the operator's program with --command"));
        }
    }
    // What kubebuilder's main.go listens on would be taken by the first of several.
    let binary = binary.to_string_lossy();
    let command = format!(
        "{} --metrics-bind-address=0 --health-probe-bind-address=0",
        shell_word(&binary)
    );
    Ok((command, root.to_path_buf()))
}

fn tell(output: Format, last: &Mutex<Option<Instant>>, progress: Progress) {
    let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if last.is_some_and(|last| last.elapsed() < INTERVAL) && progress.played < progress.chosen {
        return;
    }
    *last = Some(Instant::now());
    let left = progress
        .left
        .map_or_else(String::new, |left| format!(", about {} s left", left.as_secs()));
    let text = format!(
        "{} of {} played, {}{left}",
        progress.played,
        count(progress.chosen, "fault"),
        count(progress.findings, "finding")
    );
    output.say(
        &paint(DIM, text),
        &json!({
            "event": "progress", "played": progress.played, "faults": progress.chosen, "findings": progress.findings,
            "left": progress.left.map(|left| left.as_secs()),
        }),
    );
}

/// Prints the report; whether there is a finding that is not accepted.
fn show(output: Format, report: &Report, accepted: &Accepted) -> bool {
    let is_new = |finding: &&Finding| accepted.reason(&finding.what).is_none();
    let mut event = report.to_json();
    event["event"] = Value::from("report");
    for (at, finding) in report.findings.iter().enumerate() {
        event["findings"][at]["accepted"] = json!(accepted.reason(&finding.what));
    }
    output.say(report.to_string().trim_end(), &event);
    for finding in &report.findings {
        if let (Some(reason), Format::Text) = (accepted.reason(&finding.what), output) {
            output.say(&format!("accepted: {} ({reason})", finding.what), &Value::Null);
        }
    }
    report.findings.iter().any(|finding| is_new(&finding))
}
