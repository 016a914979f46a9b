//! The settings by the flags of kube-apiserver, before anything is read from the disk or the network.
//!
//! All mistakes are told at once, as the original does: one alone, several in brackets.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kubewright_cluster::{
    AuditFormat, Controllers, Minor, OPTIONAL_PLUGINS, Rotation, SEPARABLE_PLUGINS, ServiceRange,
};

use super::authorization::{self, Authorization};
use super::features::{self, BUILT_IN_PLUGINS, MISSING_PLUGINS};
use super::flags::{self, Given};
use super::table::APISERVER;
use crate::audit::Form;

/// The settings of a server.
#[derive(Debug)]
pub(super) struct Settings {
    /// The version of Kubernetes that is served.
    pub(super) minor: Minor,
    pub(super) listen: SocketAddr,
    /// The address that the cluster announces, if it is another.
    pub(super) advertised: Option<IpAddr>,
    /// Whether it writes the endpoints of the Service `kubernetes`.
    pub(super) has_endpoints: bool,
    /// Address of the etcd beside it.
    pub(super) etcd: SocketAddr,
    /// What keeps its objects there apart from those of other servers; empty: the usual one.
    pub(super) prefix: String,
    /// The serving certificate and its key.
    pub(super) certificate: (PathBuf, PathBuf),
    /// Whether these are made when both are missing.
    pub(super) make_certificate: bool,
    pub(super) client_authorities: Option<PathBuf>,
    /// The first issues tokens, all are believed.
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
    pub(super) signing_key: PathBuf,
    pub(super) verifying_keys: Vec<PathBuf>,
    pub(super) tokens: Option<PathBuf>,
    pub(super) anonymous: bool,
    pub(super) authorization: Authorization,
    pub(super) plugins: Plugins,
    pub(super) service_range: ServiceRange,
    pub(super) compaction_interval: Duration,
    /// The seats of all priority levels together.
    pub(super) max_requests: u64,
    pub(super) event_ttl: Duration,
    pub(super) controllers: Controllers,
    pub(super) audit: Option<Audit>,
    /// Flags that are accepted and do not act as they would upstream.
    pub(super) warnings: Vec<String>,
}

/// The admission plugins that are not as by default.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    /// Plugins that run besides.
    pub(super) enabled: BTreeSet<String>,
    /// Plugins that are left out.
    pub(super) disabled: BTreeSet<String>,
}

/// The flags of an audit log.
#[derive(Debug)]
pub(super) struct Audit {
    pub(super) policy: PathBuf,
    /// `-` is standard output.
    pub(super) path: PathBuf,
    pub(super) rotation: Rotation,
    /// `blocking-strict`.
    pub(super) strict: bool,
    pub(super) form: Form,
}

/// Collects mistakes, so that all of them are told.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    /// The value, or its default beside a mistake.
    fn take<T: Default>(&mut self, read: Result<T, String>) -> T {
        read.unwrap_or_else(|why| {
            self.0.push(why);
            T::default()
        })
    }
}

