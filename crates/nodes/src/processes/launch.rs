//! Starts programs through shims, and hears how they end.
//!
//! Invariants: a shim is written down while it lives (`HOME/shims/PID`, with its start time), so that a cluster that
//! starts after one that was killed finds left-over programs; dropping a [`Launched`] ends its program and all that it
//! started. Not here: the handling of the news (`instance`, `run`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::home::Home;
use super::shim::{JANITOR, KILL, SHIM, TERMINATE};
use super::users::User;

/// How long a shim may take to report.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long its longest line may be.
const LONGEST: u64 = 256;

/// The program to run.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) command: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
    /// The most private memory, in bytes.
    pub(super) memory: Option<u64>,
    /// The path of its terminal.
    pub(super) terminal: Option<String>,
    /// The file that it finds at `/etc/hosts`, where the system lets it.
    pub(super) hosts: Option<PathBuf>,
    /// The one that it finds at `/etc/resolv.conf`; none where it sees the machine's.
    pub(super) resolv: Option<PathBuf>,
    /// The ones that it finds at `/etc/passwd` and `/etc/group`, if it becomes another user.
    pub(super) users: Option<[PathBuf; 2]>,
    /// The user that it becomes, if that is another than the cluster's.
    pub(super) user: Option<User>,
}

impl Order {
    fn spec(&self) -> Value {
        let user = self.user.map(User::number);
        json!({
            "command": self.command,
            "environment": self.environment,
            "folder": self.folder,
            "limits": { "memory": self.memory, "core": 0 },
            "terminal": self.terminal,
            "hosts": self.hosts,
            "resolv": self.resolv,
            "passwd": self.users.as_ref().map(|[passwd, _]| passwd),
            "groups": self.users.as_ref().map(|[_, groups]| groups),
            "user": user,
            "group": user,
        })
    }
}

/// A program that runs.
pub(super) struct Launched {
    pub(super) shim: Child,
    pub(super) shim_control: ShimControl,
    news: BufReader<OwnedReadHalf>,
    record: Record,
}

/// Gives a shim orders for its program. Cheap to clone; when the last is dropped, the program ends.
#[derive(Clone)]
pub struct ShimControl(Arc<OwnedWriteHalf>);

impl ShimControl {
    pub(super) fn terminate(&self) {
        self.say(TERMINATE);
    }

    /// Kills the program.
    pub fn kill(&self) {
        self.say(KILL);
    }

    fn say(&self, order: u8) {
        // A shim that has ended takes no orders any more.
        let _ = self.0.try_write(&[order]);
    }
}

impl Launched {
    /// Waits until the program and all that it started have ended; the exit code, 128 and the signal where it was
    /// killed by one. Its output can be read to its end from then on.
    pub(super) async fn ended(mut self) -> i32 {
        let code = match line(&mut self.news).await {
            Ok(news) => news.strip_prefix("ended ").and_then(|code| code.parse().ok()),
            Err(_) => None,
        };
        let shim = self.shim.wait().await.ok().and_then(|status| status.code());
        drop(self.record);
        // A shim that was killed took its program with it.
        code.or(shim).unwrap_or(128 + 9)
    }
}

/// Hands shims to their waiters.
pub(super) struct Launcher {
    home: Arc<Home>,
    waiting: Arc<Waiting>,
    accepting: tokio::task::JoinHandle<()>,
    /// Done when it was said that there are no names, and that command lines are seen by all.
    nameless: Once,
    visible: Once,
    /// Clears up behind a cluster that is killed.
    janitor: Mutex<Option<Child>>,
}

type Waiting = Mutex<BTreeMap<String, oneshot::Sender<BufReader<UnixStream>>>>;

