//! Plays stages: chooses one for an object, waits for its delay, and does its steps.
//!
//! Invariants: a stage plays once for a state of an object, and not for one that is older than what it has written; a
//! step that failed is tried again, those before it are not; a stage that fits again at once plays ten times a second at
//! most. What is remembered of an object may be forgotten at any time: its stage then begins anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::{DeleteParams, Preconditions};
use kubewright::kube::core::gvk::GroupVersionKind;
use kubewright::kube::core::{ApiResource, ObjectMeta, Resource as _};
use kubewright::kube::{Client, core::DynamicObject, discovery};
use kubewright::{Context, Entropy, Error, EventType, Request, Result, Waker};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::spec::PatchType;
use super::stage::{Apply, Stage, Step};
use super::{Stages, Surroundings};

/// Who writes, in managedFields: kwok's own name, which those expect who know stages.
const MANAGER: &str = "kwok";
/// The least time between two plays of one stage for one object.
const PAUSE: Duration = Duration::from_millis(100);

/// The stages of a cluster, and what has been played.
pub(crate) struct Player {
    of_files: Vec<Arc<Stage>>,
    state: Mutex<State>,
    memory: Mutex<BTreeMap<(String, Request), Played>>,
    entropy: Entropy,
    /// The address of a node by its name, where nothing else is known of it.
    pub(super) node_ip: fn(&str) -> String,
    /// When the first stage played, for templates.
    started: OnceLock<Timestamp>,
}

#[derive(Default)]
struct State {
    /// Those that are objects, by name.
    of_objects: BTreeMap<String, Arc<Stage>>,
    /// Counts their changes.
    generation: u64,
    /// Who plays, by version and kind; woken when stages of the kind change.
    wakers: BTreeMap<(String, String), Waker>,
}

/// What is remembered of an object.
#[derive(Default)]
struct Played {
    uid: String,
    plan: Option<Plan>,
    /// The state for which one has played, and the generation of the stages.
    done: (u64, u64),
    /// The state that the last play has written.
    written: u64,
    last: Option<(String, Instant)>,
    /// A stage has played for it.
    staged: bool,
}

/// The stage that will play for an object.
struct Plan {
    stage: String,
    due: Instant,
    /// At which step it goes on.
    step: usize,
    /// Those that it was chosen from, with their weights: others are chosen from anew.
    among: Vec<(String, Option<i64>)>,
}

/// What stages do with an object now.
pub(crate) enum Progress {
    /// None fits.
    Free {
        /// Whether one has played for it before.
        staged: bool,
    },
    /// One plays after this time.
    Wait(Duration),
    /// One has played: the change leads on.
    Done,
}

/// What an object's stages are told of its place.
pub(crate) struct Place<'a> {
    pub(crate) node: Option<&'a str>,
    pub(crate) node_ip: &'a (dyn Fn(&str) -> String + Sync),
    pub(crate) pod_ip: &'a (dyn Fn() -> String + Sync),
}

/// The version of an object, which grows with each change.
fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or_default()
}

impl Player {
    pub(crate) fn new(stages: Stages, entropy: Entropy, node_ip: fn(&str) -> String) -> Player {
        Player {
            of_files: stages.0,
            state: Mutex::default(),
            memory: Mutex::default(),
            entropy,
            node_ip,
            started: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, kind: &str, request: &Request, uid: &str, look: impl FnOnce(&mut Played) -> T) -> T {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let played = memory.entry((kind.to_owned(), request.clone())).or_default();
        if played.uid != uid {
            *played = Played {
                uid: uid.to_owned(),
                ..Played::default()
            };
        }
        look(played)
    }

    /// An object is gone.
    pub(crate) fn forget(&self, kind: &str, request: &Request) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.remove(&(kind.to_owned(), request.clone()));
    }

    /// Wakes who plays for the objects of a kind, when its stages change.
    pub(crate) fn waker(&self, api_version: &str, kind: &str) -> Waker {
        let kind = (api_version.to_owned(), kind.to_owned());
        self.state().wakers.entry(kind).or_default().clone()
    }

    /// The kinds of all stages.
    pub(super) fn kinds(&self) -> Vec<(String, String)> {
        let state = self.state();
        let all = self.of_files.iter().chain(state.of_objects.values());
        all.map(|stage| (stage.api_version.clone(), stage.kind.clone()))
            .collect()
    }

