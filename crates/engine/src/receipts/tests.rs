//! The receipt machine against a model of one key: a server with a history, a watch that lags, and tasks that write and
//! read. Every interleaving of a few tasks is visited; in each state every read that is not held is compared with the
//! history.

use super::*;
use std::collections::BTreeSet;

/// One key on the server after some change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Absent,
    Inside(u32),
    Outside(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Op {
    Create,
    Update,
    MoveOut,
    MoveIn,
    Delete,
    /// A delete by a client that knows the uid only.
    DeleteBlindly,
}

const OPS: [Op; 6] = [
    Op::Create,
    Op::Update,
    Op::MoveOut,
    Op::MoveIn,
    Op::Delete,
    Op::DeleteBlindly,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// Has not sent its operation.
    Idle(Op),
    /// The server has carried it out, at this version; the answer is on its way.
    Sent(Op, u32),
    /// Reads with this ticket must see that version; the deleted uid must not be seen.
    Reads {
        ticket: Ticket,
        version: u32,
        deleted: Option<u32>,
    },
    /// Refused.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    /// The object after each change; the version is the index, from 1.
    history: Vec<Object>,
    uids: u32,
    /// Up to here the watch has delivered.
    delivered: u32,
    /// The store's version, and the uid and version of its object.
    store: u32,
    shown: Option<(u32, u32)>,
    receipts: Receipts,
    tasks: Vec<Task>,
    /// A question that is on its way: the ticket, and the server's answer.
    asked: Option<(Ticket, u32, Place)>,
    selective: bool,
    /// Readers may lose their patience.
    impatient: bool,
}

fn key() -> ObjectKey {
    ObjectKey::namespaced("a", "x")
}

fn version(number: u32) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

/// Calls `run` with the state of a store.
fn with_view<T>(store: u32, shown: Option<(u32, u32)>, run: impl FnOnce(View<'_>) -> T) -> T {
    let store = version(store);
    let texts = shown.map(|(uid, version)| (uid.to_string(), version.to_string()));
    run(View {
        store: Some(&store),
        object: texts.as_ref().map(|(uid, version)| Shown {
            uid: Some(uid),
            version: Some(version),
        }),
    })
}

fn place(object: Object) -> Place {
    match object {
        Object::Inside(_) => Place::Inside,
        Object::Absent | Object::Outside(_) => Place::Outside,
    }
}

impl World {
    fn new(first: Object, tasks: Vec<Task>, selective: bool) -> World {
        let tasks_are_few = tasks.len() < 3;
        World {
            history: vec![Object::Absent, first],
            uids: 1,
            delivered: 1,
            store: 1,
            shown: matches!(first, Object::Inside(_)).then_some((1, 1)),
            receipts: Receipts::default(),
            tasks,
            asked: None,
            selective,
            impatient: tasks_are_few,
        }
    }

    fn head(&self) -> u32 {
        u32::try_from(self.history.len() - 1).expect("short histories")
    }

    fn present(&self) -> Object {
        self.history[self.history.len() - 1]
    }

    fn hold(&self, ticket: Ticket) -> Hold {
        with_view(self.store, self.shown, |view| self.receipts.hold(&key(), ticket, &view))
    }

    /// Every world that can come next.
    fn next(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        for index in 0..self.tasks.len() {
            match self.tasks[index] {
                Task::Idle(op) => worlds.push(self.sent(index, op)),
                Task::Sent(op, version) => {
                    worlds.push(self.acknowledged(index, op, version));
                    worlds.push(self.lost(index, version));
                }
                Task::Reads { ticket, .. } if self.asked.is_none() && self.hold(ticket) != Hold::Nothing => {
                    worlds.extend(self.questioned(ticket));
                }
                Task::Reads { .. } | Task::Nothing => {}
            }
        }
        worlds.extend(self.watched());
        worlds.extend(self.answered());
        worlds
    }

    fn sent(&self, index: usize, op: Op) -> World {
        let mut world = self.clone();
        let after = match (op, self.present()) {
            (Op::Create, Object::Absent) => {
                world.uids += 1;
                Some(Object::Inside(world.uids))
            }
            (Op::Update, present @ (Object::Inside(_) | Object::Outside(_))) => Some(present),
            (Op::MoveOut, Object::Inside(uid)) => Some(Object::Outside(uid)),
            (Op::MoveIn, Object::Outside(uid)) => Some(Object::Inside(uid)),
            (Op::Delete | Op::DeleteBlindly, Object::Inside(_) | Object::Outside(_)) => Some(Object::Absent),
            _ => None,
        };
        world.tasks[index] = Task::Nothing;
        if let Some(after) = after {
            world.history.push(after);
            world.tasks[index] = Task::Sent(op, world.head());
        }
        world
    }

    fn acknowledged(&self, index: usize, op: Op, at: u32) -> World {
        let mut world = self.clone();
        let before = self.history[at as usize - 1];
        let deleted = match (op, before) {
            (Op::Delete | Op::DeleteBlindly, Object::Inside(uid) | Object::Outside(uid)) => Some(uid),
            _ => None,
        };
        with_view(self.store, self.shown, |view| match deleted {
            Some(uid) => {
                // The version that the client had read: the one before, or none.
                let seen = (op == Op::Delete).then(|| version(at - 1));
                let uid = uid.to_string();
                world.receipts.deleted(key(), Some(&uid), seen, self.selective, &view);
            }
            None => {
                let place = place(self.history[at as usize]);
                world.receipts.wrote(key(), version(at), place, &view);
            }
        });
        world.reads(index, at, deleted)
    }

    fn lost(&self, index: usize, at: u32) -> World {
        let mut world = self.clone();
        world.receipts.unknown(key());
        world.reads(index, at, None)
    }

    fn reads(mut self, index: usize, version: u32, deleted: Option<u32>) -> World {
        let ticket = self.receipts.ticket();
        self.tasks[index] = Task::Reads {
            ticket,
            version,
            deleted,
        };
        self
    }

    /// The server answers a question; the answer travels. A reader that waits for too long asks as well.
    fn questioned(&self, ticket: Ticket) -> Option<World> {
        let mut world = self.clone();
        if self.hold(ticket) == Hold::Wait {
            if !self.impatient {
                return None;
            }
            with_view(self.store, self.shown, |view| {
                world.receipts.overdue([&key()], ticket, |_| view);
            });
        }
        world.asked = Some((ticket, self.head(), place(self.present())));
        Some(world)
    }

    fn answered(&self) -> Option<World> {
        let mut world = self.clone();
        let (ticket, at, place) = world.asked.take()?;
        with_view(self.store, self.shown, |view| {
            world.receipts.asked(&key(), ticket, version(at), place, &view);
        });
        Some(world)
    }

    /// The watch delivers the next change, or a bookmark when there is none.
    fn watched(&self) -> Option<World> {
        let mut world = self.clone();
        if self.delivered == self.head() {
            if self.store == self.head() {
                return None;
            }
            world.store = self.head();
        } else {
            world.delivered += 1;
            let at = world.delivered;
            let before = self.history[at as usize - 1];
            match self.history[at as usize] {
                Object::Inside(uid) => (world.store, world.shown) = (at, Some((uid, at))),
                Object::Absent | Object::Outside(_) if place(before) == Place::Inside => {
                    (world.store, world.shown) = (at, None);
                }
                Object::Absent | Object::Outside(_) => {}
            }
        }
        with_view(world.store, world.shown, |view| world.receipts.settle(0, |_| view));
        Some(world)
    }

    /// K1 to K4 for every reader.
    fn check(&self) {
        for task in &self.tasks {
            let Task::Reads {
                ticket,
                version,
                deleted,
            } = *task
            else {
                continue;
            };
            if self.hold(ticket) != Hold::Nothing {
                continue;
            }
            let fresh = match (self.shown, deleted) {
                (None, Some(_)) => true,
                (Some((uid, _)), Some(deleted)) => uid != deleted,
                (Some((_, shown)), None) => shown >= version,
                (None, None) => {
                    let since = &self.history[version as usize..];
                    since.iter().any(|object| place(*object) == Place::Outside)
                }
            };
            assert!(fresh, "a read is answered with an older state: {task:?} in {self:#?}");
        }
    }

    /// Nothing is left when everything has arrived; no read waits for a change that will not come.
    fn check_end(&self) {
        // Only a deletion whose version cannot be known stays; it holds no read.
        let kept = |receipt: &Receipt| match receipt {
            Receipt::Deleted {
                until, seen, selective, ..
            } => until.is_none() && (*selective || seen.is_none()),
            _ => false,
        };
        let left = self
            .receipts
            .keys
            .values()
            .flatten()
            .find(|entry| !kept(&entry.receipt));
        assert!(left.is_none(), "a receipt is left: {self:#?}");
        for task in &self.tasks {
            if let Task::Reads { ticket, .. } = task {
                assert_eq!(self.hold(*ticket), Hold::Nothing, "{self:#?}");
            }
        }
    }
}

/// Visits every world that can follow; answers how many there are.
fn explore(first: World) -> usize {
    let mut known = BTreeSet::new();
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        if known.contains(&world) {
            continue;
        }
        world.check();
        let next = world.next();
        if next.is_empty() {
            world.check_end();
        }
        open.extend(next);
        known.insert(world);
    }
    known.len()
}

/// Every choice of `count` operations, in every order.
fn choices(count: usize, from: usize) -> Vec<Vec<Op>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, op) in OPS.iter().enumerate().skip(from) {
        for mut rest in choices(count - 1, index) {
            rest.push(*op);
            all.push(rest);
        }
    }
    all
}

