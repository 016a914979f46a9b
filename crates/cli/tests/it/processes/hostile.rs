//! Pods whose authors mean harm: to the files of the machine, to other pods, to the cluster, to the clusters after it.
//!
//! Each test is a line of the threat model in `docs/security.md`. The attacker is another pod, and where
//! it matters of another namespace, than the victim. They need root, who alone can give each pod a user of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::processes::kubectl::Kubectl;
use crate::processes::postgres::postgres_is_there;
use crate::processes::running::{apply, cluster, gone, removed};
use crate::support::{RunningCluster, kubectl_is_there};

/// Whether an attack can be tried.
fn may_try() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: pods have no users of their own, and this attack was not tried");
    }
    is_root && kubectl_is_there()
}

/// What the pods of the test are not to reach: a folder that only root may enter, with a file that only root may read.
fn victim(cluster: &RunningCluster) -> PathBuf {
    let folder = cluster.folder.path().join("victim");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("secret"), "TOPSECRET").unwrap();
    fs::set_permissions(folder.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// All of a folder: names, modes, owners and texts.
fn tree(folder: &Path) -> Vec<String> {
    let found = fs::symlink_metadata(folder).unwrap();
    let text = match found.is_file() {
        true => fs::read_to_string(folder).unwrap(),
        false => String::new(),
    };
    let (mode, uid, gid) = (found.mode(), found.uid(), found.gid());
    let mut all = vec![format!("{} {mode:o} {uid}:{gid} {text}", folder.display())];
    if found.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        all.extend(entries.iter().flat_map(|path| tree(path)));
    }
    all
}

fn ended(kubectl: &Kubectl, pod: &str) -> String {
    let phase = ["get", "pod", pod, "-o", "jsonpath={.status.phase}"];
    kubectl.until(&phase, |said| said.out == "Succeeded" || said.out == "Failed");
    let message = "jsonpath={.status.containerStatuses[0].state.terminated.message}";
    kubectl.ok(&["get", "pod", pod, "-o", message])
}

/// Waits until a pod is told why it does not start: in an event, or in the state of its container.
fn refused(kubectl: &Kubectl, pod: &str, why: &str) {
    kubectl.until(&["describe", "pod", pod], |said| said.out.contains(why));
}

fn pod(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{ name: {name} }}\nspec: {spec}\n---\n")
}

#[test]
fn a_message_of_termination_is_a_file_of_the_program() {
    if !may_try() {
        return;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    let victim = victim(&cluster);
    let before = tree(&victim);
    let secret = victim.join("secret").display().to_string();
    let up = "/..".repeat(20);
    let with = |name: &str, path: &str, command: &str| {
        let container = format!(
            "{{ name: c, image: busybox, terminationMessagePath: \"{path}\", command: [sh, -c, '{command}'] }}"
        );
        pod(name, &format!("{{ restartPolicy: Never, containers: [{container}] }}"))
    };
    let all = [
        with("up", &format!("{up}{secret}"), "true"),
        with("makes", &format!("{up}{}/made/x/msg", victim.display()), "true"),
        // The program owns its root folder, and lays links where the cluster will look.
        with(
            "folder",
            "/dev/secret",
            &format!(
                "rm -rf $KUBEWRIGHT_ROOT/dev && ln -s {} $KUBEWRIGHT_ROOT/dev",
                victim.display()
            ),
        ),
        with("file", "/dev/msg", &format!("ln -s {secret} $KUBEWRIGHT_ROOT/dev/msg")),
        with("pipe", "/dev/msg", "mkfifo $KUBEWRIGHT_ROOT/dev/msg"),
        with("huge", "/dev/msg", "printf fine > /dev/msg; truncate -s 1T /dev/msg"),
        with("fine", "/some/where/msg", "echo fine > /some/where/msg"),
    ];
    apply(&kubectl, &cluster, &all.concat());
    for name in ["up", "makes"] {
        refused(&kubectl, name, "terminationMessagePath");
    }
    for (name, message) in [("folder", ""), ("file", ""), ("pipe", ""), ("fine", "fine\n")] {
        assert_eq!(ended(&kubectl, name), message, "{name}");
    }
    assert!(ended(&kubectl, "huge").starts_with("fine"));
    assert_eq!(tree(&victim), before);
}

const THROUGH_LINKS: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: through }
spec:
  restartPolicy: Never
  initContainers:
  - { name: i, image: busybox, command: [sh, -c, "ln -s VICTIM /e/a"], volumeMounts: [{ name: e, mountPath: /e }] }
  containers:
  - { name: c, image: busybox, command: [cat, /m], volumeMounts: [{ name: e, mountPath: /m, subPath: a/made/deep }] }
  volumes: [{ name: e, emptyDir: {} }]
