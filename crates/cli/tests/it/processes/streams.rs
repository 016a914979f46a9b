//! The streams of clients: commands beside a program, the program itself, its files, its ports.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::processes::kubectl::Kubectl;
use crate::processes::running::{apply, cluster, gone};
use crate::support::{RunningCluster, kubectl_is_there};

const BOX: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: box }
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "echo begun; exec sleep 1000"]
    volumeMounts: [{ name: work, mountPath: /work }]
  - name: reader
    image: busybox
    stdin: true
    stdinOnce: true
    command: [sh, -c, 'while read line; do echo "read $line"; done; echo complaint >&2; exec sleep 1000']
  volumes: [{ name: work, emptyDir: {} }]
"#;

fn started() -> Option<(RunningCluster, Kubectl)> {
    if !kubectl_is_there() {
        return None;
    }
    let cluster = cluster(&[], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, BOX);
    kubectl.ready("box");
    Some((cluster, kubectl))
}

#[test]
fn commands() {
    let Some((_cluster, kubectl)) = started() else { return };
    // Over WebSockets, and over SPDY as older clients speak it.
    for protocol in ["true", "false"] {
        let exec = |flags: &[&str], command: &[&str]| {
            let all = [&["exec", "box", "-c", "main"], flags, &["--"], command].concat();
            let mut kubectl = kubectl.command(&all);
            kubectl.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", protocol);
            kubectl
        };
        let check = |flags: &[&str], script: &str, input: &str, out: &str, err: &str, code: i32| {
            let mut command = exec(flags, &["sh", "-c", script]);
            let pipes = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut child = pipes.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            let done = child.wait_with_output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let found = (text(&done.stdout), text(&done.stderr), done.status.code());
            assert_eq!(
                found,
                (out.to_owned(), err.to_owned(), Some(code)),
                "{script}, {protocol}"
            );
        };
        check(&[], "echo out; echo err >&2", "", "out\n", "err\n", 0);
        check(&[], "exit 7", "", "", "command terminated with exit code 7\n", 7);
        check(&["-i"], "tr a-z A-Z", "some text", "SOME TEXT", "", 0);
        check(&["-i"], "exec head -c 4", "more than it wants", "more", "", 0);
        check(&[], "echo written > /work/file; cat /work/file", "", "written\n", "", 0);
        // Much in both directions, and nothing is lost.
        check(
            &["-i"],
            "cksum | cut -d ' ' -f 2",
            &"x".repeat(3_000_000),
            "3000000\n",
            "",
            0,
        );
        check(
            &[],
            "head -c 3000000 /dev/zero | tr '\\0' x",
            "",
            &"x".repeat(3_000_000),
            "",
            0,
        );
        let missing = exec(&[], &["nothing-of-this-name"]).output().unwrap();
        assert_ne!(missing.status.code(), Some(0));
        let why = String::from_utf8_lossy(&missing.stderr);
        assert!(why.contains("nothing-of-this-name"), "{why}");
    }
}