#[test]
fn k_every_interleaving_of_some_tasks_on_one_key() {
    let mut worlds = 0;
    for ops in choices(2, 0).into_iter().chain(choices(3, 0)) {
        for first in [Object::Absent, Object::Inside(1), Object::Outside(1)] {
            let moves = ops.iter().any(|op| matches!(op, Op::MoveIn | Op::MoveOut)) || first == Object::Outside(1);
            let tasks = ops.iter().map(|op| Task::Idle(*op)).collect();
            worlds += explore(World::new(first, tasks, moves));
        }
    }
    assert!(worlds > 10_000, "the model has shrunk: {worlds}");
}

/// The answer to a read of the key with this ticket.
fn hold_at(receipts: &Receipts, ticket: Ticket, store: u32, shown: Option<(u32, u32)>) -> Hold {
    with_view(store, shown, |view| receipts.hold(&key(), ticket, &view))
}

fn wrote(receipts: &mut Receipts, name: &str, at: u32) {
    let key = ObjectKey::namespaced("a", name);
    receipts.wrote(key, version(at), Place::Inside, &View::default());
}

#[test]
fn k1_later_writes_hold_no_earlier_reader() {
    let mut receipts = Receipts::default();
    wrote(&mut receipts, "x", 10);
    let ticket = receipts.ticket();
    wrote(&mut receipts, "x", 20);
    wrote(&mut receipts, "y", 20);
    let held = |store: u32| {
        let store = version(store);
        let view = |_: &ObjectKey| View {
            store: Some(&store),
            object: None,
        };
        receipts.held_in(Some("a"), ticket, view).len()
    };
    assert_eq!((held(9), held(10)), (1, 0));
    assert_eq!(hold_at(&receipts, receipts.ticket(), 10, None), Hold::Wait);
    assert_eq!(hold_at(&receipts, receipts.ticket(), 20, None), Hold::Nothing);
}

