//! Hostile requests of a client, one input after the other, against a server in a process of its own.
//!
//! For each input ([`inputs`]) the test sends the request, and meanwhile another client writes, reads and deletes. The
//! stored objects are then read in every form, listed, watched, and deleted ([`afterwards`]). The server must still be
//! the same process at the end.
//!
//! Nothing here is timed but for one bound: an answer comes within a minute, in a debug build on a busy machine. The
//! cost of an input is for the book:
//! `KUBEWRIGHT_HOSTILE_REPORT=FILE cargo test --release -p kubewright-cluster --test it hostile::` writes a table.
//! `KUBEWRIGHT_HOSTILE_PROGRAM=PATH` has the inputs sent to `PATH cluster`, the command as users start it (this test has
//! another allocator). `KUBEWRIGHT_HOSTILE_ONLY=WORDS` picks inputs by their names or those of their groups.
//! `KUBEWRIGHT_HOSTILE_SERVER=KUBECONFIG` asks another server instead, such as a real kube-apiserver, and prints its
//! answers.
//!
//! Two users beside each other, one of whom attacks, are in [`shares`]: what the other one gets, and how soon.
//!
//! Not here: connections that misbehave (`bad_input.rs`), sequences of requests (`stateful` of the API server's tests).

// A test fails by panicking, and the process under test says on standard output where it listens.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod afterwards;
mod answering;
mod client;
mod input;
mod inputs;
mod neighbour;
mod report;
mod server;
mod shares;
mod values;

use std::env;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use client::{Answer, Connection};
use input::{Input, Request};
use neighbour::Neighbour;
use report::{Report, Row};
use server::Server;

/// So many inputs are tried side by side, each on a server of its own: some of them wait for a peer that never
/// answers.
const LANES: usize = 4;

