//! Mistakes outside of a project: where a project is to be made, with a cluster, with a project in Go. Each ends with an
//! error that says what to do, and leaves the folder as it was.

use super::*;

/// Types a command in a folder that has only what `before` makes.
fn check(before: &[Before], command: &str, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for change in before {
        change.make(folder.path());
    }
    let there = tree(folder.path());
    let done = run(Command::new(KUBEWRIGHT)
        .args(command.split(' '))
        .current_dir(folder.path())
        .env("KUBECONFIG", "/nonexistent"));
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(!done.status.success(), "{command} should fail, and said:\n{said}");
    assert!(!said.contains("panicked"), "{command} said:\n{said}");
    for part in ["error: "].iter().chain(words) {
        assert!(said.contains(part), "{command} should say {part:?}, and said:\n{said}");
    }
    let is_helped = ["fix: ", "hint: ", "try '--help'"]
        .iter()
        .any(|part| said.contains(part));
    assert!(is_helped, "{command} should say what to do, and said:\n{said}");
    assert!(
        tree(folder.path()) == there,
        "{command} failed, and has written something:\n{said}"
    );
}

#[test]
fn where_no_project_can_be_made_is_told() {
    let there = &[New("there", b"x\n")] as &[Before];
    let to_nothing = &[LinkInPlaceOf("there", "nowhere")] as &[Before];
    for (before, command, words) in [
        (there, "init there", &["at: ", "it is not a folder"] as &[&str]),
        (there, "init there --dry-run", &["it is not a folder"]),
        (there, "init there/below", &["it is not a folder"]),
        (
            to_nothing,
            "init there",
            &["a symbolic link to a folder that does not exist"],
        ),
        (
            &[],
            "init --license apache2 --license-file x",
            &["--license-file", "cannot be used with"],
        ),
        (
            &[FifoInPlaceOf("x")],
            "init --project-name x --license-file x",
            &["at: x", "not a regular file"],
        ),
        (
            &[New("x", b"fn x() {}\n")],
            "init --project-name x --license-file x",
            &["it is not a comment"],
        ),
        (
            &[],
            "init --project-name x --kubewright 0.0.0.0",
            &["neither a version"],
        ),
        (&[], "init --project-name x --kubewright 0.1.0-", &["neither a version"]),
        (&[], "init --project-name x --kubewright /tmp", &["nor a checkout"]),
        (&[New("Cargo.toml", b"x")], "init --project-name x", &["at: Cargo.toml"]),
        (&[New("PROJECT", b"x")], "init --project-name x", &["a project already"]),
        (
            &[New("src/main.rs", b"x")],
            "init --project-name x",
            &["at: src/main.rs"],
        ),
        (&[], "bundle --version 0.1.0", &["no Cargo.toml"]),
        (&[], "build-installer", &["no Cargo.toml"]),
        (&[], "alpha generate", &["no project here"]),
        (
            &[],
            "assets --dir out --kubectl nowhere",
            &["nowhere", "--kubectl PATH"],
        ),
        (there, "assets --dir there", &["--dir DIR"]),
    ] {
        check(before, command, words);
    }
}

