//! Selectors, tokens of pages, and other parameters of a query; watches with them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hostile::input::{Input, Request, create, get, input};
use crate::hostile::values::{CONFIG_MAPS, config_map, scaled};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a label selector of 20,000 requirements", &[200, 400, 414, 431], || {
            list(&format!("labelSelector={}a", "a,".repeat(scaled(20_000))))
        }),
        input("a label selector of 5,000 different keys", &[200, 400], || {
            let keys: Vec<String> = (0..scaled(5_000)).map(|key| format!("!k{key}")).collect();
            list(&format!("labelSelector={}", keys.join(",")))
        }),
        input("a label selector of 10,000 values", &[200, 400], || {
            let values: Vec<String> = (0..scaled(10_000)).map(|value| value.to_string()).collect();
            list(&format!("labelSelector=a%20notin%20({})", values.join(",")))
        }),
        input("a label selector of 30,000 brackets", &[400], || {
            list(&format!("labelSelector={}", "(".repeat(30_000)))
        }),
        input("a label selector with a key of 50 KB", &[400], || {
            list(&format!("labelSelector={}", "a".repeat(50_000)))
        }),
        input("a label selector with a number beyond all", &[200, 400], || {
            list(&format!("labelSelector=a%3E{}", "9".repeat(10_000)))
        }),
        input("a field selector of 2,000 terms", &[200, 400], || {
            list(&format!(
                "fieldSelector={}",
                "metadata.name!%3Da,".repeat(scaled(2_000))
            ))
        }),
        input("a field selector of 50 KB of backslashes", &[200, 400], || {
            list(&format!("fieldSelector=metadata.name%3D{}", "\\".repeat(50_000)))
        }),
        input("a field selector of an unknown field of 50 KB", &[400], || {
            list(&format!("fieldSelector={}%3D1", "a".repeat(50_000)))
        }),
        input("a field selector with NUL", &[200, 400], || {
            list("fieldSelector=metadata.name%3D%00")
        }),
        input("a page whose token is no base64", &[400], || {
            list("limit=1&continue=%25%25")
        }),
        input("a page whose token is 50 KB of nothing", &[400], || {
            list(&format!("limit=1&continue={}", "A".repeat(50_000)))
        }),
        input("a page whose token nests 10,000 lists", &[400], || {
            token(&"[".repeat(10_000))
        }),
        input("a page whose token leaves the kind", &[400, 410], || {
            token(r#"{"v":"meta.k8s.io/v1","rv":2,"start":"../../secrets/default/a"}"#)
        }),
        input("a page whose token is of the future", &[400, 410, 504], || {
            token(r#"{"v":"meta.k8s.io/v1","rv":4611686018427387904,"start":"a"}"#)
        }),
        input("a page whose token is of the revision -1", &[200, 400, 410], || {
            token(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}"#)
        }),
        input("a page whose token begins behind everything", &[200, 400, 410], || {
            token(&format!(
                r#"{{"v":"meta.k8s.io/v1","rv":-1,"start":"{}"}}"#,
                "z".repeat(10_000)
            ))
        }),
        input("a limit that is no number", &[400], || list("limit=x")),
        input("a limit of 2^64", &[400], || list("limit=18446744073709551616")),
        input("a limit that is given 5,000 times", &[200, 400], || {
            list(&"limit=1&".repeat(scaled(5_000)))
        }),
        input("20,000 parameters", &[200, 400], || {
            list(&"a=1&".repeat(scaled(15_000)))
        }),
        input("a parameter of 60 KB", &[200, 400], || {
            list(&format!("a={}", "b".repeat(60_000)))
        }),
        input("an escape that is none", &[200, 400], || list("limit=%zz")),
        input("a match without a version", &[400, 403, 422], || {
            list("resourceVersionMatch=Exact")
        }),
        input("a match that does not exist", &[400, 403, 422], || {
            list(&format!(
                "resourceVersion=1&resourceVersionMatch={}",
                "x".repeat(10_000)
            ))
        }),
        input("a version that is no number", &[400], || list("resourceVersion=abc")),
        input("a version of 50,000 digits", &[400], || {
            list(&format!("resourceVersion={}", "9".repeat(50_000)))
        }),
        input("a manager of 129 letters", &[400, 422], || {
            create(CONFIG_MAPS, "odd", config_map("odd", "", "")).query(&format!("fieldManager={}", "a".repeat(129)))
        }),
        input("a manager of 50 KB", &[400, 422], || {
            create(CONFIG_MAPS, "odd", config_map("odd", "", "")).query(&format!("fieldManager={}", "a".repeat(50_000)))
        }),
        input("a dry run that does not exist", &[400, 422], || {
            create(CONFIG_MAPS, "odd", config_map("odd", "", "")).query(&format!("dryRun={}", "x".repeat(10_000)))
        }),
        input("a validation of fields that does not exist", &[400, 422], || {
            create(CONFIG_MAPS, "odd", config_map("odd", "", "")).query("fieldValidation=%00")
        }),
        input("a watch that ends before it begins", &[200], || {
            watch("timeoutSeconds=-9223372036854775808")
        }),
        input("a watch of a number of seconds that is none", &[400], || {
            watch("timeoutSeconds=x")
        }),
        input("a watch from a version that is none", &[500], || {
            watch("timeoutSeconds=1&resourceVersion=x")
        }),
        input("a watch from the far future", &[200, 400, 504], || {
            watch("timeoutSeconds=1&resourceVersion=9223372036854775807")
        }),
        input(
            "a watch with first events and without a match",
            &[400, 403, 422],
            || watch("timeoutSeconds=1&sendInitialEvents=true"),
        ),
        input("a watch with 10,000 requirements", &[200, 400], || {
            watch(&format!(
                "timeoutSeconds=1&labelSelector={}a",
                "!a,".repeat(scaled(10_000))
            ))
        }),
        input(
            "a watch of Tables for somebody who wants 1,000 types",
            &[200, 406],
            || {
                let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,".repeat(1_000);
                watch("timeoutSeconds=1").header("Accept", accept.trim_end_matches(','))
            },
        ),
        input("a watch of one name of 50 KB", &[200, 400], || {
            watch(&format!(
                "timeoutSeconds=1&fieldSelector=metadata.name%3D{}",
                "a".repeat(50_000)
            ))
        }),
    ]
}

fn list(query: &str) -> Request {
    get(CONFIG_MAPS).query(query)
}

fn watch(query: &str) -> Request {
    get(CONFIG_MAPS).query("watch=1").query(query)
}

/// A page that goes on from this token.
fn token(text: &str) -> Request {
    let token = URL_SAFE_NO_PAD.encode(text);
    list(&format!("limit=1&continue={token}"))
}
