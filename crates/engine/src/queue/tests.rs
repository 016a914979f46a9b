use super::*;

/// All causes of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Causes(Vec<&'static str>);

impl Causes {
    fn one(cause: &'static str) -> Causes {
        Causes(vec![cause])
    }
}

impl Merge for Causes {
    fn merge(&mut self, later: Causes) {
        self.0.extend(later.0);
    }
}

type Queue = WorkQueue<&'static str, Causes>;

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn add(queue: &mut Queue, item: &'static str, now: u64) -> Wake {
    queue.add(item, Priority::NORMAL, Causes::one(item), at(now))
}

fn low(queue: &mut Queue, item: &'static str, now: u64) -> Wake {
    queue.add(item, Priority::LOW, Causes::one("initial list"), at(now))
}

fn after(queue: &mut Queue, item: &'static str, due: u64, now: u64) -> Wake {
    queue.add_after(item, at(due), Priority::NORMAL, Causes::one("timer"), at(now))
}

#[track_caller]
fn get(queue: &mut Queue, now: u64) -> Work<&'static str, Causes> {
    match queue.get(at(now)) {
        Next::Item(work) => work,
        other => panic!("an item is ready, but the queue answers {other:?}"),
    }
}

/// Everything that is handed out now, each done at once.
fn drain(queue: &mut Queue, now: u64) -> Vec<&'static str> {
    let mut items = Vec::new();
    while let Next::Item(work) = queue.get(at(now)) {
        items.push(work.item);
        queue.done(work.token, at(now));
    }
    items
}

#[test]
fn q1_many_adds_are_one_run_with_all_causes() {
    let mut queue = Queue::default();
    assert_eq!(add(&mut queue, "a", 0), Wake::Worker);
    assert_eq!(queue.add("a", Priority::NORMAL, Causes::one("again"), at(1)), Wake::No);
    let work = get(&mut queue, 2);
    assert_eq!(
        (work.causes.0.as_slice(), work.waited),
        (&["a", "again"][..], Duration::from_secs(2))
    );
    assert_eq!(queue.get(at(2)), Next::Wait(None));
}

#[test]
fn q2_item_is_not_handed_out_twice() {
    let mut queue = Queue::default();
    add(&mut queue, "a", 0);
    let first = get(&mut queue, 0);
    add(&mut queue, "a", 0);
    assert_eq!(queue.get(at(0)), Next::Wait(None));
    assert!(queue.done(first.token, at(0)).is_some());
    let second = get(&mut queue, 0);
    assert_eq!(
        queue.done(first.token, at(0)),
        None,
        "a run ends once, and a stale token ends no other run"
    );
    assert_eq!(queue.state(&"a"), State::Running);
    assert!(queue.done_item(&"a", at(0)).is_some());
    assert_eq!(queue.done(second.token, at(0)), None);
}

#[test]
fn q3_add_while_processing_is_not_lost() {
    let mut queue = Queue::default();
    add(&mut queue, "a", 0);
    let work = get(&mut queue, 0);
    assert_eq!(add(&mut queue, "a", 0), Wake::No);
    assert_eq!(queue.state(&"a"), State::RunningDirty);
    assert_eq!(
        queue.done(work.token, at(3)),
        Some(Finished {
            worked: Duration::from_secs(3),
            wake: Wake::Worker
        })
    );
    assert_eq!(drain(&mut queue, 3), ["a"]);
}

#[test]
fn q4_order_is_that_of_becoming_ready() {
    let mut queue = Queue::default();
    after(&mut queue, "due at 2", 2, 0);
    after(&mut queue, "due at 1", 1, 0);
    add(&mut queue, "now", 0);
    add(&mut queue, "at 3", 3);
    assert_eq!(drain(&mut queue, 4), ["now", "due at 1", "due at 2", "at 3"]);
}

#[test]
fn q5_delay_is_kept_and_the_earliest_counts() {
    let mut queue = Queue::default();
    assert_eq!(after(&mut queue, "a", 5, 0), Wake::Timer(at(5)));
    assert_eq!(after(&mut queue, "a", 9, 0), Wake::No);
    assert_eq!(after(&mut queue, "a", 3, 0), Wake::Timer(at(3)));
    assert_eq!(queue.get(at(2)), Next::Wait(Some(at(3))));
    assert_eq!(get(&mut queue, 3).causes.0.as_slice(), ["timer"; 3]);
    assert_eq!(queue.next_due(), None);
}

