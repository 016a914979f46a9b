//! The settings that follow from the flags and the environment.

use std::path::PathBuf;

use super::flags::Flags;
use super::logging::{Encoder, Level, Logging, Time};
use crate::metrics_server::MetricsServer;

/// The variables that count.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    pub(super) enable_webhooks: Option<String>,
    pub(super) watch_namespace: Option<String>,
    pub(super) rust_log: Option<String>,
}

impl Environment {
    pub(super) fn of_process() -> Environment {
        let get = |name: &str| std::env::var(name).ok();
        Environment {
            enable_webhooks: get("ENABLE_WEBHOOKS"),
            watch_namespace: get("WATCH_NAMESPACE"),
            rust_log: get("RUST_LOG"),
        }
    }
}

/// How the operator is to run.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) kubeconfig: Option<String>,
    pub(super) health: Option<String>,
    /// None for all, or the operator's own.
    pub(super) namespaces: Vec<String>,
    pub(super) webhooks: bool,
    pub(super) leader_election: bool,
    /// How many; none when objects are not shared out.
    pub(super) shards: Option<usize>,
    pub(super) metrics: Option<MetricsServer>,
    /// Where CPU profiles are served.
    #[cfg(feature = "profiling")]
    pub(super) profiles: Option<String>,
    /// Host and port, as listeners take them.
    pub(super) webhook_address: String,
    pub(super) certificate_dir: Option<PathBuf>,
    pub(super) certificate_names: (String, String),
    /// The Secret of a certificate that the operator makes itself.
    pub(super) certificate_secret: Option<String>,
    #[cfg(feature = "http2")]
    pub(super) http2: bool,
    pub(super) logging: Logging,
    /// Requests that are not fulfilled, in words.
    pub(super) warnings: Vec<String>,
}

impl Settings {
    pub(super) fn new(flags: &Flags, environment: &Environment) -> Result<Settings, String> {
        let port = flags.get("webhook-port");
        let webhook_port: u16 = port
            .parse()
            .map_err(|_| format!("--webhook-port={port}: a port is a number between 0 and 65535"))?;
        #[cfg(not(feature = "profiling"))]
        no_profiles(flags)?;
        #[cfg(not(feature = "http2"))]
        if flags.is_set("enable-http2") {
            return Err("--enable-http2: this operator was built without HTTP/2; build it with the feature `http2` of kubewright".to_owned());
        }
        Ok(Settings {
            kubeconfig: flags.given("kubeconfig").map(str::to_owned),
            health: flags
                .given("health-probe-bind-address")
                .filter(|address| *address != "0")
                .map(str::to_owned),
            namespaces: namespaces(flags, environment),
            leader_election: flags.is_set("leader-elect"),
            shards: shards(flags)?,
            metrics: metrics(flags),
            #[cfg(feature = "profiling")]
            profiles: flags
                .given("pprof-bind-address")
                .filter(|address| *address != "0")
                .map(str::to_owned),
            webhooks: environment.enable_webhooks.as_deref() != Some("false"),
            webhook_address: format!("{}:{webhook_port}", flags.get("webhook-host")),
            certificate_dir: flags.given("webhook-cert-path").map(PathBuf::from),
            certificate_names: (
                flags.get("webhook-cert-name").to_owned(),
                flags.get("webhook-cert-key").to_owned(),
            ),
            certificate_secret: flags.given("webhook-cert-secret").map(str::to_owned),
            #[cfg(feature = "http2")]
            http2: flags.is_set("enable-http2"),
            logging: logging(flags, environment)?,
            warnings: warnings(flags),
        })
    }

    /// Logs once the requests that are not fulfilled.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
}

