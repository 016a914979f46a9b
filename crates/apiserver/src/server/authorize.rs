//! The attributes of a request for the authorizer, and its user: `RequestInfo` of apiserver, and impersonation.

use http::HeaderMap;
use kubewright_schema::fields::FieldSelector;
use kubewright_schema::labels::Selector;
use kubewright_schema::names;

use super::Inner;
use super::route::{ResourcePath, Verb};
use super::watch::MAX_SELECTOR;
use crate::audit::Entry;
use crate::authorization::{Attributes, impersonation, refused};
use crate::model::Resource;
use crate::model::status::Status;
use crate::model::user::UserInfo;
use crate::wire::query::Query;

/// The attributes of a request on a resource. No verb stands for a method that resources never take.
pub(crate) fn resource_attributes(path: &ResourcePath, verb: Option<Verb>, query: &Query) -> Attributes {
    let mut attributes = Attributes {
        verb: verb.map_or("", Verb::as_str).to_owned(),
        group: path.group.clone(),
        version: path.version.clone(),
        resource: path.plural.clone(),
        subresource: path.subresource.clone().unwrap_or_default(),
        namespace: path.namespace.clone().unwrap_or_default(),
        name: path.name.clone().unwrap_or_default(),
        ..Attributes::default()
    };
    if !matches!(verb, Some(Verb::List | Verb::Watch | Verb::DeleteCollection)) {
        return attributes;
    }
    let (fields, labels) = (query.get("fieldSelector"), query.get("labelSelector"));
    // Selectors that are malformed or too long narrow nothing; the verb will refuse them.
    if fields.len().max(labels.len()) > MAX_SELECTOR {
        return attributes;
    }
    if let Ok(selector) = FieldSelector::parse(fields) {
        // A user who may list one object by its name may ask for a list of that one.
        let one = selector.exact("metadata.name").unwrap_or("");
        if attributes.name.is_empty()
            && verb != Some(Verb::DeleteCollection)
            && names::path_segment_name(one).is_empty()
        {
            one.clone_into(&mut attributes.name);
        }
        attributes.field_selector = selector.requirements().to_vec();
    }
    if let Ok(selector) = Selector::parse(labels) {
        attributes.label_selector = selector.requirements().to_vec();
    }
    attributes
}

/// The attributes of something that a request does beside what its method says.
pub(super) fn further_attributes(verb: &str, resource: &Resource, namespace: &str, name: &str) -> Attributes {
    Attributes {
        verb: verb.to_owned(),
        group: resource.group.to_string(),
        version: resource.version.to_string(),
        resource: resource.plural.to_string(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

/// Why a request is not answered.
pub(super) enum NotAdmitted {
    /// The user is forbidden the request, or the headers do not say which user it impersonates.
    Refused(Status),
    /// An authorizer failed, and no other one allows it.
    Unknown(String),
}

impl From<Status> for NotAdmitted {
    fn from(status: Status) -> NotAdmitted {
        NotAdmitted::Refused(status)
    }
}

impl Inner {
    /// Whether the user may; the error is the 403.
    pub(crate) async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<(), Status> {
        let decision = self.authorizer.decide(user, attributes).decision().await;
        match decision.is_allowed() {
            true => Ok(()),
            false => Err(refused(user, attributes, &decision.reason)),
        }
    }

    /// The user for whom a request is answered: the authenticated one, or the one that he impersonates
    /// (`WithImpersonation`).
    pub(super) async fn impersonated(
        &self,
        user: UserInfo,
        headers: &HeaderMap,
        attributes: &Attributes,
        entry: Option<&Entry>,
    ) -> Result<UserInfo, NotAdmitted> {
        let Some(wanted) = impersonation::requested(headers)? else {
            return Ok(user);
        };
        let authorizer = &*self.authorizer;
        let becoming = self.impersonation.become_user(authorizer, &user, &wanted, attributes);
        let (user, constraint) = becoming.await?;
        if let Some(entry) = entry {
            entry.impersonated(&user, constraint);
        }
        Ok(user)
    }

    /// Whether the user may make the request (`WithAuthorization`).
    pub(super) async fn admit(
        &self,
        user: &UserInfo,
        attributes: &Attributes,
        entry: Option<&Entry>,
    ) -> Result<(), NotAdmitted> {
        let decision = self.authorizer.decide(user, attributes).decision().await;
        let allowed = decision.is_allowed();
        if !allowed && !decision.error.is_empty() {
            if let Some(entry) = entry {
                entry.annotate("authorization.k8s.io/reason", "internal error");
            }
            return Err(NotAdmitted::Unknown(decision.error));
        }
        if let Some(entry) = entry {
            entry.annotate(
                "authorization.k8s.io/decision",
                if allowed { "allow" } else { "forbid" },
            );
            entry.annotate("authorization.k8s.io/reason", decision.reason.clone());
        }
        match allowed {
            true => Ok(()),
            false => Err(refused(user, attributes, &decision.reason).into()),
        }
    }
}
