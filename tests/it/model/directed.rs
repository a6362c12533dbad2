//! What the scheduler has found, once more and step by step.

use rand::SeedableRng;
use rand::rngs::StdRng;
use thumbd::domain::{Action, Operation, Target, UserId};
use thumbd::flush::Upto;
use thumbd::service::recover_check;

use super::scenario::{CALM, Scenario};
use super::world::World;

/// An emptied partition that has seen no slice land since is filled from MySQL all the same, so it must notice when MySQL forgets.
#[tokio::test]
async fn an_emptied_partition_notices_that_mysql_forgot_what_it_was_filled_with() {
    let scenario = Scenario {
        forget: 0.1,
        ..CALM
    };
    let mut world = World::start(&scenario).await;
    world.begin(&scenario, &mut StdRng::seed_from_u64(0)).await;
    let one = world.instance().await;
    let target = Target::parse("blog:1").unwrap();
    for user in ["u1", "u2"] {
        let operation = Operation {
            user: UserId::parse(user).unwrap(),
            target: target.clone(),
            action: Action::Thumb,
        };
        one.service.thumb(operation).await.unwrap();
        one.flusher.run(|| Upto::Now).await.unwrap();
        world.remember().await;
    }
    world.restore(0, None).await;
    let count = async || {
        recover_check(&one.hot, &world.ledger, 0).await.unwrap();
        let seen = one.service.lookup(None, std::slice::from_ref(&target));
        seen.await.unwrap()[0].count
    };
    assert_eq!(count().await, Some(2), "filled from MySQL");
    assert!(world.forget().await);
    assert_eq!(count().await, Some(1), "what MySQL still has");
}
