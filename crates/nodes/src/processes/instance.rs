//! One life of a container: its start, its program, its hook postStart, its end.
//!
//! Invariants: a container has one life at a time; the news of its end come after the last line of its log; commands
//! that run beside its program end with it. Not here: probes (`probes`), the way to its end (`stop`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use jiff::Timestamp;
use kubewright::{Client, EventType};
use kubewright_objects::api::core::v1::{Container, Pod};
use tokio::sync::{broadcast, watch};

use super::beneath::Below;
use super::environment::{Sources, expand};
use super::exec::{Input, Terminal};
use super::gauges::{Gauge, limit};
use super::images::{self, Program};
use super::launch::{Launched, Order, ShimControl};
use super::logs::Log;
use super::mounts::{Mounts, mount};
use super::order::{access_file, folders, message_path, order, paths, temporary};
use super::paths::Paths;
use super::users::User;
use super::volumes::{self, Given};
use super::{ObservedContainer, Processes, State, access, lock, probes};
use kubewright_objects::meta;

/// How much of a message of termination is told (`MaxContainerTerminationMessageLength`), and of a log in its place.
const MESSAGE: u64 = 4096;
const MESSAGE_OF_LOG: (usize, usize) = (80, 2048);

/// How many pieces of output a client may be behind, and the numbers of the streams, as clients know them.
const PIECES: usize = 64;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

/// One life of a container.
pub(super) struct Instance {
    pub(super) container: Container,
    pub(super) attempt: i32,
    about: String,
    state: Mutex<State>,
    pub(super) log: Arc<Log>,
    /// The log of the life before.
    pub(super) before: Option<Arc<Log>>,
    /// Its output, for clients that are attached to it.
    pub(super) output: broadcast::Sender<(u8, Bytes)>,
    /// None when it could not be started.
    running: Option<Running>,
    ended: watch::Sender<bool>,
    is_being_stopped: AtomicBool,
}

/// The running program, and the parts that may run beside it.
pub(super) struct Running {
    shim_control: ShimControl,
    /// None when it had ended at once.
    pub(super) gauge: Option<Arc<Gauge>>,
    order: Order,
    paths: Paths,
    mounts: Mounts,
    path: Vec<PathBuf>,
    root: PathBuf,
    pub(super) ip: String,
    pub(super) input: Option<Arc<Input>>,
    pub(super) terminal: Option<Arc<Terminal>>,
}

/// The facts about a pod before one of its containers is started.
pub(crate) struct Prepared {
    sources: Sources,
    volumes: BTreeMap<String, PathBuf>,
    /// The user of its programs, if that is another than the cluster's.
    user: Option<User>,
    /// When its tokens are to be renewed.
    pub(crate) due: Option<Timestamp>,
}

impl Instance {
    pub(super) fn seen(&self) -> ObservedContainer {
        ObservedContainer {
            attempt: self.attempt,
            state: lock(&self.state).clone(),
            about: self.about.clone(),
        }
    }

    /// Says that its end has been begun; true when it was before.
    pub(super) fn begin_to_stop(&self) -> bool {
        self.is_being_stopped.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(*lock(&self.state), State::Running { .. })
    }

    /// Sets the results of probes; false when they were known.
    pub(super) fn found(&self, started: bool, ready: bool) -> bool {
        let mut state = lock(&self.state);
        let next = State::Running { started, ready };
        let is_new = matches!(*state, State::Running { .. }) && *state != next;
        if is_new {
            *state = next;
        }
        is_new
    }

    pub(super) fn terminate(&self) {
        if let Some(running) = &self.running {
            running.shim_control.terminate();
        }
    }

    pub(super) fn kill(&self) {
        if let Some(running) = &self.running {
            running.shim_control.kill();
        }
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) {
        // The sender lives as long as this.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub(super) fn running(&self) -> Option<&Running> {
        self.running.as_ref().filter(|_| self.is_running())
    }
}

