//! ComponentStatus: the health of the parts of the control plane, checked at each request. Nothing is stored.
//!
//! The storage is a part of this process, and its state is known. The scheduler and the controller manager, which
//! kube-apiserver asks at their own addresses, are operators here: they have no address, so that nothing is said of
//! them but that. Clients that look for them by name (kube's own tests do) find them. There is no etcd.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::model::status::{Details, Status};
use crate::server::Call;
use crate::server::Inner;
use crate::server::lists::{Item, List};
use crate::server::respond::{Content, Reply};
use crate::storage::StoredObject;

/// The names of the components.
const COMPONENTS: [&str; 3] = ["controller-manager", "scheduler", STORAGE];
const STORAGE: &str = "storage";

/// The message about a component that serves no health endpoint.
const UNKNOWN: &str = "it runs inside this program and reports no health of its own";

impl Inner {
    fn component(&self, name: &str) -> Value {
        let condition = match self.storage.trouble() {
            _ if name != STORAGE => json!({"type": "Healthy", "status": "Unknown", "message": UNKNOWN}),
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
