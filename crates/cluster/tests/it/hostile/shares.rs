//! A user beside others that attack, each with tokens and connections of its own: what the user gets, and how soon.
//!
//! Every answer to the user must be right, and none may tell it to come back: the others have their shares, and it has
//! its own. How long it waits is printed, alone and beside each attack; only a wait that no noise of a machine explains
//! is an error.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::Connection;
use super::input::{self, Request};
use super::server::{Server, USERS};
use super::values::{CONFIG_MAPS, SECRETS};

/// How often the user does everything that it does.
const ROUNDS: usize = 15;
/// The server allows so many watches, and each attacker wants more than its share.
const WATCHES: usize = 200;
/// A wait of up to this is never an error: a debug build on a busy machine.
const ALWAYS_GOOD: Duration = Duration::from_secs(1);
/// Nor one that is so many times the one without an attack.
const NOISE: u32 = 50;

/// What the others do all the while.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// Bodies that are sent but for their ends, more than the server has room for.
    StalledBodies,
    /// 240 patches at once that take long, again and again.
    LongPatches,
    /// As many watches as they get.
    Watches,
    /// Large lists that they do not read.
    UnreadLists,
    /// Small requests on many connections, as fast as they can.
    Connections,
}

const ATTACKS: [Attack; 5] = [
    Attack::StalledBodies,
    Attack::LongPatches,
    Attack::Watches,
    Attack::UnreadLists,
    Attack::Connections,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_others_do_keeps_nobody_from_his_share() {
    let server = Server::with_users(WATCHES);
    prepare(&server).await.unwrap();
    println!("| attack | alone p50 | p99 | beside it p50 | p99 | ratio |\n|---|--:|--:|--:|--:|--:|");
    for (index, attack) in ATTACKS.into_iter().enumerate() {
        // Everybody is attacked, and attacks.
        let user = USERS[index % USERS.len()];
        let attackers: Vec<&str> = USERS.into_iter().filter(|other| *other != user).collect();
        let alone = alone(&server.as_user(user)).await;
        let alone = alone.unwrap_or_else(|problem| panic!("{user} alone: {problem}"));
        let mut attacking = JoinSet::new();
        for attacker in &attackers {
            attack
                .begin(&server.as_user(attacker), attacker, &mut attacking)
                .await
                .unwrap();
        }
        let beside = Waits::of(&server.as_user(user)).await;
        let beside = beside.unwrap_or_else(|problem| panic!("{user} beside {attack:?}: {problem}"));
        attacking.shutdown().await;
        server.is_alive().unwrap();
        let ratio = beside.p99().as_secs_f64() / alone.p99().as_secs_f64();
        println!("| {attack:?} | {alone} | {beside} | {ratio:.1} |");
        let bound = ALWAYS_GOOD.max(alone.p99() * NOISE);
        assert!(
            beside.p99() <= bound,
            "{attack:?}: {user} waits {beside}, and alone {alone}"
        );
    }
}

/// The waits of a user who has attacked: what an attack held is given back when the server has seen its connections end.
async fn alone(server: &Server) -> Result<Waits, String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Waits::of(server).await {
            Err(problem) if problem.contains(": 429 ") && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            waits => return waits,
        }
    }
}

/// Makes what they read.
async fn prepare(server: &Server) -> Result<(), String> {
    let mut admin = Connection::open(server).await?;
    let mut made = Vec::new();
    for user in USERS {
        let data: serde_json::Map<String, Value> = (0..500).map(|key| (format!("k{key}"), json!("v"))).collect();
        made.push(input::create(
            CONFIG_MAPS,
            user,
            map(&format!("long-{user}"), json!(data)),
        ));
    }
    for index in 0..40 {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("large-{index}")},
            "stringData": {"k": "x".repeat(100_000)}});
        made.push(input::create(SECRETS, "large", secret));
    }
    for request in &made {
        let answer = admin.ask(request).await?;
        if answer.code != 201 {
            return Err(format!("{}: {answer:?}", request.path));
        }
    }
    Ok(())
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

