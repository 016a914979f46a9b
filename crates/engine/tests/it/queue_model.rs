//! The work queue against a model that is too simple to be wrong: plain vectors, searched from end to end.
//!
//! After every step the answers, the state of every item and the metrics of both are compared. It keeps Q1 to Q8 and
//! Q11, R1, R2, R5 and R8 for every history that it tries; Q9 through the model's own count of turns.

use kubewright_engine::Instant;
use kubewright_engine::backoff::Exponential;
use kubewright_engine::queue::{Fairness, Merge, Next, Priority, State, Token, Wake, WorkQueue};
use proptest::prelude::*;
use std::time::Duration;

const ITEMS: u8 = 5;

/// All causes of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Causes(Vec<u32>);

impl Merge for Causes {
    fn merge(&mut self, later: Causes) {
        self.0.extend(later.0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, Priority),
    AddAfter(u8, u64, Priority),
    Retry(u8),
    Get,
    Done(usize),
    Forget(u8),
    Pass(u64),
    ShutDown,
}

fn step() -> impl Strategy<Value = Step> {
    let priority = || prop_oneof![Just(Priority::NORMAL), Just(Priority::LOW), Just(Priority(7))];
    prop_oneof![
        6 => (0..ITEMS, priority()).prop_map(|(item, priority)| Step::Add(item, priority)),
        4 => (0..ITEMS, 0..6u64, priority()).prop_map(|(item, delay, priority)| Step::AddAfter(item, delay, priority)),
        3 => (0..ITEMS).prop_map(Step::Retry),
        8 => Just(Step::Get),
        6 => (0..4usize).prop_map(Step::Done),
        1 => (0..ITEMS).prop_map(Step::Forget),
        4 => (1..4u64).prop_map(Step::Pass),
        1 => prop_oneof![9 => Just(Step::Pass(100)), 1 => Just(Step::ShutDown)],
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Pending {
    priority: Priority,
    due: Option<Instant>,
    causes: Causes,
}

#[derive(Clone, Debug, Default)]
struct Item {
    pending: Option<Pending>,
    running: Option<Priority>,
    failures: u32,
    retried: bool,
}

#[derive(Default)]
struct Model {
    items: Vec<Item>,
    /// Ready items in the order of becoming ready, both priorities in one.
    ready: Vec<u8>,
    /// Delayed items in the order of asking.
    delayed: Vec<u8>,
    turns: u32,
    shut: bool,
    ready_since: Vec<Instant>,
}

fn fairness() -> Fairness {
    Fairness {
        ageing: Duration::from_secs(3),
        weight: 2,
    }
}

fn backoff() -> Exponential {
    Exponential {
        base: Duration::from_secs(1),
        max: Duration::from_secs(20),
    }
}

impl Model {
    fn new() -> Model {
        let count = usize::from(ITEMS);
        Model {
            items: vec![Item::default(); count],
            ready_since: vec![Instant::ZERO; count],
            ..Model::default()
        }
    }

    fn item(&mut self, item: u8) -> &mut Item {
        &mut self.items[usize::from(item)]
    }

    fn promote(&mut self, now: Instant) {
        loop {
            let due = |model: &Model, item: u8| model.items[usize::from(item)].pending.as_ref().and_then(|p| p.due);
            let first = self
                .delayed
                .iter()
                .copied()
                .filter(|item| due(self, *item) <= Some(now))
                .min_by_key(|item| due(self, *item));
            let Some(item) = first else { return };
            let since = due(self, item).expect("delayed items are due");
            self.delayed.retain(|other| *other != item);
            self.make_ready(item, since);
        }
    }

    fn make_ready(&mut self, item: u8, since: Instant) {
        self.item(item).pending.as_mut().expect("pending").due = None;
        self.ready.push(item);
        self.ready_since[usize::from(item)] = since;
    }

    fn ask(&mut self, item: u8, due: Option<Instant>, priority: Priority, cause: u32, now: Instant) {
        if self.shut {
            return;
        }
        self.promote(now);
        let due = due.filter(|due| *due > now);
        let slot = self.item(item);
        let before = slot.pending.clone();
        let mut pending = before.clone().unwrap_or(Pending {
            priority,
            due,
            causes: Causes::default(),
        });
        pending.priority = pending.priority.max(priority);
        pending.due = pending.due.min(due);
        pending.causes.merge(Causes(vec![cause]));
        let after = pending.clone();
        slot.pending = Some(pending);
        if slot.running.is_some() {
            return;
        }
        let was_ready = before.as_ref().is_some_and(|before| before.due.is_none());
        if was_ready {
            if before.is_some_and(|before| before.priority != after.priority) {
                self.ready.retain(|other| *other != item);
                self.ready.push(item);
            }
        } else if before.is_none_or(|before| before.due != after.due) {
            self.delayed.retain(|other| *other != item);
            match after.due {
                None => self.make_ready(item, now),
                Some(_) => self.delayed.push(item),
            }
        }
    }

    fn retry(&mut self, item: u8, cause: u32, now: Instant) {
        if self.shut {
            return;
        }
        let slot = self.item(item);
        let delay = Duration::from_secs(1 << slot.failures.min(10)).min(Duration::from_secs(20));
        slot.failures += 1;
        slot.retried = true;
        let priority = slot
            .running
            .or(slot.pending.as_ref().map(|p| p.priority))
            .unwrap_or(Priority::NORMAL);
        self.ask(item, Some(now + delay), priority, cause, now);
    }

    fn get(&mut self, now: Instant) -> Option<(u8, Pending, u32)> {
        self.promote(now);
        // The first of each priority, the most urgent priority first.
        let mut fronts: Vec<(Priority, u8)> = Vec::new();
        for item in &self.ready {
            let pending = self.items[usize::from(*item)].pending.as_ref();
            let priority = pending.expect("ready items are pending").priority;
            if fronts.iter().all(|(known, _)| *known != priority) {
                fronts.push((priority, *item));
            }
        }
        fronts.sort_by(|(one, _), (other, _)| other.cmp(one));
        let since = |item: u8| self.ready_since[usize::from(item)];
        let lower = fronts.iter().skip(1).map(|(_, item)| *item);
        let aged = lower
            .min_by_key(|item| since(*item))
            .filter(|item| now.since(since(*item)) >= fairness().ageing && self.turns >= fairness().weight);
        let item = aged.or(fronts.first().map(|(_, item)| *item));
        self.turns = if aged.is_some() || fronts.len() < 2 {
            0
        } else {
            self.turns + 1
        };
        let item = item?;
        self.ready.retain(|other| *other != item);
        let slot = self.item(item);
        let pending = slot.pending.take().expect("ready items are pending");
        slot.running = Some(pending.priority);
        slot.retried = false;
        let failures = slot.failures;
        Some((item, pending, failures))
    }

    fn done(&mut self, item: u8, now: Instant) {
        self.promote(now);
        let slot = self.item(item);
        slot.running = None;
        if !slot.retried {
            slot.failures = 0;
        }
        match slot.pending.as_ref().map(|pending| pending.due) {
            None => slot.failures = 0,
            Some(Some(due)) if due > now => self.delayed.push(item),
            Some(_) => self.make_ready(item, now),
        }
    }

    fn shut_down(&mut self) {
        self.shut = true;
        for slot in &mut self.items {
            let dropped = slot.pending.take().is_some();
            if dropped && slot.running.is_none() {
                slot.failures = 0;
            }
        }
        self.delayed.clear();
        self.ready.clear();
    }

    fn state(&self, item: u8) -> State {
        let slot = &self.items[usize::from(item)];
        match (slot.running, slot.pending.as_ref().map(|pending| pending.due)) {
            (None, None) => State::Idle,
            (None, Some(None)) => State::Queued,
            (None, Some(Some(due))) => State::Delayed(due),
            (Some(_), None) => State::Running,
            (Some(_), Some(None)) => State::RunningDirty,
            (Some(_), Some(Some(due))) => State::RunningDelayed(due),
        }
    }
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut queue: WorkQueue<u8, Causes> = WorkQueue::new(backoff(), fairness());
    let mut model = Model::new();
    let mut now = Instant::ZERO;
    let mut out: Vec<(u8, Token)> = Vec::new();
    for (number, step) in (0u32..).zip(steps) {
        let cause = Causes(vec![number]);
        match step {
            Step::Add(item, priority) => {
                let wake = queue.add(item, priority, cause, now);
                model.ask(item, None, priority, number, now);
                prop_assert!((wake == Wake::ShutDown) == model.shut);
            }
            Step::AddAfter(item, delay, priority) => {
                let due = now + Duration::from_secs(delay);
                queue.add_after(item, due, priority, cause, now);
                model.ask(item, Some(due), priority, number, now);
            }
            Step::Retry(item) => {
                queue.add_rate_limited(item, cause, now);
                model.retry(item, number, now);
            }
            Step::Get => match (queue.get(now), model.get(now)) {
                (Next::Item(work), Some((item, pending, failures))) => {
                    prop_assert!(
                        out.iter().all(|(running, _)| *running != item),
                        "Q2: {} is running",
                        item
                    );
                    prop_assert_eq!(
                        (work.item, work.priority, work.retries),
                        (item, pending.priority, failures)
                    );
                    prop_assert_eq!(work.causes, pending.causes);
                    out.push((item, work.token));
                }
                (Next::Wait(due), None) => {
                    let want = model
                        .delayed
                        .iter()
                        .filter_map(|item| model.items[usize::from(*item)].pending.as_ref()?.due)
                        .min();
                    prop_assert!(!model.shut);
                    prop_assert_eq!(due, want);
                }
                (Next::ShutDown, None) => prop_assert!(model.shut),
                (got, want) => return Err(TestCaseError::fail(format!("got {got:?}, want {want:?}"))),
            },
            Step::Done(which) if !out.is_empty() => {
                let (item, token) = out.remove(which % out.len());
                prop_assert!(queue.done(token, now).is_some());
                prop_assert!(queue.done(token, now).is_none());
                model.done(item, now);
            }
            Step::Done(_) => {}
            Step::Forget(item) => {
                queue.forget(&item);
                model.item(item).failures = 0;
            }
            Step::Pass(seconds) => now = now + Duration::from_secs(seconds),
            Step::ShutDown => {
                queue.shut_down();
                model.shut_down();
            }
        }
        compare(&queue, &model, now)?;
    }
    Ok(())
}

fn compare(queue: &WorkQueue<u8, Causes>, model: &Model, now: Instant) -> Result<(), TestCaseError> {
    for item in 0..ITEMS {
        prop_assert_eq!(queue.state(&item), model.state(item), "item {}", item);
        prop_assert_eq!(
            queue.retries(&item),
            model.items[usize::from(item)].failures,
            "failures of {}",
            item
        );
    }
    let metrics = queue.metrics(now);
    let running = model.items.iter().filter(|item| item.running.is_some()).count();
    prop_assert_eq!(metrics.depths.values().sum::<usize>(), model.ready.len());
    prop_assert_eq!((metrics.delayed, metrics.running), (model.delayed.len(), running));
    prop_assert_eq!(
        queue.is_idle(),
        model.ready.is_empty() && model.delayed.is_empty() && running == 0
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn q_queue_equals_its_model(steps in prop::collection::vec(step(), 1..120)) {
        run(steps)?;
    }
}
