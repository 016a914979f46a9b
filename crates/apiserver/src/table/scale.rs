//! The row of Scale, the kind of the `/scale` subresource: it is served below other kinds only, so it is in no table of resources, but
//! clients may ask for it as a Table or for its metadata as for any other object.

use std::sync::{Arc, LazyLock};

use kubewright_schema::SchemaRef;

use super::NAME_DESCRIPTION;
use crate::kinds::check::get;
use crate::registry::{Cell, Column, PLAIN, Resource, Text, Verbs};

const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
    guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 \
    form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// How a Scale is shown.
pub(crate) fn resource() -> Arc<Resource> {
    static SCALE: LazyLock<Arc<Resource>> = LazyLock::new(|| Arc::new(row()));
    SCALE.clone()
}

fn column(name: &'static str, type_: &'static str, description: &'static str, cell: Cell) -> Column {
    Column {
        name: Text::Borrowed(name),
        type_: Text::Borrowed(type_),
        format: Text::Borrowed(""),
        description: Text::Borrowed(description),
        priority: 0,
        cell,
    }
}

fn row() -> Resource {
    Resource {
        group: Text::Borrowed("autoscaling"),
        version: Text::Borrowed("v1"),
        kind: Text::Borrowed("Scale"),
        list_kind: Text::Borrowed("ScaleList"),
        plural: Text::Borrowed("scales"),
        singular: Text::Borrowed("scale"),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Verbs::All,
        store: Text::Borrowed("scales.autoscaling"),
        storage_version: Text::Borrowed("v1"),
        subresources: Vec::new(),
        schema: SchemaRef::any(),
        schema_name: Text::Borrowed("io.k8s.api.autoscaling.v1.Scale"),
        selectable_fields: Vec::new(),
        columns: vec![
            column("Name", "string", NAME_DESCRIPTION, Cell::Name),
            column(
                "Desired",
                "integer",
                "replicas is the desired number of instances for the scaled object.",
                Cell::With(|scale, _| get(scale, &["spec", "replicas"]).as_i64().unwrap_or(0).into()),
            ),
            column(
                "Available",
                "integer",
                "replicas is the actual number of observed instances of the scaled object.",
                Cell::With(|scale, _| get(scale, &["status", "replicas"]).as_i64().unwrap_or(0).into()),
            ),
            column("Age", "string", AGE_DESCRIPTION, Cell::Age),
        ],
        strategy: PLAIN,
        custom: None,
        conversion: None,
    }
}
