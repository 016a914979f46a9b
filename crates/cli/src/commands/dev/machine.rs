//! The next steps of `dev`. It takes an event and answers the next steps; it knows no file, process or clock.
//!
//! Invariants:
//! - at most one build, one preparation and one operator at a time;
//! - an operator is started only from a build whose definitions the server took, and the last such build goes on
//!   running while a newer one is compiled, fails to compile, or is refused;
//! - saving again and again cannot keep a build from ever ending: after [`MAX_CANCELS`] cancelled builds in a row the
//!   next one ends;
//! - after [`Event::Quit`] nothing new begins, and [`Action::End`] comes when the operator is gone.

use std::time::Duration;

/// Numbers the builds that produced a new program, from 1.
pub(crate) type Generation = u64;

/// So many builds in a row may be cancelled because something was saved meanwhile.
pub(crate) const MAX_CANCELS: u32 = 3;
/// The pause before an operator that ended by itself is started again: doubled each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// An operator that ran this long before it ended gets the first pause again.
const STABLE: Duration = Duration::from_secs(30);

/// Something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A file was saved from which the operator is built.
    SourceSaved,
    /// A file below `config/crd/bases` was saved, and definitions come from there.
    DefinitionsSaved,
    /// A sample was saved, or a person asked for the samples.
    SamplesWanted,
    /// The build ended.
    Built(Compiled),
    /// The definitions of a build were taken by the server, or not.
    Prepared(Generation, Answer),
    /// All controllers of the operator work, or it does not tell.
    Ready,
    /// The operator ended, after so long.
    Exited(Duration),
    /// The pause that was asked for is over.
    PauseOver,
    /// A person wants to end.
    Quit,
}

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiled {
    /// There is a program that is not the one before.
    New,
    /// The program is the one that was there before.
    Same,
    /// It does not compile.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// The server's answer to the definitions of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Taken,
    Refused,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Compile.
    Build,
    /// Stop compiling; [`Event::Built`] follows.
    CancelBuild,
    /// Apply the declaration of the build; [`Event::Prepared`] follows.
    Prepare(Generation),
    /// Start the program of a build; [`Event::Exited`] follows one day.
    Start(Generation),
    /// Ask the operator to end; [`Event::Exited`] follows.
    Stop,
    /// Say [`Event::PauseOver`] after so long.
    Pause(Duration),
    /// Apply `config/samples`.
    ApplySamples,
    /// Everything has ended.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Idle,
    Running {
        /// Something was saved since it began.
        stale: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Off,
    Running { ready: bool },
    Stopping,
    Pausing,
}

/// The state of a `dev`.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    build: Build,
    cancels: u32,
    newest: Generation,
    preparing: Option<Generation>,
    /// The definitions changed while they were being applied.
    prepare_again: bool,
    /// The newest build that the server took: the one that runs, or will.
    good: Option<Generation>,
    operator: Operator,
    crashes: u32,
    samples_wanted: bool,
    quitting: bool,
}

impl Machine {
    /// `samples`: whether the samples are applied when the operator is ready for the first time.
    pub(crate) fn new(samples: bool) -> Machine {
        Machine {
            build: Build::Idle,
            cancels: 0,
            newest: 0,
            preparing: None,
            prepare_again: false,
            good: None,
            operator: Operator::Off,
            crashes: 0,
            samples_wanted: samples,
            quitting: false,
        }
    }

    /// Whether the end of the operator was requested.
    pub(crate) fn expects_exit(&self) -> bool {
        self.operator == Operator::Stopping
    }

    /// How long the pause would be if the operator ended now, by itself, after so long.
    pub(crate) fn next_pause(&self, after: Duration) -> Option<Duration> {
        match self.clone().on(Event::Exited(after))[..] {
            [Action::Pause(pause)] => Some(pause),
            _ => None,
        }
    }

    /// The next steps, in this order.
    pub(crate) fn on(&mut self, event: Event) -> Vec<Action> {
        if self.quitting {
            return match event {
                Event::Exited(_) => self.ended(),
                _ => Vec::new(),
            };
        }
        match event {
            Event::SourceSaved => self.saved(),
            Event::DefinitionsSaved if self.newest > 0 => self.prepare(),
            Event::DefinitionsSaved => Vec::new(),
            Event::SamplesWanted => {
                self.samples_wanted = true;
                self.samples()
            }
            Event::Built(built) => self.built(built),
            Event::Prepared(generation, answer) => self.prepared(generation, answer),
            Event::Ready => {
                if let Operator::Running { ready } = &mut self.operator {
                    *ready = true;
                }
                self.samples()
            }
            Event::Exited(after) => self.exited(after),
            Event::PauseOver if self.operator == Operator::Pausing => self.start(),
            Event::PauseOver => Vec::new(),
            Event::Quit => self.quit(),
        }
    }

