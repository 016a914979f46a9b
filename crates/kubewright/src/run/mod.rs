//! The main function of an operator: flags, environment, logging, client, signals.
//!
//! The code that kubebuilder writes to the main.go of every project is here, so the main.rs of a project is small, and
//! an upgrade is an update of a dependency. Flags, environment variables and defaults are kubebuilder's: its manifests
//! start our operators as they are.
//!
//! - `flags.rs`: the command line,
//! - `settings.rs`: the settings made from it and from the environment,
//! - `logging.rs`: log output,
//! - `telemetry.rs`: the export of spans, with the feature `opentelemetry`.
//!
//! Invariants: a setting that has no effect is never accepted silently; the declaration is printed without a cluster, a
//! client or a log line.

mod flags;
mod logging;
mod settings;
#[cfg(feature = "opentelemetry")]
mod telemetry;
#[cfg(not(feature = "opentelemetry"))]
#[path = "no_telemetry.rs"]
mod telemetry;

use futures::future::LocalBoxFuture;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use self::flags::Invocation;
use self::settings::{Environment, Settings};
use crate::client::AGENT;
use crate::error::{Chain, Error, Result};
use crate::manager::shutdown_signal;
use crate::operator::Operator;
use crate::webhook::WebhookServer;

/// The exit code for a command line that cannot be understood, as Go's `flag` package has it.
const USAGE: u8 = 2;

/// Runs an operator as a program: reads flags and environment, connects to the cluster, serves probes and webhooks,
/// runs the controllers until SIGTERM or SIGINT. A second signal ends the process at once.
///
/// ```no_run
/// # use kubewright::Operator;
/// # fn operator() -> Operator { Operator::new("guestbook") }
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     kubewright::run(operator()).await
/// }
/// ```
///
/// The flags are those of kubebuilder's main.go; `--help` lists them. From the environment it takes
/// `ENABLE_WEBHOOKS=false` (no webhooks, for a program that no API server can reach), `WATCH_NAMESPACE` (the namespaces
/// to work in), `KUBECONFIG` and `RUST_LOG`. The cluster is that of `--kubeconfig`, else of `KUBECONFIG`, else the one
/// that the program runs in, else of `~/.kube/config`.
///
/// Logging goes to the standard error stream, unless the program has set up a `tracing` subscriber of its own before.
///
/// Exit codes: 0 after a signal, 1 when something failed, 2 when the command line cannot be understood.
pub fn run(operator: Operator) -> impl Future<Output = ExitCode> {
    run_with(operator, std::env::args().skip(1).collect())
}

/// [`run()`] with these arguments instead of the program's own: for an operator that is one command of a larger program.
pub fn run_with(operator: Operator, arguments: Vec<String>) -> impl Future<Output = ExitCode> {
    // Boxed here, so that a program compiles a call and not all that it leads to.
    let running: LocalBoxFuture<'static, ExitCode> = Box::pin(main(operator, arguments));
    running
}

async fn main(operator: Operator, arguments: Vec<String>) -> ExitCode {
    let parsed = flags::parse(&arguments).and_then(|asked| match asked {
        Invocation::Run(flags) => Settings::new(&flags, &Environment::of_process()).map(Invocation::Run),
        Invocation::Help => Ok(Invocation::Help),
        Invocation::Declaration => Ok(Invocation::Declaration),
    });
    match parsed {
        Err(why) => {
            say(format_args!("{}: {why}", operator.name()));
            ExitCode::from(USAGE)
        }
        Ok(Invocation::Help) => print(&flags::help(operator.name())),
        Ok(Invocation::Declaration) => declare(&operator),
        Ok(Invocation::Run(settings)) => {
            let name = operator.name().to_owned();
            let exporting = logging::start(&settings.logging, &name);
            settings.warn();
            let served = serve(operator, settings).await;
            exporting.end().await;
            match served {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    tracing::error!(%error, "the operator ends");
                    say(format_args!("{name}: {}", Chain(&error)));
                    ExitCode::FAILURE
                }
            }
        }
    }
}

