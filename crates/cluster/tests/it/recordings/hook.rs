//! The webhook that sequences call: it answers as the recording says and keeps the requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An HTTPS server on loopback; it ends with its task when it is dropped.
pub(crate) struct Hook {
    /// `https://127.0.0.1:port`.
    pub(crate) url: String,
    /// The certificate to trust, PEM in base64.
    pub(crate) ca: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hook {
    /// `rules`: path → how it answers.
    pub(crate) async fn start(rules: Value) -> Hook {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(vec![made.cert.der().clone()], key)
            })
            .expect("a TLS server");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("https://{}", socket.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (rules, log) = (Arc::new(rules), seen.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                let (acceptor, rules, log) = (acceptor.clone(), rules.clone(), log.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| answer(request, rules.clone(), log.clone()));
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A caller that gave up in the middle is part of the recording.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let ca = base64::engine::general_purpose::STANDARD.encode(made.cert.pem());
        Hook { url, ca, seen, task }
    }

    /// The requests to a path since the last call.
    pub(crate) fn take(&self, path: &str) -> Vec<Value> {
        let mut seen = self.seen.lock().expect("no test panics with it");
        let (taken, left) = seen.drain(..).partition(|(at, _)| at == path);
        *seen = left;
        let taken: Vec<(String, Value)> = taken;
        taken.into_iter().map(|(_, review)| review).collect()
    }
}

async fn answer(
    request: http::Request<Incoming>,
    rules: Arc<Value>,
    log: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    log.lock()
        .expect("no test panics with it")
        .push((path.clone(), review.clone()));
    let rule = &rules[path.as_str()];
    if let Some(delay) = rule["delay"].as_f64() {
        // The recording is about a slow webhook.
        tokio::time::sleep(Duration::from_secs_f64(delay)).await;
    }
    let mut response = json!({ "uid": review["request"]["uid"] });
    if review["kind"] == "ConversionReview" {
        convert(&mut response, &review["request"], rule);
    } else {
        response["allowed"] = json!(true);
        for (key, value) in rule["response"].as_object().into_iter().flatten() {
            response[key] = value.clone();
        }
        if !rule["patch"].is_null() {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(rule["patch"].to_string()));
        }
    }
    let text = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).to_string();
    let code = rule["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .unwrap_or(200);
    let response = http::Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(text)))
        .expect("a recorded status");
    Ok(response)
}

/// Renames a field of `spec` between two versions.
fn convert(response: &mut Value, request: &Value, rule: &Value) {
    let result = if rule["result"].is_null() {
        json!({"status": "Success"})
    } else {
        rule["result"].clone()
    };
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let text = |index: usize| rule["rename"][index].as_str().unwrap_or_default().to_owned();
    let (version, old, new) = (text(0), text(1), text(2));
    let (from, to) = if wanted.ends_with(&format!("/{version}")) {
        (old, new)
    } else {
        (new, old)
    };
    let mut objects = request["objects"].clone();
    for object in objects.as_array_mut().into_iter().flatten() {
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(value) = spec.remove(&from)
        {
            spec.insert(to.clone(), value);
        }
        object["apiVersion"] = json!(wanted);
    }
    if result["status"] == "Success" {
        response["convertedObjects"] = objects;
    }
    response["result"] = result;
}
