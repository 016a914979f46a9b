//! A fault, its name, and which faults a run admits.
//!
//! Writes and watch events are numbered by the undisturbed run; a fault names the number at which it strikes. Numbers
//! count from 1, as people do. Invariants: a name says everything that is needed to play the fault again; only what the
//! undisturbed run did is struck.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::log::{Entry, Log};
use super::seam::Pace;

/// One disturbance of one run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// The operator's process ends before it sends the write, and another one starts.
    CrashBefore(usize),
    /// The process ends after the write was carried out, before it learns so.
    CrashAfter(usize),
    /// The process ends after this write, and its successors after each of their first two writes.
    CrashLoop(usize),
    /// Somebody else changes the object right before the write.
    Touched(usize),
    /// The server answers the write with 500 and does not carry it out.
    Refused(usize),
    /// The connection breaks before the write arrives.
    Unsent(usize),
    /// The write is carried out and its answer is lost.
    Unanswered(usize),
    /// For a minute every write of this kind is refused with 503.
    Outage(usize),
    /// For a minute every write of this kind is answered with 504, and not carried out.
    Timeouts(usize),
    /// For a minute the right to make this write is missing.
    Forbidden(usize),
    /// The write takes half a minute.
    Slow(usize),
    /// The process stands still for 20 seconds after the write, while another one takes its place; then it ends the
    /// reconcile that it was in.
    Paused(usize),
    /// The user makes the next step right after the write.
    NextStep(usize),
    /// The watch of a kind delivers this event, and all after it, a minute late.
    Held {
        /// The plural with its group: `pods`, `deployments.apps`.
        resource: String,
        /// Which of its events.
        event: usize,
    },
    /// The event is never delivered: the watch ends when the object changes again, and the list that follows shows the
    /// newest state.
    Missed {
        /// The plural with its group.
        resource: String,
        /// Which of its events.
        event: usize,
    },
    /// The connection of the watch breaks in the middle of the event.
    Cut {
        /// The plural with its group.
        resource: String,
        /// Which of its events.
        event: usize,
    },
    /// All events of a kind come three seconds late.
    Late {
        /// The plural with its group.
        resource: String,
    },
    /// The process is started anew after a step, and for a minute it sees the world as it was after an earlier one.
    Stale {
        /// After this step the process starts anew.
        after: usize,
        /// It sees the world as this step left it; 0 is the beginning.
        sees: usize,
    },
    /// After a step somebody deletes an object that the operator made.
    Deleted {
        /// After which step.
        after: usize,
        /// Which of the objects that the operator had made by then.
        object: usize,
    },
}

