//! One run: a seed decides who goes on next, who dies and what fails.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thumbd::domain::{Action, Operation, Target, UserId, partition_of};
use thumbd::flush::Upto;

use super::actors::{Actor, Answered, Role};
use super::damage::Damage;
use super::scenario::Scenario;
use super::truth::Truth;
use super::world::World;

/// Steps of the scheduler in one run.
const STEPS: u64 = 600;

/// What a scenario's runs did: a test in which nothing happens proves nothing.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) changed: u64,
    pub(super) unchanged: u64,
    pub(super) refused: u64,
    pub(super) reads: u64,
    pub(super) reads_unknown: u64,
    pub(super) flushes: u64,
    pub(super) overtaken: u64,
    pub(super) crashes: u64,
    pub(super) evictions: u64,
    pub(super) damages: u64,
    pub(super) forgotten: u64,
    pub(super) pruned: u64,
}

/// A run.
pub(super) struct Run<'a> {
    pub(super) world: &'a mut World,
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
    pub(super) rng: StdRng,
    pub(super) step: u64,
    pub(super) truth: Truth,
    pub(super) damage: Damage,
    pub(super) totals: &'a mut Totals,
    actors: Vec<Actor>,
    ids: u64,
    pub(super) clocks: Vec<u64>,
    pub(super) trace: Vec<String>,
}

