//! One contract, one suite: checks any [`Storage`] against the named invariants of [`super`].
//!
//! ```
//! use kubewright_apiserver::storage::{MemoryStorage, conformance};
//! let broken = conformance::check(&|limits| Box::new(MemoryStorage::new(limits.history, limits.buffer)));
//! assert!(broken.is_empty(), "{broken:?}");
//! ```

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};

use super::{ALWAYS_KEPT, Change, ChangeStream, Delivery, ListRequest, Storage, StorageError};

/// How a storage under test is to be limited.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Changes of a store that are kept.
    pub history: usize,
    /// Changes that may wait for one watcher.
    pub buffer: usize,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name, such as `store-S2`.
    pub invariant: &'static str,
    /// The observation.
    pub what: String,
}

type Outcome = Result<(), String>;
type Check = (&'static str, Limits, fn(&dyn Storage) -> Outcome);

const WIDE: Limits = Limits {
    history: 1000,
    buffer: 1000,
};
const NARROW: Limits = Limits { history: 4, buffer: 3 };

const CHECKS: &[Check] = &[
    ("store-S2", WIDE, every_write_is_one_revision),
    ("store-S2", WIDE, a_write_of_the_same_content_changes_nothing),
    ("store-S3", WIDE, a_stale_write_has_no_effect),
    ("store-S3", WIDE, a_create_of_what_exists_has_no_effect),
    ("store-S2", WIDE, a_text_is_created_as_its_value_is),
    ("store-R1", WIDE, reads_show_the_latest_write),
    ("store-R3", WIDE, an_older_revision_can_be_listed),
    ("store-R3", NARROW, a_compacted_revision_is_refused),
    ("store-R3", WIDE, a_compaction_keeps_what_is_newer),
    ("store-R5", WIDE, pages_are_of_one_moment),
    ("store-W3", WIDE, a_watch_gets_everything_in_order_once),
    ("store-W5", WIDE, a_watch_resumes_after_a_revision),
    ("store-W5", NARROW, a_watch_from_a_compacted_revision_is_refused),
    ("store-W5", WIDE, a_list_and_its_watch_have_no_gap),
    ("store-W5", WIDE, a_watch_from_the_future_is_silent_until_then),
    ("store-W5", WIDE, a_watch_that_is_closed_says_so),
    ("store-W6", WIDE, progress_is_never_ahead_of_delivery),
    ("store-W7", WIDE, a_delete_carries_the_last_state_and_its_revision),
    ("store-W11", NARROW, a_slow_watcher_is_cut_off_alone),
];

/// Runs all checks, each on a storage of its own that `make` builds, and answers the violations.
pub fn check(make: &dyn Fn(Limits) -> Box<dyn Storage>) -> Vec<Violation> {
    CHECKS
        .iter()
        .filter_map(|(invariant, limits, run)| {
            let storage = make(*limits);
            run(storage.as_ref()).err().map(|what| Violation { invariant, what })
        })
        .collect()
}

fn object(name: &str, value: u64) -> Value {
    json!({"metadata": {"name": name}, "data": {"value": value.to_string()}})
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(what()) }
}

fn must<T>(result: Result<T, StorageError>, doing: &str) -> Result<T, String> {
    result.map_err(|error| format!("{doing}: {error}"))
}

/// Everything that is ready now.
fn drain(stream: &mut dyn ChangeStream) -> Vec<Delivery> {
    let mut context = Context::from_waker(Waker::noop());
    let mut deliveries = Vec::new();
    while let Poll::Ready(delivery) = stream.poll_next(&mut context) {
        let last = !matches!(delivery, Delivery::Change(_));
        deliveries.push(delivery);
        if last {
            break;
        }
    }
    deliveries
}

fn changes(stream: &mut dyn ChangeStream) -> Vec<std::sync::Arc<Change>> {
    drain(stream)
        .into_iter()
        .filter_map(|delivery| match delivery {
            Delivery::Change(change) => Some(change),
            Delivery::Overrun | Delivery::Closed => None,
        })
        .collect()
}

fn revisions(stream: &mut dyn ChangeStream) -> Vec<u64> {
    changes(stream).iter().map(|change| change.revision).collect()
}

