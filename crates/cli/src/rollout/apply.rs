//! Server-side apply of many objects, and waiting until they are ready.
//!
//! The order is that of the rendering, in which dependencies come first, with two stops: definitions are established
//! before objects of their kinds are sent, and webhook configurations come last, when the operator is available. A
//! webhook that is asked before it answers would keep the very pods from starting that are to answer.

use std::time::Duration;

use kubewright::kube;
use kubewright::kube::api::{Patch, PatchParams};
use kubewright_codegen::{Diagnostic, codes};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{Cluster, Kinds};
use super::ready::{self, wait_ready};
use super::trial::{self, Tally};
use super::{Mode, is_definition, is_webhook_configuration, namespaces, text, title};
use crate::output::{DIM, Format, paint};

/// Who owns the fields that are applied.
const FIELD_MANAGER: &str = "kubewright";
/// How long an API server may be unable to take a request, as when another webhook is just starting.
const PATIENCE: Duration = Duration::from_secs(30);

/// How objects are applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applying {
    /// Takes fields over that others own.
    pub(crate) force: bool,
    /// Whether to wait until definitions are established and deployments available.
    pub(crate) wait: bool,
    pub(crate) timeout: Duration,
    /// Whether it is done, or only tried.
    pub(crate) mode: Mode,
}

/// Applies the objects and waits until they are ready; a trial waits for nothing, and changes nothing. Reports their
/// outcomes.
///
/// # Errors
/// When a kind is not served, a namespace belongs to others, an object is refused, or something is not ready in time.
pub(crate) async fn apply_all(
    cluster: &Cluster,
    objects: &[Value],
    how: Applying,
    output: Format,
) -> Result<Tally, Diagnostic> {
    let kinds = cluster.kinds(objects).await?;
    kinds.check(objects)?;
    namespaces::check(cluster, &kinds, objects).await?;
    let mut tally = Tally::default();
    if how.mode != Mode::Real {
        for object in objects {
            tally.add(trial::apply(cluster, &kinds, object, objects, how, output).await?);
        }
        return Ok(tally);
    }
    let end = Instant::now() + how.timeout;
    let (last, rest): (Vec<&Value>, Vec<&Value>) = objects.iter().partition(|object| is_webhook_configuration(object));
    let (mut definitions, mut others) = (Vec::new(), Vec::new());
    for object in rest {
        // Namespaces come before definitions, which come before everything else.
        let comes_first = is_definition(object) || text(object, "/kind") == "Namespace";
        if comes_first { &mut definitions } else { &mut others }.push(object);
    }
    for stage in [definitions, others] {
        for object in &stage {
            tally.add(apply(cluster, &kinds, object, how, output).await?);
        }
        // Objects of new kinds cannot be sent before their definitions are established, so this is waited for in any
        // case.
        let waited: Vec<&Value> = stage
            .into_iter()
            .filter(|object| ready::promises(object) && (how.wait || is_definition(object)))
            .collect();
        wait_ready(cluster, &kinds, &waited, end, output).await?;
    }
    for object in last {
        tally.add(apply(cluster, &kinds, object, how, output).await?);
    }
    Ok(tally)
}

async fn apply(
    cluster: &Cluster,
    kinds: &Kinds,
    object: &Value,
    how: Applying,
    output: Format,
) -> Result<&'static str, Diagnostic> {
    let title = title(object);
    let attempted = || format!("cannot apply {title}");
    let api = cluster
        .api(kinds, object)
        .ok_or_else(|| Diagnostic::new(codes::config::NO_KIND, attempted()))?;
    let name = text(object, "/metadata/name");
    let parameters = parameters(how);
    let failed = |why: &kube::Error| cluster.failed(attempted(), why);
    let before = api.get_metadata_opt(name).await.map_err(|why| failed(&why))?;
    let end = Instant::now() + PATIENCE.min(how.timeout);
    let after = loop {
        match api.patch(name, &parameters, &Patch::Apply(object)).await {
            Ok(after) => break after,
            Err(why) if may_pass(&why) && Instant::now() < end => sleep(Duration::from_millis(500)).await,
            Err(why) => return Err(advised(failed(&why), &why)),
        }
    };
    let result = match before {
        None => "created",
        Some(before) if before.metadata.resource_version == after.metadata.resource_version => "unchanged",
        Some(_) => "configured",
    };
    output.say(
        &format!("{title} {}", paint(DIM, result)),
        &json!({"event": "applied", "object": title, "result": result}),
    );
    Ok(result)
}

/// How the server is asked.
pub(super) fn parameters(how: Applying) -> PatchParams {
    let mut parameters = PatchParams::apply(FIELD_MANAGER).validation_strict();
    parameters.force = how.force;
    parameters.dry_run = how.mode != Mode::Real;
    parameters
}

/// Whether the server may take the request a little later.
fn may_pass(why: &kube::Error) -> bool {
    matches!(why, kube::Error::Api(status) if matches!(status.code, 429 | 500 | 502 | 503 | 504))
}

pub(super) fn advised(diagnostic: Diagnostic, why: &kube::Error) -> Diagnostic {
    let kube::Error::Api(status) = why else {
        return diagnostic;
    };
    match status.code {
        409 => diagnostic.fix("--force-conflicts takes the fields over from whoever owns them"),
        403 => {
            diagnostic.fix("get the permissions: whoever deploys an operator needs at least those that its roles grant")
        }
        _ => diagnostic,
    }
}
