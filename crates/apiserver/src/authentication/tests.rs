//! Credentials and the identities that follow.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::model::testing::{FakeEnv, Shared};
use crate::storage::MemoryStorage;

/// A "signature" that is the message behind a word: enough to tell the signers apart.
pub(crate) struct TestSigner(pub(crate) &'static str);

impl Signer for TestSigner {
    fn key_id(&self) -> Result<String, SignerError> {
        Ok(self.0.to_owned())
    }

    fn algorithm(&self) -> &'static str {
        "TEST"
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignerError> {
        Ok([self.0.as_bytes(), message].concat())
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        signature.strip_prefix(self.0.as_bytes()) == Some(message)
    }

    fn jwk(&self) -> Result<Value, SignerError> {
        Ok(json!({"kid": self.0, "alg": "TEST"}))
    }

    fn proves(&self, _: &crate::model::facts::signing_request::SigningRequest) -> bool {
        true
    }
}

const ISSUER: &str = "https://issuer";

struct World {
    env: Arc<FakeEnv>,
    storage: Arc<MemoryStorage>,
    authenticator: Authenticator,
}

impl World {
    fn new() -> World {
        let env = FakeEnv::new();
        let storage = Arc::new(MemoryStorage::new(16, 16));
        let tokens = StaticTokens::parse("static,jane,7,dev").expect("a token file");
        let authenticator = Authenticator::new(
            tokens,
            ISSUER,
            Arc::new(TestSigner("key")),
            storage.clone(),
            Arc::new(Shared(env.clone())),
        );
        World {
            env,
            storage,
            authenticator,
        }
    }

    fn put(&self, store: &str, key: &str, uid: &str) {
        let object = json!({"metadata": {"name": key, "uid": uid}});
        self.storage.create(store, key, object).expect("nothing is there");
    }

    fn remove(&self, store: &str, key: &str) {
        let revision = self.storage.get(store, key).expect("it is there").revision();
        self.storage.delete(store, key, revision).expect("nobody else deletes");
    }

    /// The user of a token, or the error in it.
    fn who(&self, token: &str, audiences: &[&str]) -> String {
        let audiences: Vec<String> = audiences.iter().map(|&audience| audience.to_owned()).collect();
        let mut headers = HeaderMap::new();
        let value = format!("Bearer {token}").parse().expect("a header");
        headers.insert(AUTHORIZATION, value);
        match self
            .authenticator
            .authenticate(&Identity::Anonymous, &headers, &audiences)
        {
            Ok(found) => found.user.name,
            Err(why) => why,
        }
    }

    fn issue(&self, subject: &TokenSubject) -> String {
        let accounts = self.authenticator.service_accounts();
        accounts
            .issue(subject, Shared(self.env.clone()).now())
            .expect("a key")
            .0
    }
}

fn bound(name: &str, uid: &str) -> Bound {
    Bound {
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}

fn subject() -> TokenSubject {
    TokenSubject {
        namespace: "n".to_owned(),
        account: bound("s", "u1"),
        audiences: vec![ISSUER.to_owned()],
        seconds: 600,
        ..TokenSubject::default()
    }
}

#[test]
fn the_first_credentials_that_prove_something_win() {
    let world = World::new();
    let check = |identity: &Identity, authorization: Option<&str>, want: Result<&str, &str>| {
        let mut headers = HeaderMap::new();
        if let Some(text) = authorization {
            headers.insert(AUTHORIZATION, text.parse().expect("a header"));
        }
        let got = world
            .authenticator
            .authenticate(identity, &headers, &[ISSUER.to_owned()]);
        let got = got.map(|found| found.user.name);
        assert_eq!(
            got.as_deref().map_err(String::as_str),
            want,
            "{identity:?} {authorization:?}"
        );
    };
    let admin = Identity::User(UserInfo::admin());
    check(&admin, None, Ok("kubernetes-admin"));
    check(&admin, Some("Bearer wrong"), Ok("kubernetes-admin"));
    check(&Identity::Rejected, Some("Bearer static"), Ok("jane"));
    check(
        &Identity::Rejected,
        None,
        Err("x509: certificate signed by unknown authority"),
    );
    let anonymous = Identity::Anonymous;
    check(&anonymous, None, Ok("system:anonymous"));
    check(&anonymous, Some("Basic dTpw"), Ok("system:anonymous"));
    check(&anonymous, Some("Bearer"), Ok("system:anonymous"));
    check(&anonymous, Some("Bearer  static"), Ok("system:anonymous"));
    check(&anonymous, Some("bEARER static"), Ok("jane"));
    check(&anonymous, Some("Bearer static more"), Ok("jane"));
    check(&anonymous, Some("Bearer wrong"), Err("invalid bearer token"));
}

#[test]
fn a_token_may_be_a_protocol_of_a_websocket() {
    let world = World::new();
    // In base64url without padding.
    let (right, wrong) = ("c3RhdGlj", "d3Jvbmc");
    let check = |identity: &Identity, authorization: &str, token: &str, want: Result<&str, &str>| {
        let mut headers = HeaderMap::new();
        let protocols = format!("v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{token}");
        let all = [
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("authorization", authorization),
        ];
        for (name, value) in all.into_iter().chain([("sec-websocket-protocol", protocols.as_str())]) {
            headers.insert(name, value.parse().expect("a header"));
        }
        let audiences = [ISSUER.to_owned()];
        let got = world.authenticator.authenticate(identity, &headers, &audiences);
        let got = got.map(|found| found.user.name);
        assert_eq!(
            got.as_deref().map_err(String::as_str),
            want,
            "{authorization:?} {token}"
        );
    };
    let anonymous = Identity::Anonymous;
    check(&anonymous, "", right, Ok("jane"));
    check(&Identity::Rejected, "", right, Ok("jane"));
    check(&anonymous, "Bearer wrong", right, Ok("jane"));
    check(&anonymous, "Bearer static", wrong, Ok("jane"));
    check(&anonymous, "", wrong, Err("invalid bearer token"));
    check(
        &anonymous,
        "",
        "*",
        Err("invalid base64.bearer.authorization token encoding"),
    );
    check(&Identity::User(UserInfo::admin()), "", wrong, Ok("kubernetes-admin"));
}

#[test]
fn a_token_is_good_while_its_account_is_there() {
    let world = World::new();
    world.put("serviceaccounts", "n/s", "u1");
    let token = world.issue(&subject());
    let name = "system:serviceaccount:n:s";
    assert_eq!(world.who(&token, &[ISSUER]), name);
    assert_eq!(
        world.who(&token, &["x"]),
        "[invalid bearer token, token audiences [\"https://issuer\"] is invalid for the target audiences [\"x\"]]"
    );
    let forged = TestSigner("other");
    let legacy = ServiceAccountTokens::issue_legacy(&forged, "n", &bound("s", "u1"), "x").expect("a key");
    assert_eq!(
        world.who(&legacy, &[ISSUER]),
        "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
    );
    world.remove("serviceaccounts", "n/s");
    assert_eq!(
        world.who(&token, &[ISSUER]),
        "[invalid bearer token, serviceaccounts \"s\" not found]"
    );
    world.put("serviceaccounts", "n/s", "u2");
    assert_eq!(
        world.who(&token, &[ISSUER]),
        "[invalid bearer token, service account UID (u2) does not match claim (u1)]"
    );
}

#[test]
fn a_token_ends() {
    let world = World::new();
    world.put("serviceaccounts", "n/s", "u1");
    let token = world.issue(&subject());
    world.env.advance(std::time::Duration::from_secs(600));
    assert_eq!(world.who(&token, &[ISSUER]), "system:serviceaccount:n:s");
    world.env.advance(std::time::Duration::from_secs(1));
    assert_eq!(
        world.who(&token, &[ISSUER]),
        "[invalid bearer token, service account token has expired]"
    );
}

/// A claim of another type refuses the token, as in go-jose; it is not passed over.
#[test]
fn claims_of_other_types_are_not_believed() {
    let world = World::new();
    world.put("serviceaccounts", "n/s", "u1");
    let token = world.issue(&subject());
    let claims = jwt::Unproven::parse(&token).expect("a token").claims;
    let now = Shared(world.env.clone()).now().as_second();
    let check = |key: &str, value: Value, why: &str| {
        let mut claims = claims.clone();
        claims[key] = value;
        let token = jwt::encode(&claims, &TestSigner("key")).expect("a key");
        let wanted = match why {
            "" => "system:serviceaccount:n:s".to_owned(),
            why => format!("[invalid bearer token, {why}]"),
        };
        assert_eq!(world.who(&token, &[ISSUER]), wanted, "{key} {}", claims[key]);
    };
    let date = "go-jose/go-jose/jwt: expected number value to unmarshal NumericDate";
    for key in ["exp", "nbf", "iat"] {
        check(key, json!("1"), date);
        check(key, json!([1]), date);
        check(key, Value::Null, "");
    }
    #[allow(clippy::cast_precision_loss)] // of a time of our days
    let now = now as f64;
    check("exp", json!(now + 60.5), "");
    let expired = "service account token has expired";
    check("exp", json!(now - 60.5), expired);
    check("exp", json!(i64::MIN), expired);
    check("exp", json!(i64::MAX), "");
    check("nbf", json!(now + 60.5), "service account token is not valid yet");
    check(
        "iat",
        json!(now + 60.5),
        "service account token is issued in the future",
    );
    let audience = "go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience";
    check("aud", json!(ISSUER), "");
    check("aud", json!(["x", ISSUER]), "");
    check("aud", json!([]), "");
    check("aud", Value::Null, "");
    check("aud", json!(5), audience);
    check("aud", json!([5]), audience);
    check("aud", json!([ISSUER, 5]), audience);
    check("aud", json!({}), audience);
}

#[test]
fn a_bound_token_goes_with_its_object() {
    let world = World::new();
    world.put("serviceaccounts", "n/s", "u1");
    let gone = "[invalid bearer token, service account token has been invalidated]";
    let check = |store: &str, key: &str, subject: TokenSubject, other: &str| {
        let token = world.issue(&subject);
        assert_eq!(world.who(&token, &[ISSUER]), gone, "{store}");
        world.put(store, key, "u9");
        assert_eq!(world.who(&token, &[ISSUER]), "system:serviceaccount:n:s", "{store}");
        world.remove(store, key);
        world.put(store, key, "u8");
        assert_eq!(
            world.who(&token, &[ISSUER]),
            format!("[invalid bearer token, {other}]"),
            "{store}"
        );
        world.remove(store, key);
        assert_eq!(world.who(&token, &[ISSUER]), gone, "{store}");
    };
    let pod = TokenSubject {
        pod: Some(bound("p", "u9")),
        node: Some(bound("missing", "")),
        ..subject()
    };
    check(
        "pods",
        "n/p",
        pod,
        "pod UID (u8) does not match service account pod ref claim (u9)",
    );
    let secret = TokenSubject {
        secret: Some(bound("x", "u9")),
        ..subject()
    };
    check(
        "secrets",
        "n/x",
        secret,
        "secret UID (u8) does not match service account secret ref claim (u9)",
    );
    let node = TokenSubject {
        node: Some(bound("m", "u9")),
        ..subject()
    };
    check(
        "nodes",
        "m",
        node,
        "node UID (u8) does not match service account node ref claim (u9)",
    );
}

#[test]
fn a_token_in_a_secret_is_good_while_the_secret_holds_it() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let world = World::new();
    world.put("serviceaccounts", "n/s", "u1");
    let signer = TestSigner("key");
    let token = ServiceAccountTokens::issue_legacy(&signer, "n", &bound("s", "u1"), "x").expect("a key");
    let wrong = |why: &str| format!("[invalid bearer token, {why}]");
    assert_eq!(world.who(&token, &[ISSUER]), wrong("Token has been invalidated"));
    world.put("secrets", "n/x", "u2");
    assert_eq!(
        world.who(&token, &[ISSUER]),
        wrong("Token does not match server's copy")
    );
    world.remove("secrets", "n/x");
    let secret = json!({"metadata": {"name": "x"}, "data": {"token": STANDARD.encode(&token)}});
    world
        .storage
        .create("secrets", "n/x", secret)
        .expect("nothing is there");
    assert_eq!(world.who(&token, &[ISSUER]), "system:serviceaccount:n:s");
    world.remove("serviceaccounts", "n/s");
    assert_eq!(world.who(&token, &[ISSUER]), wrong("serviceaccounts \"s\" not found"));
}

#[test]
fn tokens_of_an_earlier_issuer_are_believed_when_it_is_named() {
    let mut world = World::new();
    world.put("serviceaccounts", "n/s", "u1");
    let token = world.issue(&subject());
    let mut serve = |issuer: &str, further: &[&str], audiences: &[&str]| {
        let list = |texts: &[&str]| -> Vec<String> { texts.iter().map(|&text| text.to_owned()).collect() };
        let (tokens, signer) = (StaticTokens::default(), Arc::new(TestSigner("key")));
        let env = Arc::new(Shared(world.env.clone()));
        let authenticator = Authenticator::new(tokens, issuer, signer, world.storage.clone(), env);
        world.authenticator = authenticator.believing(&list(further), &list(audiences));
        let audiences: Vec<String> = world.authenticator.audiences().to_vec();
        let audiences: Vec<&str> = audiences.iter().map(String::as_str).collect();
        (world.who(&token, &audiences), audiences.join(" "))
    };
    let pair = |who: &str, audiences: &str| (who.to_owned(), audiences.to_owned());
    let user = "system:serviceaccount:n:s";
    assert_eq!(
        serve("https://new", &[], &[]),
        pair("invalid bearer token", "https://new")
    );
    assert_eq!(
        serve("https://new", &[ISSUER], &[]),
        pair(user, "https://new https://issuer")
    );
    assert_eq!(serve(ISSUER, &[], &["api", ISSUER]), pair(user, "api https://issuer"));
    let (who, audiences) = serve(ISSUER, &[], &["api"]);
    assert!(who.contains("is invalid for the target audiences [\"api\"]"), "{who}");
    assert_eq!(audiences, "api");
}
