//! Whether a user may make a request: decided where it arrives, or where it may take long when it does. What it costs
//! follows from the rules that users write, and one user's rules hold up no other user's requests.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use http::{Response, request};
use kubewright_apiserver::{Admitted, ApiServer, Arrival, Body, UserInfo};

use super::{panicked, too_many_long};
use crate::work::{Client, Workers};

/// The admitted head of a request of this user, or its refusal.
pub(crate) async fn admit(
    api: &ApiServer,
    workers: &Workers,
    client: impl FnOnce() -> Client,
    head: &request::Parts,
    user: &UserInfo,
) -> Result<Admitted, Box<Response<Body>>> {
    let (trial, arrival) = (ApiServer::trial(), Arc::new(Arrival::default()));
    let tried = guarded(head, api.try_admit(&trial, &arrival, head, user.clone())).await?;
    if let Ok(admitted) = tried {
        return admitted;
    }
    let (api, head, user) = (api.clone(), head.clone(), user.clone());
    let work = async move { guarded(&head, api.admit_arrived(&arrival, &head, user)).await? };
    let worked = workers.run(client(), Box::pin(work)).await;
    worked.unwrap_or_else(|full| Err(Box::new(too_many_long(full))))
}

/// What the API server decides; the answer that says so when it panics.
async fn guarded<T>(head: &request::Parts, deciding: impl Future<Output = T>) -> Result<T, Box<Response<Body>>> {
    AssertUnwindSafe(deciding).catch_unwind().await.map_err(|_| {
        let (method, path) = (&head.method, head.uri.path());
        tracing::error!(%method, path, "the API server panicked over the head of a request; this is a defect of kubewright");
        Box::new(panicked())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use kubewright_apiserver::registry::Kinds;
    use kubewright_apiserver::{Config, Parts};
    use serde_json::json;

    use super::*;
    use crate::env::RealEnv;

    /// A user with a role of 20,000 rules waits for its own long requests; another user does not.
    #[tokio::test]
    async fn long_decisions_are_made_elsewhere() {
        let env = Arc::new(RealEnv::new(jiff::Timestamp::now));
        let parts = Parts::new(
            Kinds::new(kubewright_kinds::built_in(Default::default())),
            env,
            Config::default(),
        );
        let write = |store: &str, object: serde_json::Value| {
            let store = format!("{store}.rbac.authorization.k8s.io");
            parts.storage.create(&store, "default/r", object).expect("it is new");
        };
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]});
        write("roles", json!({"rules": vec![rule; 20_000]}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
        let subjects = json!([{"kind": "User", "name": "attacker"}]);
        write("rolebindings", json!({"roleRef": role, "subjects": subjects}));
        let (api, workers) = (ApiServer::with(parts), Workers::new(1));
        let client = |user: &str| Client {
            user: user.to_owned(),
            connection: None,
        };
        // The only thread is busy until the gate opens.
        let (open, gate) = mpsc::channel::<()>();
        let busy = workers.run(client("attacker"), Box::pin(async move { gate.recv().is_err() }));
        let mut busy = Box::pin(busy);
        assert!((&mut busy).now_or_never().is_none());
        let path = "/api/v1/namespaces/default/pods/b";
        let head = http::Request::get(path).body(()).expect("a request").into_parts().0;
        let code = |user: &'static str| {
            let (api, workers, head) = (api.clone(), workers.clone(), head.clone());
            Box::pin(async move {
                let user = UserInfo::authenticated(user, []);
                let refused = admit(&api, &workers, || client(&user.name), &head, &user).await.err();
                refused.map(|refusal| refusal.status().as_u16())
            })
        };
        let mut long = code("attacker");
        assert_eq!((&mut long).now_or_never(), None, "it waits for the thread");
        assert_eq!(code("neighbor").now_or_never(), Some(Some(403)));
        drop(open);
        assert!(busy.await.expect("there is room"));
        assert_eq!(long.await, Some(403));
    }
}