---
apiVersion: v1
kind: Pod
metadata: { name: expression }
spec:
  restartPolicy: Never
  initContainers:
  - { name: i, image: busybox, command: [sh, -c, "ln -s VICTIM /e/a"], volumeMounts: [{ name: e, mountPath: /e }] }
  containers:
  - name: c
    image: busybox
    command: [cat, /m]
    env: [{ name: WHERE, value: a/secret }]
    volumeMounts: [{ name: e, mountPath: /m, subPathExpr: $(WHERE) }]
  volumes: [{ name: e, emptyDir: {} }]
---
apiVersion: v1
kind: Pod
metadata: { name: up }
spec:
  restartPolicy: Never
  containers:
  - { name: c, image: busybox, command: ["true"], volumeMounts: [{ name: e, mountPath: "/x/../../../../../../../../VICTIM/made" }] }
  volumes: [{ name: e, emptyDir: {} }]
---
apiVersion: v1
kind: Pod
metadata: { name: host }
spec:
  restartPolicy: Never
  containers:
  - { name: c, image: busybox, command: [ls, /m], volumeMounts: [{ name: e, mountPath: /m }] }
  volumes: [{ name: e, hostPath: { path: VICTIM } }]
"#;

#[test]
fn a_mount_stays_below_its_volume() {
    if !may_try() {
        return;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    let victim = victim(&cluster);
    let before = tree(&victim);
    let objects = THROUGH_LINKS.replace("VICTIM", victim.to_str().unwrap());
    apply(&kubectl, &cluster, &objects);
    refused(
        &kubectl,
        "through",
        "subPath of /m: the path \"a/made/deep\" leads through a link",
    );
    refused(
        &kubectl,
        "expression",
        "subPathExpr of /m: the path \"a/secret\" leads through a link",
    );
    refused(&kubectl, "up", "leads up with");
    refused(&kubectl, "host", "hostPath is refused");
    assert_eq!(tree(&victim), before);
}

const CLAIMS: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: mine }
spec: { accessModes: [ReadWriteOnce], storageClassName: standard, resources: { requests: { storage: 1Mi } } }
---
apiVersion: v1
kind: Pod
metadata: { name: owner }
spec:
  containers:
  - { name: c, image: busybox, command: [sh, -c, "echo mine > /v/f; exec sleep 1000"], volumeMounts: [{ name: v, mountPath: /v }] }
  volumes: [{ name: v, persistentVolumeClaim: { claimName: mine } }]
"#;

const STOLEN: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: NAME, namespace: other, annotations: { pv.kubernetes.io/bind-completed: "yes" } }
spec: { accessModes: [ReadWriteOnce], storageClassName: "", volumeName: "VOLUME", resources: { requests: { storage: 1Mi } } }
---
apiVersion: v1
kind: Pod
metadata: { name: NAME, namespace: other }
spec:
  nodeName: node-0
  containers:
  - { name: c, image: busybox, command: [sh, -c, "echo pwned > /v/f; exec sleep 1000"], volumeMounts: [{ name: v, mountPath: /v }] }
  volumes: [{ name: v, persistentVolumeClaim: { claimName: NAME } }]
---
"#;

