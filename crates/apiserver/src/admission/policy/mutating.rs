//! MutatingAdmissionPolicies: changes to objects before they are validated.
//!
//! All policies in force are chosen on the object as it came; then they change it one after the other, each seeing the
//! changes of those before it. A patch whose `test` fails changes nothing and is no error.

use kubewright_cel::eval::RUNTIME_BUDGET;
use kubewright_cel::names::unescape;
use kubewright_cel::value::Value as Cel;
use kubewright_schema::apply::{ObjectType, merge_configuration};
use kubewright_schema::catalog;
use kubewright_schema::go::TypeMismatch;
use kubewright_schema::patch::json::{self as json_patch, JsonPatchError};
use kubewright_schema::structural::TypeError;
use serde_json::{Map, Value, json};

use super::super::matching::Matched;
use super::super::{Admission, Admitted, Attributes, Operation, Session};
use super::activation::{Inputs, Scope};
use super::authorizer;
use super::compiled::{Binding, Expression, MutatingPolicy, Mutation, Policy};
use super::conditions::{MatchResult, conditions};
use super::source::{Hook, Source};
use super::untouched::Untouched;
use super::validating::namespace;
use super::{is_exempt, params};
use crate::admission::subject;
use crate::model::Resource;
use crate::model::form::object_type;
use crate::model::object;
use crate::model::status::{Cause, Status};
use crate::values::get;

/// The plugin's name, under which it is asked for a second round.
const PLUGIN: &str = "MutatingAdmissionPolicy";

/// The plugin `MutatingAdmissionPolicy`. It stands before the mutating webhooks.
pub struct MutatingPolicies {
    source: Source<MutatingPolicy>,
}

impl Default for MutatingPolicies {
    fn default() -> MutatingPolicies {
        MutatingPolicies { source: Source::new() }
    }
}

/// A policy that is to change the object, with one parameter.
struct Invocation<'h> {
    mutating: &'h MutatingPolicy,
    binding: &'h Binding,
    param: Value,
    matched: Matched,
}

impl Invocation<'_> {
    /// The key of this invocation in the second round.
    fn id(&self) -> String {
        let (policy, binding) = (&self.mutating.policy.name, &self.binding.name);
        let (namespace, name) = (object::namespace(&self.param), object::name(&self.param));
        format!("{policy} {binding} {namespace}/{name}")
    }
}

/// Why a request is refused: every policy that fails is a cause.
#[derive(Default)]
struct Denied {
    messages: Vec<String>,
    reason: &'static str,
}

impl Denied {
    fn add(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str, reason: &'static str) {
        if !policy.fails {
            return;
        }
        if self.messages.is_empty() {
            self.reason = reason;
        }
        self.messages.push(match binding {
            Some(binding) => format!(
                "policy '{}' with binding '{}' denied request: {why}",
                policy.name, binding.name
            ),
            None => format!("policy {:?} denied request: {why}", policy.name),
        });
    }

    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.add(
            policy,
            binding,
            &format!("failed to configure {what}: {why}"),
            "Forbidden",
        );
    }

    fn into_result(self, attributes: &Attributes, object: &Value) -> Result<(), Status> {
        let Some(first) = self.messages.first().cloned() else {
            return Ok(());
        };
        let mut status = Status::forbidden(&attributes.resource, subject(attributes, object), "");
        status.message = first;
        status.reason = self.reason.into();
        if let Some(details) = &mut status.details {
            details.causes = self
                .messages
                .into_iter()
                .map(|message| Cause {
                    reason: String::new(),
                    message,
                    field: String::new(),
                })
                .collect();
        }
        Err(status)
    }
}

/// Why a mutation did not happen.
enum Failure {
    /// The policy's own failure, which may be ignored.
    Policy(String),
    /// The request ends with it.
    Request(Status),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Policy(why)
    }
}

/// Applies the mutations of the policies.
async fn change(
    hooks: Vec<Hook<MutatingPolicy>>,
    session: &Session<'_>,
    attributes: &Attributes,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let mut denied = Denied::default();
    let mut invocations = Vec::new();
    for hook in &hooks {
        choose(
            &hook.policy,
            &hook.bindings,
            (session, attributes, object, old),
            &mut invocations,
            &mut denied,
        )
        .await;
    }
    if !invocations.is_empty() {
        session.begin(PLUGIN, object);
        let namespace = namespace(session, attributes)?;
        for invocation in &invocations {
            invoke(invocation, session, attributes, object, old, &namespace, &mut denied).await?;
        }
        session.end(PLUGIN, object);
    }
    denied.into_result(attributes, object)
}

