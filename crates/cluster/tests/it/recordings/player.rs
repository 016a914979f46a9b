//! Plays one recorded sequence and says which steps were answered otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use kubewright_cluster::Listening;
use regex::Regex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::compare::{Bindings, Caller, drop_at, keep_keys, unordered};
use super::hook::Hook;
use super::http::{self, Answer};

static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{([\w:-]+)\}").expect("a regular expression"));

/// The outcome of a step.
pub(crate) struct Outcome {
    pub(crate) step: String,
    /// Empty when the answer was the recorded one.
    pub(crate) differences: Vec<String>,
}

/// A sequence under way.
pub(crate) struct Player<'a> {
    listening: &'a Listening,
    caller: Caller,
    variables: BTreeMap<String, String>,
    bindings: Bindings,
    hook: Option<Hook>,
    outcomes: Vec<Outcome>,
    /// Cluster-scoped objects that were made, to be removed at the end.
    created: Vec<String>,
}

impl Player<'_> {
    /// Plays a whole sequence in a namespace of its own; `id` is unique among the sequences that run at the same time.
    pub(crate) async fn play(listening: &Listening, caller: Caller, id: &str, sequence: &Value) -> Vec<Outcome> {
        let capital = format!("X{}", &id[1..]);
        let variables = [
            ("ns", format!("t-{id}")),
            ("id", id.to_owned()),
            ("Id", capital),
            ("group", format!("{id}.example.com")),
            ("server", listening.address.to_string()),
        ];
        let mut player = Player {
            listening,
            caller,
            variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
            bindings: Bindings::default(),
            hook: None,
            outcomes: Vec::new(),
            created: Vec::new(),
        };
        if !sequence["webhooks"].is_null() {
            let hook = Hook::start(player.expand(&sequence["webhooks"])).await;
            player.set("wh", hook.url.clone());
            player.set("wh:ca", hook.ca.clone());
            player.set("wh:netloc", hook.url.trim_start_matches("https://").to_owned());
            player.hook = Some(hook);
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": player.variables["ns"]}});
        let made = player
            .send(&json!({"method": "POST", "path": "/api/v1/namespaces", "body": namespace}))
            .await
            .expect("the server answers");
        assert_eq!(made.code, 201, "the namespace of the sequence: {}", made.body);
        for step in sequence["steps"].as_array().expect("steps") {
            player.step(step).await;
        }
        player.clean_up().await;
        player.outcomes
    }

    fn set(&mut self, name: &str, value: String) {
        self.variables.insert(name.to_owned(), value);
    }

    async fn send(&self, request: &Value) -> Result<Answer, String> {
        http::call(self.listening, request).await
    }

    /// Variables in texts and keys; `$repeat`.
    fn expand(&self, value: &Value) -> Value {
        let text = |text: &str| {
            VARIABLE
                .replace_all(text, |found: &regex::Captures<'_>| {
                    self.variables
                        .get(&found[1])
                        .cloned()
                        .unwrap_or_else(|| found[0].to_owned())
                })
                .into_owned()
        };
        match value {
            Value::String(string) => json!(text(string)),
            Value::Array(list) => list.iter().map(|item| self.expand(item)).collect(),
            Value::Object(map) => {
                if let (1, Some(Value::Array(repeat))) = (map.len(), map.get("$repeat")) {
                    return repeated(&repeat[0], &repeat[1]);
                }
                map.iter().map(|(key, value)| (text(key), self.expand(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn done(&mut self, step: &Value, differences: Vec<String>) {
        let step = step["name"].as_str().unwrap_or("?").to_owned();
        self.outcomes.push(Outcome { step, differences });
    }

    async fn step(&mut self, step: &Value) {
        if let Some(seconds) = step["sleep"].as_f64() {
            // Recorded: something has to take this long.
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        } else if !step["watch"].is_null() {
            self.watch(step).await;
        } else if !step["webhook_log"].is_null() {
            self.webhook_log(step);
        } else {
            let differences = self.request(step).await.unwrap_or_else(|error| vec![error]);
            self.done(step, differences);
        }
    }

    async fn request(&mut self, step: &Value) -> Result<Vec<String>, String> {
        let request = self.expand(&step["request"]);
        let until = self.expand(&step["until"]);
        let limit = Duration::from_secs_f64(step["timeout"].as_f64().unwrap_or(20.0));
        let deadline = Instant::now() + limit;
        let answer = loop {
            let answer = self.send(&request).await?;
            self.remember(&request, &answer);
            if until.is_null() || holds(&until, &answer) || Instant::now() > deadline {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let mut differences = self.capture(step, &answer);
        self.asserts(step, &answer.body, &mut differences);
        let Answer {
            code,
            mut headers,
            body,
        } = answer;
        let etag = headers.remove("etag");
        if step["etag"] == true && etag.is_none() {
            differences.push("an ETag was expected".to_owned());
        }
        let mut wanted = self.expand(&step["response"]);
        if !wanted["body"].is_null() {
            wanted["body"] = self.prepare(step, &wanted["body"]);
        }
        let mut got = json!({"code": code, "headers": headers});
        if body != "" {
            got["body"] = self.prepare(step, &body);
        }
        self.bindings.compare(&wanted, &got, "", &mut differences);
        Ok(differences)
    }

    /// A body in the form in which it is compared.
    fn prepare(&self, step: &Value, body: &Value) -> Value {
        let mut body = self.caller.shape(body);
        for pointer in texts(&step["ignore"]) {
            drop_at(&mut body, pointer);
        }
        for pointer in texts(&step["keys"]) {
            keep_keys(&mut body, pointer);
        }
        for pointer in texts(&step["sort"]) {
            if let Some(list) = body.pointer_mut(pointer).and_then(Value::as_array_mut) {
                list.sort_by_key(Value::to_string);
            }
        }
        unordered(&mut body);
        body
    }

    fn capture(&mut self, step: &Value, answer: &Answer) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, pointer) in step["capture"].as_object().into_iter().flatten() {
            let pointer = pointer.as_str().unwrap_or_default();
            let found = match pointer.strip_prefix("header:") {
                Some(header) => answer.headers.get(header),
                None => answer.body.pointer(pointer),
            };
            let value = match found {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => {
                    problems.push(format!("{pointer}: expected a value to capture as {name}"));
                    "not-captured".to_owned()
                }
            };
            self.set(name, value);
        }
        problems
    }

    fn asserts(&self, step: &Value, body: &Value, problems: &mut Vec<String>) {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        for check in step["assert"].as_array().into_iter().flatten() {
            let pointer = check["path"].as_str().unwrap_or_default();
            let got = body.pointer(pointer).map(plain);
            for (operator, wanted) in check.as_object().into_iter().flatten() {
                let wanted = plain(&self.expand(wanted));
                let number = |text: &str| text.parse::<u64>().ok();
                let got = got.as_deref();
                let both = || Some((number(got?)?, number(&wanted)?));
                let holds = match operator.as_str() {
                    "path" => true,
                    "equals" => got == Some(&*wanted),
                    "differs" => got.is_some_and(|got| got != wanted),
                    "greater" => both().is_some_and(|(got, wanted)| got > wanted),
                    "less" => both().is_some_and(|(got, wanted)| got < wanted),
                    other => panic!("unknown assertion {other:?}"),
                };
                if !holds {
                    problems.push(format!("{pointer}: expected {operator} {wanted}, got {got:?}"));
                }
            }
        }
    }

    fn webhook_log(&mut self, step: &Value) {
        let spec = self.expand(&step["webhook_log"]);
        let hook = self.hook.as_ref().expect("the sequence has webhooks");
        let sent = hook.take(spec["path"].as_str().unwrap_or_default());
        if spec["discard"] == true {
            return;
        }
        let prepare = |review: &Value| {
            let mut review = self.caller.shape(review);
            for pointer in texts(&step["ignore"]) {
                drop_at(&mut review, pointer);
            }
            review
        };
        let got: Value = sent.iter().map(prepare).collect();
        let wanted = self.caller.shape(&self.expand(&step["reviews"]));
        let mut differences = Vec::new();
        self.bindings.compare(&wanted, &got, "/reviews", &mut differences);
        self.done(step, differences);
    }

    async fn watch(&mut self, step: &Value) {
        let mut request = self.expand(&step["watch"]);
        if request["method"].is_null() {
            request["method"] = json!("GET");
        }
        let watch = match Watch::open(self.listening, &request).await {
            Ok(watch) => watch,
            Err(error) => return self.done(step, vec![error]),
        };
        if let Some(initial) = step["initial"].as_u64().filter(|_| watch.code == 200) {
            watch
                .wait(5.0, |seen| seen.wanted().len() as u64 >= initial || seen.end)
                .await;
        }
        for step in step["during"].as_array().into_iter().flatten() {
            Box::pin(self.step(step)).await;
        }
        let events = step["events"].as_array().cloned().unwrap_or_default();
        let timeout = step["timeout"].as_f64().unwrap_or(5.0);
        let ends = step["eof"] == true;
        if watch.code == 200 {
            watch
                .wait(timeout, |seen| seen.wanted().len() >= events.len() || seen.end)
                .await;
            // One event too many would come right behind the last one.
            watch.wait(if ends { 10.0 } else { 0.1 }, |seen| seen.end).await;
            if step["bookmark"] == true {
                let limit = step["timeout"].as_f64().unwrap_or(90.0);
                watch
                    .wait(limit, |seen| seen.end || seen.events.iter().any(is_periodic))
                    .await;
            }
        }
        let (got, end) = watch.result();
        let mut differences = Vec::new();
        if step["bookmark"] == true && !watch.has_bookmark() {
            differences.push("expected a BOOKMARK".to_owned());
        }
        let mut response = json!({"code": watch.code, "headers": watch.headers});
        if let Some(body) = &watch.body {
            response["body"] = body.clone();
        }
        self.bindings
            .compare(&self.expand(&step["response"]), &response, "", &mut differences);
        let prepare = |event: &Value| {
            let mut event = self.caller.shape(event);
            for pointer in texts(&step["ignore"]) {
                // Pointers of a watch name the list of its events.
                let mut list = json!([event]);
                drop_at(&mut list, pointer);
                event = list[0].take();
            }
            event
        };
        let got: Value = got.iter().map(prepare).collect();
        let wanted: Value = events.iter().map(|event| prepare(&self.expand(event))).collect();
        self.bindings.compare(&wanted, &got, "/events", &mut differences);
        if watch.code == 200 && ends != end {
            differences.push(format!("the end of the stream: expected {ends}, got {end}"));
        }
        self.done(step, differences);
    }

    fn remember(&mut self, request: &Value, answer: &Answer) {
        let (method, path) = (
            request["method"].as_str().unwrap_or(""),
            request["path"].as_str().unwrap_or(""),
        );
        let name = answer
            .body
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or("");
        let kind = answer.body["kind"].as_str().unwrap_or("");
        let inside = path.contains(&format!("/namespaces/{}/", self.variables["ns"]));
        let stored = answer.code == 201 && request["query"]["dryRun"].is_null() && !kind.ends_with("Review");
        if stored && !inside && !name.is_empty() {
            let path = if method == "POST" {
                format!("{path}/{name}")
            } else {
                path.to_owned()
            };
            self.created.push(path);
        }
    }

    /// Removes the objects of the sequence; a server that refuses is no matter here.
    async fn clean_up(&self) {
        for path in self.created.iter().rev() {
            let background = json!({"propagationPolicy": "Background"});
            let _ = self
                .send(&json!({"method": "DELETE", "path": path, "query": background}))
                .await;
        }
        let services = format!("/api/v1/namespaces/{}/services", self.variables["ns"]);
        let _ = self.send(&json!({"method": "DELETE", "path": services})).await;
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn repeated(what: &Value, times: &Value) -> Value {
    let times = times
        .as_u64()
        .and_then(|times| usize::try_from(times).ok())
        .expect("a number of times");
    match what {
        Value::String(text) => json!(text.repeat(times)),
        Value::Array(list) => Value::Array(std::iter::repeat_n(list.iter().cloned(), times).flatten().collect()),
        other => panic!("{other} cannot be repeated"),
    }
}

fn holds(until: &Value, answer: &Answer) -> bool {
    until
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, wanted)| match key.as_str() {
            "code" => wanted == answer.code,
            "code_not" => wanted != answer.code,
            pointer => answer.body.pointer(pointer).unwrap_or(&Value::Null) == wanted,
        })
}

/// Bookmarks come at any time, but for the one that ends the initial events.
fn is_periodic(event: &Value) -> bool {
    if event["type"] != "BOOKMARK" {
        return false;
    }
    let object = &event["object"];
    let metadata = if object["kind"] == "Table" {
        &object["rows"][0]["object"]["metadata"]
    } else {
        &object["metadata"]
    };
    metadata["annotations"]["k8s.io/initial-events-end"].is_null()
}

#[derive(Default)]
struct Seen {
    events: Vec<Value>,
    end: bool,
}

impl Seen {
    fn wanted(&self) -> Vec<Value> {
        self.events
            .iter()
            .filter(|event| !is_periodic(event))
            .cloned()
            .collect()
    }
}

/// An open watch, read by a task of its own.
struct Watch {
    code: u16,
    headers: Value,
    body: Option<Value>,
    seen: Arc<Mutex<Seen>>,
    news: Arc<tokio::sync::Notify>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Watch {
    async fn open(listening: &Listening, request: &Value) -> Result<Watch, String> {
        let response = http::open(listening, request).await?;
        let code = response.status().as_u16();
        let mut headers = http::headers_of(&response, &[]);
        headers.remove("etag");
        let mut watch = Watch {
            code,
            headers: json!(headers),
            body: None,
            seen: Arc::default(),
            news: Arc::default(),
            task: None,
        };
        if code == 200 {
            let (seen, news) = (watch.seen.clone(), watch.news.clone());
            watch.task = Some(tokio::spawn(read(response.into_body(), seen, news)));
        } else {
            let bytes = response
                .into_body()
                .collect()
                .await
                .map_err(|error| error.to_string())?
                .to_bytes();
            watch.body = Some(http::decode(&bytes, "json"));
            watch.seen.lock().expect("no test panics with it").end = true;
        }
        Ok(watch)
    }

    /// Waits for a state, for so many seconds at most.
    async fn wait(&self, seconds: f64, is_there: impl Fn(&Seen) -> bool) {
        let waiting = async {
            loop {
                let news = self.news.notified();
                if is_there(&self.seen.lock().expect("no test panics with it")) {
                    return;
                }
                news.await;
            }
        };
        // A missing event then shows in the comparison.
        let _ = tokio::time::timeout(Duration::from_secs_f64(seconds), waiting).await;
    }

    fn result(&self) -> (Vec<Value>, bool) {
        let seen = self.seen.lock().expect("no test panics with it");
        (seen.wanted(), seen.end)
    }

    fn has_bookmark(&self) -> bool {
        self.seen
            .lock()
            .expect("no test panics with it")
            .events
            .iter()
            .any(is_periodic)
    }
}

async fn read(mut body: hyper::body::Incoming, seen: Arc<Mutex<Seen>>, news: Arc<tokio::sync::Notify>) {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = line.trim_ascii();
            if !line.is_empty() {
                let event = serde_json::from_slice(line).unwrap_or_else(|_| json!(String::from_utf8_lossy(line)));
                seen.lock().expect("no test panics with it").events.push(event);
            }
        }
        news.notify_one();
    }
    seen.lock().expect("no test panics with it").end = true;
    news.notify_one();
}