#[test]
fn a_volume_is_for_the_claim_that_it_names() {
    if !may_try() {
        return;
    }
    let cluster = cluster(&[], &["--data-dir", "data"]);
    let kubectl = Kubectl::of(&cluster);
    let victim = victim(&cluster);
    let before = tree(&victim);
    apply(&kubectl, &cluster, CLAIMS);
    kubectl.ready("owner");
    let volume = kubectl.ok(&["get", "pvc", "mine", "-o", "jsonpath={.spec.volumeName}"]);
    let file = cluster.folder.path().join("data/volumes").join(&volume).join("f");
    kubectl.until(&["get", "pod", "owner"], |_| file.exists());
    kubectl.ok(&["create", "namespace", "other"]);
    let node = kubectl.ok(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let steal = |name: &str, volume: &str| {
        STOLEN
            .replace("NAME", name)
            .replace("VOLUME", volume)
            .replace("node-0", &node)
    };
    let up = format!("../../../..{}", victim.display());
    let objects = [
        steal("absolute", victim.to_str().unwrap()),
        steal("up", &up),
        steal("foreign", &volume),
    ];
    apply(&kubectl, &cluster, &objects.concat());
    for name in ["absolute", "up", "foreign"] {
        let why = ["describe", "pod", name, "-n", "other"];
        kubectl.until(&why, |said| said.out.contains("is not bound"));
    }
    assert_eq!(tree(&victim), before);
    assert_eq!(fs::read_to_string(file).unwrap(), "mine\n");
}

const NEIGHBOURS: &str = r#"
apiVersion: v1
kind: Secret
metadata: { name: safe }
stringData: { password: hunter2 }
---
apiVersion: v1
kind: Pod
metadata: { name: victim }
spec:
  containers:
  - name: c
    image: busybox
    command: [sh, -c, "echo $$$$ $KUBEWRIGHT_ROOT $KUBEWRIGHT_RUN $KUBECONFIG; echo kept > /work/file; sleep 1000; true $(PW)"]
    env: [{ name: PW, valueFrom: { secretKeyRef: { name: safe, key: password } } }]
    volumeMounts: [{ name: work, mountPath: /work }, { name: safe, mountPath: /safe }]
  volumes: [{ name: work, emptyDir: {} }, { name: safe, secret: { secretName: safe } }]
---
apiVersion: v1
kind: Namespace
metadata: { name: other }
---
apiVersion: v1
kind: Pod
metadata: { name: attacker, namespace: other }
spec:
  containers: [{ name: c, image: busybox, command: [sleep, "1000"] }]
"#;

#[test]
fn a_pod_does_nothing_to_another() {
    if !may_try() {
        return;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, NEIGHBOURS);
    kubectl.ready("victim");
    kubectl.ok(&[
        "wait",
        "-n",
        "other",
        "--for=condition=Ready",
        "--timeout=60s",
        "pod/attacker",
    ]);
    let said = kubectl.until(&["logs", "victim"], |said| said.out.contains("kubeconfig"));
    let said: Vec<&str> = said.out.split_whitespace().collect();
    let [pid, root, run, kubeconfig] = said.as_slice() else {
        panic!("{said:?}")
    };
    let token = format!("{root}/var/run/secrets/kubernetes.io/serviceaccount/token");
    // The victim itself reads what the attacker is after.
    for command in [
        format!("cat /proc/{pid}/environ"),
        format!("cat {token}"),
        format!("cat {root}/safe/password"),
        format!("ls {run}"),
    ] {
        kubectl.ok(&["exec", "victim", "--", "sh", "-c", &command]);
    }
    let attack = |command: &str| {
        let said = kubectl.run(&["exec", "-n", "other", "attacker", "--", "sh", "-c", command]);
        assert_ne!(said.code, Some(0), "{command}: {said:?}");
        assert!(!said.out.contains("hunter2"), "{command}: {said:?}");
    };
    for file in ["environ", "mem", "maps", "fd", "cwd/."] {
        attack(&format!("ls /proc/{pid}/{file} && cat /proc/{pid}/{file}"));
    }
    attack(&format!("cat /proc/{pid}/root/etc/passwd"));
    attack(&format!("kill -9 {pid}"));
    attack("kill -9 -1 2>/dev/null; kill -0 $PPID");
    attack("cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep hunter[2]");
    for path in [
        &token,
        &format!("{root}/safe/password"),
        &format!("{root}/work/file"),
        &(*kubeconfig).to_owned(),
    ] {
        attack(&format!("cat {path}"));
    }
    for folder in [*root, *run] {
        attack(&format!("ls {folder}/."));
        attack(&format!("echo x > {folder}/x"));
        attack(&format!("rm -rf {folder} && ! test -e {folder}"));
    }
    let home = Path::new(kubeconfig).ancestors().nth(5).unwrap().display().to_string();
    attack(&format!("ls {home}/pods"));
    attack(&format!(
        "perl -MIO::Socket::UNIX -e \"IO::Socket::UNIX->new(Peer => q({home}/control)) or die\""
    ));
    // Which processes another pod has, and what stands in their command lines.
    if may_hide() {
        attack("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep hunter[2]");
        attack(&format!("ls -d /proc/{pid}"));
    }
    assert_eq!(kubectl.ok(&["exec", "victim", "--", "cat", "/work/file"]), "kept\n");
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl.ok(&["get", "pod", "victim", "-o", restarts]), "0");
}