    /// Whether any stage is of this kind.
    pub(crate) fn is_for(&self, api_version: &str, kind: &str) -> bool {
        let state = self.state();
        let mut all = self.of_files.iter().chain(state.of_objects.values());
        all.any(|stage| stage.is_of(api_version, kind))
    }

    /// The stages of a kind, and the generation of all. A stage that is an object takes the place of a file's of the same
    /// name.
    fn of(&self, api_version: &str, kind: &str) -> (Vec<Arc<Stage>>, u64) {
        let state = self.state();
        let from_files = self
            .of_files
            .iter()
            .filter(|stage| !state.of_objects.contains_key(&stage.name));
        let all = from_files.chain(state.of_objects.values());
        let of_kind = all.filter(|stage| stage.is_of(api_version, kind)).cloned().collect();
        (of_kind, state.generation)
    }

    /// A stage is an object, or is none any more. Objects of its kind are looked at again.
    pub(super) async fn set(&self, name: &str, stage: Option<Stage>) {
        let wakers: Vec<Waker> = {
            let mut state = self.state();
            let before = match stage {
                Some(stage) => state.of_objects.insert(name.to_owned(), Arc::new(stage)),
                None => state.of_objects.remove(name),
            };
            state.generation += 1;
            let after = state.of_objects.get(name).cloned();
            let kinds = before
                .into_iter()
                .chain(after)
                .map(|stage| (stage.api_version.clone(), stage.kind.clone()));
            kinds.filter_map(|kind| state.wakers.get(&kind).cloned()).collect()
        };
        for waker in wakers {
            waker.wake_all(format!("the stage {name} changed")).await;
        }
    }

    /// Of the stages that fit an object one, by their weights (kwok's `Lifecycle.Match`).
    fn choose<'s>(&self, fitting: &'s [Arc<Stage>], among: &[(String, Option<i64>)]) -> Option<&'s Arc<Stage>> {
        let weights = || fitting.iter().zip(among.iter().map(|(_, weight)| *weight));
        let positive =
            |(stage, weight): (&'s Arc<Stage>, Option<i64>)| Some((stage, weight.filter(|weight| *weight > 0)?));
        let total: i64 = weights()
            .filter_map(positive)
            .map(|(_, weight)| weight)
            .fold(0, i64::saturating_add);
        if total == 0 {
            // Nothing is weighed: each as likely as the others, those before which say their weight.
            let weighed: Vec<_> = weights()
                .filter(|(_, weight)| weight.is_some())
                .map(|(stage, _)| stage)
                .collect();
            let all = if weighed.is_empty() {
                fitting.iter().collect()
            } else {
                weighed
            };
            let at = self.entropy.draw().checked_rem(u64::try_from(all.len()).unwrap_or(1))?;
            return all.get(usize::try_from(at).unwrap_or(0)).copied();
        }
        let mut off = i64::try_from(self.entropy.draw() % total.unsigned_abs()).unwrap_or(0);
        weights().filter_map(positive).find_map(|(stage, weight)| {
            off -= weight;
            (off < 0).then_some(stage)
        })
    }

    /// What the stages do with an object, which is done as far as it is due.
    ///
    /// # Errors
    /// When the server refuses a step; it is tried again.
    pub(crate) async fn advance(
        &self,
        ctx: &Context,
        resource: &ApiResource,
        object: &Value,
        place: &Place<'_>,
    ) -> Result<Progress> {
        let (stages, generation) = self.of(&resource.api_version, &resource.kind);
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let kind = &resource.kind;
        let is_known = self.with(kind, ctx.request(), uid, |played| {
            played.done == (version(object), generation) || version(object) < played.written
        });
        if is_known {
            return Ok(Progress::Done);
        }
        let fitting: Vec<Arc<Stage>> = stages.into_iter().filter(|stage| stage.fits(object)).collect();
        let among: Vec<_> = fitting
            .iter()
            .map(|stage| (stage.name.clone(), stage.weight(object)))
            .collect();
        let now = Instant::now();
        let planned = self.with(kind, ctx.request(), uid, |played| {
            let plan = played.plan.take().filter(|plan| plan.step > 0 || plan.among == among);
            let still = plan.and_then(|plan| {
                let stage = fitting.iter().find(|stage| stage.name == plan.stage)?;
                Some((stage.clone(), plan.due, plan.step))
            });
            let (stage, due, step) = match still {
                Some(still) => still,
                None => {
                    let stage = self.choose(&fitting, &among)?.clone();
                    let delay = stage.delay(object, ctx.now(), self.entropy.draw());
                    let again = played.last.as_ref().filter(|(name, _)| *name == stage.name);
                    let earliest = again.map_or(now, |(_, at)| *at + PAUSE);
                    // Longer than any cluster lives is as good as never.
                    let due = now + delay.min(Duration::from_secs(100 * 365 * 86_400));
                    (stage, due.max(earliest), 0)
                }
            };
            played.plan = Some(Plan {
                stage: stage.name.clone(),
                due,
                step,
                among: among.clone(),
            });
            Some((stage, due, step))
        });
        let Some((stage, due, step)) = planned else {
            let staged = self.with(kind, ctx.request(), uid, |played| played.staged);
            return Ok(Progress::Free { staged });
        };
        let wait = due.saturating_duration_since(now);
        if !wait.is_zero() {
            return Ok(Progress::Wait(wait));
        }
        let play = Play {
            ctx,
            resource,
            object,
            around: Surroundings {
                now: ctx.now(),
                started: *self.started.get_or_init(|| ctx.now()),
                node: place.node,
                node_ip: place.node_ip,
                pod_ip: place.pod_ip,
            },
        };
        let (next, written, done) = play.from(&stage, step).await;
        self.with(kind, ctx.request(), uid, |played| {
            played.staged = true;
            played.written = played.written.max(written);
            match done.is_ok() {
                true => {
                    played.plan = None;
                    played.done = (version(object), generation);
                    played.last = Some((stage.name.clone(), now));
                }
                false => {
                    played.plan = Some(Plan {
                        stage: stage.name.clone(),
                        due,
                        step: next,
                        among,
                    });
                }
            }
        });
        done.map(|()| Progress::Done)
    }
}

