//! Writes that do harm though the end looks right: somebody else's change that is lost, a volume that is taken away while
//! a pod uses it.

use http::Request;
use kubewright::kube::client::Body;
use serde_json::Value;

use super::super::history::is_done;
use super::super::log::resource;
use super::super::oracles::words;
use super::Seam;
use crate::intercept::Call;

/// The annotation of somebody else, who changes an object right before it is written.
pub(in super::super) const TOUCHED: &str = "explore.kubewright.dev/touched";

/// The first write of each kind, in words.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Harm {
    /// It took back what somebody else had changed right before it.
    pub(in super::super) lost: Option<String>,
    /// It deleted a claim that a pod uses which is to live on, and in which step.
    pub(in super::super) in_use: Option<(usize, String)>,
}

impl Seam {
    /// What harm was done so far.
    pub(in super::super) fn harm(&self) -> Harm {
        self.state().harm.clone()
    }

    /// Somebody else writes the object.
    pub(super) async fn touch(&self, path: &str, call: &Call) {
        let object = match call.subresource.as_str() {
            "" => path,
            subresource => path
                .strip_suffix(subresource)
                .and_then(|path| path.strip_suffix('/'))
                .unwrap_or(path),
        };
        let patch =
            serde_json::json!({"metadata": {"annotations": {TOUCHED: self.begin.elapsed().as_millis().to_string()}}});
        let request = Request::patch(object)
            .header("content-type", "application/merge-patch+json")
            .body(Body::from(patch.to_string().into_bytes()));
        if let Ok(request) = request {
            // An object that is not there is touched by nobody.
            let _ = self.cluster.kube().send(request).await;
        }
    }

    /// Notes a write, before it is sent, that deletes a claim in use.
    pub(super) fn notes_claim_in_use(&self, call: &Call) {
        if call.verb != "delete" || call.resource != "persistentvolumeclaims" {
            return;
        }
        let uses = |pod: &Value| {
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            let mut claims = volumes.map(|volume| &volume["persistentVolumeClaim"]["claimName"]);
            pod["metadata"]["namespace"] == call.namespace.as_str()
                && pod["metadata"]["deletionTimestamp"].is_null()
                && !is_done(pod)
                && claims.any(|claim| *claim == call.name.as_str())
        };
        let pods = self.cluster.cluster().api().entries("pods");
        let mut pods = pods.into_iter().map(|(_, entry)| entry);
        let Some(pod) = pods.find(|entry| uses(entry.object().value())) else {
            return;
        };
        let pod = pod.object();
        let pod = &pod.value()["metadata"]["name"];
        let (claim, pod) = (named(call), pod.as_str().unwrap_or_default());
        let what = format!("{claim} is deleted while the pod {pod} uses it");
        let mut state = self.state();
        let step = state.step;
        state.harm.in_use.get_or_insert((step, what));
    }

    /// Notes a write, made right after somebody else had changed the object, whose result lacks that change. An object
    /// that the operator controls it may write as it likes.
    pub(super) fn notes_lost_change(&self, call: &Call, shown: &Value) {
        let mut owners = shown["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let is_shared = !owners.any(|owner| owner["controller"] == true);
        let is_whole = call.verb == "update" && call.subresource.is_empty();
        if !is_whole || !is_shared || !shown["metadata"]["annotations"][TOUCHED].is_null() {
            return;
        }
        self.state().harm.lost.get_or_insert(named(call));
    }
}

fn named(call: &Call) -> String {
    words(&(resource(call), call.namespace.clone(), call.name.clone()))
}