/// `--namespaces`, or `WATCH_NAMESPACE`; both are lists with commas.
fn namespaces(flags: &Flags, environment: &Environment) -> Vec<String> {
    let listed = flags.given("namespaces").or(environment.watch_namespace.as_deref());
    let names = listed.unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// An endpoint that answers nothing would be found out when it is needed most.
#[cfg(not(feature = "profiling"))]
fn no_profiles(flags: &Flags) -> Result<(), String> {
    match flags.get("pprof-bind-address") {
        "" | "0" => Ok(()),
        address => Err(format!(
            "--pprof-bind-address={address}: this operator was built without profiles; build it with the feature `profiling` of kubewright, or sample it \
             from outside, with perf record -g -p PID, as the book says (Going to production, Profiles)"
        )),
    }
}

/// Whether there may be so many is the manager's matter.
fn shards(flags: &Flags) -> Result<Option<usize>, String> {
    let shards = flags.get("shards");
    let number: usize = shards
        .parse()
        .map_err(|_| format!("--shards={shards}: it is a number, and 0 for none"))?;
    Ok(Some(number).filter(|number| *number > 0))
}

fn metrics(flags: &Flags) -> Option<MetricsServer> {
    let address = flags.given("metrics-bind-address").filter(|address| *address != "0")?;
    let server =
        MetricsServer::new(address).certificate_names(flags.get("metrics-cert-name"), flags.get("metrics-cert-key"));
    let server = match flags.given("metrics-cert-path") {
        Some(directory) => server.certificate_dir(directory),
        None => server,
    };
    Some(match flags.is_set("metrics-secure") {
        true => server,
        false => server.insecure(),
    })
}

fn logging(flags: &Flags, environment: &Environment) -> Result<Logging, String> {
    let wrong = |name: &str, allowed: &str| Err(format!("--{name}={}: it is one of {allowed}", flags.get(name)));
    let encoder = match flags.get("zap-encoder") {
        "console" => Encoder::Console,
        "json" => Encoder::Json,
        _ => return wrong("zap-encoder", "console and json"),
    };
    let time = match flags.get("zap-time-encoding") {
        "epoch" => Time::Epoch,
        "millis" => Time::Millis,
        "nano" => Time::Nano,
        "iso8601" => Time::Iso8601,
        "rfc3339" => Time::Rfc3339,
        "rfc3339nano" => Time::Rfc3339Nano,
        _ => {
            return wrong(
                "zap-time-encoding",
                "epoch, millis, nano, iso8601, rfc3339 and rfc3339nano",
            );
        }
    };
    let level = match (flags.given("zap-log-level"), flags.is_set("zap-devel")) {
        (None, true) => Some(Level::Debug),
        (None, false) => None,
        (Some(level), _) => match level {
            "debug" | "1" => Some(Level::Debug),
            "info" | "0" => Some(Level::Info),
            "warn" => Some(Level::Warn),
            "error" | "panic" => Some(Level::Error),
            number if number.parse::<u32>().is_ok() => Some(Level::Trace),
            _ => return wrong("zap-log-level", "debug, info, warn, error, panic and the whole numbers"),
        },
    };
    Ok(Logging {
        encoder,
        time,
        level,
        rust_log: environment.rust_log.clone().filter(|text| !text.is_empty()),
    })
}

fn warnings(flags: &Flags) -> Vec<String> {
    let mut warnings = Vec::new();
    if flags.given("zap-stacktrace-level").is_some() {
        warnings.push(
            "--zap-stacktrace-level: log lines carry no stack traces; set RUST_BACKTRACE=1 for those of panics"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Invocation, parse};
    use super::*;

    fn settings(arguments: &str, environment: Environment) -> Result<Settings, String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        match parse(&arguments)? {
            Invocation::Run(flags) => Settings::new(&flags, &environment),
            other => panic!("{other:?}"),
        }
    }

    /// The arguments of kubebuilder's manifests, as they are.
    #[test]
    fn the_default_manifests_start_an_operator() {
        let arguments = "--metrics-bind-address=:8443 --leader-elect --health-probe-bind-address=:8081 \
                         --metrics-cert-path=/tmp/k8s-metrics-server/metrics-certs \
                         --webhook-cert-path=/tmp/k8s-webhook-server/serving-certs";
        let settings = settings(arguments, Environment::default()).expect("they are valid");
        assert_eq!(settings.health.as_deref(), Some(":8081"));
        assert_eq!(
            settings.certificate_dir,
            Some(PathBuf::from("/tmp/k8s-webhook-server/serving-certs"))
        );
        assert!(settings.webhooks);
        assert!(settings.leader_election && settings.warnings.is_empty());
        let metrics = format!("{:?}", settings.metrics.expect("it is on"));
        insta::assert_snapshot!(metrics, @r#"MetricsServer { address: ":8443", secure: true, directory: Some("/tmp/k8s-metrics-server/metrics-certs"), names: ("tls.crt", "tls.key") }"#);
    }

    #[test]
    fn the_environment_counts() {
        let check = |arguments: &str, variable: &str, expected: &[&str]| {
            let environment = Environment {
                watch_namespace: Some(variable.to_owned()),
                enable_webhooks: Some("false".to_owned()),
                ..Environment::default()
            };
            let arguments = format!("--health-probe-bind-address=0 {arguments}");
            let settings = settings(&arguments, environment).expect("it is understood");
            assert_eq!(settings.namespaces, expected, "{arguments} {variable:?}");
            assert_eq!((settings.webhooks, settings.health), (false, None));
        };
        check("", "", &[]);
        check("", " team-a, ", &["team-a"]);
        check("", "a,b", &["a", "b"]);
        check("--namespaces=c,d", "a,b", &["c", "d"]);
        check("--namespaces=", "a", &["a"]);
    }

    #[test]
    fn logging_is_as_zap_flags_say() {
        let check = |arguments: &str, expected: Result<Option<Level>, &str>| match (
            settings(arguments, Environment::default()),
            expected,
        ) {
            (Ok(settings), Ok(level)) => assert_eq!(settings.logging.level, level, "{arguments}"),
            (Err(why), Err(expected)) => assert_eq!(why, expected, "{arguments}"),
            (got, _) => panic!("{arguments}: {got:?}"),
        };
        check("", Ok(None));
        check("--zap-devel", Ok(Some(Level::Debug)));
        check("--zap-devel --zap-log-level=error", Ok(Some(Level::Error)));
        check("--zap-log-level=5", Ok(Some(Level::Trace)));
        check(
            "--zap-log-level=loud",
            Err("--zap-log-level=loud: it is one of debug, info, warn, error, panic and the whole numbers"),
        );
        check(
            "--zap-encoder=xml",
            Err("--zap-encoder=xml: it is one of console and json"),
        );
        check(
            "--zap-time-encoding=sundial",
            Err("--zap-time-encoding=sundial: it is one of epoch, millis, nano, iso8601, rfc3339 and rfc3339nano"),
        );
        check("--pprof-bind-address=0", Ok(None));
        let profiles = match cfg!(feature = "profiling") {
            true => Ok(None),
            false => Err(
                "--pprof-bind-address=:6060: this operator was built without profiles; build it with the feature `profiling` of kubewright, or \
                 sample it from outside, with perf record -g -p PID, as the book says (Going to production, Profiles)",
            ),
        };
        check("--pprof-bind-address=:6060", profiles);
        check("--shards=-1", Err("--shards=-1: it is a number, and 0 for none"));
        check(
            "--webhook-port=high",
            Err("--webhook-port=high: a port is a number between 0 and 65535"),
        );
    }
}