/// The name of a fault at a write, and the fault by the number of the write.
type AtWrite = (&'static str, fn(usize) -> Fault);

/// Names, once for writing and reading.
const AT_WRITE: [AtWrite; 13] = [
    ("crash-before", Fault::CrashBefore),
    ("crash-after", Fault::CrashAfter),
    ("crash-loop", Fault::CrashLoop),
    ("touched", Fault::Touched),
    ("refused", Fault::Refused),
    ("unsent", Fault::Unsent),
    ("unanswered", Fault::Unanswered),
    ("outage", Fault::Outage),
    ("timeouts", Fault::Timeouts),
    ("forbidden", Fault::Forbidden),
    ("slow", Fault::Slow),
    ("paused", Fault::Paused),
    ("next-step", Fault::NextStep),
];

impl Fault {
    /// The name of its class: `crash-after`.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Fault::Held { .. } => "held",
            Fault::Missed { .. } => "missed",
            Fault::Cut { .. } => "cut",
            Fault::Late { .. } => "late",
            Fault::Stale { .. } => "stale",
            Fault::Deleted { .. } => "deleted",
            at_write => {
                let named = at_write.write().and_then(|number| {
                    AT_WRITE
                        .iter()
                        .find(|(_, fault)| fault(number) == *at_write)
                        .map(|(name, _)| *name)
                });
                named.expect("every fault at a write is in the table")
            }
        }
    }

    /// The write at which it strikes.
    #[must_use]
    pub fn write(&self) -> Option<usize> {
        match self {
            Fault::CrashBefore(write)
            | Fault::CrashAfter(write)
            | Fault::CrashLoop(write)
            | Fault::Touched(write)
            | Fault::Refused(write)
            | Fault::Unsent(write)
            | Fault::Unanswered(write)
            | Fault::Outage(write)
            | Fault::Timeouts(write)
            | Fault::Forbidden(write)
            | Fault::Slow(write)
            | Fault::Paused(write)
            | Fault::NextStep(write) => Some(*write),
            _ => None,
        }
    }

    /// What happens, for the timeline.
    pub(super) fn told(&self, pace: &Pace) -> String {
        let long = time(pace.long);
        let text = match self {
            Fault::CrashBefore(_) => "the operator dies before it sends this",
            Fault::CrashAfter(_) | Fault::CrashLoop(_) => "the operator dies; it never sees the answer",
            Fault::Touched(_) => "somebody else changes the object first",
            Fault::Refused(_) => "the server answers 500 and does nothing",
            Fault::Unsent(_) => "the connection breaks; nothing is carried out",
            Fault::Unanswered(_) => "it is carried out, and the answer is lost",
            Fault::Outage(_) => return format!("from now on and for {long} such writes are answered with 503"),
            Fault::Timeouts(_) => return format!("from now on and for {long} such writes are answered with 504"),
            Fault::Forbidden(_) => return format!("from now on and for {long} such writes are answered with 403"),
            Fault::Slow(_) => return format!("it takes {}", time(pace.slow)),
            Fault::Paused(_) => {
                let pause = time(pace.pause);
                return format!("the process stands still for {pause}, and another one takes its place");
            }
            Fault::NextStep(_) => "the user makes the next step at once",
            Fault::Held { .. } => return format!("this and what follows is delivered {long} late"),
            Fault::Missed { .. } => "this is never delivered; the next list shows what came of it",
            Fault::Cut { .. } => "the connection breaks in the middle of this",
            Fault::Late { .. } => return format!("it comes {} late", time(pace.late)),
            Fault::Stale { .. } => return format!("the operator starts anew and for {long} sees an older world"),
            Fault::Deleted { .. } => "somebody deletes this",
        };
        text.to_owned()
    }

    /// The faults of a run, in the order in which they usually find something: one of each class at a time, so that a
    /// short budget sees all classes.
    pub(super) fn all_of(log: &Log, steps: usize) -> Vec<Fault> {
        let attempts = log.attempts();
        let mut classes: Vec<Vec<Fault>> = Vec::new();
        // Of many writes of one kind all are tried, the first and the last ones first.
        let order = spread(attempts.len());
        for (_, fault) in AT_WRITE {
            let admitted = |at: &usize| -> bool {
                let entry = attempts[*at];
                match fault(1) {
                    // An intruder needs an object that is there.
                    Fault::Touched(_) => entry.call.verb == "update" || entry.call.verb == "patch",
                    Fault::NextStep(_) => entry.step < steps,
                    _ => true,
                }
            };
            classes.push(order.iter().copied().filter(admitted).map(|at| fault(at + 1)).collect());
        }
        let heard = log.heard();
        type AtEvent = fn(String, usize) -> Fault;
        let at_events: [AtEvent; 3] = [
            |resource, event| Fault::Held { resource, event },
            |resource, event| Fault::Missed { resource, event },
            |resource, event| Fault::Cut { resource, event },
        ];
        for fault in at_events {
            let of_all = heard.iter().flat_map(|(resource, count)| {
                spread(*count)
                    .into_iter()
                    .map(move |at| fault(resource.clone(), at + 1))
            });
            classes.push(of_all.collect());
        }
        let kinds = heard.keys();
        classes.push(
            kinds
                .map(|resource| Fault::Late {
                    resource: resource.clone(),
                })
                .collect(),
        );
        let stale = (1..=steps).flat_map(|after| (0..after).rev().map(move |sees| Fault::Stale { after, sees }));
        classes.push(stale.collect());
        let deleted = (1..=steps).flat_map(|after| {
            let made = log.made_until(after).len();
            (1..=made).map(move |object| Fault::Deleted { after, object })
        });
        classes.push(deleted.collect());
        in_turns(classes)
    }
}