fn a_text_is_created_as_its_value_is(storage: &dyn Storage) -> Outcome {
    let mut stream = must(storage.watch("one", "", storage.revision()), "watch")?;
    let mut written = object("a", 1);
    written["metadata"]["resourceVersion"] = json!("");
    let text = written.to_string();
    let start = storage.revision();
    let created = must(storage.create_text("one", "a", text.clone()), "create of a text")?;
    written["metadata"]["resourceVersion"] = json!((start + 1).to_string());
    ensure(
        created.revision() == start + 1
            && *created.value() == written
            && created.encoded() == written.to_string().as_bytes(),
        || format!("{text} after revision {start} became {created:?}"),
    )?;
    let seen = storage.get("one", "a").map(|object| object.value().clone());
    ensure(seen.as_ref() == Some(&written), || {
        format!("{text} is read as {seen:?}")
    })?;
    ensure(revisions(stream.as_mut()) == [start + 1], || {
        "its event is missing".to_owned()
    })?;
    let again = storage.create_text("one", "a", text);
    ensure(matches!(again, Err(StorageError::AlreadyExists(_))), || {
        format!("a create of what exists answered {again:?}")
    })
}

fn every_write_is_one_revision(storage: &dyn Storage) -> Outcome {
    let start = storage.revision();
    ensure(start >= 1, || {
        format!("an empty storage is at revision {start}; 0 means \"any\" to clients")
    })?;
    let created = must(storage.create("one", "a", object("a", 1)), "create")?;
    let updated = must(storage.update("one", "a", created.revision(), object("a", 2)), "update")?;
    let other = must(storage.create("two", "a", object("a", 1)), "create in another store")?;
    let deleted = must(storage.delete("one", "a", updated.revision()), "delete")?;
    let got = [
        created.revision(),
        updated.revision(),
        other.revision(),
        deleted.revision(),
    ];
    let want = [start + 1, start + 2, start + 3, start + 4];
    ensure(got == want, || {
        format!("four writes made revisions {got:?}, not {want:?}")
    })?;
    ensure(storage.revision() == start + 4, || {
        "the storage's revision is not that of its last write".to_owned()
    })?;
    let printed = &created.value()["metadata"]["resourceVersion"];
    ensure(*printed == json!((start + 1).to_string()), || {
        format!("the object says resourceVersion {printed}")
    })
}

fn a_write_of_the_same_content_changes_nothing(storage: &dyn Storage) -> Outcome {
    let created = must(storage.create("s", "a", object("a", 1)), "create")?;
    let mut stream = must(storage.watch("s", "", storage.revision()), "watch")?;
    let before = storage.revision();
    let again = must(
        storage.update("s", "a", created.revision(), object("a", 1)),
        "update with the same content",
    )?;
    ensure(again.revision() == created.revision(), || {
        "the object got a new revision".to_owned()
    })?;
    ensure(storage.revision() == before, || {
        "the storage got a new revision".to_owned()
    })?;
    ensure(drain(stream.as_mut()).is_empty(), || "watchers got an event".to_owned())
}

fn a_stale_write_has_no_effect(storage: &dyn Storage) -> Outcome {
    let first = must(storage.create("s", "a", object("a", 1)), "create")?;
    let second = must(storage.update("s", "a", first.revision(), object("a", 2)), "update")?;
    let before = storage.revision();
    let update = storage.update("s", "a", first.revision(), object("a", 3));
    ensure(matches!(update, Err(StorageError::Conflict { .. })), || {
        format!("a stale update answered {update:?}")
    })?;
    let delete = storage.delete("s", "a", first.revision());
    ensure(matches!(delete, Err(StorageError::Conflict { .. })), || {
        format!("a stale delete answered {delete:?}")
    })?;
    let now = storage.get("s", "a").map(|object| object.revision());
    ensure(now == Some(second.revision()), || {
        format!("the object is at {now:?} after refused writes")
    })?;
    let missing = storage.update("s", "b", 1, object("b", 1));
    ensure(matches!(missing, Err(StorageError::NotFound(_))), || {
        format!("an update of nothing answered {missing:?}")
    })?;
    ensure(storage.revision() == before, || {
        "a refused write raised the revision".to_owned()
    })
}