/// Whether a mount namespace may have a `/proc` of its own.
fn may_hide() -> bool {
    let mount = "mount -t proc -o hidepid=invisible proc /proc";
    let tried = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", mount])
        .output();
    let may = tried.is_ok_and(|tried| tried.status.success());
    if !may {
        eprintln!("no /proc of one's own here: command lines of other pods were not looked for");
    }
    may
}

const PROBE: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: probe }
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  containers: [{ name: c, image: busybox, command: [sh, -c, "exec sleep 1000"], env: [{ name: OWN, value: said }] }]
"#;

#[test]
fn a_program_inherits_nothing() {
    if !may_try() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let private = folder.path().join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(private.join("greet"), "#!/bin/sh\necho of root\n").unwrap();
    fs::set_permissions(private.join("greet"), fs::Permissions::from_mode(0o755)).unwrap();
    // A shell of root's, with a file open, a folder of its own in its path, and a secret in its environment.
    let path = format!("{}:{}", private.display(), std::env::var("PATH").unwrap_or_default());
    let shell = folder.path().join("kubewright");
    let text = format!(
        "#!/bin/bash\numask 0\nexport PATH='{path}' CLOUD_TOKEN=hunter2\nexec {{fd}}<'{}'\nexec '{}' \"$@\"\n",
        private.join("greet").display(),
        crate::support::KUBEWRIGHT,
    );
    fs::write(&shell, text).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = RunningCluster::start_by(&shell, folder, &["--runtime", "process"]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, PROBE);
    kubectl.ready("probe");
    let sh = |command: &str| kubectl.ok(&["exec", "probe", "--", "sh", "-c", command]);
    let pid = sh(
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q '^sleep 1000' && echo ${p#/proc/}; done; true",
    );
    let pid = pid.split_whitespace().next().expect("the program").to_owned();
    assert_eq!(sh(&format!("ls /proc/{pid}/fd | tr '\\n' ' '")), "0 1 2 ");
    let status = sh(&format!("cat /proc/{pid}/status"));
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(name), "0000000000000000", "{name}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Umask:"), "0022");
    assert_eq!(field("Groups:"), "");
    let user = field("Uid:")
        .split(' ')
        .next()
        .unwrap_or_default()
        .parse::<u32>()
        .unwrap();
    assert!(user >= 20_000, "{user}");
    assert_eq!(
        field("Uid:"),
        [user.to_string(), user.to_string(), user.to_string(), user.to_string()].join(" ")
    );
    assert_eq!(field("Uid:"), field("Gid:"));
    let environment = sh(&format!("tr '\\0' '\\n' < /proc/{pid}/environ"));
    let names: Vec<&str> = environment
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    let known = [
        "PATH",
        "HOME",
        "TMPDIR",
        "KUBECONFIG",
        "HOSTNAME",
        "OWN",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    ];
    let is_known =
        |name: &&str| known.contains(name) || name.starts_with("KUBEWRIGHT_") || name.starts_with("KUBERNETES_");
    let unknown: Vec<_> = names.into_iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(!environment.contains("private"), "{environment}");
    // What root alone finds is not found, rather than forbidden.
    let said = kubectl.run(&["exec", "probe", "--", "greet"]);
    assert!(!said.err.contains("private") && said.code != Some(0), "{said:?}");
}

const CREDENTIALS: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: thief }
spec:
  containers: [{ name: c, image: busybox, command: [sleep, "1000"] }]
"#;

