//! What errors lead to, and what they say.

use super::*;

fn api(code: u16, reason: &str, message: &str) -> Error {
    kube::Error::Api(Status::failure(message, reason).with_code(code).boxed()).into()
}

/// R5: the variant, and with it the reaction of the queue, follows from the server's reason.
#[test]
fn server_refusals_sort_themselves() {
    let check = |error: Error, conflict: bool, missing: bool, exists: bool, unknown: bool| {
        assert_eq!(
            (
                error.is_conflict(),
                error.is_not_found(),
                error.is_already_exists(),
                error.outcome_unknown()
            ),
            (conflict, missing, exists, unknown),
            "{error:?}"
        );
    };
    check(api(409, "Conflict", "changed"), true, false, false, false);
    check(api(409, "AlreadyExists", "there"), false, false, true, false);
    check(api(404, "NotFound", "gone"), false, true, false, false);
    check(api(504, "Timeout", "slow"), false, false, false, true);
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    check(kube::Error::Service(refused.into()).into(), false, false, false, false);
    check(
        kube::Error::Service("connection closed".into()).into(),
        false,
        false,
        false,
        true,
    );
    check(Error::terminal("no"), false, false, false, false);
}

/// An error that has passed through other code leads to what it led to before, and keeps what was added to it.
#[test]
fn errors_keep_their_class_on_their_way() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the shop")]
    struct Added(#[source] Error);
    let added = |error: Error| Error::from(BoxError::from(Added(error)));
    let check = |error: Error, terminal: bool, conflict: bool, reason: &str, text: &str| {
        let seen = (error.is_terminal(), error.is_conflict(), error.reason().to_owned());
        assert_eq!(seen, (terminal, conflict, reason.to_owned()), "{error:?}");
        assert_eq!(error.to_string(), text);
    };
    check(
        BoxError::from(Error::terminal("no")).into(),
        true,
        false,
        "Invalid",
        "no",
    );
    check(
        added(Error::terminal("sold")),
        true,
        false,
        "Invalid",
        "cannot open the shop: sold",
    );
    check(
        added(api(409, "Conflict", "changed")),
        false,
        true,
        "Conflict",
        "cannot open the shop: changed",
    );
    check(
        added(Error::retry("later")),
        false,
        false,
        "Failed",
        "cannot open the shop: later",
    );
    check(BoxError::from("odd").into(), false, false, "Failed", "odd");
    check(
        BoxError::from(api(403, "Forbidden", "you may not")).into(),
        false,
        false,
        "Forbidden",
        "you may not",
    );
    check(
        "x".parse::<u8>().expect_err("no number").into(),
        true,
        false,
        "Invalid",
        "invalid digit found in string",
    );
    let passed = added(Error::retry_after(Duration::from_secs(7), "busy"));
    assert!(matches!(passed.deciding(), Error::RetryAfter { after, .. } if after.as_secs() == 7));
}

#[test]
fn texts_name_the_attempt_and_the_servers_sentence() {
    let error = Error::from_api(
        "create ConfigMap default/a",
        kube::Error::Api(
            Status::failure("configmaps \"a\" is forbidden", "Forbidden")
                .with_code(403)
                .boxed(),
        ),
    );
    assert_eq!(
        error.to_string(),
        "create ConfigMap default/a: configmaps \"a\" is forbidden"
    );
}
