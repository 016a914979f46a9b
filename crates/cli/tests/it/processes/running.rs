//! Pods that are processes of this machine.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::processes::kubectl::Kubectl;
use crate::support::{RunningCluster, kubectl_is_there};

/// A cluster whose pods are processes, with these files in its folder.
pub(crate) fn cluster(files: &[(&str, &str)], arguments: &[&str]) -> RunningCluster {
    let folder = tempfile::tempdir().unwrap();
    // Where root starts the cluster its programs are another user.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    RunningCluster::start_in(folder, &[&["--runtime", "process"], arguments].concat())
}

/// Applies objects.
pub(crate) fn apply(kubectl: &Kubectl, cluster: &RunningCluster, objects: &str) {
    let path = cluster.folder.path().join("objects.yaml");
    std::fs::write(&path, objects).unwrap();
    kubectl.ok(&["apply", "-f", path.to_str().unwrap()]);
}

/// Waits until processes are gone.
pub(crate) fn gone(pids: &[String]) {
    let all: Vec<PathBuf> = pids.iter().map(|pid| Path::new("/proc").join(pid)).collect();
    removed(&all);
}

/// Waits until files are gone.
pub(crate) fn removed(paths: &[PathBuf]) {
    let started = Instant::now();
    while let Some(path) = paths.iter().find(|path| path.exists()) {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{} is still there",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

const WHOLE: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: { name: conf }
data: { greeting: hello }
---
apiVersion: v1
kind: Secret
metadata: { name: safe }
stringData: { password: secret }
---
apiVersion: v1
kind: Pod
metadata: { name: box, labels: { app: box } }
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: first
    image: busybox
    command: [sh, -c, "echo made by init > /work/out"]
    volumeMounts: [{ name: work, mountPath: /work }]
  containers:
  - name: main
    image: busybox:1.36
    command: [sh, -c, 'cat "$0" /etc/conf/greeting; echo; echo $(GREETING) "$PASSWORD" "$NAME"; wc -w < /var/run/token/token | tr -d " "; echo to stderr >&2; exec sleep 1000', /work/out]
    env:
    - { name: GREETING, valueFrom: { configMapKeyRef: { name: conf, key: greeting } } }
    - { name: PASSWORD, valueFrom: { secretKeyRef: { name: safe, key: password } } }
    - { name: NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
    readinessProbe: { exec: { command: [cat, /work/out] }, periodSeconds: 1 }
    volumeMounts:
    - { name: work, mountPath: /work }
    - { name: conf, mountPath: /etc/conf }
    - { name: token, mountPath: /var/run/token }
  volumes:
  - { name: work, emptyDir: {} }
  - { name: conf, configMap: { name: conf } }
  - { name: token, projected: { sources: [{ serviceAccountToken: { path: token } }] } }
"#;

#[test]
fn what_a_pod_is_given() {
    if !kubectl_is_there() {
        return;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, WHOLE);
    kubectl.ready("box");
    let said = kubectl.until(&["logs", "box", "-c", "main"], |said| said.out.contains("to stderr"));
    // Two streams have no order among them.
    assert_eq!(
        said.out.replace("to stderr\n", ""),
        "made by init\nhello\nhello secret box\n1\n"
    );
    let check = |path: &str, expected: &str| {
        let found = kubectl.ok(&["get", "pod", "box", "-o", &format!("jsonpath={{{path}}}")]);
        assert!(found.starts_with(expected), "{path}: {found}");
    };
    check(".status.podIP", "127.");
    check(".status.containerStatuses[0].containerID", "process://");
    check(".status.initContainerStatuses[0].state.terminated.reason", "Completed");
    kubectl.ok(&["delete", "pod", "box"]);
}

const CRASHING: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: crash }
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "echo alive; echo last words > /dev/termination-log; kill -9 $$$$"]
---
apiVersion: v1
kind: Pod
metadata: { name: task }
spec:
  restartPolicy: Never
  containers:
  - { name: main, image: busybox, command: [sh, -c, "for n in 1 2 3; do echo $n; done; exit 3"] }
---
apiVersion: v1
kind: Pod
metadata: { name: missing }
spec:
  containers: [{ name: main, image: "nobody/knows:1" }]
---
apiVersion: v1
kind: Pod
metadata: { name: simulated }
spec:
  runtimeClassName: simulated
  containers: [{ name: main, image: "nobody/knows:1" }]
---
apiVersion: v1
kind: Pod
metadata: { name: own }
spec:
  restartPolicy: Never
  containers: [{ name: main, image: "shop:dev", args: [and, more] }]
"#;

#[test]
fn how_containers_end() {
    if !kubectl_is_there() {
        return;
    }
    let cluster = cluster(
        &[("kubewright.toml", "[images]\n\"shop:dev\" = \"echo from the table\"\n")],
        &[],
    );
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, CRASHING);
    let field = |pod: &str, path: &str, expected: &str| {
        let arguments = ["get", "pod", pod, "-o", &format!("jsonpath={{{path}}}")];
        kubectl.until(&arguments, |said| said.out == expected);
    };
    field(
        "crash",
        ".status.containerStatuses[0].state.waiting.reason",
        "CrashLoopBackOff",
    );
    field(
        "crash",
        ".status.containerStatuses[0].lastState.terminated.exitCode",
        "137",
    );
    field(
        "crash",
        ".status.containerStatuses[0].lastState.terminated.message",
        "last words\n",
    );
    assert_eq!(kubectl.ok(&["logs", "crash", "--previous"]), "alive\n");
    field("task", ".status.phase", "Failed");
    field("task", ".status.containerStatuses[0].state.terminated.exitCode", "3");
    let mut following = kubectl.background(&["logs", "-f", "task", "--tail=2"]);
    let lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), ["2", "3"]);
    assert!(following.wait().unwrap().success());
    field(
        "missing",
        ".status.containerStatuses[0].state.waiting.reason",
        "ImagePullBackOff",
    );
    let message = "Back-off pulling image \"nobody/knows:1\": ErrImagePull: no program stands for the image: \
                   add the row \"nobody/knows:1\" = \"program arguments\" to [images] in kubewright.toml";
    field("missing", ".status.containerStatuses[0].state.waiting.message", message);
    field("own", ".status.phase", "Succeeded");
    assert_eq!(kubectl.ok(&["logs", "own"]), "from the table and more\n");
    kubectl.ready("simulated");
}

