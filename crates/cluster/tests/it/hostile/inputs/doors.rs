//! Doors that are seldom used, and others behind them that never answer: webhooks, aggregated servers, streams, odd
//! paths.

use std::net::TcpListener;
use std::sync::LazyLock;

use super::kinds::review;
use crate::hostile::input::{
    Input, Request, any, apply, create, create_as, delete, get, input, json_patch, merge_patch, post,
};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, PODS, SECRETS, SERVICES, THINGS, config_map, definition, free_definition,
    items, object, pod, scaled, thing,
};

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = silent();
    inputs.extend(streams());
    inputs.extend(bodies());
    inputs.extend(paths());
    inputs.extend(sequences());
    inputs
}

/// A client that connects here waits: the connection is never accepted.
static SILENT: LazyLock<TcpListener> = LazyLock::new(|| TcpListener::bind("127.0.0.1:0").unwrap());

fn silent_url() -> String {
    format!("https://{}/", SILENT.local_addr().unwrap())
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Webhooks that change Secrets, at this URL.
fn webhooks(count: usize, url: &str, failure: &str) -> Request {
    let hooks: Vec<String> = (0..count)
        .map(|index| {
            format!(
                r#"{{"name":"h{index}.b.io","clientConfig":{{"url":"{url}"}},"failurePolicy":"{failure}",
                "sideEffects":"None","timeoutSeconds":1,"admissionReviewVersions":["v1"],"rules":[{{"apiGroups":[""],
                "apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}}]}}"#
            )
        })
        .collect();
    let rest = format!("\"webhooks\":[{}]", hooks.join(","));
    create(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "silent",
        object(ADMISSION, "MutatingWebhookConfiguration", "silent", "", &rest),
    )
}

fn secret() -> Request {
    create(SECRETS, "asked", object("v1", "Secret", "asked", "", ""))
}

/// A definition whose second version is converted by a silent server.
fn converted() -> Request {
    let schema = r#"{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}"#;
    let other = format!(r#"{{"name":"v2","served":true,"storage":false,"schema":{schema}}}"#);
    let conversion = format!(
        r#""conversion":{{"strategy":"Webhook","webhook":{{"conversionReviewVersions":["v1"],
        "clientConfig":{{"url":"{}"}}}}}},"versions":["#,
        silent_url()
    );
    let body = free_definition().replace("\"versions\":[", &format!("{conversion}{other},"));
    create(DEFINITIONS, DEFINITION, body)
}

fn silent() -> Vec<Input> {
    vec![
        input("a webhook that never answers", &[500, 504], || {
            secret().after(webhooks(1, &silent_url(), "Fail"))
        }),
        input("a webhook that never answers and need not", &[201], || {
            secret().after(webhooks(1, &silent_url(), "Ignore"))
        }),
        input(
            "ten webhooks, one after the other, that never answer",
            &[201, 500, 504],
            || secret().after(webhooks(10, &silent_url(), "Ignore")),
        ),
        input("16 clients whose webhook never answers", &[201, 409, 429], || {
            secret().by_clients(16).after(webhooks(1, &silent_url(), "Ignore"))
        }),
        input("a conversion that never answers", &[500, 504], || {
            get(&THINGS.replace("/v1/", "/v2/"))
                .after(converted())
                .after(create(THINGS, "odd", thing("odd", "{}")))
        }),
        input("16 lists whose conversion never answers", &[429, 500, 504], || {
            get(&THINGS.replace("/v1/", "/v2/"))
                .by_clients(16)
                .after(converted())
                .after(create(THINGS, "odd", thing("odd", "{}")))
        }),
        input("an aggregated server that is nobody", &[404, 503], || {
            let spec = r#""spec":{"group":"far.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1,
                "insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"far"}}"#;
            let (version, kind) = ("apiregistration.k8s.io/v1", "APIService");
            get("/apis/far.example.com/v1/things").after(create(
                "/apis/apiregistration.k8s.io/v1/apiservices",
                "v1.far.example.com",
                object(version, kind, "v1.far.example.com", "", spec),
            ))
        }),
    ]
}

fn of_pod(rest: &str) -> Request {
    get(&format!("{PODS}/odd/{rest}")).after(create(PODS, "odd", pod("odd", "")))
}

fn streams() -> Vec<Input> {
    /// The answers without a stream, and for a pod without a node.
    const REFUSED: &[u16] = &[200, 204, 400, 403, 404, 405, 422, 426, 500, 503];
    let upgraded = |request: Request, protocol: &str| {
        request
            .header("Connection", "Upgrade")
            .header("Upgrade", protocol)
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    };
    vec![
        input("an attach with numbers for yes and no", REFUSED, || {
            of_pod("attach").query("stdin=7&stdout=-1&stderr=%00&tty=yes")
        }),
        input("a command for a container of NUL", REFUSED, || {
            of_pod("exec").query("container=%00&command=%00&stdout=true")
        }),
        input("a command without streams over SPDY/99", REFUSED, move || {
            upgraded(of_pod("exec").query("command=a"), "SPDY/99.1")
        }),
        input("a command over a WebSocket of 1,000 protocols", REFUSED, move || {
            let protocols = vec!["v5.channel.k8s.io"; 1_000].join(",");
            upgraded(of_pod("exec").query("command=a&stdout=1"), "websocket")
                .header("Sec-WebSocket-Protocol", &protocols)
        }),
        input("a forward of 10,000 ports", REFUSED, move || {
            let ports = vec!["ports=1"; scaled(10_000).min(7_000)].join("&");
            upgraded(of_pod("portforward").query(&ports), "websocket")
        }),
        input("a forward of ports that are none", REFUSED, || {
            of_pod("portforward").query("ports=0&ports=-1&ports=70000&ports=x")
        }),
        input("a log of before that is followed", REFUSED, || {
            of_pod("log").query("follow=true&previous=true&timestamps=yes&stream=Nothing&tailLines=-5")
        }),
        input("a proxy to a port of 50 KB", REFUSED, || {
            get(&format!("{SERVICES}/https:a:{}/proxy/", "9".repeat(50_000)))
        }),
        input("a proxy to a node whose name climbs", REFUSED, || {
            get("/api/v1/nodes/..%2F..%2Fa:1/proxy/%2e%2e/%2e%2e/metrics")
        }),
    ]
}

fn bodies() -> Vec<Input> {
    const UNKNOWN: &[u16] = &[400, 415];
    let cbor = || [&[0xd9_u8, 0xd9, 0xf7][..], &[0x81; 100_000][..]].concat();
    vec![
        input("CBOR of 100,000 nested lists", UNKNOWN, move || {
            post(CONFIG_MAPS, "application/cbor", cbor())
        }),
        input("a list of CBOR that says it has 2^64 items", UNKNOWN, || {
            post(
                CONFIG_MAPS,
                "application/cbor",
                [&[0x9b_u8][..], &[0xff; 8][..]].concat(),
            )
        }),
        input("an apply in CBOR", UNKNOWN, move || {
            any(
                "PATCH",
                &format!("{CONFIG_MAPS}/odd"),
                "application/apply-patch+cbor",
                cbor(),
            )
            .query("fieldManager=m")
        }),
        input(
            "a type of content with 10,000 parameters",
            &[201, 400, 415, 431],
            || {
                let parameters = format!("application/json{}", ";a=b".repeat(scaled(10_000)));
                create_as(CONFIG_MAPS, "odd", &parameters, config_map("odd", "", ""))
            },
        ),
        input("a body that says it is compressed", &[201, 400, 415], || {
            create(CONFIG_MAPS, "odd", config_map("odd", "", "")).header("Content-Encoding", "gzip")
        }),
        input("a manager whose name is no text", &[201, 400, 422], || {
            create(CONFIG_MAPS, "odd", config_map("odd", "", "")).query("fieldManager=%0a%07%ff%fe")
        }),
        input("a manager whose name are 128 bytes of signs", &[200, 201, 422], || {
            apply(
                &format!("{CONFIG_MAPS}/odd"),
                &"%F0%9F%98%80".repeat(32),
                config_map("odd", "", ""),
            )
        }),
        input("a review of a token of 100,000 lines", &[200, 201], || {
            review(
                "authentication.k8s.io/v1",
                "TokenReview",
                "tokenreviews",
                &format!(r#""token":"{}""#, "a\\n".repeat(100_000)),
            )
        }),
        input("a TLS Secret of 25,000 beginnings of blocks", &[201], || {
            let begins = "-----BEGIN A-----\\n".repeat(25_000);
            let data =
                format!(r#""type":"kubernetes.io/tls","stringData":{{"tls.crt":"{begins}","tls.key":"{begins}"}}"#);
            create(SECRETS, "begins", object("v1", "Secret", "begins", "", &data))
        }),
        input("a Secret whose base64 ends in bits of nobody", &[201], || {
            create(
                SECRETS,
                "odd",
                object("v1", "Secret", "odd", "", r#""data":{"a":"YR=="}"#),
            )
        }),
    ]
}

fn paths() -> Vec<Input> {
    const FOUND: &[u16] = &[200, 301, 400, 403, 404, 431];
    vec![
        input("a path with all its letters escaped", FOUND, || {
            let escaped: String = "configmaps".bytes().map(|b| format!("%{b:02x}")).collect();
            get(&format!("/api/v1/namespaces/default/{escaped}"))
        }),
        input("a path whose escapes are escaped 1,000 times", FOUND, || {
            get(&format!("{CONFIG_MAPS}/%{}2e", "25".repeat(1_000)))
        }),
        input("a path with two slashes within", FOUND, || {
            get("/api//v1/namespaces//default/configmaps")
        }),
        input("a path with a dot in it", FOUND, || {
            get("/api/v1/./namespaces/default/./configmaps/.")
        }),
        input("a query of nothing but 30,000 signs", FOUND, || {
            get(CONFIG_MAPS).query(&"&;=?".repeat(scaled(15_000)))
        }),
        input("a query of 30,000 parameters without a value", FOUND, || {
            get(CONFIG_MAPS).query(&"a&".repeat(scaled(30_000)))
        }),
        input("a health check that leaves 10,000 out", FOUND, || {
            get("/livez").query(&format!("verbose&{}", "exclude=ping&".repeat(scaled(4_000))))
        }),
        // Ours says that it has none.
        input("the figures of the server, 32 times", &[200, 501], || {
            get("/metrics").by_clients(32)
        }),
        input("a delete that both orphans and follows", &[200, 400, 422], || {
            let options = r#"{"orphanDependents":true,"propagationPolicy":"Foreground","preconditions":{"uid":""}}"#;
            delete(&format!("{CONFIG_MAPS}/odd"), options).after(create(CONFIG_MAPS, "odd", config_map("odd", "", "")))
        }),
    ]
}

fn sequences() -> Vec<Input> {
    let made = || create(CONFIG_MAPS, "odd", config_map("odd", "", "\"data\":{\"a\":\"b\"}"));
    let path = format!("{CONFIG_MAPS}/odd");
    let at = move || path.clone();
    let (one, two) = (at.clone(), at);
    vec![
        input(
            "a JSON patch that moves 1 MB to and fro 10,000 times",
            &[200, 413, 422],
            move || {
                let large = config_map("odd", "", &format!("\"data\":{{\"a\":\"{}\"}}", "x".repeat(1_000_000)));
                let moves = items(10_000, |index| {
                    let (from, to) = if index % 2 == 0 { ("a", "b") } else { ("b", "a") };
                    format!(r#"{{"op":"move","from":"/data/{from}","path":"/data/{to}"}}"#)
                });
                json_patch(&one(), moves).after(create(CONFIG_MAPS, "odd", large))
            },
        ),
        input(
            "a JSON patch that compares 30 KB 100 times",
            &[200, 413, 422],
            move || {
                let text = "x".repeat(30_000);
                let tests = items(100, |_| format!(r#"{{"op":"test","path":"/data/a","value":"{text}"}}"#));
                let large = config_map("odd", "", &format!("\"data\":{{\"a\":\"{text}\"}}"));
                json_patch(&two(), tests).after(create(CONFIG_MAPS, "odd", large))
            },
        ),
        input("the last of 500 changes of one label", &[200], move || {
            let label = |value: usize| {
                merge_patch(
                    &format!("{CONFIG_MAPS}/odd"),
                    format!(r#"{{"metadata":{{"labels":{{"a":"v{value}"}}}}}}"#),
                )
                .query(&format!("fieldManager=m{value}"))
            };
            (0..scaled(1_000).min(500))
                .map(label)
                .fold(label(500).after(made()), Request::after)
        }),
        input(
            "a definition that changes while its objects are there",
            &[200, 422],
            || {
                let other = definition(r#"{"type":"object","properties":{"spec":{"type":"string"}}}"#);
                merge_patch(&format!("{DEFINITIONS}/{DEFINITION}"), other)
                    .after(create(DEFINITIONS, DEFINITION, free_definition()))
                    .after(create(THINGS, "odd", thing("odd", "{\"a\":[1]}")))
            },
        ),
    ]
}
