//! The authorizers: `--authorization-mode` and the flags of its webhook, or the file that `--authorization-config`
//! names (`AuthorizationConfiguration` of `apiserver.config.k8s.io`, KEP-3221).
//!
//! Invariants: a setting that is given twice, or beside its mode, is an error; a file is accepted only when all of it
//! acts. It is read once, at the start: kube-apiserver reads it again when it changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubewright_cluster::authorization::{Conditions, Settings as Webhook, Verdict, Version, Webhook as Asked};
use kubewright_cluster::{AuthorizationMode, KubeconfigReviewer, go_duration};
use serde::Deserialize;

use super::flags::Given;
use super::settings::file;

/// The name of the webhook that flags speak of (`defaultWebhookName` upstream).
const FROM_FLAGS: &str = "default";
const AUTHORIZED: Duration = Duration::from_secs(300);
const UNAUTHORIZED: Duration = Duration::from_secs(30);
/// The longest time that one review may take.
const LONGEST: Duration = Duration::from_secs(30);

/// The modes of the flags.
#[derive(Debug, PartialEq)]
pub(super) enum Authorization {
    /// These, in this order.
    Modes(Vec<Authorizer>),
    /// The authorizers of a file.
    File(PathBuf),
}

impl Default for Authorization {
    fn default() -> Authorization {
        Authorization::Modes(vec![Authorizer::Local(AuthorizationMode::AlwaysAllow)])
    }
}

/// An authorizer.
#[derive(Debug, PartialEq)]
pub(super) enum Authorizer {
    /// The API server itself.
    Local(AuthorizationMode),
    /// The server that this kubeconfig names.
    Webhook(Box<Webhook>, PathBuf),
}

/// The authorizers, ready to be asked; and whether one of them allows everything.
pub(super) struct Ready {
    pub(super) modes: Vec<AuthorizationMode>,
    pub(super) allows_everything: bool,
}

impl Authorization {
    /// Reads the files that are named.
    ///
    /// # Errors
    /// The error, with the authorizer that it is about.
    pub(super) async fn ready(&self) -> Result<Ready, String> {
        let read;
        let authorizers = match self {
            Authorization::Modes(modes) => modes,
            Authorization::File(path) => {
                let text = super::apiserver::text(path)?;
                read = parse(&text)
                    .map_err(|why| format!("failed to load AuthorizationConfiguration from file: {why}"))?;
                &read
            }
        };
        let mut modes = Vec::with_capacity(authorizers.len());
        for authorizer in authorizers {
            modes.push(match authorizer {
                Authorizer::Local(mode) => mode.clone(),
                Authorizer::Webhook(settings, kubeconfig) => webhook(settings, kubeconfig).await?,
            });
        }
        Ok(Ready {
            allows_everything: modes.contains(&AuthorizationMode::AlwaysAllow),
            modes,
        })
    }
}

async fn webhook(settings: &Webhook, kubeconfig: &Path) -> Result<AuthorizationMode, String> {
    let reviewer = KubeconfigReviewer::read(kubeconfig)
        .await
        .map_err(|why| why.to_string())?;
    Ok(AuthorizationMode::Webhook(Asked {
        settings: settings.clone(),
        reviewer: std::sync::Arc::new(reviewer),
    }))
}