/// Reads the settings.
///
/// # Errors
/// Everything that is wrong.
pub(super) fn read(given: &Given, minor: Minor) -> Result<Settings, String> {
    let mut mistakes = Mistakes::default();
    let mut warnings = Vec::new();
    let port = mistakes.take(port(given));
    let address = |flag: &str| given.last(flag).and_then(|text| text.trim().parse::<IpAddr>().ok());
    let (bound, advertised) = (address("bind-address"), address("advertise-address"));
    let has_endpoints = mistakes.take(has_endpoints(given));
    let etcd = mistakes.take(etcd(given).map(Some));
    let authorization = mistakes.take(authorization::of_flags(given));
    let anonymous = given.flag("anonymous-auth").unwrap_or(true);
    let plugins = mistakes.take(plugins(given, &mut warnings));
    let service_range = mistakes.take(range(given, &mut warnings));
    let max_requests = mistakes.take(max_requests(given));
    let controllers = mistakes.take(controllers(given));
    let audit = mistakes.take(audit(given, &mut warnings));
    let (certificate, make_certificate) = mistakes.take(certificate(given).map(Some)).unwrap_or_default();
    let issuers = mistakes.take(issuers(given));
    let signing_key = file(given, "service-account-signing-key-file");
    match (&signing_key, given.last("service-account-issuer")) {
        (Some(_), Some(_)) => {}
        (None, None) => {
            let why = "--service-account-signing-key-file and --service-account-issuer are required flags";
            mistakes.0.push(why.to_owned());
        }
        _ => {
            let why = "--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified together";
            mistakes.0.push(why.to_owned());
        }
    }
    mistakes.take(APISERVER.judge(given, &mut warnings));
    mistakes.take(features::gates(given, minor, &mut warnings));
    mistakes.take(features::runtime_config(given, minor, &mut warnings));
    match mistakes.0.as_slice() {
        [] => {}
        [one] => return Err(one.clone()),
        more => return Err(format!("[{}]", more.join(", "))),
    }
    Ok(Settings {
        minor,
        listen: SocketAddr::new(bound.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port),
        // No address at all is as good as none given (`ResolveAdvertiseAddress`).
        advertised: advertised.filter(|address| !address.is_unspecified()),
        has_endpoints,
        etcd: etcd.ok_or("--etcd-servers must be specified")?,
        prefix: prefix(given),
        certificate,
        make_certificate,
        client_authorities: file(given, "client-ca-file"),
        issuers,
        audiences: given.list("api-audiences").into_iter().map(str::to_owned).collect(),
        signing_key: signing_key.unwrap_or_default(),
        verifying_keys: given
            .all("service-account-key-file")
            .iter()
            .map(PathBuf::from)
            .collect(),
        tokens: file(given, "token-auth-file"),
        anonymous,
        authorization,
        plugins,
        service_range,
        compaction_interval: given
            .lasting("etcd-compaction-interval")
            .unwrap_or(Duration::from_secs(300)),
        max_requests,
        event_ttl: given.lasting("event-ttl").unwrap_or(Duration::from_secs(3600)),
        controllers: controllers.unwrap_or(Controllers::None),
        audit,
        warnings,
    })
}

