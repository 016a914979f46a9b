//! Priority levels, as clients see them: headers, who waits, who is rejected, what is counted.

use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt as _;
use http::{Request, Response};
use serde_json::{Value, json};

use super::testing;
use crate::model::testing::{FakeEnv, Shared};
use crate::model::user::service_account_groups;
use crate::{Admitted, ApiServer, Body, Config, Seats, UserInfo};

const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";

/// A server whose levels have so many seats together, and each at least one.
fn server(env: &Arc<FakeEnv>, seats: u64) -> ApiServer {
    let config = Config {
        max_requests: seats,
        ..Config::default()
    };
    ApiServer::of_tests(Arc::new(Shared(env.clone())), config)
}

fn ask(api: &ApiServer, user: UserInfo, method: &str, path: &str, body: &Value) -> Response<Body> {
    api.handle(testing::request(method, path, body), user)
        .now_or_never()
        .expect("no waiting")
}

fn json_of(response: &Response<Body>) -> Value {
    match response.body() {
        Body::Full(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
        _ => panic!("no whole body"),
    }
}

/// A level of one seat for one user, and the FlowSchema that leads there.
fn narrow(api: &ApiServer, user: &str, response: &Value) {
    let level = json!({"metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": response}}});
    assert_eq!(ask(api, UserInfo::admin(), "POST", LEVELS, &level).status(), 201);
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [{
        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]});
    let schema = json!({"metadata": {"name": "narrow"}, "spec": {"matchingPrecedence": 50,
        "priorityLevelConfiguration": {"name": "narrow"}, "distinguisherMethod": {"type": "ByUser"}, "rules": [rule]}});
    assert_eq!(ask(api, UserInfo::admin(), "POST", SCHEMAS, &schema).status(), 201);
}

/// A user with one seat, for whom two requests may wait.
fn with_a_queue_of_two(api: &ApiServer) -> UserInfo {
    let queuing = json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 2}});
    narrow(api, "jane", &queuing);
    UserInfo::authenticated("jane", [])
}

/// A review of her own rights, whose head is admitted.
fn admit(api: &ApiServer, user: &UserInfo) -> Admitted {
    let (head, ()) = Request::post(REVIEW).body(()).expect("a request").into_parts();
    let admitted = api.admit(&head, user.clone()).now_or_never().expect("no waiting");
    admitted.unwrap_or_else(|refusal| panic!("refused with {}", refusal.status()))
}

/// The seats of a request that need not wait.
fn begin(api: &ApiServer, admitted: &Admitted) -> Seats {
    let seats = api.enter(admitted).now_or_never().expect("no waiting");
    seats.unwrap_or_else(|rejection| panic!("rejected with {}", rejection.status()))
}

/// Seats for a request, once it is their turn.
async fn enter(api: &ApiServer, user: &UserInfo, path: &str) -> Result<Seats, Box<Response<Body>>> {
    let (head, ()) = Request::get(path).body(()).expect("a request").into_parts();
    let admitted = api.admit(&head, user.clone()).await?;
    api.enter(&admitted).await
}

