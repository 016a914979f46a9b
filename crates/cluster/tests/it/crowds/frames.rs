//! Frames of HTTP/2 that are allowed one by one and hurt in their number: their sender gets an answer or loses the
//! connection, and a new client is served while they come.
//!
//! The frames are written by hand, for no client library sends them. Not here: HTTP/2 without a word (`crowds.rs`),
//! heads and bodies of single requests (`hostile/inputs/heads.txt`).

use kubewright_cluster::{Cluster, Controllers, Limits, Listening};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::a_new_client_is_served;
use crate::alone;
use crate::common::{Who, listening, raw_with, soon};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How many frames a flood has.
const MANY: u32 = 20_000;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("frames are small").to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// A header that is not kept in the table of either side; both texts are short.
fn header(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("a short text");
    assert!(
        name.len() < 127 && value.len() < 127,
        "longer texts need longer lengths"
    );
    [
        &[0, length(name)][..],
        name.as_bytes(),
        &[length(value)],
        value.as_bytes(),
    ]
    .concat()
}

/// `GET` or, with `:method` 3, `POST` of a path.
fn request(method: u8, path: &str) -> Vec<u8> {
    let fixed = [0x80 | method, 0x87];
    [&fixed[..], &header(":path", path), &header(":authority", "localhost")].concat()
}

const GET: u8 = 2;
const POST: u8 = 3;

/// The frames of a client after its preface and its settings.
struct Flood {
    name: &'static str,
    frames: fn() -> Vec<u8>,
}

const fn flood(name: &'static str, frames: fn() -> Vec<u8>) -> Flood {
    Flood { name, frames }
}

fn each(frames: impl FnMut(u32) -> Vec<u8>) -> Vec<u8> {
    (0..MANY).flat_map(frames).collect()
}

/// The number of the stream that a client opens as the so many-th.
fn stream(index: u32) -> u32 {
    2 * index + 1
}