#[test]
fn a_pod_reads_no_credentials_of_the_cluster() {
    if !may_try() {
        return;
    }
    let cluster = cluster(&[], &["--data-dir", "data"]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, CREDENTIALS);
    kubectl.ready("thief");
    let folder = cluster.folder.path();
    let mut files = vec![folder.join("kubeconfig")];
    let mut open = vec![folder.join("data")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 1, "{files:?}");
    let pid = cluster.process.id();
    files.extend(["environ", "mem", "maps"].map(|name| PathBuf::from(format!("/proc/{pid}/{name}"))));
    for file in files {
        let said = kubectl.run(&["exec", "thief", "--", "cat", file.to_str().unwrap()]);
        assert!(
            said.out.is_empty() && said.code != Some(0),
            "{}: {said:?}",
            file.display()
        );
    }
    let kill = kubectl.run(&["exec", "thief", "--", "sh", "-c", &format!("kill -9 {pid}")]);
    assert_ne!(kill.code, Some(0), "{kill:?}");
}

const ORPHANS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: orphans}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "for i in $(seq 100); do (setsid sh -c 'exit 0' </dev/null >/dev/null 2>&1 &); done; echo left; sleep 1001"]
"#;

/// What a program leaves to its shim does not keep the numbers of processes.
#[test]
fn orphans_are_waited_for_while_their_program_runs() {
    if !may_try() {
        return;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, ORPHANS);
    kubectl.until(&["logs", "orphans"], |said| said.out.contains("left"));
    let dead = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' (sh) Z '; true";
    kubectl.until(&["exec", "orphans", "--", "sh", "-c", dead], |said| {
        said.out.trim() == "0"
    });
    kubectl.ok(&["delete", "pod", "orphans", "--timeout=60s"]);
}

/// A kill leaves no tokens behind, though no other cluster is started.
#[test]
fn a_killed_cluster_leaves_nothing() {
    if !kubectl_is_there() {
        return;
    }
    let mut cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    let holding = NEIGHBOURS.split("---\napiVersion: v1\nkind: Namespace").next().unwrap();
    apply(&kubectl, &cluster, holding);
    kubectl.ready("victim");
    let said = kubectl.until(&["logs", "victim"], |said| said.out.contains("kubeconfig"));
    let pid = said.out.split(' ').next().unwrap().to_owned();
    let home = cluster
        .folder
        .path()
        .join(format!("kubewright-{}-0", cluster.process.id()));
    assert!(home.join("pods").is_dir());
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let before = mounts();
    cluster.process.kill().unwrap();
    cluster.process.wait().unwrap();
    gone(&[pid]);
    removed(&[home]);
    let left = fs::read_dir(cluster.folder.path()).unwrap();
    let left: Vec<_> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let of_pods = left
        .iter()
        .filter(|name| name.starts_with("kubewright-") && !name.starts_with("kubewright-cache-"));
    assert_eq!(of_pods.count(), 0, "{left:?}");
    assert_eq!(mounts(), before);
}

const SHARING: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: NAME }
spec:
  restartPolicy: Never
  containers:
  - { name: c, image: busybox, command: [sh, -c, "id -u; cat /v/* 2>/dev/null; (umask 077; echo NAME > /v/NAME)"], volumeMounts: [{ name: v, mountPath: /v }] }
  volumes: [{ name: v, persistentVolumeClaim: { claimName: CLAIM } }]
---
"#;

const CLAIM: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: CLAIM }
spec: { accessModes: [ReadWriteMany], storageClassName: standard, resources: { requests: { storage: 1Mi } } }
---
"#;

/// What a pod has written is read by the next pod with its claim, also in the next cluster, and by no other.
#[test]
fn a_volume_keeps_its_user() {
    if !may_try() {
        return;
    }
    let mut first = cluster(&[], &["--data-dir", "data"]);
    let kubectl = Kubectl::of(&first);
    let one = |name: &str, claim: &str| SHARING.replace("NAME", name).replace("CLAIM", claim);
    let objects = [
        CLAIM.replace("CLAIM", "a"),
        CLAIM.replace("CLAIM", "b"),
        one("one", "a"),
        one("other", "b"),
    ];
    apply(&kubectl, &first, &objects.concat());
    let logs = |kubectl: &Kubectl, name: &str| {
        ended(kubectl, name);
        kubectl.ok(&["logs", name])
    };
    let user = logs(&kubectl, "one").lines().next().unwrap().to_owned();
    assert_ne!(logs(&kubectl, "other").lines().next(), Some(user.as_str()));
    apply(&kubectl, &first, &one("two", "a"));
    assert_eq!(logs(&kubectl, "two"), format!("{user}\none\n"));
    first.process.kill().unwrap();
    first.process.wait().unwrap();
    let folder = std::mem::replace(&mut first.folder, tempfile::tempdir().unwrap());
    let second = RunningCluster::start_in(folder, &["--runtime", "process", "--data-dir", "data"]);
    apply(&kubectl, &second, &one("three", "a"));
    assert_eq!(logs(&kubectl, "three"), format!("{user}\none\ntwo\n"));
}

