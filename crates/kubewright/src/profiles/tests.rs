//! Over sockets, with a thread that has something to do.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Status and body of a GET.
async fn get(address: SocketAddr, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("it answers");
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let status = std::str::from_utf8(&answer[9..12])
        .expect("digits")
        .parse()
        .expect("a number");
    (status, answer[head + 4..].to_vec())
}

async fn server() -> (SocketAddr, crate::stop::StopSource) {
    let (source, stop) = Stop::pair();
    let (address, serving) = ProfileServer::new(":0").bind(stop).await.expect("a port is free");
    tokio::spawn(serving);
    (address, source)
}

/// The parts of a protobuf message: numbers and fields with a length.
fn parts(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(from: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = from.split_first().expect("a number has an end");
            *from = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if *byte < 0x80 {
                return value;
            }
        }
    }
    let mut parts = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = varint(&mut message);
        let (bytes, rest) = message.split_at(if tag & 7 == 2 { value as usize } else { 0 });
        message = rest;
        parts.push((tag >> 3, value, bytes));
    }
    parts
}

#[inline(never)]
fn spun_for_the_profile(until: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !until.load(Ordering::Relaxed) {
        for number in 0..1000 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_names_what_runs_and_only_one_is_taken_at_a_time() {
    let (address, _running) = server().await;
    let until = Arc::new(AtomicBool::new(false));
    let spinning = std::thread::spawn({
        let until = until.clone();
        move || spun_for_the_profile(&until)
    });
    let ask = || get(address, "/debug/pprof/profile?seconds=3");
    let mut answers = <[_; 2]>::from(tokio::join!(ask(), ask()));
    until.store(true, Ordering::Relaxed);
    spinning.join().expect("it only counts");
    answers.sort_by_key(|(status, _)| *status);
    let [(status, profile), refused] = answers;
    assert_eq!(refused.0, 409, "whoever comes second is refused");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&profile));
    let profile = parts(&profile);
    let texts: Vec<String> = profile
        .iter()
        .filter(|(field, ..)| *field == 6)
        .map(|(.., text)| String::from_utf8_lossy(text).into_owned())
        .collect();
    assert_eq!(texts.first().map(String::as_str), Some(""));
    assert!(
        texts.iter().any(|text| text.contains("spun_for_the_profile")),
        "{texts:?}"
    );
    let samples = profile.iter().filter(|(field, ..)| *field == 2);
    let counted: u64 = samples
        .filter_map(|(.., sample)| parts(sample).iter().find(|(field, ..)| *field == 2).map(|part| part.1))
        .sum();
    assert!(
        (1..=3 * 64 * 300).contains(&counted),
        "{counted} samples in three seconds"
    );
}

#[tokio::test]
async fn what_is_not_served_says_why() {
    let (address, _running) = server().await;
    let check = async |path: &str, expected: u16, word: &str| {
        let (status, body) = get(address, path).await;
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(status == expected && body.contains(word), "{path}: {status} {body}");
    };
    check("/debug/pprof/", 200, "profile?seconds=N").await;
    check("/debug/pprof/heap", 501, "heap is not served: the allocator").await;
    check("/debug/pprof/goroutine?debug=2", 501, "tokio-console").await;
    check("/debug/pprof/profile?seconds=0", 400, "from 1 to 300").await;
    check("/debug/pprof/profile?seconds=301", 400, "from 1 to 300").await;
    check("/debug/pprof/profile?seconds=soon", 400, "seconds=soon").await;
    check("/debug/pprof/nothing", 404, "there is no nothing").await;
    check("/metrics", 404, "/debug/pprof/").await;
}

#[test]
fn an_address_without_a_host_is_loopback() {
    let check = |given: &str, expected: &str| assert_eq!(ProfileServer::new(given).address, expected);
    check(":6060", "127.0.0.1:6060");
    check("0.0.0.0:6060", "0.0.0.0:6060");
    check("[::1]:6060", "[::1]:6060");
}
