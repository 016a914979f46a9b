//! The cluster of a kubeconfig, and whether it is a local test cluster or a production one.
//!
//! Commands that change a cluster work against clusters of this machine only, unless a person names the context or the
//! project has used it before ([`Target::allow`]): the commonest accident with such tools is the wrong current context.
//! Invariant: a context that looks local but leads away (a proxy, a tunnel whose certificate belongs to another name)
//! is not local.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use kubewright::kube;
use kubewright::kube::config::{KubeConfigOptions, Kubeconfig};
use kubewright_codegen::{Diagnostic, Place, codes};

use crate::errors::chain;
use crate::project::{PRIVATE, Project};
use crate::regular;

/// The clusters far away that the project has used, in its private folder: a server and a context a line.
const USED: &str = "contexts";

/// A context of a kubeconfig.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Where it was read from, for people.
    pub(crate) source: String,
    pub(crate) context: String,
    pub(crate) server: String,
    pub(crate) reach: Reach,
    config: Kubeconfig,
}

/// What a command asks [`Target::allow`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The command.
    pub(crate) command: &'a str,
    /// The context that a person has confirmed.
    pub(crate) confirmed: Option<&'a str>,
    /// What the command would do there, or why it does not go on.
    pub(crate) harm: &'a str,
    /// What else to do, up to the `if`; may be empty.
    pub(crate) alternative: &'a str,
    /// The flag that confirms.
    pub(crate) flag: &'a str,
}

/// How far away a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// `kubewright cluster`, `dev` or `demo` on this machine.
    Embedded,
    /// Another cluster of this machine: kind, k3d, minikube, …
    Local,
    /// Anything else, and why it is not taken for local.
    Remote(String),
}

/// The files that a kubeconfig is read from.
fn sources(file: Option<&Path>) -> Vec<PathBuf> {
    match (file, std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty())) {
        (Some(file), _) => vec![file.to_path_buf()],
        (None, Some(list)) => std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect(),
        (None, None) => std::env::home_dir()
            .map(|home| home.join(".kube/config"))
            .into_iter()
            .collect(),
    }
}

/// The names of the contexts of the kubeconfig, for completion; none when it cannot be read.
pub(crate) fn contexts() -> Vec<String> {
    let is_regular = |path: &PathBuf| regular::check(path).is_ok();
    if !sources(None).iter().any(is_regular) {
        return Vec::new();
    }
    let config = Kubeconfig::read().map(|config| config.contexts).unwrap_or_default();
    config.into_iter().map(|context| context.name).collect()
}

