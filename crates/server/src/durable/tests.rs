//! The folder of a cluster under everything that may happen to it: restarts, damage, failing disks, power cuts.

mod damage;
mod disk;

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use kubewright_apiserver::storage::journal::{Journal, Listener, Outcome, Record, Restored};
use kubewright_apiserver::storage::{
    Bounds, ChangeStream, Delivery, Entry, ListRequest, Listed, MemoryStorage, SizeLimit, Storage, StorageError,
    StoredObject, conformance,
};
use serde_json::{Value, json};

use super::*;

/// Waits for a future on this thread.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

/// A journal that also sends a message each time it works again.
struct Watched {
    journal: Arc<FileJournal>,
    recovered: mpsc::Sender<()>,
}

impl Journal for Watched {
    fn start(&self, listener: Listener) {
        let recovered = self.recovered.clone();
        self.journal.start(Box::new(move |outcome| {
            let works_again = outcome == Outcome::Recovered;
            listener(outcome);
            if works_again {
                // A test that has ended waits no more.
                let _ = recovered.send(());
            }
        }));
    }

    fn append(&self, record: Record) {
        self.journal.append(record);
    }
}

/// A storage whose writes return when they are safe, as requests do.
struct Waiting {
    storage: MemoryStorage,
    journal: Arc<FileJournal>,
    recovered: Mutex<mpsc::Receiver<()>>,
}

impl Waiting {
    fn new(journal: Arc<FileJournal>, restored: Restored, bounds: Bounds) -> Waiting {
        let (send, recovered) = mpsc::channel();
        let watched = Watched {
            journal: journal.clone(),
            recovered: send,
        };
        Waiting {
            storage: MemoryStorage::journaled(bounds, restored, Arc::new(watched)),
            journal,
            recovered: Mutex::new(recovered),
        }
    }

    fn open(path: &Path) -> Waiting {
        let opened = super::open(path, true, Default::default()).expect("the folder is intact");
        Waiting::new(opened.journal, opened.restored, Bounds::default())
    }

    fn settled(&self, result: Result<Arc<StoredObject>, StorageError>) -> Result<Arc<StoredObject>, StorageError> {
        let object = result?;
        match self.storage.settle(object.revision()) {
            Some(settled) => wait(settled).map(|()| object),
            None => Ok(object),
        }
    }

    /// Waits until the journal works again after a failure.
    fn recover(&self) {
        let recovered = self.recovered.lock().expect("no test panicked");
        while let Some(trouble) = self.storage.trouble() {
            let again = recovered.recv_timeout(Duration::from_secs(60));
            again.unwrap_or_else(|error| panic!("{error}, it stays: {trouble}"));
        }
    }

    /// Every object of the store `s`, with its revision and its value.
    fn content(&self) -> Vec<(String, u64, Value)> {
        let listed = self
            .storage
            .list("s", &ListRequest::default())
            .expect("now is never compacted");
        let items = listed.items.iter();
        items
            .map(|(key, object)| (key.to_string(), object.revision(), object.value()["n"].clone()))
            .collect()
    }
}

impl Storage for Waiting {
    fn revision(&self) -> u64 {
        self.storage.revision()
    }
    fn get(&self, store: &str, key: &str) -> Option<Arc<StoredObject>> {
        self.storage.get(store, key)
    }
    fn create_up_to(
        &self,
        store: &str,
        key: &str,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        self.settled(self.storage.create_up_to(store, key, value, limit))
    }
    fn update_up_to(
        &self,
        store: &str,
        key: &str,
        expected: u64,
        value: Value,
        limit: &SizeLimit<'_>,
    ) -> Result<Arc<StoredObject>, StorageError> {
        self.settled(self.storage.update_up_to(store, key, expected, value, limit))
    }
    fn delete(&self, store: &str, key: &str, expected: u64) -> Result<Arc<StoredObject>, StorageError> {
        self.settled(self.storage.delete(store, key, expected))
    }
    fn entries(&self, store: &str, request: &ListRequest) -> Result<Listed<Arc<Entry>>, StorageError> {
        self.storage.entries(store, request)
    }
    fn watch(&self, store: &str, prefix: &str, after: u64) -> Result<Box<dyn ChangeStream>, StorageError> {
        self.storage.watch(store, prefix, after)
    }
    fn list_and_watch(&self, store: &str, prefix: &str) -> (Listed, Box<dyn ChangeStream>) {
        self.storage.list_and_watch(store, prefix)
    }
    fn close_watches(&self) {
        self.storage.close_watches();
    }
}

fn object(n: u64) -> Value {
    json!({"metadata": {"name": "a"}, "n": n, "padding": "x".repeat(300)})
}

#[test]
fn the_durable_storage_conforms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let count = std::sync::atomic::AtomicUsize::new(0);
    let violations = conformance::check(&|limits| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let opened =
            super::open(&folder.path().join(number.to_string()), true, Default::default()).expect("a new folder");
        let bounds = Bounds {
            history: limits.history,
            buffer: limits.buffer,
            ..Bounds::default()
        };
        Box::new(Waiting::new(opened.journal, opened.restored, bounds))
    });
    assert_eq!(violations, []);
}