fn a_create_of_what_exists_has_no_effect(storage: &dyn Storage) -> Outcome {
    must(storage.create("s", "a", object("a", 1)), "create")?;
    let before = storage.revision();
    let again = storage.create("s", "a", object("a", 2));
    ensure(matches!(again, Err(StorageError::AlreadyExists(_))), || {
        format!("the second create answered {again:?}")
    })?;
    let kept = storage
        .get("s", "a")
        .is_some_and(|object| object.value()["data"]["value"] == "1");
    ensure(kept && storage.revision() == before, || {
        "the refused create had an effect".to_owned()
    })
}

fn reads_show_the_latest_write(storage: &dyn Storage) -> Outcome {
    let mut latest = must(storage.create("s", "a", object("a", 0)), "create")?;
    for value in 1..5 {
        latest = must(
            storage.update("s", "a", latest.revision(), object("a", value)),
            "update",
        )?;
        let got = storage.get("s", "a").map(|object| object.revision());
        ensure(got == Some(latest.revision()), || {
            format!("get shows {got:?} after write {}", latest.revision())
        })?;
        let listed = must(storage.list("s", &ListRequest::default()), "list")?;
        let seen = listed.items.first().map(|(_, object)| object.revision());
        ensure(seen == Some(latest.revision()), || {
            format!("list shows {seen:?} after write {}", latest.revision())
        })?;
    }
    must(storage.delete("s", "a", latest.revision()), "delete")?;
    ensure(storage.get("s", "a").is_none(), || {
        "get shows a deleted object".to_owned()
    })
}

type Snapshot = BTreeMap<String, u64>;

fn snapshot(storage: &dyn Storage, request: &ListRequest) -> Result<Snapshot, String> {
    let listed = must(storage.list("s", request), "list")?;
    let kept = must(storage.entries("s", request), "list of entries")?;
    let objects = (listed.items.iter()).map(|(key, object)| (key, object.revision(), object.encoded()));
    let entries = (kept.items.iter()).map(|(key, entry)| (key, entry.revision(), entry.encoded()));
    ensure(listed.revision == kept.revision && objects.eq(entries), || {
        format!("a list is {listed:?}, and its entries are {kept:?}")
    })?;
    Ok(listed
        .items
        .iter()
        .map(|(key, object)| (key.to_string(), object.revision()))
        .collect())
}

/// Writes of every sort, with a snapshot after each.
fn churn(storage: &dyn Storage) -> Result<Vec<(u64, Snapshot)>, String> {
    let mut moments = Vec::new();
    for round in 0..4_u64 {
        for name in ["a", "b", "n/c"] {
            match storage.get("s", name) {
                None => drop(must(storage.create("s", name, object(name, round)), "create")?),
                Some(old) if (round + old.revision()).is_multiple_of(3) => {
                    drop(must(storage.delete("s", name, old.revision()), "delete")?);
                }
                Some(old) => drop(must(
                    storage.update("s", name, old.revision(), object(name, round)),
                    "update",
                )?),
            }
            moments.push((storage.revision(), snapshot(storage, &ListRequest::default())?));
        }
    }
    Ok(moments)
}

fn an_older_revision_can_be_listed(storage: &dyn Storage) -> Outcome {
    for (revision, then) in churn(storage)? {
        let request = ListRequest {
            at: Some(revision),
            ..ListRequest::default()
        };
        let now = snapshot(storage, &request)?;
        ensure(now == then, || {
            format!("revision {revision} was {then:?} and is shown as {now:?}")
        })?;
    }
    let future = storage.list(
        "s",
        &ListRequest {
            at: Some(storage.revision() + 1),
            ..ListRequest::default()
        },
    );
    ensure(matches!(future, Err(StorageError::Future { .. })), || {
        "a revision in the future was listed".to_owned()
    })
}

fn a_compacted_revision_is_refused(storage: &dyn Storage) -> Outcome {
    let moments = churn(storage)?;
    let (oldest, _) = moments[0];
    let list = storage.list(
        "s",
        &ListRequest {
            at: Some(oldest),
            ..ListRequest::default()
        },
    );
    ensure(matches!(list, Err(StorageError::Compacted { .. })), || {
        format!("revision {oldest} was listed: {list:?}")
    })
}

