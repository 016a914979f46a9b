//! The server under test: a process of its own, so that it may die alone, and so that its cost can be read from
//! outside.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kubewright_apiserver::Config;
use kubewright_apiserver::authentication::StaticTokens;
use kubewright_cluster::{Cluster, Controllers, Listening};

use serde_json::json;

use crate::common::{self, Who};

/// Says where the process under test writes its kubeconfig.
const SERVES: &str = "KUBEWRIGHT_TEST_SERVES";
/// How many watches it allows.
const WATCHES: &str = "KUBEWRIGHT_TEST_WATCHES";
/// Users that the process under test knows, each by its token. They may do what they are given.
pub(crate) const USERS: [&str; 3] = ["neighbour", "mallory", "trudy"];
/// More than this, in KiB, and the process ends instead of taking the machine along.
const MEMORY: &str = "6000000";

/// The process under test: serves until it is killed.
pub(crate) async fn run() {
    let path = std::env::var_os(SERVES).unwrap();
    let tokens = USERS
        .iter()
        .map(|user| format!("token-of-{user},{user},{user}\n"))
        .collect::<String>();
    let mut config = Config {
        static_tokens: StaticTokens::parse(&tokens).unwrap(),
        ..Config::default()
    };
    if let Ok(watches) = std::env::var(WATCHES) {
        config.max_watches = watches.parse().unwrap();
    }
    let cluster = Cluster::builder()
        .api(config)
        .controllers(Controllers::None)
        .serving_threads(1)
        .start()
        .await
        .unwrap();
    may_do_everything(&cluster).await;
    let listening = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    kubewright_cluster::kubeconfig::write(Path::new(&path), &listening.kubeconfig).unwrap();
    println!("\nserves https://{}", listening.address);
    std::future::pending::<()>().await;
}

/// Lets the users do everything, by roles as any user.
async fn may_do_everything(cluster: &Cluster) {
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client());
    for user in USERS {
        let binding = serde_json::from_value(json!({
            "metadata": {"name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        }));
        bindings
            .create(&PostParams::default(), &binding.unwrap())
            .await
            .unwrap();
    }
}

/// How to reach it. A clone reaches the same.
#[derive(Clone)]
pub(crate) struct Server {
    listening: Listening,
    token: Option<String>,
    process: Option<Arc<Process>>,
    /// Whether it knows the [`USERS`].
    knows_users: bool,
}

/// A process that ends with its last handle.
struct Process {
    child: Mutex<Child>,
    id: u32,
    /// Kept open: the process may still say something there.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        // It may have died already, which is why it is dropped.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The cost of some work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Processor time, in nanoseconds.
    pub(crate) cpu: u64,
    /// The growth of its resident memory at its peak, in KiB.
    pub(crate) memory: u64,
}

impl Server {
    /// Starts one, or takes the one that the environment names.
    pub(crate) fn start() -> Server {
        if let Ok(path) = std::env::var("KUBEWRIGHT_HOSTILE_SERVER") {
            return Server::foreign(&path);
        }
        let program = std::env::var_os("KUBEWRIGHT_HOSTILE_PROGRAM");
        Server::of(program, None)
    }

    /// Starts one of ours that allows so many watches, and knows the [`USERS`].
    pub(crate) fn with_users(watches: usize) -> Server {
        Server::of(None, Some(watches))
    }

    /// The same, for a client that shows the token of this user, and no certificate.
    pub(crate) fn as_user(&self, user: &str) -> Server {
        Server {
            token: Some(format!("token-of-{user}")),
            ..self.clone()
        }
    }

    fn of(program: Option<OsString>, watches: Option<usize>) -> Server {
        let knows_users = program.is_none();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"")]);
        match program {
            Some(program) => command
                .arg(program)
                .args(["cluster", "--controllers", "none", "--kubeconfig"])
                .arg(&kubeconfig),
            None => command
                .arg(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "hostile::server_process", "--nocapture"])
                .env(SERVES, &kubeconfig),
        };
        if let Some(watches) = watches {
            command.env(WATCHES, watches.to_string());
        }
        let mut child = command
            // The trace of a panic that is reported anyway takes a second.
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| {
                line.split(' ')
                    .find_map(|word| word.strip_prefix("https://"))
                    .map(str::to_owned)
            })
            .expect("the server says where it listens");
        let kubeconfig = fs::read_to_string(kubeconfig).unwrap();
        let id = child.id();
        Server {
            listening: Listening {
                address: address.parse().unwrap(),
                kubeconfig,
            },
            token: None,
            process: Some(Arc::new(Process {
                child: Mutex::new(child),
                id,
                _output: lines,
            })),
            knows_users,
        }
    }

    /// A server that runs already; its kubeconfig has the authority's certificate embedded.
    fn foreign(path: &str) -> Server {
        let kubeconfig = fs::read_to_string(path).unwrap();
        let parsed = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let url = parsed.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
        let token = kubeconfig
            .lines()
            .find_map(|line| line.trim().strip_prefix("token: ").map(str::to_owned));
        Server {
            listening: Listening {
                address: url.trim_start_matches("https://").parse().unwrap(),
                kubeconfig,
            },
            token,
            process: None,
            knows_users: false,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.address
    }

    pub(crate) fn token(&self) -> Option<String> {
        self.token.clone()
    }

    pub(crate) fn tls(&self) -> rustls::ClientConfig {
        let who = if self.token.is_some() { Who::Nobody } else { Who::Admin };
        common::client_config(&self.listening, who)
    }

    /// For a client that is another user, where there is one.
    pub(crate) fn as_another(&self) -> Server {
        if self.knows_users {
            self.as_user(USERS[0])
        } else {
            self.clone()
        }
    }

    /// Whether it is still the process that was started.
    pub(crate) fn is_alive(&self) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        let ended = process
            .child
            .lock()
            .unwrap()
            .try_wait()
            .map_err(|error| error.to_string())?;
        ended.map_or(Ok(()), |status| Err(format!("the server ended: {status}")))
    }

    /// Another server than ours needs a while before it serves a definition.
    pub(crate) async fn settle(&self) {
        if self.process.is_none() {
            tokio::time::sleep(Duration::from_millis(1500)).await;
        }
    }

    fn file(&self, name: &str) -> Option<String> {
        let process = self.process.as_ref()?;
        Some(format!("/proc/{}/{name}", process.id))
    }

    fn cpu(&self) -> u64 {
        let Some(folder) = self.file("task") else { return 0 };
        let threads = fs::read_dir(folder).into_iter().flatten().flatten();
        let spent = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
        spent
            .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// A line of `/proc/PID/status`, in KiB.
    fn status(&self, key: &str) -> u64 {
        let text = self.file("status").and_then(|path| fs::read_to_string(path).ok());
        text.unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    }

    /// The cost so far; the peak of its memory begins anew.
    pub(crate) fn begin_measuring(&self) -> Figures {
        if let Some(path) = self.file("clear_refs") {
            fs::write(path, "5").expect("the process is our own");
        }
        Figures {
            cpu: self.cpu(),
            memory: self.status("VmRSS:"),
        }
    }

    /// The cost since.
    pub(crate) fn figures(&self, since: Figures) -> Figures {
        Figures {
            cpu: self.cpu().saturating_sub(since.cpu),
            memory: self.status("VmHWM:").saturating_sub(since.memory),
        }
    }
}
