//! Certificates as OpenSSL makes and reads them: requests that are approved and signed, and clients that come with a
//! certificate. It is another reader than ours, as an approver may have one.
//!
//! Machines without `openssl` skip it; without `go` they have one approver less. The same rules are in tables of
//! `kubewright-model` (requests) and `kubewright-server` (chains, handshakes), which need nothing.

#![allow(clippy::print_stderr, reason = "what did not run is told aloud")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kubewright_cluster::{Cluster, Pki};
use serde_json::{Value, json};

use crate::common::listening;
use crate::common::scenes::{check, create, until};

/// A folder in which OpenSSL works.
struct OpenSsl(tempfile::TempDir);

impl OpenSsl {
    /// None where there is no such program.
    fn new() -> Option<OpenSsl> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("skipped: this machine has no `openssl`");
            return None;
        }
        let made = OpenSsl(tempfile::tempdir().expect("a folder"));
        made.write("plain.cnf", "[req]\ndistinguished_name = dn\n[dn]\n");
        // A client that sends what is signed with SHA-1, too.
        made.write(
            "client.cnf",
            "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nCipherString = DEFAULT@SECLEVEL=0\n",
        );
        Some(made)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file")
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    /// What it prints for these words, which are separated by one space, with `~` for a space within a word.
    fn run(&self, arguments: &str) -> String {
        let arguments = arguments.split(' ').map(|word| word.replace('~', " "));
        let done = Command::new("openssl")
            .current_dir(self.0.path())
            .args(arguments)
            .output();
        let done = done.expect("openssl runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("UTF-8")
    }

    /// The subject in a request or a certificate, in the order in which it stands.
    fn subject(&self, kind: &str, file: &str) -> String {
        let said = self.run(&format!("{kind} -in {file} -noout -subject -nameopt oneline,-space_eq"));
        said.trim().trim_start_matches("subject=").to_owned()
    }
}

/// The subjects that an approver reads in requests that is written as most of them are: in Go, with `pem.Decode`. One line
/// for each, the common name and the organizations. None where there is no Go.
fn read_in_go(folder: &Path, requests: &[String]) -> Option<Vec<String>> {
    const APPROVER: &str = r#"package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

func main() {
	for _, name := range os.Args[1:] {
		data, _ := os.ReadFile(name)
		block, _ := pem.Decode(data)
		if block == nil {
			fmt.Println("none")
			continue
		}
		request, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(request.Subject.CommonName, strings.Join(request.Subject.Organization, ","))
	}
}
"#;
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("without the second approver: this machine has no `go`");
        return None;
    }
    std::fs::write(folder.join("approver.go"), APPROVER).expect("a file");
    let names = (0..requests.len()).map(|index| format!("request-{index}.pem"));
    let names: Vec<String> = names.collect();
    for (name, request) in names.iter().zip(requests) {
        std::fs::write(folder.join(name), request).expect("a file");
    }
    let mut command = Command::new("go");
    command.args(["run", "approver.go"]).args(names).current_dir(folder);
    command
        .env("GO111MODULE", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "");
    let done = command.output().expect("go runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8(done.stdout).expect("UTF-8");
    Some(said.lines().map(|line| line.trim_end().to_owned()).collect())
}

fn wanted(name: &str, request: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "request": BASE64_STANDARD.encode(request), "usages": ["client auth", "digital signature"],
            "signerName": "kubernetes.io/kube-apiserver-client",
        },
    })
}

/// The certificate (PEM) that an approved request gets, or why it gets none.
async fn signed(client: &Client, name: &str, request: &str) -> Result<String, String> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    create(&requests, wanted(name, request)).await;
    let approval = json!({ "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "Test" }] } });
    let approved = requests
        .patch_approval(name, &PatchParams::default(), &Patch::Merge(approval))
        .await;
    approved.expect("it is approved");
    let failed = |request: &CertificateSigningRequest| {
        let conditions = request
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition.type_ == "Failed")
            .and_then(|failed| failed.message)
    };
    let certificate = |request: &CertificateSigningRequest| {
        let certificate = request.status.as_ref()?.certificate.as_ref()?;
        Some(String::from_utf8(certificate.0.clone()).expect("PEM"))
    };
    let is_done = |request: Option<&CertificateSigningRequest>| {
        request.is_some_and(|request| certificate(request).is_some() || failed(request).is_some())
    };
    let request = until(&requests, name, is_done).await.expect("a request");
    certificate(&request).ok_or_else(|| failed(&request).unwrap_or_default())
}