    fn saved(&mut self) -> Vec<Action> {
        match &mut self.build {
            Build::Idle => self.begin_build(),
            Build::Running { stale } => {
                let first = !std::mem::replace(stale, true);
                if first && self.cancels < MAX_CANCELS {
                    self.cancels += 1;
                    return vec![Action::CancelBuild];
                }
                Vec::new()
            }
        }
    }

    fn begin_build(&mut self) -> Vec<Action> {
        self.build = Build::Running { stale: false };
        vec![Action::Build]
    }

    fn built(&mut self, built: Compiled) -> Vec<Action> {
        let stale = self.build == Build::Running { stale: true };
        self.build = Build::Idle;
        if built != Compiled::Cancelled {
            self.cancels = 0;
        }
        let mut actions = match built {
            Compiled::New => {
                self.newest += 1;
                self.prepare()
            }
            // A build whose definitions were refused gets another chance: perhaps it was the server that changed.
            Compiled::Same if self.good != Some(self.newest) && self.newest > 0 => self.prepare(),
            Compiled::Same | Compiled::Failed | Compiled::Cancelled => Vec::new(),
        };
        if stale {
            actions.extend(self.begin_build());
        }
        actions
    }

    /// Prepares the newest build, now or when the preparation under way has ended.
    fn prepare(&mut self) -> Vec<Action> {
        if self.preparing.is_some() {
            self.prepare_again = true;
            return Vec::new();
        }
        self.preparing = Some(self.newest);
        vec![Action::Prepare(self.newest)]
    }

    fn prepared(&mut self, generation: Generation, answer: Answer) -> Vec<Action> {
        self.preparing = None;
        if std::mem::take(&mut self.prepare_again) {
            return self.prepare();
        }
        if answer == Answer::Refused {
            return Vec::new();
        }
        self.good = Some(generation);
        match self.operator {
            Operator::Running { .. } => {
                self.operator = Operator::Stopping;
                vec![Action::Stop]
            }
            // Its end starts the newest good build, which is this one now.
            Operator::Stopping => Vec::new(),
            Operator::Off | Operator::Pausing => {
                self.crashes = 0;
                self.start()
            }
        }
    }

    fn start(&mut self) -> Vec<Action> {
        let Some(good) = self.good else { return Vec::new() };
        self.operator = Operator::Running { ready: false };
        vec![Action::Start(good)]
    }

    fn exited(&mut self, after: Duration) -> Vec<Action> {
        match self.operator {
            Operator::Stopping => {
                self.crashes = 0;
                self.start()
            }
            Operator::Running { .. } => {
                self.crashes = if after >= STABLE { 1 } else { self.crashes + 1 };
                self.operator = Operator::Pausing;
                let doublings = (self.crashes - 1).min(16);
                vec![Action::Pause((FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE))]
            }
            Operator::Off | Operator::Pausing => Vec::new(),
        }
    }

    /// Samples wait for an operator that is ready: it may have to admit or convert them.
    fn samples(&mut self) -> Vec<Action> {
        if self.samples_wanted && self.operator == (Operator::Running { ready: true }) {
            self.samples_wanted = false;
            return vec![Action::ApplySamples];
        }
        Vec::new()
    }

    fn quit(&mut self) -> Vec<Action> {
        self.quitting = true;
        let mut actions = Vec::new();
        if self.build != Build::Idle {
            actions.push(Action::CancelBuild);
        }
        match self.operator {
            Operator::Running { .. } => {
                self.operator = Operator::Stopping;
                actions.push(Action::Stop);
            }
            Operator::Stopping => {}
            Operator::Off | Operator::Pausing => actions.push(Action::End),
        }
        actions
    }

