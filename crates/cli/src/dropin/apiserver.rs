//! `kube-apiserver`: the API server of a cluster, with the certificates, keys and rules that its flags name, and
//! without controllers unless `--controllers` says otherwise.
//!
//! Objects are in the folder that the etcd behind `--etcd-servers` names. Not here: the meaning of flags (`settings`).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kubewright_cluster::{AuditLog, Cluster, Config, Minor, Pki, StaticTokens};

use super::settings::{self, Audit, Settings};
use super::table::APISERVER;
use super::{etcd, failed, flags, print, warn};
use crate::parent::Parent;
use crate::signals::stop_signal;

/// How long the end may take; all acknowledged writes are on the disk by then.
const STOP: Duration = Duration::from_secs(1);

pub(super) fn main(arguments: &[String], started: Instant) -> ExitCode {
    let parent = Parent::now();
    let given = match flags::parse(APISERVER, arguments) {
        Ok(given) => given,
        Err(why) => return failed(&why),
    };
    if given.help {
        let intro = "The API server of kubewright under the name and with the flags of Kubernetes' own. It needs the etcd beside it.\nOther flags of Kubernetes' own change nothing, which is said, or are refused with the reason.";
        print(&flags::help(intro, "kube-apiserver [flags]", &APISERVER.served()));
        return ExitCode::SUCCESS;
    }
    let minor = match super::minor() {
        Ok(minor) => minor,
        Err(why) => return failed(&why),
    };
    match version(given.last("version").unwrap_or("false"), minor) {
        Ok(None) => {}
        Ok(Some(text)) => {
            print(&text);
            return ExitCode::SUCCESS;
        }
        Err(why) => return failed(&why),
    }
    if !given.rest.is_empty() {
        let rest: Vec<String> = given.rest.iter().map(|one| format!("{one:?}")).collect();
        let rest = rest.join(" ");
        return failed(&format!("\"kube-apiserver\" does not take any arguments, got [{rest}]"));
    }
    let settings = match settings::read(&given, minor) {
        Ok(settings) => settings,
        Err(why) => return failed(&why),
    };
    for text in &settings.warnings {
        warn(text);
    }
    crate::log_to_stderr(0);
    crate::descriptors::raise();
    let done = crate::block_on_one_thread(async {
        let ended = run(settings, parent, started).await;
        ended.map_err(crate::output::Failure::new)
    });
    done.map_or_else(|why| failed(&why.to_string()), |()| ExitCode::SUCCESS)
}

async fn run(settings: Settings, parent: Parent, started: Instant) -> Result<(), String> {
    let stop = stop_signal().map_err(|why| why.to_string())?;
    let ended = async move {
        tokio::select! {
            () = stop => {}
            () = parent.gone() => {}
        }
    };
    let mut ended = std::pin::pin!(ended);
    // The etcd beside it may not be there yet, or never be: a signal ends the wait, too.
    let cluster = tokio::select! {
        cluster = start(&settings) => cluster?,
        () = &mut ended => return Ok(()),
    };
    let address = cluster.serve(settings.listen).await.map_err(unheard)?;
    tracing::info!(%address, milliseconds = started.elapsed().as_millis(), "serving");
    crate::rest::until(ended, || cluster.api().rehearse()).await;
    // Past the deadline the process ends and takes the rest with it.
    let _ = tokio::time::timeout(STOP, cluster.stop()).await;
    Ok(())
}

/// The answer to `--version` (`verflag`): the version that is served is what it is.
fn version(value: &str, minor: Minor) -> Result<Option<String>, String> {
    let served = minor.version();
    match (value, flags::truth(value)) {
        ("raw", _) => Ok(Some(format!(
            "version.Info{{Major:\"1\", Minor:\"{}\", GitVersion:{served:?}, GitCommit:\"kubewright\"}}\n",
            minor.number()
        ))),
        (_, Some(true)) => Ok(Some(format!("Kubernetes {served}\n"))),
        (_, Some(false)) => Ok(None),
        (text, None) if text == served => Ok(None),
        (text, None) if text.starts_with('v') => Err(format!(
            "invalid argument {text:?} for \"--version\" flag: version {text:?} must match major/minor/patch of default version \"{served}\""
        )),
        (text, None) => Err(format!(
            "invalid argument {text:?} for \"--version\" flag: strconv.ParseBool: parsing {text:?}: invalid syntax"
        )),
    }
}

/// Go's words for a port that cannot be had: test environments look for `address already in use`.
fn unheard(why: kubewright_cluster::Error) -> String {
    let kubewright_cluster::Error::Bind { address, source } = why else {
        return why.to_string();
    };
    let source = match source.kind() {
        io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        io::ErrorKind::AddrNotAvailable => "cannot assign requested address".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => source.to_string(),
    };
    format!("failed to create listener: failed to listen on {address}: listen tcp {address}: bind: {source}")
}