/// Who a client is that comes with a certificate: its name and its groups, or the status without a user.
async fn whoami(address: SocketAddr, folder: &Path, certificate: &str, key: &str, version: &str) -> String {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }).to_string();
    let mut request =
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: localhost\r\n".to_owned();
    let length = body.len();
    let _ = write!(
        request,
        "Content-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-quiet",
        "-connect",
        &address.to_string(),
        version,
        "-cert",
        certificate,
        "-key",
        key,
    ]);
    command.current_dir(folder).env("OPENSSL_CONF", "client.cnf");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let asked = tokio::task::spawn_blocking(move || {
        let mut process = command.spawn().expect("openssl runs");
        let mut input = process.stdin.take().expect("its input");
        input.write_all(request.as_bytes()).expect("it is taken");
        // The input stays open until the server closes, as for a person at a terminal.
        let done = process.wait_with_output();
        drop(input);
        done.expect("it ends")
    });
    let done = asked.await.expect("no panic");
    let answer = String::from_utf8_lossy(&done.stdout);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(&done.stderr)));
    let code = head.split(' ').nth(1).unwrap_or_default();
    if code != "201" {
        return code.to_owned();
    }
    // The body may be sent in pieces.
    let body = &body[body.find('{').expect("JSON")..=body.rfind('}').expect("JSON")];
    let review: Value = serde_json::from_str(body).expect("JSON");
    let user = &review["status"]["userInfo"];
    let groups: Vec<&str> = user["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    format!(
        "{} {} {}",
        user["username"].as_str().unwrap_or_default(),
        user["uid"].as_str().unwrap_or_default(),
        groups.join(",")
    )
}

/// What stands in a request stands in its certificate, and it is who the bearer is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_of_the_request() {
    let Some(openssl) = OpenSsl::new() else {
        return;
    };
    openssl.write(
        "asking.cnf",
        "[req]\ndistinguished_name = dn\nreq_extensions = asked\n[dn]\n[asked]\n\
         subjectAltName = otherName:1.2.3.4;UTF8:x,RID:1.2.3,DNS:a.b,IP:10.0.0.1,email:a@b,URI:a:b\n\
         basicConstraints = critical,CA:TRUE\nkeyUsage = keyCertSign\n1.2.3.4.5 = critical,ASN1:UTF8String:x\n",
    );
    let (cluster, listening) = listening(Cluster::builder()).await;
    let client = cluster.client();
    openssl.run("genrsa -out rsa.key 2048");
    openssl.run("ecparam -name prime256v1 -genkey -noout -out ec.key");
    openssl.run("genpkey -algorithm ed25519 -out ed.key");
    let rows = [
        (
            "rsa",
            "plain",
            "/O=dev/O=ops/CN=jane",
            "jane  dev,ops,system:authenticated",
        ),
        (
            "ec",
            "plain",
            "/CN=first/O=ops/OU=a/OU=b/O=dev/CN=jane",
            "jane  ops,dev,system:authenticated",
        ),
        (
            "ed",
            "asking",
            "/O=a+OU=x/CN=jane+O=b",
            "jane  a,b,system:authenticated",
        ),
    ];
    let mut asked = Vec::new();
    for (index, (key, config, subject, who)) in rows.into_iter().enumerate() {
        openssl.run(&format!(
            "req -new -key {key}.key -config {config}.cnf -multivalue-rdn -subj {subject} -out request"
        ));
        asked.push(openssl.read("request"));
        let made = signed(&client, &format!("row-{index}"), &openssl.read("request")).await;
        openssl.write("certificate", &made.expect("a certificate"));
        assert_eq!(
            openssl.subject("x509", "certificate"),
            openssl.subject("req", "request")
        );
        let text = openssl.run("x509 -in certificate -noout -text");
        assert!(text.contains("Version: 3") && text.contains("CA:FALSE"), "{text}");
        assert!(
            !text.contains("CA:TRUE") && !text.contains("Certificate Sign") && !text.contains("1.2.3.4"),
            "{text}"
        );
        let names = "DNS:a.b, email:a@b, IP Address:10.0.0.1, URI:a:b\n";
        assert_eq!(text.contains(names), config == "asking", "{text}");
        let (folder, key) = (openssl.0.path(), format!("{key}.key"));
        for version in ["-tls1_2", "-tls1_3"] {
            assert_eq!(
                whoami(listening.address, folder, "certificate", &key, version).await,
                who,
                "{subject}"
            );
        }
    }
    cluster.stop().await;
    // Who approved it in Go approved this user and these groups.
    if let Some(read) = read_in_go(openssl.0.path(), &asked) {
        let read = read
            .iter()
            .map(|line| format!("{},system:authenticated", line.replace(' ', "  ")));
        assert_eq!(read.collect::<Vec<_>>(), rows.map(|(.., who)| who));
    }
}

