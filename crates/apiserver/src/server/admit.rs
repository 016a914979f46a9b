//! Writes and admission: the attributes for plugins, and the object that they see.
//!
//! Plugins see the document of the client: for `/scale` the Scale, for a subresource that takes a document of its own
//! (binding, eviction) that document. Writes that the server makes because of it are not admitted again.

use kubewright_schema::schema::GroupVersionKind;
use serde_json::{Value, json};

use super::options::WriteOptions;
use super::special::scale;
use super::write::{Part, Writer};
use super::{Call, managed};
use crate::admission::{self, Admitted, Operation, Session};
use crate::model::object;
use crate::model::status::Status;
use crate::scheme::join_version;

impl<'a> Writer<'a> {
    /// The attributes of a write for admission; the kind of the object is the resource's own.
    pub(crate) fn attributes(
        &self,
        operation: Operation,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> admission::Attributes {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => "",
        };
        let mut options = self.options.clone();
        if let Some(options) = options.as_object_mut() {
            options.insert("kind".to_owned(), kind.into());
            options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        }
        // A request to a namespace counts as one in it.
        admission::Attributes {
            resource: self.resource.clone(),
            subresource: subresource.to_owned(),
            kind: self.resource.group_version_kind(),
            operation,
            namespace: if self.resource.is_namespace() { name } else { namespace }.to_owned(),
            name: name.to_owned(),
            user: self.user.clone(),
            dry_run: self.dry_run,
            options,
        }
    }

    /// The state that the plugins share for one object.
    pub(crate) fn session(&self) -> Session<'a> {
        Session::new(self.server, self.server.registry.snapshot(), self.audit)
    }

    /// Lets the plugins change an object; in a second round when a webhook asks for it.
    pub(crate) async fn mutate(
        &self,
        session: &Session<'_>,
        attributes: &admission::Attributes,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        loop {
            for plugin in &self.server.admission {
                match plugin.mutate(session, attributes, object, old) {
                    Admitted::Now(answer) => answer?,
                    Admitted::Later(answer) => answer.await?,
                }
            }
            if !session.next_round() {
                return Ok(());
            }
        }
    }

    /// Lets the plugins refuse an object.
    pub(crate) async fn validate(
        &self,
        session: &Session<'_>,
        attributes: &admission::Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        for plugin in &self.server.admission {
            match plugin.validate(session, attributes, object, old) {
                Admitted::Now(answer) => answer?,
                Admitted::Later(answer) => answer.await?,
            }
        }
        Ok(())
    }

    /// Lets plugins change the object of an update.
    pub(crate) async fn admit_update(
        &self,
        session: &Session<'_>,
        attributes: &admission::Attributes,
        new: &mut Value,
        old: &Value,
        part: Part,
    ) -> Result<(), Status> {
        match part {
            Part::Raw => Ok(()),
            Part::Whole => {
                let Some(paths) = scale::paths(&self.resource) else {
                    return Ok(());
                };
                let (mut shown, old) = (scale::owned(new, paths)?, scale::owned(old, paths)?);
                self.mutate(session, attributes, &mut shown, Some(&old)).await?;
                scale::take_replicas(new, &shown, paths);
                Ok(())
            }
            _ => self.mutate(session, attributes, new, Some(old)).await,
        }
    }

    /// Lets plugins refuse the object that an update would store.
    pub(crate) async fn admit_updated(
        &self,
        session: &Session<'_>,
        attributes: &admission::Attributes,
        new: &Value,
        old: &Value,
        part: Part,
    ) -> Result<(), Status> {
        match part {
            Part::Raw => Ok(()),
            Part::Whole => {
                let Some(paths) = scale::paths(&self.resource) else {
                    return Ok(());
                };
                let (shown, old) = (scale::of_any(new, paths)?, scale::of_any(old, paths)?);
                self.validate(session, attributes, &shown, Some(&old)).await
            }
            _ => self.validate(session, attributes, new, Some(old)).await,
        }
    }

    /// The attributes of an update of a part for admission.
    pub(crate) fn update_attributes(&self, old: &Value, name: &str, part: Part) -> admission::Attributes {
        let namespace = object::namespace(old);
        let mut attributes = self.attributes(Operation::Update, part.subresource(), namespace, name);
        if part == Part::Whole {
            attributes.subresource = scale::NAME.to_owned();
            attributes.kind = scale::group_version_kind();
        }
        attributes
    }
}

/// Group, version and kind of a document that a subresource takes.
pub(crate) fn kind(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    }
}

impl Call<'_> {
    /// Shows a document that was posted to a subresource to the plugins; their result is the document that counts.
    /// `names` is the name that it must have then, if it must have one.
    pub(crate) async fn admit_posted(
        &mut self,
        kind: GroupVersionKind,
        options: &WriteOptions,
        mut document: Value,
        names: Option<&str>,
    ) -> Result<Value, Status> {
        let api_version = join_version(&kind.group, &kind.version);
        if let Some(map) = document.as_object_mut() {
            map.insert("apiVersion".to_owned(), json!(api_version));
            map.insert("kind".to_owned(), json!(kind.kind));
        }
        if self.resource.namespaced {
            let namespace = json!(self.namespace());
            object::metadata_mut(&mut document)
                .entry("namespace")
                .or_insert(namespace);
        }
        let writer = self.tracked_writer(options);
        let subresource = self.path.subresource.clone().unwrap_or_default();
        let now = crate::env::rfc3339(self.server.env.now());
        managed::track_posted(&kind, &subresource, writer.tracking.manager(), &mut document, &now);
        // A document that is posted to a collection brings its name.
        let name = match self.name() {
            "" => object::name(&document),
            name => name,
        };
        let mut attributes = writer.attributes(Operation::Create, &subresource, self.namespace(), name);
        attributes.kind = kind;
        let session = writer.session();
        let mut admitted = writer.mutate(&session, &attributes, &mut document, None).await;
        if admitted.is_ok() && names.is_some_and(|wanted| object::name(&document) != wanted) {
            let kind = &attributes.kind.kind;
            let message = format!("name in URL does not match name in {kind} object");
            admitted = Err(Status::bad_request(message));
        }
        if admitted.is_ok() {
            admitted = writer.validate(&session, &attributes, &document, None).await;
        }
        self.warnings.extend(session.take_warnings());
        admitted.map(|()| document)
    }
}