fn floods() -> Vec<Flood> {
    vec![
        flood("streams that are reset at once", || {
            each(|index| {
                let begin = frame(
                    HEADERS,
                    END_STREAM | END_HEADERS,
                    stream(index),
                    &request(GET, "/version"),
                );
                [begin, frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8])].concat()
            })
        }),
        flood("bodies that are reset at once", || {
            let path = "/api/v1/namespaces/default/configmaps";
            each(|index| {
                let begin = frame(HEADERS, END_HEADERS, stream(index), &request(POST, path));
                let body = frame(DATA, 0, stream(index), b"{");
                [begin, body, frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8])].concat()
            })
        }),
        flood("streams that the server has to reset", || {
            // A window update of nothing is an error of the stream.
            each(|index| {
                let begin = frame(HEADERS, END_HEADERS, stream(index), &request(POST, "/version"));
                [begin, frame(WINDOW_UPDATE, 0, stream(index), &[0, 0, 0, 0])].concat()
            })
        }),
        flood("more streams than are allowed", || {
            let path = "/api/v1/configmaps?watch=1";
            each(|index| frame(HEADERS, END_STREAM | END_HEADERS, stream(index), &request(GET, path)))
        }),
        flood("a head that goes on for ever", || {
            let begin = frame(HEADERS, END_STREAM, 1, &request(GET, "/version"));
            let more = header("x", &"y".repeat(100));
            [begin, each(|_| frame(CONTINUATION, 0, 1, &more))].concat()
        }),
        flood("a head that goes on with nothing", || {
            let begin = frame(HEADERS, END_STREAM, 1, &request(GET, "/version"));
            [begin, each(|_| frame(CONTINUATION, 0, 1, &[]))].concat()
        }),
        flood("a header that is kept once and named 16,000 times", || {
            // Index 62 is the last kept header.
            let kept = [&[0x40, 1][..], b"x", &[127, 0x81, 0x1d], "y".repeat(3_840).as_bytes()].concat();
            let head = [request(GET, "/version"), kept, vec![0x80 | 62; 12_000]].concat();
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)
        }),
        flood("a table of headers that grows and shrinks", || {
            let sizes = [[0x3f, 0xe1, 0x1f], [0x3f, 0xe1, 0x1f]].concat();
            let head = [sizes.repeat(2_000), request(GET, "/version")].concat();
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)
        }),
        flood("pings", || each(|_| frame(PING, 0, 0, &[0; 8]))),
        flood("settings", || {
            each(|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]))
        }),
        flood("settings of a table of 4 GB", || {
            each(|_| frame(SETTINGS, 0, 0, &[0, 1, 0xff, 0xff, 0xff, 0xff]))
        }),
        flood("settings that are acknowledged and were never sent", || {
            each(|_| frame(SETTINGS, 1, 0, &[]))
        }),
        flood("priorities", || {
            each(|index| frame(PRIORITY, 0, stream(index), &[0, 0, 0, 0, 1]))
        }),
        flood("a stream that depends on itself", || {
            frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 1])
        }),
        flood("data without an octet", || {
            let begin = frame(
                HEADERS,
                END_HEADERS,
                1,
                &request(POST, "/api/v1/namespaces/default/configmaps"),
            );
            [begin, each(|_| frame(DATA, 0, 1, &[]))].concat()
        }),
        flood("data that is only padding", || {
            let begin = frame(
                HEADERS,
                END_HEADERS,
                1,
                &request(POST, "/api/v1/namespaces/default/configmaps"),
            );
            [begin, each(|_| frame(DATA, 8, 1, &[2, 0, 0]))].concat()
        }),
        flood("a window beyond 2^31", || {
            let most = [0x7f, 0xff, 0xff, 0xff];
            frame(WINDOW_UPDATE, 0, 0, &most).repeat(2)
        }),
        flood("windows that grow by one octet", || {
            each(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))
        }),
        flood("a promise of a client", || {
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])
        }),
        flood("frames that nobody knows", || {
            each(|index| frame(0xee, 0xff, index, &[1; 16]))
        }),
        flood("a frame of 16 MB", || [0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1].to_vec()),
        flood("data for a stream that was never there", || {
            frame(DATA, END_STREAM, 99, b"x")
        }),
        flood("a stream with an even number", || {
            frame(HEADERS, END_STREAM | END_HEADERS, 2, &request(GET, "/version"))
        }),
        flood("a second preface", || b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".repeat(100)),
        flood("a head without a path", || {
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0x82, 0x87])
        }),
        flood("a head in capitals", || {
            let head = [request(GET, "/version"), header("X-Upper", "a")].concat();
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)
        }),
        flood("a text in Huffman's code that is none", || {
            let head = [&[0x82, 0x87, 0x04, 0x84][..], &[0xff; 4]].concat();
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)
        }),
        flood("a number of many octets", || {
            frame(
                HEADERS,
                END_STREAM | END_HEADERS,
                1,
                &[&[0xff][..], &[0x80; 4_000]].concat(),
            )
        }),
    ]
}

/// Sends a flood, and serves another client until it is sent or the server has ended the connection: either is right.
async fn send(what: &Flood, listening: &Listening) {
    let client = raw_with(listening, Who::Admin, &[b"h2"]).await;
    let (mut answers, mut client) = tokio::io::split(client);
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
    client.write_all(&begin).await.expect("the preface is taken");
    let frames = (what.frames)();
    let writing = async {
        client.write_all(&frames).await?;
        client.flush().await
    };
    let reading = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(1..) = answers.read(&mut buffer).await {}
    };
    let flooding = async {
        tokio::select! {
            // Bytes written when the connection ends are lost, as they should be.
            _ = writing => {}
            () = reading => {}
        }
    };
    let others = async {
        loop {
            a_new_client_is_served(what.name, listening).await;
        }
    };
    tokio::select! {
        () = soon(what.name, flooding) => {}
        () = others => unreachable!("it goes on"),
    }
    a_new_client_is_served(what.name, listening).await;
}

/// The memory of this process that is its own, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number of pages") * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_hurt_no_other_client() {
    // The memory that is measured is the whole process's.
    if alone::ran(&floods_of_frames_hurt_no_other_client) {
        return;
    }
    let builder = Cluster::builder()
        .controllers(Controllers::None)
        .limits(Limits::default());
    let (cluster, listening) = listening(builder).await;
    a_new_client_is_served("before", &listening).await;
    for what in floods() {
        let before = resident();
        send(&what, &listening).await;
        // The flood itself is up to 2 MB, and a server that kept something of each frame would need more than this.
        let grown = resident().saturating_sub(before) / 1_000_000;
        assert!(grown < 64, "{}: {grown} MB", what.name);
    }
    cluster.stop().await;
}