/// One play of a stage.
struct Play<'a> {
    ctx: &'a Context,
    resource: &'a ApiResource,
    object: &'a Value,
    around: Surroundings<'a>,
}

impl Play<'_> {
    /// Does the steps from one on: at which it goes on, the version that the object has now, and what the server refused.
    async fn from(&self, stage: &Stage, first: usize) -> (usize, u64, Result<()>) {
        let mut now = self.object.clone();
        for (at, step) in stage.steps.iter().enumerate().skip(first) {
            match self.step(step, &now).await {
                Ok(Some(after)) => now = after,
                Ok(None) => {}
                Err(Failure::Server(error)) if error.is_not_found() => break,
                Err(Failure::Server(error)) => return (at, version(&now), Err(error)),
                // The same every time for these values: told, and not tried again.
                Err(Failure::Stage(why)) => {
                    self.event(
                        EventType::Warning,
                        "StageFailed",
                        &format!("stage {}: {why}", stage.name),
                    );
                    break;
                }
            }
        }
        (0, version(&now), Ok(()))
    }

    fn meta(&self) -> ObjectMeta {
        serde_json::from_value(self.object["metadata"].clone()).unwrap_or_default()
    }

    fn event(&self, kind: EventType, reason: &str, message: &str) {
        self.ctx
            .event_dynamic(self.resource, &self.meta(), kind, reason, message);
    }

    /// The object after the step, when the step changes it.
    async fn step(&self, step: &Step, object: &Value) -> std::result::Result<Option<Value>, Failure> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str();
        let own = Target {
            resource: self.resource,
            namespace,
            name: text("name"),
            subresource: "",
            user: None,
        };
        match step {
            Step::Event(kind, reason, message) => {
                self.event(*kind, reason, message);
                Ok(None)
            }
            Step::Finalizers(finalizers) => {
                let present: Vec<String> =
                    serde_json::from_value(object["metadata"]["finalizers"].clone()).unwrap_or_default();
                let after = finalizers.after(&present);
                if after == present {
                    return Ok(None);
                }
                // Guarded: another's finalizer that came meanwhile is not taken away.
                let guard =
                    json!({"uid": text("uid"), "resourceVersion": text("resourceVersion"), "finalizers": after});
                let patch = json!({ "metadata": guard });
                Ok(Some(own.patch(self.ctx, PatchType::Merge, &patch).await?))
            }
            Step::Delete => {
                let params = DeleteParams {
                    grace_period_seconds: Some(0),
                    preconditions: Some(Preconditions {
                        uid: Some(text("uid").to_owned()),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                let name = text("name");
                self.ctx
                    .client()
                    .delete_dynamic(self.resource, namespace, name, params)
                    .await?;
                Ok(None)
            }
            Step::Patch(patch) => {
                let mut body = patch.body(self.object, &self.around).map_err(Failure::Stage)?;
                if body.is_null()
                    || body.get("status").is_some_and(Value::is_null)
                        && body.as_object().is_some_and(|it| it.len() == 1)
                {
                    return Ok(None);
                }
                if let (true, Some(body)) = (patch.form != PatchType::Json, body.as_object_mut()) {
                    // Only this object: not a namesake that has come since.
                    let metadata = body.entry("metadata").or_insert_with(|| json!({}));
                    if let Some(metadata) = metadata.as_object_mut() {
                        metadata.insert("uid".to_owned(), text("uid").into());
                    }
                }
                let target = Target {
                    subresource: &patch.subresource,
                    user: patch.user.as_deref(),
                    ..own
                };
                Ok(Some(target.patch(self.ctx, patch.form, &body).await?))
            }
            Step::Apply(apply) => {
                let body = apply.body(self.object, &self.around).map_err(Failure::Stage)?;
                self.apply(apply, body, namespace).await.map(|()| None)
            }
        }
    }

    /// Creates another object, or patches it where it is (kwok's `ApplyResource`).
    async fn apply(&self, apply: &Apply, body: Value, own: Option<&str>) -> std::result::Result<(), Failure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&body["apiVersion"]), text(&body["kind"]));
        let name = text(&body["metadata"]["name"]);
        if api_version.is_empty() || kind.is_empty() || name.is_empty() {
            let why = "what it applies needs apiVersion, kind and metadata.name";
            return Err(Failure::Stage(why.to_owned()));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let kind = GroupVersionKind::gvk(group, version, &kind);
        let (resource, capabilities) = discovery::pinned_kind(self.ctx.client().kube(), &kind)
            .await
            .map_err(Error::from)?;
        let namespace = body["metadata"]["namespace"].as_str().or(own);
        let target = Target {
            resource: &resource,
            namespace: namespace.filter(|_| capabilities.scope == discovery::Scope::Namespaced),
            name: &name,
            subresource: &apply.subresource,
            user: apply.user.as_deref(),
        };
        if apply.form != PatchType::Apply && apply.subresource.is_empty() {
            match target.create(self.ctx, &body).await {
                Err(error) if error.is_already_exists() => {}
                created => return created.map(drop).map_err(Failure::Server),
            }
        }
        target.patch(self.ctx, apply.form, &body).await?;
        Ok(())
    }
}

