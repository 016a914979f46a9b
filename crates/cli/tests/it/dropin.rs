//! `kubewright assets`, and the two programs in its folder, started and asked as test environments do it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{KUBEWRIGHT, client_of};
use kubewright::kube::config::Kubeconfig;
use kubewright::kube::{self, Api, Client, api::PostParams};
use kubewright_cluster::{Cluster, Controllers, Pki};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

/// A child that is killed when the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn ends_well(&mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let status = self.0.wait().unwrap();
        assert!(status.success(), "SIGTERM is a clean stop: {status}");
    }
}

/// A folder of assets, and one for each of the two programs.
struct World {
    folder: tempfile::TempDir,
    etcd: u16,
    server: u16,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new(KUBEWRIGHT)
            .args(["assets", "--print", "path", "--dir"])
            .arg(folder.path())
            .output();
        assert!(made.unwrap().status.success());
        let certificates = folder.path().join("certificates");
        std::fs::create_dir(&certificates).unwrap();
        for name in ["sa.key", "apiserver"] {
            let (chain, key) = Pki::self_signed("127.0.0.1".parse().unwrap()).unwrap();
            if name == "apiserver" {
                std::fs::write(certificates.join("apiserver.crt"), chain).unwrap();
                std::fs::write(certificates.join("apiserver.key"), key).unwrap();
            } else {
                std::fs::write(certificates.join("sa-signer.crt"), chain).unwrap();
                std::fs::write(certificates.join("sa-signer.key"), key).unwrap();
            }
        }
        std::fs::write(
            certificates.join("tokens.csv"),
            "secret,jane,1,\"system:masters\"\nother,joe,2\nkubelet,system:node:n1,3,\"system:nodes\"\n",
        )
        .unwrap();
        World {
            folder,
            etcd: free_port(),
            server: free_port(),
        }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, name: &str, arguments: &[String]) -> Running {
        let child = Command::new(self.program(name))
            .args(arguments)
            .stdout(Stdio::null())
            .spawn();
        Running(child.unwrap())
    }

    /// As envtest starts it.
    fn start_etcd(&self) -> Running {
        let client = format!("http://127.0.0.1:{}", self.etcd);
        let running = self.start(
            "etcd",
            &[
                format!("--advertise-client-urls={client}"),
                format!("--data-dir={}", self.folder.path().join("data").display()),
                format!("--listen-client-urls={client}"),
                format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
                "--unsafe-no-fsync=true".to_owned(),
            ],
        );
        until("etcd is healthy", || {
            self.health()
                .is_some_and(|answer| answer.contains("\"health\":\"true\""))
        });
        running
    }

    fn health(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.etcd)).ok()?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: etcd\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The flags of envtest, and these.
    fn server_flags(&self, more: &[&str]) -> Vec<String> {
        let folder = self.folder.path().join("certificates");
        let path = |name: &str| folder.join(name).display().to_string();
        let mut flags = vec![
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", folder.display()),
            format!("--client-ca-file={}", path("apiserver.crt")),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            format!("--secure-port={}", self.server),
            format!("--service-account-issuer=https://127.0.0.1:{}/", self.server),
            format!("--service-account-key-file={}", path("sa-signer.crt")),
            format!("--service-account-signing-key-file={}", path("sa-signer.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            format!("--token-auth-file={}", path("tokens.csv")),
        ];
        // Lists grow with each flag, so a requested flag replaces the default one.
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        flags.retain(|flag| !more.iter().any(|one| name(one) == name(flag)));
        flags.extend(more.iter().map(|&one| one.to_owned()));
        flags
    }

    fn start_server(&self) -> Running {
        self.start_server_with(&[])
    }

    fn start_server_with(&self, flags: &[&str]) -> Running {
        let running = self.start("kube-apiserver", &self.server_flags(flags));
        until("the port is open", || {
            TcpStream::connect(("127.0.0.1", self.server)).is_ok()
        });
        running
    }

    /// A client with a token, or without; it trusts the certificate in `--cert-dir`, and nothing else.
    async fn client(&self, token: Option<&str>) -> Client {
        let certificate = self.folder.path().join("certificates/apiserver.crt");
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.server), "certificate-authority": certificate}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }))
        .unwrap();
        client_of(kubeconfig).await
    }
}

