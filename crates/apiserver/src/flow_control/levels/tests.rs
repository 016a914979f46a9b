use super::*;

const QUEUE: Response = Response::Queue(Queuing {
    queues: 8,
    hand_size: 2,
    length_limit: 3,
});

/// Levels by name: nominal and lendable seats, the most that are borrowed, what happens without a seat.
fn levels(rows: &[(&str, u64, u64, Option<u64>, Response)]) -> Levels<&'static str> {
    let mut levels = Levels::default();
    assert!(levels.configure(limits(rows)).is_empty());
    levels
}

fn limits(rows: &[(&str, u64, u64, Option<u64>, Response)]) -> BTreeMap<Arc<str>, (Limits, Response)> {
    let row = |(name, nominal, lendable, borrowable, response): &(&str, u64, u64, Option<u64>, Response)| {
        let limits = Limits {
            nominal: *nominal,
            lendable: *lendable,
            borrowable: *borrowable,
        };
        (Arc::from(*name), (limits, *response))
    };
    rows.iter().map(row).collect()
}

fn names(begun: Vec<Begun<&'static str>>) -> Vec<&'static str> {
    begun.into_iter().map(|begun| begun.waker).collect()
}

#[test]
fn a_full_level_rejects() {
    let mut levels = levels(&[("a", 2, 0, Some(0), Response::Reject)]);
    assert_eq!(levels.enter("a", 1, 1, || ""), Ok(Entered::Begins(1)));
    assert_eq!(levels.enter("a", 2, 1, || ""), Ok(Entered::Begins(1)));
    assert_eq!(levels.enter("a", 3, 1, || ""), Err(Reason::ConcurrencyLimit));
    assert!(levels.leave("a", 1, 1).is_empty());
    assert_eq!(
        levels.enter("a", 3, 9, || ""),
        Err(Reason::ConcurrencyLimit),
        "it wants all"
    );
    assert!(levels.leave("a", 2, 1).is_empty());
    assert_eq!(levels.enter("a", 3, 9, || ""), Ok(Entered::Begins(2)), "all there are");
    assert_eq!(
        levels.enter("b", 3, 9, || ""),
        Ok(Entered::Begins(0)),
        "there is no such level"
    );
    levels.configure(limits(&[("a", 0, 0, Some(0), Response::Reject)]));
    levels.leave("a", 3, 2);
    assert_eq!(
        levels.enter("a", 3, 1, || ""),
        Err(Reason::ConcurrencyLimit),
        "a level without seats"
    );
}

#[test]
fn a_level_borrows_what_others_do_not_use() {
    let mut levels = levels(&[
        ("a", 1, 0, Some(2), Response::Reject),
        ("b", 4, 3, Some(0), Response::Reject),
    ]);
    for _ in 0..3 {
        assert_eq!(levels.enter("a", 1, 1, || ""), Ok(Entered::Begins(1)));
    }
    assert_eq!(
        levels.enter("a", 1, 1, || ""),
        Err(Reason::ConcurrencyLimit),
        "it may borrow two"
    );
    for _ in 0..4 {
        assert_eq!(
            levels.enter("b", 1, 1, || ""),
            Ok(Entered::Begins(1)),
            "its own are its own"
        );
    }
    assert!(levels.leave("a", 1, 1).is_empty());
    assert_eq!(
        levels.enter("a", 1, 1, || ""),
        Err(Reason::ConcurrencyLimit),
        "nothing is lent"
    );
}

#[test]
fn flows_take_turns() {
    let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
    assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
    // The flow 0 has the queues 0 and 1; the flow 2 + 3 * 8 has 2 and 4.
    assert_eq!((deal(0, 8, 2), deal(26, 8, 2)), (vec![0, 1], vec![2, 4]));
    for name in ["a1", "a2", "a3", "a4", "a5", "a6"] {
        assert!(
            matches!(levels.enter("a", 0, 1, || name), Ok(Entered::Waits(_))),
            "{name}"
        );
    }
    assert_eq!(levels.enter("a", 0, 1, || "a7"), Err(Reason::QueueFull));
    assert!(matches!(levels.enter("a", 26, 1, || "b1"), Ok(Entered::Waits(_))));
    // One request runs at a time; each ends here, and the next one begins.
    let runs = ["first", "a1", "a2", "b1", "a3", "a4", "a5"];
    let flow = |name: &str| if name == "b1" { 26 } else { 0 };
    let order: Vec<_> = runs
        .iter()
        .flat_map(|name| names(levels.leave("a", flow(name), 1)))
        .collect();
    assert_eq!(order, ["a1", "a2", "b1", "a3", "a4", "a5", "a6"]);
    assert!(levels.leave("a", 0, 1).is_empty());
    assert_eq!(levels.shown().next(), Some((&Arc::from("a"), 1, 0, 0)));
}

/// A flow whose requests never end leaves seats to the next flow, however many it sends.
#[test]
fn one_flow_never_has_all() {
    let mut levels = levels(&[("a", 16, 0, Some(0), QUEUE)]);
    let mut begun = BTreeMap::new();
    for (flow, name) in [(0, "first"), (26, "second"), (52, "third")] {
        for _ in 0..16 {
            if let Ok(Entered::Begins(_)) = levels.enter("a", flow, 1, || name) {
                *begun.entry(flow).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(begun, BTreeMap::from([(0, 9), (26, 4), (52, 2)]));
    assert_eq!(levels.shown().map(|(_, _, taken, _)| taken).next(), Some(15));
    // A seat that the first one gives back goes to a flow that holds no more than are free then.
    assert_eq!(names(levels.leave("a", 0, 1)), ["third"]);
    assert!(levels.leave("a", 0, 1).is_empty());
}

/// Requests that wait for something else take nothing from other flows, however many flows there are, and as much as
/// before from their own.
#[test]
fn what_pauses_holds_up_its_own_flow_only() {
    let mut levels = levels(&[("a", 2, 0, Some(0), Response::Reject), ("b", 8, 0, Some(0), QUEUE)]);
    for flow in 0..100 {
        for (name, least) in [("a", 2), ("b", 4)] {
            let mut begun = 0;
            while let Ok(Entered::Begins(1)) = levels.enter(name, flow, 1, || "") {
                assert!(levels.pause(name, flow, 1).is_empty());
                begun += 1;
            }
            assert!((least..=8).contains(&begun), "{name}: {begun} of flow {flow}");
        }
    }
    // One that goes on does so at once, and one that ends makes room in its flow.
    levels.resume("a", 7, 1);
    assert_eq!(levels.enter("a", 8, 1, || ""), Err(Reason::ConcurrencyLimit));
    assert_eq!(levels.enter("a", 200, 1, || ""), Ok(Entered::Begins(1)));
    assert_eq!(
        levels.enter("a", 200, 1, || ""),
        Err(Reason::ConcurrencyLimit),
        "two do not pause"
    );
    levels.leave("a", 200, 1);
    assert_eq!(levels.enter("a", 7, 1, || ""), Err(Reason::ConcurrencyLimit));
    levels.leave("a", 7, 1);
    assert_eq!(levels.enter("a", 7, 1, || ""), Ok(Entered::Begins(1)));
}

/// A request that waits for a seat gets that of one that pauses.
#[test]
fn who_waits_begins_when_another_flow_pauses() {
    let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
    assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
    assert!(matches!(levels.enter("a", 0, 1, || "own"), Ok(Entered::Waits(_))));
    assert!(matches!(levels.enter("a", 26, 1, || "other"), Ok(Entered::Waits(_))));
    assert_eq!(names(levels.pause("a", 0, 1)), ["other"]);
    levels.resume("a", 0, 1);
    assert!(levels.leave("a", 26, 1).is_empty(), "the first one goes on");
    assert_eq!(names(levels.leave("a", 0, 1)), ["own"]);
}

#[test]
fn who_gives_up_leaves_no_trace() {
    let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
    assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
    let Ok(Entered::Waits(second)) = levels.enter("a", 0, 1, || "second") else {
        panic!("it waits")
    };
    let Ok(Entered::Waits(third)) = levels.enter("a", 0, 1, || "third") else {
        panic!("it waits")
    };
    assert_eq!(levels.give_up("a", second), (true, vec![]));
    assert_eq!(levels.give_up("a", second), (false, vec![]));
    assert_eq!(names(levels.leave("a", 0, 1)), ["third"]);
    assert_eq!(levels.give_up("a", third), (false, vec![]), "it has begun");
}

#[test]
fn a_level_that_is_gone_ends_with_its_requests() {
    let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
    assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
    assert!(matches!(levels.enter("a", 0, 1, || "second"), Ok(Entered::Waits(_))));
    assert!(levels.configure(limits(&[("b", 5, 5, None, QUEUE)])).is_empty());
    assert_eq!(names(levels.leave("a", 0, 1)), ["second"]);
    assert!(levels.leave("a", 0, 1).is_empty());
    levels.configure(limits(&[]));
    assert_eq!(levels.shown().count(), 0);
}

#[test]
fn more_seats_are_taken_at_once() {
    let mut levels = levels(&[("a", 1, 0, Some(0), QUEUE)]);
    assert_eq!(levels.enter("a", 0, 1, || "first"), Ok(Entered::Begins(1)));
    assert!(matches!(levels.enter("a", 0, 1, || "second"), Ok(Entered::Waits(_))));
    assert_eq!(
        names(levels.configure(limits(&[("a", 2, 0, Some(0), QUEUE)]))),
        ["second"]
    );
}

/// Whatever enters, leaves and gives up: seats stay within limits, and no request waits beside a free one.
#[test]
fn no_seat_is_lost_or_given_twice() {
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut levels: Levels<u64> = Levels::default();
    let rows = [
        ("a", 3, 2, None, QUEUE),
        ("b", 5, 0, Some(2), QUEUE),
        ("c", 2, 2, Some(0), Response::Reject),
    ];
    levels.configure(limits(&rows));
    let mut running: Vec<(Arc<str>, u64, u64)> = Vec::new();
    let mut paused: Vec<(Arc<str>, u64, u64)> = Vec::new();
    let mut waiting: BTreeMap<u64, (Arc<str>, u64, u64)> = BTreeMap::new();
    let mut serial = 0_u64;
    for _ in 0..50_000 {
        let begun = match random(7) {
            0..=2 => {
                let name = rows[random(3) as usize].0;
                serial += 1;
                let flow = random(40);
                match levels.enter(name, flow, 1 + random(3), || serial) {
                    Ok(Entered::Begins(seats)) => running.push((name.into(), flow, seats)),
                    Ok(Entered::Waits(number)) => drop(waiting.insert(serial, (name.into(), flow, number))),
                    Err(_) => {}
                }
                levels.dispatch()
            }
            3 if !running.is_empty() => {
                let (name, flow, seats) = running.swap_remove(random(running.len() as u64) as usize);
                levels.leave(&name, flow, seats)
            }
            4 if !running.is_empty() => {
                let (name, flow, seats) = running.swap_remove(random(running.len() as u64) as usize);
                paused.push((name.clone(), flow, seats));
                levels.pause(&name, flow, seats)
            }
            5 if !paused.is_empty() => {
                let (name, flow, seats) = paused.swap_remove(random(paused.len() as u64) as usize);
                running.push((name.clone(), flow, seats));
                levels.resume(&name, flow, seats);
                vec![]
            }
            _ => {
                let Some((_, (name, _, number))) = waiting.pop_first() else {
                    continue;
                };
                let (waited, begun) = levels.give_up(&name, number);
                assert!(waited);
                begun
            }
        };
        for begun in begun {
            let (_, flow, _) = waiting.remove(&begun.waker).expect("it begins once");
            running.push((begun.level, flow, begun.seats));
        }
        for (name, level) in &levels.levels {
            let taken = |requests: &[(Arc<str>, u64, u64)]| -> u64 {
                let own = requests.iter().filter(|(its, ..)| its == name);
                own.map(|(_, _, seats)| seats).sum()
            };
            assert_eq!(taken(&running), level.executing, "{name}");
            assert_eq!(
                taken(&paused),
                level.flows.values().map(|held| held.paused).sum::<u64>()
            );
            let all: u64 = level.flows.values().map(|held| held.all).sum();
            assert_eq!(taken(&running) + taken(&paused), all, "{name}");
            let wait = waiting.values().filter(|(its, ..)| its == name).count();
            assert_eq!(wait, level.waiting, "{name}");
            if let Some((queue, place)) = level.first(levels.lent(name)) {
                let first = &level.queues[&queue].waiting[place];
                let has_room = level.has_room(first.flow, first.seats, levels.lent(name));
                assert!(!has_room, "{name} has room");
            }
        }
    }
    assert!(serial > 20_000);
}

#[test]
fn a_hand_has_different_queues() {
    for flow in 0..5_000_u64 {
        let hand = deal(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), 16, 4);
        assert!(
            hand.windows(2).all(|pair| pair[0] < pair[1]) && hand[3] < 16,
            "{hand:?}"
        );
    }
    assert_eq!(deal(5, 1, 1), [0]);
    assert_eq!(deal(5, 0, 1), Vec::<u64>::new());
    assert_eq!(deal(u64::MAX, 3, 3), [0, 1, 2]);
}
