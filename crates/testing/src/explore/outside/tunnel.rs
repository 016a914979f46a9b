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
use tokio::sync::OnceCell;
use tower::{Service as _, ServiceExt as _};

use super::super::seam::Answer;
use crate::cluster::TestCluster;

type Broken = Box<dyn std::error::Error + Send + Sync>;
type Dialed = std::result::Result<SendRequest<Empty<Bytes>>, Broken>;

/// Connections to the API server's own address, which is opened when the first client wants one: most operators run no
/// commands, and each run has a cluster of its own.
#[derive(Clone)]
pub(super) struct Tunnel {
    cluster: TestCluster,
    address: Arc<OnceCell<Address>>,
    user: String,
    groups: Vec<String>,
}

struct Address {
    host: HeaderValue,
    dial: Box<dyn Fn() -> BoxFuture<'static, Dialed> + Send + Sync>,
}

impl Address {
    async fn of(cluster: &TestCluster) -> std::result::Result<Address, Broken> {
        let file = Kubeconfig::from_yaml(&cluster.kubeconfig().await?)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let (connector, address) = (config.rustls_https_connector()?, config.cluster_url);
        let host = address.authority().map_or("", http::uri::Authority::as_str);
        let host = HeaderValue::try_from(host)?;
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
        Ok(Address {
            host,
            dial: Box::new(dial),
        })
    }
}

impl Tunnel {
    /// Those of a user.
    pub(super) fn of(cluster: TestCluster, user: String, groups: Vec<String>) -> Tunnel {
        Tunnel {
            cluster,
            address: Arc::default(),
            user,
            groups,
        }
    }

    /// Whether a client wants to take its connection over.
    pub(super) fn is_wanted(request: &Request<Incoming>) -> bool {
        request.headers().contains_key(UPGRADE)
    }

    /// Passes a request on, and then what both ends say.
    pub(super) async fn pass(&self, mut request: Request<Incoming>) -> std::result::Result<Answer, Broken> {
        let address = self.address.get_or_try_init(|| Address::of(&self.cluster)).await?;
        let client = hyper::upgrade::on(&mut request);
        let (mut parts, _) = request.into_parts();
        parts.headers.remove(AUTHORIZATION);
        let of_others: Vec<_> = parts
            .headers
            .keys()
            .filter(|name| name.as_str().starts_with("impersonate-"))
            .cloned()
            .collect();
        of_others.iter().for_each(|name| drop(parts.headers.remove(name)));
        parts.headers.insert(HOST, address.host.clone());
        parts
            .headers
            .insert("impersonate-user", HeaderValue::try_from(&self.user)?);
        for group in &self.groups {
            parts.headers.append("impersonate-group", HeaderValue::try_from(group)?);
        }
        let mut sender = (address.dial)().await?;
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