/// An acknowledgement that comes late has no effect; it must not undo the record of the later write.
#[test]
fn k1_acknowledgements_out_of_order() {
    let mut receipts = Receipts::default();
    wrote(&mut receipts, "x", 11);
    wrote(&mut receipts, "x", 10);
    assert_eq!(hold_at(&receipts, receipts.ticket(), 10, Some((1, 10))), Hold::Wait);
    assert_eq!(hold_at(&receipts, receipts.ticket(), 10, Some((1, 11))), Hold::Nothing);
}

#[test]
fn k4_after_a_reset_of_the_history_the_server_is_asked() {
    let mut receipts = Receipts::default();
    wrote(&mut receipts, "x", 1000);
    let ticket = receipts.ticket();
    with_view(50, None, |view| receipts.settle(1, |_| view));
    assert_eq!(hold_at(&receipts, ticket, 50, None), Hold::Ask);
    with_view(50, None, |view| {
        receipts.asked(&key(), ticket, version(60), Place::Inside, &view);
    });
    assert_eq!(hold_at(&receipts, ticket, 59, None), Hold::Wait);
    with_view(60, None, |view| receipts.settle(1, |_| view));
    assert!(receipts.is_empty());
}

/// A list answers for all keys at once, also for the one whose name the server chose.
#[test]
fn k4_one_list_answers_for_a_namespace() {
    let mut receipts = Receipts::default();
    let unnamed = ObjectKey::namespaced("a", "");
    receipts.unknown(unnamed.clone());
    receipts.unknown(key());
    receipts.unknown(ObjectKey::namespaced("b", "other"));
    receipts.deleted(
        ObjectKey::namespaced("a", "gone"),
        Some("7"),
        None,
        true,
        &View::default(),
    );
    let ticket = receipts.ticket();
    let listed = BTreeMap::from([(ObjectKey::namespaced("a", "made-up"), version(8)), (key(), version(9))]);
    let store = version(5);
    let view = |_: &ObjectKey| View {
        store: Some(&store),
        object: None,
    };
    receipts.asked_all(Some("a"), ticket, &version(10), &listed, Vec::new, view);
    let held = receipts.held_in(None, ticket, view);
    let names: Vec<String> = held.iter().map(|(key, hold)| format!("{key} {hold:?}")).collect();
    assert_eq!(names, ["a/made-up Wait", "a/x Wait", "b/other Ask"]);
    with_view(10, None, |view| receipts.settle(0, |_| view));
    assert_eq!(receipts.len(), 1, "the deletion is over as well: {receipts:?}");
}

