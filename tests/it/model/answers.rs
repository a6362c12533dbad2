//! What actors were answered, held against what is true.

use thumbd::domain::Operation;
use thumbd::flush::FlushError;
use thumbd::ledger::LedgerError;
use thumbd::service::ServiceError;

use super::actors::{Actor, Ended, Role};
use super::schedule::Run;

impl Run<'_> {
    pub(super) fn accepted(&mut self, operation: &Operation, state_before: bool, version: u64) {
        let wanted = operation.action.thumbed();
        assert!(
            self.damage.blurs(self.step) || state_before != wanted,
            "WRONG ANSWER: accepted, though the state was {wanted} already"
        );
        let pair = (operation.user.clone(), operation.target.clone());
        self.damage
            .accepted(self.step, pair.clone(), wanted, version);
        if self.scenario.damages() {
            // What is true is read from the stores, after the step.
            return;
        }
        self.truth.accept(self.step, pair, wanted, version);
    }

    pub(super) fn ended(&mut self, actor: &Actor, ended: Ended) {
        let blurred = self.damage.blurs(actor.began);
        match (&actor.role, ended) {
            (Role::Client(operation), Ended::Thumb(Ok(outcome))) => {
                let answered = actor.answered.expect("it came by");
                if outcome.changed {
                    self.totals.changed += 1;
                } else {
                    self.totals.unchanged += 1;
                }
                if !blurred {
                    let wanted = operation.action.thumbed();
                    let target = &operation.target;
                    self.truth
                        .check_outcome(self.step, wanted, target, answered, outcome);
                }
            }
            (Role::Reader(user, targets), Ended::Look(Ok(seen))) => {
                for (target, seen) in targets.iter().zip(seen) {
                    let Some(count) = seen.count else {
                        self.totals.reads_unknown += 1;
                        continue;
                    };
                    self.totals.reads += 1;
                    if blurred {
                        continue;
                    }
                    let (began, ended) = (actor.began, self.step);
                    self.truth.check_count(began, ended, target, count);
                    if self.scenario.likes_only && !self.scenario.damages() {
                        self.truth.check_growth(began, ended, target, count);
                    }
                    if let (Some(user), Some(liked)) = (user, seen.liked) {
                        self.truth.check_state(began, ended, user, target, liked);
                    }
                }
            }
            (_, Ended::Thumb(Err(error)) | Ended::Look(Err(error))) => {
                self.refused(&error);
            }
            (_, Ended::Forgotten) => self.totals.forgotten += 1,
            (_, Ended::Flush(Ok(report))) => {
                self.totals.flushes += 1;
                self.totals.pruned += report.rows_pruned;
                assert!(
                    report.flush.quarantined == 0 || self.scenario.rollback > 0.0,
                    "QUARANTINED without a rollback"
                );
            }
            (_, Ended::Flush(Err(error))) => self.flush_failed(&error),
            (role, _) => unreachable!("{role:?} ended as another"),
        }
    }

    fn refused(&mut self, error: &ServiceError) {
        self.totals.refused += 1;
        self.trace(format!("refused: {error}"));
        let expected = matches!(error, ServiceError::Busy { .. })
            || (self.scenario.damages() || self.scenario.forget_keys)
                && matches!(error, ServiceError::Recovering { .. });
        assert!(expected, "AN UNEXPECTED ERROR: {error}");
    }

    fn flush_failed(&mut self, error: &FlushError) {
        self.totals.overtaken += 1;
        self.trace(format!("flush ended: {error}"));
        let overtaken = self.scenario.flushers > 1
            && matches!(
                error,
                FlushError::Overtaken | FlushError::Ledger(LedgerError::Overtaken)
            );
        let damaged = self.scenario.damages()
            && matches!(
                error,
                FlushError::Overtaken
                    | FlushError::Unsealed(_)
                    | FlushError::Service(ServiceError::Recovering { .. })
                    | FlushError::Ledger(LedgerError::Overtaken | LedgerError::LandedBehind { .. })
            );
        assert!(overtaken || damaged, "A FLUSH FAILED: {error}");
    }
}
