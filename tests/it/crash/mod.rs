//! `kill -9` at every point that a serving process passes. Then it starts again, or another one that runs takes over.
//!
//! Each case prepares both stores with likes that have landed and likes that have not, brings a process to the point, kills it, and
//! looks whether everything accepted is there once, whether Redis and MySQL agree, and what the client is told that asks again.

mod scene;

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use thumbd::steps::POINTS;

use scene::Scene;

/// Processes cost much at their start, and the machine has other tests to run.
const AT_ONCE: usize = 2;

/// Points, at which passing, and how a process comes there.
const CASES: &[(&str, u32, Scene)] = &[
    ("migrate.locked", 1, Scene::FirstStart),
    ("migrate.table", 1, Scene::FirstStart),
    ("migrate.done", 1, Scene::FirstStart),
    ("recover.state", 1, Scene::Start),
    ("recover.peek", 1, Scene::Start),
    ("recover.reset", 1, Scene::StartOnEmptied),
    ("recover.done", 1, Scene::StartOnEmptied),
    ("cold.read", 1, Scene::ColdLike),
    ("cold.fill", 1, Scene::ColdLike),
    // Count, then user.
    ("cold.filled", 1, Scene::ColdLike),
    ("cold.filled", 2, Scene::ColdLike),
    ("list.held", 1, Scene::ColdList),
    ("list.recovering", 1, Scene::RecoveringList),
    ("look.read", 1, Scene::ColdRead),
    ("look.recovering", 1, Scene::RecoveringRead),
    ("thumb.answered", 1, Scene::WarmUnlike),
    ("thumb.not_held", 1, Scene::PartialUnlike),
    ("thumb.recovering", 1, Scene::RecoveringLike),
    ("lease.taken", 1, Scene::Flush),
    ("flush.recovered", 1, Scene::Flush),
    ("flush.state", 1, Scene::Flush),
    ("flush.upto", 1, Scene::Flush),
    ("flush.sealed", 1, Scene::Flush),
    ("flush.page", 1, Scene::Flush),
    ("flush.read", 1, Scene::Flush),
    // In the first chunk, and in a later one.
    ("ledger.commit", 1, Scene::Flush),
    ("ledger.commit", 2, Scene::Flush),
    ("ledger.committed", 1, Scene::Flush),
    ("flush.applied", 1, Scene::Flush),
    ("flush.applied", 2, Scene::Flush),
    ("flush.marked", 1, Scene::Flush),
    // Users, then counts.
    ("flush.undo", 1, Scene::Poison),
    ("flush.undone", 1, Scene::Poison),
    ("flush.unpinned", 1, Scene::Flush),
    ("flush.unpinned", 2, Scene::Flush),
    ("flush.dropped", 1, Scene::Flush),
    ("lease.release", 1, Scene::Flush),
    ("compensate.adopt", 1, Scene::Compensate),
    ("compensate.adopted", 1, Scene::Compensate),
    ("compensate.flushed", 1, Scene::Compensate),
];

/// Points that other tests end a task at, because the process that passes them does not serve or needs stores of its own making.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "compensate.pruned",
        "flush::prune::pruning_that_dies_is_done_again",
    ),
    (
        "prune.remembered",
        "flush::prune::pruning_that_dies_is_done_again",
    ),
    (
        "prune.removed",
        "flush::prune::pruning_that_dies_is_done_again",
    ),
    (
        "erase.commit",
        "erasure::an_erasure_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "erase.flushed",
        "erasure::an_erasure_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "erase.forgotten",
        "erasure::an_erasure_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "erase.raised",
        "erasure::an_erasure_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "erase.removed",
        "erasure::an_erasure_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "erase.marked",
        "gone::an_erasure_of_a_target_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "erase.noted",
        "gone::an_erasure_of_a_target_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "flush.gone",
        "gone::an_erasure_of_a_target_that_dies_anywhere_is_finished_by_another",
    ),
    (
        "restore.commit",
        "gone::a_restoration_that_dies_anywhere_is_whole_or_not_at_all",
    ),
    (
        "restore.flushed",
        "gone::a_restoration_that_dies_anywhere_is_whole_or_not_at_all",
    ),
    (
        "restore.forgotten",
        "gone::a_restoration_that_dies_anywhere_is_whole_or_not_at_all",
    ),
    (
        "restore.raised",
        "gone::a_restoration_that_dies_anywhere_is_whole_or_not_at_all",
    ),
    (
        "restore.stored",
        "gone::a_restoration_that_dies_anywhere_is_whole_or_not_at_all",
    ),
    (
        "flush.distrusted",
        "repair::a_repair_that_died_before_redis_was_told_makes_everything_cold",
    ),
    (
        "repair.counted",
        "repair::a_repair_that_died_before_redis_was_told_makes_everything_cold",
    ),
    (
        "repair.forgotten",
        "repair::a_repair_that_died_before_redis_was_told_makes_everything_cold",
    ),
    (
        "relayout.drained",
        "relayout::a_change_that_dies_can_be_begun_again_or_taken_back",
    ),
    (
        "relayout.retired",
        "relayout::a_change_that_dies_can_be_begun_again_or_taken_back",
    ),
    (
        "relayout.stored",
        "relayout::a_change_that_dies_can_be_begun_again_or_taken_back",
    ),
    (
        "import.applied",
        "moving::import::an_import_that_dies_is_run_again",
    ),
    (
        "import.begun",
        "moving::import::an_import_that_dies_is_run_again",
    ),
    (
        "import.commit",
        "moving::import::an_import_that_dies_is_run_again",
    ),
    (
        "import.forgotten",
        "moving::import::an_import_that_dies_is_run_again",
    ),
    (
        "import.told",
        "moving::import::an_import_that_dies_is_run_again",
    ),
    (
        "feed.delivered",
        "feed::a_relay_killed_between_delivery_and_removal_doubles_nothing",
    ),
    (
        "retry.accepted",
        "flush::quarantine::a_retry_that_dies_is_done_once",
    ),
];

#[test]
fn every_point_has_its_case() {
    let cases = CASES.iter().map(|(point, ..)| *point);
    let cases: BTreeSet<&str> = cases.chain(ELSEWHERE.iter().map(|one| one.0)).collect();
    assert_eq!(cases, POINTS.iter().copied().collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_point_and_started_again() {
    // One partition each second time: there, no point lies between two of them.
    all(|at, case| scene::restarted(case, 1 + at % 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_point_and_another_takes_over() {
    all(|at, case| scene::taken_over(case, 2 - at % 2)).await;
}

async fn all<F: Future<Output = ()>>(run: impl Fn(u16, (&'static str, u32, Scene)) -> F) {
    let cases = (0..).zip(CASES.iter().copied());
    let only = std::env::var("THUMBD_CRASH_POINT").ok();
    let cases = cases.filter(|(_, case)| only.as_ref().is_none_or(|only| only == case.0));
    let runs = futures_util::stream::iter(cases.map(|(at, case)| run(at, case)));
    runs.buffer_unordered(AT_ONCE).collect::<()>().await;
}
