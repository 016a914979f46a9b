//! The machine and the cluster in the eyes of `doctor`. Each look is followed by a judgement that is a function of the
//! finding.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kubewright_codegen::codes;
use tokio::process::Command;

use super::installed::installed;
use super::{Check, Status};
use crate::errors::chain;
use crate::target::{Reach, Target};

/// The oldest Rust that builds kubewright and its scaffold.
const RUST: (u32, u32) = (1, 90);
/// The oldest kubectl that gets along with OpenAPI version 3 alone.
const KUBECTL: (u32, u32) = (1, 30);
/// Free space on the disk: below the first builds fail, below the second they soon will.
const DISK: (u64, u64) = (500 << 20, 3 << 30);
/// How long a server or a tool may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The default ports of an operator, and their purpose.
const PORTS: [(u16, &str); 3] = [(8081, "probes"), (8443, "metrics"), (9443, "webhooks")];

/// Everything about the machine. `folder`: where the disk is looked at.
pub(super) async fn machine(folder: &Path) -> Vec<Check> {
    let mut checks = vec![
        rust(said("rustc", &["--version"]).await.as_deref()),
        cargo(said("cargo", &["--version"]).await.as_deref()),
        linker(said("cc", &["--version"]).await.as_deref()),
        kubectl(
            said("kubectl", &["version", "--client", "--output=json"])
                .await
                .as_deref(),
        ),
    ];
    checks.push(match rustix::fs::statvfs(folder) {
        Ok(stat) => disk(stat.f_bavail.saturating_mul(stat.f_frsize)),
        Err(why) => Check::remark("disk", format!("cannot be asked how full it is: {why}")),
    });
    checks.extend(PORTS.into_iter().filter_map(|(port, purpose)| {
        // Bound on all addresses, as the operator binds; given back at once.
        let taken = TcpListener::bind(("0.0.0.0", port)).is_err();
        taken.then(|| {
            Check::remark(
                format!("port {port}"),
                format!("taken; an operator uses it for {purpose}"),
            )
            .code(codes::machine::PORT)
            .fix("`kubewright dev` chooses others by itself; `ss -ltnp` shows who listens")
        })
    }));
    let watches = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    if let Some(watches) = watches.ok().and_then(|text| text.trim().parse().ok()) {
        checks.extend(inotify(watches));
    }
    checks
}

/// The cluster of the kubeconfig, if there is one, and its parts of the project in `root`.
pub(super) async fn cluster(context: Option<&str>, root: Option<&Path>) -> Vec<Check> {
    let target = match Target::read(None, context) {
        Ok(target) => target,
        Err(why) if context.is_none() => {
            let found = format!("no cluster: {}", why.causes.join(": "));
            return vec![Check::remark("kubeconfig", found).fix("none is needed for `kubewright dev` and for tests")];
        }
        Err(why) => return vec![Check::of("kubeconfig", Status::Bad, why)],
    };
    let mut checks = vec![Check::good("kubeconfig", target.describe())];
    if let Reach::Remote(why) = &target.reach {
        checks.push(Check::remark(
            "far away",
            format!("{why}; `run`, `install` and `deploy` work there, `dev` only when it is named"),
        ));
    }
    let asked = async {
        let client = target.client().await.map_err(|why| why.causes.join(": "))?;
        let version = client.apiserver_version().await.map_err(|why| chain(&why))?;
        Ok::<_, String>((client, version.git_version))
    };
    let answer = tokio::time::timeout(TIMEOUT, asked)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
    match answer {
        Ok((client, version)) => {
            checks.push(Check::good("server", version));
            if let Some(root) = root {
                checks.extend(installed(root, &client).await);
            }
        }
        Err(why) => checks.push(
            Check::remark("server", format!("{} does not answer: {why}", target.server))
                .code(codes::machine::KUBECONFIG)
                .fix("start it, or choose another context: kubectl config use-context NAME"),
        ),
    }
    checks
}

