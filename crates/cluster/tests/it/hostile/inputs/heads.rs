//! Request lines, headers and the framing of bodies.

use crate::hostile::input::{Input, Request, any, create, get, input, post};
use crate::hostile::values::{CONFIG_MAPS, config_map, scaled};

const JSON: &str = "application/json";

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("100 headers of 600 bytes", &[200, 431], || {
            (0..90).fold(get(CONFIG_MAPS), |request, index| {
                request.header(&format!("X-{index}"), &"a".repeat(600))
            })
        }),
        input("1,000 headers", &[200, 400, 431], || {
            (0..1_000).fold(get(CONFIG_MAPS), |request, index| {
                request.header(&format!("X-{index}"), "a")
            })
        }),
        input("a header of 500 KB", &[200, 400, 431], || {
            get(CONFIG_MAPS).header("X-Large", &"a".repeat(500_000))
        }),
        input("a header that is no ASCII", &[200, 400], || {
            get(CONFIG_MAPS).header("X-Odd", "\u{ff}\u{1f600}")
        }),
        input("a header without a name", &[400], || get(CONFIG_MAPS).header("", "a")),
        input("a header with a space in its name", &[400], || {
            get(CONFIG_MAPS).header("X Odd", "a")
        }),
        input("a path of 60 KB", &[400, 404, 414, 431], || {
            get(&format!("/api/v1/{}", "a".repeat(60_000)))
        }),
        input("a path of 20,000 slashes", &[200, 301, 400, 404, 414], || {
            get(&"/".repeat(20_000))
        }),
        input("a path of 5,000 steps up", &[301, 400, 403, 404], || {
            get(&"/..".repeat(5_000))
        }),
        input("a path that leaves its namespace", &[200, 301, 400, 404], || {
            get("/api/v1/namespaces/default/configmaps/../../../../api/v1/secrets")
        }),
        input("a name with an escaped slash", &[400, 404], || {
            get(&format!("{CONFIG_MAPS}/a%2Fb"))
        }),
        input("a name of an escaped step up", &[400, 404], || {
            get(&format!("{CONFIG_MAPS}/%2E%2E"))
        }),
        input("a name with NUL", &[400, 404], || get(&format!("{CONFIG_MAPS}/a%00b"))),
        input("a name that is no UTF-8", &[400, 404], || {
            get(&format!("{CONFIG_MAPS}/%ff%fe"))
        }),
        input("a path with an escape that is none", &[400, 404], || {
            get(&format!("{CONFIG_MAPS}/%zz"))
        }),
        input("a namespace of 50 KB", &[200, 400, 404, 414], || {
            get(&format!("/api/v1/namespaces/{}/configmaps", "a".repeat(50_000)))
        }),
        input("a subresource that does not exist", &[404], || {
            get(&format!("{CONFIG_MAPS}/a/{}", "b".repeat(1_000)))
        }),
        input("a path for any server", &[200, 400, 404], || {
            get("https://elsewhere/api/v1/secrets")
        }),
        input("a method that does not exist", &[400, 405, 501], || {
            any("FROB", CONFIG_MAPS, JSON, "")
        }),
        input("TRACE", &[400, 405, 501], || any("TRACE", CONFIG_MAPS, JSON, "")),
        input("OPTIONS", &[200, 400, 404, 405], || {
            any("OPTIONS", CONFIG_MAPS, JSON, "")
        }),
        input("a GET with a body of 1 MB", &[200, 400, 413], || {
            any("GET", CONFIG_MAPS, JSON, "x".repeat(1_000_000)).header("Content-Length", "1000000")
        }),
        input("an Accept of 1,500 types", &[200, 406, 431], || {
            get(CONFIG_MAPS).header("Accept", &"application/x-other;q=0.1, ".repeat(1_500))
        }),
        input("an Accept that is none", &[200, 406], || {
            get(CONFIG_MAPS).header("Accept", ";;;,,,///;q=x;=")
        }),
        input("an Accept of 50 KB of commas", &[200, 406, 431], || {
            get(CONFIG_MAPS).header("Accept", &",".repeat(50_000))
        }),
        input("an Accept-Encoding of 50 KB", &[200, 431], || {
            get(CONFIG_MAPS).header("Accept-Encoding", &"gzip;q=0.5,".repeat(4_500))
        }),
        input("a token of 50 KB", &[200, 401], || {
            get(CONFIG_MAPS).header("Authorization", &format!("Bearer {}", "a.".repeat(25_000)))
        }),
        input("an Authorization that is none", &[200, 401], || {
            get(CONFIG_MAPS).header("Authorization", "\t,=")
        }),
        input("a user of 50 KB", &[403, 431], || {
            get(CONFIG_MAPS).header("Impersonate-User", &"u".repeat(50_000))
        }),
        input("groups of nobody", &[400], || {
            get(CONFIG_MAPS).header("Impersonate-Group", "g")
        }),
        input("90 groups of 500 letters for somebody", &[403], || {
            let request = get(CONFIG_MAPS).header("Impersonate-User", "u");
            (0..90).fold(request, |request, index| {
                request.header("Impersonate-Group", &format!("g{index}{}", "g".repeat(500)))
            })
        }),
        input("80 extras of somebody", &[403], || {
            let request = get(CONFIG_MAPS).header("Impersonate-User", "u");
            (0..80).fold(request, |request, index| {
                request.header(&format!("Impersonate-Extra-K{index}%2Fx"), &"v".repeat(500))
            })
        }),
        input("an extra with an escape that is none", &[200, 400, 403], || {
            get(CONFIG_MAPS)
                .header("Impersonate-User", "u")
                .header("Impersonate-Extra-%zz", "v")
        }),
        input("an expectation that nobody knows", &[201, 400, 417], || {
            made().header("Expect", "the unexpected")
        }),
        input("an upgrade to what nobody speaks", &[200, 400, 426], || {
            get(CONFIG_MAPS)
                .header("Connection", "Upgrade")
                .header("Upgrade", "x-other")
        }),
        input("20,000 chunks of one byte", &[400, 422], || {
            let body = format!("{}0\r\n\r\n", "1\r\n \r\n".repeat(scaled(20_000)));
            post(CONFIG_MAPS, JSON, body).header("Transfer-Encoding", "chunked")
        }),
        input("1,000,000 chunks of one byte", &[400, 422], || {
            let body = format!("{}0\r\n\r\n", "1\r\n \r\n".repeat(scaled(1_000_000)));
            post(CONFIG_MAPS, JSON, body).header("Transfer-Encoding", "chunked")
        }),
        input("a chunk with an extension of 10 KB", &[400, 422], || {
            let body = format!("1;{}\r\n \r\n0\r\n\r\n", "x".repeat(10_000));
            post(CONFIG_MAPS, JSON, body).header("Transfer-Encoding", "chunked")
        }),
        input("a chunk of 2^64 bytes", &[400], || {
            post(CONFIG_MAPS, JSON, "10000000000000000\r\n").header("Transfer-Encoding", "chunked")
        }),
        input("1,000 trailers", &[400, 422, 431], || {
            let body = format!("0\r\n{}\r\n", "X-Late: a\r\n".repeat(1_000));
            post(CONFIG_MAPS, JSON, body).header("Transfer-Encoding", "chunked")
        }),
        input("a body with two framings", &[400, 422], || {
            let body = "0\r\n\r\n";
            post(CONFIG_MAPS, JSON, body)
                .header("Transfer-Encoding", "chunked")
                .header("Content-Length", "5")
        }),
        input("a body of two lengths", &[400], || {
            post(CONFIG_MAPS, JSON, "{}")
                .header("Content-Length", "2")
                .header("Content-Length", "3")
        }),
        input("a body of a length that is no number", &[400], || {
            post(CONFIG_MAPS, JSON, "{}").header("Content-Length", "-2")
        }),
        input("a body that is announced with 2^62 bytes", &[400, 413], || {
            post(CONFIG_MAPS, JSON, "{}").header("Content-Length", "4611686018427387904")
        }),
        input("a body in chunks of chunks", &[501], || {
            post(CONFIG_MAPS, JSON, "0\r\n\r\n").header("Transfer-Encoding", "chunked, chunked")
        }),
        input("a request to two hosts", &[400], || {
            get(CONFIG_MAPS).header("Host", "elsewhere")
        }),
        input("an encoding of bodies that nobody knows", &[400, 415, 422, 501], || {
            post(CONFIG_MAPS, JSON, "0\r\n\r\n").header("Transfer-Encoding", "x-other")
        }),
    ]
}

fn made() -> Request {
    create(CONFIG_MAPS, "odd", config_map("odd", "", ""))
}