impl Running {
    /// A command beside the program: in its folder, with its environment.
    pub(super) fn beside(&self, command: &[String]) -> Order {
        let mut order = self.order.clone();
        order.command = self.paths.rewrite_all(command);
        if let [tar, flags, to, path] = command
            && (tar, flags, to) == (&"tar".to_owned(), &"cf".to_owned(), &"-".to_owned())
            && order.command[3] != *path
        {
            // As `kubectl cp` asks for files: their names are those in the container, behind the links to volumes.
            let below = path.trim_start_matches('/').to_owned();
            let root = self.root.display().to_string();
            order.command = ["tar", "chf", "-", "-C", &root, "--", &below]
                .map(str::to_owned)
                .to_vec();
        }
        images::resolve(&mut order.command, &self.path);
        order
    }
}

impl Processes {
    /// Makes the volumes of a pod, or puts them right.
    ///
    /// # Errors
    /// In words, with the volume, when one cannot be made.
    pub(crate) async fn prepare(
        &self,
        client: &Client,
        pod: &Pod,
        ip: &str,
        now: Timestamp,
    ) -> kubewright::Result<Result<Prepared, (String, String)>> {
        let api = lock(&self.0.api).map(|address| (address.ip().to_string(), address.port()));
        let mut sources = Sources::read(client, pod, api).await?;
        (sources.ip, sources.host) = (ip.to_owned(), "127.0.0.1".to_owned());
        let claims = volumes::claims(client, pod).await?;
        if let Some(why) = volumes::unbound(&claims, pod) {
            return Ok(Err(why));
        }
        let mut tokens = self.with(pod, |known| known.tokens.clone());
        if let Err(why) = tokens.renew(client, pod, now).await {
            return Ok(Err(("kube-api-access".to_owned(), why)));
        }
        let (due, texts) = (tokens.due(), tokens.texts());
        self.with(pod, |known| known.tokens = tokens);
        let (home, pod, lacks_name) = (self.0.home.clone(), pod.clone(), self.lacks_name(pod));
        let made = tokio::task::spawn_blocking(move || {
            let mounted: Vec<Below> = claims.values().flatten().cloned().collect();
            let user = home.user(meta::uid(&pod.metadata), &mounted, lacks_name);
            let user = user.map_err(|error| ("of a claim".to_owned(), error.to_string()))?;
            let given = Given {
                home: &home,
                sources: &sources,
                claims: &claims,
                user,
                tokens: &texts,
            };
            let volumes = volumes::make(&given, &pod)?;
            Ok(Prepared {
                sources,
                volumes,
                user,
                due,
            })
        });
        Ok(made
            .await
            .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())))
    }

    /// Starts a container; its state is observed.
    pub(crate) async fn start_container(&self, pod: &Pod, container: &Container, attempt: i32, prepared: &Prepared) {
        let uid = meta::uid(&pod.metadata).to_owned();
        let before = self.instance(&uid, &container.name);
        if before
            .as_ref()
            .is_some_and(|before| before.attempt >= attempt && !before.could_not_start())
        {
            return;
        }
        let before = before.and_then(|before| match before.running {
            Some(_) => Some(before.log.clone()),
            None => before.before.clone(),
        });
        let started = self.try_start(pod, container, attempt, prepared, before.clone()).await;
        let is_stopping = self.with(pod, |known| known.is_stopping);
        match started {
            Ok((instance, launched)) => {
                let instance = Arc::new(instance);
                if is_stopping {
                    instance.kill();
                }
                self.with(pod, |known| {
                    known.containers.insert(container.name.clone(), instance.clone())
                });
                tokio::spawn(self.clone().attend(uid.clone(), instance.clone(), launched));
                tokio::spawn(self.clone().settle(pod.clone(), instance));
            }
            Err((reason, message)) => {
                let Some(log) = self.log_file(&uid, &container.name, attempt) else {
                    return;
                };
                let instance = Instance {
                    container: container.clone(),
                    attempt,
                    about: String::new(),
                    state: Mutex::new(State::CannotStart { reason, message }),
                    log,
                    before,
                    output: broadcast::Sender::new(1),
                    running: None,
                    ended: watch::Sender::new(true),
                    is_being_stopped: AtomicBool::new(false),
                };
                self.with(pod, |known| {
                    known.containers.insert(container.name.clone(), Arc::new(instance))
                });
            }
        }
    }

    fn log_file(&self, uid: &str, container: &str, attempt: i32) -> Option<Arc<Log>> {
        let logs = self.0.home.pod(uid).join("logs");
        let made = Below::name(container)
            .map_err(std::io::Error::other)
            .and_then(|container| {
                let folder = logs.join(container.text());
                std::fs::create_dir_all(&folder)?;
                // Only the life before is read again.
                let _ = std::fs::remove_file(folder.join(format!("{}.log", attempt - 2)));
                Log::create(&folder.join(format!("{attempt}.log")))
            });
        match made {
            Ok(log) => Some(Arc::new(log)),
            Err(error) => {
                tracing::error!(%error, container, "a container has no log and is not started");
                None
            }
        }
    }

    async fn try_start(
        &self,
        pod: &Pod,
        container: &Container,
        attempt: i32,
        prepared: &Prepared,
        before: Option<Arc<Log>>,
    ) -> Result<(Instance, Launched), (&'static str, String)> {
        let uid = meta::uid(&pod.metadata);
        let image = container.image.as_deref().unwrap_or_default();
        Below::name(&container.name).map_err(|why| ("CreateContainerError", why))?;
        let program = self.0.runtime.images.find(image).map_err(|why| ("ErrImagePull", why))?;
        let failed = |why: String| ("CreateContainerError", why);
        if contradicts_itself(pod, container) {
            let why = "container's runAsUser breaks non-root policy".to_owned();
            return Err(("CreateContainerConfigError", why));
        }
        let root = self
            .0
            .home
            .pod(uid)
            .join("c")
            .join(&container.name)
            .join(format!("root-{attempt}"));
        let paths = paths(self.0.home.path(), container, &program, &root);
        let mut environment = self
            .environment(pod, container, &program, prepared, &root, &paths)
            .map_err(|why| ("CreateContainerConfigError", why))?;
        if container.command.as_ref().is_none_or(Vec::is_empty)
            && let Some(template) = self.template(&program, &environment).await
        {
            environment.insert("KUBEWRIGHT_TEMPLATE".to_owned(), template.display().to_string());
        }
        let (home, mounted) = (self.0.home.clone(), (container.clone(), prepared.volumes.clone()));
        let owned = folders(container, &program).map_err(failed)?;
        let (new_root, known, user) = (root.clone(), environment.clone(), prepared.user);
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let kubeconfig = access::kubeconfig(prepared.sources.api.as_ref(), &namespace, container, &paths);
        let (processes, owner, pod_uid) = (self.clone(), pod.clone(), uid.to_owned());
        let made = tokio::task::spawn_blocking(move || {
            if let Some(before) = attempt.checked_sub(1) {
                // The files of the life before are gone, as those of a container are.
                let _ = std::fs::remove_dir_all(new_root.with_file_name(format!("root-{before}")));
            }
            let _ = std::fs::remove_dir_all(&new_root);
            let in_words = |error: std::io::Error| error.to_string();
            home.make_run(&pod_uid, user).map_err(in_words)?;
            let (container, volumes) = mounted;
            let expanded = |text: &str| expand(text, |name| known.get(name).cloned());
            let mounts = mount(&home, &new_root, &container, &volumes, &owned, user, expanded)?;
            access::write(&home, &access_file(&new_root), &kubeconfig, user).map_err(in_words)?;
            let hosts = processes.hosts(&owner).map_err(in_words)?;
            let resolv = processes.resolv(&owner, &new_root, user).map_err(in_words)?;
            let users = home.write_users(&new_root, user).map_err(in_words)?;
            Ok((mounts, hosts, resolv, users))
        });
        let made = made.await.map_err(|error| failed(error.to_string()))?;
        let (mounts, hosts, resolv, users) = made.map_err(failed)?;
        let mut order = order(container, &program, &paths, environment, &root);
        (order.hosts, order.resolv) = (Some(hosts), resolv);
        (order.users, order.user) = (users, prepared.user);
        if order.command.is_empty() {
            return Err(failed("no command specified".to_owned()));
        }
        let log = self.log_file(uid, &container.name, attempt);
        let log = log.ok_or_else(|| failed("its log cannot be written".to_owned()))?;
        let (has_input, is_once) = (container.stdin == Some(true), container.stdin_once == Some(true));
        let not_run = |error: std::io::Error| ("RunContainerError", error.to_string());
        let (terminal, pipes) = self
            .stdio(&mut order, has_input, container.tty == Some(true))
            .map_err(not_run)?;
        let mut launched = self.0.launcher.launch(&order, pipes).await.map_err(not_run)?;
        // A program that runs beside it has streams of its own.
        order.terminal = None;
        let input = match &terminal {
            Some(terminal) if has_input => Some(Input::new(terminal.half().map_err(not_run)?, false)),
            _ => launched.shim.stdin.take().map(|to| Input::new(to, is_once)),
        };
        let has_hook = container
            .lifecycle
            .as_ref()
            .is_some_and(|life| life.post_start.is_some());
        let is_probed = container.startup_probe.is_some() || has_hook;
        let state = State::Running {
            started: !is_probed,
            ready: !is_probed && container.readiness_probe.is_none(),
        };
        let instance = Instance {
            container: container.clone(),
            attempt,
            about: program.about,
            state: Mutex::new(state),
            log,
            before,
            output: broadcast::Sender::new(PIECES),
            running: Some(Running {
                shim_control: launched.shim_control.clone(),
                gauge: launched.shim.id().map(|shim| {
                    let (shim_control, limit) = (launched.shim_control.clone(), limit(container));
                    self.0.gauges.add(shim, shim_control, limit)
                }),
                order,
                paths,
                mounts,
                path: program.path,
                root,
                ip: prepared.sources.ip.clone(),
                input: input.map(Arc::new),
                terminal,
            }),
            ended: watch::Sender::new(false),
            is_being_stopped: AtomicBool::new(false),
        };
        Ok((instance, launched))
    }

    /// The whole environment of a container, with paths as they are there.
    fn environment(
        &self,
        pod: &Pod,
        container: &Container,
        program: &Program,
        prepared: &Prepared,
        root: &Path,
        paths: &Paths,
    ) -> Result<BTreeMap<String, String>, String> {
        let uid = meta::uid(&pod.metadata);
        let text = |path: &Path| path.display().to_string();
        let path = std::env::join_paths(&program.path).map_err(|error| error.to_string())?;
        let spec = pod.spec.as_ref();
        let hostname = spec
            .and_then(|spec| spec.hostname.clone())
            .or_else(|| pod.metadata.name.clone());
        let mut all: BTreeMap<String, String> = [
            ("PATH", path.to_string_lossy().into_owned()),
            ("HOME", text(root)),
            ("TMPDIR", text(&temporary(container, root, self.0.home.run(uid)))),
            ("KUBECONFIG", text(&access_file(root))),
            ("HOSTNAME", hostname.unwrap_or_default()),
            ("KUBEWRIGHT_ROOT", text(root)),
            ("KUBEWRIGHT_RUN", text(&self.0.home.run(uid))),
            ("KUBEWRIGHT_POD_IP", prepared.sources.ip.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if program.is_users && !self.0.home.has_users() {
            // cargo, npm and their like find their own folders so; those of root are nobody else's.
            let own = ["HOME", "CARGO_HOME", "RUSTUP_HOME", "LANG", "USER", "XDG_CACHE_HOME"];
            all.extend(
                own.iter()
                    .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))),
            );
        }
        let known = all.clone();
        let of_image = program.environment.iter();
        all.extend(of_image.map(|(name, value)| (name.clone(), expand(value, |name| known.get(name).cloned()))));
        let own = prepared.sources.of(pod, container)?;
        all.extend(own);
        let rewritten = |(name, value): (String, String)| {
            let is_ours = known.get(&name) == Some(&value);
            let value = if is_ours { value } else { paths.rewrite(&value) };
            (name, value)
        };
        Ok(all.into_iter().map(rewritten).collect())
    }

    /// Reads the output of a program, and reports its end.
    async fn attend(self, uid: String, instance: Arc<Instance>, mut launched: Launched) {
        let (out, err) = (launched.shim.stdout.take(), launched.shim.stderr.take());
        let (log, output) = (&instance.log, &instance.output);
        let terminal = instance.running.as_ref().and_then(|running| running.terminal.as_ref());
        let reading = async {
            let out = async {
                if let Some(out) = out {
                    log.take("stdout", out, |piece| show(output, STDOUT, piece)).await;
                }
            };
            let err = async {
                if let Some(err) = err {
                    log.take("stderr", err, |piece| show(output, STDERR, piece)).await;
                }
            };
            let both = async {
                if let Some(Ok(half)) = terminal.map(|terminal| terminal.half()) {
                    log.take("stdout", half, |piece| show(output, STDOUT, piece)).await;
                }
            };
            tokio::join!(out, err, both);
        };
        let (code, ()) = tokio::join!(launched.ended(), reading);
        log.end();
        *lock(&instance.state) = State::Ended {
            at: Timestamp::now(),
            code,
            reason: instance.why(),
            message: instance.last_words(code),
        };
        instance.ended.send_replace(true);
        self.tell(&uid, "a process ended", None);
    }

    /// Runs the hook postStart, then the probes.
    async fn settle(self, pod: Pod, instance: Arc<Instance>) {
        let hook = instance
            .container
            .lifecycle
            .as_ref()
            .and_then(|life| life.post_start.clone());
        let uid = meta::uid(&pod.metadata);
        if let Some(hook) = hook {
            if let Err(why) = self.hook(&instance, &hook).await {
                let message = format!("PostStartHook failed: {why}");
                self.tell(
                    uid,
                    "postStart failed",
                    Some((EventType::Warning, "FailedPostStartHook", message)),
                );
                self.stop_container(&pod, &instance.container.name, None, "FailedPostStartHook");
                return;
            }
            let started = instance.container.startup_probe.is_none();
            if instance.found(started, started && instance.container.readiness_probe.is_none()) {
                self.tell(uid, "postStart is over", None);
            }
        }
        tokio::select! {
            () = probes::run(&self, &pod, &instance) => {}
            () = instance.ended() => {}
        }
    }
}