/// The authorization by the flags (`BuiltInAuthorizationOptions.Validate`).
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn of_flags(given: &Given) -> Result<Authorization, String> {
    const WEBHOOK: [&str; 4] = [
        "authorization-webhook-config-file",
        "authorization-webhook-version",
        "authorization-webhook-cache-authorized-ttl",
        "authorization-webhook-cache-unauthorized-ttl",
    ];
    let wanted = given.list("authorization-mode");
    if let Some(path) = file(given, "authorization-config") {
        if given.last("authorization-mode").is_some() || WEBHOOK.iter().any(|name| given.last(name).is_some()) {
            return Err(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
                    .to_owned(),
            );
        }
        return Ok(Authorization::File(path));
    }
    let seen: BTreeSet<&str> = wanted.iter().copied().collect();
    if seen.len() < wanted.len() {
        let all: Vec<String> = wanted.iter().map(|mode| format!("{mode:?}")).collect();
        let all = all.join(" ");
        return Err(format!("authorization-mode [{all}] has mode specified more than once"));
    }
    let mut modes = Vec::new();
    for mode in &wanted {
        modes.push(match *mode {
            "Webhook" => webhook_of_flags(given)?,
            "ABAC" => return Err(format!("authorization-mode {mode:?} is not served by kubewright")),
            other => {
                let local = local(other).ok_or_else(|| format!("authorization-mode {mode:?} is not a valid mode"))?;
                Authorizer::Local(local)
            }
        });
    }
    if !seen.contains("Webhook") && file(given, WEBHOOK[0]).is_some() {
        return Err("cannot specify --authorization-webhook-config-file without mode Webhook".to_owned());
    }
    Ok(match modes.is_empty() {
        true => Authorization::default(),
        false => Authorization::Modes(modes),
    })
}

/// The authorizers that are the server's own.
fn local(name: &str) -> Option<AuthorizationMode> {
    match name {
        "AlwaysAllow" => Some(AuthorizationMode::AlwaysAllow),
        "AlwaysDeny" => Some(AuthorizationMode::AlwaysDeny),
        "RBAC" => Some(AuthorizationMode::Rbac),
        "Node" => Some(AuthorizationMode::Node),
        _ => None,
    }
}

fn webhook_of_flags(given: &Given) -> Result<Authorizer, String> {
    let kubeconfig = file(given, "authorization-webhook-config-file")
        .ok_or("authorization-mode Webhook's authorization config file not passed")?;
    let version = given.last("authorization-webhook-version").unwrap_or("v1beta1");
    let lasting = |flag: &str, otherwise: Duration| given.lasting(flag).unwrap_or(otherwise);
    let settings = Webhook {
        name: FROM_FLAGS.to_owned(),
        version: version_of(version)
            .ok_or_else(|| format!("--authorization-webhook-version: {version:?} is neither \"v1\" nor \"v1beta1\""))?,
        authorized_ttl: lasting("authorization-webhook-cache-authorized-ttl", AUTHORIZED),
        unauthorized_ttl: lasting("authorization-webhook-cache-unauthorized-ttl", UNAUTHORIZED),
        timeout: LONGEST,
        on_error: Verdict::NoOpinion,
        conditions: Conditions::default(),
    };
    Ok(Authorizer::Webhook(Box::new(settings), kubeconfig))
}

