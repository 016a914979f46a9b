//! The command line: kubebuilder's flags, in the forms that Go's `flag` package takes.
//!
//! One table holds every flag; help, errors and defaults follow from it. Written by hand because every operator's build
//! would pay for a library. Invariant: `--flag value`, `--flag=value` and `-flag` mean the same; a boolean takes its
//! value only after `=`.

use std::collections::BTreeMap;

/// One flag.
struct Flag {
    name: &'static str,
    /// The name of its value in the help; `None` for a boolean.
    value: Option<&'static str>,
    default: &'static str,
    help: &'static str,
}

const fn text(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        value: Some(value),
        default,
        help,
    }
}

const fn boolean(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        value: None,
        default,
        help,
    }
}

const FLAGS: &[Flag] = &[
    boolean(
        "enable-http2",
        "false",
        "offer HTTP/2 for webhooks; for operators built with the feature http2",
    ),
    text(
        "health-probe-bind-address",
        "ADDRESS",
        ":8081",
        "where /healthz and /readyz are served; 0 for nowhere",
    ),
    text(
        "kubeconfig",
        "FILE",
        "",
        "how to reach the cluster, instead of KUBECONFIG, the pod's own or ~/.kube/config",
    ),
    boolean(
        "leader-elect",
        "false",
        "let one of several replicas act, by a Lease of the operator's name in its namespace",
    ),
    text(
        "metrics-bind-address",
        "ADDRESS",
        "0",
        "where /metrics is served, such as :8443; 0 for nowhere",
    ),
    text(
        "metrics-cert-key",
        "FILE",
        "tls.key",
        "the key's file in --metrics-cert-path",
    ),
    text(
        "metrics-cert-name",
        "FILE",
        "tls.crt",
        "the certificate's file in --metrics-cert-path",
    ),
    text(
        "metrics-cert-path",
        "DIR",
        "",
        "the directory of the metrics server's certificate; default a certificate that signs itself",
    ),
    boolean(
        "metrics-secure",
        "true",
        "serve metrics over HTTPS, and only to users who may get them",
    ),
    text(
        "namespaces",
        "NAMES",
        "",
        "the namespaces to work in, with commas between, instead of WATCH_NAMESPACE; default all",
    ),
    text(
        "pprof-bind-address",
        "ADDRESS",
        "0",
        "where CPU profiles are served, such as :6060 for this pod only; 0 for nowhere; for operators built with the feature profiling",
    ),
    text(
        "shards",
        "NUMBER",
        "0",
        "let the replicas share the objects out, in so many shards, by Leases of the operator's name; 0 for not",
    ),
    text(
        "webhook-cert-key",
        "FILE",
        "tls.key",
        "the key's file in --webhook-cert-path",
    ),
    text(
        "webhook-cert-name",
        "FILE",
        "tls.crt",
        "the certificate's file in --webhook-cert-path",
    ),
    text(
        "webhook-cert-path",
        "DIR",
        "",
        "the directory of the webhook server's certificate; default k8s-webhook-server/serving-certs in the temporary directory",
    ),
    text(
        "webhook-cert-secret",
        "NAME",
        "",
        "the operator makes the webhook server's certificate itself and keeps it in this Secret, instead of --webhook-cert-path",
    ),
    text(
        "webhook-host",
        "HOST",
        "",
        "the address on which webhooks are served; default all addresses of the machine",
    ),
    text("webhook-port", "PORT", "9443", "the port on which webhooks are served"),
    boolean("zap-devel", "false", "for development: log level debug"),
    text(
        "zap-encoder",
        "FORMAT",
        "console",
        "how log lines look: console or json",
    ),
    text(
        "zap-log-level",
        "LEVEL",
        "",
        "debug, info, warn, error, panic, or a number (1 is debug, 2 and more trace); default info, or what RUST_LOG says",
    ),
    text(
        "zap-stacktrace-level",
        "LEVEL",
        "",
        "accepted, but log lines carry no stack traces",
    ),
    text(
        "zap-time-encoding",
        "FORMAT",
        "rfc3339",
        "epoch, millis, nano, iso8601, rfc3339 or rfc3339nano",
    ),
];

/// The hidden subcommand that prints the declaration.
const DECLARATION: &str = "__declaration";

/// The request of the command line.
#[derive(Debug, PartialEq)]
pub(super) enum Invocation<T> {
    Run(T),
    Help,
    Declaration,
}

/// The value of every flag, given or not.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Flags(BTreeMap<&'static str, String>);

