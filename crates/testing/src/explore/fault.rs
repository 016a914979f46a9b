//! A fault and its name.
//!
//! Writes and watch events are numbered by the undisturbed run; a fault names the number at which it strikes. Numbers
//! count from 1, as people do. Invariant: a name says everything that is needed to play the fault again. Not here: which
//! faults a run admits (`order.rs`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::seam::Pace;
use crate::intercept::Call;

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
    /// For a minute every write of this kind is answered with 429 and the wish to wait a second.
    Throttled(usize),
    /// For a minute the right to make this write is missing.
    Forbidden(usize),
    /// The write takes half a minute.
    Slow(usize),
    /// The process stands still for 20 seconds after the write, while another one takes its place; then it ends the
    /// reconcile that it was in.
    Paused(usize),
    /// The user makes the next step right after the write.
    NextStep(usize),
    /// The write takes half a minute, and the user makes the next step meanwhile.
    Overtaken(usize),
    /// The user deletes the objects right after the write.
    DeleteEarly(usize),
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
    /// As [`Stale`](Fault::Stale), and the process sees the world as it was when a watch delivered an event.
    Past {
        /// After this step the process starts anew.
        after: usize,
        /// The plural with its group.
        resource: String,
        /// Which of its events.
        event: usize,
        /// Only this kind is old, and all others are as they are: an API server has a watch cache for each of them.
        alone: bool,
    },
    /// No process is there while the user makes this step and the next one.
    Down {
        /// The first of the two.
        step: usize,
    },
    /// After a step somebody deletes an object that the operator made, or a pod of one.
    Deleted {
        /// After which step.
        after: usize,
        /// Which of the objects that are there and came of the operator.
        object: usize,
    },
    /// Two of the others in one run.
    Pair(Box<[Fault; 2]>),
}

