//! The Helm program: how it is found, and how it is run.
//!
//! Invariants: values reach it through its standard input, never as arguments and never in a file; it sees none of the
//! user's own Helm settings (its folders are private ones, and of the environment it gets only what reaching the
//! cluster needs); every run ends, by itself, at its deadline or at a stop; what it prints is never logged, and what it
//! says of an error has no secrets of the values in it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kubewright::Stop;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// The variable that names the program.
pub const PROGRAM: &str = "KUBEWRIGHT_HELM";

/// How long a run may take that waits for nothing in the cluster.
const SHORT: Duration = Duration::from_secs(120);
/// How long Helm itself waits for one hook; its own default.
const HOOK: Duration = Duration::from_secs(300);
/// How long a run may take that may wait for hooks.
const LONG: Duration = Duration::from_secs(900);
/// How long a run may go on when the operator stops, and how long it may take to end after it was asked to.
const LAST: Duration = Duration::from_secs(8);
/// How much of the output is read. A release is 1 MiB at most in its Secret, packed.
const OUTPUT: u64 = 64 << 20;
/// How much of an error is passed on: it goes into a condition.
const ERROR: usize = 4096;

/// The variables that reach the program: the way to the cluster and to registries, and the place of temporary files.
const PASSED: &[&str] = &[
    "PATH",
    "TMPDIR",
    "LANG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Why Helm could not do what it was asked to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HelmError {
    /// There is no program.
    #[error(
        "there is no Helm program: {0}; install Helm 3 or 4 (https://helm.sh/docs/intro/install), or name it in {PROGRAM}"
    )]
    Missing(String),
    /// It could not be started, or not be talked to.
    #[error("cannot run {program}: {why}")]
    Broken {
        /// The path.
        program: String,
        /// The error.
        why: String,
    },
    /// It ended with an error of its own.
    #[error("{0}")]
    Failed(String),
    /// It took too long, and was ended.
    #[error("helm {0} took longer than {1:?} and was ended")]
    TooLong(String, Duration),
    /// The operator stops, and has ended it.
    #[error("helm {0} was ended, because the operator stops")]
    Stopped(String),
}

/// The Helm program with folders of its own.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    version: String,
    major: u32,
    folder: TempDir,
    kubeconfig: Option<PathBuf>,
    /// Whether it sees the settings of the user: his repositories, and who he is there.
    of_user: bool,
}

/// One run.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) arguments: Vec<OsString>,
    /// The values, for `--values -`.
    pub(super) values: Option<&'a Value>,
    /// Whether it may wait for hooks.
    pub(super) waits: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Run<'a> {
        Run {
            arguments: arguments.into_iter().map(Into::into).collect(),
            values: None,
            waits: false,
        }
    }

    pub(super) fn arg(mut self, argument: impl Into<OsString>) -> Run<'a> {
        self.arguments.push(argument.into());
        self
    }

    pub(super) fn arg_if(self, given: bool, argument: impl Into<OsString>) -> Run<'a> {
        match given {
            true => self.arg(argument),
            false => self,
        }
    }

    pub(super) fn args(mut self, arguments: Option<&str>) -> Run<'a> {
        self.arguments.extend(arguments.map(OsString::from));
        self
    }

    /// With these values.
    pub(super) fn values(mut self, values: &'a Value) -> Run<'a> {
        self.values = Some(values);
        self.arg("--values").arg("-")
    }

    /// It may take its time, for a download say.
    pub(super) fn long(mut self) -> Run<'a> {
        self.waits = true;
        self
    }

    /// It may wait for hooks.
    pub(super) fn waiting(mut self) -> Run<'a> {
        self.waits = true;
        self.arg("--timeout").arg(format!("{}s", HOOK.as_secs()))
    }
}

impl Helm {
    /// The program that [`PROGRAM`] names, else `helm` on the PATH; `kubeconfig` is how it reaches the cluster, without
    /// one as a pod of it does.
    ///
    /// # Errors
    /// [`HelmError::Missing`] when there is none, and when it does not say its version.
    pub async fn find(kubeconfig: Option<PathBuf>) -> Result<Helm, HelmError> {
        let named = std::env::var_os(PROGRAM).filter(|path| !path.is_empty());
        let program = match &named {
            Some(path) => PathBuf::from(path),
            None => on_path("helm").ok_or_else(|| HelmError::Missing("no helm is on the PATH".to_owned()))?,
        };
        if !program.is_file() {
            return Err(HelmError::Missing(format!(
                "{PROGRAM} names {}, which is no file",
                program.display()
            )));
        }
        Helm::at(program, kubeconfig).await
    }

