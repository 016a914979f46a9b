//! The addresses of Services of type LoadBalancer, from a range that the cluster was given (what a cloud's service
//! controller or MetalLB does).
//!
//! The only memory is `status.loadBalancer.ingress` of all Services, so an address is kept over a restart, and given back
//! when its Service is gone or of another type (the API server empties the status then). Invariants: no two Services
//! have one address; a Service with a `loadBalancerClass` is left to the controller of that class.
//!
//! Not here: connections. Where pods are processes and the range is one of loopback addresses, `service-proxy` accepts
//! them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use kubewright::{Action, Context, Controller, EventType, Reconciler, Request, Result};
use kubewright_model::ServiceRange;
use kubewright_objects::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service};

use kubewright_objects::{Waiting, meta};

/// Gives addresses.
pub(crate) struct LoadBalancers {
    range: ServiceRange,
    /// Services that lack one.
    waiting: Waiting,
}

/// The controller of Services of type LoadBalancer. It looks at one at a time.
pub(crate) fn controller(range: ServiceRange) -> Controller {
    let waiting = Waiting::default();
    let all = waiting.clone();
    Controller::of(LoadBalancers { range, waiting })
        .named("service-lb-controller")
        // Any other may give its address back.
        .watches::<Service>(move |_| all.all())
}

impl Reconciler for LoadBalancers {
    type Object = Service;

    async fn reconcile(&self, service: Arc<Service>, ctx: Context) -> Result<Action> {
        if !is_balanced(&service) || is_of_others(&service) || meta::is_deleting(&service.metadata) {
            self.waiting.remove(ctx.request());
            return Ok(Action::await_change());
        }
        // Before the others are looked at, so that none that gives its address back is missed.
        let is_new = self.waiting.insert(ctx.request());
        let others = ctx.client().list::<Service>(None).await?;
        let others = others.iter().filter(|other| other.metadata.uid != service.metadata.uid);
        let taken: BTreeSet<Ipv4Addr> = others.filter_map(|other| present(other)).collect();
        match choose(&service, self.range, &taken) {
            Ok(chosen) => {
                self.waiting.remove(ctx.request());
                if present(&service) != Some(chosen) {
                    write(&service, chosen, &ctx).await?;
                    let message = "Ensured load balancer";
                    ctx.event(&*service, EventType::Normal, "EnsuredLoadBalancer", message);
                }
            }
            Err(why) if is_new => {
                let message = format!("Error syncing load balancer: failed to ensure load balancer: {why}");
                ctx.event(&*service, EventType::Warning, "SyncLoadBalancerFailed", message);
            }
            Err(_) => {}
        }
        Ok(Action::await_change())
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.waiting.remove(&request);
        Ok(Action::await_change())
    }
}

fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

/// Whether another controller serves it.
fn is_of_others(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.load_balancer_class.is_some())
}

/// The address that a Service has.
fn present(service: &Service) -> Option<Ipv4Addr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.first()?.ip.as_ref()?.parse().ok()
}

/// The address for a Service, or why there is none.
fn choose(service: &Service, range: ServiceRange, taken: &BTreeSet<Ipv4Addr>) -> std::result::Result<Ipv4Addr, String> {
    let is_free = |ip: &Ipv4Addr| !taken.contains(ip);
    let asked = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref());
    if let Some(asked) = asked.filter(|asked| !asked.is_empty()) {
        return match asked.parse().ok().filter(|ip| range.contains(*ip)) {
            Some(ip) if is_free(&ip) => Ok(ip),
            Some(ip) => Err(format!("spec.loadBalancerIP: another Service has {ip}")),
            None => Err(format!("spec.loadBalancerIP: {asked} is not an address of {range}")),
        };
    }
    let present = present(service).filter(|ip| range.contains(*ip) && is_free(ip));
    let mut free = range.candidates(0).filter(is_free);
    present.or_else(|| free.next()).ok_or_else(|| {
        format!("no address of {range} is free: delete a Service of type LoadBalancer, or start the cluster with a larger --load-balancer-range")
    })
}

async fn write(service: &Service, ip: Ipv4Addr, ctx: &Context) -> Result<()> {
    let mut next = service.clone();
    next.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            ip: Some(ip.to_string()),
            ..LoadBalancerIngress::default()
        }]),
    });
    ctx.client().update_status(&next).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn which_address() {
        let check =
            |asked: Option<&str>, has: Option<&str>, taken: &[u8], expected: std::result::Result<&str, &str>| {
                let ingress: Value = has.map_or(json!([]), |ip| json!([{ "ip": ip }]));
                let service: Service = serde_json::from_value(json!({
                    "spec": { "loadBalancerIP": asked }, "status": { "loadBalancer": { "ingress": ingress } },
                }))
                .expect("a Service");
                let taken = taken.iter().map(|last| Ipv4Addr::new(10, 9, 0, *last)).collect();
                let found = choose(&service, "10.9.0.0/29".parse().expect("a range"), &taken);
                match (found, expected) {
                    (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
                    (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                    (found, expected) => panic!("{found:?}, not {expected:?}"),
                }
            };
        check(None, None, &[], Ok("10.9.0.1"));
        check(None, None, &[1, 2, 4], Ok("10.9.0.3"));
        check(None, Some("10.9.0.4"), &[1], Ok("10.9.0.4"));
        // An address of another range, or one that somebody else has, too.
        check(None, Some("10.8.0.4"), &[], Ok("10.9.0.1"));
        check(None, Some("10.9.0.4"), &[4], Ok("10.9.0.1"));
        check(Some("10.9.0.5"), Some("10.9.0.4"), &[], Ok("10.9.0.5"));
        check(
            Some("10.9.0.5"),
            None,
            &[5],
            Err("spec.loadBalancerIP: another Service has 10.9.0.5"),
        );
        let outside = "spec.loadBalancerIP: 10.8.0.5 is not an address of 10.9.0.0/29";
        check(Some("10.8.0.5"), None, &[], Err(outside));
        check(
            None,
            None,
            &[1, 2, 3, 4, 5, 6],
            Err("no address of 10.9.0.0/29 is free"),
        );
    }
}
