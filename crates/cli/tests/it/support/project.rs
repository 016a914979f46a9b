//! A project whose operator is built in a second: a program of the standard library alone that declares itself, says on
//! the socket that it is ready, and prints a word.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kubewright_codegen::project::{self, Resource, Webhooks};
use kubewright_codegen::{MemoryFiles, Plan, config};
use serde_json::{Value, json};

use super::KUBEWRIGHT;

const MANIFEST: &str = "[package]\nname = \"guestbook\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";

/// A sample of its kind.
pub(crate) const SAMPLE: &str = "\
apiVersion: webapp.my.domain/v1
kind: Guestbook
metadata:
  name: hello
  namespace: default
spec:
  size: 2
";

/// A kubeconfig of a cluster that is not of this machine.
pub(crate) const REMOTE_KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: prod-eu
clusters:
- name: eu
  cluster: {server: 'https://192.0.2.7'}
contexts:
- name: prod-eu
  context: {cluster: eu, user: me}
users:
- name: me
  user: {token: t}
";

/// The operator's source; `WORD` and `BODY` are replaced.
pub(crate) const SOURCE: &str = r###"
use std::io::Write;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("__declaration") {
        println!("{}", include_str!("declaration.json"));
        return;
    }
    println!("I am WORD");
    let path = std::env::var("KUBEWRIGHT_OBSERVE").unwrap();
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    writeln!(socket, "{}", r##"{"hello":{"operator":"guestbook","controllers":["guestbook"]}}"##).unwrap();
    writeln!(socket, "{}", r##"{"observed":{"controllerStarted":{"controller":"guestbook"}}}"##).unwrap();
    BODY
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
"###;

/// Its declaration; `size` is the schema of `spec.size`.
pub(crate) fn declaration(size: Value) -> String {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": size}}}});
    json!({
        "declaration": 1, "name": "guestbook", "kubewright": "0.1.0",
        "crds": [{"rust": "v1::Guestbook", "crd": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "guestbooks.webapp.my.domain"},
            "spec": {
                "group": "webapp.my.domain", "scope": "Namespaced",
                "names": {"plural": "guestbooks", "singular": "guestbook", "kind": "Guestbook", "listKind": "GuestbookList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }}],
        "controllers": [], "webhooks": [], "conversions": [], "rbac": [],
    })
    .to_string()
}

/// A project with its own target folder.
pub(crate) struct Project(
    #[expect(dead_code, reason = "removed at the end")] tempfile::TempDir,
    PathBuf,
);

impl Project {
    pub(crate) fn new() -> Project {
        let folder = tempfile::tempdir().expect("a temporary project can be written");
        // The folder has the name that people see.
        let root = folder.path().join("guestbook");
        let project = Project(folder, root);
        project.write("Cargo.toml", MANIFEST);
        project.write("config/samples/webapp_v1_guestbook.yaml", SAMPLE);
        project.write("src/declaration.json", &declaration(json!({"type": "integer"})));
        project.source("one", "");
        project
    }

    pub(crate) fn path(&self) -> &Path {
        &self.1
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().expect("a temporary project can be written"))
            .expect("a temporary project can be written");
        fs::write(path, text).expect("a temporary project can be written");
    }

    pub(crate) fn source(&self, word: &str, body: &str) {
        self.write("src/main.rs", &SOURCE.replace("WORD", word).replace("BODY", body));
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KUBEWRIGHT);
        command
            .args(arguments)
            .current_dir(self.path())
            .env("CARGO_TARGET_DIR", self.path().join("target"))
            .env_remove("KUBECONFIG")
            .env("HOME", home(self.path()))
            .stdin(Stdio::null());
        command
    }
}

/// A home without a kubeconfig, in which cargo and rustup are found all the same.
fn home(empty: &Path) -> PathBuf {
    // The variables that name them are set by rustup's own wrapper when tests run under cargo.
    match (std::env::var_os("CARGO_HOME"), std::env::var_os("RUSTUP_HOME")) {
        (Some(_), Some(_)) => empty.to_path_buf(),
        _ => std::env::var_os("HOME").map_or_else(|| empty.to_path_buf(), PathBuf::from),
    }
}

/// A project on disk whose generated files are there, as after `kubewright manifests`.
pub(crate) fn deployable(webhooks: bool) -> tempfile::TempDir {
    let mut project = project::Project::new("guestbook", "my.domain");
    let mut resource = Resource::own("webapp", "my.domain", "v1", "Guestbook", true);
    resource.webhooks = webhooks.then(|| Webhooks {
        validation: true,
        ..Webhooks::default()
    });
    project.resources.push(resource);
    let nothing = MemoryFiles::default();
    let mut plan = Plan::new(&nothing);
    config::sync(None, &project, &mut plan).expect("a temporary project can be written");
    let mut files = MemoryFiles::default();
    files.apply(&plan);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "guestbooks.webapp.my.domain"},
        "spec": {
            "group": "webapp.my.domain", "scope": "Namespaced",
            "names": {"kind": "Guestbook", "listKind": "GuestbookList", "plural": "guestbooks", "singular": "guestbook"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "manager-role"},
        "rules": [{"apiGroups": ["webapp.my.domain"], "resources": ["guestbooks"], "verbs": ["get", "list", "watch"]}],
    });
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating-webhook-configuration"}, "webhooks": [],
    });
    for (path, text) in [
        ("PROJECT", project.to_text()),
        ("Cargo.toml", "[package]\nname = \"guestbook\"\n".to_owned()),
        ("config/crd/bases/webapp.my.domain_guestbooks.yaml", crd.to_string()),
        ("config/rbac/role.yaml", role.to_string()),
        ("config/webhook/manifests.yaml", webhook.to_string()),
    ] {
        files.0.insert(path.to_owned(), text);
    }
    let folder = tempfile::tempdir().expect("a temporary project can be written");
    for (path, text) in &files.0 {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a temporary project can be written"))
            .expect("a temporary project can be written");
        fs::write(path, text).expect("a temporary project can be written");
    }
    folder
}
