//! `kubectl top`: the usage of pods and nodes.

use crate::processes::kubectl::Kubectl;
use crate::support::{RunningCluster, kubectl_is_there};

/// The lines of a table as words.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn simulated_pods_use_what_their_annotations_say() {
    if !kubectl_is_there() {
        return;
    }
    let cluster = RunningCluster::start(&["--nodes", "2"]);
    let kubectl = Kubectl::of(&cluster);
    let run = |name: &str, annotations: &[&str]| {
        let mut arguments = vec!["run", name, "--image=nginx:1"];
        arguments.extend(annotations);
        kubectl.ok(&arguments);
        kubectl.ready(name);
    };
    let cpu = "--annotations=kubewright.dev/usage-cpu=250m";
    let memory = "--annotations=kubewright.dev/usage-memory=64Mi";
    run("web", &["--labels=app=web", cpu, memory]);
    run("idle", &["--labels=app=idle"]);
    let top = |arguments: &[&str], expected: &[&[&str]]| {
        let said = kubectl.ok(&[&["top"], arguments].concat());
        assert_eq!(words(&said), expected, "{arguments:?}");
    };
    top(
        &["pods"],
        &[
            &["NAME", "CPU(cores)", "MEMORY(bytes)"],
            &["idle", "0m", "0Mi"],
            &["web", "250m", "64Mi"],
        ],
    );
    let header: &[&str] = &["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"];
    top(
        &["pods", "-l", "app=web", "--containers"],
        &[header, &["web", "web", "250m", "64Mi"]],
    );
    top(&["pod", "web", "--no-headers"], &[&["web", "250m", "64Mi"]]);
    top(
        &["pods", "-A", "--sum", "--no-headers", "--sort-by=cpu"],
        &[
            &["default", "web", "250m", "64Mi"],
            &["default", "idle", "0m", "0Mi"],
            &["________", "________"],
            &["250m", "64Mi"],
        ],
    );
    // As large as its node is simulated: 32 cpus.
    let node = kubectl.ok(&["get", "pod", "web", "-o", "jsonpath={.spec.nodeName}"]);
    let said = kubectl.ok(&["top", "nodes"]);
    let lines = words(&said);
    assert_eq!(lines[0], ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]);
    let of = |name: &str| lines.iter().find(|line| line[0] == name).cloned();
    let busy = of(&node).expect("the node is listed");
    assert_eq!((busy[1], busy[3], lines.len()), ("250m", "64Mi", 3), "{said}");

    // A pod that does not run has no metrics.
    kubectl.ok(&["run", "broken", "--image=registry.invalid/app:1"]);
    kubectl.until(&["get", "pod", "broken", "--no-headers"], |said| {
        said.out.contains("ImagePullBackOff")
    });
    assert!(!kubectl.ok(&["top", "pods"]).contains("broken"));
    let said = kubectl.run(&["top", "pod", "broken"]);
    assert_eq!(
        (said.code, said.err.trim()),
        (Some(1), "Error from server (NotFound): pods \"broken\" not found")
    );
}

#[test]
fn what_metrics_server_would_have_installed() {
    if !kubectl_is_there() {
        return;
    }
    let cluster = RunningCluster::start(&[]);
    let kubectl = Kubectl::of(&cluster);
    kubectl.until(&["get", "apiservice", "v1beta1.metrics.k8s.io"], |said| {
        said.code == Some(0)
    });
    kubectl.ok(&[
        "wait",
        "--for=condition=Available",
        "apiservice/v1beta1.metrics.k8s.io",
        "--timeout=60s",
    ]);
    let resources = kubectl.ok(&["api-resources", "--api-group=metrics.k8s.io", "--no-headers"]);
    assert_eq!(
        words(&resources),
        [
            ["nodes", "metrics.k8s.io/v1beta1", "false", "NodeMetrics"],
            ["pods", "metrics.k8s.io/v1beta1", "true", "PodMetrics"],
        ]
    );
    assert!(
        kubectl
            .ok(&[
                "explain",
                "pods.containers.usage",
                "--api-version=metrics.k8s.io/v1beta1"
            ])
            .contains("working set")
    );
    for role in ["view", "edit", "admin"] {
        let rules = ["get", "clusterrole", role, "-o", "jsonpath={.rules[*].apiGroups}"];
        kubectl.until(&rules, |said| said.out.contains("metrics.k8s.io"));
    }
    kubectl.ok(&["create", "rolebinding", "anna", "--clusterrole=view", "--user=anna"]);
    let may = |namespace: &str| kubectl.run(&["top", "pods", "-n", namespace, "--as=anna"]);
    kubectl.until(&["top", "pods", "--as=anna"], |said| said.code == Some(0));
    assert!(may("kube-system").err.contains("forbidden"));
    kubectl.ok(&["run", "web", "--image=nginx:1"]);
    kubectl.ready("web");
    let table = kubectl.ok(&["get", "pods.metrics.k8s.io"]);
    assert_eq!(
        words(&table),
        [vec!["NAME", "CPU", "MEMORY", "WINDOW"], vec!["web", "0", "0", "15s"]]
    );
}