/// The name of a fault at a write, and the fault by the number of the write.
type AtWrite = (&'static str, fn(usize) -> Fault);

/// Names, once for writing and reading.
pub(super) const AT_WRITE: [AtWrite; 16] = [
    ("crash-before", Fault::CrashBefore),
    ("crash-after", Fault::CrashAfter),
    ("crash-loop", Fault::CrashLoop),
    ("touched", Fault::Touched),
    ("refused", Fault::Refused),
    ("unsent", Fault::Unsent),
    ("unanswered", Fault::Unanswered),
    ("outage", Fault::Outage),
    ("timeouts", Fault::Timeouts),
    ("throttled", Fault::Throttled),
    ("forbidden", Fault::Forbidden),
    ("slow", Fault::Slow),
    ("paused", Fault::Paused),
    ("next-step", Fault::NextStep),
    ("overtaken", Fault::Overtaken),
    ("delete-early", Fault::DeleteEarly),
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
            Fault::Past { alone: false, .. } => "past",
            Fault::Past { alone: true, .. } => "lagging",
            Fault::Down { .. } => "down",
            Fault::Deleted { .. } => "deleted",
            Fault::Pair(_) => "pair",
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

    /// The faults of which it consists: itself, or two.
    pub(super) fn parts(&self) -> &[Fault] {
        match self {
            Fault::Pair(pair) => pair.as_slice(),
            one => std::slice::from_ref(one),
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
            | Fault::Throttled(write)
            | Fault::Forbidden(write)
            | Fault::Slow(write)
            | Fault::Paused(write)
            | Fault::NextStep(write)
            | Fault::Overtaken(write)
            | Fault::DeleteEarly(write) => Some(*write),
            _ => None,
        }
    }

    /// The same fault at another write; what strikes at none stays as it is.
    pub(super) fn at(&self, write: usize) -> Fault {
        let named = AT_WRITE.iter().find(|(name, _)| *name == self.class());
        named.map_or_else(|| self.clone(), |(_, fault)| fault(write))
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
            Fault::Throttled(_) => return format!("from now on and for {long} such writes are answered with 429"),
            Fault::Forbidden(_) => return format!("from now on and for {long} such writes are answered with 403"),
            Fault::Slow(_) => return format!("it takes {}", time(pace.slow)),
            Fault::Paused(_) => {
                let pause = time(pace.pause);
                return format!("the process stands still for {pause}, and another one takes its place");
            }
            Fault::Overtaken(_) => {
                let slow = time(pace.slow);
                return format!("it takes {slow}, and the user makes the next step meanwhile");
            }
            Fault::NextStep(_) => "the user makes the next step at once",
            Fault::DeleteEarly(_) => "the user deletes the objects at once",
            Fault::Held { .. } => return format!("this and what follows is delivered {long} late"),
            Fault::Missed { .. } => "this is never delivered; the next list shows what came of it",
            Fault::Cut { .. } => "the connection breaks in the middle of this",
            Fault::Late { .. } => return format!("it comes {} late", time(pace.late)),
            Fault::Stale { after, sees } if after == sees => "the operator starts anew",
            Fault::Past {
                alone: true, resource, ..
            } => {
                return format!("the operator starts anew and for {long} sees {resource} as they were");
            }
            Fault::Stale { .. } | Fault::Past { .. } => {
                return format!("the operator starts anew and for {long} sees an older world");
            }
            Fault::Down { .. } => "the operator is not there for two steps",
            Fault::Deleted { .. } => "somebody deletes this",
            Fault::Pair(pair) => {
                let [one, other] = pair.as_ref();
                return format!("{}, and {}", one.told(pace), other.told(pace));
            }
        };
        text.to_owned()
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

/// Whether a fault of the kind "for a minute" that began with `first` strikes this one, too.
pub(super) fn is_like(call: &Call, first: &Call) -> bool {
    fn kind(call: &Call) -> [&str; 4] {
        [&call.verb, &call.group, &call.resource, &call.subresource]
    }
    kind(call) == kind(first)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.class();
        match self {
            Fault::Held { resource, event } | Fault::Missed { resource, event } | Fault::Cut { resource, event } => {
                write!(f, "{class}@{resource}#{event}")
            }
            Fault::Late { resource } => write!(f, "{class}@{resource}"),
            Fault::Down { step } => write!(f, "{class}@{step}"),
            Fault::Stale { after, sees } => write!(f, "{class}@{after}#{sees}"),
            Fault::Past {
                after, resource, event, ..
            } => write!(f, "{class}@{after}#{resource}#{event}"),
            Fault::Deleted { after, object } => write!(f, "{class}@{after}#{object}"),
            Fault::Pair(pair) => write!(f, "{}+{}", pair[0], pair[1]),
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
        if let Some((one, other)) = text.split_once('+') {
            return Ok(Fault::Pair(Box::new([one.parse()?, other.parse()?])));
        }
        let (class, place) = text.split_once('@').ok_or_else(unreadable)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| unreadable());
        if let Some((_, fault)) = AT_WRITE.iter().find(|(name, _)| *name == class) {
            return number(place).map(fault);
        }
        if class == "down" {
            return number(place).map(|step| Fault::Down { step });
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
            "past" | "lagging" => {
                let (after, resource) = first.split_once('#').ok_or_else(unreadable)?;
                Fault::Past {
                    after: number(after)?,
                    resource: resource.to_owned(),
                    event: second,
                    alone: class == "lagging",
                }
            }
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
            Fault::Down { step: 3 },
            Fault::Stale { after: 2, sees: 0 },
            Fault::Past {
                after: 2,
                resource: pods(),
                event: 4,
                alone: false,
            },
            Fault::Past {
                after: 2,
                resource: pods(),
                event: 4,
                alone: true,
            },
            Fault::Deleted { after: 1, object: 4 },
            Fault::Pair(Box::new([Fault::Outage(3), Fault::Late { resource: pods() }])),
        ]);
        for fault in all {
            assert_eq!(fault.to_string().parse(), Ok(fault.clone()), "{fault}");
        }
        for wrong in ["", "crash-after", "crash-after@x", "held@pods", "meteor@1#1"] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }
}
