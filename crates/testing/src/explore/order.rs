//! Which faults a run admits, and in which order they are played.
//!
//! A search that is cut short must have looked everywhere once. A write site is what the operator writes in one place of
//! its code, as far as that can be seen from outside: verb, resource and name. Invariants: one fault of each class at each
//! site comes before the second of any; of the sites one of each verb and resource comes first, and namesakes in other
//! namespaces last; the classes take turns, so that those come first that usually find something.

use std::collections::{BTreeMap, BTreeSet};

use super::coverage::GENERATED;
use super::fault::{AT_WRITE, Fault};
use super::log::{Entry, Log, Named, What, resource};
use super::snapshot::Snapshot;
use super::steps::{Step, deletion_after};

/// How soon a fault is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Round {
    /// It is the only one of its class at this site.
    Sites,
    /// The site is disturbed in another step, too.
    Steps,
    /// It is like others.
    Rest,
}

/// How many letters the server appends to a generated name.
const SUFFIX: usize = 5;

/// The classes, those first that usually find something, and how many of each come in a turn: after two dozen faults each
/// class has had its turn, and a crash has followed writes of four kinds.
const CLASSES: [(&str, usize); 15] = [
    ("crash-after", 4),
    ("past", 2),
    ("outage", 2),
    ("deleted", 1),
    ("next-step", 2),
    ("overtaken", 1),
    ("held", 1),
    ("delete-early", 1),
    ("timeouts", 1),
    ("stale", 1),
    ("lagging", 1),
    ("down", 1),
    ("missed", 1),
    ("unanswered", 1),
    ("touched", 1),
];

/// The classes of which hardly one finds what none of the others does, and those that last all through a run. They come
/// behind those of their round.
const SIMILAR: [(&str, usize); 10] = [
    ("crash-loop", 1),
    ("refused", 1),
    ("paused", 1),
    ("forbidden", 1),
    ("slow", 1),
    ("throttled", 1),
    ("cut", 1),
    ("crash-before", 1),
    ("unsent", 1),
    ("late", 1),
];

/// The faults of each class, with how many of them come at once, by their round and by whether they are similar to others.
type Lists = BTreeMap<(Round, bool), Vec<(usize, Vec<Fault>)>>;

/// What is known of the undisturbed run; the beginning counts as a step.
pub(super) struct Known<'a> {
    pub(super) log: &'a Log,
    pub(super) steps: &'a [Step],
    /// How many objects there are to be deleted after each step.
    pub(super) children: &'a [usize],
    /// What is there after each step.
    pub(super) ends: &'a [Snapshot],
}

/// The faults of a run, each with its round, in their order.
pub(super) fn of(known: &Known<'_>) -> Vec<(Round, Fault)> {
    let mut all = Lists::new();
    for (classes, is_similar) in [(CLASSES.as_slice(), false), (SIMILAR.as_slice(), true)] {
        for (class, at_once) in classes {
            let mut of_class: BTreeMap<Round, Vec<Fault>> = BTreeMap::new();
            for (round, fault) in of_class_in(class, known) {
                of_class.entry(round).or_default().push(fault);
            }
            for (round, faults) in of_class {
                all.entry((round, is_similar)).or_default().push((*at_once, faults));
            }
        }
    }
    let in_order = all.into_iter();
    in_order
        .flat_map(|((round, _), lists)| in_turns(&lists).into_iter().map(move |fault| (round, fault)))
        .collect()
}

fn of_class_in(class: &str, known: &Known<'_>) -> Vec<(Round, Fault)> {
    let Known {
        log, steps, children, ..
    } = *known;
    if let Some((_, fault)) = AT_WRITE.iter().find(|(name, _)| *name == class) {
        return at_writes(log, steps, *fault);
    }
    match class {
        "held" => at_events(log, |resource, event| Fault::Held { resource, event }),
        "missed" => at_events(log, |resource, event| Fault::Missed { resource, event }),
        "cut" => at_events(log, |resource, event| Fault::Cut { resource, event }),
        "late" => {
            let kinds = log.heard().into_keys();
            kinds.map(|resource| (Round::Sites, Fault::Late { resource })).collect()
        }
        "stale" => stale(steps),
        "past" => past(known),
        "lagging" => lagging(known),
        "down" => {
            let all = (1..=steps.len()).filter(|step| is_hurried(steps, *step));
            all.map(|step| (Round::Sites, Fault::Down { step })).collect()
        }
        _ => deleted(steps.len(), children),
    }
}

