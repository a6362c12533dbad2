//! Limits on what one user may change among the targets of a kind. None of them holds unless a kind's settings name it.

/// How many changes of one user are accepted: a burst at once, and one more as often as the rate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationRate {
    /// Changes per minute in the long run.
    pub per_minute: u64,
    /// Changes at once.
    pub burst: u64,
}

impl OperationRate {
    /// After how many µs one more is accepted; never more per minute than the rate.
    pub fn interval_us(self) -> u64 {
        60_000_000_u64.div_ceil(self.per_minute)
    }

    /// After how many µs without a change a whole burst is accepted again.
    pub fn burst_us(self) -> u64 {
        self.interval_us() * self.burst
    }
}

/// How long a user must wait before the like of the same target is toggled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToggleCooldown {
    /// Behind the first toggle, in ms; twice as long behind each further one.
    pub first_ms: u64,
    /// At most, in ms; each such time without a toggle takes one of them back.
    pub max_ms: u64,
}

/// The limits of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindLimits {
    /// On a user's changes of any targets.
    pub operations: Option<OperationRate>,
    /// On toggling one target.
    pub toggles: Option<ToggleCooldown>,
}

/// A setting of a kind: its name, and the least and the largest number that it takes.
struct Key(&'static str, u64, u64);

/// They belong together in pairs.
const KEYS: [[Key; 2]; 2] = [
    [
        Key("user_operations_per_minute", 1, 60_000),
        Key("user_operations_burst", 1, 10_000),
    ],
    [
        Key("toggle_cooldown_ms", 1, 3_600_000),
        Key("toggle_cooldown_max_ms", 1, 3_600_000),
    ],
];

impl KindLimits {
    /// The names of the settings.
    pub(super) fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.iter().flatten().map(|key| key.0)
    }

    /// What the settings allow, in words.
    pub(super) fn allowed() -> String {
        let pair = |[one, two]: &[Key; 2]| {
            let Key(one, one_min, one_max) = one;
            let Key(two, two_min, two_max) = two;
            format!("{one} ({one_min} to {one_max}) with {two} ({two_min} to {two_max})")
        };
        KEYS.iter().map(pair).collect::<Vec<_>>().join(", or ")
    }

    /// Reads settings, each `name=number`.
    pub(super) fn parse<'a>(settings: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut values = [[None; 2]; 2];
        for setting in settings {
            let (name, text) = setting.split_once('=').unwrap_or((setting, ""));
            let mut places = values.iter_mut().flatten().zip(KEYS.iter().flatten());
            let (value, Key(_, min, max)) = places
                .find(|(_, key)| key.0 == name)
                .ok_or_else(|| format!("{name:?} is no setting of a kind"))?;
            let number = text.parse().ok().filter(|one| (*min..=*max).contains(one));
            let number = number.ok_or_else(|| format!("{name} is {text:?}, not {min} to {max}"))?;
            if value.replace(number).is_some() {
                return Err(format!("{name} stands there twice"));
            }
        }
        let [operations, toggles] = values;
        let operations = pair(0, operations)?;
        let toggles = pair(1, toggles)?;
        if let Some((first, max)) = toggles.filter(|(first, max)| first > max) {
            return Err(format!(
                "toggle_cooldown_ms is {first}, more than toggle_cooldown_max_ms, which is {max}"
            ));
        }
        Ok(Self {
            operations: operations.map(|(per_minute, burst)| OperationRate { per_minute, burst }),
            toggles: toggles.map(|(first_ms, max_ms)| ToggleCooldown { first_ms, max_ms }),
        })
    }
}

fn pair(at: usize, values: [Option<u64>; 2]) -> Result<Option<(u64, u64)>, String> {
    let [Key(one, ..), Key(two, ..)] = &KEYS[at];
    match values {
        [None, None] => Ok(None),
        [Some(first), Some(second)] => Ok(Some((first, second))),
        [Some(_), None] => Err(format!("{one} is set, and {two} is not")),
        [None, Some(_)] => Err(format!("{two} is set, and {one} is not")),
    }
}