/// The operator in audit logs, by its name and the runtime's: `guestbook kubewright/0.1.0`. None for a name that no
/// header can carry.
fn user_agent(name: &str) -> Option<(http::HeaderName, http::HeaderValue)> {
    let agent = http::HeaderValue::from_str(&format!("{name} {AGENT}")).ok()?;
    Some((http::header::USER_AGENT, agent))
}

async fn serve(mut operator: Operator, settings: Settings) -> Result<()> {
    let mut config = config(settings.kubeconfig.as_deref()).await?;
    tracing::info!(cluster = %config.cluster_url, "the operator starts");
    let host = config
        .cluster_url
        .authority()
        .map(ToString::to_string)
        .unwrap_or_default();
    config.headers.extend(user_agent(operator.name()));
    let client = crate::connect(config)?;
    operator = operator.prepared(&client).await?;
    if let Some(address) = settings.health {
        operator = operator.health(address);
    }
    if settings.webhooks {
        let mut server = WebhookServer::new()
            .address(settings.webhook_address)
            .certificate_names(settings.certificate_names.0, settings.certificate_names.1);
        #[cfg(feature = "http2")]
        {
            server = server.http2(settings.http2);
        }
        if let Some(directory) = settings.certificate_dir {
            server = server.certificate_dir(directory);
        }
        if let Some(secret) = settings.certificate_secret {
            server = server.own_certificate(secret);
        }
        operator = operator.webhook_server(server);
    }
    if settings.leader_election {
        operator = operator.elect_leader();
    }
    if let Some(shards) = settings.shards {
        operator = operator.share_out(shards);
    }
    operator = operator.observe_from_environment();
    let orphaned = operator.orphaned();
    if !settings.namespaces.is_empty() {
        operator = operator.namespaces(settings.namespaces);
    }
    let mut manager = operator.manager(client).talks_to(host);
    if let Some(server) = settings.metrics {
        manager = manager.metrics_server(server);
    }
    #[cfg(feature = "profiling")]
    if let Some(address) = &settings.profiles {
        manager = manager.profiles(address);
    }
    let shutdown = async {
        tokio::select! {
            biased;
            () = shutdown_signal() => {}
            () = orphaned => {}
        }
    };
    manager.build()?.run(shutdown).await
}

/// How to reach the cluster, in controller-runtime's order: the flag, KUBECONFIG, the pod that we are in,
/// `~/.kube/config`.
async fn config(flag: Option<&str>) -> Result<Config> {
    let none = KubeConfigOptions::default();
    let failed = |attempted: &str, error: &(dyn std::error::Error + 'static)| {
        Error::Configuration(format!("cannot reach a cluster: {attempted}: {}", Chain(error)))
    };
    if let Some(path) = flag {
        let what = format!("--kubeconfig {path}");
        let file = Kubeconfig::read_from(path).map_err(|error| failed(&what, &error))?;
        return Config::from_custom_kubeconfig(file, &none)
            .await
            .map_err(|error| failed(&what, &error));
    }
    if let Some(file) = Kubeconfig::from_env().map_err(|error| failed("KUBECONFIG", &error))? {
        return Config::from_custom_kubeconfig(file, &none)
            .await
            .map_err(|error| failed("KUBECONFIG", &error));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Config::incluster().map_err(|error| failed("as a pod of it", &error));
    }
    Config::from_kubeconfig(&none).await.map_err(|error| {
        let hint =
            "there is no --kubeconfig, no KUBECONFIG and no pod around this process, and ~/.kube/config cannot be used";
        failed(hint, &error)
    })
}

/// Prints the operator's declaration as one JSON document.
fn declare(operator: &Operator) -> ExitCode {
    match crate::declaration::declare(operator, &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{}: {}", operator.name(), Chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("cannot write to the standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn say(text: fmt::Arguments<'_>) {
    // The error has no reader when the standard error stream is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}
