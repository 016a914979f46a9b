//! The lifecycle of builds and operators, as a state machine: an [`Input`] leads to [`Action`]s. No files, processes or
//! clocks here.
//!
//! Invariants:
//! - at most one build, one preparation and one operator at a time;
//! - an operator is started only from a build whose definitions the server accepted, and the last such build keeps
//!   running while a newer one is compiled, fails to compile, or is rejected;
//! - saves during builds do not cancel them forever: after [`MAX_CANCELS`] cancelled builds in a row the next one is not
//!   cancelled;
//! - after [`Input::Quit`] nothing is started, and [`Action::End`] comes when the operator is gone.

use std::time::Duration;

/// Numbers the builds that produced a new program, from 1.
pub(crate) type Generation = u64;

/// The number of builds in a row that may be cancelled because something was saved meanwhile.
pub(crate) const MAX_CANCELS: u32 = 3;
/// The pause before an operator that ended by itself is started again: doubled each time, up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// An operator that ran this long before it ended gets the minimum again.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A file was saved from which the operator is built.
    SourceSaved,
    /// A file below `config/crd/bases` was saved, and definitions come from there.
    DefinitionsSaved,
    /// A sample was saved, or a person asked for the samples.
    SamplesWanted,
    /// The build ended.
    Built(Compiled),
    /// The server accepted the definitions of a build, or rejected them.
    Prepared(Generation, Response),
    /// All controllers of the operator have started, or it sends no observations.
    Ready,
    /// The operator ended, after so long.
    Exited(Duration),
    /// The time of [`Action::Backoff`] is over.
    BackoffElapsed,
    /// A person quits.
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

/// The server's response to the definitions of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Accepted,
    Rejected,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Compile.
    Build,
    /// Stop compiling; [`Input::Built`] follows.
    CancelBuild,
    /// Apply the declaration of the build; [`Input::Prepared`] follows.
    Prepare(Generation),
    /// Start the program of a build; [`Input::Exited`] follows when it ends.
    Start(Generation),
    /// Stop the operator; [`Input::Exited`] follows.
    Stop,
    /// Wait; [`Input::BackoffElapsed`] follows after this time.
    Backoff(Duration),
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
    BackingOff,
}

/// The state of builds and operators.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    build: Build,
    cancels: u32,
    newest: Generation,
    preparing: Option<Generation>,
    /// The definitions changed while they were being applied.
    prepare_again: bool,
    /// The newest build that the server accepted: the one that runs, or will.
    accepted: Option<Generation>,
    operator: Operator,
    crashes: u32,
    samples_wanted: bool,
    quitting: bool,
}