#[test]
fn answers_say_how_they_were_classified() {
    let api = server(&FakeEnv::new(), 600);
    let uid = |path: &str, name: &str| {
        let answer = ask(&api, UserInfo::admin(), "GET", &format!("{path}/{name}"), &Value::Null);
        json_of(&answer)["metadata"]["uid"].as_str().expect("a uid").to_owned()
    };
    let check = |user: UserInfo, path: &str, code: u16, schema: &str, level: &str| {
        let answer = ask(&api, user, "GET", path, &Value::Null);
        assert_eq!(answer.status(), code, "{path}");
        let header = |name: &str| {
            answer
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        assert_eq!(
            header("X-Kubernetes-PF-FlowSchema-UID"),
            Some(uid(SCHEMAS, schema)),
            "{path}"
        );
        assert_eq!(
            header("X-Kubernetes-PF-PriorityLevel-UID"),
            Some(uid(LEVELS, level)),
            "{path}"
        );
    };
    let node = || UserInfo::authenticated("system:node:n", ["system:nodes"]);
    let groups = service_account_groups("shop");
    let robot = || UserInfo::authenticated("system:serviceaccount:shop:robot", groups.iter().map(String::as_str));
    let user = || UserInfo::authenticated("jane", []);
    const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a";
    check(UserInfo::admin(), MAPS, 200, "exempt", "exempt");
    check(user(), "/healthz", 200, "probes", "exempt");
    check(user(), "/version", 200, "global-default", "global-default");
    check(user(), MAPS, 403, "global-default", "global-default");
    check(robot(), MAPS, 403, "service-accounts", "workload-low");
    check(node(), "/api/v1/nodes/n", 403, "system-node-high", "node-high");
    check(node(), MAPS, 403, "system-nodes", "system");
    let manager = || UserInfo::authenticated("system:kube-controller-manager", []);
    check(manager(), LEASES, 404, "system-leader-election", "leader-election");
    check(manager(), MAPS, 200, "kube-controller-manager", "workload-high");
    check(
        UserInfo::admin(),
        "/api/v1/namespaces/shop/nothing/x",
        404,
        "exempt",
        "exempt",
    );
}

#[test]
fn a_full_level_rejects_and_other_levels_do_not_notice() {
    let api = server(&FakeEnv::new(), 1);
    let admin = UserInfo::admin();
    narrow(&api, "jane", &json!({"type": "Reject"}));
    let jane = UserInfo::authenticated("jane", []);
    const PATH: &str = "/version";
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let seats = enter(&api, &jane, "/api/v1/namespaces/shop/pods")
        .now_or_never()
        .expect("no waiting");
    assert!(seats.is_err_and(|refusal| refusal.status() == 403), "she may not");
    assert_eq!(ask(&api, jane.clone(), "POST", REVIEW, &review).status(), 201);
    // A request of hers is being answered: it waits for a webhook, say.
    let admitted = admit(&api, &jane);
    let seats = begin(&api, &admitted);
    let rejection = ask(&api, jane.clone(), "POST", REVIEW, &review);
    assert_eq!(rejection.status(), 429);
    assert_eq!(rejection.headers()["Retry-After"], "1");
    assert_eq!(
        ask(&api, jane.clone(), "GET", PATH, &Value::Null).status(),
        200,
        "that is another level"
    );
    assert_eq!(
        ask(&api, UserInfo::authenticated("joe", []), "POST", REVIEW, &review).status(),
        201
    );
    drop(seats);
    assert_eq!(ask(&api, jane, "POST", REVIEW, &review).status(), 201);
    let metrics = ask(&api, admin, "GET", "/metrics", &Value::Null);
    let Body::Full(metrics) = metrics.body() else {
        panic!("no text")
    };
    let metrics = String::from_utf8_lossy(metrics);
    for line in [
        "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"narrow\",priority_level=\"narrow\",reason=\"concurrency-limit\"} 1",
        "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"narrow\",priority_level=\"narrow\"} 3",
        "apiserver_flowcontrol_current_executing_requests{flow_schema=\"narrow\",priority_level=\"narrow\"} 0",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"narrow\"} 1",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"workload-low\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[test]
fn a_queue_lets_one_begin_after_the_other() {
    let env = FakeEnv::new();
    let api = server(&env, 1);
    let jane = with_a_queue_of_two(&api);
    let admit = || admit(&api, &jane);
    let requests = [admit(), admit(), admit(), admit()];
    let mut entering: Vec<_> = requests.iter().map(|admitted| Box::pin(api.enter(admitted))).collect();
    let mut poll = |at: usize| {
        (&mut entering[at])
            .now_or_never()
            .map(|entered| entered.map_err(|refusal| refusal.status()))
    };
    let first = poll(0).expect("it begins").expect("it begins");
    assert!(poll(1).is_none() && poll(2).is_none(), "they wait");
    assert_eq!(
        poll(3).expect("the queue is full").err(),
        Some(http::StatusCode::TOO_MANY_REQUESTS)
    );
    drop(first);
    let second = poll(1).expect("its turn has come").expect("it begins");
    assert!(poll(2).is_none(), "it still waits");
    // Its client goes away, and no request waits any more.
    drop(entering.remove(2));
    drop(second);
    let last = admit();
    let mut again = pin!(api.enter(&last));
    assert!((&mut again).now_or_never().expect("it begins").is_ok());
}

#[test]
fn who_waits_for_too_long_is_rejected() {
    let env = FakeEnv::new();
    let api = server(&env, 1);
    let jane = with_a_queue_of_two(&api);
    let admit = || admit(&api, &jane);
    let (one, other) = (admit(), admit());
    let seats = begin(&api, &one);
    let mut waiting = pin!(api.enter(&other));
    assert!((&mut waiting).now_or_never().is_none());
    env.advance(std::time::Duration::from_secs(15));
    let answer = (&mut waiting).now_or_never().expect("its time is up");
    assert!(answer.is_err_and(|refusal| refusal.status() == 429));
    drop(seats);
}