pub(super) fn file(given: &Given, name: &str) -> Option<PathBuf> {
    given.last(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn port(given: &Given) -> Result<u16, String> {
    let number = integer(given, "secure-port")?.unwrap_or(6443);
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| {
        format!("--secure-port {number} must be between 1 and 65535, inclusive. It cannot be turned off with 0")
    })
}

/// The seats of all priority levels together; none without API Priority and Fairness.
fn max_requests(given: &Given) -> Result<u64, String> {
    let reading = number(given, "max-requests-inflight")?.unwrap_or(400);
    let mutating = number(given, "max-mutating-requests-inflight")?.unwrap_or(200);
    let is_on = given.flag("enable-priority-and-fairness").unwrap_or(true);
    Ok(if is_on { reading.saturating_add(mutating) } else { 0 })
}

/// `reconcilers.AllTypes`: one server is alone among several as well as among one.
fn has_endpoints(given: &Given) -> Result<bool, String> {
    match given.last("endpoint-reconciler-type").unwrap_or_default() {
        "" | "lease" | "master-count" => Ok(true),
        "none" => Ok(false),
        other => Err(format!(
            "--endpoint-reconciler-type={other}: reconciler not implemented; there are lease, master-count and none"
        )),
    }
}

/// The one address behind `--etcd-servers`.
fn etcd(given: &Given) -> Result<SocketAddr, String> {
    match given.list("etcd-servers").as_slice() {
        [] => Err("--etcd-servers must be specified".to_owned()),
        [one] => client_address(one).map_err(|why| format!("--etcd-servers={one}: {why}")),
        more => Err(format!(
            "--etcd-servers={}: one etcd of kubewright is served, not several",
            more.join(",")
        )),
    }
}

/// `--etcd-prefix` as a part of a file name.
fn prefix(given: &Given) -> String {
    let given = given.last("etcd-prefix").unwrap_or("/registry").trim_matches('/');
    let mut name = String::new();
    for byte in given.bytes().filter(|_| given != "registry") {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name
}

/// The address in the URL of a client port.
pub(super) fn client_address(url: &str) -> Result<SocketAddr, String> {
    let plain = "only http://HOST:PORT of an etcd of `kubewright assets` is served";
    let place = url.strip_prefix("http://").ok_or(plain)?.trim_end_matches('/');
    let place = match place.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => place.to_owned(),
    };
    place.parse().map_err(|_| plain.to_owned())
}

/// `AdmissionOptions.Validate`
fn plugins(given: &Given, warnings: &mut Vec<String>) -> Result<Plugins, String> {
    let (enabled, disabled) = (
        given.list("enable-admission-plugins"),
        given.list("disable-admission-plugins"),
    );
    let (here, fixed) = (&SEPARABLE_PLUGINS[..], &BUILT_IN_PLUGINS[..]);
    let mut wrong = Vec::new();
    for (flag, names) in [("enable", &enabled), ("disable", &disabled)] {
        let unknown = |name: &&&str| {
            ![here, fixed, &OPTIONAL_PLUGINS, &MISSING_PLUGINS]
                .iter()
                .any(|known| known.contains(*name))
        };
        wrong.extend(
            names
                .iter()
                .filter(unknown)
                .map(|name| format!("{flag}-admission-plugins plugin {name:?} is unknown")),
        );
    }
    if !wrong.is_empty() {
        return Err(wrong.join(", "));
    }
    if let Some(both) = enabled.iter().find(|name| disabled.contains(name)) {
        return Err(format!(
            "[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"
        ));
    }
    if let Some(missing) = enabled.iter().find(|name| MISSING_PLUGINS.contains(name)) {
        return Err(format!(
            "enable-admission-plugins plugin {missing:?} is not served by kubewright"
        ));
    }
    if let Some(always) = disabled.iter().find(|name| fixed.contains(name)) {
        return Err(format!(
            "disable-admission-plugins plugin {always:?} cannot be left out of kubewright"
        ));
    }
    if !disabled.contains(&"ServiceAccount") && controllers(given).ok().flatten().is_none() {
        warnings.push(
            "no controller makes service accounts: pods are refused in a namespace until its account \"default\" exists \
             (--disable-admission-plugins=ServiceAccount or --controllers=all)"
                .to_owned(),
        );
    }
    let of = |names: &[&str], known: &[&str]| {
        let named = names.iter().filter(|name| known.contains(name));
        named.map(|&name| name.to_owned()).collect()
    };
    Ok(Plugins {
        enabled: of(&enabled, &OPTIONAL_PLUGINS),
        disabled: of(&disabled, here),
    })
}

/// `--service-cluster-ip-range`; addresses of IPv4 only.
fn range(given: &Given, warnings: &mut Vec<String>) -> Result<ServiceRange, String> {
    let texts = given.list("service-cluster-ip-range");
    for (at, text) in texts.iter().enumerate() {
        let parts = text
            .split_once('/')
            .and_then(|(address, prefix)| Some((address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?)));
        if parts.is_none_or(|(address, prefix)| prefix > if address.is_ipv4() { 32 } else { 128 }) {
            return Err(format!("service-cluster-ip-range[{at}] is not a valid cidr"));
        }
    }
    match texts.as_slice() {
        [] => {
            let why = "No CIDR for service cluster IPs specified. Default value which was 10.0.0.0/24 is deprecated and will be removed in future \
                       releases. Please specify it using --service-cluster-ip-range on kube-apiserver.";
            warnings.push(why.to_owned());
            Ok(ServiceRange::default())
        }
        [text] => text
            .parse()
            .map_err(|why| format!("--service-cluster-ip-range={text}: {why}")),
        texts => Err(format!(
            "--service-cluster-ip-range={}: Services of two families are not served by kubewright",
            texts.join(",")
        )),
    }
}

fn controllers(given: &Given) -> Result<Option<Controllers>, String> {
    let Some(text) = given.last("controllers") else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|why| format!("--controllers={text}: {why}"))
}

/// The audit log (`AuditOptions`).
fn audit(given: &Given, warnings: &mut Vec<String>) -> Result<Option<Audit>, String> {
    let mode = given.last("audit-log-mode").unwrap_or("blocking");
    if !["batch", "blocking", "blocking-strict"].contains(&mode) {
        return Err(format!(
            "invalid audit log mode {mode}, allowed modes are \"batch,blocking,blocking-strict\""
        ));
    }
    let form = audit_form(given)?;
    let default = Rotation::default();
    let days = number(given, "audit-log-maxage")?;
    let rotation = Rotation {
        max_bytes: number(given, "audit-log-maxsize")?
            .map_or(default.max_bytes, |megabytes| megabytes.saturating_mul(1 << 20)),
        max_files: number(given, "audit-log-maxbackup")?
            .map_or(default.max_files, |files| usize::try_from(files).unwrap_or(usize::MAX)),
        max_age: days.map_or(default.max_age, |days| {
            Duration::from_secs(days.saturating_mul(24 * 60 * 60))
        }),
        compress: given.flag("audit-log-compress").unwrap_or(false),
    };
    if mode == "batch" {
        warnings.push("--audit-log-mode=batch: events are written at once, as with blocking".to_owned());
    }
    match (file(given, "audit-policy-file"), file(given, "audit-log-path")) {
        (Some(policy), Some(path)) => Ok(Some(Audit {
            policy,
            path,
            rotation,
            strict: mode == "blocking-strict",
            form,
        })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            warnings.push("--audit-policy-file without --audit-log-path: no audit log is written".to_owned());
            Ok(None)
        }
        (None, Some(_)) => {
            warnings.push("No audit policy file provided, no events will be recorded for log backend".to_owned());
            Ok(None)
        }
    }
}