/// Compacts step by step, with a change of another store before each.
fn a_compaction_keeps_what_is_newer(storage: &dyn Storage) -> Outcome {
    let mut made = must(storage.create("s", "a", object("a", 0)), "create")?;
    for value in 1..=2 * ALWAYS_KEPT as u64 {
        made = must(storage.update("s", "a", made.revision(), object("a", value)), "update")?;
    }
    let (first, last) = (made.revision() - 2 * ALWAYS_KEPT as u64, made.revision());
    must(storage.create("quiet", "a", object("a", 0)), "create in another store")?;
    let mut steps = 0;
    while !storage.compact(last - 10, 30) {
        steps += 1;
        ensure(steps < 10, || "the compaction does not end".to_owned())?;
    }
    // A storage may keep more than it must.
    let oldest = match storage.watch("s", "", first) {
        Err(StorageError::Compacted { oldest, .. }) => oldest,
        Ok(_) => first,
        Err(error) => return Err(format!("a watch from {first}: {error}")),
    };
    ensure(oldest <= last - ALWAYS_KEPT as u64, || {
        format!("only the changes after {oldest} are left, of those up to {last}")
    })?;
    let mut stream = must(storage.watch("s", "", oldest), "watch after the oldest")?;
    let seen = revisions(stream.as_mut());
    ensure(seen == (oldest + 1..=last).collect::<Vec<u64>>(), || {
        format!("after {oldest}, a watch saw {seen:?}")
    })?;
    let quiet = storage
        .watch("quiet", "", first)
        .map(|mut stream| revisions(stream.as_mut()));
    ensure(quiet == Ok(vec![last + 1]), || {
        format!("the change of the quiet store was seen as {quiet:?}")
    })?;
    let now = storage.get("s", "a").map(|object| object.revision());
    ensure(now == Some(last), || {
        format!("the object is at {now:?} after a compaction")
    })
}

fn pages_are_of_one_moment(storage: &dyn Storage) -> Outcome {
    for name in ["a", "b", "c", "d"] {
        must(storage.create("s", name, object(name, 1)), "create")?;
    }
    let at = storage.revision();
    let whole = snapshot(storage, &ListRequest::default())?;
    let mut pages = Snapshot::new();
    let mut after: Option<String> = None;
    for size in (1..=2).cycle().take(2 * whole.len()) {
        let request = ListRequest {
            after: after.clone(),
            at: Some(at),
            limit: Some(size),
            ..ListRequest::default()
        };
        let listed = must(storage.list("s", &request), "page")?;
        ensure(listed.revision == at, || {
            format!("a page is of revision {}", listed.revision)
        })?;
        ensure(listed.items.len() <= size, || {
            format!("a page of {size} has {}", listed.items.len())
        })?;
        let Some((last, _)) = listed.items.last() else {
            break;
        };
        after = Some(last.to_string());
        let page = listed.items.iter();
        pages.extend(page.map(|(key, object)| (key.to_string(), object.revision())));
        ensure(pages.len() + listed.rest == whole.len(), || {
            format!("{} are said to be left after {pages:?} of {whole:?}", listed.rest)
        })?;
        // Writes between the pages: before, at and after the present place.
        for name in ["aa", "b", "d", "z"] {
            match storage.get("s", name) {
                Some(old) => drop(must(storage.delete("s", name, old.revision()), "delete")?),
                None => drop(must(storage.create("s", name, self::object(name, 2)), "create")?),
            }
        }
    }
    ensure(pages == whole, || {
        format!("the pages hold {pages:?}, the list was {whole:?}")
    })
}

fn a_watch_gets_everything_in_order_once(storage: &dyn Storage) -> Outcome {
    let start = storage.revision();
    let mut stream = must(storage.watch("s", "", start), "watch")?;
    let mut narrow = must(storage.watch("s", "n/", start), "watch with a prefix")?;
    churn(storage)?;
    let got = revisions(stream.as_mut());
    let want: Vec<u64> = (start + 1..=storage.revision()).collect();
    ensure(got == want, || format!("the watch delivered {got:?} of {want:?}"))?;
    let keys: Vec<String> = changes(narrow.as_mut())
        .iter()
        .map(|change| change.key.to_string())
        .collect();
    ensure(!keys.is_empty() && keys.iter().all(|key| key == "n/c"), || {
        format!("the watch of n/ delivered {keys:?}")
    })
}

