//! Actors: tasks behind a gate. Each says at which point it stands, and goes on when it is told to.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use thumbd::domain::{Operation, Target, UserId, partition_of};
use thumbd::flush::{CompensationReport, FlushError, Upto};
use thumbd::service::{Outcome, Seen, ServiceError};
use thumbd::steps::{Gate, gated};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::world::Instance;

/// What an actor tells the scheduler.
pub(super) enum Event {
    /// It stands at a point until the sender is used; if that is dropped, for ever.
    At(&'static str, oneshot::Sender<()>),
    /// It is through.
    Done(Ended),
}

/// How an actor ended.
pub(super) enum Ended {
    Thumb(Result<Outcome, ServiceError>),
    Look(Result<Vec<Seen>, ServiceError>),
    Flush(Result<CompensationReport, FlushError>),
    Forgotten,
}

/// What an actor does.
#[derive(Debug, Clone)]
pub(super) enum Role {
    Client(Operation),
    Reader(Option<UserId>, Vec<Target>),
    Flusher(Upto),
    Compensator,
    Forgetter(UserId, Target),
}

impl Role {
    pub(super) fn flushes(&self) -> bool {
        matches!(self, Self::Flusher(_) | Self::Compensator)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(operation) => {
                let what = if operation.action.thumbed() {
                    "likes"
                } else {
                    "unlikes"
                };
                write!(f, "{} {what} {}", operation.user, operation.target)
            }
            Self::Reader(user, targets) => {
                let targets: Vec<&str> = targets.iter().map(Target::as_str).collect();
                let user = user.as_ref().map_or("somebody", UserId::as_str);
                write!(f, "{user} reads {}", targets.join(" and "))
            }
            Self::Flusher(upto) => write!(f, "flush up to {upto:?}"),
            Self::Compensator => write!(f, "compensate"),
            Self::Forgetter(user, target) => write!(f, "forget {user} and {target}"),
        }
    }
}

/// A client's last answer from the script: what was true then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    pub(super) step: u64,
    pub(super) accepted: bool,
    pub(super) state_before: bool,
    pub(super) count_after: i64,
}

/// A task that stands at a point.
pub(super) struct Actor {
    pub(super) id: u64,
    pub(super) role: Role,
    pub(super) began: u64,
    pub(super) answered: Option<Answered>,
    pub(super) instance: Instance,
    pub(super) point: &'static str,
    events: mpsc::UnboundedReceiver<Event>,
    go: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

struct Reporter(mpsc::UnboundedSender<Event>);

impl Gate for Reporter {
    fn pass(&self, point: &'static str) -> BoxFuture<'static, ()> {
        let (go, gone) = oneshot::channel();
        let sent = self.0.send(Event::At(point, go)).is_ok();
        async move {
            if !sent || gone.await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}

impl Actor {
    /// An actor that stands at its beginning.
    pub(super) fn start(id: u64, role: Role, began: u64, instance: Instance) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let (go, gone) = oneshot::channel();
        let gate = Arc::new(Reporter(sender.clone()));
        let (what, with) = (role.clone(), instance.clone());
        let task = tokio::spawn(async move {
            if gone.await.is_ok() {
                let ended = gated(gate, act(what, with)).await;
                let _ = sender.send(Event::Done(ended));
            }
        });
        Self {
            id,
            role,
            began,
            answered: None,
            instance,
            point: "start",
            events,
            go: Some(go),
            task,
        }
    }

    /// Lets it run to its next point, or its end.
    pub(super) async fn step(&mut self) -> Option<Ended> {
        let go = self.go.take().expect("it stands at a point");
        go.send(()).expect("it waits");
        let wait = std::time::Duration::from_secs(20);
        match tokio::time::timeout(wait, self.events.recv()).await {
            Ok(Some(Event::At(point, go))) => {
                (self.point, self.go) = (point, Some(go));
                None
            }
            Ok(Some(Event::Done(ended))) => {
                self.point = "end";
                Some(ended)
            }
            Ok(None) => panic!("the task of actor {} died after {}", self.id, self.point),
            Err(_) => panic!("actor {} comes to no point after {}", self.id, self.point),
        }
    }

    /// Ends it where it stands, with everything that it has started.
    pub(super) fn crash(self) {
        self.task.abort();
    }
}

async fn act(role: Role, instance: Instance) -> Ended {
    match role {
        Role::Forgetter(user, target) => {
            for partition in 0..instance.hot.partitions() {
                let users = std::slice::from_ref(&user);
                let targets = std::slice::from_ref(&target);
                let home = partition_of(&user, instance.hot.partitions()) == partition;
                let users = if home { users } else { &[] };
                let forgotten = instance.hot.forget(partition, users, targets).await;
                forgotten.expect("Redis answers");
                thumbd::steps::point("repair.forgotten").await;
            }
            Ended::Forgotten
        }
        Role::Client(operation) => Ended::Thumb(instance.service.thumb(operation).await),
        Role::Reader(user, targets) => {
            Ended::Look(instance.service.lookup(user.as_ref(), &targets).await)
        }
        Role::Flusher(upto) => {
            let report = instance.flusher.run(|| upto).await;
            Ended::Flush(report.map(|flush| CompensationReport {
                flush,
                ..CompensationReport::default()
            }))
        }
        Role::Compensator => Ended::Flush(instance.flusher.compensate(|| Upto::Now).await),
    }
}