/// How events are written (`AuditTruncateOptions.Validate` and `AuditLogOptions.Validate`).
fn audit_form(given: &Given) -> Result<Form, String> {
    const BATCH: i64 = 10 * 1024 * 1024;
    const EVENT: i64 = 100 * 1024;
    let event = integer(given, "audit-log-truncate-max-event-size")?.unwrap_or(EVENT);
    let batch = integer(given, "audit-log-truncate-max-batch-size")?.unwrap_or(BATCH);
    let max = usize::try_from(event).ok().filter(|max| *max > 0);
    let max =
        max.ok_or_else(|| format!("invalid audit truncate log max event size {event}, must be a positive number"))?;
    if batch < event {
        return Err(format!(
            "invalid audit truncate log max batch size {batch}, must be greater than max event size ({event})"
        ));
    }
    let format = match given.last("audit-log-format").unwrap_or("json") {
        "json" => AuditFormat::Json,
        "legacy" => AuditFormat::Legacy,
        other => {
            return Err(format!(
                "invalid audit log format {other}, allowed formats are \"legacy,json\""
            ));
        }
    };
    let truncates = given.flag("audit-log-truncate-enabled").unwrap_or(false);
    Ok(Form {
        format,
        max_event_size: truncates.then_some(max),
    })
}

/// A number as Go reads it.
fn integer(given: &Given, name: &str) -> Result<Option<i64>, String> {
    given.last(name).map(flags::integer).transpose()
}

/// A number that is not negative.
fn number(given: &Given, name: &str) -> Result<Option<u64>, String> {
    let Some(number) = integer(given, name)? else {
        return Ok(None);
    };
    u64::try_from(number)
        .map(Some)
        .map_err(|_| format!("--{name} {number} can't be a negative number"))
}

/// The issuers, each once.
fn issuers(given: &Given) -> Result<Vec<String>, String> {
    let all = given.all("service-account-issuer");
    for (at, one) in all.iter().enumerate() {
        if one.is_empty() {
            return Err("service-account-issuer should not be an empty string".to_owned());
        }
        if all[..at].contains(one) {
            return Err(format!("service-account-issuer {one:?} is already specified"));
        }
    }
    Ok(all.to_vec())
}

