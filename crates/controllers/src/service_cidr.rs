//! ServiceCIDRs are ready, and stay while Services have addresses of them (Kubernetes' service-cidr-controller).
//!
//! Invariants: one that holds the only range of an address goes after that address; an address that the API server gave
//! just before it knew of the deletion is seen, because nothing goes within ten seconds.
//!
//! Not here: giving addresses (the API server does, from its own range alone).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewright::{Action, Context, Controller, Reconciler, Result, Watch, conditions};
use kubewright_objects::api::networking::v1::{IPAddress, ServiceCIDR};

use kubewright_objects::meta;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const READY: &str = "Ready";
/// Who gives the addresses that hold a ServiceCIDR (`ipallocator.ControllerName`).
const ALLOCATOR: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// How long one is known to be going before it goes (`deletionGracePeriod`).
const GRACE: Duration = Duration::from_secs(10);

/// Looks after ServiceCIDRs.
pub(crate) struct ServiceCidrs;

/// The controller of ServiceCIDRs.
pub(crate) fn controller() -> Controller {
    Controller::of(ServiceCidrs)
        .named("service-cidr-controller")
        .source(Watch::<ServiceCIDR>::new().all_where(is_going))
        .source(Watch::<IPAddress>::new().all_where(is_going))
}

/// Whether one waits for an address to go or for a larger range.
fn is_going(cidr: &ServiceCIDR) -> bool {
    meta::is_deleting(&cidr.metadata)
}

impl Reconciler for ServiceCidrs {
    type Object = ServiceCIDR;

    async fn reconcile(&self, cidr: Arc<ServiceCIDR>, ctx: Context) -> Result<Action> {
        let finalizers = cidr.metadata.finalizers.iter().flatten();
        let is_held = finalizers.clone().any(|held| held == FINALIZER);
        let Some(deleted) = &cidr.metadata.deletion_timestamp else {
            if !is_held {
                let mut held = (*cidr).clone();
                held.metadata
                    .finalizers
                    .get_or_insert_default()
                    .push(FINALIZER.to_owned());
                ctx.client().update(&held).await?;
                // The change of its own leads here again.
                return Ok(Action::await_change());
            }
            return say(&cidr, ("True", "", "Kubernetes Service CIDR is ready"), &ctx).await;
        };
        let all = ctx.client().list::<ServiceCIDR>(None).await?;
        let addresses = ctx.client().list::<IPAddress>(None).await?;
        if !may_go(&cidr, &all, &addresses) {
            let why = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            return say(&cidr, ("False", "Terminating", why), &ctx).await;
        }
        let since = Duration::try_from(ctx.now().duration_since(deleted.0)).unwrap_or_default();
        let left = GRACE.saturating_sub(since);
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        if is_held {
            let mut released = (*cidr).clone();
            released.metadata.finalizers = Some(finalizers.filter(|held| *held != FINALIZER).cloned().collect());
            ctx.client().update(&released).await?;
        }
        Ok(Action::await_change())
    }
}

/// Writes the condition, when it is another one (`updateConditionIfNeeded`).
async fn say(cidr: &ServiceCIDR, (status, reason, message): (&str, &str, &str), ctx: &Context) -> Result<Action> {
    let mut next = cidr.clone();
    let all = next.status.get_or_insert_default().conditions.get_or_insert_default();
    let is_said = conditions::find(all, READY)
        .is_some_and(|there| there.status == status && there.reason == reason && there.message == message);
    if !is_said {
        let said = Condition {
            type_: READY.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: meta::time(ctx.now()),
            observed_generation: None,
        };
        conditions::remove(all, READY);
        all.push(said);
        ctx.client().update_status(&next).await?;
    }
    Ok(Action::await_change())
}

fn blocks(cidr: &ServiceCIDR) -> impl Iterator<Item = IpNet> {
    let all = cidr.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    all.filter_map(|text| text.parse().ok())
}

/// Whether no address of a Service is left without a range when this one goes (`canDeleteCIDR`).
fn may_go(cidr: &ServiceCIDR, all: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>]) -> bool {
    let others = || all.iter().filter(|other| other.metadata.name != cidr.metadata.name);
    let mut own = blocks(cidr);
    if own.all(|block| others().any(|other| blocks(other).any(|outer| outer.contains(&block)))) {
        return true;
    }
    let given = addresses
        .iter()
        .filter(|address| meta::labels(&address.metadata).get(ALLOCATOR.0).map(String::as_str) == Some(ALLOCATOR.1));
    let mut given = given.filter_map(|address| meta::name(&address.metadata).parse::<IpAddr>().ok());
    let holds = |cidr: &ServiceCIDR, address: IpAddr| blocks(cidr).any(|block| block.contains(&address));
    !given.any(|address| holds(cidr, address) && !others().any(|other| holds(other, address)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_holds_a_range() {
        let check = |own: &[&str], others: &[&[&str]], addresses: &[&str], expected: bool| {
            let cidr = |name: &str, blocks: &[&str]| -> Arc<ServiceCIDR> {
                let cidr = json!({ "metadata": { "name": name }, "spec": { "cidrs": blocks } });
                Arc::new(serde_json::from_value(cidr).expect("a ServiceCIDR"))
            };
            let mut all = vec![cidr("own", own)];
            all.extend(
                others
                    .iter()
                    .enumerate()
                    .map(|(at, blocks)| cidr(&at.to_string(), blocks)),
            );
            let address = |ip: &&str| -> Arc<IPAddress> {
                let (ip, by) = ip.split_once(' ').unwrap_or((ip, ALLOCATOR.1));
                let address = json!({ "metadata": { "name": ip, "labels": { (ALLOCATOR.0): by } } });
                Arc::new(serde_json::from_value(address).expect("an IPAddress"))
            };
            let addresses: Vec<_> = addresses.iter().map(address).collect();
            assert_eq!(may_go(&all[0], &all, &addresses), expected, "{own:?} {others:?}");
        };
        check(&["10.1.0.0/24"], &[], &[], true);
        check(&["10.1.0.0/24"], &[], &["10.1.0.7"], false);
        check(&["10.1.0.0/24"], &[], &["10.1.1.7", "fd00::7", "10.1.0.7 hand"], true);
        check(&["10.1.0.0/24"], &[&["10.0.0.0/8"]], &["10.1.0.7"], true);
        check(&["10.1.0.0/24"], &[&["10.1.0.0/28"]], &["10.1.0.7"], true);
        check(&["10.1.0.0/24"], &[&["10.1.0.0/28"]], &["10.1.0.77"], false);
        check(&["10.1.0.0/24", "fd00::/108"], &[&["10.1.0.0/24"]], &["fd00::7"], false);
    }
}