    /// As [`Helm::find`], with the user's own Helm settings: for commands that a person types.
    ///
    /// # Errors
    /// As [`Helm::find`].
    pub async fn of_user() -> Result<Helm, HelmError> {
        let mut helm = Helm::find(None).await?;
        helm.of_user = true;
        Ok(helm)
    }

    /// The program of this path.
    ///
    /// # Errors
    /// When it does not say its version, or is older than Helm 3.
    pub async fn at(program: PathBuf, kubeconfig: Option<PathBuf>) -> Result<Helm, HelmError> {
        let broken = |why: String| HelmError::Broken {
            program: program.display().to_string(),
            why,
        };
        let folder = tempfile::Builder::new()
            .prefix("kubewright-helm-")
            .tempdir()
            .map_err(|why| broken(format!("no private folder can be made: {why}")))?;
        let mut helm = Helm {
            program: program.clone(),
            version: String::new(),
            major: 3,
            folder,
            kubeconfig,
            of_user: false,
        };
        let said = helm
            .run(Run::new(["version", "--short"]), &Stop::never())
            .await
            .map_err(|error| broken(error.to_string()))?;
        let text = String::from_utf8_lossy(&said);
        let version = text.trim().trim_start_matches('v');
        let major = version.split('.').next().and_then(|major| major.parse().ok());
        helm.version = version.to_owned();
        helm.major = match major {
            Some(major @ 3..) => major,
            _ => {
                return Err(broken(format!(
                    "it says that its version is {:?}; Helm 3 or 4 is needed",
                    text.trim()
                )));
            }
        };
        Ok(helm)
    }

    /// The version, without the `v`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The flag that replaces objects which cannot be patched.
    pub(super) fn force_flag(&self) -> &'static str {
        match self.major {
            3 => "--force",
            _ => "--force-replace",
        }
    }

    /// The flag by which Helm 4 changes objects as Helm 3 does: what was repaired here, and everything else that others
    /// have changed, would be a conflict to it otherwise.
    pub(super) fn client_side(&self) -> Option<&'static str> {
        (self.major > 3).then_some("--server-side=false")
    }

    /// Its private folder.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, arguments: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if self.of_user {
            return command;
        }
        command.env_clear();
        let passed = PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(passed);
        let home = self.folder.path();
        for (name, path) in [
            ("HOME", "home"),
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
            ("KUBECACHEDIR", "kube"),
        ] {
            command.env(name, home.join(path));
        }
        command.env("HELM_DRIVER", "secret");
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
    }

    /// Runs it, and answers what it prints.
    pub(super) async fn run(&self, run: Run<'_>, stop: &Stop) -> Result<Vec<u8>, HelmError> {
        let what = run.arguments.first().map(|verb| verb.to_string_lossy().into_owned());
        let what = what.unwrap_or_default();
        if stop.is_requested() {
            return Err(HelmError::Stopped(what));
        }
        let broken = |why: String| HelmError::Broken {
            program: self.program.display().to_string(),
            why,
        };
        let mut child = self
            .command(&run.arguments)
            .spawn()
            .map_err(|why| broken(why.to_string()))?;
        let input = run
            .values
            .map(|values| values.to_string().into_bytes())
            .unwrap_or_default();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let talk = async {
            let write = async {
                if let Some(mut stdin) = stdin {
                    // A program that does not read its input says why in its own words.
                    let _ = stdin.write_all(&input).await;
                }
            };
            let read = async {
                match stdout {
                    Some(stdout) => stdout.take(OUTPUT).read_to_end(&mut output).await.map(drop),
                    None => Ok(()),
                }
            };
            let complain = async {
                match stderr {
                    Some(stderr) => stderr.take(OUTPUT).read_to_end(&mut errors).await.map(drop),
                    None => Ok(()),
                }
            };
            let ((), read, complain) = tokio::join!(write, read, complain);
            let status = child.wait().await?;
            read.and(complain).map(|()| status)
        };
        let limit = if run.waits { LONG } else { SHORT };
        let ended = tokio::select! {
            biased;
            ended = talk => Ok(ended),
            () = tokio::time::sleep(limit) => Err(HelmError::TooLong(what.clone(), limit)),
            () = async { stop.requested().await; tokio::time::sleep(LAST).await; } => {
                Err(HelmError::Stopped(what.clone()))
            }
        };
        let status = match ended {
            Ok(status) => status.map_err(|why| broken(why.to_string()))?,
            Err(why) => {
                end(child).await;
                return Err(why);
            }
        };
        if status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&errors);
        let said = without_secrets(&words(&said), run.values);
        Err(HelmError::Failed(match said.is_empty() {
            true => format!("helm {what} ended with {status}"),
            false => said,
        }))
    }
}