fn a_watch_resumes_after_a_revision(storage: &dyn Storage) -> Outcome {
    let start = storage.revision();
    churn(storage)?;
    for after in start..=storage.revision() {
        let mut stream = must(storage.watch("s", "", after), "watch")?;
        let got = revisions(stream.as_mut());
        let want: Vec<u64> = (after + 1..=storage.revision()).collect();
        ensure(got == want, || {
            format!("a watch after {after} delivered {got:?} of {want:?}")
        })?;
    }
    Ok(())
}

fn a_watch_from_a_compacted_revision_is_refused(storage: &dyn Storage) -> Outcome {
    let start = storage.revision();
    churn(storage)?;
    let watch = storage.watch("s", "", start);
    ensure(matches!(watch, Err(StorageError::Compacted { .. })), || {
        format!("a watch after {start} was begun")
    })
}

fn a_list_and_its_watch_have_no_gap(storage: &dyn Storage) -> Outcome {
    churn(storage)?;
    let (listed, mut stream) = storage.list_and_watch("s", "");
    ensure(listed.revision == storage.revision(), || {
        "the list is not of now".to_owned()
    })?;
    let first = must(storage.create("s", "later", object("later", 1)), "create")?;
    let got = revisions(stream.as_mut());
    ensure(got == [first.revision()], || {
        format!("the watch after the list delivered {got:?}")
    })
}

fn a_watch_from_the_future_is_silent_until_then(storage: &dyn Storage) -> Outcome {
    let start = storage.revision();
    let mut stream = must(storage.watch("s", "", start + 2), "watch from the future")?;
    for name in ["a", "b", "c"] {
        must(storage.create("s", name, object(name, 1)), "create")?;
    }
    let got = revisions(stream.as_mut());
    ensure(got == [start + 3], || {
        format!("a watch after {} delivered {got:?}", start + 2)
    })
}

fn a_watch_that_is_closed_says_so(storage: &dyn Storage) -> Outcome {
    let mut stream = must(storage.watch("s", "", storage.revision()), "watch")?;
    must(storage.create("s", "a", object("a", 1)), "create")?;
    storage.close_watches();
    let got = drain(stream.as_mut());
    ensure(
        matches!(got.as_slice(), [Delivery::Change(_), Delivery::Closed]),
        || format!("a watch that was closed after one change delivered {got:?}"),
    )
}

fn progress_is_never_ahead_of_delivery(storage: &dyn Storage) -> Outcome {
    let mut stream = must(storage.watch("s", "", storage.revision()), "watch")?;
    let created = must(storage.create("s", "a", object("a", 1)), "create")?;
    let early = stream.progress();
    ensure(early.is_none_or(|at| at < created.revision()), || {
        format!("progress {early:?} before the delivery")
    })?;
    drain(stream.as_mut());
    must(storage.create("other", "a", object("a", 1)), "create in another store")?;
    let late = stream.progress();
    ensure(late == Some(storage.revision()), || {
        format!("progress {late:?} when all is delivered")
    })
}

fn a_delete_carries_the_last_state_and_its_revision(storage: &dyn Storage) -> Outcome {
    let created = must(storage.create("s", "a", object("a", 5)), "create")?;
    let mut stream = must(storage.watch("s", "", storage.revision()), "watch")?;
    must(storage.delete("s", "a", created.revision()), "delete")?;
    let got = changes(stream.as_mut());
    let [change] = got.as_slice() else {
        return Err(format!("a delete made {} events", got.len()));
    };
    let said = &change.after.value()["metadata"]["resourceVersion"];
    let right = change.deleted
        && change.kind() == "DELETED"
        && change.after.value()["data"]["value"] == "5"
        && *said == json!(storage.revision().to_string())
        && change
            .before
            .as_ref()
            .is_some_and(|before| before.revision() == created.revision());
    ensure(right, || format!("the event is {change:?}"))
}