/// Why a step was not done.
enum Failure {
    /// The server refused it, or was not reached.
    Server(Error),
    /// The stage cannot do it with this object.
    Stage(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Server(error)
    }
}

/// What is written to, and as whom.
struct Target<'a> {
    resource: &'a ApiResource,
    namespace: Option<&'a str>,
    name: &'a str,
    subresource: &'a str,
    user: Option<&'a str>,
}

impl Target<'_> {
    async fn patch(&self, ctx: &Context, form: PatchType, body: &Value) -> Result<Value> {
        let (media_type, force) = match form {
            PatchType::Json => ("application/json-patch+json", ""),
            PatchType::Merge => ("application/merge-patch+json", ""),
            PatchType::Strategic => ("application/strategic-merge-patch+json", ""),
            PatchType::Apply => ("application/apply-patch+yaml", "&force=true"),
        };
        let subresource = match self.subresource {
            "" => String::new(),
            subresource => format!("/{subresource}"),
        };
        let path = format!("/{}{subresource}?fieldManager={MANAGER}{force}", self.name);
        self.send(ctx.client().kube(), "PATCH", &path, media_type, body).await
    }

    async fn create(&self, ctx: &Context, body: &Value) -> Result<Value> {
        let path = format!("?fieldManager={MANAGER}");
        self.send(ctx.client().kube(), "POST", &path, "application/json", body)
            .await
    }

    async fn send(&self, client: &Client, method: &str, path: &str, media_type: &str, body: &Value) -> Result<Value> {
        let base = DynamicObject::url_path(self.resource, self.namespace);
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{base}{path}"))
            .header(http::header::CONTENT_TYPE, media_type);
        if let Some(user) = self.user {
            request = request.header("Impersonate-User", user);
        }
        let request = request.body(body.to_string().into_bytes());
        let request = request.map_err(|why| Error::from(kubewright::kube::Error::HttpError(why)))?;
        Ok(client.request(request).await?)
    }
}