impl Launcher {
    pub(super) fn start(home: Arc<Home>) -> io::Result<Launcher> {
        let socket = UnixListener::bind(home.control())?;
        // A program that knew the number of a shim would be told the environment of that shim's program.
        fs::set_permissions(home.control(), fs::Permissions::from_mode(0o600))?;
        fs::DirBuilder::new().mode(0o700).create(home.shims())?;
        let waiting = Arc::new(Waiting::default());
        let accepted = waiting.clone();
        let accepting = tokio::spawn(async move {
            loop {
                match socket.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(welcome(stream, accepted.clone()));
                    }
                    Err(error) => {
                        tracing::error!(%error, "no shim can report to the cluster");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        });
        Ok(Launcher {
            home,
            waiting,
            accepting,
            nameless: Once::new(),
            visible: Once::new(),
            janitor: Mutex::default(),
        })
    }

    /// Starts a program.
    ///
    /// # Errors
    /// When there is no process for it, or its shim does not report.
    pub(super) async fn launch(&self, order: &Order, stdio: [Stdio; 3]) -> io::Result<Launched> {
        let random: [u8; 16] = super::random()?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (sender, receiver) = oneshot::channel();
        let waiting = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting().insert(id.clone(), sender);
        let [stdin, stdout, stderr] = stdio;
        let mut command = Command::new(this_program()?);
        command.arg(SHIM).arg(self.home.control()).arg(&id);
        let spawned = command
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .current_dir("/")
            .spawn();
        // The command's copies of the streams are closed here.
        drop(command);
        let reported = async {
            let mut shim = spawned?;
            let record = Record::of(&self.home.shims(), shim.id())?;
            // Waiting for a process closes its standard input.
            let stdin = shim.stdin.take();
            let mut stream = tokio::select! {
                stream = receiver => stream.map_err(io::Error::other)?,
                status = shim.wait() => {
                    let why = "this program does not start processes: its main function does not call `processes::called`";
                    return Err(io::Error::other(format!("{why} ({})", status?)));
                }
            };
            let spec = format!("{}\n", order.spec());
            stream.get_mut().write_all(spec.as_bytes()).await?;
            let news = line(&mut stream).await?;
            let Some(started) = news.strip_prefix("started ") else {
                return Err(io::Error::other(format!("its shim said {news:?}")));
            };
            // The same for every program of this machine: said once.
            match started.split(' ').collect::<Vec<_>>().as_slice() {
                [_, "nameless", why @ ..] => self.nameless.call_once(|| {
                    tracing::info!(why = why.join(" "), "programs do not find Services by their names here");
                }),
                [_, "visible", why @ ..] => self.visible.call_once(|| {
                    tracing::info!(why = why.join(" "), "programs see the command lines of other pods here");
                }),
                _ => {}
            }
            self.watch_over();
            shim.stdin = stdin;
            let (read, write) = stream.into_inner().into_split();
            Ok(Launched {
                shim,
                shim_control: ShimControl(Arc::new(write)),
                news: BufReader::new(read),
                record,
            })
        };
        let done = tokio::time::timeout(PATIENCE, reported).await;
        waiting().remove(&id);
        done.unwrap_or_else(|_| Err(io::Error::other("its shim did not report in time")))
    }
}

impl Launcher {
    /// Starts the janitor. Not before a shim has reported, which says that this program's main function knows of such
    /// processes: it would run as a whole otherwise.
    fn watch_over(&self) {
        let mut janitor = self.janitor.lock().unwrap_or_else(PoisonError::into_inner);
        if janitor.is_some() {
            return;
        }
        let started = this_program().and_then(|program| {
            let mut command = Command::new(program);
            command.arg(JANITOR).arg(self.home.path());
            command.env_clear().current_dir("/");
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn()
        });
        match started {
            Ok(started) => *janitor = Some(started),
            Err(error) => tracing::warn!(%error, "the folders of a killed cluster would stay until the next start"),
        }
    }

    /// Ends the janitor, when there is nothing left to do for it.
    pub(super) async fn dismiss(&self) {
        let janitor = self.janitor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut janitor) = janitor {
            drop(janitor.stdin.take());
            // It has ended either way.
            let _ = janitor.wait().await;
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// This program, also when its file was replaced meanwhile.
pub(super) fn this_program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from("/proc/self/exe")),
        false => std::env::current_exe(),
    }
}

/// Reads which process a connection reports for, and hands the connection over.
async fn welcome(stream: UnixStream, waiting: Arc<Waiting>) {
    let mut stream = BufReader::new(stream);
    let Ok(Ok(id)) = tokio::time::timeout(PATIENCE, line(&mut stream)).await else {
        return;
    };
    let wanted = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    if let Some(wanted) = wanted {
        // The waiter may have given up; the shim notices it.
        let _ = wanted.send(stream);
    }
}

/// A line of a shim, without its end. Buffered bytes stay buffered.
async fn line(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    let read = from.take(LONGEST).read_line(&mut line).await?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// A shim that is written down.
struct Record(Option<PathBuf>);

impl Record {
    fn of(folder: &Path, pid: Option<u32>) -> io::Result<Record> {
        let Some(pid) = pid else { return Ok(Record(None)) };
        let path = folder.join(pid.to_string());
        fs::write(&path, started(pid).unwrap_or_default())?;
        Ok(Record(Some(path)))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The whole folder may be gone.
            let _ = fs::remove_file(path);
        }
    }
}

/// When a process started, in the kernel's ticks: with its number the one thing that tells it from all others.
pub(super) fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; this is field 22.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19).map(str::to_owned)
}