    fn ended(&mut self) -> Vec<Action> {
        self.operator = Operator::Off;
        vec![Action::End]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::*;
    use Compiled::*;
    use Event::*;

    const SOON: Duration = Duration::from_secs(1);

    /// Plays events to a new machine; each must be answered by exactly these actions.
    #[track_caller]
    fn check(samples: bool, play: &[(Event, &[Action])]) {
        let mut machine = Machine::new(samples);
        for (step, (event, expected)) in play.iter().enumerate() {
            assert_eq!(&machine.on(*event), expected, "step {step}: {event:?} to {machine:?}");
        }
    }

    fn taken(generation: Generation) -> Event {
        Prepared(generation, Answer::Taken)
    }

    fn refused(generation: Generation) -> Event {
        Prepared(generation, Answer::Refused)
    }

    /// The first build runs.
    const RUNNING: [(Event, &[Action]); 4] = [
        (SourceSaved, &[Build]),
        (Built(New), &[Prepare(1)]),
        (Prepared(1, Answer::Taken), &[Start(1)]),
        (Ready, &[]),
    ];

    fn running(then: &[(Event, &[Action])]) {
        check(false, &[&RUNNING, then].concat());
    }

    #[test]
    fn a_save_replaces_the_operator_when_the_new_one_can_start_at_once() {
        running(&[
            (SourceSaved, &[Build]),
            (Built(New), &[Prepare(2)]),
            (taken(2), &[Stop]),
            (Exited(SOON), &[Start(2)]),
            (Ready, &[]),
        ]);
    }

    #[test]
    fn the_last_good_build_runs_while_nothing_better_is_there() {
        running(&[(SourceSaved, &[Build]), (Built(Failed), &[])]);
        running(&[(SourceSaved, &[Build]), (Built(Same), &[])]);
        // Refused by the server; saved again without a change, it is offered again.
        running(&[
            (SourceSaved, &[Build]),
            (Built(New), &[Prepare(2)]),
            (refused(2), &[]),
            (Exited(SOON), &[Pause(FIRST_PAUSE)]),
            (PauseOver, &[Start(1)]),
            (SourceSaved, &[Build]),
            (Built(Same), &[Prepare(2)]),
            (taken(2), &[Stop]),
            (Exited(SOON), &[Start(2)]),
        ]);
    }

    #[test]
    fn saving_during_a_build_starts_over_but_not_for_ever() {
        let mut play: Vec<(Event, &[Action])> = vec![(SourceSaved, &[Build])];
        for _ in 0..MAX_CANCELS {
            play.push((SourceSaved, &[CancelBuild]));
            play.push((SourceSaved, &[]));
            play.push((Built(Cancelled), &[Build]));
        }
        play.push((SourceSaved, &[]));
        play.push((Built(New), &[Prepare(1), Build]));
        play.push((Built(New), &[]));
        // The older one is not worth starting.
        play.push((taken(1), &[Prepare(2)]));
        play.push((taken(2), &[Start(2)]));
        check(false, &play);
    }

    #[test]
    fn an_operator_that_ends_is_started_again_with_growing_pauses() {
        let pause = |times: u32| FIRST_PAUSE * 2_u32.pow(times);
        running(&[
            (Exited(SOON), &[Pause(pause(0))]),
            (PauseOver, &[Start(1)]),
            (Exited(SOON), &[Pause(pause(1))]),
            (PauseOver, &[Start(1)]),
            (Exited(STABLE), &[Pause(pause(0))]),
            // Mended meanwhile: the pause is not waited for, and its end means nothing.
            (SourceSaved, &[Build]),
            (Built(New), &[Prepare(2)]),
            (taken(2), &[Start(2)]),
            (PauseOver, &[]),
        ]);
        let mut machine = Machine::new(false);
        for (event, _) in RUNNING {
            machine.on(event);
        }
        for _ in 0..40 {
            machine.on(Exited(SOON));
            machine.on(PauseOver);
        }
        assert_eq!(machine.on(Exited(SOON)), [Pause(LONGEST_PAUSE)]);
    }

    #[test]
    fn samples_are_applied_when_the_operator_is_ready() {
        check(
            true,
            &[
                (SourceSaved, &[Build]),
                (Built(New), &[Prepare(1)]),
                (taken(1), &[Start(1)]),
                (Ready, &[ApplySamples]),
                (Ready, &[]),
                (SamplesWanted, &[ApplySamples]),
                (SourceSaved, &[Build]),
                (Built(New), &[Prepare(2)]),
                (taken(2), &[Stop]),
                (SamplesWanted, &[]),
                (Exited(SOON), &[Start(2)]),
                (Ready, &[ApplySamples]),
            ],
        );
    }

    #[test]
    fn definitions_from_files_are_applied_when_they_change() {
        check(false, &[(DefinitionsSaved, &[])]);
        running(&[
            (DefinitionsSaved, &[Prepare(1)]),
            (DefinitionsSaved, &[]),
            (taken(1), &[Prepare(1)]),
            (taken(1), &[Stop]),
            (Exited(SOON), &[Start(1)]),
        ]);
    }

    #[test]
    fn the_end_waits_for_the_operator_and_begins_nothing() {
        check(false, &[(Quit, &[End])]);
        check(false, &[(SourceSaved, &[Build]), (Quit, &[CancelBuild, End])]);
        running(&[
            (SourceSaved, &[Build]),
            (Quit, &[CancelBuild, Stop]),
            (Built(Cancelled), &[]),
            (SourceSaved, &[]),
            (Exited(SOON), &[End]),
        ]);
        running(&[
            (SourceSaved, &[Build]),
            (Built(New), &[Prepare(2)]),
            (taken(2), &[Stop]),
            (Quit, &[]),
            (Exited(SOON), &[End]),
        ]);
    }
}