#[test]
fn memory_is_bounded() {
    let mut receipts = Receipts::default();
    for at in 1..1000 {
        wrote(&mut receipts, "x", at);
    }
    assert_eq!(receipts.keys[&key()].len(), WRITES_PER_KEY);
    assert_eq!(hold_at(&receipts, receipts.ticket(), 998, None), Hold::Wait);
    let mut receipts = Receipts::default();
    for _ in 0..1000 {
        receipts.unknown(key());
    }
    assert_eq!(receipts.unknown[&key()].len(), 1);
    let mut receipts = Receipts::default();
    for number in 0..1000 {
        let key = ObjectKey::namespaced("a", &format!("x{number}"));
        receipts.deleted(key, Some("1"), None, true, &View::default());
    }
    let asked = receipts.held_in(None, receipts.ticket(), |_| View::default());
    assert!(
        (1000 - DELETIONS..1000 - DELETIONS / 3).contains(&asked.len()),
        "{}",
        asked.len()
    );
    assert!(asked.iter().all(|(_, hold)| *hold == Hold::Ask));
}

/// Evictions and tokens leave such receipts by the thousand, and no change of the store says anything about them.
#[test]
fn k4_unknown_outcomes_are_not_looked_at_when_the_store_changes() {
    let mut receipts = Receipts::default();
    for number in 0..1000 {
        receipts.unknown(ObjectKey::namespaced("a", &format!("x{number}")));
    }
    wrote(&mut receipts, "y", 5);
    let looked = std::cell::Cell::new(0);
    receipts.settle(0, |_| {
        looked.set(looked.get() + 1);
        View::default()
    });
    assert_eq!((looked.get(), receipts.len(), receipts.unsettled()), (1, 1001, 1));
    // What was known and is not any more is looked at once.
    receipts.settle(1, |_| View::default());
    assert_eq!((receipts.len(), receipts.unsettled()), (1001, 0));
    let held = receipts.held_in(None, receipts.ticket(), |_| View::default());
    assert!(held.len() == 1001 && held.iter().all(|(_, hold)| *hold == Hold::Ask));
}

/// Of very many, it is known only that there are some: every read in there asks, until a list has answered for all.
#[test]
fn k4_the_number_of_unknown_outcomes_is_bounded() {
    let mut receipts = Receipts::default();
    let named = |number: usize| ObjectKey::namespaced("a", &format!("x{number}"));
    receipts.unknown(ObjectKey::namespaced("b", "y"));
    for number in 0..10 * UNKNOWN {
        receipts.unknown(named(number));
        assert!(receipts.len() <= UNKNOWN + 1, "{}", receipts.len());
    }
    let ticket = receipts.ticket();
    let store = version(5);
    let texts: Vec<(String, String)> = (0..4).map(|at: u32| (at.to_string(), at.to_string())).collect();
    // The store shows the first objects, each at its number as a version.
    let view = |key: &ObjectKey| View {
        store: Some(&store),
        object: texts
            .iter()
            .find(|(number, _)| *key.name == format!("x{number}"))
            .map(|(uid, version)| Shown {
                uid: Some(uid),
                version: Some(version),
            }),
    };
    let holds = |receipts: &Receipts, key: &ObjectKey| receipts.hold(key, ticket, &view(key));
    for number in [0, 1, 7, 10 * UNKNOWN] {
        assert_eq!(holds(&receipts, &named(number)), Hold::Ask, "{number}");
    }
    assert_eq!(
        holds(&receipts, &ObjectKey::namespaced("b", "z")),
        Hold::Ask,
        "it may be that one"
    );
    assert_eq!(holds(&receipts, &ObjectKey::namespaced("c", "z")), Hold::Nothing);
    // x0 is gone since, x1 is as it was, x2 has changed, and x9 is new.
    let listed = [(1, 1), (2, 8), (3, 3), (9, 9)].map(|(number, at)| (named(number), version(at)));
    let shown = || (0..4).map(named).collect();
    receipts.asked_all(Some("a"), ticket, &version(10), &BTreeMap::from(listed), shown, view);
    let expected = [
        (0, Hold::Wait),
        (1, Hold::Nothing),
        (2, Hold::Wait),
        (3, Hold::Nothing),
        (5, Hold::Nothing),
    ];
    for (number, hold) in expected {
        assert_eq!(holds(&receipts, &named(number)), hold, "{number}");
    }
    assert_eq!(holds(&receipts, &named(9)), Hold::Wait);
    assert!(!receipts.is_crowded(Some("a")) && receipts.is_crowded(Some("b")));
    with_view(10, None, |view| receipts.settle(0, |_| view));
    assert_eq!(receipts.len(), 1, "that of the other namespace: {receipts:?}");
}