#[test]
fn a_cluster_that_cannot_be_is_told_before_it_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = format!(
        "cluster --data-dir state --kubeconfig a/b --listen {}",
        taken.local_addr().unwrap()
    );
    let long = format!("cluster --kubeconfig a/b/{}", "c".repeat(300));
    let fifo = &[FifoInPlaceOf("x")] as &[Before];
    for (before, command, words) in [
        (
            &[] as &[Before],
            "cluster --node-zones a,,b",
            &["--node-zones"] as &[&str],
        ),
        (&[], "cluster --node-zones a_", &["zone \"a_\"", "--node-zones"]),
        (&[], "cluster --node-label =a", &["KEY=VALUE"]),
        (&[], "cluster --node-label a$=b", &["label \"a$\""]),
        (&[], "cluster --node-label a=-", &["value \"-\" of label a"]),
        (
            &[],
            "cluster --node-capacity cpu=lots",
            &["\"lots\" is no quantity of cpu"],
        ),
        (
            &[],
            "cluster --node-capacity cpu=-1",
            &["the capacity of cpu is negative"],
        ),
        (&[], "cluster --nodes 99999999999", &["99999999999 nodes are more than"]),
        (&[], &in_use, &["cannot listen on", "--listen 127.0.0.1:0"]),
        (&[], "cluster --kubeconfig a/b/", &["names a folder"]),
        (&[], &long, &["too long"]),
        (&[New("x", b"x")], "cluster --kubeconfig x/y", &["Not a directory"]),
        (
            &[New("x", b"mine: 1")],
            "cluster --kubeconfig x",
            &["will not overwrite x"],
        ),
        (fifo, "cluster --kubeconfig x", &["not a regular file"]),
        (fifo, "cluster --token-auth-file x", &["not a regular file"]),
        (fifo, "cluster --stages x", &["not a regular file"]),
        (
            fifo,
            "cluster --audit-policy-file x --audit-log-path -",
            &["not a regular file"],
        ),
        (
            &[FifoInPlaceOf("kubewright.toml")],
            "cluster --runtime process",
            &["not a regular file"],
        ),
        (&[New("x", b"x")], "cluster --data-dir x", &["--data-dir DIR"]),
        (&[], "cluster --repair --data-dir x", &["cannot repair x"]),
    ] {
        check(before, command, words);
    }
}

macro_rules! kubeconfig {
    ($clusters:literal) => {
        concat!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n",
            "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n",
            $clusters
        )
        .as_bytes()
    };
}

#[test]
fn a_kubeconfig_that_leads_nowhere_is_told() {
    for (kubeconfig, words) in [
        (b"" as &[u8], &["no context is current"] as &[&str]),
        (b"a: {{{\n", &["YAML"]),
        (kubeconfig!(""), &["context a means cluster a, which has no server"]),
        (
            kubeconfig!(
                "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority: /none}}]"
            ),
            &["at: x", "/none", "--context"],
        ),
        (
            kubeconfig!("clusters: [{name: a, cluster: {server: 'ht tp://'}}]"),
            &["at: x", "invalid uri", "--context"],
        ),
        (
            kubeconfig!("clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]"),
            &["https://127.0.0.1:1", "--context"],
        ),
    ] {
        super::check(&New("x", kubeconfig), "uninstall --kubeconfig x", words);
    }
}

const GO: &[u8] = b"domain: a.b\nlayout: [go.kubebuilder.io/v4]\nprojectName: c\nrepo: a.b/c\nversion: \"3\"\n";
const TAGGED: &[u8] = b"package v1\n\ntype Spec struct {\n\tName string `json:name`\n}\n";

#[test]
fn a_project_in_go_that_cannot_be_carried_over_is_told() {
    let project = |rest: Before| [New("go/PROJECT", GO), New("go/main.go", b"package main\n"), rest];
    for (before, command, words) in [
        (
            project(Nothing),
            "migrate go go",
            &["inside the project in Go", "beside it"] as &[&str],
        ),
        (
            project(Nothing),
            "migrate go go/new/deep",
            &["inside the project in Go"],
        ),
        (
            project(LinkInPlaceOf("link", "go")),
            "migrate go link/new",
            &["inside the project in Go"],
        ),
        (project(New("there", b"x")), "migrate go there", &["it is not a folder"]),
        (
            project(New("new/Cargo.toml", b"x")),
            "migrate go new",
            &["Cargo.toml", "name an empty folder"],
        ),
        (project(Nothing), "migrate nowhere new", &["PROJECT"]),
        (
            project(New("go/api/v1/a.go", TAGGED)),
            "migrate go new",
            &["at: api/v1/a.go:4", "struct tag `json:name`", "go vet"],
        ),
        (
            project(New("go/api/v1/a.go", b"package v1\n\nfunc {\n")),
            "migrate go new",
            &["at: api/v1/a.go:3"],
        ),
        (
            project(FifoInPlaceOf("go/PROJECT")),
            "migrate go new",
            &["not a regular file"],
        ),
        (
            project(HugeInPlaceOf("go/huge.go")),
            "migrate go new",
            &["at: huge.go", "larger than 64 MiB"],
        ),
    ] {
        check(&before, command, words);
    }
}