/// Waits for a state; envtest looks every 100 ms.
fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

fn said(program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().unwrap();
    (
        status.code(),
        String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned(),
    )
}

/// A token, a request, and the code of its answer.
type Asked<'a> = (Option<&'a str>, http::Request<Vec<u8>>, u16);

type ConfigMap = kubewright::k8s_openapi::api::core::v1::ConfigMap;

#[tokio::test]
async fn a_control_plane_serves_and_finds_its_objects_again() {
    let world = World::new();
    let mut etcd = world.start_etcd();
    let mut server = world.start_server();
    let nobody = world.client(None).await;
    let request = || http::Request::get("/healthz").body(Vec::new()).unwrap();
    assert_eq!(nobody.request_text(request()).await.unwrap(), "ok");
    let maps: Api<ConfigMap> = Api::namespaced(world.client(Some("secret")).await, "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "kept"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    // RBAC decides about others.
    let others: Api<ConfigMap> = Api::namespaced(world.client(Some("other")).await, "default");
    let kube::Error::Api(refused) = others.get("kept").await.unwrap_err() else {
        panic!("an answer of the server");
    };
    assert_eq!(refused.code, 403);
    server.ends_well();
    etcd.ends_well();

    // Another pair on the same folder, and this time the server is killed.
    let etcd = world.start_etcd();
    drop(world.start_server());
    let mut server = world.start_server();
    let maps: Api<ConfigMap> = Api::namespaced(world.client(Some("secret")).await, "default");
    assert!(maps.get("kept").await.is_ok());
    server.ends_well();

    // A server that keeps its objects apart.
    let mut server = world.start_server_with(&["--etcd-prefix=/other"]);
    let maps: Api<ConfigMap> = Api::namespaced(world.client(Some("secret")).await, "default");
    assert!(maps.get_opt("kept").await.unwrap().is_none());
    server.ends_well();
    drop(etcd);
}

#[tokio::test]
async fn flags_say_who_may_and_what_is_asked_of_objects() {
    let world = World::new();
    let _etcd = world.start_etcd();
    let code = async |token: Option<&str>, request: http::Request<Vec<u8>>| match world
        .client(token)
        .await
        .request_text(request)
        .await
    {
        Ok(_) => 200,
        Err(kube::Error::Api(refused)) => refused.code,
        Err(other) => panic!("{other}"),
    };
    let get = |path: &str| http::Request::get(path).body(Vec::new()).unwrap();
    let nowhere = || {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let request = http::Request::post("/api/v1/namespaces/nowhere/configmaps");
        let request = request.header("Content-Type", "application/json");
        request.body(object.to_string().into_bytes()).unwrap()
    };
    let maps = "/api/v1/configmaps";
    let check = async |flags: &[&str], asked: Vec<Asked<'_>>| {
        let mut server = world.start_server_with(flags);
        for (token, request, expected) in asked {
            let what = format!("{flags:?}: {token:?} {} {}", request.method(), request.uri());
            assert_eq!(code(token, request).await, expected, "{what}");
        }
        server.ends_well();
    };
    check(
        &["--authorization-mode=RBAC"],
        vec![
            (None, get("/healthz"), 200),
            (None, get(maps), 403),
            (Some("other"), get(maps), 403),
            (Some("secret"), get(maps), 200),
            (Some("secret"), nowhere(), 404),
        ],
    )
    .await;
    // Anonymous users must not be allowed everything.
    let asked = vec![(None, get(maps), 401), (Some("other"), get(maps), 200)];
    check(&["--authorization-mode=AlwaysAllow"], asked).await;
    // Masters are asked nothing.
    let asked = vec![(Some("other"), get(maps), 403), (Some("secret"), get(maps), 200)];
    check(&["--authorization-mode=AlwaysDeny"], asked).await;
    // A kubelet is asked of by the Node authorizer, and writes about itself.
    let node = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let request = http::Request::post("/api/v1/nodes").header("Content-Type", "application/json");
        request.body(object.to_string().into_bytes()).unwrap()
    };
    check(
        &[
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
        ],
        vec![
            (Some("kubelet"), get("/api/v1/secrets"), 403),
            (
                Some("kubelet"),
                get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"),
                200,
            ),
            (Some("kubelet"), node("n1"), 200),
            (Some("kubelet"), node("n2"), 403),
        ],
    )
    .await;
    let asked = vec![(None, get("/healthz"), 401), (Some("secret"), get("/healthz"), 200)];
    check(&["--anonymous-auth=false"], asked).await;
    let flags = ["--disable-admission-plugins=ServiceAccount,NamespaceLifecycle"];
    check(&flags, vec![(Some("secret"), nowhere(), 200)]).await;
    // Where the server is, as it was told to say.
    let somebody_elses = ["--advertise-address=192.0.2.8", "--endpoint-reconciler-type=none"];
    for flags in [&["--advertise-address=192.0.2.7"][..], &somebody_elses] {
        let mut server = world.start_server_with(flags);
        let endpoints = get("/api/v1/namespaces/default/endpoints/kubernetes");
        let client = world.client(Some("secret")).await;
        let text = client.request_text(endpoints).await.unwrap();
        assert!(text.contains(r#""addresses":[{"ip":"192.0.2.7"}]"#), "{flags:?} {text}");
        server.ends_well();
    }
}

/// An API server takes reviews as any webhook does: a request that its roles allow is allowed here, and any other may
/// be allowed by our own.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_is_asked_what_users_may() {
    let judge = Cluster::builder().controllers(Controllers::None).start().await.unwrap();
    let create = async |path: &str, object: serde_json::Value| {
        let request = http::Request::post(path).header("Content-Type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        judge.client().request_text(request).await.unwrap();
    };
    let group = "rbac.authorization.k8s.io";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "lister"}, "rules": rules});
    create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "lister"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "lister"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "joe"}],
    });
    create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let listening = judge.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig).unwrap();
    let server = kubeconfig.clusters[0]
        .cluster
        .as_mut()
        .unwrap()
        .server
        .as_mut()
        .unwrap();
    server.push_str("/apis/authorization.k8s.io/v1/subjectaccessreviews");

    let world = World::new();
    let _etcd = world.start_etcd();
    let file = world.folder.path().join("judge");
    std::fs::write(&file, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    let file = format!("--authorization-webhook-config-file={}", file.display());
    let mut running = world.start_server_with(&[
        "--authorization-mode=Webhook,RBAC",
        "--authorization-webhook-version=v1",
        &file,
    ]);
    let code = async |token: &str, path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        match world.client(Some(token)).await.request_text(request).await {
            Ok(_) => 200,
            Err(kube::Error::Api(refused)) => refused.code,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(
        code("other", "/api/v1/configmaps").await,
        200,
        "the other server's role"
    );
    assert_eq!(code("other", "/api/v1/secrets").await, 403, "neither server's");
    assert_eq!(code("other", "/version").await, 200, "both servers' first roles");
    judge.stop().await;
    assert_eq!(code("other", "/api/v1/configmaps").await, 200, "it is remembered");
    assert_eq!(code("other", "/api/v1/pods").await, 500, "the other server is gone");
    assert_eq!(code("secret", "/api/v1/pods").await, 200, "of masters nobody is asked");
    running.ends_well();
}

// The client closes its connection on a thread of its own, while the test waits.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_entered_in_the_audit_log() {
    let world = World::new();
    let _etcd = world.start_etcd();
    let (policy, log) = (
        world.folder.path().join("policy.yaml"),
        world.folder.path().join("logs/audit.log"),
    );
    let rules = "rules: [{level: RequestResponse, resources: [{group: '', resources: [configmaps]}]}, {level: None}]";
    std::fs::write(
        &policy,
        format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n{rules}\n"),
    )
    .unwrap();
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut server = world.start_server_with(&flags);
    let maps: Api<ConfigMap> = Api::namespaced(world.client(Some("secret")).await, "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "entered"}, "data": {"a": "b"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    // The answered request is in the log.
    let text = std::fs::read_to_string(&log).unwrap();
    let event: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(event["stage"], "ResponseComplete");
    assert_eq!(event["user"]["username"], "jane");
    assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(event["requestObject"]["data"], json!({"a": "b"}));
    assert_eq!(event["responseStatus"]["code"], 201);
    // A watch is complete when its client is gone.
    let watch = http::Request::get("/api/v1/configmaps?watch=1")
        .body(Vec::new())
        .unwrap();
    let client = world.client(Some("secret")).await;
    let watching = client.request_stream(watch).await.unwrap();
    let stages = || {
        let text = std::fs::read_to_string(&log).unwrap();
        let stage = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["stage"].clone();
        text.lines().skip(1).map(stage).collect::<Vec<_>>()
    };
    until("the watch has begun", || stages() == ["ResponseStarted"]);
    drop((watching, client));
    until("the watch is over", || {
        stages() == ["ResponseStarted", "ResponseComplete"]
    });
    server.ends_well();

    // A policy that cannot be used starts nothing.
    std::fs::write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Some}]\n",
    )
    .unwrap();
    let flags = world.server_flags(&flags);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (code, text) = said(&world.program("kube-apiserver"), &flags);
    let expected = format!(
        "Error: loading audit policy file: rules[0].level: Unsupported value: \"Some\": supported values: \"None\", \"Metadata\", \
         \"Request\", \"RequestResponse\": from file {}",
        policy.display()
    );
    assert_eq!((code, text.trim_end()), (Some(1), expected.as_str()));
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error() {
    let world = World::new();
    let _etcd = world.start_etcd();
    let _taken = TcpListener::bind(("127.0.0.1", world.server)).unwrap();
    let flags = world.server_flags(&[]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (code, text) = said(&world.program("kube-apiserver"), &flags);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(&format!(
            "listen tcp 127.0.0.1:{}: bind: address already in use",
            world.server
        )),
        "{text}"
    );
}