#[cfg(target_os = "linux")]
mod processes {
    use super::*;
    use crate::processes::running::{apply, cluster};

    const BUSY: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: busy }
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: loop
    image: busybox
    command: [sh, -c, "while :; do :; done"]
  - name: sleep
    image: busybox
    command: [sleep, "1000"]
"#;

    #[test]
    fn processes_are_measured() {
        if !kubectl_is_there() {
            return;
        }
        let cluster = cluster(&[], &[]);
        let kubectl = Kubectl::of(&cluster);
        apply(&kubectl, &cluster, BUSY);
        kubectl.ready("busy");
        // Until they were looked at for the first time nothing is known.
        let said = kubectl.until(&["top", "pod", "busy", "--containers", "--no-headers"], |said| {
            said.code == Some(0)
        });
        let lines = words(&said.out);
        let number = |text: &str, unit: &str| text.trim_end_matches(unit).parse::<u64>().expect(text);
        let of = |name: &str| {
            let line = lines.iter().find(|line| line[1] == name).expect("it is listed");
            (number(line[2], "m"), number(line[3], "Mi"))
        };
        let (busy, idle) = (of("loop"), of("sleep"));
        // The share of the machine that is left beside other tests.
        assert!(busy.0 >= 20 && busy.0 <= 1100, "{}", said.out);
        assert!(idle.0 < busy.0 && idle.0 <= 20, "{}", said.out);
        let raw = kubectl.ok(&[
            "get",
            "--raw",
            "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/busy",
        ]);
        assert!(!raw.contains("\"memory\":\"0\""), "{raw}");
        let nodes = kubectl.ok(&["top", "nodes", "--no-headers"]);
        assert!(number(words(&nodes)[0][1], "m") >= 20, "{nodes}");
        kubectl.ok(&["delete", "pod", "busy", "--now"]);
        assert!(kubectl.run(&["top", "pod", "busy"]).err.contains("not found"));
    }

    const SCALED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: busy }
spec:
  replicas: 1
  selector: { matchLabels: { app: busy } }
  template:
    metadata: { labels: { app: busy } }
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: loop
        image: busybox
        command: [sh, -c, "while :; do :; done"]
        resources: { requests: { cpu: 10m } }
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: { name: busy }
spec:
  minReplicas: 1
  maxReplicas: 2
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: busy }
  metrics: [{ type: Resource, resource: { name: cpu, target: { type: Utilization, averageUtilization: 50 } } }]
"#;

    #[test]
    fn an_autoscaler_follows_processes() {
        if !kubectl_is_there() {
            return;
        }
        let cluster = cluster(&[], &[]);
        let kubectl = Kubectl::of(&cluster);
        apply(&kubectl, &cluster, SCALED);
        let scaler = [
            "get",
            "hpa",
            "busy",
            "-o",
            "jsonpath={.status.desiredReplicas} {.status.currentMetrics[0].resource.current.averageUtilization}",
        ];
        let said = kubectl.until(&scaler, |said| said.out.starts_with("2 "));
        let percent = said
            .out
            .split(' ')
            .nth(1)
            .and_then(|percent| percent.parse::<u32>().ok());
        assert!(percent.is_some_and(|percent| percent > 50), "{said:?}");
        kubectl.until(&["get", "pods", "-o", "name"], |said| said.out.lines().count() == 2);
    }

    const HUNGRY: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: hungry }
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "for i in 1 2 3; do (head -c 20000000 /dev/zero; sleep 1000) | tail -c 30000000 & done; wait"]
    resources: { limits: { memory: 48Mi } }
"#;

    /// Each of its processes is within the limit, all together are not.
    #[test]
    fn a_container_above_its_limit_is_killed() {
        if !kubectl_is_there() {
            return;
        }
        let cluster = cluster(&[], &[]);
        let kubectl = Kubectl::of(&cluster);
        apply(&kubectl, &cluster, HUNGRY);
        let ended = "{.status.phase} {.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}";
        let said = kubectl.until(&["get", "pod", "hungry", "-o", &format!("jsonpath={ended}")], |said| {
            said.out.starts_with("Failed")
        });
        assert_eq!(said.out, "Failed OOMKilled 137");
    }
}