#[test]
fn q5_immediate_add_supersedes_the_delay() {
    let mut queue = Queue::default();
    after(&mut queue, "a", 5, 0);
    assert_eq!(add(&mut queue, "a", 1), Wake::Worker);
    assert_eq!(drain(&mut queue, 1), ["a"]);
    assert_eq!(
        queue.get(at(10)),
        Next::Wait(None),
        "after the delay nothing is pending"
    );
    assert!(queue.is_idle());
}

#[test]
fn q5_delay_asked_for_in_a_run_is_held_until_done() {
    let mut queue = Queue::default();
    add(&mut queue, "a", 0);
    let work = get(&mut queue, 0);
    after(&mut queue, "a", 5, 0);
    assert_eq!(queue.state(&"a"), State::RunningDelayed(at(5)));
    assert_eq!(queue.get(at(6)), Next::Wait(None), "due, but its run has not ended");
    assert_eq!(
        queue.done(work.token, at(6)).map(|finished| finished.wake),
        Some(Wake::Worker)
    );
    assert_eq!(drain(&mut queue, 6), ["a"]);
}

#[test]
fn q6_shutdown_hands_out_nothing() {
    let mut queue = Queue::default();
    add(&mut queue, "running", 0);
    let work = get(&mut queue, 0);
    add(&mut queue, "ready", 0);
    after(&mut queue, "delayed", 5, 0);
    queue.shut_down();
    queue.shut_down();
    assert_eq!(queue.get(at(9)), Next::ShutDown);
    assert_eq!(add(&mut queue, "late", 9), Wake::ShutDown);
    assert_eq!(
        queue.add_rate_limited("late", Causes::default(), at(9)),
        (Wake::ShutDown, None)
    );
    assert!(!queue.is_idle());
    queue.done(work.token, at(9));
    assert!(queue.is_idle());
}

/// The last drop gives the memory of a burst back, while the places after it are still to be looked at.
#[test]
fn q6_shutdown_after_a_burst_drops_what_waits() {
    let mut queue: WorkQueue<u32, Causes> = WorkQueue::default();
    let add = |queue: &mut WorkQueue<u32, _>, item, due| {
        queue.add_after(item, at(due), Priority::NORMAL, Causes::one("list"), at(0))
    };
    add(&mut queue, 0, 60);
    for item in 1..5000 {
        add(&mut queue, item, 0);
    }
    while let Next::Item(work) = queue.get(at(1)) {
        queue.done(work.token, at(1));
    }
    assert_eq!(queue.state(&0), State::Delayed(at(60)));
    queue.shut_down();
    assert!(queue.is_idle());
    assert_eq!(queue.get(at(61)), Next::ShutDown);
}

#[test]
fn what_waits_is_dropped_wherever_it_is() {
    let mut queue = Queue::default();
    for item in ["running", "kept running"] {
        add(&mut queue, item, 0);
    }
    let runs = [get(&mut queue, 0), get(&mut queue, 0)];
    for item in ["running", "kept running", "ready", "kept"] {
        add(&mut queue, item, 0);
    }
    low(&mut queue, "low", 0);
    after(&mut queue, "delayed", 9, 0);
    after(&mut queue, "kept delayed", 9, 0);
    queue.drop_waiting(|item, _| !item.starts_with("kept"));
    for work in runs {
        assert!(queue.done(work.token, at(0)).is_some(), "{}", work.item);
    }
    assert_eq!(drain(&mut queue, 0), ["kept", "kept running"]);
    assert_eq!(drain(&mut queue, 9), ["kept delayed"]);
    assert!(queue.is_idle());
}

#[test]
fn q7_backoff_grows_per_item_until_forgotten() {
    let mut queue = Queue::default();
    let mut now = Instant::ZERO;
    add(&mut queue, "a", 0);
    for n in 0..70 {
        let Next::Item(work) = queue.get(now) else {
            panic!("the delay is over")
        };
        assert_eq!((work.retries, queue.retries(&"a")), (n, n));
        let (_, delay) = queue.add_rate_limited("a", Causes::default(), now);
        assert_eq!(delay, Some(Exponential::default().delay(n)));
        queue.done(work.token, now);
        now = now + delay.expect("the queue is open");
    }
    assert_eq!(queue.metrics(now).retries, 70);
    queue.forget(&"a");
    assert_eq!(queue.retries(&"a"), 0);
    assert_eq!(queue.retries(&"b"), 0);
}

