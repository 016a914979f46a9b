//! Pods without processes: their log is their history.

use std::io::{BufRead as _, BufReader};

use crate::processes::kubectl::Kubectl;
use crate::support::{RunningCluster, kubectl_is_there};

#[test]
fn logs() {
    if !kubectl_is_there() {
        return;
    }
    let cluster = RunningCluster::start(&[]);
    let kubectl = Kubectl::of(&cluster);
    kubectl.ok(&["run", "web", "--image=nginx:1"]);
    kubectl.ready("web");
    let started = "simulated: started \"nginx:1\"; no program runs\n";
    let check = |arguments: &[&str], expected: &str| {
        let all = [&["logs", "web"], arguments].concat();
        assert_eq!(kubectl.ok(&all), expected, "{arguments:?}");
    };
    check(&[], started);
    check(&["-c", "web", "--tail=1"], started);
    check(&["--tail=0"], "");
    check(&["--since-time=2999-01-01T00:00:00Z"], "");
    check(&["--limit-bytes=9"], "simulated");
    assert!(
        kubectl
            .ok(&["logs", "web", "--timestamps"])
            .ends_with(&format!("000000000Z {started}"))
    );

    let refused = |arguments: &[&str], expected: &str| {
        let said = kubectl.run(&[&["logs"], arguments].concat());
        // Newer kubectls go on with the containers that there are.
        let said = (said.code, said.err.trim().trim_end_matches(" out of: web"));
        assert_eq!(said, (Some(1), expected), "{arguments:?}");
    };
    refused(
        &["web", "--previous"],
        "Error from server (BadRequest): previous terminated container \"web\" in pod \"web\" not found",
    );
    refused(
        &["web", "-c", "other"],
        "error: container other is not valid for pod web",
    );
    kubectl.ok(&["run", "broken", "--image=registry.invalid/app:1"]);
    kubectl.until(&["get", "pod", "broken", "--no-headers"], |said| {
        said.out.contains("ImagePullBackOff")
    });
    refused(
        &["broken"],
        "Error from server (BadRequest): container \"broken\" in pod \"broken\" is waiting to start: trying and failing to pull image",
    );
}

#[test]
fn a_log_is_followed_to_the_end_of_its_container() {
    if !kubectl_is_there() {
        return;
    }
    let cluster = RunningCluster::start(&[]);
    let kubectl = Kubectl::of(&cluster);
    let code = "--annotations=kubewright.dev/exit-code=3";
    let time = "--annotations=kubewright.dev/run-seconds=2";
    kubectl.ok(&["run", "task", "--image=task:1", "--restart=Never", code, time]);
    // A pod that has no node yet has a log without a line.
    kubectl.until(&["logs", "task"], |said| !said.out.is_empty());
    let mut following = kubectl.background(&["logs", "-f", "task"]);
    let lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    let expected = [
        "simulated: started \"task:1\"; no program runs",
        "simulated: ended with exit code 3",
    ];
    assert_eq!(lines, expected);
    assert!(following.wait().unwrap().success());
}

#[test]
fn nothing_runs() {
    if !kubectl_is_there() {
        return;
    }
    let cluster = RunningCluster::start(&[]);
    let kubectl = Kubectl::of(&cluster);
    kubectl.ok(&["run", "web", "--image=nginx:1"]);
    kubectl.ready("web");
    let check = |arguments: &[&str], expected: &str| {
        let said = kubectl.run(arguments);
        assert!(
            said.code == Some(1) && said.err.contains(expected),
            "{arguments:?}: {said:?}"
        );
    };
    check(
        &["exec", "web", "--", "date"],
        "pods/exec is not served: there is no kubelet: nodes are simulated and containers do not run",
    );
    check(
        &["attach", "web"],
        "pods/attach is not served: there is no kubelet: nodes are simulated and containers do not run",
    );
    // Annotations answer for the command: the namespace's, and before them the pod's own.
    kubectl.ok(&["annotate", "namespace", "default", "kubewright.dev/exec-output=ok"]);
    assert_eq!(kubectl.ok(&["exec", "web", "--", "date"]), "ok");
    kubectl.ok(&[
        "annotate",
        "pod",
        "web",
        "kubewright.dev/exec-code=3",
        "kubewright.dev/exec-output.web=own",
    ]);
    let said = kubectl.run(&["exec", "-i", "web", "--", "date"]);
    assert!(said.code == Some(3) && said.out == "own", "{said:?}");
    check(
        &["port-forward", "web", ":80"],
        "pods/portforward is not served: there is no kubelet: nodes are simulated and containers do not run",
    );
}
