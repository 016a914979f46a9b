//! ComponentStatus: the health of the parts of the control plane, checked at each request. Nothing is stored.
//!
//! Only the storage is listed: it is a part of this process. The scheduler and the controller manager, which
//! kube-apiserver asks at their own addresses, are operators here: they have no address, and their work shows in the
//! cluster alone. There is no etcd.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::model::status::{Details, Status};
use crate::server::Call;
use crate::server::Inner;
use crate::server::lists::{Item, List};
use crate::server::respond::{Content, Reply};
use crate::storage::StoredObject;

/// The names of the components.
const COMPONENTS: [&str; 1] = ["storage"];

impl Inner {
    fn component(&self, name: &str) -> Value {
        let condition = match self.storage.trouble() {
            None => json!({"type": "Healthy", "status": "True", "message": "ok"}),
            Some(why) => json!({"type": "Healthy", "status": "False", "message": why}),
        };
        json!({"metadata": {"name": name}, "conditions": [condition]})
    }
}

impl Call<'_> {
    pub(crate) fn get_component(&self) -> Result<Reply, Status> {
        let name = self.name();
        if !COMPONENTS.contains(&name) {
            let details = Details {
                name: name.to_owned(),
                kind: "componentstatus".to_owned(),
                ..Details::default()
            };
            let message = format!("componentstatus \"{name}\" not found");
            return Err(Status::failure(404, "NotFound", message).with_details(details));
        }
        let object = crate::model::form::with_kind(&self.resource, self.server.component(name));
        Ok(Reply::new(200, Content::Object(self.resource.clone(), object)))
    }

    pub(crate) fn list_components(&self) -> Result<Reply, Status> {
        let selection = self.selection()?;
        let items = COMPONENTS
            .iter()
            .map(|name| self.server.component(name))
            .filter(|object| selection.matches(object))
            .map(|object| Item::Read(Arc::new(StoredObject::ordered(object, self.resource.order()))));
        let list = List {
            resource_version: String::new(),
            continue_token: String::new(),
            remaining: None,
            items: items.collect(),
        };
        Ok(Reply::new(200, Content::List(self.resource.clone(), list)))
    }
}