/// Adds the invocations of one policy.
async fn choose<'h>(
    mutating: &'h MutatingPolicy,
    bindings: &'h [std::sync::Arc<Binding>],
    (session, attributes, object, old): (&Session<'_>, &Attributes, &Value, Option<&Value>),
    invocations: &mut Vec<Invocation<'h>>,
    denied: &mut Denied,
) {
    let policy = &mutating.policy;
    let matched = match policy.criteria.matches(session, attributes, object, old) {
        Ok(Some(matched)) => matched,
        Ok(None) => return,
        Err(status) => return denied.misconfigured(policy, None, &status.message),
    };
    let row = match params::kind(session, policy) {
        Ok(row) => row,
        Err(why) => return denied.misconfigured(policy, None, &why),
    };
    for binding in bindings {
        let chosen = binding.criteria.as_ref().map_or(Ok(true), |criteria| {
            let found = criteria.matches(session, attributes, object, old);
            found.map(|found| found.is_some())
        });
        match chosen {
            Ok(true) => {}
            Ok(false) => continue,
            Err(status) => {
                denied.misconfigured(policy, Some(binding), &status.message);
                continue;
            }
        }
        match params::collect(session, row.as_deref(), binding, &attributes.namespace).await {
            Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                mutating,
                binding,
                param,
                matched: matched.clone(),
            })),
            Err(why) => denied.misconfigured(policy, Some(binding), &why),
        }
    }
}

/// Lets one policy change the object.
async fn invoke(
    invocation: &Invocation<'_>,
    session: &Session<'_>,
    attributes: &Attributes,
    object: &mut Value,
    old: Option<&Value>,
    namespace: &Value,
    denied: &mut Denied,
) -> Result<(), Status> {
    let matched = &invocation.matched;
    let old = matched.show(session, attributes, old.unwrap_or(&Value::Null)).await?;
    let is_own = !matched.is_converted(attributes);
    // It may be large: where it is shown as it is, it is changed where it is.
    let mut shown = if is_own {
        std::mem::take(object)
    } else {
        matched.show(session, attributes, object).await?.into_owned()
    };
    let mut changed = MutationResult::default();
    let mutated = run(
        invocation,
        session,
        attributes,
        &mut shown,
        &old,
        namespace,
        denied,
        &mut changed,
    )
    .await;
    if is_own {
        *object = shown;
        mutated?;
        if let Some(before) = changed.owners {
            session.check_owners(object, &json!({"metadata": {"managedFields": before}}));
        }
    } else {
        mutated?;
        if changed.any {
            let mut new = session.convert(shown, &matched.resource, &attributes.resource).await?;
            session.check_owners(&mut new, object);
            *object = new;
        }
    }
    Ok(())
}

/// What the mutations of a policy did.
#[derive(Default)]
struct MutationResult {
    any: bool,
    /// The `managedFields` as they were, if a mutation might have changed them.
    owners: Option<Value>,
}

/// The mutations of one policy, on the object as it sees it.
#[expect(clippy::too_many_arguments, reason = "an invocation is that many things, each once")]
async fn run(
    invocation: &Invocation<'_>,
    session: &Session<'_>,
    attributes: &Attributes,
    shown: &mut Value,
    old: &Value,
    namespace: &Value,
    denied: &mut Denied,
    changed: &mut MutationResult,
) -> Result<(), Status> {
    let (mutating, binding, matched) = (invocation.mutating, invocation.binding, &invocation.matched);
    let policy = &mutating.policy;
    let request = attributes.review(matched);
    let around = Inputs {
        object: &Value::Null,
        old,
        params: &invocation.param,
        request: &request,
        namespace,
        patterns: session.patterns(),
    };
    let met = session.settled(|| conditions(policy, around.with(shown), session, attributes));
    match met.await {
        MatchResult::Matches => {}
        MatchResult::DoesNotMatch => return Ok(()),
        MatchResult::Error(why) => {
            denied.add(policy, Some(binding), &why, "Invalid");
            return Ok(());
        }
    }
    let id = invocation.id();
    if !session.may_invoke(PLUGIN, &id) {
        return Ok(());
    }
    for mutation in &mutating.mutations {
        if shown.is_null() {
            break;
        }
        let wanted = session.settled(|| wanted(mutation, policy, around.with(shown), session, attributes));
        let made = match wanted.await {
            Ok(wanted) => make(wanted, shown, session, matched, changed),
            Err(why) => Err(Failure::Policy(why)),
        };
        match made {
            // Upstream looks again at everything after any patch, whether it changed something or not.
            Ok(()) => changed.any = true,
            Err(Failure::Policy(why)) => denied.add(policy, Some(binding), &why, "Invalid"),
            Err(Failure::Request(status)) => return Err(status),
        }
    }
    session.invoked(PLUGIN, &id, changed.any, mutating.reinvocable);
    if changed.any && mutating.reinvocable {
        // Its own change calls for itself, too.
        session.invoked(PLUGIN, &id, true, false);
    }
    Ok(())
}