impl Lifecycle {
    /// `samples`: whether the samples are applied when the operator is ready for the first time.
    pub(crate) fn new(samples: bool) -> Lifecycle {
        Lifecycle {
            build: Build::Idle,
            cancels: 0,
            newest: 0,
            preparing: None,
            prepare_again: false,
            accepted: None,
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

    /// The backoff if the operator ended by itself now, after it ran so long.
    pub(crate) fn next_backoff(&self, after: Duration) -> Option<Duration> {
        match self.clone().handle(Input::Exited(after))[..] {
            [Action::Backoff(backoff)] => Some(backoff),
            _ => None,
        }
    }

    /// The actions that follow from an input, in this order.
    pub(crate) fn handle(&mut self, input: Input) -> Vec<Action> {
        if self.quitting {
            return match input {
                Input::Exited(_) => self.ended(),
                _ => Vec::new(),
            };
        }
        match input {
            Input::SourceSaved => self.saved(),
            Input::DefinitionsSaved if self.newest > 0 => self.prepare(),
            Input::DefinitionsSaved => Vec::new(),
            Input::SamplesWanted => {
                self.samples_wanted = true;
                self.samples()
            }
            Input::Built(built) => self.built(built),
            Input::Prepared(generation, response) => self.prepared(generation, response),
            Input::Ready => {
                if let Operator::Running { ready } = &mut self.operator {
                    *ready = true;
                }
                self.samples()
            }
            Input::Exited(after) => self.exited(after),
            Input::BackoffElapsed if self.operator == Operator::BackingOff => self.start(),
            Input::BackoffElapsed => Vec::new(),
            Input::Quit => self.quit(),
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
            // The definitions of a rejected build are tried again: the server may have changed.
            Compiled::Same if self.accepted != Some(self.newest) && self.newest > 0 => self.prepare(),
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

    fn prepared(&mut self, generation: Generation, response: Response) -> Vec<Action> {
        self.preparing = None;
        if std::mem::take(&mut self.prepare_again) {
            return self.prepare();
        }
        if response == Response::Rejected {
            return Vec::new();
        }
        self.accepted = Some(generation);
        match self.operator {
            Operator::Running { .. } => {
                self.operator = Operator::Stopping;
                vec![Action::Stop]
            }
            // When it has ended, the newest accepted build is started, which is this one now.
            Operator::Stopping => Vec::new(),
            Operator::Off | Operator::BackingOff => {
                self.crashes = 0;
                self.start()
            }
        }
    }

    fn start(&mut self) -> Vec<Action> {
        let Some(accepted) = self.accepted else {
            return Vec::new();
        };
        self.operator = Operator::Running { ready: false };
        vec![Action::Start(accepted)]
    }

    fn exited(&mut self, after: Duration) -> Vec<Action> {
        match self.operator {
            Operator::Stopping => {
                self.crashes = 0;
                self.start()
            }
            Operator::Running { .. } => {
                self.crashes = if after >= STABLE_AFTER { 1 } else { self.crashes + 1 };
                self.operator = Operator::BackingOff;
                let doublings = (self.crashes - 1).min(16);
                vec![Action::Backoff((MIN_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF))]
            }
            Operator::Off | Operator::BackingOff => Vec::new(),
        }
    }

    /// Samples are applied when the operator is ready, because its webhooks may be called for them.
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
            Operator::Off | Operator::BackingOff => actions.push(Action::End),
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
    use Input::*;

    const SOON: Duration = Duration::from_secs(1);

    /// Gives inputs to a new lifecycle; each must lead to exactly these actions.
    #[track_caller]
    fn check(samples: bool, steps: &[(Input, &[Action])]) {
        let mut lifecycle = Lifecycle::new(samples);
        for (step, (input, expected)) in steps.iter().enumerate() {
            assert_eq!(
                &lifecycle.handle(*input),
                expected,
                "step {step}: {input:?} to {lifecycle:?}"
            );
        }
    }

    fn accepted(generation: Generation) -> Input {
        Prepared(generation, Response::Accepted)
    }

    fn rejected(generation: Generation) -> Input {
        Prepared(generation, Response::Rejected)
    }

    /// The first build runs.
    const RUNNING: [(Input, &[Action]); 4] = [
        (SourceSaved, &[Build]),
        (Built(New), &[Prepare(1)]),
        (Prepared(1, Response::Accepted), &[Start(1)]),
        (Ready, &[]),
    ];

    fn running(then: &[(Input, &[Action])]) {
        check(false, &[&RUNNING, then].concat());
    }

    #[test]
    fn a_save_replaces_the_operator_when_the_new_one_can_start_at_once() {
        running(&[
            (SourceSaved, &[Build]),
            (Built(New), &[Prepare(2)]),
            (accepted(2), &[Stop]),
            (Exited(SOON), &[Start(2)]),
            (Ready, &[]),
        ]);
    }

    #[test]
    fn the_last_good_build_runs_while_nothing_better_is_there() {
        running(&[(SourceSaved, &[Build]), (Built(Failed), &[])]);
        running(&[(SourceSaved, &[Build]), (Built(Same), &[])]);
        // Rejected by the server; saved again without a change, it is prepared again.
        running(&[
            (SourceSaved, &[Build]),
            (Built(New), &[Prepare(2)]),
            (rejected(2), &[]),
            (Exited(SOON), &[Backoff(MIN_BACKOFF)]),
            (BackoffElapsed, &[Start(1)]),
            (SourceSaved, &[Build]),
            (Built(Same), &[Prepare(2)]),
            (accepted(2), &[Stop]),
            (Exited(SOON), &[Start(2)]),
        ]);
    }

    #[test]
    fn saving_during_a_build_restarts_it_but_not_forever() {
        let mut steps: Vec<(Input, &[Action])> = vec![(SourceSaved, &[Build])];
        for _ in 0..MAX_CANCELS {
            steps.push((SourceSaved, &[CancelBuild]));
            steps.push((SourceSaved, &[]));
            steps.push((Built(Cancelled), &[Build]));
        }
        steps.push((SourceSaved, &[]));
        steps.push((Built(New), &[Prepare(1), Build]));
        steps.push((Built(New), &[]));
        // The older build is not started.
        steps.push((accepted(1), &[Prepare(2)]));
        steps.push((accepted(2), &[Start(2)]));
        check(false, &steps);
    }

    #[test]
    fn an_operator_that_ends_is_started_again_with_growing_pauses() {
        let backoff = |times: u32| MIN_BACKOFF * 2_u32.pow(times);
        running(&[
            (Exited(SOON), &[Backoff(backoff(0))]),
            (BackoffElapsed, &[Start(1)]),
            (Exited(SOON), &[Backoff(backoff(1))]),
            (BackoffElapsed, &[Start(1)]),
            (Exited(STABLE_AFTER), &[Backoff(backoff(0))]),
            // A new build does not wait for the backoff, and its end changes nothing.
            (SourceSaved, &[Build]),
            (Built(New), &[Prepare(2)]),
            (accepted(2), &[Start(2)]),
            (BackoffElapsed, &[]),
        ]);
        let mut lifecycle = Lifecycle::new(false);
        for (input, _) in RUNNING {
            lifecycle.handle(input);
        }
        for _ in 0..40 {
            lifecycle.handle(Exited(SOON));
            lifecycle.handle(BackoffElapsed);
        }
        assert_eq!(lifecycle.handle(Exited(SOON)), [Backoff(MAX_BACKOFF)]);
    }

    #[test]
    fn samples_are_applied_when_the_operator_is_ready() {
        check(
            true,
            &[
                (SourceSaved, &[Build]),
                (Built(New), &[Prepare(1)]),
                (accepted(1), &[Start(1)]),
                (Ready, &[ApplySamples]),
                (Ready, &[]),
                (SamplesWanted, &[ApplySamples]),
                (SourceSaved, &[Build]),
                (Built(New), &[Prepare(2)]),
                (accepted(2), &[Stop]),
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
            (accepted(1), &[Prepare(1)]),
            (accepted(1), &[Stop]),
            (Exited(SOON), &[Start(1)]),
        ]);
    }

    #[test]
    fn quitting_waits_for_the_operator_and_starts_nothing() {
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
            (accepted(2), &[Stop]),
            (Quit, &[]),
            (Exited(SOON), &[End]),
        ]);
    }
}