fn version_of(text: &str) -> Option<Version> {
    match text {
        "v1" => Some(Version::V1),
        "v1beta1" => Some(Version::V1beta1),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Configuration {
    api_version: String,
    kind: String,
    #[serde(default)]
    authorizers: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default, rename = "type")]
    mode: String,
    #[serde(default)]
    name: String,
    webhook: Option<Spec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Option<String>,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Option<String>,
    cache_unauthorized_requests: Option<bool>,
    #[serde(default)]
    timeout: String,
    #[serde(default)]
    subject_access_review_version: String,
    #[serde(default)]
    match_condition_subject_access_review_version: String,
    #[serde(default)]
    failure_policy: String,
    connection_info: Connection,
    #[serde(default)]
    match_conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Connection {
    #[serde(default, rename = "type")]
    form: String,
    kube_config_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    #[serde(default)]
    expression: String,
}

/// Reads the file (`ValidateAuthorizationConfiguration`).
fn parse(text: &str) -> Result<Vec<Authorizer>, String> {
    let configuration: Configuration = serde_saphyr::from_str(text).map_err(|why| why.to_string())?;
    let Configuration {
        api_version,
        kind,
        authorizers,
    } = configuration;
    let version = api_version.strip_prefix("apiserver.config.k8s.io/");
    if kind != "AuthorizationConfiguration" || !matches!(version, Some("v1" | "v1beta1")) {
        return Err(format!(
            "it is {kind:?} of {api_version:?}, not \"AuthorizationConfiguration\" of \"apiserver.config.k8s.io/v1\""
        ));
    }
    if authorizers.is_empty() {
        return Err("authorizers: Required value: at least one authorization mode must be defined".to_owned());
    }
    let (mut names, mut modes) = (BTreeSet::new(), BTreeSet::new());
    let entries = authorizers.into_iter().enumerate().map(|(at, entry)| {
        let place = format!("authorizers[{at}]");
        if entry.name.is_empty() {
            return Err(format!("{place}.name: Required value"));
        }
        if !names.insert(entry.name.clone()) {
            return Err(format!("{place}.name: Duplicate value: {:?}", entry.name));
        }
        if entry.mode != "Webhook" && !modes.insert(entry.mode.clone()) {
            return Err(format!("{place}.type: Duplicate value: {:?}", entry.mode));
        }
        match (entry.mode.as_str(), entry.webhook) {
            ("", _) => Err(format!("{place}.type: Required value")),
            ("Webhook", Some(spec)) => spec.read(&format!("{place}.webhook"), entry.name),
            ("Webhook", None) => Err(format!("{place}.webhook: Required value: required when type=Webhook")),
            ("ABAC", _) => Err(format!("{place}.type: Invalid value: \"ABAC\": it is not served by kubewright")),
            (_, Some(_)) => Err(format!(
                "{place}.webhook: Invalid value: \"non-null\": may only be specified when type=Webhook"
            )),
            (mode, None) => local(mode).map(Authorizer::Local).ok_or_else(|| {
                format!(
                    "{place}.type: Unsupported value: {mode:?}: supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \
                     \"RBAC\", \"Webhook\""
                )
            }),
        }
    });
    entries.collect()
}

impl Spec {
    /// `place` is where it stands in the file.
    fn read(self, place: &str, name: String) -> Result<Authorizer, String> {
        let lasting = |field: &str, given: Option<&str>, used: Option<bool>, otherwise: Duration| match (given, used) {
            (None, Some(false)) => Ok(Duration::ZERO),
            (Some(text), Some(false)) => Err(format!(
                "{place}.{field}: Invalid value: {text:?}: it is not used without a cache"
            )),
            (None, _) => Ok(otherwise),
            (Some(text), _) => positive(&format!("{place}.{field}"), text),
        };
        if self.timeout.is_empty() {
            return Err(format!("{place}.timeout: Required value"));
        }
        let timeout = positive(&format!("{place}.timeout"), &self.timeout)?;
        if timeout > LONGEST {
            return Err(format!(
                "{place}.timeout: Invalid value: {:?}: must be <= 30s",
                self.timeout
            ));
        }
        let version = &self.subject_access_review_version;
        let settings = Webhook {
            version: version_of(version).ok_or_else(|| {
                let field = format!("{place}.subjectAccessReviewVersion");
                unsupported(&field, version, "\"v1\", \"v1beta1\"")
            })?,
            authorized_ttl: lasting(
                "authorizedTTL",
                self.authorized_ttl.as_deref(),
                self.cache_authorized_requests,
                AUTHORIZED,
            )?,
            unauthorized_ttl: lasting(
                "unauthorizedTTL",
                self.unauthorized_ttl.as_deref(),
                self.cache_unauthorized_requests,
                UNAUTHORIZED,
            )?,
            timeout,
            on_error: match self.failure_policy.as_str() {
                "NoOpinion" => Verdict::NoOpinion,
                "Deny" => Verdict::Deny,
                other => {
                    let field = format!("{place}.failurePolicy");
                    return Err(unsupported(&field, other, "\"Deny\", \"NoOpinion\""));
                }
            },
            conditions: self.conditions(place)?,
            name,
        };
        Ok(Authorizer::Webhook(
            Box::new(settings),
            self.connection_info.kubeconfig(place)?,
        ))
    }

    fn conditions(&self, place: &str) -> Result<Conditions, String> {
        let version = &self.match_condition_subject_access_review_version;
        if version.is_empty() && !self.match_conditions.is_empty() {
            return Err(format!(
                "{place}.matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
            ));
        }
        if !matches!(version.as_str(), "" | "v1") {
            let field = format!("{place}.matchConditionSubjectAccessReviewVersion");
            return Err(unsupported(&field, version, "\"v1\""));
        }
        let sources = self
            .match_conditions
            .iter()
            .map(|condition| condition.expression.as_str());
        Conditions::compile(sources).map_err(|(at, why)| {
            let source = &self.match_conditions[at].expression;
            format!("{place}.matchConditions[{at}].expression: Invalid value: {source:?}: {why}")
        })
    }
}

impl Connection {
    fn kubeconfig(self, place: &str) -> Result<PathBuf, String> {
        let place = format!("{place}.connectionInfo");
        match (self.form.as_str(), self.kube_config_file) {
            ("", _) => Err(format!("{place}.type: Required value")),
            ("InClusterConfig", _) => Err(format!(
                "{place}.type: Invalid value: \"InClusterConfig\": this API server runs in no cluster; use KubeConfigFile"
            )),
            ("KubeConfigFile", Some(path)) if path.is_absolute() => Ok(path),
            ("KubeConfigFile", Some(path)) => Err(format!(
                "{place}.kubeConfigFile: Invalid value: {:?}: must be an absolute path",
                path.display().to_string()
            )),
            ("KubeConfigFile", None) => Err(format!("{place}.kubeConfigFile: Required value")),
            (other, _) => Err(unsupported(
                &format!("{place}.type"),
                other,
                "\"InClusterConfig\", \"KubeConfigFile\"",
            )),
        }
    }
}

fn unsupported(field: &str, value: &str, known: &str) -> String {
    match value {
        "" => format!("{field}: Required value"),
        value => format!("{field}: Unsupported value: {value:?}: supported values: {known}"),
    }
}

fn positive(field: &str, text: &str) -> Result<Duration, String> {
    let lasting = go_duration(text).map_err(|why| format!("{field}: Invalid value: {text:?}: {why}"))?;
    match u64::try_from(lasting) {
        Ok(nanoseconds) if nanoseconds > 0 => Ok(Duration::from_nanos(nanoseconds)),
        _ => Err(format!("{field}: Invalid value: {text:?}: must be > 0s")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{flags, table::APISERVER};
    use super::*;

    #[test]
    fn flags_are_read() {
        let given = |flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            of_flags(&flags::parse(APISERVER, &flags).unwrap())
        };
        let wrong = |flags: &[&str], expected: &str| assert_eq!(given(flags).unwrap_err(), expected);
        assert_eq!(given(&[]).unwrap(), Authorization::default());
        assert_eq!(
            given(&["--authorization-config=/etc/a"]).unwrap(),
            Authorization::File("/etc/a".into())
        );
        let Authorization::Modes(modes) = given(&[
            "--authorization-mode=Node,Webhook",
            "--authorization-webhook-config-file=/etc/w",
            "--authorization-webhook-version=v1",
            "--authorization-webhook-cache-authorized-ttl=1m",
        ])
        .unwrap() else {
            panic!("modes are given")
        };
        let [
            Authorizer::Local(AuthorizationMode::Node),
            Authorizer::Webhook(webhook, path),
        ] = modes.as_slice()
        else {
            panic!("{modes:?}")
        };
        assert_eq!(path, Path::new("/etc/w"));
        assert_eq!(
            (webhook.version, webhook.authorized_ttl, webhook.unauthorized_ttl),
            (Version::V1, Duration::from_secs(60), Duration::from_secs(30))
        );
        wrong(
            &["--authorization-config=/etc/a", "--authorization-mode=RBAC"],
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
        );
        wrong(
            &[
                "--authorization-mode=RBAC",
                "--authorization-webhook-config-file=/etc/w",
            ],
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        );
    }

    /// The file with one authorizer whose webhook has these lines.
    fn file(webhook: &str) -> String {
        let lines: String = webhook.lines().map(|line| format!("    {line}\n")).collect();
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: w\n  webhook:\n{lines}"
        )
    }

    const WHOLE: &str = "timeout: 3s\nsubjectAccessReviewVersion: v1\nfailurePolicy: Deny\nauthorizedTTL: 1m\ncacheUnauthorizedRequests: false\n\
                         connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/w}\nmatchConditionSubjectAccessReviewVersion: v1\n\
                         matchConditions: [{expression: 'request.user != \"a\"'}]";

    #[test]
    fn a_file_is_read() {
        let text = file(WHOLE) + "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n";
        let webhook = Webhook {
            name: "w".to_owned(),
            version: Version::V1,
            authorized_ttl: Duration::from_secs(60),
            unauthorized_ttl: Duration::ZERO,
            timeout: Duration::from_secs(3),
            on_error: Verdict::Deny,
            conditions: Conditions::compile(["request.user != \"a\""]).unwrap(),
        };
        let expected = [
            Authorizer::Webhook(Box::new(webhook), "/etc/w".into()),
            Authorizer::Local(AuthorizationMode::Node),
            Authorizer::Local(AuthorizationMode::Rbac),
        ];
        assert_eq!(parse(&text).unwrap(), expected);
    }

    #[test]
    fn mistakes_in_a_file_are_told_with_their_place() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let said = parse(text).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        let with = |from: &str, to: &str| file(&WHOLE.replace(from, to));
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";
        check(
            head,
            "authorizers: Required value: at least one authorization mode must be defined",
        );
        check("apiVersion: v1\nkind: Pod\n", "it is \"Pod\" of \"v1\"");
        check(
            &format!("{head}authorizers: [{{type: RBAC}}]"),
            "authorizers[0].name: Required value",
        );
        check(
            &format!("{head}authorizers: [{{type: RBAC, name: a}}, {{type: RBAC, name: b}}]"),
            "authorizers[1].type: Duplicate value: \"RBAC\"",
        );
        check(
            &format!("{head}authorizers: [{{type: RBAC, name: a}}, {{type: Node, name: a}}]"),
            "authorizers[1].name: Duplicate value: \"a\"",
        );
        check(
            &format!("{head}authorizers: [{{type: X, name: a}}]"),
            "Unsupported value: \"X\"",
        );
        check(
            &format!("{head}authorizers: [{{type: Webhook, name: a}}]"),
            "required when type=Webhook",
        );
        check(
            &with("timeout: 3s", "timeout: 31s"),
            "timeout: Invalid value: \"31s\": must be <= 30s",
        );
        check(
            &with("timeout: 3s", "timeout: 0s"),
            "timeout: Invalid value: \"0s\": must be > 0s",
        );
        check(&with("timeout: 3s\n", ""), "timeout: Required value");
        check(&with("Deny", "Ignore"), "failurePolicy: Unsupported value: \"Ignore\"");
        check(
            &with("/etc/w", "w"),
            "kubeConfigFile: Invalid value: \"w\": must be an absolute path",
        );
        check(&with("KubeConfigFile", "InClusterConfig"), "runs in no cluster");
        check(
            &with("request.user", "request.nobody"),
            "matchConditions[0].expression: Invalid value",
        );
        check(
            &with("matchConditionSubjectAccessReviewVersion: v1\n", ""),
            "required if match conditions are specified",
        );
        check(&with("timeout", "timeouts"), "timeouts");
    }
}
