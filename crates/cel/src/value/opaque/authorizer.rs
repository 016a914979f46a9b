//! Asking whether a user may do something:
//! `authorizer.group('').resource('pods').namespace('a').check('list').allowed()`.
//!
//! The caller decides the rights, through [`Authorizer`]; this module collects the question.

use std::fmt;
use std::rc::Rc;

use super::Called;
use super::Opaque;
use crate::error::Error;
use crate::value::Value;
use kubewright_values::names;

/// Decides whether the user of a request may do something.
pub trait Authorizer {
    /// The decision about one question.
    fn authorize(&self, question: &Question) -> Decision;
}

/// The question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Namespace and name of the service account that is asked about; otherwise it is the user of the request.
    pub service_account: Option<(String, String)>,
    /// The verb: of HTTP (`get`) for a path, of the API (`list`) for a resource.
    pub verb: String,
    /// The path, for requests that are not about resources.
    pub path: Option<String>,
    /// The resource, for the others.
    pub resource: Option<ResourceCheck>,
}

/// A resource that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceCheck {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty for all.
    pub namespace: String,
    /// Name, or empty for all.
    pub name: String,
    /// Field selector as it was written, or empty.
    pub field_selector: String,
    /// Label selector as it was written, or empty.
    pub label_selector: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The user may.
    pub allowed: bool,
    /// Why, or why not.
    pub reason: String,
    /// The error while deciding.
    pub error: Option<String>,
}

/// The authorizer, and the user that it decides about.
#[derive(Clone)]
pub struct Authorization<'a> {
    authorizer: Rc<dyn Authorizer + 'a>,
    service_account: Option<Rc<(String, String)>>,
}

impl fmt::Debug for Authorization<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorization").field(&self.service_account).finish()
    }
}

impl Authorization<'_> {
    fn decide<'b>(&self, verb: &str, path: Option<&str>, resource: Option<&ResourceCheck>) -> Value<'b> {
        let decision = self.authorizer.authorize(&Question {
            service_account: self.service_account.as_deref().cloned(),
            verb: verb.to_owned(),
            path: path.map(str::to_owned),
            resource: resource.cloned(),
        });
        Value::Opaque(Opaque::Decision(Rc::new(decision)))
    }
}

impl<'a> Value<'a> {
    /// The variable `authorizer` of policies and match conditions.
    pub fn authorizer(authorizer: Rc<dyn Authorizer + 'a>) -> Self {
        Self::Opaque(Opaque::Authorizer(Authorization {
            authorizer,
            service_account: None,
        }))
    }

    /// The variable `authorizer.requestResource`: a check about the resource of the request.
    pub fn request_resource(authorizer: Rc<dyn Authorizer + 'a>, resource: ResourceCheck) -> Self {
        let authorization = Authorization {
            authorizer,
            service_account: None,
        };
        Self::Opaque(Opaque::ResourceCheck(authorization, Rc::new(resource)))
    }
}

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    let [Value::Opaque(receiver), rest @ ..] = args else {
        return None;
    };
    match (receiver, rest) {
        (Opaque::Authorizer(who), _) => of_authorizer(overload, who, rest),
        (Opaque::GroupCheck(who, group), [Value::String(resource)]) if overload == "groupcheck_resource" => {
            Some(if resource.trim().is_empty() {
                Err(Error::new("resource must not be empty"))
            } else {
                let check = ResourceCheck {
                    group: group.to_string(),
                    resource: resource.to_string(),
                    ..ResourceCheck::default()
                };
                Ok(Value::Opaque(Opaque::ResourceCheck(who.clone(), Rc::new(check))))
            })
        }
        (Opaque::PathCheck(who, path), [Value::String(verb)]) if overload == "pathcheck_check" => {
            Some(Ok(who.decide(verb, Some(path), None)))
        }
        (Opaque::ResourceCheck(who, check), [Value::String(word)]) => of_resource(overload, who, check, word),
        (Opaque::Decision(decision), []) => Some(Ok(match overload {
            "decision_allowed" => Value::Bool(decision.allowed),
            "decision_reason" => Value::string(decision.reason.clone()),
            "decision_errored" => Value::Bool(decision.error.is_some()),
            "decision_error" => Value::string(decision.error.clone().unwrap_or_default()),
            _ => return None,
        })),
        _ => None,
    }
}

fn of_authorizer<'a>(overload: &str, who: &Authorization<'a>, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("authorizer_path", [Value::String(path)]) if path.trim().is_empty() => {
            Err(Error::new("path must not be empty"))
        }
        ("authorizer_path", [Value::String(path)]) => {
            Ok(Value::Opaque(Opaque::PathCheck(who.clone(), Rc::from(&**path))))
        }
        ("authorizer_group", [Value::String(group)]) => {
            Ok(Value::Opaque(Opaque::GroupCheck(who.clone(), Rc::from(&**group))))
        }
        ("authorizer_serviceaccount", [Value::String(namespace), Value::String(name)]) => {
            if !names::dns1123_subdomain(name).is_empty() {
                return Some(Err(Error::new("Invalid service account name")));
            }
            if !names::dns1123_label(namespace).is_empty() {
                return Some(Err(Error::new("Invalid service account namespace")));
            }
            Ok(Value::Opaque(Opaque::Authorizer(Authorization {
                authorizer: who.authorizer.clone(),
                service_account: Some(Rc::new((namespace.to_string(), name.to_string()))),
            })))
        }
        _ => return None,
    })
}

fn of_resource<'a>(overload: &str, who: &Authorization<'a>, check: &ResourceCheck, word: &str) -> Called<'a> {
    let mut check = check.clone();
    let slot = match overload {
        "resourcecheck_check" => return Some(Ok(who.decide(word, None, Some(&check)))),
        "resourcecheck_subresource" => &mut check.subresource,
        "resourcecheck_namespace" => &mut check.namespace,
        "resourcecheck_name" => &mut check.name,
        "authorizer_fieldselector" => &mut check.field_selector,
        "authorizer_labelselector" => &mut check.label_selector,
        _ => return None,
    };
    word.clone_into(slot);
    Some(Ok(Value::Opaque(Opaque::ResourceCheck(who.clone(), Rc::new(check)))))
}
