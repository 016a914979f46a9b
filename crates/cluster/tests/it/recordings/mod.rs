//! The answers of a real API server, request by request, played against ours: the sequences in `testdata/recordings`,
//! recorded from kube-apiserver 1.36.3 without controllers. Its README describes the form of a sequence and the
//! comparison.
//!
//! Other versions of Kubernetes have overlays: the answers of the same sequences that differ
//! (`testdata/recordings-1.37.json`; a list is what a webhook was sent). A sequence with `since` is only theirs.

mod compare;
mod hook;
mod http;
mod player;

use crate::common;
use std::path::Path;
use std::sync::Arc;

use compare::Caller;
use futures::StreamExt as _;
use kubewright_cluster::{Cluster, Controllers, Listening, Minor};
use serde_json::{Value, json};

/// Sequences that run at the same time.
const AT_ONCE: usize = 6;
/// Steps that are answered otherwise, each with the reason. A step that is answered as recorded does not belong here:
/// the test reports it.
const KNOWN: &[(&str, &str, &str)] = &[];

/// One list for all sequences: a failure shows every step that differs, not the first one only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_answers_as_recorded() {
    let steps = play(Minor::V36, sequences(Minor::V36), KNOWN).await;
    assert!(steps > 6500, "only {steps} steps were found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_1_37_answers_as_recorded() {
    let overlay: Value =
        serde_json::from_str(include_str!("../../../testdata/recordings-1.37.json")).expect("an overlay is JSON");
    let mut sequences = sequences(Minor::V37);
    // The others are answered as by 1.36, which one look at night confirms.
    if std::env::var_os("KUBEWRIGHT_ALL_RECORDINGS").is_none() {
        sequences.retain(|(file, sequence)| overlay["answers"].get(file).is_some() || !sequence["since"].is_null());
    }
    let mut answers = 0;
    for (file, sequence) in &mut sequences {
        for (name, answer) in overlay["answers"][file.as_str()].as_object().into_iter().flatten() {
            let step = step(&mut sequence["steps"], name);
            let step = step.unwrap_or_else(|| panic!("{file} has no step {name}"));
            let part = if answer.is_array() { "reviews" } else { "response" };
            step[part] = answer.clone();
            answers += 1;
        }
    }
    let listed = overlay["answers"].as_object().expect("an object").values();
    assert_eq!(
        answers,
        listed.filter_map(|of| Some(of.as_object()?.len())).sum::<usize>()
    );
    let steps = play(Minor::V37, sequences, KNOWN).await;
    assert!(steps > 3500, "only {steps} steps were found");
}

/// The step of this name, which may be one of those during a watch.
fn step<'a>(steps: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let steps = steps.as_array_mut()?;
    steps.iter_mut().find_map(|known| {
        if known["name"] == name {
            return Some(known);
        }
        step(known.get_mut("during")?, name)
    })
}

fn builder(minor: Minor) -> kubewright_cluster::ClusterBuilder {
    Cluster::builder()
        .controllers(Controllers::None)
        .kubernetes_version(minor)
}

/// Plays these sequences against a server of this version; how many steps there were.
async fn play(minor: Minor, sequences: Vec<(String, Value)>, expected: &[(&str, &str, &str)]) -> usize {
    static ONE_VERSION_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = ONE_VERSION_AT_A_TIME.lock().await;
    let (cluster, listening) = common::listening(builder(minor)).await;
    let listening = Arc::new(listening);
    let caller = caller(&listening).await;
    let mut report = Vec::new();
    let mut steps = 0;
    let mut known: Vec<(String, String)> = Vec::new();
    let played = futures::stream::iter(sequences.into_iter().enumerate().map(|(index, (file, sequence))| {
        let (listening, caller) = (listening.clone(), caller.clone());
        async move {
            let id = format!("x{}", letters(index));
            let outcomes = player::Player::play(&listening, caller, &id, &sequence).await;
            (file, sequence, outcomes)
        }
    }));
    let mut played = played.buffer_unordered(AT_ONCE);
    while let Some((file, sequence, mut outcomes)) = played.next().await {
        // An address or a port that a sequence names may by chance be one that a Service was given before, here as on a
        // real server.
        if outcomes.iter().any(|outcome| !outcome.differences.is_empty()) {
            outcomes = alone(minor, &sequence).await;
        }
        for outcome in outcomes {
            steps += 1;
            if outcome.differences.is_empty() {
                continue;
            }
            if expected
                .iter()
                .any(|(at, step, _)| *at == file && *step == outcome.step)
            {
                known.push((file.clone(), outcome.step));
                continue;
            }
            let shown: Vec<String> = outcome
                .differences
                .iter()
                .take(6)
                .map(|line| format!("    {line}"))
                .collect();
            report.push(format!("{file} {}\n{}", outcome.step, shown.join("\n")));
        }
    }
    cluster.stop().await;
    report.sort();
    let healed = expected
        .iter()
        .filter(|(file, step, _)| !known.contains(&((*file).to_owned(), (*step).to_owned())));
    report
        .extend(healed.map(|(file, step, _)| format!("{file} {step} is answered as recorded: strike it off the list")));
    assert!(
        report.is_empty(),
        "{} of {steps} steps differ:\n{}",
        report.len(),
        report.join("\n")
    );
    steps
}

/// Plays a sequence on a server of its own.
async fn alone(minor: Minor, sequence: &Value) -> Vec<player::Outcome> {
    let (cluster, listening) = common::listening(builder(minor)).await;
    let outcomes = player::Player::play(&listening, caller(&listening).await, "xalone", sequence).await;
    cluster.stop().await;
    outcomes
}

/// How the server sees the administrator.
async fn caller(listening: &Listening) -> Caller {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = http::call(listening, &json!({"method": "POST", "path": path, "body": review})).await;
    let answer = answer.expect("the server answers");
    Caller(answer.body.pointer("/status/userInfo").cloned().unwrap_or_default())
}

/// The sequences that a version has: most have no `since`.
fn sequences(minor: Minor) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the recordings are there")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let read = |path: &Path| serde_json::from_str(&std::fs::read_to_string(path).expect("a readable file"));
    files
        .iter()
        .map(|path| {
            let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
            (name, read(path).expect("a recording is JSON"))
        })
        .filter(|(_, sequence): &(String, Value)| {
            let since = sequence["since"].as_str().map(str::parse::<Minor>);
            since.is_none_or(|since| since.expect("a version that is served") <= minor)
        })
        .collect()
}

/// A number as letters that may stand in every kind of name.
fn letters(mut number: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjkmnpqrstvwxz";
    let mut text = String::new();
    for _ in 0..6 {
        text.push(char::from(ALPHABET[number % ALPHABET.len()]));
        number /= ALPHABET.len();
    }
    text
}