/// Ends a run and all that it has started: it is asked to, so that it can write down how far it came, then it is killed.
async fn end(mut child: Child) {
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let Some(group) = group else { return };
    // It may have ended by itself.
    let _ = kill_process_group(group, Signal::TERM);
    if tokio::time::timeout(LAST, child.wait()).await.is_err() {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait().await;
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// What Helm says of its error: without its `Error: `, and no longer than a condition needs.
fn words(said: &str) -> String {
    let lines = said.lines().filter(|line| !line.starts_with("WARNING: "));
    let mut text = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
    if let Some(at) = text.find("Error: ") {
        text = text[at + "Error: ".len()..].to_owned();
    }
    if text.len() > ERROR {
        let end = (0..=ERROR).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Names of values that hold secrets, in lower case and without dashes and underscores.
const SECRET: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "auth",
];

/// A text without the values that are secrets, by their names.
fn without_secrets(text: &str, values: Option<&Value>) -> String {
    let mut secrets = Vec::new();
    if let Some(values) = values {
        collect(values, false, &mut secrets);
    }
    // Longer ones first: one may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
        .into_iter()
        .fold(text.to_owned(), |text, secret| text.replace(&secret, "****"))
}

fn collect(value: &Value, is_secret: bool, secrets: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let plain: String = name
                    .chars()
                    .filter(char::is_ascii_alphanumeric)
                    .map(|c| c.to_ascii_lowercase())
                    .collect();
                let is_secret = is_secret || SECRET.iter().any(|word| plain.contains(word));
                collect(value, is_secret, secrets);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, is_secret, secrets)),
        Value::String(text) if is_secret && text.len() >= 3 => {
            // As it stands in a message, and as JSON and YAML quote it.
            let quoted = Value::String(text.clone()).to_string();
            secrets.push(quoted[1..quoted.len() - 1].to_owned());
            secrets.push(text.clone());
        }
        Value::Number(number) if is_secret => secrets.push(number.to_string()),
        _ => {}
    }
}

/// A path as an argument.
pub(super) fn path(path: &Path) -> &OsStr {
    path.as_os_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_are_said_in_helms_words() {
        let check = |said: &str, told: &str| assert_eq!(words(said), told, "{said:?}");
        check("Error: INSTALLATION FAILED: no\n", "INSTALLATION FAILED: no");
        check(
            "WARNING: Kubernetes configuration file is group-readable.\nError: no",
            "no",
        );
        check(
            "walk.go:75: found symbolic link\nError: UPGRADE FAILED: a\nb\n",
            "UPGRADE FAILED: a\nb",
        );
        check("", "");
        assert!(words(&"é".repeat(ERROR)).len() < ERROR + 8);
    }

    #[test]
    fn errors_have_no_secrets() {
        let values = json!({
            "image": "nginx",
            "db": {"rootPassword": "hunter2\"x", "credentials": {"user": "anna", "pin": 123_456}},
            "tokens": ["abcdef", "abc"],
        });
        let said = r#"bad hunter2"x and "hunter2\"x" of anna (123456), abcdef abc nginx"#;
        let told = without_secrets(said, Some(&values));
        assert_eq!(told, r#"bad **** and "****" of **** (****), **** **** nginx"#);
        assert_eq!(without_secrets(said, None), said);
    }
}
