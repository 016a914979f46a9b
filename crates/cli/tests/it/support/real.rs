//! A real kube-apiserver with its etcd on loopback, without nodes and controllers: the server for an operator on this
//! machine.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kubewright::k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use kubewright::k8s_openapi::api::core::v1::ServiceAccount;
use kubewright::kube::Client;
use kubewright::kube::api::{Api, PostParams};
use kubewright::kube::config::Kubeconfig;
use serde_json::json;

/// The variables that name the two programs.
const PROGRAMS: [&str; 2] = ["KUBEWRIGHT_TEST_KUBE_APISERVER", "KUBEWRIGHT_TEST_ETCD"];
/// The user who may do everything.
const ADMIN: &str = "the-administrator";
/// A server that starts beside builds takes its time.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Both programs, running; they end when this is dropped.
pub(crate) struct RealCluster {
    folder: tempfile::TempDir,
    programs: [PathBuf; 2],
    etcd: Child,
    server: Child,
    etcd_port: u16,
    port: u16,
}

impl RealCluster {
    /// Starts it; `None`, said aloud, when the environment names no programs.
    pub(crate) async fn start() -> Option<RealCluster> {
        let [Some(server), Some(etcd)] = PROGRAMS.map(|name| std::env::var_os(name).map(PathBuf::from)) else {
            // Past the harness, which keeps the words of tests that pass to itself.
            let _ = writeln!(
                std::io::stderr(),
                "LEFT OUT: nothing ran against a real kube-apiserver; name one with {} and {}",
                PROGRAMS[0],
                PROGRAMS[1]
            );
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("tokens.csv"), format!("{ADMIN},admin,admin,system:masters\n")).expect("a file can be written");
        let made = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(at("sa.key"))
            .arg("2048")
            .stderr(Stdio::null())
            .status();
        assert!(made.is_ok_and(|status| status.success()), "openssl makes a key");
        let [etcd_port, peer_port, port] = [free_port(), free_port(), free_port()];
        let etcd_process = Command::new(&etcd)
            .arg("--data-dir")
            .arg(at("etcd"))
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .arg(format!("--listen-client-urls=http://127.0.0.1:{etcd_port}"))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{etcd_port}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"))
            .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}"))
            .arg(format!("--initial-cluster=default=http://127.0.0.1:{peer_port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts");
        let server_process = serve(&server, folder.path(), etcd_port, port);
        let mut cluster = RealCluster {
            folder,
            programs: [server, etcd],
            etcd: etcd_process,
            server: server_process,
            etcd_port,
            port,
        };
        cluster.ready().await;
        fs::write(cluster.kubeconfig(), cluster.kubeconfig_of(ADMIN)).expect("a file can be written");
        Some(cluster)
    }

    /// Kills the API server, as a crash would, and starts it again on the same data.
    pub(crate) async fn crash_and_restart(&mut self) {
        self.server.kill().expect("it runs");
        self.server.wait().expect("it ends");
        self.server = serve(&self.programs[0], self.folder.path(), self.etcd_port, self.port);
        self.ready().await;
    }

    async fn ready(&mut self) {
        let end = Instant::now() + READY_WITHIN;
        let certificate = self.folder.path().join("certs/apiserver.crt");
        loop {
            if let Some(status) = self.server.try_wait().expect("it can be asked") {
                let log = fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default();
                panic!("kube-apiserver ended with {status}:\n{log}");
            }
            if certificate.exists() {
                let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
                let answer = self.client_of(ADMIN).await.request_text(request).await;
                if answer.is_ok_and(|answer| answer == "ok") {
                    return;
                }
            }
            assert!(Instant::now() < end, "kube-apiserver is not ready in time");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The administrator.
    pub(crate) async fn client(&self) -> Client {
        self.client_of(ADMIN).await
    }

    /// Writes the kubeconfig of a service account, with the rights of its roles alone.
    pub(crate) async fn kubeconfig_of_account(&self, namespace: &str, name: &str) -> PathBuf {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await, namespace);
        let wanted = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let issued = accounts
            .create_token_request(name, &PostParams::default(), &wanted)
            .await;
        let status = issued
            .expect("a token is issued")
            .status
            .expect("an answer has a status");
        let token = status.token.expect("an answer has a token");
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, self.kubeconfig_of(&token)).expect("a file can be written");
        path
    }

    fn kubeconfig_of(&self, token: &str) -> String {
        let certificate = self.folder.path().join("certs/apiserver.crt");
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "real",
            "clusters": [{"name": "real", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port), "certificate-authority": certificate,
            }}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
        })
        .to_string()
    }

    async fn client_of(&self, token: &str) -> Client {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig_of(token)).expect("JSON is YAML");
        super::client_of(kubeconfig).await
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        for process in [&mut self.server, &mut self.etcd] {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn serve(program: &Path, folder: &Path, etcd_port: u16, port: u16) -> Child {
    let at = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let log = fs::File::create(folder.join("server.log")).expect("a file can be written");
    Command::new(program)
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"))
        .arg(format!("--secure-port={port}"))
        .args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--authorization-mode=RBAC",
        ])
        .args([at("token-auth-file", "tokens.csv"), at("cert-dir", "certs")])
        .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
        .args([
            at("service-account-key-file", "sa.key"),
            at("service-account-signing-key-file", "sa.key"),
        ])
        .args([
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
        ])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("kube-apiserver starts")
}

/// A free port.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it has an address").port()
}