#[test]
fn r5_success_resets_the_backoff() {
    let mut queue = Queue::default();
    add(&mut queue, "a", 0);
    let work = get(&mut queue, 0);
    queue.add_rate_limited("a", Causes::one("retry"), at(0));
    queue.done(work.token, at(0));
    assert_eq!(queue.retries(&"a"), 1);
    let work = get(&mut queue, 1);
    assert_eq!((work.retries, work.causes.0.as_slice()), (1, &["retry"][..]));
    queue.done(work.token, at(1));
    assert_eq!(queue.retries(&"a"), 0, "a run that asks for no retry ends the streak");
    assert!(queue.is_idle(), "and leaves nothing behind");
}

#[test]
fn r8_priority_is_the_highest_pending() {
    let mut queue = Queue::default();
    low(&mut queue, "raised", 0);
    low(&mut queue, "low", 0);
    add(&mut queue, "normal", 0);
    add(&mut queue, "raised", 0);
    low(&mut queue, "normal", 0);
    let depths = [(Priority::NORMAL, 2), (Priority::LOW, 1)].into();
    assert_eq!(queue.metrics(at(0)).depths, depths);
    assert_eq!(drain(&mut queue, 0), ["normal", "raised", "low"]);
    low(&mut queue, "kept", 0);
    let work = get(&mut queue, 0);
    queue.add_rate_limited("kept", Causes::default(), at(0));
    queue.done(work.token, at(0));
    assert_eq!(get(&mut queue, 1).priority, Priority::LOW, "a retry keeps the priority");
}

#[test]
fn q8_metrics_are_the_sizes() {
    let mut queue = Queue::default();
    add(&mut queue, "a", 0);
    add(&mut queue, "b", 0);
    low(&mut queue, "c", 0);
    after(&mut queue, "d", 9, 0);
    get(&mut queue, 1);
    get(&mut queue, 3);
    let want = Metrics {
        depths: [(Priority::NORMAL, 0), (Priority::LOW, 1)].into(),
        delayed: 1,
        running: 2,
        adds: 3,
        retries: 0,
        unfinished: Duration::from_secs(4 + 2),
        longest_running: Duration::from_secs(4),
    };
    assert_eq!(queue.metrics(at(5)), want);
    assert_eq!(queue.len(), 1);
}

#[test]
fn q9_low_is_served_within_its_bound() {
    let fairness = Fairness {
        ageing: Duration::from_secs(10),
        weight: 3,
    };
    let mut queue: WorkQueue<u32> = WorkQueue::new(Exponential::default(), fairness);
    for item in 0..5 {
        queue.add(item, Priority::LOW, (), at(0));
    }
    let mut served = Vec::new();
    for round in 0..40u32 {
        let now = at(u64::from(round));
        queue.add(100 + round, Priority::NORMAL, (), now); // there is always something of normal priority
        let Next::Item(work) = queue.get(now) else {
            panic!("there is always an item")
        };
        if work.priority == Priority::LOW {
            served.push((work.item, round));
        }
        queue.done(work.token, now);
    }
    assert_eq!(served, [(0, 10), (1, 14), (2, 18), (3, 22), (4, 26)]);
}

#[test]
fn q9_each_priority_is_before_the_lower_ones() {
    let mut queue: WorkQueue<&str> = WorkQueue::default();
    for (item, priority) in [
        ("list", -100),
        ("usual", 0),
        ("urgent", 7),
        ("rare", -3),
        ("urgent too", 7),
    ] {
        queue.add(item, Priority(priority), (), at(0));
    }
    queue.add("rare", Priority(5), (), at(0)); // raised
    queue.add("urgent", Priority(-7), (), at(0)); // not lowered
    let expected = [(-100, 1), (0, 1), (5, 1), (7, 2)].map(|(priority, depth)| (Priority(priority), depth));
    assert_eq!(queue.metrics(at(0)).depths, expected.into());
    let mut order = Vec::new();
    while let Next::Item(work) = queue.get(at(0)) {
        order.push(work.item);
        queue.done(work.token, at(0));
    }
    assert_eq!(order, ["urgent", "urgent too", "rare", "usual", "list"]);
}