impl<'a> Run<'a> {
    pub(super) async fn begin(
        world: &'a mut World,
        scenario: Scenario,
        seed: u64,
        totals: &'a mut Totals,
    ) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        world.begin(&scenario, &mut rng).await;
        let truth = Truth {
            partitions: world.partitions,
            likes_only: scenario.likes_only,
            ..Truth::default()
        };
        let clocks = world.clocks().await;
        Self {
            world,
            scenario,
            seed,
            rng,
            step: 0,
            truth,
            damage: Damage::default(),
            totals,
            actors: Vec::new(),
            ids: 0,
            clocks,
            trace: Vec::new(),
        }
    }

    pub(super) async fn go(&mut self) {
        // It takes a while until something is old enough to be pruned.
        let steps = if self.scenario.prune {
            3 * STEPS
        } else {
            STEPS
        };
        for _ in 0..steps {
            self.step += 1;
            self.dice().await;
            self.faults().await;
            self.watch().await;
        }
        for actor in self.actors.drain(..) {
            actor.crash();
        }
        self.settle().await;
    }

    async fn dice(&mut self) {
        let clients = self.number(|role| matches!(role, Role::Client(_)));
        let readers = self.number(|role| matches!(role, Role::Reader(..)));
        let flushers = self.number(Role::flushes);
        let dice: f64 = self.rng.random();
        if dice < 0.18 && clients < 4 {
            let like = self.scenario.likes_only
                || self
                    .rng
                    .random_bool(if self.scenario.prune { 0.4 } else { 0.6 });
            let role = Role::Client(Operation {
                user: self.user(),
                target: self.target(),
                action: if like { Action::Thumb } else { Action::Unthumb },
            });
            self.start(role).await;
        } else if dice < 0.22 {
            let by = [1, 4, 9, 30][self.rng.random_range(0..4)] * 1_000_000;
            let partition = self.rng.random_range(0..self.world.partitions);
            let only = self.rng.random_bool(0.3).then_some(partition);
            self.trace(format!("clock + {by} of {only:?}"));
            self.world.jump(only, by).await;
            self.clocks = self.world.clocks().await;
        } else if dice < 0.27 && flushers < self.scenario.flushers {
            let role = match self.rng.random_range(0..8) {
                0 => Role::Compensator,
                4.. if self.scenario.prune => Role::Compensator,
                1..4 => Role::Flusher(Upto::Now),
                _ => Role::Flusher(Upto::PreviousWindow),
            };
            self.start(role).await;
        } else if dice < 0.31 && readers < 3 {
            let user = self.rng.random_bool(0.5).then(|| self.user());
            let mut targets = vec![self.target()];
            if self.rng.random_bool(0.3) {
                targets.push(self.target());
                targets.dedup();
            }
            self.start(Role::Reader(user, targets)).await;
        } else if dice < 0.33 && self.scenario.forget_keys && self.rng.random_bool(0.2) {
            let role = Role::Forgetter(self.user(), self.target());
            self.start(role).await;
        } else if !self.actors.is_empty() {
            // Flushers have the longest way: a draw more for them.
            let flushing: Vec<usize> = (0..self.actors.len())
                .filter(|at| self.actors[*at].role.flushes())
                .collect();
            let mut at = if !flushing.is_empty() && self.rng.random_bool(0.4) {
                flushing[self.rng.random_range(0..flushing.len())]
            } else {
                self.rng.random_range(0..self.actors.len())
            };
            // One in four is slow: a flusher that sleeps while another one carries several slices.
            if self.actors[at].id % 4 == 3 && self.rng.random_bool(0.85) {
                at = self.rng.random_range(0..self.actors.len());
                if self.actors[at].id % 4 == 3 {
                    return;
                }
            }
            self.advance(at).await;
        }
    }

    async fn faults(&mut self) {
        let scenario = self.scenario;
        if self.rng.random_bool(scenario.crash) && !self.actors.is_empty() {
            let at = self.rng.random_range(0..self.actors.len());
            let actor = self.actors.swap_remove(at);
            self.trace(format!("{} dies at {}", actor.id, actor.point));
            self.totals.crashes += 1;
            actor.crash();
        }
        for of in ["user", "count"] {
            if self.rng.random_bool(scenario.evict)
                && let Some(key) = self.world.evict(of, &mut self.rng).await
            {
                self.totals.evictions += 1;
                self.trace(format!("evicted {key}"));
            }
        }
        self.hurt().await;
    }

    async fn start(&mut self, role: Role) {
        self.ids += 1;
        let instance = self.world.instance().await;
        self.trace(format!("{} begins: {role}", self.ids));
        let actor = Actor::start(self.ids, role, self.step, instance);
        self.actors.push(actor);
    }

    /// Lets one go on to its next point, and looks at what it did.
    async fn advance(&mut self, at: usize) {
        let before = self.actors[at].point;
        let ended = self.actors[at].step().await;
        let after = self.actors[at].point;
        let id = self.actors[at].id;
        let clocks = self.world.clocks().await;
        if let (Role::Client(operation), "thumb.answered") = (self.actors[at].role.clone(), after) {
            let home = usize::from(partition_of(&operation.user, self.world.partitions));
            // Only what was accepted moves the clock.
            let accepted = clocks[home] != self.clocks[home];
            let state_before = self.truth.state(&operation.user, &operation.target);
            self.trace(format!(
                "{id} {before} → {after}{}",
                if accepted { ", accepted" } else { "" }
            ));
            if accepted {
                self.accepted(&operation, state_before, clocks[home]);
            }
            self.actors[at].answered = Some(Answered {
                step: self.step,
                accepted,
                state_before,
                count_after: self.truth.count(&operation.target)
                    + if accepted && self.scenario.damages() {
                        if operation.action.thumbed() { 1 } else { -1 }
                    } else {
                        0
                    },
            });
        } else {
            self.trace(format!("{id} {before} → {after}"));
        }
        self.clocks = clocks;
        if let Some(ended) = ended {
            let actor = self.actors.swap_remove(at);
            self.ended(&actor, ended);
            self.world.give_back(actor.instance);
        }
    }

    fn number(&self, of: impl Fn(&Role) -> bool) -> usize {
        self.actors.iter().filter(|actor| of(&actor.role)).count()
    }

    fn user(&mut self) -> UserId {
        // Few users have more likes each.
        let number = if self.scenario.partial { 2 } else { 4 };
        UserId::parse(format!("u{}", self.rng.random_range(0..number))).unwrap()
    }

    fn target(&mut self) -> Target {
        let number = if self.scenario.partial { 4 } else { 2 };
        Target::parse(&format!("blog:{}", self.rng.random_range(0..number))).unwrap()
    }

    pub(super) fn trace(&mut self, text: String) {
        self.trace.push(format!("{:4} {text}", self.step));
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.trace.join("\n"));
            eprintln!(
                "model: scenario '{}', THUMBD_MODEL_SEED={} (trace above)",
                self.scenario.name, self.seed
            );
        }
    }
}
