//! A server behind webhooks and conversions that answers what no honest one would. The path says what, and how much of
//! it: `/labels/20000`.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::values::{fields, items, nested};

static ANSWERING: LazyLock<Answering> = LazyLock::new(start);

struct Answering {
    url: String,
    ca: String,
}

/// The `clientConfig` of a webhook that answers so.
pub(crate) fn client_config(path: &str) -> String {
    let Answering { url, ca } = &*ANSWERING;
    format!(r#"{{"url":"{url}/{path}","caBundle":"{ca}"}}"#)
}

/// Starts it on a thread of its own: it outlives the test that needed it first.
fn start() -> Answering {
    let names = vec!["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = builder.unwrap().with_no_client_auth();
    let tls = tls.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let url = format!("https://{}", socket.local_addr().unwrap());
    let ca = STANDARD.encode(made.cert.pem());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(serve(socket, Arc::new(tls)));
    });
    Answering { url, ca }
}

async fn serve(socket: std::net::TcpListener, tls: Arc<rustls::ServerConfig>) {
    let socket = TcpListener::from_std(socket).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    while let Ok((stream, _)) = socket.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // A caller that gives up is one of those that are tried.
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        });
    }
}

async fn answer(request: http::Request<Incoming>) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let body = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (what, count) = path.split_once('/').unwrap_or((&path, "0"));
    let count = count.parse().unwrap_or(0);
    let asked = &review["request"];
    let mut response = json!({"uid": asked["uid"]});
    if review["kind"] == "ConversionReview" {
        response["result"] = json!({"status": "Success"});
        response["convertedObjects"] = converted(what, count, asked);
    } else {
        response["allowed"] = json!(true);
        admitted(what, count, &mut response).await;
    }
    let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    let answer = http::Response::builder()
        .header("Content-Type", "application/json")
        .body(answer.to_string().into());
    Ok(answer.unwrap())
}

/// Fills the answer to a review of admission.
async fn admitted(what: &str, count: usize, response: &mut Value) {
    let patch = match what {
        // Milliseconds, not scaled: a debug build is no faster at waiting.
        "late" => return tokio::time::sleep(Duration::from_millis(count as u64)).await,
        "warnings" => {
            response["warnings"] = (0..count).map(|index| format!("{index}{}", "w".repeat(200))).collect();
            return;
        }
        "annotations" => {
            response["auditAnnotations"] = read(&fields(count, |_| "\"a\"".to_owned()));
            return;
        }
        "labels" => format!(
            r#"[{{"op":"add","path":"/metadata/labels","value":{}}}]"#,
            fields(count, |_| "\"v\"".to_owned())
        ),
        "managers" => {
            // Without a space: an answer has 3 MiB at most.
            let managers = items(count, |index| {
                let entry = r#""operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1""#;
                format!(r#"{{"manager":"m{index}",{entry},"fieldsV1":{{"f:k{index}":{{}}}}}}"#)
            });
            format!(r#"[{{"op":"add","path":"/metadata/managedFields","value":{managers}}}]"#)
        }
        "deep" => format!(
            r#"[{{"op":"add","path":"/metadata/labels","value":{}}}]"#,
            nested(count)
        ),
        "copies" => {
            let copy = |index| format!(r#"{{"op":"copy","from":"/metadata","path":"/metadata/m{index}"}}"#);
            format!("[{}]", (0..count).map(copy).collect::<Vec<_>>().join(","))
        }
        other => panic!("there is no answer {other:?}"),
    };
    response["patchType"] = json!("JSONPatch");
    response["patch"] = json!(STANDARD.encode(patch));
}

/// The objects of a review of conversion.
fn converted(what: &str, count: usize, asked: &Value) -> Value {
    let mut objects = asked["objects"].clone();
    for object in objects.as_array_mut().into_iter().flatten() {
        object["apiVersion"] = asked["desiredAPIVersion"].clone();
        match what {
            "wider" => object["spec"] = read(&fields(count, |_| "1".to_owned())),
            "deeper" => object["spec"] = read(&nested(count)),
            "labelled" => object["metadata"]["labels"] = read(&fields(count, |_| "\"v\"".to_owned())),
            _ => {}
        }
    }
    if what == "more" {
        let first = objects[0].clone();
        objects.as_array_mut().unwrap().resize(count, first);
    }
    objects
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}
