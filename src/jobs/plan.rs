//! When the compensator is planned: a pure computation from its schedule, its time zone, and the clock that it is given.

use anyhow::Context as _;
use chrono::{
    DateTime, LocalResult, NaiveDateTime, SubsecRound as _, TimeDelta, TimeZone as _,
    Timelike as _, Utc,
};
use chrono_tz::Tz;

use crate::config::Cron;

/// A clock that is set back by less than this repeats nothing; one that is set back by more was wrong before, and what was planned
/// until then must not be waited for.
const SET_BACK_MAX: TimeDelta = TimeDelta::days(1);
/// Longest piece of wall-clock time that a zone has left out, in minutes: Samoa once left out a day.
const GAP_MINUTES_MAX: i64 = 2 * 24 * 60;

/// The planned moments, and up to when they have been looked at. A moment is the same on every instance, whenever it looks.
pub(super) struct Plan {
    schedule: croner::Cron,
    zone: Tz,
    looked: DateTime<Utc>,
}

impl Plan {
    /// Begins to look at `now`: what was planned before is not made up for.
    pub(super) fn new(cron: &Cron, zone: Tz, now: DateTime<Utc>) -> anyhow::Result<Self> {
        Ok(Self {
            schedule: cron.schedule().context("compensate_cron")?,
            zone,
            looked: now,
        })
    }

    /// The newest moment that was planned after the last look. Of several that were missed only the newest is made up for.
    pub(super) fn due(&mut self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if now < self.looked - SET_BACK_MAX {
            self.looked = now;
        }
        let newest = self.newest(now).filter(|planned| *planned > self.looked);
        self.looked = self.looked.max(now);
        newest
    }

    /// The newest planned moment up to `now`. It is searched among wall-clock times, which know no change of the clocks, and each
    /// of these stands for one moment.
    fn newest(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let now = now.trunc_subsecs(0);
        let local = now.with_timezone(&self.zone).naive_local();
        // When an hour comes for the second time, all of it has come before.
        let repeated = now - self.moment(local)?;
        let mut wall = local.checked_add_signed(repeated)?.and_utc();
        let mut inclusive = true;
        loop {
            wall = self
                .schedule
                .find_previous_occurrence(&wall, inclusive)
                .ok()?;
            let planned = self.moment(wall.naive_utc())?;
            if planned <= now {
                return Some(planned);
            }
            inclusive = false;
        }
    }