/// Whether a user may make another step before one has come to its end. What is about to go cannot be changed.
fn is_hurried(steps: &[Step], step: usize) -> bool {
    let this = step.checked_sub(1).and_then(|at| steps.get(at));
    step < steps.len() && this.is_none_or(|step| !step.deletes())
}

/// The faults of a class at writes.
fn at_writes(log: &Log, steps: &[Step], fault: fn(usize) -> Fault) -> Vec<(Round, Fault)> {
    let attempts = log.attempts();
    let admitted = |entry: &Entry| match fault(1) {
        // An intruder needs an object that is there.
        Fault::Touched(_) => entry.call.verb == "update" || entry.call.verb == "patch",
        Fault::NextStep(_) | Fault::Overtaken(_) => is_hurried(steps, entry.step),
        Fault::DeleteEarly(_) => deletion_after(steps, entry.step).is_some(),
        _ => true,
    };
    let places = attempts.iter().enumerate().filter(|(_, entry)| admitted(entry));
    let hurries = matches!(
        fault(1),
        Fault::NextStep(_) | Fault::Overtaken(_) | Fault::DeleteEarly(_)
    );
    let places = places.map(|(at, entry)| Place {
        number: at + 1,
        step: entry.step,
        site: site(entry),
        anywhere: site_anywhere(entry),
        kind: kind(entry),
        counts: entry.is_effective(),
        // What destroys matters most, and what is made is the same each time. In a hurry it is left behind.
        distance: match entry.call.verb.as_str() {
            "delete" | "deletecollection" => 0,
            "create" if hurries => 0,
            "create" => 2,
            _ => 1,
        },
    });
    rounds(places.collect())
        .into_iter()
        .map(|(round, number)| (round, fault(number)))
        .collect()
}

/// The faults of a class at events. One after which nothing is written in its step has no effect.
fn at_events(log: &Log, fault: fn(String, usize) -> Fault) -> Vec<(Round, Fault)> {
    let events = events(log);
    let places = events.iter().enumerate().map(|(at, event)| Place {
        number: at,
        step: event.step,
        site: format!("{} {}", event.kind, event.resource),
        anywhere: format!("{} {}", event.kind, event.resource),
        kind: event.resource.clone(),
        counts: event.until_write.is_some(),
        distance: event.until_write.unwrap_or(usize::MAX),
    });
    rounds(places.collect())
        .into_iter()
        .map(|(round, at)| (round, fault(events[at].resource.clone(), events[at].number)))
        .collect()
}

/// An event of a watch.
struct Event {
    resource: String,
    /// Of the resource's events; they count from 1.
    number: usize,
    kind: String,
    step: usize,
    /// How many entries it takes until the operator changes something, in the same step.
    until_write: Option<usize>,
}

fn events(log: &Log) -> Vec<Event> {
    let mut heard: BTreeMap<String, usize> = BTreeMap::new();
    let mut events = Vec::new();
    for (at, entry) in log.entries.iter().enumerate() {
        let What::Event { kind, .. } = &entry.what else {
            continue;
        };
        let of = resource(&entry.call);
        let number = heard.entry(of.clone()).or_default();
        *number += 1;
        let mut later = log.entries[at..].iter().take_while(|later| later.step == entry.step);
        events.push(Event {
            resource: of,
            number: *number,
            kind: kind.clone(),
            step: entry.step,
            until_write: later.position(Entry::is_effective),
        });
    }
    events
}

/// After each step, the world as an earlier one left it. First a plain restart, when all that the user makes is there.
fn stale(steps: &[Step]) -> Vec<(Round, Fault)> {
    let all_made = deletion_after(steps, 1).map_or(steps.len(), |(first, _)| first - 1);
    let restart = Fault::Stale {
        after: all_made,
        sees: all_made,
    };
    let steps = steps.len();
    let pairs = (1..=steps)
        .rev()
        .flat_map(|after| (0..after).rev().map(move |sees| (after, sees)));
    let round = |after: usize, sees: usize| match (after - sees, sees) {
        (1, _) => Round::Sites,
        (_, 0) => Round::Steps,
        _ => Round::Rest,
    };
    let older = pairs.map(|(after, sees)| (round(after, sees), Fault::Stale { after, sees }));
    std::iter::once((Round::Sites, restart)).chain(older).collect()
}

