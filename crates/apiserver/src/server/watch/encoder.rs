//! The lines of a watch: an event in the form that was asked for.

use std::sync::Arc;

use bytes::Bytes;
use kubewright_schema::protobuf::{self, order::Ordered};
use kubewright_schema::structural;
use serde_json::{Value, json};

use crate::env::Env;
use crate::json;
use crate::model::Resource;
use crate::model::form::full;
use crate::model::status::Status;
use crate::server::respond::{prefix, shown_from, table_of, write_object};
use crate::storage::{Change, StoredObject};
use crate::table::{self, IncludeObject, Shown};

/// In which form a watch shows objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Metadata only, of this version of `meta.k8s.io`.
    Partial(&'static str),
    /// A form that single objects do not have: the stream ends where the first would be written.
    Lists,
    /// A Table for each event; the columns are described in the first.
    Table {
        /// Version of `meta.k8s.io`.
        version: &'static str,
        /// The object beside the cells.
        include: IncludeObject,
        /// Whether the columns are still to be described.
        headers: bool,
    },
}

/// Makes lines of objects.
pub(crate) struct Encoder {
    pub(crate) resource: Arc<Resource>,
    pub(crate) form: Form,
    /// Whether events are protobuf, each behind its length, instead of lines of JSON.
    pub(crate) protobuf: bool,
    pub(crate) env: Arc<dyn Env>,
}

pub(super) fn line(kind: &str, object: &Value) -> Bytes {
    let mut out = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    json::write(&mut out, &Ordered::by_kind(object));
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}

impl Encoder {
    pub(super) fn plain(&self, kind: &str, stored: &StoredObject) -> Bytes {
        let mut out = Vec::with_capacity(stored.encoded().len() + 128);
        out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        write_object(&mut out, &self.resource, stored, &prefix(&self.resource));
        out.extend_from_slice(b"}\n");
        Bytes::from(out)
    }

    /// An event of the metadata only, cut out of the stored text where that can be.
    fn cut(&self, kind: &str, stored: &StoredObject, version: &str) -> Option<Bytes> {
        let mut out = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
        let is_cut = !self.protobuf && table::write_partial(&mut out, &self.resource, stored.encoded(), version);
        out.extend_from_slice(b"}\n");
        is_cut.then(|| Bytes::from(out))
    }

    /// An event of an object with `apiVersion` and `kind`, in the form of this watch.
    pub(super) fn frame(&self, kind: &str, object: &Value) -> Bytes {
        if !self.protobuf {
            return line(kind, object);
        }
        match protobuf::encode(object) {
            Ok(written) => protobuf::encode_event(kind, &written).into(),
            Err(error) => self.broken(error),
        }
    }

    /// The event for an object that cannot be written.
    pub(super) fn broken(&self, error: protobuf::EncodeError) -> Bytes {
        let status = Status::failure(500, "InternalError", format!("Internal error occurred: {error}"));
        let written = protobuf::encode(&status.to_value()).unwrap_or_default();
        protobuf::encode_event("ERROR", &written).into()
    }

    /// Whether the line of an object is a copy of its text.
    pub(super) fn copies(&self, stored: &StoredObject) -> bool {
        let resource = &self.resource;
        matches!(self.form, Form::Plain) && !self.protobuf && shown_from(resource, stored.encoded()).is_some()
    }

    pub(super) fn event(&mut self, kind: &str, stored: &StoredObject) -> Bytes {
        match &mut self.form {
            Form::Plain if self.protobuf => {
                let object = full(&self.resource, stored.value());
                self.frame(kind, &object)
            }
            Form::Plain => self.plain(kind, stored),
            Form::Partial(version) => {
                let version = *version;
                if let Some(line) = self.cut(kind, stored, version) {
                    return line;
                }
                let mut partial = table::partial(&full(&self.resource, stored.value()));
                partial["apiVersion"] = json!(version);
                self.frame(kind, &partial)
            }
            Form::Lists => Bytes::new(),
            Form::Table {
                version,
                include,
                headers,
            } => {
                let options = table::Options {
                    include: *include,
                    now: self.env.now(),
                    headers: std::mem::take(headers),
                };
                let object = full(&self.resource, stored.value());
                let metadata = json!({ "resourceVersion": stored.revision().to_string() });
                let shown = Shown {
                    object: &object,
                    stored: Some(stored.value()),
                };
                line(kind, &table_of(&self.resource, [shown], metadata, options, version))
            }
        }
    }

    /// The line of a change as this watch's reader sees it; plain lines of the stored version are shared by all
    /// watches.
    pub(super) fn change(&mut self, kind: &str, change: &Change) -> Bytes {
        let shared = matches!(self.form, Form::Plain)
            && !self.protobuf
            && kind == change.kind()
            && self.resource.version == self.resource.storage_version
            && self.resource.conversion.is_none();
        if shared {
            change.line(|| self.plain(kind, &change.after))
        } else {
            self.event(kind, &change.after)
        }
    }

    pub(super) fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let (api_version, kind) = match self.form {
            Form::Plain | Form::Table { .. } => (self.resource.api_version(), self.resource.kind.to_string()),
            Form::Partial(version) => (version.to_owned(), "PartialObjectMetadata".to_owned()),
            Form::Lists => return Bytes::new(),
        };
        let mut object =
            json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": revision.to_string()}});
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        // A Table has a row for it, as for any object.
        if let Form::Table {
            version,
            include,
            headers,
        } = &mut self.form
        {
            let options = table::Options {
                include: *include,
                now: self.env.now(),
                headers: std::mem::take(headers),
            };
            let metadata = json!({ "resourceVersion": revision.to_string() });
            let version = *version;
            let table = table_of(&self.resource, [&object], metadata, options, version);
            return self.frame("BOOKMARK", &table);
        }
        if matches!(self.form, Form::Plain) && self.resource.custom.is_none() {
            // A bookmark is an empty object of the kind, with the fields that Go writes.
            structural::go_normalize(&mut object, &self.resource.schema);
        }
        self.frame("BOOKMARK", &object)
    }
}
