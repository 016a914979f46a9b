//! Whether the expressions of ValidatingAdmissionPolicies fit the kinds that they are about (Kubernetes'
//! validatingadmissionpolicy-status controller): `status.typeChecking`, once for each generation.
//!
//! Where a kind is not known, or a rule names it by a wildcard, nothing is checked. Not here: whether a policy admits an
//! object (the API server decides it, whatever is said here).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Request as HttpRequest;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kubewright::kube;
use kubewright::{Action, Context, Controller, Error, Event, Reconciler, Result};
use kubewright_model::Minor;
use kubewright_model::facts::expression::Compiler;
use kubewright_objects::api::admissionregistration::v1::{
    ExpressionWarning, TypeChecking, ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec,
};
use kubewright_schema::declare::declare;
use kubewright_schema::{SchemaRef, catalog};
use serde_json::Value;

/// How many kinds of a rule are checked (`maxTypesToCheck`).
const MAX_KINDS: usize = 10;

/// Checks policies.
pub(crate) struct PolicyStatus(Minor);

/// The controller of ValidatingAdmissionPolicies.
pub(crate) fn controller(minor: Minor) -> Controller {
    Controller::of(PolicyStatus(minor))
        .named("validatingadmissionpolicy-status")
        .with_predicate(|event: &Event<ValidatingAdmissionPolicy>| !is_checked(event.object()))
}

/// Whether this generation was checked.
fn is_checked(policy: &ValidatingAdmissionPolicy) -> bool {
    let seen = policy.status.as_ref().and_then(|status| status.observed_generation);
    policy.metadata.generation.unwrap_or(0) <= seen.unwrap_or(0)
}

impl Reconciler for PolicyStatus {
    type Object = ValidatingAdmissionPolicy;

    async fn reconcile(&self, policy: Arc<ValidatingAdmissionPolicy>, ctx: Context) -> Result<Action> {
        let Some(spec) = policy.spec.as_ref().filter(|_| !is_checked(&policy)) else {
            return Ok(Action::await_change());
        };
        let mut kinds = Kinds {
            kube: ctx.client().kube(),
            minor: self.0,
            served: BTreeMap::new(),
        };
        let mut checked = Vec::new();
        for kind in kinds.of_rules(spec).await? {
            if let Some(schema) = kinds.schema(&kind).await? {
                checked.push((kind, schema));
            }
        }
        let param = spec.param_kind.as_ref().map(|param| {
            let (group, version) = split(param.api_version.as_deref().unwrap_or_default());
            (group, version, param.kind.clone().unwrap_or_default())
        });
        let params = match param {
            Some((group, version, kind)) => {
                let plural = kinds.plural(&group, &version, &kind).await?;
                let kind = Kind {
                    group,
                    version,
                    kind,
                    plural,
                };
                kinds.schema(&kind).await?
            }
            None => None,
        };
        let warnings = warnings(spec, &checked, params.as_ref());
        let mut next = (*policy).clone();
        let status = next.status.get_or_insert_default();
        status.observed_generation = policy.metadata.generation;
        status.type_checking = Some(TypeChecking {
            expression_warnings: (!warnings.is_empty()).then_some(warnings),
        });
        ctx.client().update_status(&next).await?;
        Ok(Action::await_change())
    }
}

/// A kind to check against, in the order of upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    group: String,
    version: String,
    kind: String,
    plural: String,
}

fn split(api_version: &str) -> (String, String) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_owned(), version.to_owned())
}

/// What the API server knows of kinds.
struct Kinds<'a> {
    kube: &'a kube::Client,
    minor: Minor,
    /// Plural names and kinds of each group and version that was asked for.
    served: BTreeMap<(String, String), Vec<(String, String)>>,
}