/// What the operator saw when it deleted something, shown again when that is there again: it must not go by what it sees.
fn destructive(known: &Known<'_>) -> Vec<Fault> {
    let mut heard: BTreeMap<String, usize> = BTreeMap::new();
    let mut newest: Option<(u64, String, usize)> = None;
    let mut sites = BTreeSet::new();
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    for entry in &known.log.entries {
        if let What::Event { revision, .. } = entry.what {
            let of = resource(&entry.call);
            let number = heard.entry(of.clone()).or_default();
            *number += 1;
            if newest.as_ref().is_none_or(|(newest, ..)| *newest <= revision) {
                newest = Some((revision, of, *number));
            }
        }
        let deletes = entry.is_effective() && entry.call.verb.starts_with("delete");
        let Some((_, resource, event)) = newest.as_ref().filter(|_| deletes) else {
            continue;
        };
        let is_there = |step: &usize| {
            let end = known.ends.get(*step);
            end.is_some_and(|end| has(end, &entry.named()))
        };
        let later: Vec<usize> = (entry.step + 1..=known.steps.len()).filter(is_there).collect();
        // Where it is there again, and where it was there for the longest time.
        for (rank, after) in [later.first(), later.last()].into_iter().enumerate() {
            let Some(after) = after else { continue };
            let is_new = sites.insert((site(entry), rank));
            let fault = Fault::Past {
                after: *after,
                resource: resource.clone(),
                event: *event,
                alone: false,
            };
            if !faults.iter().any(|(_, known)| *known == fault) {
                faults.push((rank + if is_new { 0 } else { 2 }, fault));
            }
        }
    }
    faults.sort_by_key(|(rank, _)| *rank);
    faults.into_iter().map(|(_, fault)| fault).collect()
}

/// Whether there is such an object, or any of the collection.
fn has(end: &Snapshot, named: &Named) -> bool {
    match named.2.as_str() {
        "" => end
            .all()
            .any(|object| (&object.named.0, &object.named.1) == (&named.0, &named.1)),
        _ => end.has(named),
    }
}

/// After each step, the world as it was in the middle of that step or of an earlier one.
fn past(known: &Known<'_>) -> Vec<(Round, Fault)> {
    let (events, steps) = (events(known.log), known.steps.len());
    let destructive = destructive(known);
    // First what the user changed, then an old state in which something is gone that is there again.
    let users = of_users(&events, steps);
    let mut all = Vec::new();
    // The later steps change what the earlier ones made.
    for after in (1..=steps).rev() {
        let until = events.iter().filter(|event| event.step > 0 && event.step <= after);
        let mut seen: BTreeMap<(usize, &str, &str), Vec<&Event>> = BTreeMap::new();
        for event in until {
            seen.entry((event.step, &event.resource, &event.kind))
                .or_default()
                .push(event);
        }
        for ((step, _, _), alike) in seen {
            let last = alike.len() - 1;
            for (at, event) in alike.into_iter().enumerate() {
                let is_end = at == 0 || at == last;
                let round = match after - step {
                    1 if is_end => Round::Steps,
                    _ => Round::Rest,
                };
                let fault = Fault::Past {
                    after,
                    resource: event.resource.clone(),
                    event: event.number,
                    alone: false,
                };
                let rank = match event.kind.as_str() {
                    _ if users.contains(&event.resource) => 0,
                    "DELETED" => 1,
                    _ => 2,
                };
                all.push((round, rank, fault));
            }
        }
    }
    all.retain(|(.., fault)| !destructive.contains(fault));
    all.sort_by_key(|(round, rank, _)| (*round, *rank));
    let others = all.into_iter().map(|(round, _, fault)| (round, fault));
    let first = destructive.into_iter().map(|fault| (Round::Sites, fault));
    first.chain(others).collect()
}

/// As [`past`], with one kind of the user's alone: what is wished is old, and what came of it is not, or the other way
/// round.
fn lagging(known: &Known<'_>) -> Vec<(Round, Fault)> {
    let events = events(known.log);
    let users = of_users(&events, known.steps.len());
    let kinds: BTreeSet<&String> = events.iter().map(|event| &event.resource).collect();
    let alone = |(round, mut fault): (Round, Fault)| match &mut fault {
        Fault::Past { resource, alone, .. } if kinds.len() > 1 && users.contains(resource) => {
            *alone = true;
            Some((round, fault))
        }
        _ => None,
    };
    past(known).into_iter().filter_map(alone).collect()
}

