//! The search for an order of one pair's operations, after Wing and Gong, event by event.
//!
//! A configuration is a state, and which of the operations under way have taken effect already. When an operation ends, those
//! configurations go on in which it can have taken effect by now, after any others under way. Unknown ones of one direction are all
//! alike: it is enough to know how many of them were used, the oldest first, and using fewer is never worse.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Call, Event, Told};

/// Operations under way at once on one pair: bits of a mask.
const UNDER_WAY_MAX: usize = 64;
/// Events that a failure shows.
const SHOWN: usize = 12;

/// What could be true of a pair, and from when on.
pub(super) struct Possible(Vec<(Duration, [bool; 2])>);

impl Possible {
    /// The least and the greatest state between two moments.
    pub(super) fn between(&self, start: Duration, end: Duration) -> (bool, bool) {
        let first = self.0.partition_point(|(from, _)| *from <= start) - 1;
        let mut states = [false; 2];
        for (_, could) in self.0[first..].iter().take_while(|(from, _)| *from <= end) {
            states = [states[0] | could[0], states[1] | could[1]];
        }
        (!states[0], states[1])
    }
}

/// State, and who has taken effect; each with the numbers of unknown unlikes and likes that are used up.
type Configurations = HashMap<(bool, u64), Vec<[usize; 2]>>;

/// What happens at a moment; of one moment, starts come before ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Start(usize),
    End(usize),
    /// An unknown outcome of this direction is settled.
    Settled(usize),
}

struct Search<'a> {
    events: &'a [&'a Event],
    configurations: Configurations,
    /// Which operation has which bit.
    under_way: [Option<usize>; UNDER_WAY_MAX],
    /// Unknown unlikes and likes that have started, and that are settled.
    started: [usize; 2],
    settled: [usize; 2],
}

/// What could be true of the pair when, if there is an order that ends in the row.
pub(super) fn order(events: &[&Event], row: bool, settled: Duration) -> Result<Possible, String> {
    let mut moments = Vec::new();
    for (at, event) in events.iter().enumerate() {
        match (event.call, event.told) {
            (_, Told::Refused) | (Call::Read, Told::Unknown | Told::Seen { liked: None, .. }) => {}
            (call, Told::Unknown) => {
                moments.push((event.start, Moment::Start(at)));
                let direction = usize::from(call == Call::Like);
                moments.push((event.start + settled, Moment::Settled(direction)));
            }
            _ => {
                moments.push((event.start, Moment::Start(at)));
                moments.push((event.end, Moment::End(at)));
            }
        }
    }
    moments.sort_unstable();
    let mut search = Search {
        events,
        configurations: HashMap::from([((false, 0), vec![[0, 0]])]),
        under_way: [None; UNDER_WAY_MAX],
        started: [0; 2],
        settled: [0; 2],
    };
    let mut possible = vec![(Duration::ZERO, [true, false])];
    for (time, moment) in moments {
        search.step(moment);
        if search.configurations.is_empty() {
            return Err(search.no_order(time));
        }
        possible.push((time, search.states()));
    }
    if !search.states()[usize::from(row)] {
        let last = events.iter().map(|event| event.end).max();
        let shown = search.no_order(last.unwrap_or_default());
        return Err(format!("the row says {row}: {shown}"));
    }
    Ok(Possible(possible))
}