fn a_slow_watcher_is_cut_off_alone(storage: &dyn Storage) -> Outcome {
    let start = storage.revision();
    let mut slow = must(storage.watch("s", "", start), "watch")?;
    let mut quick = must(storage.watch("s", "", start), "watch")?;
    let mut seen = Vec::new();
    for number in 0..12_u64 {
        let name = format!("o{number}");
        must(storage.create("s", &name, object(&name, number)), "create")?;
        seen.extend(revisions(quick.as_mut()));
    }
    let want: Vec<u64> = (start + 1..=storage.revision()).collect();
    ensure(seen == want, || format!("the quick watcher got {seen:?} of {want:?}"))?;
    let got = drain(slow.as_mut());
    ensure(matches!(got.last(), Some(Delivery::Overrun)), || {
        format!("the slow watcher ended with {:?}", got.last())
    })?;
    let delivered: Vec<u64> = got
        .iter()
        .filter_map(|delivery| match delivery {
            Delivery::Change(change) => Some(change.revision),
            Delivery::Overrun | Delivery::Closed => None,
        })
        .collect();
    ensure(want.starts_with(&delivered), || {
        format!("the slow watcher got {delivered:?}, which has gaps")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::{Entry, Listed, MemoryStorage, SizeLimit, StoredObject};
    use super::*;

    /// Ways to be wrong, each of which the suite must catch.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        NoOpMakesRevision,
        RefusalMakesRevision,
        ReusesRevision,
        IgnoresExpected,
        CreateOverwrites,
        LosesUpdate,
        LosesDelete,
        StaleGet,
        StaleList,
        ExactIsLatest,
        FutureIsLatest,
        CompactedIsEmpty,
        PageBeginsAnew,
        PageHasNoEnd,
        NothingIsLeft,
        DropsThird,
        Repeats,
        SwapsTwo,
        IgnoresPrefix,
        SilentGap,
        GapAfterList,
        RepeatsList,
        EagerFuture,
        DeafToClose,
        DeleteKeepsRevision,
        DeleteLosesState,
        FarProgress,
        EagerProgress,
        NoProgress,
        HidesOverrun,
    }

    struct Broken {
        inner: Arc<MemoryStorage>,
        fault: Fault,
        first: Mutex<BTreeMap<String, Arc<StoredObject>>>,
        first_list: Mutex<Option<Listed<Arc<Entry>>>>,
    }

    struct BrokenStream {
        inner: Box<dyn ChangeStream>,
        storage: Arc<MemoryStorage>,
        fault: Fault,
        count: usize,
        held: Option<Arc<Change>>,
    }

    impl ChangeStream for BrokenStream {
        fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Delivery> {
            if let Some(change) = self.held.take() {
                return Poll::Ready(Delivery::Change(change));
            }
            let next = self.inner.poll_next(cx);
            let Poll::Ready(Delivery::Change(change)) = &next else {
                let hidden = match next {
                    Poll::Ready(Delivery::Overrun) => self.fault == Fault::HidesOverrun,
                    Poll::Ready(Delivery::Closed) => self.fault == Fault::DeafToClose,
                    _ => false,
                };
                return if hidden { Poll::Pending } else { next };
            };
            self.count += 1;
            match self.fault {
                Fault::Repeats => self.held = Some(change.clone()),
                Fault::DropsThird if self.count == 3 => return self.inner.poll_next(cx),
                Fault::GapAfterList if self.count == 1 => return self.inner.poll_next(cx),
                Fault::SwapsTwo if self.count == 2 => {
                    let later = self.inner.poll_next(cx);
                    if matches!(later, Poll::Ready(Delivery::Change(_))) {
                        self.held = Some(change.clone());
                        return later;
                    }
                }
                Fault::DeleteKeepsRevision if change.deleted => {
                    let before = change.before.clone().expect("a delete has a state before");
                    let wrong = Change::new(change.key.clone(), Some(before.clone()), before, true);
                    return Poll::Ready(Delivery::Change(Arc::new(wrong)));
                }
                Fault::DeleteLosesState if change.deleted => {
                    let empty = Arc::new(StoredObject::new(change.revision, json!({"metadata": {}})));
                    let wrong = Change::new(change.key.clone(), change.before.clone(), empty, true);
                    return Poll::Ready(Delivery::Change(Arc::new(wrong)));
                }
                _ => {}
            }
            next
        }

        fn progress(&self) -> Option<u64> {
            match self.fault {
                Fault::FarProgress => Some(u64::MAX),
                // As a counter does that is read beside the queue.
                Fault::EagerProgress => Some(self.storage.revision()),
                Fault::NoProgress => None,
                _ => self.inner.progress(),
            }
        }
    }

    impl Broken {
        fn new(fault: Fault, limits: Limits) -> Broken {
            Broken {
                inner: Arc::new(MemoryStorage::new(limits.history, limits.buffer)),
                fault,
                first: Mutex::default(),
                first_list: Mutex::default(),
            }
        }

        fn wrap(&self, inner: Box<dyn ChangeStream>, fault: Fault) -> Box<dyn ChangeStream> {
            Box::new(BrokenStream {
                inner,
                storage: self.inner.clone(),
                fault,
                count: 0,
                held: None,
            })
        }

        fn has(&self, fault: Fault) -> bool {
            self.fault == fault
        }
    }

    impl Storage for Broken {
        fn revision(&self) -> u64 {
            self.inner.revision()
        }
        fn get(&self, store: &str, key: &str) -> Option<Arc<StoredObject>> {
            let now = self.inner.get(store, key)?;
            if !self.has(Fault::StaleGet) {
                return Some(now);
            }
            let mut first = self.first.lock().expect("tests do not panic under the lock");
            Some(first.entry(key.to_owned()).or_insert(now).clone())
        }
        fn create_up_to(
            &self,
            store: &str,
            key: &str,
            value: Value,
            _: &SizeLimit<'_>,
        ) -> Result<Arc<StoredObject>, StorageError> {
            match self.inner.get(store, key) {
                Some(old) if self.has(Fault::CreateOverwrites) => self.inner.update(store, key, old.revision(), value),
                _ => self.inner.create(store, key, value),
            }
        }
        fn update_up_to(
            &self,
            store: &str,
            key: &str,
            expected: u64,
            value: Value,
            _: &SizeLimit<'_>,
        ) -> Result<Arc<StoredObject>, StorageError> {
            let present = self.inner.get(store, key);
            let current = present.as_ref().map_or(expected, |object| object.revision());
            match self.fault {
                Fault::NoOpMakesRevision if current == expected => {
                    let mut changed = value.clone();
                    changed["touched"] = json!(true);
                    let touched = self.inner.update(store, key, expected, changed)?;
                    self.inner.update(store, key, touched.revision(), value)
                }
                Fault::RefusalMakesRevision if current != expected => {
                    self.inner
                        .create("hidden", &self.inner.revision().to_string(), json!({}))?;
                    self.inner.update(store, key, expected, value)
                }
                Fault::ReusesRevision => {
                    self.inner.update(store, key, expected, value.clone())?;
                    Ok(Arc::new(StoredObject::new(expected, value)))
                }
                Fault::LosesUpdate if present.is_some() && current == expected => {
                    Ok(Arc::new(StoredObject::new(self.inner.revision() + 1, value)))
                }
                Fault::IgnoresExpected => self.inner.update(store, key, current, value),
                _ => self.inner.update(store, key, expected, value),
            }
        }
        fn delete(&self, store: &str, key: &str, expected: u64) -> Result<Arc<StoredObject>, StorageError> {
            let gone = self.inner.delete(store, key, expected)?;
            if self.has(Fault::LosesDelete) {
                self.inner.create(store, key, gone.value().clone())?;
            }
            Ok(gone)
        }
        fn entries(&self, store: &str, request: &ListRequest) -> Result<Listed<Arc<Entry>>, StorageError> {
            let mut request = request.clone();
            match (self.fault, request.at) {
                (Fault::StaleList, None) => {
                    let mut first = self.first_list.lock().expect("tests do not panic under the lock");
                    let now = self.inner.entries(store, &request)?;
                    return Ok(first.get_or_insert(now).clone());
                }
                (Fault::ExactIsLatest, Some(at)) if at <= self.inner.revision() => {
                    request.at = None;
                    let latest = self.inner.entries(store, &request)?;
                    return Ok(Listed { revision: at, ..latest });
                }
                (Fault::FutureIsLatest, Some(at)) if at > self.inner.revision() => request.at = None,
                (Fault::PageBeginsAnew, _) => request.after = None,
                (Fault::PageHasNoEnd, _) => request.limit = None,
                _ => {}
            }
            match self.inner.entries(store, &request) {
                Err(StorageError::Compacted { asked, .. }) if self.has(Fault::CompactedIsEmpty) => Ok(Listed {
                    revision: asked,
                    items: Vec::new(),
                    rest: 0,
                }),
                Ok(listed) if self.has(Fault::NothingIsLeft) => Ok(Listed { rest: 0, ..listed }),
                other => other,
            }
        }
        fn watch(&self, store: &str, prefix: &str, after: u64) -> Result<Box<dyn ChangeStream>, StorageError> {
            let now = self.inner.revision();
            let (prefix, after) = match self.fault {
                Fault::IgnoresPrefix => ("", after),
                Fault::EagerFuture => (prefix, after.min(now)),
                _ => (prefix, after),
            };
            let stream = match self.inner.watch(store, prefix, after) {
                Err(StorageError::Compacted { .. }) if self.has(Fault::SilentGap) => {
                    self.inner.watch(store, prefix, now)
                }
                other => other,
            };
            // The gap is between a list and its watch, not in a watch alone.
            let fault = if self.has(Fault::GapAfterList) {
                Fault::RepeatsList
            } else {
                self.fault
            };
            stream.map(|stream| self.wrap(stream, fault))
        }
        fn list_and_watch(&self, store: &str, prefix: &str) -> (Listed, Box<dyn ChangeStream>) {
            let (listed, stream) = self.inner.list_and_watch(store, prefix);
            let stream = match self.fault {
                Fault::RepeatsList => self.inner.watch(store, prefix, listed.revision - 1).unwrap_or(stream),
                _ => stream,
            };
            (listed, self.wrap(stream, self.fault))
        }
        fn close_watches(&self) {
            self.inner.close_watches();
        }
    }

    #[test]
    fn memory_storage_conforms() {
        let violations = super::check(&|limits| Box::new(MemoryStorage::new(limits.history, limits.buffer)));
        assert_eq!(violations, []);
    }

    #[test]
    fn every_fault_is_caught_by_the_invariant_it_breaks() {
        #[track_caller]
        fn check(fault: Fault, invariant: &str) {
            let violations = super::check(&|limits| Box::new(Broken::new(fault, limits)));
            assert!(
                violations.iter().any(|v| v.invariant == invariant),
                "{fault:?} is not caught: {violations:?}"
            );
        }
        check(Fault::NoOpMakesRevision, "store-S2");
        check(Fault::RefusalMakesRevision, "store-S3");
        check(Fault::ReusesRevision, "store-S2");
        check(Fault::IgnoresExpected, "store-S3");
        check(Fault::CreateOverwrites, "store-S3");
        check(Fault::LosesUpdate, "store-R1");
        check(Fault::LosesDelete, "store-R1");
        check(Fault::StaleGet, "store-R1");
        check(Fault::StaleList, "store-R1");
        check(Fault::ExactIsLatest, "store-R3");
        check(Fault::ExactIsLatest, "store-R5");
        check(Fault::FutureIsLatest, "store-R3");
        check(Fault::CompactedIsEmpty, "store-R3");
        check(Fault::PageBeginsAnew, "store-R5");
        check(Fault::PageHasNoEnd, "store-R5");
        check(Fault::NothingIsLeft, "store-R5");
        check(Fault::DropsThird, "store-W3");
        check(Fault::Repeats, "store-W3");
        check(Fault::SwapsTwo, "store-W3");
        check(Fault::IgnoresPrefix, "store-W3");
        check(Fault::SilentGap, "store-W5");
        check(Fault::GapAfterList, "store-W5");
        check(Fault::RepeatsList, "store-W5");
        check(Fault::EagerFuture, "store-W5");
        check(Fault::DeafToClose, "store-W5");
        check(Fault::DeleteKeepsRevision, "store-W7");
        check(Fault::DeleteLosesState, "store-W7");
        check(Fault::FarProgress, "store-W6");
        check(Fault::EagerProgress, "store-W6");
        check(Fault::NoProgress, "store-W6");
        check(Fault::HidesOverrun, "store-W11");
    }
}