async fn start(settings: &Settings) -> Result<Cluster, String> {
    let pki = pki(settings)?;
    let authorization = settings.authorization.ready().await?;
    // `BuiltInAuthenticationOptions.ApplyAuthorization`: anonymous users must not be allowed everything.
    if settings.anonymous && authorization.allows_everything {
        warn(
            "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should use a different authorizer",
        );
    }
    let config = Config {
        minor: settings.minor,
        issuer: settings.issuers.first().cloned().unwrap_or_default(),
        further_issuers: settings.issuers.get(1..).unwrap_or_default().to_vec(),
        audiences: settings.audiences.clone(),
        static_tokens: settings.tokens.as_deref().map(tokens).transpose()?.unwrap_or_default(),
        // The plugin is on unless it is named among those that are not.
        service_account_admission: true,
        anonymous: settings.anonymous && !authorization.allows_everything,
        authorization: authorization.modes,
        disabled_plugins: settings.plugins.disabled.clone(),
        enabled_plugins: settings.plugins.enabled.clone(),
        service_range: settings.service_range,
        compaction_interval: settings.compaction_interval,
        event_ttl: settings.event_ttl,
        max_requests: settings.max_requests,
        ..Config::default()
    };
    let audit = settings.audit.as_ref().map(audit).transpose()?;
    let place = etcd::ask(settings.etcd).await?;
    let mut builder = Cluster::builder().endpoints(settings.has_endpoints);
    if let Some(address) = settings.advertised {
        builder = builder.advertise(address);
    }
    if let Some(log) = audit {
        builder = builder.audit(log);
    }
    builder
        .serving_threads(crate::commands::cluster::serving_threads())
        .controllers(settings.controllers.clone())
        .api(config)
        .pki(pki)
        .data_dir(folder(&place.folder, &settings.prefix))
        .unsynced(!place.synced)
        .start()
        .await
        .map_err(|why| why.to_string())
}

/// The folder of the objects below a prefix: beside the one of the usual prefix.
fn folder(usual: &Path, prefix: &str) -> PathBuf {
    match (prefix, usual.file_name()) {
        ("", _) | (_, None) => usual.to_owned(),
        (prefix, Some(name)) => usual.with_file_name(format!("{}-{prefix}", name.to_string_lossy())),
    }
}

fn audit(settings: &Audit) -> Result<AuditLog, String> {
    let (log, warnings) = crate::audit::open(
        &settings.policy,
        &settings.path,
        settings.rotation,
        settings.strict,
        &settings.form,
    )?;
    for text in warnings {
        warn(&text);
    }
    Ok(log)
}

fn pki(settings: &Settings) -> Result<Pki, String> {
    let (certificate, key) = &settings.certificate;
    if settings.make_certificate && !certificate.exists() && !key.exists() {
        make_certificate(settings)?;
    }
    let told = |why: kubewright_cluster::ServerError| why.to_string();
    let mut pki = Pki::serving(&text(certificate)?, &text(key)?).map_err(told)?;
    if let Some(path) = &settings.client_authorities {
        pki = pki.clients(&text(path)?).map_err(told)?;
    }
    let believed: Result<Vec<String>, String> = settings.verifying_keys.iter().map(|path| text(path)).collect();
    let signing =
        text(&settings.signing_key).map_err(|why| format!("failed to parse service-account-issuer-key-file: {why}"))?;
    pki.service_accounts(&signing, &believed?).map_err(told)
}

pub(super) fn text(path: &Path) -> Result<String, String> {
    // Go's words for the system's error about a file.
    fs::read_to_string(path).map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => format!("open {}: no such file or directory", path.display()),
        io::ErrorKind::IsADirectory => format!("read {}: is a directory", path.display()),
        io::ErrorKind::PermissionDenied => format!("open {}: permission denied", path.display()),
        _ => format!("open {}: {why}", path.display()),
    })
}

fn tokens(path: &Path) -> Result<StaticTokens, String> {
    StaticTokens::parse(&text(path)?).map_err(|why| format!("--token-auth-file {}: {why}", path.display()))
}

/// A certificate of its own in `--cert-dir`, where there is none (`MaybeDefaultWithSelfSignedCerts`).
fn make_certificate(settings: &Settings) -> Result<(), String> {
    let (certificate, key) = &settings.certificate;
    let (chain, secret) = Pki::self_signed(settings.listen.ip()).map_err(|why| why.to_string())?;
    let write = |path: &Path, text: &str, mode: u32| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())
    };
    let made = match certificate.parent() {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o755).create(folder),
        None => Ok(()),
    };
    made.and_then(|()| write(key, &secret, 0o600))
        .and_then(|()| write(certificate, &chain, 0o644))
        .map_err(|why| {
            format!(
                "error creating self-signed certificates: {}: {why}",
                certificate.display()
            )
        })
}
