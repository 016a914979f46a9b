//! The writer of a policy with parameters must be allowed to read them: else a policy would read them for him.

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::super::{Admission, Admitted, Attributes, Operation, Session};
use super::compiled::ParamKind;
use crate::authorization::Attributes as Access;
use crate::model::status::Status;
use crate::model::user::{SYSTEM_MASTERS, UserInfo};
use crate::values::get;

const GROUP: &str = "admissionregistration.k8s.io";

/// Refuses policies and bindings whose parameters their writer may not read. It stands before all other validating
/// plugins, because its error is about the object, not about its admission.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParameterAccess;

impl ParameterAccess {
    fn check(
        self,
        session: &Session<'_>,
        attributes: &Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let resource = &attributes.resource;
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if resource.group != GROUP || !written || !attributes.subresource.is_empty() {
            return Ok(());
        }
        let old = old.unwrap_or(&Value::Null);
        let (field, found) = match resource.plural.as_ref() {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                ("paramKind", self.policy(session, attributes, object, old))
            }
            "validatingadmissionpolicybindings" => (
                "paramRef",
                self.binding(session, attributes, object, old, "validatingadmissionpolicies"),
            ),
            "mutatingadmissionpolicybindings" => (
                "paramRef",
                self.binding(session, attributes, object, old, "mutatingadmissionpolicies"),
            ),
            _ => return Ok(()),
        };
        found.map_err(|why| {
            let error = FieldError::forbidden(format!("spec.{field}"), why);
            Status::invalid(&resource.group, &resource.kind, &attributes.name, &[error])
        })
    }

    fn policy(self, session: &Session<'_>, attributes: &Attributes, object: &Value, old: &Value) -> Result<(), String> {
        let path = ["spec", "paramKind"];
        let given = get(object, &path);
        let user = &attributes.user;
        if given.is_null() || given == get(old, &path) || user.in_group(SYSTEM_MASTERS) {
            return Ok(());
        }
        let Some(kind) = ParamKind::new(given) else {
            return Ok(());
        };
        let access = Access {
            verb: "get".to_owned(),
            resource: plural(session, &kind),
            group: kind.group.clone(),
            namespace: "*".to_owned(),
            name: "*".to_owned(),
            ..Access::default()
        };
        if session.decide(user, &access).is_allowed() {
            return Ok(());
        }
        let text = |field: &str| get(given, &[field]).as_str().unwrap_or("").to_owned();
        Err(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(user),
            text("kind"),
            text("apiVersion")
        ))
    }

    fn binding(
        self,
        session: &Session<'_>,
        attributes: &Attributes,
        object: &Value,
        old: &Value,
        policies: &str,
    ) -> Result<(), String> {
        let given = get(object, &["spec", "paramRef"]);
        let policy = get(object, &["spec", "policyName"]);
        let same = given == get(old, &["spec", "paramRef"]) && policy == get(old, &["spec", "policyName"]);
        let user = &attributes.user;
        if given.is_null() || same || user.in_group(SYSTEM_MASTERS) {
            return Ok(());
        }
        let policy = policy.as_str().unwrap_or("");
        let stored = session
            .storage()
            .get(&format!("{policies}.admissionregistration.k8s.io"), policy);
        let kind = stored
            .as_ref()
            .and_then(|stored| ParamKind::new(get(stored.value(), &["spec", "paramKind"])));
        let text = |field: &str| get(given, &[field]).as_str().unwrap_or("").to_owned();
        let verb = if text("name").is_empty() { "list" } else { "get" };
        let (group, resource) = match &kind {
            Some(kind) => (kind.group.clone(), plural(session, kind)),
            None => ("*".to_owned(), "*".to_owned()),
        };
        let known = resource != "*";
        let access = Access {
            verb: verb.to_owned(),
            group: group.clone(),
            resource,
            namespace: text("namespace"),
            name: text("name"),
            ..Access::default()
        };
        if session.decide(user, &access).is_allowed() {
            return Ok(());
        }
        let user = shown(user);
        Err(match &kind {
            None if stored.is_none() => format!(
                "unable to get policy {policy} to determine minimum required permissions and user {user} does not have \"{verb}\" permission \
                 for all groups, versions and resources"
            ),
            Some(kind) if !known => format!(
                "unable to resolve paramKind &{{{} {}}} to determine minimum required permissions and user {user} does not have \"{verb}\" \
                 permission for all groups, versions and resources",
                kind.api_version(),
                kind.kind
            ),
            _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
        })
    }
}

/// The resource of a kind; every one for a kind that is not served.
fn plural(session: &Session<'_>, kind: &ParamKind) -> String {
    let row = session.kinds().by_kind(&kind.group, &kind.version, &kind.kind);
    row.map_or_else(|| "*".to_owned(), |row| row.plural.to_string())
}

/// A user as Go prints one (`%v`).
fn shown(user: &UserInfo) -> String {
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}

impl Admission for ParameterAccess {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        if attributes.resource.group != GROUP {
            return Admitted::YES;
        }
        Admitted::later(session.settled(move || (*self).check(session, attributes, object, old)))
    }
}