/// A folder of the first format does not say its version: it is the oldest.
#[test]
fn a_folder_goes_on_with_a_newer_version_and_not_with_an_older_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mark = folder.path().join("kubewright.json");
    let open = |minor| super::open(folder.path(), true, minor).map(|opened| opened.journal.close());
    let says = |word: &str| std::fs::read_to_string(&mark).expect("the mark").contains(word);
    open(Minor::V36).expect("a new folder");
    assert!(says("\"format\": 1") && says("\"kubernetes\": \"1.36\""));
    std::fs::write(&mark, r#"{"what": "the data of a kubewright cluster", "format": 1}"#).expect("the mark");
    open(Minor::V36).expect("an older program's folder");
    open(Minor::V37).expect("a newer version");
    assert!(says("\"format\": 2") && says("\"kubernetes\": \"1.37\""));
    let why = open(Minor::V36).expect_err("an older version").to_string();
    assert!(
        why.contains("of Kubernetes 1.37, and Kubernetes 1.36 does not know all of them"),
        "{why}"
    );
    open(Minor::V37).expect("the same version");
}

#[test]
fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("made/when/missing");
    let mut before: Vec<(String, u64, Value)> = Vec::new();
    let mut revision = 0;
    for round in 0..4_u64 {
        let storage = Waiting::open(&path);
        assert_eq!(storage.content(), before, "round {round}");
        assert!(storage.revision() >= revision, "the revision never goes back");
        for number in 0..20_u64 {
            let key = format!("n/{}", (number * 7 + round) % 25);
            match storage.get("s", &key) {
                None => drop(storage.create("s", &key, object(number)).expect("it is new")),
                Some(old) if number % 3 == 0 => {
                    drop(storage.delete("s", &key, old.revision()).expect("it is there"));
                }
                Some(old) => drop(
                    storage
                        .update("s", &key, old.revision(), object(100 + number))
                        .expect("it is there"),
                ),
            }
        }
        (before, revision) = (storage.content(), storage.revision());
        if round % 2 == 0 {
            storage.journal.close();
            let refused = storage.create("s", "late", object(1));
            assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
        } else {
            // Dropped without a close: written records stay, and the folder is free soon after.
            let lock = path.join("lock");
            drop(storage);
            while std::fs::File::open(&lock).expect("it is there").try_lock().is_err() {
                std::thread::yield_now();
            }
        }
    }
    // So is what led there: a watch from the beginning goes on over all starts.
    let storage = Waiting::open(&path);
    let mut changes = storage.watch("s", "", 1).expect("it is kept");
    let (mut present, mut last) = (std::collections::BTreeMap::new(), 1);
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Delivery::Change(change)) = changes.poll_next(&mut context) {
        assert_eq!(change.revision, last + 1);
        last = change.revision;
        let known = present.get(&change.key).copied();
        assert_eq!(change.before.as_ref().map(|before| before.revision()), known);
        match change.deleted {
            true => present.remove(&change.key),
            false => present.insert(change.key.clone(), change.revision),
        };
    }
    let present: Vec<(String, u64)> = present
        .into_iter()
        .map(|(key, revision)| (key.to_string(), revision))
        .collect();
    let expected: Vec<(String, u64)> = before
        .iter()
        .map(|(key, revision, _)| (key.clone(), *revision))
        .collect();
    assert_eq!((present, last), (expected, revision));
    storage.journal.close();
    drop((changes, storage));
    // Without the files of changes it begins where the objects are.
    for name in super::history::NAMES {
        let _ = std::fs::remove_file(path.join(name));
    }
    let storage = Waiting::open(&path);
    let old = storage.watch("s", "", revision - 1).map(drop);
    let oldest = revision;
    assert_eq!(
        old,
        Err(StorageError::Compacted {
            asked: revision - 1,
            oldest
        })
    );
}

#[test]
fn secrets_are_made_once_and_their_owners() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut first = None;
    for round in 0..3 {
        let opened = super::open(folder.path(), true, Default::default()).expect("an empty folder");
        let secret = opened
            .folder
            .keep("pki/sa.key", || Ok::<_, DataDirError>(format!("secret {round}")))
            .expect("the folder can be written");
        assert_eq!(*first.get_or_insert(secret.clone()), secret);
        let authority = crate::certificates::Authority::kept(crate::certificates::Purpose::Cluster, &opened.folder)
            .expect("an authority");
        assert_eq!(
            std::fs::read_to_string(folder.path().join("pki/ca.crt")).expect("it is kept"),
            authority.pem()
        );
        for name in ["pki/sa.key", "pki/ca.key", "objects.redb"] {
            let mode = std::fs::metadata(folder.path().join(name))
                .expect("it is there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o077, 0, "{name} holds secrets");
        }
        opened.journal.close();
    }
}
