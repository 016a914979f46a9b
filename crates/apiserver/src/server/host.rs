//! The services that the server offers to admission plugins.

use std::sync::Arc;

use kubewright_schema::rules::Patterns;
use kubewright_schema::schema::GroupVersionKind;
use serde_json::Value;

use super::{Inner, convert, managed, write};
use crate::admission::{Host, NextStatus};
use crate::authentication::Signer;
use crate::authorization::Authorizer;
use crate::env::{BoxFuture, Env};
use crate::model::Resource;
use crate::model::status::Status;
use crate::model::unfit::Unfit;
use crate::outbound::Outbound;
use crate::registry::Snapshot;
use crate::storage::{Storage, StoredObject};

impl Host for Inner {
    fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    fn env(&self) -> &dyn Env {
        self.env.as_ref()
    }

    fn outbound(&self) -> &dyn Outbound {
        self.outbound.as_ref()
    }

    fn authorizer(&self) -> &dyn Authorizer {
        self.authorizer.as_ref()
    }

    fn signer(&self) -> &dyn Signer {
        self.authenticator.service_accounts().signer()
    }

    fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    fn update_quota<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        next: NextStatus<'a>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(Inner::update_quota(self, namespace, name, next))
    }

    fn convert<'a>(
        &'a self,
        object: Value,
        from: &'a Resource,
        to: &'a Resource,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(Inner::convert(self, object, from, to))
    }

    fn show<'a>(
        &'a self,
        resource: &'a Resource,
        items: Vec<Arc<StoredObject>>,
    ) -> BoxFuture<'a, Result<Vec<Arc<StoredObject>>, Status>> {
        Box::pin(Inner::show(self, resource, items))
    }

    fn decode(&self, object: &mut Value, before: &Value, resource: &Resource, kinds: &Snapshot) -> Result<(), Unfit> {
        convert::decode_patched(object, before, resource, kinds)
    }

    fn decode_posted(&self, document: &mut Value, kind: &GroupVersionKind) -> Result<(), String> {
        convert::decode_posted(document, kind)
    }

    fn default(&self, object: &mut Value, resource: &Resource) {
        write::default_now(object, resource, self.env.now());
    }

    fn complete_strictly(&self, object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<(), String> {
        convert::complete_strictly(object, resource, kinds)
    }

    fn check_owners(&self, object: &mut Value, before: &Value) -> Option<String> {
        managed::check_admitted(object, before)
    }
}