/// A time in words.
fn time(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (60, 0) => "a minute".to_owned(),
        (1, 0) => "a second".to_owned(),
        (seconds, 0) => format!("{seconds} seconds"),
        _ => format!("{} seconds", time.as_secs_f64()),
    }
}

/// The numbers below `count`: the ends first, then the middles, so that a part of them is spread over all.
fn spread(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    // How often the number of bits can be halved says how early it comes; ties keep their order.
    order.sort_by_key(|at| {
        if *at + 1 == count {
            0
        } else {
            usize::BITS - at.trailing_zeros().min(usize::BITS)
        }
    });
    order
}

/// One of each list, then the next of each.
fn in_turns(lists: Vec<Vec<Fault>>) -> Vec<Fault> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or_default();
    let turn = |at: usize| {
        lists
            .iter()
            .filter_map(move |list| list.get(at).cloned())
            .collect::<Vec<_>>()
    };
    (0..longest).flat_map(turn).collect()
}

impl Entry {
    /// Whether a fault of the kind "for a minute" that began with `first` strikes this one, too.
    pub(super) fn is_like(&self, first: &Entry) -> bool {
        let kind = |entry: &Entry| {
            let call = &entry.call;
            (
                call.verb.clone(),
                call.group.clone(),
                call.resource.clone(),
                call.subresource.clone(),
            )
        };
        kind(self) == kind(first)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.class();
        match self {
            Fault::Held { resource, event } | Fault::Missed { resource, event } | Fault::Cut { resource, event } => {
                write!(f, "{class}@{resource}#{event}")
            }
            Fault::Late { resource } => write!(f, "{class}@{resource}"),
            Fault::Stale { after, sees } => write!(f, "{class}@{after}#{sees}"),
            Fault::Deleted { after, object } => write!(f, "{class}@{after}#{object}"),
            at_write => write!(f, "{class}@{}", at_write.write().unwrap_or_default()),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let unreadable = || {
            format!("{text:?} is no fault: write it as a report does, such as crash-after@3, held@pods#2, stale@2#1")
        };
        let (class, place) = text.split_once('@').ok_or_else(unreadable)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| unreadable());
        if let Some((_, fault)) = AT_WRITE.iter().find(|(name, _)| *name == class) {
            return number(place).map(fault);
        }
        if class == "late" {
            return Ok(Fault::Late {
                resource: place.to_owned(),
            });
        }
        let (first, second) = place.rsplit_once('#').ok_or_else(unreadable)?;
        let second = number(second)?;
        let resource = first.to_owned();
        Ok(match class {
            "held" => Fault::Held {
                resource,
                event: second,
            },
            "missed" => Fault::Missed {
                resource,
                event: second,
            },
            "cut" => Fault::Cut {
                resource,
                event: second,
            },
            "stale" => Fault::Stale {
                after: number(first)?,
                sees: second,
            },
            "deleted" => Fault::Deleted {
                after: number(first)?,
                object: second,
            },
            _ => return Err(unreadable()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        let pods = || "pods".to_owned();
        let mut all: Vec<Fault> = AT_WRITE.iter().map(|(_, fault)| fault(7)).collect();
        all.extend([
            Fault::Held {
                resource: pods(),
                event: 3,
            },
            Fault::Missed {
                resource: "deployments.apps".to_owned(),
                event: 1,
            },
            Fault::Cut {
                resource: pods(),
                event: 2,
            },
            Fault::Late { resource: pods() },
            Fault::Stale { after: 2, sees: 0 },
            Fault::Deleted { after: 1, object: 4 },
        ]);
        for fault in all {
            assert_eq!(fault.to_string().parse(), Ok(fault.clone()), "{fault}");
        }
        for wrong in ["", "crash-after", "crash-after@x", "held@pods", "meteor@1#1"] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_of_the_numbers_is_spread_over_all_of_them() {
        for count in 0..20 {
            let mut order = spread(count);
            if count > 1 {
                assert_eq!(order[..2].iter().copied().max(), Some(count - 1), "{order:?}");
            }
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }
}