impl Target {
    /// Reads the kubeconfig and finds the context: the one named, or the current one. `file` is the value of
    /// `--kubeconfig`; without it `$KUBECONFIG` and `~/.kube/config` count, as for kubectl.
    ///
    /// # Errors
    /// KWR0801 when there is no such file, context or server.
    pub(crate) fn read(file: Option<&Path>, context: Option<&str>) -> Result<Target, Diagnostic> {
        let source = match file {
            Some(file) => file.display().to_string(),
            None => std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".to_owned()),
        };
        let cannot =
            || Diagnostic::new(codes::machine::KUBECONFIG, "cannot find the cluster").at(Place::file(source.clone()));
        let fix = "name a file with --kubeconfig, or start a cluster: kubewright cluster";
        for path in sources(file) {
            // A file that is missing is the reader's to report: kubectl skips those of a list.
            match regular::check(&path) {
                Err(why) if why.kind() != ErrorKind::NotFound => {
                    return Err(cannot().because(format!("{}: {why}", path.display())).fix(fix));
                }
                _ => {}
            }
        }
        let read = match file {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let config = read.map_err(|why| cannot().because(why).fix(fix))?;
        let names = || {
            let names: Vec<&str> = config.contexts.iter().map(|context| context.name.as_str()).collect();
            match names[..] {
                [] => "it has no contexts".to_owned(),
                _ => format!("its contexts are {}", names.join(", ")),
            }
        };
        let Some(name) = context.map(str::to_owned).or_else(|| config.current_context.clone()) else {
            return Err(cannot()
                .because(format!("no context is current, and {}", names()))
                .fix("name one with --context"));
        };
        let found = config.contexts.iter().find(|context| context.name == name);
        let Some(found) = found.and_then(|found| found.context.clone()) else {
            return Err(cannot()
                .because(format!("there is no context {name}; {}", names()))
                .fix("name another with --context"));
        };
        let cluster = config.clusters.iter().find(|cluster| cluster.name == found.cluster);
        let cluster = cluster.and_then(|named| named.cluster.clone()).unwrap_or_default();
        let Some(server) = cluster.server else {
            return Err(cannot()
                .because(format!(
                    "context {name} means cluster {}, which has no server",
                    found.cluster
                ))
                .fix("name another with --context"));
        };
        let reach = reach(
            &name,
            &server,
            cluster.proxy_url.as_deref(),
            cluster.tls_server_name.as_deref(),
        );
        Ok(Target {
            source,
            context: name,
            server,
            reach,
            config,
        })
    }

    /// One line for people: `context kind-test, https://127.0.0.1:39123 (on this machine)`.
    pub(crate) fn describe(&self) -> String {
        let reach = match &self.reach {
            Reach::Embedded => "an embedded cluster",
            Reach::Local => "on this machine",
            Reach::Remote(_) => "not on this machine",
        };
        format!("context {}, {} ({reach})", self.context, self.server)
    }

    /// Refuses a cluster that is not of this machine unless a person has confirmed its context. All commands that change
    /// a cluster ask here.
    ///
    /// # Errors
    /// KWR0702, with the server that was found and the reason.
    pub(crate) fn allow(&self, asked: &Request<'_>) -> Result<(), Diagnostic> {
        let Reach::Remote(why) = &self.reach else { return Ok(()) };
        if asked.confirmed == Some(self.context.as_str()) {
            return Ok(());
        }
        let refused = Diagnostic::new(
            codes::dev::REMOTE,
            format!("refusing to run {} against context {}", asked.command, self.context),
        )
        .at(Place::file(self.source.clone()))
        .because(format!(
            "its server {} is not a cluster of this machine: {why}",
            self.server
        ))
        .because(asked.harm);
        let refused = match asked.confirmed {
            Some(other) => refused.because(format!("{} names {other}, which is another context", asked.flag)),
            None => refused,
        };
        Err(refused.fix(format!(
            "{}if you mean this one, pass {} {}",
            asked.alternative, asked.flag, self.context
        )))
    }

    /// Whether the project has used this context, with this server, before.
    pub(crate) fn is_known_to(&self, project: &Project) -> bool {
        let Ok(text) = regular::text(&project.root.join(PRIVATE).join(USED)) else {
            return false;
        };
        text.lines().any(|line| line == self.line())
    }

    /// Remembers that the project uses this context. Contexts of this machine are not remembered: they need no
    /// confirmation.
    ///
    /// # Errors
    /// KWR0003 when the file cannot be written.
    pub(crate) fn remember(&self, project: &Project) -> Result<(), Diagnostic> {
        if !matches!(self.reach, Reach::Remote(_)) || self.is_known_to(project) {
            return Ok(());
        }
        let file = project.private_folder()?.join(USED);
        let before = regular::text(&file).unwrap_or_default();
        std::fs::write(&file, format!("{before}{}\n", self.line())).map_err(|why| {
            Diagnostic::new(codes::files::IO, "cannot remember that the project uses this context")
                .at(Place::file(file.display().to_string()))
                .because(why)
        })
    }

    fn line(&self) -> String {
        format!("{} {}", self.server, self.context)
    }

    /// The certificate that its server is trusted by (PEM), when the kubeconfig says one.
    pub(crate) fn authority(&self) -> Option<String> {
        let found = self
            .config
            .contexts
            .iter()
            .find(|context| context.name == self.context)?;
        let name = &found.context.as_ref()?.cluster;
        let cluster = self.config.clusters.iter().find(|cluster| cluster.name == *name)?;
        let cluster = cluster.cluster.as_ref()?;
        match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
            (Some(data), _) => {
                let text = base64::engine::general_purpose::STANDARD.decode(data).ok()?;
                String::from_utf8(text).ok()
            }
            (None, Some(path)) => regular::text(Path::new(path)).ok(),
            (None, None) => None,
        }
    }

    /// A client of this context.
    ///
    /// # Errors
    /// KWR0801 when the credentials cannot be read or the certificate makes no sense.
    pub(crate) async fn client(&self) -> Result<kube::Client, Diagnostic> {
        let options = KubeConfigOptions {
            context: Some(self.context.clone()),
            ..KubeConfigOptions::default()
        };
        let cannot = |why: String| {
            Diagnostic::new(
                codes::machine::KUBECONFIG,
                format!("cannot talk to context {}", self.context),
            )
            .at(Place::file(self.source.clone()))
            .because(why)
            .fix("correct the context in that file, or name another with --context")
        };
        let config = kube::Config::from_custom_kubeconfig(self.config.clone(), &options)
            .await
            .map_err(|why| cannot(chain(&why)))?;
        kube::Client::try_from(config).map_err(|why| cannot(chain(&why)))
    }

    /// Writes a kubeconfig whose current context is this one, readable by its owner alone, for a program that is to
    /// work there.
    ///
    /// # Errors
    /// KWR0003 when the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<PathBuf, Diagnostic> {
        write(&self.config(), path)?;
        Ok(path.to_path_buf())
    }

    /// The kubeconfig, with this context as the current one.
    pub(crate) fn config(&self) -> Kubeconfig {
        Kubeconfig {
            current_context: Some(self.context.clone()),
            ..self.config.clone()
        }
    }
}

/// Writes a kubeconfig, readable by its owner alone.
///
/// # Errors
/// KWR0003 when the file cannot be written.
pub(crate) fn write(config: &Kubeconfig, path: &Path) -> Result<(), Diagnostic> {
    // JSON is YAML.
    serde_json::to_string_pretty(config)
        .map_err(std::io::Error::from)
        .and_then(|text| kubewright_cluster::kubeconfig::write(path, &text))
        .map_err(|why| {
            Diagnostic::new(codes::files::IO, "cannot hand the kubeconfig to the operator")
                .at(Place::file(path.display().to_string()))
                .because(why)
        })
}