const DATABASE: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: db }
spec:
  containers:
  - name: c
    image: postgres
    env: [{ name: POSTGRES_PASSWORD, value: x }]
    readinessProbe: { exec: { command: [pg_isready, -U, postgres] }, periodSeconds: 1 }
---
apiVersion: v1
kind: Pod
metadata: { name: attacker }
spec:
  containers: [{ name: c, image: busybox, command: [sleep, "1000"] }]
"#;

#[test]
fn templates_are_not_for_pods_to_change() {
    if !may_try() || !postgres_is_there() {
        return;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, DATABASE);
    kubectl.ready("attacker");
    kubectl.ready("db");
    let cache = cluster.folder.path().join("kubewright-cache-0");
    let mut open = vec![cache.clone()];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o022), (0, 0), "{}", path.display());
        match found.is_dir() {
            true => open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
            false => files.push(path),
        }
    }
    let hba = files
        .iter()
        .find(|path| path.ends_with("pg_hba.conf"))
        .expect("a template");
    for pod in ["attacker", "db"] {
        for attack in [
            format!("echo host all all all trust >> {}", hba.display()),
            format!("mkdir {}/x", cache.display()),
        ] {
            let said = kubectl.run(&["exec", pod, "--", "sh", "-c", &attack]);
            assert_ne!(said.code, Some(0), "{attack}: {said:?}");
        }
    }
}

/// Without root there are no users for pods: they are told, and what does not need any holds all the same.
#[test]
fn without_root_pods_are_told() {
    if !may_try() {
        return;
    }
    const USER: u32 = 54_321;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let become_user = format!("setpriv --reuid {USER} --regid {USER} --clear-groups");
    let text = format!(
        "#!/bin/sh\nexec {become_user} '{}' \"$@\"\n",
        crate::support::KUBEWRIGHT
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)).unwrap();
    let version = std::process::Command::new(&program)
        .arg("version")
        .current_dir(folder.path())
        .output();
    if !version.is_ok_and(|version| version.status.success()) {
        eprintln!("no other user may run the program here: a cluster without root was not tried");
        return;
    }
    let cluster = RunningCluster::start_by(&program, folder, &["--runtime", "process"]);
    let kubectl = Kubectl::of(&cluster);
    let outside = cluster.folder.path().join("outside");
    let objects = THROUGH_LINKS.replace("VICTIM", outside.to_str().unwrap());
    apply(&kubectl, &cluster, &[PROBE, "---\n", &objects].concat());
    kubectl.ready("probe");
    refused(&kubectl, "probe", "run as the user who started the cluster");
    refused(
        &kubectl,
        "through",
        "subPath of /m: the path \"a/made/deep\" leads through a link",
    );
    refused(&kubectl, "up", "leads up with");
    refused(&kubectl, "host", "hostPath is refused");
    assert!(!outside.exists());
    assert_eq!(
        kubectl.ok(&["exec", "probe", "--", "id", "-u"]).trim(),
        USER.to_string()
    );
}

/// In a container without CAP_SYS_ADMIN there is no file of users for a pod: databases share one, and are told.
#[test]
fn without_mounts_databases_run_and_are_told() {
    if !may_try() || !postgres_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let program = folder.path().join("program");
    let text = format!(
        "#!/bin/sh\nexec setpriv --bounding-set -sys_admin '{}' \"$@\"\n",
        crate::support::KUBEWRIGHT
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = RunningCluster::start_by(&program, folder, &["--runtime", "process"]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, DATABASE);
    kubectl.ready("db");
    refused(&kubectl, "db", "it runs as user 65534");
    let user = |pod: &str| kubectl.ok(&["exec", pod, "--", "id", "-u"]).trim().to_owned();
    assert_eq!(user("db"), "65534");
    assert_ne!(user("attacker"), "65534");
    assert!(!kubectl.ok(&["describe", "pod", "attacker"]).contains("NotEnforced"));
}