/// The output of a tool; `None` when it is not installed or fails.
async fn said(tool: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(tool);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await.ok()?.ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first version in a text, as major and minor number: `rustc 1.95.0 (…)`, `"gitVersion": "v1.36.3"`.
fn version(text: &str) -> Option<(u32, u32)> {
    text.split(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .find_map(|word| {
            let mut parts = word.split('.');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        })
}

fn rust(said: Option<&str>) -> Check {
    let wanted = format!("{}.{}", RUST.0, RUST.1);
    match said.map(|said| (said, version(said))) {
        None => Check::bad("rust", "rustc is not there, or does not run")
            .code(codes::machine::TOOLCHAIN)
            .fix("install Rust: https://rustup.rs"),
        Some((said, Some(found))) if found >= RUST => Check::good("rust", said),
        Some((said, _)) => Check::bad("rust", format!("{said} is too old; {wanted} or newer is required"))
            .code(codes::machine::TOOLCHAIN)
            .fix("rustup update stable"),
    }
}

fn cargo(said: Option<&str>) -> Check {
    match said {
        Some(said) => Check::good("cargo", said),
        None => Check::bad("cargo", "is not there, or does not run")
            .code(codes::machine::TOOLCHAIN)
            .fix("install Rust: https://rustup.rs"),
    }
}

fn linker(said: Option<&str>) -> Check {
    match said {
        Some(said) => Check::good("linker", said.lines().next().unwrap_or_default()),
        None => Check::bad("linker", "there is no C compiler (cc), which links programs")
            .code(codes::machine::TOOLCHAIN)
            .fix("apt install build-essential, dnf install gcc, or xcode-select --install"),
    }
}

fn kubectl(said: Option<&str>) -> Check {
    let found = said.and_then(|said| {
        let said: serde_json::Value = serde_json::from_str(said).ok()?;
        said["clientVersion"]["gitVersion"].as_str().map(str::to_owned)
    });
    match found {
        None => Check::remark(
            "kubectl",
            "is not there; it is not needed, but shows what is in a cluster",
        )
        .code(codes::machine::TOOL)
        .fix("https://kubernetes.io/docs/tasks/tools/"),
        Some(found) if version(&found).is_some_and(|found| found >= KUBECTL) => Check::good("kubectl", found),
        Some(found) => Check::remark(
            "kubectl",
            format!("{found} requests OpenAPI version 2, which the embedded cluster does not serve"),
        )
        .code(codes::machine::TOOL)
        .fix(format!("kubectl {}.{} or newer", KUBECTL.0, KUBECTL.1)),
    }
}

fn disk(free: u64) -> Check {
    let found = format!("{:.1} GB free", free as f64 / f64::from(1 << 30));
    let check = match () {
        () if free < DISK.0 => Check::bad("disk", found),
        () if free < DISK.1 => Check::remark("disk", found),
        () => return Check::good("disk", found),
    };
    check
        .code(codes::machine::DISK)
        .fix("cargo clean, in projects that you do not work on")
}

fn inotify(watches: u64) -> Option<Check> {
    (watches < 8192).then(|| {
        Check::remark("files", format!("at most {watches} can be watched, which is few"))
            .code(codes::dev::WATCH)
            .fix("sudo sysctl fs.inotify.max_user_watches=524288")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_judged() {
        let check = |check: Check, state: Status, found: &str| {
            assert_eq!(check.state, state, "{check:?}");
            assert!(check.found.contains(found), "{check:?}");
            assert_eq!(
                check.state == Status::Good,
                check.fix.is_none(),
                "what is not good has a fix: {check:?}"
            );
        };
        check(rust(Some("rustc 1.95.0 (1234 2026-04-01)")), Status::Good, "1.95.0");
        check(
            rust(Some("rustc 1.70.0 (1234 2023-04-01)")),
            Status::Bad,
            "1.90 or newer is required",
        );
        check(rust(Some("something else")), Status::Bad, "too old");
        check(rust(None), Status::Bad, "not there");
        check(cargo(None), Status::Bad, "not there");
        check(linker(None), Status::Bad, "no C compiler (cc)");
        check(linker(Some("cc (Debian) 12.2.0\nmore")), Status::Good, "12.2.0");
        check(
            kubectl(Some(r#"{"clientVersion":{"gitVersion":"v1.36.3"}}"#)),
            Status::Good,
            "v1.36.3",
        );
        check(
            kubectl(Some(r#"{"clientVersion":{"gitVersion":"v1.9.3"}}"#)),
            Status::Remark,
            "OpenAPI version 2",
        );
        check(kubectl(None), Status::Remark, "not needed");
        check(disk(1 << 20), Status::Bad, "0.0 GB");
        check(disk(1 << 30), Status::Remark, "1.0 GB");
        check(disk(1 << 40), Status::Good, "1024.0 GB");
        assert!(inotify(524_288).is_none());
        assert!(inotify(1024).is_some());
    }
}
