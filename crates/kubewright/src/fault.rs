//! The state of a request after an error of the HTTP client: whether it was sent, and whether it may be sent again.

use std::io;

use hyper_util::client::legacy;
use kubewright_engine::retry::Fault;

/// The fault of the request in a client's error.
pub(crate) fn fault_of(error: &kube::Error) -> Fault {
    match error {
        kube::Error::Api(status) => Fault::Status {
            code: status.code,
            retry_after: None,
        },
        // Nothing was sent: the request, its credentials or its connection could not be made.
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => Fault::Lasting,
        kube::Error::Auth(_) => Fault::NotSent,
        kube::Error::FromUtf8(_) | kube::Error::SerdeError(_) => Fault::Lasting,
        other if refused_connection(other) => Fault::NotSent,
        _ => Fault::Lost,
    }
}

/// Whether the error, or one that it comes from, says that there was no connection to send anything on.
fn refused_connection(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<legacy::Error>() {
            return error.is_connect();
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionRefused;
        }
        next = error.source();
    }
    false
}