/// What a mutation says is to be done.
enum Edit {
    Configuration(Value),
    Patches(Value),
}

fn wanted(
    mutation: &Mutation,
    policy: &Policy,
    inputs: Inputs<'_>,
    session: &Session<'_>,
    attributes: &Attributes,
) -> Result<Edit, String> {
    let scope = Scope::new(inputs, &policy.variables, authorizer::bind(session, attributes));
    match mutation {
        Mutation::Configuration(expression) => configuration(&scope, expression).map(Edit::Configuration),
        Mutation::Patches(expression) => patches(&scope, expression).map(Edit::Patches),
    }
}

/// Does it. An object for which that fails is as it was.
fn make(
    wanted: Edit,
    object: &mut Value,
    session: &Session<'_>,
    matched: &Matched,
    changed: &mut MutationResult,
) -> Result<(), Failure> {
    let row = (matched.kind == matched.resource.group_version_kind()).then_some(&*matched.resource);
    match wanted {
        Edit::Configuration(configuration) => {
            // What it does not name stays as it is, and much of a large object is not named.
            let untouched = Untouched::take(object, &configuration);
            if untouched.owners.is_none() {
                changed.note_owners(object);
            }
            let merged = merge(object, configuration, matched, row)
                .and_then(|merged| fit_merged(merged, object, session, matched, row));
            let made = merged.map(|merged| *object = merged);
            untouched.put_back(object);
            made?;
            if let Some(row) = row {
                session.default(object, row);
            }
        }
        Edit::Patches(patch) => {
            changed.note_owners(object);
            match json_patch::apply(object, &patch) {
                Ok(patched) => *object = finish_patched(patched, session, row)?,
                Err(JsonPatchError::TestFailed(_)) => {}
                Err(error) => return Err(Failure::Policy(format!("JSON Patch: {error}"))),
            }
        }
    }
    Ok(())
}

impl MutationResult {
    fn note_owners(&mut self, object: &Value) {
        if self.owners.is_none() {
            self.owners = Some(get(object, &["metadata", "managedFields"]).clone());
        }
    }
}

/// Evaluates an expression; a policy that does not compile says so itself.
fn value<'a>(scope: &Scope<'a>, expression: &'a Expression) -> Result<Cel<'a>, String> {
    if let Err(why) = &expression.program {
        return Err(why.clone());
    }
    let mut budget = RUNTIME_BUDGET;
    scope.run(expression, &mut budget).map_err(|spent| spent.to_string())?
}

fn configuration<'a>(scope: &Scope<'a>, expression: &'a Expression) -> Result<Value, String> {
    let found = value(scope, expression)?;
    if !matches!(found, Cel::Object(_)) {
        return Err(format!(
            "unsupported return type from ApplyConfiguration expression: {}",
            found.type_name()
        ));
    }
    check_names(&found)?;
    native(&found)
}

/// A configuration as JSON. A map that the expression writes into a list is no object there, as upstream: objects in
/// lists must be constructed with their type.
fn native(value: &Cel<'_>) -> Result<Value, String> {
    match value {
        Cel::Object(object) => {
            let fields = object.fields.iter();
            let fields = fields.map(|(name, below)| {
                let name = unescape(name).unwrap_or_else(|| name.to_string());
                Ok((name, native(below)?))
            });
            fields
                .collect::<Result<Map<String, Value>, String>>()
                .map(Value::Object)
        }
        Cel::List(list) => {
            let items = list.iter().map(|item| match item.map_err(|error| error.to_string())? {
                Cel::Map(map) if map.is_made() => Ok(Value::from(Cel::Map(map).to_string())),
                item => native(&item),
            });
            items.collect()
        }
        other => other.to_json().map_err(|error| error.to_string()),
    }
}

