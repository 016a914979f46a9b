//! `authorizer` in expressions: the server's own authorizer, asked about the user of the request or a service account.

use std::rc::Rc;

use kubewright_cel::value::Value as Cel;
use kubewright_cel::value::opaque::authorizer::{Authorizer, Decision, Question, ResourceCheck};

use super::super::{Attributes, Session};
use super::activation::Authorizers;
use crate::authorization::Attributes as Access;
use crate::model::user::{UserInfo, service_account_groups, service_account_name};

struct CelAuthorizer<'a> {
    session: &'a Session<'a>,
    user: &'a UserInfo,
}

impl Authorizer for CelAuthorizer<'_> {
    fn authorize(&self, question: &Question) -> Decision {
        let mut access = Access {
            verb: question.verb.clone(),
            path: question.path.clone().unwrap_or_default(),
            ..Access::default()
        };
        if let Some(check) = &question.resource {
            "*".clone_into(&mut access.version);
            access.group.clone_from(&check.group);
            access.resource.clone_from(&check.resource);
            access.subresource.clone_from(&check.subresource);
            access.namespace.clone_from(&check.namespace);
            access.name.clone_from(&check.name);
        }
        let account = question
            .service_account
            .as_ref()
            .map(|(namespace, name)| service_account(namespace, name));
        let user = account.as_ref().unwrap_or(self.user);
        let decision = self.session.decide(user, &access);
        Decision {
            allowed: decision.is_allowed(),
            reason: decision.reason,
            error: (!decision.error.is_empty()).then_some(decision.error),
        }
    }
}

fn service_account(namespace: &str, name: &str) -> UserInfo {
    let groups = service_account_groups(namespace);
    UserInfo::authenticated(
        &service_account_name(namespace, name),
        groups.iter().map(String::as_str),
    )
}

/// The variables for a request.
pub(super) fn bind<'a>(session: &'a Session<'a>, attributes: &'a Attributes) -> Option<Authorizers<'a>> {
    let asked = Rc::new(CelAuthorizer {
        session,
        user: &attributes.user,
    });
    let resource = ResourceCheck {
        group: attributes.resource.group.to_string(),
        resource: attributes.resource.plural.to_string(),
        subresource: attributes.subresource.clone(),
        namespace: attributes.namespace.clone(),
        name: attributes.name.clone(),
        ..ResourceCheck::default()
    };
    Some(Authorizers {
        authorizer: Cel::authorizer(asked.clone()),
        request_resource: Cel::request_resource(asked, resource),
    })
}