/// A GET whose answer may be that there is nothing of this kind.
async fn get<T: serde::de::DeserializeOwned>(kube: &kube::Client, path: String) -> Result<Option<T>> {
    let request = HttpRequest::get(path).body(Vec::new());
    let request = request.map_err(kube::core::request::Error::BuildRequest);
    let answer = kube.request(request.map_err(kube::Error::BuildRequest)?).await;
    match answer.map_err(Error::from) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl Kinds<'_> {
    async fn served(&mut self, group: &str, version: &str) -> Result<&[(String, String)]> {
        let key = (group.to_owned(), version.to_owned());
        if !self.served.contains_key(&key) {
            let path = match group {
                "" => format!("/api/{version}"),
                _ => format!("/apis/{group}/{version}"),
            };
            let list: Option<APIResourceList> = get(self.kube, path).await?;
            let all = list.into_iter().flat_map(|list| list.resources);
            let named = all.map(|one| (one.name, one.kind)).collect();
            self.served.insert(key.clone(), named);
        }
        Ok(&self.served[&key])
    }

    async fn plural(&mut self, group: &str, version: &str, kind: &str) -> Result<String> {
        let mut served = self.served(group, version).await?.iter();
        let found = served.find(|(plural, of)| of == kind && !plural.contains('/'));
        Ok(found.map(|(plural, _)| plural.clone()).unwrap_or_default())
    }

    /// The kinds that the rules name (`typesToCheck`).
    async fn of_rules(&mut self, spec: &ValidatingAdmissionPolicySpec) -> Result<BTreeSet<Kind>> {
        let mut found = BTreeSet::new();
        let rules = spec
            .match_constraints
            .iter()
            .flat_map(|all| all.resource_rules.iter().flatten());
        for rule in rules {
            let mut count = 0;
            for (group, version, plural) in named(
                rule.api_groups.as_ref(),
                rule.api_versions.as_ref(),
                rule.resources.as_ref(),
            ) {
                let served = self.served(&group, &version).await?;
                let Some((_, kind)) = served.iter().find(|(name, _)| *name == plural) else {
                    continue;
                };
                found.insert(Kind {
                    kind: kind.clone(),
                    group,
                    version,
                    plural,
                });
                count += 1;
                if count == MAX_KINDS {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// The schema of a kind; none of one that is not known.
    async fn schema(&self, kind: &Kind) -> Result<Option<SchemaRef>> {
        if let Some(schema) = catalog::of(self.minor).for_kind(&kind.group, &kind.version, &kind.kind) {
            return Ok(Some(schema));
        }
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}",
            kind.plural, kind.group
        );
        let definition: Option<Value> = get(self.kube, path).await?;
        let versions = definition
            .as_ref()
            .and_then(|found| found["spec"]["versions"].as_array());
        let mut versions = versions.into_iter().flatten();
        let version = versions.find(|version| version["name"] == kind.version.as_str());
        let schema = version.and_then(|version| SchemaRef::from_crd(&version["schema"]["openAPIV3Schema"]).ok());
        Ok(schema.map(|schema| of_resource(&schema)))
    }
}

/// The schema of a custom resource with the fields that every object has.
fn of_resource(schema: &SchemaRef) -> SchemaRef {
    let pod = catalog::for_kind("", "v1", "Pod");
    let common = ["apiVersion", "kind", "metadata"].into_iter().filter_map(|name| {
        let field = pod.as_ref()?.properties.get(name)?;
        Some((name.to_owned(), field.clone()))
    });
    let mut schema = (**schema).clone();
    schema.properties.extend(common);
    SchemaRef::new(schema)
}

/// Group, version and resource of all that a rule names, sorted; nothing when it gives a group or a version by wildcard.
fn named(
    groups: Option<&Vec<String>>,
    versions: Option<&Vec<String>>,
    resources: Option<&Vec<String>>,
) -> Vec<(String, String, String)> {
    let sorted = |names: Option<&Vec<String>>| {
        let mut all = names.cloned().unwrap_or_default();
        all.sort();
        all
    };
    let (groups, versions) = (sorted(groups), sorted(versions));
    if groups.iter().chain(&versions).any(|name| name.contains('*')) {
        return Vec::new();
    }
    let mut resources = sorted(resources);
    resources.retain(|name| !name.contains(['*', '/']));
    let mut all = Vec::new();
    for group in &groups {
        for version in &versions {
            all.extend(
                resources
                    .iter()
                    .map(|resource| (group.clone(), version.clone(), resource.clone())),
            );
        }
    }
    all
}

/// What does not fit (`TypeChecker.Check`).
fn warnings(
    spec: &ValidatingAdmissionPolicySpec,
    kinds: &[(Kind, SchemaRef)],
    params: Option<&SchemaRef>,
) -> Vec<ExpressionWarning> {
    let compilers = kinds.iter().map(|(kind, schema)| {
        let (object, params) = (
            declare(schema, true, &kind.kind),
            params.and_then(|params| declare(params, true, "Params")),
        );
        let mut compiler = Compiler::with_variables(spec.param_kind.is_some()).of_types(object, params);
        for variable in spec.variables.iter().flatten() {
            // One with a mistake may have any type; what names it is checked all the same.
            let _ = compiler.declare(&variable.name, &variable.expression);
        }
        (kind, compiler)
    });
    let compilers: Vec<_> = compilers.collect();
    let about = |source: &str| {
        let mistakes = compilers.iter().filter_map(|(kind, compiler)| {
            let mistake = compiler.mistake(source)?;
            let Kind {
                group, version, kind, ..
            } = kind;
            Some(format!("{group}/{version}, Kind={kind}: {mistake}\n"))
        });
        mistakes.collect::<Vec<_>>().join("\n")
    };
    let mut all = Vec::new();
    for (at, validation) in spec.validations.iter().flatten().enumerate() {
        let message = validation.message_expression.as_deref().unwrap_or_default();
        for (field, source) in [
            ("expression", validation.expression.as_str()),
            ("messageExpression", message),
        ] {
            let warning = match source {
                "" if field == "messageExpression" => continue,
                _ => about(source),
            };
            if !warning.is_empty() {
                let field_ref = format!("spec.validations[{at}].{field}");
                all.push(ExpressionWarning { field_ref, warning });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn which_kinds_a_rule_names() {
        let check = |groups: &[&str], versions: &[&str], resources: &[&str], expected: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let found = named(Some(&owned(groups)), Some(&owned(versions)), Some(&owned(resources)));
            let found: Vec<String> = found
                .iter()
                .map(|(group, version, name)| format!("{group}/{version}/{name}"))
                .collect();
            assert_eq!(found, expected);
        };
        check(
            &["apps"],
            &["v1"],
            &["b", "a", "a/scale", "*"],
            &["apps/v1/a", "apps/v1/b"],
        );
        check(&["*"], &["v1"], &["a"], &[]);
        check(&["apps"], &["*"], &["a"], &[]);
        check(&["b", ""], &["v1"], &["x"], &["/v1/x", "b/v1/x"]);
    }

    #[test]
    fn what_does_not_fit() {
        let check = |spec: Value, expected: &[(&str, &str)]| {
            let spec: ValidatingAdmissionPolicySpec = serde_json::from_value(spec).expect("a spec");
            let kind = |group: &str, kind: &str| {
                let schema = catalog::of(Minor::V36).for_kind(group, "v1", kind).expect("a kind");
                let (group, version, kind) = (group.to_owned(), "v1".to_owned(), kind.to_owned());
                let plural = String::new();
                (
                    Kind {
                        group,
                        version,
                        kind,
                        plural,
                    },
                    schema,
                )
            };
            let free = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": { "max": { "type": "integer" } } } } });
            let params = of_resource(&SchemaRef::from_crd(&free).expect("a schema"));
            let found = warnings(&spec, &[kind("", "Pod"), kind("apps", "Deployment")], Some(&params));
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|one| (one.field_ref.as_str(), one.warning.as_str()))
                .collect();
            assert_eq!(found, expected);
        };
        check(
            json!({ "validations": [{ "expression": "object.metadata.labels['a'] == 'b'" }, { "expression": "object.spec.replicas > 1" }] }),
            &[(
                "spec.validations[1].expression",
                "/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n",
            )],
        );
        let of_authorizer = "ERROR: <input>:1:11: unexpected failed resolution of 'kubernetes.authorization.Authorizer'\n | authorizer.requestResource.check('get').allowed()\n | ..........^\n";
        let both = format!("/v1, Kind=Pod: {of_authorizer}\napps/v1, Kind=Deployment: {of_authorizer}");
        check(
            json!({ "validations": [{ "expression": "authorizer.requestResource.check('get').allowed()" }] }),
            &[("spec.validations[0].expression", both.as_str())],
        );
        check(
            json!({ "paramKind": { "apiVersion": "a/v1", "kind": "B" },
                "variables": [{ "name": "max", "expression": "params.spec.max" }],
                "validations": [{ "expression": "variables.max > 'a'", "messageExpression": "params.spec.mx" }] }),
            &[
                (
                    "spec.validations[0].expression",
                    "/v1, Kind=Pod: ERROR: <input>:1:15: found no matching overload for '_>_' applied to '(int, string)'\n | variables.max > 'a'\n | ..............^\n\napps/v1, Kind=Deployment: ERROR: <input>:1:15: found no matching overload for '_>_' applied to '(int, string)'\n | variables.max > 'a'\n | ..............^\n",
                ),
                (
                    "spec.validations[0].messageExpression",
                    "/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'mx'\n | params.spec.mx\n | ...........^\n\napps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'mx'\n | params.spec.mx\n | ...........^\n",
                ),
            ],
        );
    }
}