impl Flags {
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).expect("every flag of the table has a value")
    }

    /// The value, unless it is empty.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    /// A boolean; `parse` has checked it.
    pub(super) fn is_set(&self, name: &str) -> bool {
        go_bool(self.get(name)).unwrap_or_default()
    }
}

/// Reads the arguments after the program's name.
pub(super) fn parse(arguments: &[String]) -> Result<Invocation<Flags>, String> {
    let mut values: BTreeMap<&'static str, String> =
        FLAGS.iter().map(|flag| (flag.name, flag.default.to_owned())).collect();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            return match argument == DECLARATION && arguments.len() == 1 {
                true => Ok(Invocation::Declaration),
                false => Err(format!(
                    "{argument:?} is not a flag, and an operator takes nothing else; see --help"
                )),
            };
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if value.is_none() && ["h", "help"].contains(&name) {
            return Ok(Invocation::Help);
        }
        let known = FLAGS
            .iter()
            .find(|flag| flag.name == name)
            .ok_or_else(|| unknown(name))?;
        let value = match (known.value, value) {
            (None, None) => "true".to_owned(),
            (None, Some(value)) if go_bool(&value).is_none() => {
                return Err(format!("--{name} is a boolean: {value:?} is neither true nor false"));
            }
            (_, Some(value)) => value,
            (Some(what), None) => rest
                .next()
                .cloned()
                .ok_or_else(|| format!("--{name} needs a value: --{name}={what}"))?,
        };
        values.insert(known.name, value);
    }
    Ok(Invocation::Run(Flags(values)))
}

fn unknown(name: &str) -> String {
    let names: Vec<String> = FLAGS.iter().map(|flag| format!("--{}", flag.name)).collect();
    format!("unknown flag --{name}; there is {}", names.join(", "))
}

/// The texts of Go's `strconv.ParseBool`.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The text of `--help`.
pub(super) fn help(name: &str) -> String {
    let head = |flag: &Flag| match flag.value {
        Some(value) => format!("--{} {value}", flag.name),
        None => format!("--{}", flag.name),
    };
    let width = FLAGS.iter().map(|flag| head(flag).len()).max().unwrap_or_default();
    let mut help = format!("{name}: a Kubernetes operator\n\nUsage: {name} [FLAGS]\n\nFlags:\n");
    for flag in FLAGS {
        help.push_str(&format!("  {:width$}  {}", head(flag), flag.help));
        if !["", "false"].contains(&flag.default) {
            help.push_str(&format!(" (default {})", flag.default));
        }
        help.push('\n');
    }
    help.push_str(
        "\nEnvironment:\n  ENABLE_WEBHOOKS=false  serve no webhooks\n  WATCH_NAMESPACE        the namespaces to work in, with commas between; default all\n  \
         KUBECONFIG             how to reach the cluster\n  RUST_LOG               what is logged, such as info,my_operator=debug\n",
    );
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &str) -> Result<Invocation<Flags>, String> {
        parse(&arguments.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_taken_as_go_takes_them() {
        let check = |arguments: &str, name: &'static str, expected: &str| match asked(arguments) {
            Ok(Invocation::Run(flags)) => assert_eq!(flags.get(name), expected, "{arguments}"),
            other => panic!("{arguments}: {other:?}"),
        };
        check("", "webhook-port", "9443");
        check("--webhook-port 1", "webhook-port", "1");
        check("--webhook-port=1", "webhook-port", "1");
        check("-webhook-port=1 --webhook-port 2", "webhook-port", "2");
        check("--leader-elect", "leader-elect", "true");
        check("--leader-elect=false", "leader-elect", "false");
        check("--leader-elect --kubeconfig=a=b", "kubeconfig", "a=b");
        check("--webhook-cert-path=", "webhook-cert-path", "");
        assert_eq!(asked("__declaration"), Ok(Invocation::Declaration));
        assert_eq!(asked("--webhook-port 1 --help"), Ok(Invocation::Help));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |arguments: &str, expected: &str| match asked(arguments) {
            Err(why) => assert!(why.starts_with(expected), "{arguments}: {why}"),
            other => panic!("{arguments}: {other:?}"),
        };
        check(
            "--webhook-prot=1",
            "unknown flag --webhook-prot; there is --enable-http2, ",
        );
        check("--kubeconfig", "--kubeconfig needs a value: --kubeconfig=FILE");
        check("--leader-elect=maybe", "--leader-elect is a boolean: \"maybe\"");
        check("--leader-elect false", "\"false\" is not a flag");
        check("run", "\"run\" is not a flag");
    }

    #[test]
    fn help_lists_every_flag() {
        insta::assert_snapshot!(help("guestbook"));
    }
}