fn patches<'a>(scope: &Scope<'a>, expression: &'a Expression) -> Result<Value, String> {
    let found = value(scope, expression)?;
    let Cel::List(list) = &found else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut operations = Vec::with_capacity(list.len());
    for item in list.iter() {
        let item = item.map_err(|error| error.to_string())?;
        let Cel::Object(operation) = &item else {
            return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
        };
        let mut written = Map::new();
        for field in ["op", "path", "from", "value"] {
            let Some(given) = operation.field(field) else { continue };
            if field == "value" && matches!(given, Cel::Object(_)) {
                check_names(given)?;
            }
            let json = given.to_json().map_err(|error| {
                format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}")
            })?;
            if field != "from" || json != "" {
                written.insert(field.to_owned(), json);
            }
        }
        for field in ["op", "path"] {
            written.entry(field).or_insert_with(|| Value::from(""));
        }
        operations.push(Value::Object(written));
    }
    Ok(Value::Array(operations))
}

/// The type of each constructed object must be named after the fields that lead to it: there is no other check of
/// `Object.spec{…}`.
fn check_names(value: &Cel<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    names(value, value.type_name(), &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(format!("type mismatch: {}", errors.join("\n")))
    }
}

fn names(value: &Cel<'_>, expected: &str, errors: &mut Vec<String>) {
    match value {
        Cel::Object(object) => {
            let found = &*object.type_name;
            if found != expected {
                errors.push(format!(
                    "unexpected type name {found:?}, expected {expected:?}, which matches field name path from root Object type"
                ));
            }
            for (name, below) in &object.fields {
                names(below, &format!("{expected}.{}", &**name), errors);
            }
        }
        Cel::List(list) => list.iter().flatten().for_each(|item| names(&item, expected, errors)),
        Cel::Map(map) => map
            .entries()
            .flatten()
            .for_each(|(_, item)| names(&item, expected, errors)),
        _ => {}
    }
}

fn merge(live: &Value, mut configuration: Value, matched: &Matched, row: Option<&Resource>) -> Result<Value, String> {
    if let Value::Object(fields) = &mut configuration {
        for field in ["apiVersion", "kind"] {
            let own = live.get(field).cloned().unwrap_or_default();
            fields.insert(field.to_owned(), own);
        }
    }
    let kind = &matched.kind;
    let ty = match row {
        Some(row) => Some(object_type(row)),
        // Documents posted to subresources: only the core group's kinds are defined in the OpenAPI document of their
        // own version.
        None if kind.group.is_empty() => catalog::for_kind("", &kind.version, &kind.kind).map(ObjectType::built_in),
        None => None,
    };
    let merged = match ty {
        Some(ty) => merge_configuration(&ty, live, &configuration),
        None => Err(format!(
            "failed to convert patch object to typed object: no corresponding type for {}/{}, Kind={}",
            kind.group, kind.version, kind.kind
        )),
    };
    merged.map_err(|why| format!("error applying patch: {why}"))
}

/// Fits what merging left of `before` into its kind, but for defaults.
fn fit_merged(
    mut object: Value,
    before: &Value,
    session: &Session<'_>,
    matched: &Matched,
    row: Option<&Resource>,
) -> Result<Value, String> {
    let Some(row) = row else { return Ok(object) };
    session.fit(&mut object, before, row).map_err(|error| {
        let kind = &matched.kind;
        let why = whole_number(&error).unwrap_or_else(|| error.into());
        format!(
            "unable to convert unstructured object to {}/{}, Kind={}: {why}",
            kind.group, kind.version, kind.kind
        )
    })?;
    Ok(object)
}

/// The one mistake that merging lets through, in the words of the converter instead of the decoder's.
fn whole_number(error: &TypeError) -> Option<String> {
    match error {
        TypeError::Mismatch(TypeMismatch { value, type_, .. })
            if value.starts_with("number ") && type_.starts_with("int") =>
        {
            Some(format!("cannot convert float64 to {type_}"))
        }
        _ => None,
    }
}

/// Makes an object of its kind out of a patched value. A patched value that is not an object of its kind ends the
/// request, as upstream.
fn finish_patched(mut object: Value, session: &Session<'_>, row: Option<&Resource>) -> Result<Value, Failure> {
    let Some(row) = row else { return Ok(object) };
    session
        .complete_strictly(&mut object, row)
        .map_err(|why| Failure::Request(Status::internal(&why)))?;
    Ok(object)
}

impl Admission for MutatingPolicies {
    fn mutate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if is_exempt(attributes) || attributes.operation == Operation::Delete {
            return Admitted::YES;
        }
        let hooks = self.source.hooks(session, attributes);
        if hooks.is_empty() {
            return Admitted::YES;
        }
        Admitted::later(change(hooks, session, attributes, object, old))
    }
}