fn certificate(given: &Given) -> Result<((PathBuf, PathBuf), bool), String> {
    match (file(given, "tls-cert-file"), file(given, "tls-private-key-file")) {
        (Some(certificate), Some(key)) => Ok(((certificate, key), false)),
        (None, None) => {
            let folder = file(given, "cert-dir").unwrap_or_else(|| PathBuf::from("/var/run/kubernetes"));
            Ok(((folder.join("apiserver.crt"), folder.join("apiserver.key")), true))
        }
        _ => Err("missing filename for serving cert".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(more: &[&str]) -> Result<Settings, String> {
        let base = [
            "--etcd-servers=http://127.0.0.1:1",
            "--service-account-issuer=https://issuer",
            "--service-account-signing-key-file=sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
        ];
        let all: Vec<String> = base.iter().chain(more).map(|&one| one.to_owned()).collect();
        read(&flags::parse(APISERVER, &all).unwrap(), Minor::default())
    }

    #[test]
    fn what_is_wrong_is_refused_in_words() {
        #[track_caller]
        fn check(more: &[&str], expected: &str) {
            assert_eq!(settings(more).unwrap_err(), expected);
        }
        check(
            &["--secure-port=0"],
            "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
        );
        check(
            &["--endpoint-reconciler-type=nonsense"],
            "--endpoint-reconciler-type=nonsense: reconciler not implemented; there are lease, master-count and none",
        );
        check(
            &["--authorization-mode=Nonsense"],
            "authorization-mode \"Nonsense\" is not a valid mode",
        );
        check(
            &["--authorization-mode=Webhook"],
            "authorization-mode Webhook's authorization config file not passed",
        );
        check(
            &["--authorization-mode=RBAC,RBAC"],
            "authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once",
        );
        check(
            &["--disable-admission-plugins=Nonsense"],
            "disable-admission-plugins plugin \"Nonsense\" is unknown",
        );
        check(
            &["--disable-admission-plugins=Priority"],
            "disable-admission-plugins plugin \"Priority\" cannot be left out of kubewright",
        );
        check(
            &["--service-cluster-ip-range=x"],
            "service-cluster-ip-range[1] is not a valid cidr",
        );
        check(
            &["--service-account-issuer="],
            "service-account-issuer should not be an empty string",
        );
        check(
            &["--service-account-issuer=https://issuer"],
            "service-account-issuer \"https://issuer\" is already specified",
        );
        check(
            &["--enable-admission-plugins=NamespaceExists"],
            "enable-admission-plugins plugin \"NamespaceExists\" is not served by kubewright",
        );
        check(
            &[
                "--enable-admission-plugins=PodSecurity",
                "--disable-admission-plugins=PodSecurity",
            ],
            "[PodSecurity] in enable-admission-plugins and disable-admission-plugins overlapped",
        );
        check(
            &["--etcd-servers=https://127.0.0.1:2"],
            "--etcd-servers=http://127.0.0.1:1,https://127.0.0.1:2: one etcd of kubewright is served, not several",
        );
        check(
            &["--audit-log-mode=nonsense"],
            "invalid audit log mode nonsense, allowed modes are \"batch,blocking,blocking-strict\"",
        );
        check(
            &["--audit-log-format=nonsense"],
            "invalid audit log format nonsense, allowed formats are \"legacy,json\"",
        );
        check(
            &["--audit-log-truncate-max-event-size=0"],
            "invalid audit truncate log max event size 0, must be a positive number",
        );
        check(
            &["--audit-log-truncate-max-batch-size=1000"],
            "invalid audit truncate log max batch size 1000, must be greater than max event size (102400)",
        );
        check(
            &["--audit-log-maxage=-2"],
            "--audit-log-maxage -2 can't be a negative number",
        );
        check(
            &["--tls-cert-file=a", "--secure-port=0"],
            "[--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0, \
             missing filename for serving cert]",
        );
        let none = read(&Given::default(), Minor::default()).unwrap_err();
        assert!(
            none.contains("--etcd-servers must be specified") && none.contains("are required flags"),
            "{none}"
        );
    }

    #[test]
    fn servers_with_different_prefixes_have_different_folders() {
        #[track_caller]
        fn check(flag: &str, expected: &str) {
            assert_eq!(settings(&[flag]).unwrap().prefix, expected, "{flag}");
        }
        check("--v=1", "");
        check("--etcd-prefix=registry/", "");
        check("--etcd-prefix=/a", "a");
        check("--etcd-prefix=/a/B_-9", "a%2fB_-9");
        check("--etcd-prefix=../é", "%2e%2e%2f%c3%a9");
    }

    #[test]
    fn the_defaults_are_those_of_upstream() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.listen.to_string(), "0.0.0.0:6443");
        assert_eq!(settings.authorization, Authorization::default());
        assert_eq!(
            settings.certificate.0,
            PathBuf::from("/var/run/kubernetes/apiserver.crt")
        );
        assert!(settings.make_certificate && settings.plugins.disabled.is_empty());
    }

    #[test]
    fn what_is_accepted_without_acting_is_said() {
        #[track_caller]
        fn check(more: &[&str], expected: &[&str]) {
            let off = [
                "--disable-admission-plugins=ServiceAccount",
                "--authorization-mode=RBAC",
            ];
            let all: Vec<&str> = off.iter().chain(more).copied().collect();
            let warnings = settings(&all).unwrap().warnings;
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            for (warning, start) in warnings.iter().zip(expected) {
                assert!(warning.starts_with(start), "{warning}");
            }
        }
        check(&[], &[]);
        check(
            &["--feature-gates=AllAlpha=true", "--runtime-config=api/all=true"],
            &[
                "--feature-gates=AllAlpha=true changes nothing",
                "--runtime-config=api/all=true changes nothing",
            ],
        );
        check(&["--audit-policy-file=p", "--audit-log-path=l"], &[]);
        check(
            &["--audit-policy-file=p"],
            &["--audit-policy-file without --audit-log-path"],
        );
        check(&["--audit-log-path=l"], &["No audit policy file provided"]);
        check(
            &["--audit-policy-file=p", "--audit-log-path=l", "--audit-log-mode=batch"],
            &["--audit-log-mode=batch: events are written at once"],
        );
        assert_eq!(settings(&[]).unwrap().warnings.len(), 1);
    }
}