#[test]
fn q10_idle_queue_asks_for_no_timer() {
    let mut queue = Queue::default();
    assert_eq!(queue.get(at(0)), Next::Wait(None));
    add(&mut queue, "a", 0);
    let work = get(&mut queue, 0);
    assert_eq!((work.wake, queue.get(at(0))), (Wake::No, Next::Wait(None)));
}

#[test]
fn q10_the_word_is_passed_on() {
    let mut queue = Queue::default();
    after(&mut queue, "a", 1, 0);
    after(&mut queue, "b", 1, 0);
    after(&mut queue, "c", 7, 0);
    assert_eq!(get(&mut queue, 1).wake, Wake::Worker, "b is ready for another worker");
    assert_eq!(
        get(&mut queue, 1).wake,
        Wake::Timer(at(7)),
        "somebody else must wait for c"
    );
}

#[test]
fn q11_memory_is_that_of_pending_items() {
    let mut queue: WorkQueue<u32> = WorkQueue::default();
    for item in 0..5000 {
        queue.add(item, Priority::LOW, (), at(0));
    }
    while let Next::Item(work) = queue.get(at(0)) {
        queue.done(work.token, at(0));
    }
    assert!(queue.is_idle() && queue.slots.is_empty() && queue.links.is_empty() && queue.free.is_empty());
    for item in 0..5000 {
        queue.add(item, Priority::NORMAL, (), at(0));
        let Next::Item(work) = queue.get(at(0)) else {
            panic!("it was just added")
        };
        queue.done(work.token, at(0));
    }
    assert_eq!(queue.slots.len(), 1, "slots are used again");
}

/// One item that waits for its time, as most controllers have, and one that runs, do not keep the room of a first list.
#[test]
fn q11_memory_goes_back_although_some_items_stay() {
    let mut queue: WorkQueue<u32> = WorkQueue::default();
    for item in 0..5000 {
        queue.add(item, Priority::LOW, (), at(0));
    }
    queue.add_after(9000, at(50), Priority::NORMAL, (), at(0));
    queue.add_after(9001, at(40), Priority::NORMAL, (), at(0));
    let mut held = Vec::new();
    let mut order = Vec::new();
    while let Next::Item(work) = queue.get(at(0)) {
        order.push(work.item);
        match work.item % 1000 {
            999 => held.push(work),
            _ => drop(queue.done(work.token, at(0)).expect("it runs")),
        }
    }
    assert_eq!(order, (0..5000).collect::<Vec<u32>>(), "the order stays");
    assert!(queue.slots.len() <= 1024, "{} slots for 7 items", queue.slots.len());
    assert_eq!((queue.metrics(at(0)).running, queue.metrics(at(0)).delayed), (5, 2));
    for work in &held {
        assert_eq!(queue.state(&work.item), State::Running);
        queue.add(work.item, Priority::NORMAL, (), at(1));
        assert!(
            queue.done(work.token, at(1)).is_some(),
            "a token from before still ends its run"
        );
        assert_eq!(queue.done(work.token, at(1)), None);
    }
    let mut again = Vec::new();
    for now in [1, 40, 50] {
        while let Next::Item(work) = queue.get(at(now)) {
            again.push((now, work.item));
            queue.done(work.token, at(now));
        }
    }
    assert_eq!(
        again,
        [
            (1, 999),
            (1, 1999),
            (1, 2999),
            (1, 3999),
            (1, 4999),
            (40, 9001),
            (50, 9000)
        ]
    );
    assert!(queue.is_idle() && queue.moved.is_empty() && queue.slots.is_empty());
}

#[test]
fn r5_a_retry_may_say_its_time_and_counts_as_one() {
    let mut queue = Queue::default();
    low(&mut queue, "a", 0);
    let work = get(&mut queue, 0);
    queue.retry_at("a", at(30), Causes::one("busy"), at(0));
    queue.done(work.token, at(0));
    assert_eq!(queue.get(at(29)), Next::Wait(Some(at(30))));
    let work = get(&mut queue, 30);
    assert_eq!((work.retries, work.priority), (1, Priority::LOW));
    assert_eq!(queue.metrics(at(30)).retries, 1);
}