const ASKING: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: { name: asker }
---
apiVersion: v1
kind: Pod
metadata: { name: asking }
spec:
  serviceAccountName: asker
  restartPolicy: Never
  containers:
  - { name: main, image: busybox, command: [kubectl, auth, whoami, -o, "jsonpath={.status.userInfo.username}"] }
---
apiVersion: v1
kind: Pod
metadata: { name: mute }
spec:
  automountServiceAccountToken: false
  restartPolicy: Never
  containers:
  - { name: main, image: "shop:dev", command: [kubectl, config, view, -o, "jsonpath=<{.clusters}>"] }
---
apiVersion: v1
kind: Pod
metadata: { name: operator }
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: shop:dev
    command: [/manager]
    args: [--certs=/tmp/certs, --leader-elect]
    volumeMounts: [{ name: certs, mountPath: /tmp/certs }]
  volumes: [{ name: certs, downwardAPI: { items: [{ path: name, fieldRef: { fieldPath: metadata.name } }] } }]
"#;

#[test]
fn an_operator_as_it_is_deployed() {
    if !kubectl_is_there() {
        return;
    }
    let table = "[images]\n\"shop:dev\" = \"sh manager.sh\"\n";
    let manager = "echo \"${1#--certs=$TMPDIR} $2\"; cat \"$TMPDIR/certs/name\"\n";
    let cluster = cluster(&[("kubewright.toml", table), ("manager.sh", manager)], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, ASKING);
    let check = |pod: &str, expected: &str| {
        let phase = ["get", "pod", pod, "-o", "jsonpath={.status.phase}"];
        kubectl.until(&phase, |said| said.out == "Succeeded" || said.out == "Failed");
        // Newer kubectls complain about a home that is not theirs.
        let logs = kubectl.ok(&["logs", pod]);
        let logs: String = logs
            .split_inclusive('\n')
            .filter(|line| !line.starts_with("kuberc: "))
            .collect();
        assert_eq!(logs, expected, "{pod}");
    };
    check("asking", "system:serviceaccount:default:asker\n");
    check("mute", "<null>\n");
    check("operator", "/certs --leader-elect\noperator\n");
}

const SHOP: &str = r#"
apiVersion: v1
kind: Service
metadata: { name: shop }
spec: { selector: { app: shop }, ports: [{ name: http, port: 8080, targetPort: 9000 }] }
---
apiVersion: v1
kind: Pod
metadata: { name: shop, labels: { app: shop } }
spec:
  containers:
  - { name: main, image: "shop:dev", ports: [{ containerPort: 9000 }] }
"#;

const CUSTOMER: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: customer }
spec:
  restartPolicy: OnFailure
  containers:
  - name: main
    image: busybox
    command: [bash, -c, 'for host in $SHOP_SERVICE_HOST NAMES; do exec 3<>"/dev/tcp/$host/8080" && cat <&3 || exit 1; done']
"#;

/// A program that answers every client that connects to its pod's address, in Perl, which Debian always has.
const SERVER: &str = r#"use IO::Socket::INET;
my $s = IO::Socket::INET->new(LocalAddr => $ENV{KUBEWRIGHT_POD_IP}, LocalPort => 9000, Listen => 5) or die $!;
while (my $c = $s->accept) { print $c "hello from $ENV{HOSTNAME}\n"; close $c }
"#;