impl Search<'_> {
    fn step(&mut self, moment: Moment) {
        match moment {
            Moment::Start(at) if self.events[at].told == Told::Unknown => {
                self.started[usize::from(self.events[at].call == Call::Like)] += 1;
            }
            Moment::Start(at) => {
                let free = self.under_way.iter().position(Option::is_none);
                self.under_way[free.expect("few are under way at once")] = Some(at);
            }
            Moment::End(at) => {
                let bit = self.under_way.iter().position(|one| *one == Some(at));
                let bit = bit.expect("it has started");
                let mut ended = Configurations::new();
                for ((state, mask), used) in self.closure() {
                    if mask >> bit & 1 == 1 {
                        for used in used {
                            keep(&mut ended, (state, mask & !(1 << bit)), used);
                        }
                    }
                }
                self.configurations = ended;
                self.under_way[bit] = None;
            }
            Moment::Settled(direction) => {
                // Whatever may happen until now can have happened: the last chance to use the oldest.
                let closure = self.closure();
                self.settled[direction] += 1;
                let mut settled = Configurations::new();
                for (key, all) in closure {
                    for mut used in all {
                        used[direction] = used[direction].max(self.settled[direction]);
                        keep(&mut settled, key, used);
                    }
                }
                self.configurations = settled;
            }
        }
    }

    /// All that can have come about by now, as far as it matters.
    fn closure(&self) -> Configurations {
        let mut all = Configurations::new();
        let mut open = Vec::new();
        for ((state, mask), used) in &self.configurations {
            let key = (*state, self.settle(*state, *mask));
            for used in used {
                if keep(&mut all, key, *used) {
                    open.push((key, *used));
                }
            }
        }
        while let Some(((state, mask), used)) = open.pop() {
            let mut reach = |mask, used| {
                let key = (!state, self.settle(!state, mask));
                if keep(&mut all, key, used) {
                    open.push((key, used));
                }
            };
            // Those that change the state so are all alike: the one that ends first is the most urgent.
            let next = self
                .open(mask)
                .filter(|(_, event)| after(event, state) == Some(!state))
                .min_by_key(|(_, event)| event.end);
            if let Some((bit, _)) = next {
                reach(mask | 1 << bit, used);
            }
            // An unknown one that changes nothing need not be used.
            let direction = usize::from(!state);
            if used[direction] < self.started[direction] {
                let mut used = used;
                used[direction] += 1;
                reach(mask, used);
            }
        }
        all
    }

    /// Lets all take effect that change nothing in this state: waiting is never better.
    fn settle(&self, state: bool, mask: u64) -> u64 {
        self.open(mask)
            .filter(|(_, event)| after(event, state) == Some(state))
            .fold(mask, |mask, (bit, _)| mask | 1 << bit)
    }

    /// Operations under way that have not taken effect.
    fn open(&self, mask: u64) -> impl Iterator<Item = (usize, &Event)> {
        let bits = self.under_way.iter().enumerate();
        bits.filter_map(move |(bit, at)| {
            let at = at.filter(|_| mask >> bit & 1 == 0)?;
            Some((bit, self.events[at]))
        })
    }

    /// Whether "not liked" and "liked" are possible now.
    fn states(&self) -> [bool; 2] {
        let mut states = [false; 2];
        for (state, _) in self.closure().into_keys() {
            states[usize::from(state)] = true;
        }
        states
    }

    fn no_order(&self, time: Duration) -> String {
        let mut before: Vec<_> = self.events.iter().filter(|one| one.start <= time).collect();
        before.sort_by_key(|one| one.end);
        let shown: BTreeMap<_, _> = before[before.len().saturating_sub(SHOWN)..]
            .iter()
            .map(|one| (one.start, (one.end, one.call, one.told)))
            .collect();
        format!("no order gives these answers up to {time:?}: {shown:#?}")
    }
}

/// The state after an operation that takes effect in this one, if its answer fits.
fn after(event: &Event, state: bool) -> Option<bool> {
    match (event.call, event.told) {
        (Call::Read, Told::Seen { liked, .. }) => liked.filter(|liked| *liked == state),
        (call, Told::Done { changed, .. }) => {
            let wanted = call == Call::Like;
            (changed == (state != wanted)).then_some(wanted)
        }
        (_, told) => unreachable!("{told:?}"),
    }
}

/// Adds a configuration unless one that has used no more is there.
fn keep(all: &mut Configurations, key: (bool, u64), used: [usize; 2]) -> bool {
    let known = all.entry(key).or_default();
    let as_good = |one: &[usize; 2], other: &[usize; 2]| one[0] <= other[0] && one[1] <= other[1];
    if known.iter().any(|one| as_good(one, &used)) {
        return false;
    }
    known.retain(|one| !as_good(&used, one));
    known.push(used);
    true
}
