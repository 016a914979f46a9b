//! What the API server asks before it stores an HTTPRoute.

use kubewright::prelude::*;

use external_api::external::gateway_networking::v1;

/// Says which httproutes may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct HTTPRouteValidator;

impl Validator for HTTPRouteValidator {
    type Object = v1::HTTPRoute;

    /// Called before an HTTPRoute is created.
    async fn create(&self, httproute: &v1::HTTPRoute, _: &AdmissionRequest) -> Result<(), Denied> {
        let mut errors = FieldErrors::new();
        if httproute.spec.hostnames.is_empty() {
            errors.required("spec.hostnames", "a route is for some hosts");
        }
        errors.into_result()
    }

    /// Called before an HTTPRoute is changed.
    async fn update(
        &self,
        _: &v1::HTTPRoute,
        httproute: &v1::HTTPRoute,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(httproute, request).await
    }
}

/// The webhooks of httproutes, and what the API server is told about them.
pub fn webhook() -> Webhook<v1::HTTPRoute> {
    Webhook::of::<v1::HTTPRoute>().validator(HTTPRouteValidator)
}
