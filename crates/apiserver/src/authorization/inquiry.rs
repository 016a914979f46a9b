//! How code that cannot wait gets an answer that takes time.
//!
//! Most code that asks an [`Authorizer`] is a plain function: an expression of a policy, the modes of impersonation,
//! the checks of the rules that a role grants. Their authorizers nearly always know the answer at once. Where another
//! server must be asked, the function runs with "no opinion" for an answer, its result is thrown away, the question is
//! sent, and the function runs again with the answer ([`Inquiry::settled`]).
//!
//! Invariants: the result of a run in which a question was open is never seen; every run but the last answers one more
//! question, so that a function that asks N questions runs at most N + 1 times.
//!
//! Not here: the cache beyond one request (see `webhook`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Answer, Attributes, Authorizer, Decision};
use crate::env::BoxFuture;
use crate::model::user::UserInfo;

/// The questions of one request, and the answers that took time.
pub(crate) struct Inquiry<'a> {
    authorizer: &'a dyn Authorizer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answered: Vec<(Question, Decision)>,
    open: Option<(Question, BoxFuture<'static, Decision>)>,
}

#[derive(PartialEq)]
struct Question {
    user: UserInfo,
    attributes: Attributes,
}

impl<'a> Inquiry<'a> {
    pub(crate) fn new(authorizer: &'a dyn Authorizer) -> Inquiry<'a> {
        Inquiry {
            authorizer,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `user` may do it, as far as it is known by now. Call it within [`settled`](Inquiry::settled) only.
    pub(crate) fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let mut state = self.state();
        let known = state
            .answered
            .iter()
            .find(|(question, _)| question.user == *user && question.attributes == *attributes);
        if let Some((_, decision)) = known {
            return decision.clone();
        }
        if state.open.is_some() {
            return Decision::no_opinion("");
        }
        match self.authorizer.decide(user, attributes) {
            Answer::Known(decision) => decision,
            Answer::Asked(answer) => {
                let question = Question {
                    user: user.clone(),
                    attributes: attributes.clone(),
                };
                state.open = Some((question, answer));
                Decision::no_opinion("")
            }
        }
    }

    /// Whether `user` may do it, in short; the error is the reason of the refusal.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<(), String> {
        let decision = self.decide(user, attributes);
        if decision.is_allowed() {
            Ok(())
        } else {
            Err(decision.reason)
        }
    }

    /// The result of `run` once all its questions are answered. It may run several times, and must change nothing.
    pub(crate) async fn settled<T>(&self, mut run: impl FnMut() -> T) -> T {
        loop {
            let result = run();
            let open = self.state().open.take();
            let Some((question, answer)) = open else {
                return result;
            };
            drop(result);
            let decision = answer.await;
            self.state().answered.push((question, decision));
        }
    }
}
