//! A plain `kube::Api` that is held to the rules of a client: for the verbs that the client does not offer.

use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource};
use tokio::time::timeout;

use super::{Client, late};
use crate::error::{Error, Result};
use crate::namespace::InNamespace;

/// The scope of a kind as [`Client::api`] needs it: in a namespace, or in none.
pub trait ApiScope<K> {
    /// The API of the kind in this namespace, if it has namespaces.
    fn api(client: kube::Client, namespace: Option<&str>) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> ApiScope<K> for NamespaceResourceScope {
    fn api(client: kube::Client, namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }
}

impl<K: Resource<DynamicType = (), Scope = ClusterResourceScope>> ApiScope<K> for ClusterResourceScope {
    fn api(client: kube::Client, _: Option<&str>) -> Api<K> {
        Api::all(client)
    }
}

impl Client {
    /// The API of a kind, for what this client does not offer, such as logs: in this namespace, or in all, or of a kind
    /// without namespaces in none. Its requests are held to the rules of this client: writes are refused when this
    /// replica does not lead any more ([`Error::NotLeading`]), and for a dry run nothing is stored; an answer must begin
    /// within the request's deadline. They are not retried, and cached reads do not wait for its writes.
    ///
    /// Make one where it is needed, and keep none beyond a reconcile.
    pub fn api<K: Resource>(&self, namespace: impl InNamespace) -> Api<K>
    where
        K::Scope: ApiScope<K>,
    {
        let namespace = namespace.namespace();
        <K::Scope as ApiScope<K>>::api(self.guarded_kube(), namespace)
    }

    fn guarded_kube(&self) -> kube::Client {
        let client = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let client = client.clone();
            async move { client.guarded(request).await }
        });
        kube::Client::new(service, self.kube().default_namespace())
    }

    async fn guarded(
        &self,
        mut request: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>> {
        let reads = request.method() == http::Method::GET;
        if !reads {
            let attempt = format!("{} {}", request.method(), request.uri().path());
            if self.only_reads {
                return Err(Error::terminal(format!(
                    "{attempt}: it was not sent, because the mapping of a source only reads"
                )));
            }
            if let Some(refused) = self.refuse(reads, &attempt) {
                return Err(refused);
            }
            if self.dry_run {
                super::add_parameter(&mut request, "dryRun=All");
            }
        }
        let writing = (!reads).then(|| self.fence.writing());
        let sent = timeout(self.request_deadline, self.kube().send(request)).await;
        if let Some(writing) = writing {
            writing.ended();
        }
        Ok(sent.unwrap_or_else(|_| Err(late(self.request_deadline)))?)
    }
}