#[test]
fn what_envtest_asks_first_is_answered() {
    let world = World::new();
    let (code, text) = said(&world.program("kube-apiserver"), &["--help"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("\n      --secure-port int ") && !text.contains("insecure-port"),
        "{text}"
    );
    let (code, text) = said(&world.program("kube-apiserver"), &["--version"]);
    let expected = format!("Kubernetes {}\n", kubewright_cluster::Minor::default().version());
    assert_eq!((code, text), (Some(0), expected));
    let (code, text) = said(&world.program("etcd"), &["--help"]);
    assert_eq!(code, Some(0));
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("--unsafe-no-fsync ")),
        "{text}"
    );
}

#[test]
fn the_folder_says_which_version_is_served() {
    let world = tempfile::tempdir().unwrap();
    let shown = world.path().display().to_string();
    let assets = |version: &str| {
        let arguments = [
            "assets",
            "--dir",
            &shown,
            "--kubernetes-version",
            version,
            "--print",
            "path",
        ];
        said(Path::new(KUBEWRIGHT), &arguments)
    };
    for (version, folder, served) in [("1.36", "1.36.3-", "v1.36.3"), ("1.37.x", "1.37.2-", "v1.37.2")] {
        let (code, path) = assets(version);
        let path = Path::new(path.lines().last().unwrap());
        assert_eq!(code, Some(0), "{path:?}");
        assert!(
            path.file_name().unwrap().to_str().unwrap().starts_with(folder),
            "{path:?}"
        );
        assert!(path.parent().unwrap().ends_with("k8s"), "{path:?}");
        let (code, text) = said(&path.join("kube-apiserver"), &["--version"]);
        assert_eq!((code, text), (Some(0), format!("Kubernetes {served}\n")));
    }
    let (code, text) = assets("1.20");
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("Kubernetes 1.20 is not served; there are 1.36 and 1.37"),
        "{text}"
    );
}