fn reach(context: &str, server: &str, proxy: Option<&str>, tls_name: Option<&str>) -> Reach {
    let host = host(server);
    let loopback = |host: &str| {
        host == "localhost"
            || host.ends_with(".localhost")
            || host
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
    };
    if let Some(proxy) = proxy {
        return Reach::Remote(format!("it is reached through the proxy {proxy}"));
    }
    if let Some(name) = tls_name.filter(|name| !loopback(name)) {
        return Reach::Remote(format!(
            "its certificate is that of {name}, so {host} is a tunnel to it"
        ));
    }
    // Tools that put a cluster into a virtual machine or a container of this machine, where it has an address of its
    // own.
    let known = context == "minikube"
        || context == "docker-desktop"
        || context == "rancher-desktop"
        || context.starts_with("kind-")
        || context.starts_with("k3d-");
    let private = host.parse::<IpAddr>().is_ok_and(|ip| match ip {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    });
    match () {
        () if loopback(host) && context == "kubernetes-admin@kubewright" => Reach::Embedded,
        () if loopback(host) => Reach::Local,
        () if known && (private || host == "kubernetes.docker.internal" || host == "host.docker.internal") => {
            Reach::Local
        }
        () => Reach::Remote(format!("{host} is not a loopback address")),
    }
}

/// The host of a URL: `https://[::1]:6443/path` is `::1`.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_of_this_machine_is_local() {
        let check = |context: &str, server: &str, proxy: Option<&str>, name: Option<&str>, expected: &str| {
            let found = match reach(context, server, proxy, name) {
                Reach::Embedded => "embedded".to_owned(),
                Reach::Local => "local".to_owned(),
                Reach::Remote(why) => why,
            };
            assert_eq!(found, expected, "{context} {server}");
        };
        check(
            "kubernetes-admin@kubewright",
            "https://127.0.0.1:34567",
            None,
            None,
            "embedded",
        );
        check(
            "kubernetes-admin@kubewright",
            "https://10.0.0.1:6443",
            None,
            None,
            "10.0.0.1 is not a loopback address",
        );
        check("kind-test", "https://127.0.0.1:39123", None, None, "local");
        check("any", "https://[::1]:6443/path", None, None, "local");
        check("any", "https://localhost:6443", None, None, "local");
        check("minikube", "https://192.168.49.2:8443", None, None, "local");
        check(
            "minikube",
            "https://203.0.113.7:8443",
            None,
            None,
            "203.0.113.7 is not a loopback address",
        );
        check(
            "prod",
            "https://192.168.49.2:8443",
            None,
            None,
            "192.168.49.2 is not a loopback address",
        );
        check(
            "prod-eu",
            "https://api.example.com",
            None,
            None,
            "api.example.com is not a loopback address",
        );
        check(
            "prod",
            "https://127.0.0.1.example.com",
            None,
            None,
            "127.0.0.1.example.com is not a loopback address",
        );
        check(
            "prod",
            "https://localhost@evil.example.com",
            None,
            None,
            "evil.example.com is not a loopback address",
        );
        check(
            "tunnel",
            "https://127.0.0.1:6443",
            None,
            Some("api.example.com"),
            "its certificate is that of api.example.com, so 127.0.0.1 is a tunnel to it",
        );
        check(
            "p",
            "https://127.0.0.1:6443",
            Some("socks5://bastion:1080"),
            None,
            "it is reached through the proxy socks5://bastion:1080",
        );
    }

    #[test]
    fn a_remote_cluster_is_refused_unless_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: prod-eu\nclusters:\n- name: eu\n  cluster: {server: 'https://10.1.2.3'}\n\
                    contexts:\n- name: prod-eu\n  context: {cluster: eu, user: me}\nusers: []\n";
        std::fs::write(&file, text).unwrap();
        let target = Target::read(Some(&file), None).unwrap();
        let refused = |allowed: Option<&str>| {
            target
                .allow(&Request {
                    command: "`dev`",
                    confirmed: allowed,
                    harm: "it replaces definitions there",
                    alternative: "without --context … ; ",
                    flag: "--allow-context",
                })
                .map_err(|why| why.to_string())
        };
        insta::assert_snapshot!(refused(None).unwrap_err().replace(&file.display().to_string(), "FILE"), @"
        refusing to run `dev` against context prod-eu [KWR0702]
          at: FILE
          because: its server https://10.1.2.3 is not a cluster of this machine: 10.1.2.3 is not a loopback address
          because: it replaces definitions there
          fix: without --context … ; if you mean this one, pass --allow-context prod-eu
        ");
        assert!(
            refused(Some("prod-us"))
                .unwrap_err()
                .contains("--allow-context names prod-us")
        );
        assert_eq!(refused(Some("prod-eu")), Ok(()));

        let unknown = Target::read(Some(&file), Some("stage")).unwrap_err().to_string();
        assert!(
            unknown.contains("there is no context stage; its contexts are prod-eu"),
            "{unknown}"
        );
    }
}