/// The kinds of which the user changed an object: what is heard first in each step.
fn of_users(events: &[Event], steps: usize) -> BTreeSet<String> {
    let first = |step: usize| events.iter().find(|event| event.step == step);
    (1..=steps)
        .filter_map(first)
        .map(|event| event.resource.clone())
        .collect()
}

/// After each step, each child. What one step leaves as it was is deleted first in the last one.
fn deleted(steps: usize, children: &[usize]) -> Vec<(Round, Fault)> {
    let mut all = Vec::new();
    let mut most = 0;
    for after in 0..=steps {
        let count = children.get(after).copied().unwrap_or_default();
        all.extend((1..=count).map(|object| {
            let round = if object > most { Round::Sites } else { Round::Steps };
            (round, Fault::Deleted { after, object })
        }));
        most = most.max(count);
    }
    all
}

/// Where a fault may strike.
struct Place {
    number: usize,
    step: usize,
    site: String,
    /// The same in any namespace.
    anywhere: String,
    /// The sites of one kind are likely of one function.
    kind: String,
    /// Something comes of it.
    counts: bool,
    /// What is nearer comes first: a write that follows, or one that destroys.
    distance: usize,
}

/// The rounds of places: of each kind one before another of any, namesakes last, and the nearest to a write first. Of
/// those of one site the last stands for all: what comes later is a change, and what came first a beginning. Then the
/// first and the last of each step stand for those of the step.
fn rounds(mut places: Vec<Place>) -> Vec<(Round, usize)> {
    let mut of_site: BTreeMap<String, usize> = BTreeMap::new();
    let mut of_step: BTreeMap<(usize, String), (usize, usize)> = BTreeMap::new();
    for place in places.iter().filter(|place| place.counts) {
        of_site.insert(place.site.clone(), place.number);
        let ends = of_step
            .entry((place.step, place.site.clone()))
            .or_insert((place.number, place.number));
        ends.1 = place.number;
    }
    places.sort_by_key(|place| place.distance);
    let round = |place: &Place| {
        let in_step = of_step.get(&(place.step, place.site.clone()));
        if of_site.get(&place.site) == Some(&place.number) {
            Round::Sites
        } else if in_step.is_some_and(|(first, last)| [first, last].contains(&&place.number)) {
            Round::Steps
        } else {
            Round::Rest
        }
    };
    let mut before: BTreeMap<(Round, bool, &str), usize> = BTreeMap::new();
    let mut ranked: Vec<((usize, usize), Round, usize)> = Vec::new();
    for place in &places {
        let round = round(place);
        let mut another = |is_kind, text| {
            let count = before.entry((round, is_kind, text)).or_default();
            *count += 1;
            *count
        };
        ranked.push((
            (
                another(false, place.anywhere.as_str()),
                another(true, place.kind.as_str()),
            ),
            round,
            place.number,
        ));
    }
    ranked.sort_by_key(|(rank, ..)| *rank);
    ranked.into_iter().map(|(_, round, number)| (round, number)).collect()
}

/// What writes of one place in the operator's code have in common: objects that are numbered are alike, and those whose
/// names the server makes up.
pub(super) fn site(entry: &Entry) -> String {
    let mut plain = entry.plain();
    let is_named = entry.call.name.len() > SUFFIX;
    if is_named
        && matches!(
            entry.what,
            What::Write {
                lacks: Some(GENERATED),
                ..
            }
        )
    {
        let stem = plain.len().saturating_sub(SUFFIX);
        plain.truncate(stem);
        plain.push('*');
    }
    alike(&plain)
}

/// A site, in whatever namespace: what is made for an object and for its namesake is made in one place.
fn site_anywhere(entry: &Entry) -> String {
    let mut entry = entry.clone();
    entry.call.namespace.clear();
    site(&entry)
}

/// What is written, whatever it is called.
fn kind(entry: &Entry) -> String {
    let call = &entry.call;
    format!("{} {}/{}", call.verb, resource(call), call.subresource)
}

/// A name in which numbers are alike.
pub(super) fn alike(name: &str) -> String {
    let mut alike = String::new();
    let mut was_digit = false;
    for letter in name.chars() {
        let is_digit = letter.is_ascii_digit();
        if !(is_digit && was_digit) {
            alike.push(if is_digit { '#' } else { letter });
        }
        was_digit = is_digit;
    }
    alike
}