impl Attack {
    /// Begins it as one of the users; it goes on in these tasks.
    async fn begin(self, server: &Server, user: &str, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let (connections, request) = match self {
            // A body that is announced larger than it is sent.
            Attack::StalledBodies => {
                let body = input::create(CONFIG_MAPS, "stalled", "x".repeat(2_900_000));
                (50, body.header("Content-Length", "3000000"))
            }
            Attack::LongPatches => (120, long_patch(user)),
            Attack::Watches => (WATCHES * 3 / 4, input::get(CONFIG_MAPS).query("watch=true")),
            Attack::UnreadLists => {
                let list = input::get(SECRETS).header("Accept", "application/vnd.kubernetes.protobuf");
                (50, list)
            }
            Attack::Connections => (50, input::get("/version")),
        };
        let mut opened = Vec::new();
        for _ in 0..connections {
            opened.push(Connection::open(server).await?);
        }
        for mut connection in opened {
            let request = request.clone();
            tasks.spawn(async move {
                match self {
                    Attack::StalledBodies | Attack::UnreadLists => connection.send(&request).await,
                    // What the answers are is the attackers' business.
                    Attack::LongPatches | Attack::Connections => while connection.ask(&request).await.is_ok() {},
                    Attack::Watches => {
                        connection.send(&request).await;
                        while connection.more().await.unwrap_or(false) {}
                    }
                }
                // It stays open until the attack ends.
                std::future::pending::<()>().await;
            });
        }
        Ok(())
    }
}

/// A patch that copies much, and leaves the object as it is.
fn long_patch(user: &str) -> Request {
    let copies = (0..40).flat_map(|_| {
        [
            json!({"op": "copy", "from": "/data", "path": "/metadata/annotations"}),
            json!({"op": "remove", "path": "/metadata/annotations"}),
        ]
    });
    // Longer than what is answered where others wait.
    let rest = json!({"op": "test", "path": "/metadata/name", "value": format!("long-{user}")});
    let patch: Vec<Value> = copies.chain(std::iter::repeat_n(rest, 300)).collect();
    input::json_patch(&format!("{CONFIG_MAPS}/long-{user}"), json!(patch))
}

/// How long a user waited for its answers, the shortest first.
struct Waits(Vec<Duration>);

impl Waits {
    /// Those of a user that gets, lists, writes and watches.
    async fn of(server: &Server) -> Result<Waits, String> {
        // One that was refused on the way has left an object behind.
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        let tried = TRIES.fetch_add(1, Ordering::Relaxed);
        let mut connection = Connection::open(server).await?;
        let mut waits = Vec::new();
        for round in 0..ROUNDS {
            // One that is small, and one that takes its turn with the long ones.
            for (name, bytes) in [("small", 10), ("larger", 20_000)] {
                let name = format!("{name}-{tried}-{round}");
                let path = format!("{CONFIG_MAPS}/{name}");
                let life = [
                    (
                        input::create(CONFIG_MAPS, &name, map(&name, json!({"k": "x".repeat(bytes)}))),
                        201,
                    ),
                    (input::get(&path), 200),
                    (input::merge_patch(&path, r#"{"data":{"l":"m"}}"#), 200),
                    (input::get(CONFIG_MAPS).query("limit=10"), 200),
                ];
                for (request, code) in &life {
                    let asked = Instant::now();
                    let answer = connection.ask(request).await?;
                    waits.push(asked.elapsed());
                    if answer.code != *code {
                        return Err(format!("{} {}: {answer:?}", request.method, request.path));
                    }
                }
                let mut watching = Connection::open(server).await?;
                let watch = input::get(CONFIG_MAPS).query(&format!("watch=true&fieldSelector=metadata.name%3D{name}"));
                let asked = Instant::now();
                watching.ask_until(&watch, "\"ADDED\"").await?;
                waits.push(asked.elapsed());
                let answer = connection.ask(&input::delete(&path, "{}")).await?;
                if answer.code != 200 {
                    return Err(format!("DELETE {path}: {answer:?}"));
                }
            }
        }
        waits.sort_unstable();
        Ok(Waits(waits))
    }

    /// Longer than so many of a hundred.
    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }

    fn p99(&self) -> Duration {
        self.percentile(99)
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |wait: Duration| wait.as_secs_f64() * 1e3;
        write!(
            f,
            "{:.1} ms | {:.1} ms",
            milliseconds(self.percentile(50)),
            milliseconds(self.p99())
        )
    }
}
