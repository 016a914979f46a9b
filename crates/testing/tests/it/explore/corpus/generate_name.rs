//! A child gets a name from the API server, which the operator then notes in the status.

use k8s_openapi::api::core::v1::Secret;
use kubewright::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{self, VERSION, key};
use super::{Case, Ends, Step};

/// Of many operators.
pub(super) const CASE: Case = Case {
    name: "generate-name",
    bug: "There are two Secrets if the operator dies before it noted the name of the first.",
    undisturbed: Ends::Same,
    operator,
    steps,
    always: &[],
    // The test takes the generated end of a name away.
    expected: &[
        ("Secret/db-password", "/data/password", "null"),
        ("Account/db", "/status/secret", "\"db-password\""),
    ],
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Account",
    namespaced,
    status = "AccountStatus"
)]
#[kube(crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi"))]
struct AccountSpec {
    user: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct AccountStatus {
    /// The name of the Secret with the password.
    secret: String,
}

fn operator(fixed: bool) -> Operator {
    let controller = Controller::of(Accounts { fixed }).owns::<Secret>();
    Operator::new("accounts").crd::<Account>().controller(controller)
}

fn steps() -> Vec<Step> {
    let account = json!({ "apiVersion": VERSION, "kind": "Account", "metadata": { "name": "db", "namespace": "default" },
        "spec": { "user": "app" } });
    vec![Step::apply("create the account", account)]
}

struct Accounts {
    fixed: bool,
}

impl Reconciler for Accounts {
    type Object = Account;

    async fn reconcile(&self, account: Arc<Account>, ctx: Context) -> Result<Action> {
        let (client, (namespace, name)) = (ctx.client(), key(&*account));
        if kit::is_going(&*account) {
            return Ok(Action::await_change());
        }
        let data = json!({ "data": { "password": "c2VjcmV0" } });
        // The mend: its name follows from that of the account.
        let mut wanted: Secret = kit::child(&*account, &format!("{name}-password"), data);
        let noted = account.status.clone().unwrap_or_default().secret;
        if self.fixed {
            kit::ensure(client, wanted.clone()).await?;
        } else {
            if !noted.is_empty() && client.get::<Secret>(namespace, &noted).await?.is_some() {
                return Ok(Action::await_change());
            }
            wanted.metadata.generate_name = wanted.metadata.name.take().map(|name| name + "-");
            wanted.metadata.name = client.create(&wanted).await?.metadata.name.clone();
        }
        let secret = wanted.metadata.name.unwrap_or_default();
        if noted != secret {
            let mut account = (*account).clone();
            account.status = Some(AccountStatus { secret });
            client.update_status(&account).await?;
        }
        Ok(Action::await_change())
    }
}