#[test]
fn mistakes_are_told_as_upstream_tells_them() {
    let world = World::new();
    #[track_caller]
    fn check(program: &Path, arguments: &[&str], expected: &str) {
        let (code, text) = said(program, arguments);
        assert_eq!((code, text.trim_end()), (Some(1), expected), "{arguments:?}");
    }
    let server = world.program("kube-apiserver");
    check(&server, &["--nonsense=1"], "Error: unknown flag: --nonsense");
    check(
        &server,
        &["--secure-port"],
        "Error: flag needs an argument: --secure-port",
    );
    check(
        &server,
        &["a"],
        "Error: \"kube-apiserver\" does not take any arguments, got [\"a\"]",
    );
    let required = "--service-account-signing-key-file and --service-account-issuer are required flags";
    check(
        &server,
        &["--etcd-servers=http://127.0.0.1:1"],
        &format!("Error: {required}"),
    );
    let flags = world.server_flags(&["--watch-cache=false", "--oidc-issuer-url=https://issuer"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    check(
        &server,
        &flags,
        "Error: --oidc-issuer-url=https://issuer is not served by kubewright: tokens of OpenID Connect are not authenticated",
    );
    check(
        &server,
        &["--max-requests-inflight=many"],
        "Error: invalid argument \"many\" for \"--max-requests-inflight\" flag: strconv.ParseInt: parsing \"many\": invalid syntax",
    );
    check(
        &world.program("etcd"),
        &["--nonsense"],
        "Error: unknown flag: --nonsense",
    );
}

#[test]
fn a_program_ends_when_its_parent_is_gone() {
    let world = World::new();
    // A shell that starts etcd and is killed: its child processes must not stay.
    let url = format!("http://127.0.0.1:{}", world.etcd);
    let script = format!(
        "{} --data-dir={} --listen-client-urls={url} & wait",
        world.program("etcd").display(),
        world.folder.path().join("data").display()
    );
    let mut shell = Running(Command::new("sh").args(["-c", &script]).spawn().unwrap());
    until("etcd is healthy", || world.health().is_some());
    shell.0.kill().unwrap();
    shell.0.wait().unwrap();
    until("etcd is gone", || world.health().is_none());
}

#[test]
fn the_folder_is_made_again_and_others_things_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let shown = path.display().to_string();
    for (print, expected) in [
        ("path", format!("{shown}\n")),
        ("env", format!("export KUBEBUILDER_ASSETS={shown}\n")),
    ] {
        let made = Command::new(KUBEWRIGHT)
            .args(["assets", "--dir", &shown, "--kubectl", KUBEWRIGHT, "--print", print])
            .output()
            .unwrap();
        assert!(made.status.success());
        assert_eq!(String::from_utf8_lossy(&made.stdout), expected);
        assert!(path.join("kubectl").is_symlink());
    }
    std::fs::remove_file(path.join("etcd")).unwrap();
    std::fs::write(path.join("etcd"), "theirs").unwrap();
    let (code, text) = said(Path::new(KUBEWRIGHT), &["assets", "--dir", &shown]);
    assert_eq!(code, Some(1));
    assert!(text.contains("it is left alone"), "{text}");
    assert_eq!(std::fs::read_to_string(path.join("etcd")).unwrap(), "theirs");
}