/// Requests that OpenSSL and others take for another than this server would are not stored.
#[tokio::test]
async fn a_request_that_is_two_is_refused() {
    let Some(openssl) = OpenSsl::new() else {
        return;
    };
    openssl.run("ecparam -name prime256v1 -genkey -noout -out key");
    openssl.run("req -new -key key -config plain.cnf -subj /O=system:masters/CN=evil -out evil");
    openssl.run("req -new -key key -config plain.cnf -subj /CN=jane -out jane");
    let (evil, jane) = (openssl.read("evil"), openssl.read("jane"));
    let both = [
        format!("x{evil}{jane}"),
        format!("{evil}{jane}"),
        format!("{jane}{evil}"),
        format!("Certificate Request:\n{jane}"),
        format!("{jane}x{evil}"),
    ];
    if let Some(read) = read_in_go(openssl.0.path(), &both) {
        assert_eq!(read, ["jane", "evil system:masters", "jane", "jane", "jane"]);
    }
    check(async |client| {
        let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
        let refused = async |text: &str| {
            let request = serde_json::from_value(wanted("two", text)).expect("a request");
            let error = requests.create(&PostParams::default(), &request).await.expect_err(text);
            match error {
                kube::Error::Api(status) => status.code,
                other => panic!("{other}"),
            }
        };
        for text in &both {
            openssl.write("both", text);
            // An approver reads one of them.
            let read = openssl.subject("req", "both");
            assert!(read.contains("CN=jane") || read.contains("CN=evil"), "{read}");
            assert!([403, 422].contains(&refused(text).await), "{text}");
        }
        assert_eq!(refused(&evil).await, 403);
        signed(&client, "one", &jane).await.expect("a certificate");
        // A request of another's key.
        openssl.run("ecparam -name prime256v1 -genkey -noout -out other.key");
        openssl.run("req -new -key other.key -config plain.cnf -subj /CN=jane -outform DER -out theirs");
        openssl.run("req -in jane -outform DER -out ours");
        let der = |name: &str| std::fs::read(openssl.path(name)).expect("a file");
        let (ours, theirs) = (der("ours"), der("theirs"));
        let forged: Vec<u8> = [&ours[..ours.len() - 20], &theirs[theirs.len() - 20..]].concat();
        let text = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            BASE64_STANDARD.encode(forged)
        );
        let failed = signed(&client, "forged", &text)
            .await
            .expect_err("its signature does not fit");
        assert!(failed.contains("signature"), "{failed}");
    })
    .await;
}

/// Clients of a given authority (`--client-ca-file`), with certificates as tutorials make them: of version 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_certificates_of_openssl() {
    let Some(openssl) = OpenSsl::new() else {
        return;
    };
    for authority in ["ca", "other"] {
        openssl.run(&format!(
            "req -x509 -newkey rsa:2048 -nodes -keyout {authority}.key -config plain.cnf -subj /CN=ca -days 2 -out {authority}.crt"
        ));
    }
    openssl.write("client.ext", "extendedKeyUsage = clientAuth\n");
    openssl.write("server.ext", "extendedKeyUsage = serverAuth\n");
    openssl.write("critical.ext", "1.2.3.4 = critical,ASN1:UTF8String:x\n");
    openssl.run("genrsa -out rsa.key 2048");
    openssl.run("ecparam -name secp384r1 -genkey -noout -out ec.key");
    openssl.run("genpkey -algorithm ed25519 -out ed.key");
    let (certificates, key) = Pki::self_signed([127, 0, 0, 1].into()).expect("a certificate");
    let pki = Pki::serving(&certificates, &key).expect("they belong together");
    let pki = pki.clients(&openssl.read("ca.crt")).expect("an authority");
    let cluster = Cluster::builder().pki(pki).start().await.expect("a cluster starts");
    let address = cluster.serve(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let admin = "admin  system:masters,system:authenticated";
    let rows = [
        ("rsa", "ca", "-days 2", admin),
        ("ec", "ca", "-days 2", admin),
        ("ed", "ca", "-days 2", admin),
        ("rsa", "ca", "-days 2 -extfile client.ext", admin),
        ("rsa", "ca", "-days 2 -extfile server.ext", "401"),
        ("rsa", "ca", "-days 2 -extfile critical.ext", "401"),
        ("rsa", "ca", "-days 2 -sha1", "401"),
        ("ec", "ca", "-days -1", "401"),
        ("rsa", "other", "-days 2", "401"),
        ("ec", "other", "-days 2", "401"),
        ("ed", "other", "-days 2 -extfile client.ext", "401"),
    ];
    for (key, authority, how, who) in rows {
        openssl.run(&format!(
            "req -new -key {key}.key -config plain.cnf -subj /O=system:masters/CN=admin -out request"
        ));
        openssl.run(&format!(
            "x509 -req -in request -CA {authority}.crt -CAkey {authority}.key -CAcreateserial {how} -out certificate"
        ));
        for version in ["-tls1_2", "-tls1_3"] {
            let said = whoami(address, openssl.0.path(), "certificate", &format!("{key}.key"), version).await;
            assert_eq!(said, who, "{key} {authority} {how} {version}");
        }
    }
    cluster.stop().await;
}