/// So many of each list as it says, then the next ones of each.
fn in_turns(lists: &[(usize, Vec<Fault>)]) -> Vec<Fault> {
    let mut lists: Vec<_> = lists.iter().map(|(count, faults)| faults.chunks(*count)).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        for list in &mut lists {
            all.extend(list.next().into_iter().flatten().cloned());
        }
        if all.len() == before {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::intercept::Call;

    fn log() -> Log {
        let entry = |step, verb: &str, name: &str, what| Entry {
            at: Duration::ZERO,
            step,
            process: 1,
            what,
            call: Call {
                verb: verb.to_owned(),
                resource: "pods".to_owned(),
                name: name.to_owned(),
                ..Call::default()
            },
            ..Entry::default()
        };
        let write = |effective| What::Write {
            code: Some(200),
            effective,
            revision: None,
            lacks: None,
        };
        let event = || What::Event {
            kind: "MODIFIED".to_owned(),
            revision: 1,
        };
        let mut entries = vec![entry(1, "watch", "db-0", event())];
        entries.extend((0..5).map(|number| entry(1, "create", &format!("db-{number}"), write(true))));
        entries.push(entry(1, "update", "db-0", write(false)));
        entries.push(entry(1, "watch", "db-0", event()));
        entries.push(entry(2, "create", "db-5", write(true)));
        entries.push(entry(2, "delete", "db-5", write(true)));
        Log { entries }
    }

    #[test]
    fn each_site_is_disturbed_once_before_one_is_disturbed_twice() {
        let step = || Step::delete("delete it", "v1", "Pod", "default", "db-0");
        let all = of(&Known {
            log: &log(),
            steps: &[step(), step()],
            children: &[0, 3, 2],
            ends: &[],
        });
        let round = |name: &str| {
            let found = all.iter().find(|(_, fault)| fault.to_string() == name);
            found.map(|(round, _)| *round)
        };
        for (name, expected) in [
            ("crash-after@7", Some(Round::Sites)),
            ("crash-after@8", Some(Round::Sites)),
            ("crash-after@1", Some(Round::Steps)),
            ("crash-after@5", Some(Round::Steps)),
            ("crash-after@3", Some(Round::Rest)),
            ("crash-after@6", Some(Round::Rest)),
            ("held@pods#1", Some(Round::Sites)),
            ("held@pods#2", Some(Round::Rest)),
            ("past@2#pods#1", Some(Round::Steps)),
            ("past@1#pods#2", Some(Round::Rest)),
            ("stale@2#1", Some(Round::Sites)),
            ("deleted@1#3", Some(Round::Sites)),
            ("deleted@2#1", Some(Round::Steps)),
            ("deleted@2#3", None),
        ] {
            assert_eq!(round(name), expected, "{name}: {all:?}");
        }
        assert!(all.is_sorted_by_key(|(round, _)| *round), "{all:?}");
        let names: Vec<String> = all.iter().map(|(_, fault)| fault.to_string()).collect();
        assert_eq!(
            names.iter().collect::<BTreeSet<_>>().len(),
            names.len(),
            "none comes twice"
        );
        assert_eq!(names[..3], ["crash-after@8", "crash-after@7", "outage@8"]);
    }

    #[test]
    fn one_of_each_kind_comes_before_another_of_any() {
        let write = |(resource, namespace, name): &(&str, &str, &str)| Entry {
            step: 1,
            what: What::Write {
                code: Some(201),
                effective: true,
                revision: None,
                lacks: None,
            },
            call: Call {
                verb: "create".to_owned(),
                resource: (*resource).to_owned(),
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
                ..Call::default()
            },
            ..Entry::default()
        };
        let written = [
            ("configmaps", "default", "a"),
            ("configmaps", "default", "b"),
            ("configmaps", "default", "c"),
            ("secrets", "default", "s"),
            // Its namesake.
            ("configmaps", "other", "a"),
        ];
        let all = of(&Known {
            log: &Log {
                entries: written.iter().map(write).collect(),
            },
            steps: &[],
            children: &[],
            ends: &[],
        });
        let crashes = all.iter().filter(|(_, fault)| matches!(fault, Fault::CrashAfter(_)));
        let crashes: Vec<String> = crashes.map(|(_, fault)| fault.to_string()).collect();
        assert_eq!(crashes, [1, 4, 2, 3, 5].map(|number| format!("crash-after@{number}")));
    }

    #[test]
    fn every_class_has_its_place() {
        for (class, _) in AT_WRITE {
            let mut all = CLASSES.iter().chain(&SIMILAR);
            assert!(all.any(|(known, _)| *known == class), "{class}");
        }
    }
}
