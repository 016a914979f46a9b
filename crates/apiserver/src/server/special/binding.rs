//! Bindings: which node a pod runs on (`BindingREST`), posted to the pod or to the collection of bindings.

use kubewright_schema::error::{FieldError, aggregate};
use kubewright_schema::names;
use serde_json::{Value, json};

use crate::model::status::{Details, Status};
use crate::model::{Minor, form, object};
use crate::server::options::WriteOptions;
use crate::server::respond::Reply;
use crate::server::update::invalid_object;
use crate::server::write::Part;
use crate::server::{Call, admit, decode, negotiate};
use crate::values::ensure;

impl Call<'_> {
    /// POST of a Binding to `/binding` of a pod: says on which node it runs.
    pub(crate) async fn bind(&mut self) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let format = negotiate::input(self.headers)?;
        let row = self
            .kinds
            .lookup("", "v1", "bindings")
            .ok_or_else(Status::no_such_path)?;
        let (validation, warnings) = (options.field_validation, &mut self.warnings);
        let mut binding = decode::object(self.body, format, &row, &self.kinds, validation, warnings)?;
        self.enter_sent(&row, &binding);
        self.fit_namespace(&mut binding)?;
        let name = self.name().to_owned();
        let binding = self
            .admit_posted(admit::kind("", "v1", "Binding"), &options, binding, Some(&name))
            .await?;
        self.bind_pod(&binding, &name, &options).await
    }

    /// POST of a Binding to the collection of bindings: it names the pod itself.
    pub(crate) async fn bind_what_it_names(&mut self) -> Result<Reply, Status> {
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let mut binding = self.object_in_body(&options)?;
        self.fit_namespace(&mut binding)?;
        object::wipe_system_fields(&mut binding);
        let binding = self
            .admit_posted(admit::kind("", "v1", "Binding"), &options, binding, None)
            .await?;
        let pods = self.kinds.lookup("", "v1", "pods").ok_or_else(Status::no_such_path)?;
        self.resource = pods;
        let name = object::name(&binding).to_owned();
        self.bind_pod(&binding, &name, &options).await
    }

    async fn bind_pod(&mut self, binding: &Value, name: &str, options: &WriteOptions) -> Result<Reply, Status> {
        let resource = self.resource.clone();
        let namespace = self.namespace().to_owned();
        let node = bound_node(binding, self.kinds.minor()).map_err(Status::untyped)?;
        let wanted = ["uid", "resourceVersion"].map(|field| object::text(binding, field).to_owned());
        let now = self.server.env.now();
        let mut writer = self.writer(options.dry_run);
        let conflict = |why: String| {
            let message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
            let details = Details {
                name: name.to_owned(),
                kind: "pods/binding".to_owned(),
                ..Details::default()
            };
            Status::failure(409, "Conflict", message).with_details(details)
        };
        writer
            .update(&namespace, name, Part::Raw, |old, _| {
                let present = old.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
                for (what, (field, wanted)) in ["UID", "ResourceVersion"]
                    .into_iter()
                    .zip(["uid", "resourceVersion"].into_iter().zip(&wanted))
                {
                    let present = object::text(old, field);
                    if !wanted.is_empty() && wanted != present {
                        let why = format!(
                            "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {present}"
                        );
                        let key = form::key(&namespace, name);
                        return Err(invalid_object(&resource, "/registry", &key, name, &why));
                    }
                }
                if object::is_terminating(old) {
                    return Err(conflict(format!(
                        "pod {name} is being deleted, cannot be assigned to a host"
                    )));
                }
                if !present.is_empty() {
                    return Err(conflict(format!("pod {name} is already assigned to node {present:?}")));
                }
                let gates = old.pointer("/spec/schedulingGates").and_then(Value::as_array);
                if gates.is_some_and(|gates| !gates.is_empty()) {
                    return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
                }
                let mut new = old.clone();
                copy_metadata(binding, &mut new);
                bound_to(&mut new, &node, now);
                Ok(new)
            })
            .await?;
        Ok(Reply::status(&Status::created()))
    }
}

/// The node of a Binding; the error is upstream's text.
fn bound_node(binding: &Value, minor: Minor) -> Result<String, String> {
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let mut errors = Vec::new();
    let kind = text("/target/kind");
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported(
            "target.kind",
            json!(kind),
            &["Node", "<empty>"],
        ));
    }
    let name = text("/target/name");
    if name.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    } else if minor >= Minor::V37 && errors.is_empty() {
        let wrong = names::dns1123_subdomain(name);
        errors.extend(
            wrong
                .into_iter()
                .map(|why| FieldError::invalid("target.name", name, why)),
        );
    }
    if errors.is_empty() {
        Ok(text("/target/name").to_owned())
    } else {
        Err(aggregate(&errors))
    }
}

fn copy_metadata(binding: &Value, pod: &mut Value) {
    for field in ["annotations", "labels"] {
        let Some(given) = binding
            .pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_object)
        else {
            continue;
        };
        let target = object::metadata_mut(pod).entry(field).or_insert_with(|| json!({}));
        if let Some(target) = target.as_object_mut() {
            target.extend(given.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}

/// Binds a pod to a node, as `pods/binding` does: the node's name, annotations and the condition `PodScheduled`.
fn bound_to(pod: &mut Value, node: &str, now: jiff::Timestamp) {
    let Some(object) = pod.as_object_mut() else { return };
    if let Some(spec) = ensure(object, "spec") {
        spec.insert("nodeName".to_owned(), node.into());
    }
    let Some(status) = ensure(object, "status") else { return };
    // The binding decides the nominated node.
    status.remove("nominatedNodeName");
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": kubewright_model::env::rfc3339(now)
    });
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => match conditions.iter_mut().find(|known| known["type"] == "PodScheduled") {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        },
        None => {
            status.insert("conditions".to_owned(), json!([condition]));
        }
    }
}
