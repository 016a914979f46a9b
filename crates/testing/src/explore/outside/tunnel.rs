//! `kubectl exec` and its like: connections that a client takes over. They are passed on to an address of the API server's
//! own, because the seam has requests and answers, and these have neither.
//!
//! Invariants: what passes does so as the operator's user; a connection ends when either end does. Not here: faults, which
//! strike at writes.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HOST, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kubewright::kube::client::ConfigExt as _;
use kubewright::kube::config::{KubeConfigOptions, Kubeconfig};
use kubewright::kube::{self, Config};
use tower::{Service as _, ServiceExt as _};

use super::super::seam::Answer;
use crate::cluster::TestCluster;
use crate::error::{Error, Result};

type Broken = Box<dyn std::error::Error + Send + Sync>;
type Dialed = std::result::Result<SendRequest<Empty<Bytes>>, Broken>;

/// The way of such connections to the API server.
#[derive(Clone)]
pub(super) struct Tunnel {
    dial: Arc<dyn Fn() -> BoxFuture<'static, Dialed> + Send + Sync>,
    host: HeaderValue,
    user: String,
    groups: Vec<String>,
}

impl Tunnel {
    /// Opens the address of the cluster, for a user.
    pub(super) async fn of(cluster: &TestCluster, user: String, groups: Vec<String>) -> Result<Tunnel> {
        let wrong = |why: &dyn std::fmt::Display| {
            let what = format!("cannot open an address of the cluster: {why}");
            Error::Runtime(kubewright::Error::Configuration(what))
        };
        let file = Kubeconfig::from_yaml(&cluster.kubeconfig().await?).map_err(|why| wrong(&why))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let config = config.map_err(|why| wrong(&why))?;
        let connector = config.rustls_https_connector().map_err(|why| wrong(&why))?;
        let address = config.cluster_url;
        let host = address.authority().map_or("", http::uri::Authority::as_str);
        let host = HeaderValue::try_from(host).map_err(|why| wrong(&why))?;
        let dial = move || -> BoxFuture<'static, Dialed> {
            let (mut connector, address) = (connector.clone(), address.clone());
            Box::pin(async move {
                let stream = connector.ready().await?.call(address).await?;
                let (sender, connection) = http1::handshake(stream).await?;
                // It ends with the client's connection.
                tokio::spawn(connection.with_upgrades());
                Ok(sender)
            })
        };
        Ok(Tunnel {
            dial: Arc::new(dial),
            host,
            user,
            groups,
        })
    }

    /// Whether a client wants to take its connection over.
    pub(super) fn is_wanted(request: &Request<Incoming>) -> bool {
        request.headers().contains_key(UPGRADE)
    }

    /// Passes a request on, and then what both ends say.
    pub(super) async fn pass(&self, mut request: Request<Incoming>) -> std::result::Result<Answer, Broken> {
        let client = hyper::upgrade::on(&mut request);
        let (mut parts, _) = request.into_parts();
        parts.headers.remove(AUTHORIZATION);
        parts.headers.insert(HOST, self.host.clone());
        parts
            .headers
            .insert("impersonate-user", HeaderValue::try_from(&self.user)?);
        parts.headers.remove("impersonate-group");
        for group in &self.groups {
            parts.headers.append("impersonate-group", HeaderValue::try_from(group)?);
        }
        let mut sender = (self.dial)().await?;
        let mut answer = sender.send_request(Request::from_parts(parts, Empty::new())).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer.map(|body| body.map_err(kube::Error::HyperError).boxed_unsync()));
        }
        let server = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            if let (Ok(client), Ok(server)) = futures::join!(client, server) {
                // Whichever end breaks it, the other one sees it.
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
            }
        });
        let (parts, _) = answer.into_parts();
        let nothing = Empty::new().map_err(|never| match never {});
        Ok(Response::from_parts(parts, nothing.boxed_unsync()))
    }
}
