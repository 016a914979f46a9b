//! Stored objects can be read in every form, listed, watched, and deleted; then they are gone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Answer, Connection};
use super::input::{self, Request};
use super::server::Server;
use crate::common::SOON;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// An object that was made: its collection and its name.
#[derive(Debug)]
pub(crate) struct Made {
    collection: String,
    name: String,
}

/// The objects of `request` and those before it, the latest first.
pub(crate) fn made(request: &Request, answers: &[Answer]) -> Vec<Made> {
    let each = request.each();
    let granted = each.iter().zip(answers).filter(|(_, answer)| answer.code < 300);
    let own = granted.filter_map(|(request, _)| made_by(request));
    let before = request.before.iter().filter_map(made_by);
    own.chain(before.collect::<Vec<_>>().into_iter().rev()).collect()
}

/// Deletes the objects made before that are too many to be looked at one by one.
pub(crate) async fn clear(server: &Server, request: &Request) -> Result<(), String> {
    let mut client = Connection::open(server).await?;
    for request in &request.afterwards {
        let answer = client.ask(request).await?;
        expect(&answer, &[200, 202, 404], "afterwards")?;
    }
    let collections = request.afterwards.iter().filter(|request| request.method == "DELETE");
    for emptied in collections {
        until_empty(&mut client, &emptied.path).await?;
    }
    Ok(())
}

/// An object that ends in steps, such as a definition, is in the way of the next one of its name until it is gone.
async fn until_empty(client: &mut Connection, path: &str) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let answer = client.ask(&input::get(path)).await?;
        let items = answer.json().map(|list| list["items"].clone());
        if answer.code == 404 || items.is_some_and(|items| items == json!([])) {
            return Ok(());
        }
        look_again(began, &answer)
            .await
            .map_err(|why| format!("{path}: {why}"))?;
    }
}

/// Waits a little for an object that is still there; not for ever.
async fn look_again(began: Instant, answer: &Answer) -> Result<(), String> {
    if began.elapsed() > SOON {
        return Err(format!("still there: {answer:?}"));
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}

/// The object that a request makes, by its body. A name that is generated is not of this world.
fn made_by(request: &Request) -> Option<Made> {
    let path = request.plain_path();
    let (collection, name) = match (request.method, request.name.as_deref()) {
        ("POST", Some(name)) => (path, name),
        ("PATCH", _) if request.path.contains("fieldManager=") => path.rsplit_once('/')?,
        _ => return None,
    };
    Some(Made {
        collection: collection.to_owned(),
        name: name.to_owned(),
    })
}

/// Reads, lists, watches and deletes all of them. A list has all objects of its collection, and 64 clients may have
/// made one each: it is asked for once, while all of them are there.
pub(crate) async fn check(server: &Server, made: &[Made]) -> Result<(), String> {
    let mut client = Connection::open(server).await?;
    let mut listed = BTreeSet::new();
    for made in made {
        let lists = listed.insert(made.collection.as_str());
        one(server, &mut client, made, lists)
            .await
            .map_err(|problem| format!("{} {} afterwards: {problem}", made.collection, made.name))?;
    }
    Ok(())
}

async fn one(server: &Server, client: &mut Connection, made: &Made, lists: bool) -> Result<(), String> {
    let Made { collection, name } = made;
    let path = format!("{collection}/{name}");
    if client.ask(&input::get(&path)).await?.code == 404 {
        return Ok(());
    }
    for accept in ["application/json", "application/yaml", TABLE] {
        let answer = client.ask(&input::get(&path).header("Accept", accept)).await?;
        expect(&answer, &[200], accept)?;
    }
    for path in [Some(&path), lists.then_some(collection)].into_iter().flatten() {
        let answer = client.ask(&input::get(path).header("Accept", PROTOBUF)).await?;
        // Custom resources have no protobuf.
        expect(&answer, &[200, 406], PROTOBUF)?;
        let answer = client.ask(&input::get(path)).await?;
        expect(&answer, &[200], "read or list")?;
    }
    watch(server, made).await?;
    remove(client, &path).await
}

async fn watch(server: &Server, made: &Made) -> Result<(), String> {
    let watch = input::get(&made.collection).query(&format!(
        "watch=1&timeoutSeconds=60&fieldSelector=metadata.name%3D{}",
        made.name
    ));
    let mut connection = Connection::open(server).await?;
    connection
        .ask_until(&watch, "{\"type\":\"ADDED\"")
        .await
        .map_err(|problem| format!("watch: {problem}"))
}

/// The finalizer of definitions. Without it the objects of a definition stay behind, for the next one of its name.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

async fn remove(client: &mut Connection, path: &str) -> Result<(), String> {
    let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let answer = client.ask(&input::delete(path, now)).await?;
    expect(&answer, &[200, 202, 404], "delete")?;
    let began = Instant::now();
    loop {
        let answer = client.ask(&input::get(path)).await?;
        if answer.code == 404 {
            return Ok(());
        }
        let finalizers = answer.json().map(|object| object["metadata"]["finalizers"].clone());
        let finalizers: Vec<Value> = finalizers
            .as_ref()
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let servers: Vec<&Value> = finalizers.iter().filter(|finalizer| *finalizer == CLEANUP).collect();
        if finalizers.len() > servers.len() {
            let free = input::merge_patch(path, json!({"metadata": {"finalizers": servers}}));
            let answer = client.ask(&free).await?;
            expect(&answer, &[200, 404, 409, 422], "finalizers")?;
        }
        look_again(began, &answer).await?;
    }
}

fn expect(answer: &Answer, codes: &[u16], what: &str) -> Result<(), String> {
    if codes.contains(&answer.code) {
        return Ok(());
    }
    Err(format!("{what}: {answer:?}"))
}