    /// The moment of a wall-clock time: the first one if it comes twice; the end of the gap if it is left out.
    fn moment(&self, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
        let resolve = |wall: NaiveDateTime| match self.zone.from_local_datetime(&wall) {
            LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => {
                Some(moment.to_utc())
            }
            LocalResult::None => None,
        };
        resolve(wall).or_else(|| {
            let minute = wall.with_second(0)?;
            (1..=GAP_MINUTES_MAX).find_map(|after| resolve(minute + TimeDelta::minutes(after)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn plan(cron: &str, zone: &str, now: &str) -> Plan {
        Plan::new(&Cron::parse(cron).unwrap(), zone.parse().unwrap(), at(now)).unwrap()
    }

    /// All that is due when somebody looks every so often.
    fn looks(plan: &mut Plan, from: &str, to: &str, every: TimeDelta) -> Vec<String> {
        let (mut now, to, mut due) = (at(from), at(to), Vec::new());
        while now <= to {
            due.extend(plan.due(now).map(|planned| planned.to_rfc3339()));
            now += every;
        }
        due
    }

    #[test]
    fn a_planned_moment_is_due_once_and_exactly() {
        for every in [TimeDelta::milliseconds(997), TimeDelta::seconds(61)] {
            let mut plan = plan("0 0 2 * * *", "UTC", "2026-01-01T01:50:00.3Z");
            let due = looks(
                &mut plan,
                "2026-01-01T01:50:00.3Z",
                "2026-01-01T02:30:00Z",
                every,
            );
            assert_eq!(due, ["2026-01-01T02:00:00+00:00"]);
        }
    }

    #[test]
    fn what_came_before_the_start_is_not_made_up_for() {
        let mut plan = plan("0 0 2 * * *", "UTC", "2026-01-01T02:00:00.5Z");
        assert_eq!(plan.due(at("2026-01-01T02:00:01Z")), None);
    }

    #[test]
    fn missed_moments_are_made_up_for_once() {
        let mut plan = plan("0 0 2 * * *", "UTC", "2026-01-01T01:59:59Z");
        assert_eq!(
            plan.due(at("2026-01-04T11:00:00Z")),
            Some(at("2026-01-04T02:00:00Z"))
        );
        assert_eq!(plan.due(at("2026-01-04T11:00:01Z")), None);
    }

    #[test]
    fn a_clock_that_is_set_back_repeats_nothing() {
        let mut plan = plan("0 0 2 * * *", "UTC", "2026-01-01T01:00:00Z");
        assert!(plan.due(at("2026-01-01T02:00:00Z")).is_some());
        let again = looks(
            &mut plan,
            "2026-01-01T01:30:00Z",
            "2026-01-01T23:00:00Z",
            TimeDelta::seconds(59),
        );
        assert_eq!(again, [""; 0]);
        assert_eq!(
            plan.due(at("2026-01-02T02:00:00Z")),
            Some(at("2026-01-02T02:00:00Z"))
        );
    }

    #[test]
    fn a_clock_that_was_years_ahead_is_not_waited_for() {
        let mut plan = plan("0 0 2 * * *", "UTC", "2026-01-01T01:00:00Z");
        assert!(plan.due(at("2036-01-01T01:00:00Z")).is_some());
        assert_eq!(plan.due(at("2026-01-01T01:30:00Z")), None);
        assert_eq!(
            plan.due(at("2026-01-01T02:00:00Z")),
            Some(at("2026-01-01T02:00:00Z"))
        );
    }

    #[test]
    fn a_change_of_the_clocks_gives_one_run_a_day() {
        // In spring 02:00 is followed by 03:00 (01:00 UTC); in autumn 03:00 by 02:00 (01:00 UTC).
        for (cron, day, planned) in [
            ("0 30 2 * * *", "2026-03-29", "01:00:00"),
            ("0 0 2 * * *", "2026-03-29", "01:00:00"),
            ("0 30 2,14 * * *", "2026-03-29", "01:00:00"),
            ("0 30 2 * * *", "2026-10-25", "00:30:00"),
            ("0 0 2 * * *", "2026-10-25", "00:00:00"),
            ("0 30 2,14 * * *", "2026-10-25", "00:30:00"),
        ] {
            for every in [1, 7, 3607] {
                let mut plan = plan(cron, "Europe/Berlin", &format!("{day}T00:00:00Z"));
                plan.looked -= TimeDelta::seconds(1);
                let (from, to) = (format!("{day}T00:00:00Z"), format!("{day}T04:00:00Z"));
                let due = looks(&mut plan, &from, &to, TimeDelta::seconds(every));
                assert_eq!(
                    due,
                    [format!("{day}T{planned}+00:00")],
                    "{cron}, every {every} s"
                );
            }
        }
    }

    #[test]
    fn a_look_in_the_repeated_hour_sees_all_of_it() {
        let mut plan = plan("0 30 2 * * *", "Europe/Berlin", "2026-10-25T00:10:00Z");
        // 02:10, for the second time.
        assert_eq!(
            plan.due(at("2026-10-25T01:10:00Z")),
            Some(at("2026-10-25T00:30:00Z"))
        );
        assert_eq!(plan.due(at("2026-10-25T01:45:00Z")), None);
    }

    #[test]
    fn rare_and_frequent_schedules_are_found() {
        let mut leap = plan("0 0 0 29 2 *", "UTC", "2023-01-01T00:00:00Z");
        assert_eq!(leap.due(at("2024-02-28T23:59:59Z")), None);
        assert_eq!(
            leap.due(at("2027-06-01T00:00:00Z")),
            Some(at("2024-02-29T00:00:00Z"))
        );
        let mut often = plan("* * * * * *", "Pacific/Apia", "2026-01-01T00:00:00Z");
        let due = looks(
            &mut often,
            "2026-01-01T00:00:01Z",
            "2026-01-01T00:00:10Z",
            TimeDelta::milliseconds(250),
        );
        assert_eq!(due.len(), 10);
        // Samoa left out the 30th of December 2011.
        let mut samoa = plan("0 0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z");
        assert_eq!(
            samoa.due(at("2011-12-31T00:00:00Z")),
            Some(at("2011-12-30T10:00:00Z"))
        );
    }
}
