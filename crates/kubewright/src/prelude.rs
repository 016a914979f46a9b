//! The items that nearly every operator needs: `use kubewright::prelude::*;`

pub use std::sync::Arc;
pub use std::time::Duration;

pub use crate::kube::core::ObjectMeta;
pub use crate::kube::{CustomResource, Resource, ResourceExt};
pub use crate::tracing;
pub use crate::{
    Action, AdmissionRequest, Cleanup, Client, Context, Controller, Conversion, Defaulter, Denied, Error, EventType,
    Fails, FieldErrors, Manager, Object, Operator, Reconciler, Request, Result, Source, Stop, Validator, Waker, Watch,
    Webhook, rbac,
};