#[test]
fn a_command_ends_with_its_client() {
    let Some((_cluster, kubectl)) = started() else { return };
    let script = "echo $$; trap '' TERM HUP; sleep 1000 & echo $!; wait; sleep 1000";
    let mut child = kubectl.background(&["exec", "box", "-c", "main", "-i", "--", "sh", "-c", script]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pids: Vec<String> = (0..2).map(|_| lines.next().unwrap().unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    gone(&pids);
    // With its container, too.
    let mut child = kubectl.background(&["exec", "box", "-c", "main", "--", "sh", "-c", script]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pids: Vec<String> = (0..2).map(|_| lines.next().unwrap().unwrap()).collect();
    kubectl.ok(&["delete", "pod", "box"]);
    gone(&pids);
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

#[test]
fn a_terminal() {
    let Some((_cluster, kubectl)) = started() else { return };
    // kubectl has no terminal here and says so; `script` gives it one.
    let inner = "kubectl exec -it box -c main -- sh -c 'tty; stty size; read line; echo \"read $line\"; exit 3'";
    let mut script = std::process::Command::new("script");
    let kubeconfig = kubectl.command(&[]);
    let (_, path) = kubeconfig.get_envs().find(|(name, _)| *name == "KUBECONFIG").unwrap();
    script
        .env("KUBECONFIG", path.unwrap())
        .args(["-qec", inner, "/dev/null"]);
    let Ok(mut child) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("skipped: there is no program `script`");
        return;
    };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.starts_with("/dev/pts/"), "{first}");
    let size = lines.next().unwrap().unwrap();
    assert_eq!(size.split_whitespace().count(), 2, "{size}");
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"typed\n").unwrap();
    let rest: String = lines.map(|line| line.unwrap() + "\n").collect();
    assert!(rest.contains("typed") && rest.contains("read typed"), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn files() {
    let Some((cluster, kubectl)) = started() else { return };
    let local = cluster.folder.path().join("local");
    std::fs::create_dir(&local).unwrap();
    std::fs::write(local.join("one"), "first\n").unwrap();
    std::fs::write(local.join("two"), vec![7; 500_000]).unwrap();
    let local = local.to_str().unwrap();
    kubectl.ok(&["cp", "-c", "main", local, "box:/work/there"]);
    assert_eq!(
        kubectl.ok(&["exec", "box", "-c", "main", "--", "cat", "/work/there/one"]),
        "first\n"
    );
    let back = cluster.folder.path().join("back");
    kubectl.ok(&["cp", "-c", "main", "box:/work/there", back.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(back.join("one")).unwrap(), "first\n");
    assert_eq!(std::fs::read(back.join("two")).unwrap(), vec![7; 500_000]);
}

#[test]
fn a_program_is_joined() {
    let Some((_cluster, kubectl)) = started() else { return };
    let mut child = kubectl.background(&["attach", "-i", "box", "-c", "reader"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"one\n").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "read one");
    input.write_all(b"two\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "read two");
    // stdinOnce: with the first client its input ends.
    drop(input);
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(errors.any(|line| line.unwrap() == "complaint"));
    child.kill().unwrap();
    child.wait().unwrap();
    let log = kubectl.ok(&["logs", "box", "-c", "reader"]);
    assert_eq!(log.replace("complaint\n", ""), "read one\nread two\n");
}

#[test]
fn a_container_is_added_to_look_at_a_pod() {
    let Some((_cluster, kubectl)) = started() else { return };
    let look = "echo looking; read line; echo \"read $line\"";
    let flags = [
        "debug",
        "box",
        "--image=busybox",
        "-c",
        "look",
        "--profile=general",
        "-i",
        "--",
        "sh",
        "-c",
        look,
    ];
    let mut child = kubectl.background(&flags);
    let mut input = child.stdin.take().unwrap();
    kubectl.until(&["logs", "box", "-c", "look"], |said| said.out == "looking\n");
    // It is not known when the client has joined: earlier lines are read, and shown in the log only.
    input.write_all(b"this\n").unwrap();
    kubectl.until(&["logs", "box", "-c", "look"], |said| {
        said.out == "looking\nread this\n"
    });
    // With the container the client ends.
    child.wait().unwrap();
    drop(input);
    let state = "jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode} {.status.phase}";
    kubectl.until(&["get", "pod", "box", "-o", state], |said| said.out == "0 Running");
}

/// `kubectl port-forward`, over WebSockets or not, and the port of this machine.
pub(crate) fn forwarded(kubectl: &Kubectl, over_websockets: &str, arguments: &[&str]) -> (Child, u16) {
    let mut command = kubectl.command(&[&["port-forward"], arguments].concat());
    command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", over_websockets);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let port = line
        .split(':')
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    // It ends when its output has no reader any more.
    std::thread::spawn(move || lines.for_each(drop));
    (child, port.unwrap_or_else(|| panic!("{line}")))
}

const ECHO: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: echo }
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: python:3
    command: [/usr/bin/python3, -c]
    args:
    - |
      import os, socket, threading
      server = socket.create_server((os.environ['KUBEWRIGHT_POD_IP'], 7007))
      def serve(client):
          while data := client.recv(65536): client.sendall(data)
          client.sendall(b'end')
          client.close()
      while True: threading.Thread(target=serve, args=(server.accept()[0],)).start()
    readinessProbe: { tcpSocket: { port: 7007 }, periodSeconds: 1 }
"#;

#[test]
fn ports() {
    if !kubectl_is_there() {
        return;
    }
    // Not the first one on the PATH: programs in a user's home are closed to other users.
    if !std::path::Path::new("/usr/bin/python3").exists() {
        eprintln!("skipped: there is no /usr/bin/python3");
        return;
    }
    let table = "[images]\n\"python:3\" = \"/usr/bin/python3\"\n";
    let cluster = cluster(&[("kubewright.toml", table)], &[]);
    let kubectl = Kubectl::of(&cluster);
    apply(&kubectl, &cluster, ECHO);
    kubectl.ready("echo");
    for protocol in ["true", "false"] {
        let (mut child, port) = forwarded(&kubectl, protocol, &["echo", ":7007"]);
        let all: Vec<_> = (0..8)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    let sent = vec![b'a' + number; 700_000];
                    let mut writer = client.try_clone().unwrap();
                    let bytes = sent.clone();
                    let writing = std::thread::spawn(move || {
                        writer.write_all(&bytes).unwrap();
                        writer.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    let mut received = Vec::new();
                    client.read_to_end(&mut received).unwrap();
                    writing.join().unwrap();
                    assert!(
                        received.strip_suffix(b"end").is_some_and(|back| back == sent),
                        "{protocol} {number}"
                    );
                })
            })
            .collect();
        all.into_iter().for_each(|client| client.join().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // A port on which nothing listens.
    let (mut child, port) = forwarded(&kubectl, "true", &["echo", ":7008"]);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // However the connection ends.
    let _ = client.read_to_end(&mut Vec::new());
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let why = errors.find(|line| {
        line.as_ref()
            .unwrap()
            .contains("error forwarding port 7008 to pod echo_default")
    });
    assert!(why.unwrap().unwrap().contains("refused"));
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn who_may() {
    let Some((_cluster, kubectl)) = started() else { return };
    let role = [
        "create",
        "role",
        "looks",
        "--verb=get",
        "--resource=pods,pods/exec,pods/attach,pods/portforward",
    ];
    kubectl.ok(&role);
    kubectl.ok(&["create", "rolebinding", "looks", "--role=looks", "--user=eve"]);
    let exec = ["exec", "box", "-c", "main", "--as=eve", "--", "true"];
    let said = kubectl.run(&exec);
    assert_eq!(said.code, Some(1), "{said:?}");
    let why = "pods \"box\" is forbidden: User \"eve\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"default\"";
    assert!(said.err.contains(why), "{said:?}");
    kubectl.ok(&["create", "role", "runs", "--verb=create", "--resource=pods/exec"]);
    kubectl.ok(&["create", "rolebinding", "runs", "--role=runs", "--user=eve"]);
    assert_eq!(kubectl.run(&exec).code, Some(0));
    let attach = kubectl.run(&["attach", "box", "-c", "main", "--as=eve"]);
    assert!(
        attach.err.contains("cannot create resource \"pods/attach\""),
        "{attach:?}"
    );
}