#[test]
fn services_lead_to_programs() {
    if !kubectl_is_there() {
        return;
    }
    let table = "[images]\n\"shop:dev\" = \"perl server.pl\"\n";
    let cluster = cluster(&[("kubewright.toml", table), ("server.pl", SERVER)], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, SHOP);
    kubectl.ready("shop");
    let names = match may_mount() {
        true => "shop shop.default.svc.cluster.local",
        false => {
            eprintln!("no mount namespaces here: names of Services were not tried");
            ""
        }
    };
    apply(&kubectl, &cluster, &CUSTOMER.replace("NAMES", names));
    let phase = ["get", "pod", "customer", "-o", "jsonpath={.status.phase}"];
    kubectl.until(&phase, |said| said.out == "Succeeded");
    let expected = "hello from shop\n".repeat(1 + names.split_whitespace().count());
    assert_eq!(kubectl.ok(&["logs", "customer"]), expected);
}

const ASKER: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: asker }
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: busybox
    command: [bash, -c, 'ip=$KUBEWRIGHT_POD_IP; echo $ip; getent hosts ${ip//./-}.default.pod; getent hosts ${ip//./-}.default.pod.cluster.local; cat /etc/resolv.conf']
---
apiVersion: v1
kind: Pod
metadata: { name: stranger }
spec:
  restartPolicy: Never
  hostAliases: [{ ip: 192.0.2.7, hostnames: [seventh, seventh.example] }]
  dnsPolicy: None
  dnsConfig: { nameservers: [192.0.2.1], options: [{ name: ndots, value: "1" }] }
  containers:
  - { name: main, image: busybox, command: [sh, -c, "cat /etc/resolv.conf; getent hosts seventh.example"] }
"#;

/// Names that stand in no file of hosts, and with them the way over `/etc/resolv.conf` and port 53.
#[test]
fn programs_ask_the_name_server_of_the_cluster() {
    if !kubectl_is_there() {
        return;
    }
    let may_listen = std::net::UdpSocket::bind("127.0.99.53:53");
    if !may_mount() || may_listen.is_err() {
        eprintln!("no mount namespaces, or no port 53, for this user: the name server was not tried");
        return;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, ASKER);
    for pod in ["asker", "stranger"] {
        let phase = ["get", "pod", pod, "-o", "jsonpath={.status.phase}"];
        kubectl.until(&phase, |said| said.out == "Succeeded");
    }
    let told = kubectl.ok(&["logs", "asker"]);
    let lines: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    let ip = lines[0][0];
    let long = format!("{}.default.pod.cluster.local", ip.replace('.', "-"));
    assert_eq!(lines[1..3], [[ip, long.as_str()], [ip, long.as_str()]], "{told}");
    let network: Vec<&str> = ip.split('.').take(2).collect();
    let server = format!("nameserver {}.127.255\n", network.join("."));
    let search = "search default.svc.cluster.local svc.cluster.local cluster.local";
    let has_all = [search, server.as_str(), "options ndots:5\n"]
        .iter()
        .all(|line| told.contains(line));
    assert!(has_all, "{told}");
    let said = kubectl.ok(&["logs", "stranger"]);
    let said: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(said[..2], [["nameserver", "192.0.2.1"], ["options", "ndots:1"]]);
    // `hostAliases`.
    assert_eq!(said[2][0], "192.0.2.7");
}

fn may_mount() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "--map-current-user", "true"])
        .status();
    tried.is_ok_and(|status| status.success())
}

const LINGERING: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: family }
spec:
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "echo $$$$; (setsid sleep 1000 & echo $!; exec setsid sleep 1000) & echo $!; trap '' TERM; while true; do sleep 1000; done"]
"#;

#[test]
fn nothing_is_left_behind() {
    if !kubectl_is_there() {
        return;
    }
    let mut cluster = cluster(&[], &["--data-dir", "data"]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, LINGERING);
    let pids = || -> Vec<String> {
        let said = kubectl.until(&["logs", "family"], |said| said.out.lines().count() == 3);
        said.out.lines().map(str::to_owned).collect()
    };
    let before = pids();
    kubectl.ok(&["delete", "pod", "family", "--grace-period=1"]);
    gone(&before);

    apply(&kubectl, &cluster, LINGERING);
    let before = pids();
    cluster.process.kill().unwrap();
    cluster.process.wait().unwrap();
    gone(&before);

    // The next cluster removes the left-overs of the one before, and starts the pod again.
    let folder = std::mem::replace(&mut cluster.folder, tempfile::tempdir().unwrap());
    let cluster = RunningCluster::start_in(folder, &["--runtime", "process", "--data-dir", "data"]);
    let mine = format!("kubewright-{}-0", cluster.process.id());
    let homes = std::fs::read_dir(cluster.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let homes = homes.filter(|name| name.to_string_lossy().starts_with("kubewright-"));
    let others: Vec<_> = homes
        .filter(|name| *name != *mine && !name.to_string_lossy().contains("cache"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    kubectl.until(
        &[
            "get",
            "pod",
            "family",
            "-o",
            "jsonpath={.status.containerStatuses[0].restartCount}",
        ],
        |said| said.out == "1",
    );
    let after = pids();
    let stop = rustix::process::Pid::from_raw(i32::try_from(cluster.process.id()).unwrap()).unwrap();
    rustix::process::kill_process(stop, rustix::process::Signal::TERM).unwrap();
    gone(&after);
}