/// The inputs that are left, each with its group; the next one is the last of them.
type Queue = Arc<Mutex<Vec<(&'static str, Input)>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_is_sent_hurts_the_server() {
    let only = env::var("KUBEWRIGHT_HOSTILE_ONLY").unwrap_or_default();
    let is_wanted = |(group, input): &(&str, Input)| group.contains(&only) || input.name.contains(&only);
    let groups = inputs::groups().into_iter();
    let all = groups.flat_map(|(group, list)| list.into_iter().map(move |input| (group, input)));
    let mut wanted: Vec<(&str, Input)> = all.filter(is_wanted).collect();
    let report = Report::from_env();
    let lanes = if report.is_undisturbed() { 1 } else { LANES };
    if lanes == 1 {
        // In the order of the report. Otherwise the last group comes first, where the longest waits are.
        wanted.reverse();
    }
    let (queue, report) = (Arc::new(Mutex::new(wanted)), Arc::new(Mutex::new(report)));
    let lanes = (0..lanes).map(|_| tokio::spawn(lane(queue.clone(), report.clone())));
    let problems: Vec<String> = futures::future::try_join_all(lanes).await.unwrap().concat();
    report.lock().unwrap().write();
    assert!(
        problems.is_empty(),
        "{} inputs hurt:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// Tries inputs until none is left, and says what was wrong.
async fn lane(queue: Queue, report: Arc<Mutex<Report>>) -> Vec<String> {
    let mut server = Server::start();
    let mut problems = Vec::new();
    loop {
        let next = queue.lock().unwrap().pop();
        let Some((group, input)) = next else { return problems };
        let began = Instant::now();
        let checked = check(&server, group, &input, &report).await;
        eprintln!("{:?} {}", began.elapsed(), input.name);
        if let Err(problem) = checked {
            eprintln!("{}: {problem}", input.name);
            problems.push(format!("{}: {problem}", input.name));
            // The next input must not fail because of what this one left in the server.
            server = Server::start();
        }
    }
}

/// The most expensive inputs of their sorts.
const EXPENSIVE: [&str; 10] = [
    "a pod with 20,000 containers",
    "100,000 labels",
    "a strategic patch that merges 20,000 containers",
    "an apply of a list with 20,000 keys",
    "a JSON patch with 2,000 inserts at the head of 600,000 items",
    "a definition with 20,000 properties",
    "an enum of 50,000 strings and a list of 50,000 others",
    "10,000 webhooks in one configuration",
    "a Role with 20,000 rules by somebody who may not",
    "a review of access by 20,000 requirements",
];

/// One thread serves all connections here, so a request that it worked on would hold up the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_request_keeps_no_other_client_waiting() {
    let server = Server::start();
    let inputs: Vec<Input> = inputs::groups().into_iter().flat_map(|(_, list)| list).collect();
    for name in EXPENSIVE {
        let input = inputs.iter().find(|input| input.name == name);
        let input = input.unwrap_or_else(|| panic!("there is no input {name:?}"));
        let mut counts = Vec::new();
        // A busy machine may stop all processes for a while.
        while counts.len() < 3 && counts.last().is_none_or(|count| *count < 3) {
            counts.push(answered_meanwhile(&server, input).await.unwrap());
        }
        let last = counts.last().copied().unwrap_or_default();
        assert!(
            last >= 3,
            "{name}: others got so many answers in the second half of it: {counts:?}"
        );
    }
}

/// How many answers another client gets in the second half of the time that this takes: by then it has been sent and is
/// worked on.
async fn answered_meanwhile(server: &Server, input: &Input) -> Result<usize, String> {
    let request = (input.request)();
    let mut other = Connection::open(&server.as_another()).await?;
    let livez = input::get("/livez");
    let began = Instant::now();
    let asked = send(server, &request);
    let mut answers = Vec::new();
    let asking = async {
        loop {
            let answer = other.ask(&livez).await;
            answers.push((Instant::now(), answer));
        }
    };
    let answered = tokio::select! {
        answered = asked => answered?,
        () = asking => unreachable!("it goes on until the answer is there"),
    };
    let half = began + began.elapsed() / 2;
    let made = afterwards::made(&request, &answered);
    afterwards::check(server, &made).await?;
    let meanwhile = answers.into_iter().filter(|(when, _)| *when > half);
    meanwhile.map(|(_, answer)| answer.map(|_| 1)).sum()
}

/// The server that the other test starts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that the other test starts"]
async fn server_process() {
    server::run().await;
}

/// Sends one input; answers the errors that follow.
async fn check(server: &Server, group: &'static str, input: &Input, report: &Mutex<Report>) -> Result<(), String> {
    let request = (input.request)();
    let neighbour = Neighbour::start(server);
    let answers = send(server, &request).await;
    let waited = neighbour.stop().await;
    let answers = answers?;
    for answer in &answers {
        report.lock().unwrap().answered(input, answer);
        is_expected(input, answer)?;
    }
    waited.map_err(|problem| format!("the neighbour: {problem}"))?;
    let made = afterwards::made(&request, &answers);
    afterwards::check(server, &made).await?;
    afterwards::clear(server, &request).await?;
    let is_measured = report.lock().unwrap().is_wanted();
    if is_measured {
        let row = measured(&request).await?;
        report.lock().unwrap().add(group, input, &request, row);
    }
    server.is_alive()
}

/// Makes the objects that have to be there before, and sends the input itself.
async fn send(server: &Server, request: &Request) -> Result<Vec<Answer>, String> {
    let mut client = Connection::open(server).await?;
    for before in &request.before {
        let answer = client.ask(before).await?;
        if answer.code >= 300 {
            return Err(format!("{} {} is refused: {answer:?}", before.method, before.path));
        }
        server.settle().await;
    }
    at_once(&mut connections(server, request).await?, request).await
}

/// A connection for each client.
async fn connections(server: &Server, request: &Request) -> Result<Vec<Connection>, String> {
    let mut connections = Vec::new();
    for _ in 0..request.clients {
        connections.push(Connection::open(server).await?);
    }
    Ok(connections)
}

/// The answer to each of the clients.
async fn at_once(connections: &mut [Connection], request: &Request) -> Result<Vec<Answer>, String> {
    let requests = request.each();
    let asking = connections.iter_mut().zip(&requests);
    futures::future::try_join_all(asking.map(|(connection, request)| connection.ask(request))).await
}

/// The same once more without other clients, in a new process: another one holds memory that it has used before.
async fn measured(request: &Request) -> Result<Row, String> {
    let server = &Server::start();
    let mut client = Connection::open(server).await?;
    for before in &request.before {
        client.ask(before).await?;
    }
    let mut connections = connections(server, request).await?;
    let before = server.begin_measuring();
    let answers = at_once(&mut connections, request).await?;
    let mut figures = server.figures(before);
    figures.cpu /= request.clients as u64;
    afterwards::check(server, &afterwards::made(request, &answers)).await?;
    let [answer, ..] = &answers[..] else {
        return Err("nobody asked".to_owned());
    };
    Ok(Row {
        code: answer.code,
        answered: answer.body.len(),
        figures,
    })
}

fn is_expected(input: &Input, answer: &Answer) -> Result<(), String> {
    if !input.answers.contains(&answer.code) {
        return Err(format!("not one of {:?}: {answer:?}", input.answers));
    }
    if answer.code >= 400 && answer.is_json() {
        let status = answer.json().ok_or("an answer that is no JSON")?;
        if status["kind"] != "Status" || status["code"] != answer.code {
            return Err(format!("no Status: {answer:?}"));
        }
    }
    Ok(())
}