impl Instance {
    fn could_not_start(&self) -> bool {
        self.running.is_none()
    }

    /// The reason of its end, where it is known.
    fn why(&self) -> Option<&'static str> {
        let gauge = self.running.as_ref()?.gauge.as_ref()?;
        gauge.is_over().then_some("OOMKilled")
    }

    /// The container's termination message (`terminationMessagePath`).
    fn last_words(&self, code: i32) -> String {
        let Some(running) = &self.running else {
            return String::new();
        };
        // A program may have made anything of it: only a file of its own counts.
        let path = Below::of_container(message_path(&self.container)).map_err(std::io::Error::other);
        let said = path.and_then(|path| running.mounts.read(&path, MESSAGE, running.order.user));
        let said = said.unwrap_or_default();
        let falls_back = self.container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if said.is_empty() && code != 0 && falls_back {
            return self.log.tail(MESSAGE_OF_LOG.0, MESSAGE_OF_LOG.1);
        }
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Whether a container is to run as root and is not to (`verifyRunAsNonRoot`).
fn contradicts_itself(pod: &Pod, container: &Container) -> bool {
    let own = container.security_context.as_ref();
    let whole = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let user = own
        .and_then(|own| own.run_as_user)
        .or(whole.and_then(|whole| whole.run_as_user));
    let is_no_root = own
        .and_then(|own| own.run_as_non_root)
        .or(whole.and_then(|whole| whole.run_as_non_root));
    is_no_root == Some(true) && user == Some(0)
}

/// Sends a piece of output to the clients that are attached to the program.
fn show(to: &broadcast::Sender<(u8, Bytes)>, stream: u8, piece: &[u8]) {
    if to.receiver_count() > 0 {
        // The last of them may have gone at this moment.
        let _ = to.send((stream, Bytes::copy_from_slice(piece)));
    }
}
