//! The first objects of a new cluster, as texts: the result of [`super::complete`] in an empty storage, made once and
//! committed (`data/bootstrap.txt`), so that a start neither decodes nor validates these known objects, nor tracks
//! their fields.
//!
//! A line is the store, the key and the JSON of an object, between tabs. Values that differ from cluster to cluster
//! have placeholders: `@uid`, `@now`, `@today`, `@range` and `@address` (of the Service of the API server).
//!
//! Invariant: filling an empty storage with the texts and completing it are the same; a test makes the file again and
//! compares.

use std::borrow::Cow;

use crate::ServiceRange;
use crate::env::{self, Env};
use crate::storage::Storage;

/// The revision of a storage without any write.
pub(super) const EMPTY: u64 = 1;

static TEXTS: &str = include_str!("../../../../data/bootstrap.txt");

/// Creates all of them that are wanted, by their store and key.
pub(super) fn fill(storage: &dyn Storage, env: &dyn Env, range: ServiceRange, is_wanted: impl Fn(&str, &str) -> bool) {
    let now = env::rfc3339(env.now());
    let words = |word: &str| -> Cow<'_, str> {
        match word {
            "uid" => env::uuid(env).into(),
            "now" => now.as_str().into(),
            "today" => now.split('T').next().unwrap_or_default().to_owned().into(),
            "range" => range.to_string().into(),
            "address" => range.first().to_string().into(),
            other => format!("@{other}").into(),
        }
    };
    for line in TEXTS.lines() {
        let mut parts = line.splitn(3, '\t');
        let (Some(store), Some(key), Some(template)) = (parts.next(), parts.next(), parts.next()) else {
            tracing::error!(line, "a first object of a cluster has no text, so it is left out");
            continue;
        };
        if !is_wanted(store, key) {
            continue;
        }
        let key = key.strip_prefix('@').map_or(Cow::Borrowed(key), words);
        if let Err(error) = storage.create_text(store, &key, with_words(template, words)) {
            tracing::error!(store, %key, %error, "an object that every cluster has could not be created");
        }
    }
}

/// The text with every `"@word"` replaced.
fn with_words<'a>(template: &str, words: impl Fn(&str) -> Cow<'a, str>) -> String {
    let mut text = String::with_capacity(template.len() + 64);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("\"@") {
        let (word, after) = after.split_once('"').unwrap_or((after, ""));
        text.push_str(before);
        text.push('"');
        text.push_str(&words(word));
        text.push('"');
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test keeps a committed file current")]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use kubewright_schema::protobuf::order::Ordered;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::testing::FakeEnv;
    use crate::registry::Kinds;
    use crate::server::{ApiServer, Config, Parts};
    use crate::storage::{Bounds, ListRequest, MemoryStorage};

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/bootstrap.txt");

    /// A server on this storage, and its objects, in the order in which they came, as lines of the file.
    fn lines(storage: MemoryStorage) -> String {
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let env: Arc<dyn Env> = Arc::new(crate::model::testing::Shared(FakeEnv::new()));
        let now = env::rfc3339(env.now());
        let config = Config::default();
        let range = config.service_range;
        let first = range.first().to_string();
        let api = ApiServer::with(Parts {
            storage: storage.clone(),
            ..Parts::of_tests(env, config)
        });
        let stores: BTreeSet<String> = api
            .inner
            .registry
            .resources()
            .iter()
            .map(|row| row.store.to_string())
            .collect();
        let mut found = Vec::new();
        for store in stores {
            let listed = storage.list(&store, &ListRequest::default()).expect("now");
            for (key, object) in listed.items {
                let mut value = object.value().clone();
                let uid = value["metadata"]["uid"].as_str().expect("a uid").to_owned();
                value["metadata"]["resourceVersion"] = json!("");
                let today = now.split('T').next().unwrap_or_default();
                let words = [(&*uid, "uid"), (&now, "now"), (today, "today")];
                let range = [(range.to_string(), "range"), (range.first().to_string(), "address")];
                let range = range.iter().map(|(text, word)| (&**text, *word));
                let ordered = Ordered::new(
                    &value,
                    Kinds::of_tests(crate::Minor::default()).order_of_store()(&store),
                );
                let written = serde_json::to_string(&ordered).expect("a JSON value");
                let text = words.into_iter().chain(range).fold(written, |text, (from, word)| {
                    text.replace(&format!("\"{from}\""), &format!("\"@{word}\""))
                });
                let key = if *key == *first { "@address" } else { &key };
                found.push((object.revision(), format!("{store}\t{key}\t{text}\n")));
            }
        }
        found.sort();
        found.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn the_texts_are_what_completing_makes() {
        // A storage that was written to is completed, even when nothing is left of it.
        let written = MemoryStorage::bounded(Bounds::default());
        let object = written
            .create("any", "a", json!({"metadata": {}}))
            .expect("an empty storage");
        written.delete("any", "a", object.revision()).expect("it is there");
        let completed = lines(written);
        if std::env::var("KUBEWRIGHT_UPDATE_GOLDEN").is_ok() {
            std::fs::write(FILE, &completed).expect("the folder of the crate");
            return;
        }
        assert!(
            completed == TEXTS,
            "data/bootstrap.txt is not current: KUBEWRIGHT_UPDATE_GOLDEN=1 cargo test -p kubewright-apiserver the_texts"
        );
        assert_eq!(lines(MemoryStorage::bounded(Bounds::default())), completed);
    }

    #[test]
    fn words_are_put_in() {
        let text = with_words(r#"{"a":"@uid","b":["@x","c@now"]}"#, |word| word.to_uppercase().into());
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value, json!({"a": "UID", "b": ["X", "c@now"]}));
    }
}
