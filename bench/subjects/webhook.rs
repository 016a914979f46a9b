//! kubewright as a webhook server: one defaulter of ConfigMaps, over HTTPS, as an operator serves it.
//!
//! Arguments: the folder of `tls.crt` and `tls.key`, and the port on loopback. It runs until it is stopped. The client
//! of its manager is never used.

#![allow(clippy::print_stderr, reason = "this is a program, which says why it ends")]

use std::process::ExitCode;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::{self, ResourceExt as _};
use kubewright::webhook::WebhookServer;
use kubewright::{AdmissionRequest, Defaulter, Denied, Operator, Webhook};

/// Writes a label where there is none.
struct Team;

impl Defaulter for Team {
    type Object = ConfigMap;

    async fn default(&self, object: &mut ConfigMap, _: &AdmissionRequest) -> Result<(), Denied> {
        let labels = object.labels_mut();
        labels.entry("team".to_owned()).or_insert_with(|| "nobody".to_owned());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [folder, port] = <[String; 2]>::try_from(given)
        .map_err(|given| format!("two arguments are wanted (folder, port), not {given:?}"))?;
    let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
    let client = kube::Client::try_from(nowhere).map_err(|why| format!("the client: {why}"))?;
    let server = WebhookServer::new()
        .address(format!("127.0.0.1:{port}"))
        .certificate_dir(folder);
    let operator = Operator::new("bench")
        .webhook(Webhook::of::<ConfigMap>().defaulter(Team))
        .webhook_server(server);
    let manager = operator.manager(client).build().map_err(|why| why.to_string())?;
    manager
        .run(std::future::pending::<()>())
        .await
        .map_err(|why| why.to_string())
}
