//! A line of a file of likes: `user,target[,time[,kind]]`, or what a header says.

use chrono::DateTime;

use crate::config::Kinds;
use crate::domain::{Kind, Target, UserId, Version};

/// What a line may hold, in the order in which it does without a header.
const COLUMNS: [&str; 4] = ["user", "target", "time", "kind"];
/// Numbers below this are seconds: until the year 5138. Those below a thousand times as much are milliseconds, others microseconds.
const SECONDS_MAX: f64 = 1e11;

/// Somebody liked something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Like {
    /// Who.
    pub user: UserId,
    /// What.
    pub target: Target,
    /// When; the oldest there is if nobody knows.
    pub version: Version,
}

/// A line that is neither empty nor a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: u64,
    /// What it says, or why it cannot be taken.
    pub like: Result<Like, String>,
}

/// Turns fields into likes.
#[derive(Debug, Clone)]
pub struct LineReader {
    kind: Option<Kind>,
    kinds: Kinds,
    /// The first line is a header, whatever it says.
    header: bool,
    first: bool,
    /// Where each of the columns stands.
    places: [Option<usize>; 4],
}

/// The version of a like whose time nobody knows: any other wins over it.
const OLDEST: Version = Version(1);

impl LineReader {
    /// A reader of likes of one kind, or of a file that names the kind in each line; only these kinds are taken.
    pub fn new(kind: Option<Kind>, kinds: Kinds, header: bool) -> Self {
        let column = kind.is_none().then_some(3);
        Self {
            kind,
            kinds,
            header,
            first: true,
            places: [Some(0), Some(1), Some(2), column],
        }
    }

    /// Reads the fields of the next line; `None` if it is the header.
    pub fn read(&mut self, fields: Result<Vec<String>, String>) -> Option<Result<Like, String>> {
        let first = std::mem::take(&mut self.first);
        match fields {
            Ok(fields) if first && self.is_header(&fields) => match self.take_header(&fields) {
                Ok(()) => None,
                Err(problem) => Some(Err(problem)),
            },
            Ok(_) if first && self.header => None,
            Ok(fields) => Some(self.like(&fields)),
            Err(problem) => Some(Err(problem)),
        }
    }

    fn is_header(&self, fields: &[String]) -> bool {
        let has = |name: &str| fields.iter().any(|field| field.eq_ignore_ascii_case(name));
        has("user") && has("target")
    }

    fn take_header(&mut self, fields: &[String]) -> Result<(), String> {
        let mut places = [None; 4];
        for (at, field) in fields.iter().enumerate() {
            let column = COLUMNS
                .iter()
                .position(|name| field.eq_ignore_ascii_case(name))
                .ok_or_else(|| {
                    format!(
                        "the header has a column {field:?}, not one of {}",
                        COLUMNS.join(", ")
                    )
                })?;
            if places[column].replace(at).is_some() {
                return Err(format!("the header has the column {field:?} twice"));
            }
        }
        match (&self.kind, places[3]) {
            (Some(_), Some(_)) => Err("the file names the kinds itself: leave out --kind".into()),
            (None, None) => Err("the file has no column kind: give --kind".into()),
            _ => {
                self.places = places;
                Ok(())
            }
        }
    }

    fn like(&self, fields: &[String]) -> Result<Like, String> {
        let last = self.places.iter().flatten().max().copied().unwrap_or(0);
        let time_only = self.kind.is_some() && self.places[2] == Some(last);
        let enough = if time_only { last } else { last + 1 };
        if !(enough..=last + 1).contains(&fields.len()) {
            let help = match self.kind {
                // More likely than a missing field.
                None if matches!(fields.len(), 2 | 3) => "; where all are of one kind, give --kind",
                _ => "",
            };
            return Err(format!(
                "has {} fields, not {}{help}",
                fields.len(),
                self.wanted()
            ));
        }
        let field = |column: usize| {
            let at = self.places[column];
            at.and_then(|at| fields.get(at)).map_or("", String::as_str)
        };
        let named;
        let kind = match &self.kind {
            Some(kind) => kind,
            None => {
                named = Kind::parse(field(3)).map_err(|error| error.to_string())?;
                &named
            }
        };
        if !self.kinds.allows(kind) {
            return Err(format!(
                "kind {kind} is not among the kinds in the settings"
            ));
        }
        Ok(Like {
            user: UserId::parse(field(0)).map_err(|error| error.to_string())?,
            target: Target::new(kind, field(1)).map_err(|error| format!("target: {error}"))?,
            version: time(field(2)).map_err(|problem| format!("time {:?} {problem}", field(2)))?,
        })
    }

    fn wanted(&self) -> String {
        let mut placed: Vec<(usize, &str)> = self
            .places
            .iter()
            .zip(COLUMNS)
            .filter_map(|(place, name)| Some(((*place)?, name)))
            .collect();
        placed.sort_unstable();
        let names: Vec<&str> = placed.iter().map(|(_, name)| *name).collect();
        match names[..] {
            [.., "time"] if self.kind.is_some() => {
                format!("{}[,time]", names[..names.len() - 1].join(","))
            }
            _ => names.join(","),
        }
    }
}

/// RFC 3339, or a number since 1970 in seconds (with or without a fraction), milliseconds or microseconds, by its size.
fn time(text: &str) -> Result<Version, &'static str> {
    if text.is_empty() {
        return Ok(OLDEST);
    }
    let micros = if text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.')) {
        number(text)?
    } else {
        match DateTime::parse_from_rfc3339(text) {
            Ok(time) => time.timestamp_micros(),
            Err(_)
                if chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").is_ok() =>
            {
                return Err("has no time zone: add Z if it is UTC, or give UNIX_TIMESTAMP(…)");
            }
            Err(_) => return Err("is neither RFC 3339 nor a number since 1970"),
        }
    };
    match u64::try_from(micros) {
        Ok(micros) => Ok(Version(micros.max(OLDEST.0))),
        Err(_) => Err("is before 1970"),
    }
}

fn number(text: &str) -> Result<i64, &'static str> {
    let value: f64 = text.parse().map_err(|_| "is no number")?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().map_err(|_| "is too large")?;
    if value >= SECONDS_MAX * 1000.0 {
        return Ok(whole);
    }
    if value >= SECONDS_MAX {
        return Ok(whole * 1000);
    }
    let mut digits: String = fraction.chars().take(6).collect();
    while digits.len() < 6 {
        digits.push('0');
    }
    let micros: i64 = digits.parse().map_err(|_| "is no number")?;
    Ok(whole * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Kind;

    fn reader(kind: Option<&str>, header: bool) -> LineReader {
        let kind = kind.map(|kind| Kind::parse(kind).unwrap());
        LineReader::new(kind, Kinds::any(), header)
    }

    fn read(reader: &mut LineReader, line: &str) -> Option<Result<String, String>> {
        let fields = line.split(',').map(str::to_owned).collect();
        let like = reader.read(Ok(fields))?;
        Some(like.map(|like| format!("{} {} {}", like.user, like.target, like.version)))
    }

    fn right(text: &str) -> Option<Result<String, String>> {
        Some(Ok(text.to_owned()))
    }

    #[test]
    fn times_are_rfc_3339_or_numbers_by_their_size() {
        let micros = Version(1_700_000_000_123_456);
        for text in [
            "2023-11-14T22:13:20.123456Z",
            "2023-11-14 23:13:20.123456+01:00",
            "1700000000.123456",
            "1700000000.1234567",
            "1700000000123456",
        ] {
            assert_eq!(time(text), Ok(micros), "{text}");
        }
        assert_eq!(time("1700000000"), Ok(Version(1_700_000_000_000_000)));
        assert_eq!(time("1700000000123"), Ok(Version(1_700_000_000_123_000)));
        assert_eq!((time(""), time("0")), (Ok(OLDEST), Ok(OLDEST)));
        for (text, part) in [
            ("2023-11-14 22:13:20", "no time zone"),
            ("yesterday", "neither"),
            ("1969-01-01T00:00:00Z", "before 1970"),
            ("-5", "neither"),
            ("1.2.3", "no number"),
            ("99999999999999999999999", "too large"),
            (".", "no number"),
        ] {
            let problem = time(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn a_header_says_where_what_stands() {
        let mut lines = reader(Some("blog"), false);
        assert_eq!(read(&mut lines, "Time,Target,User"), None);
        assert_eq!(read(&mut lines, "5,42,u1"), right("u1 blog:42 5000000"));
        // Only the first line can be one.
        assert_eq!(
            read(&mut lines, "7,target,user"),
            right("user blog:target 7000000")
        );
        let mut lines = reader(None, false);
        assert_eq!(read(&mut lines, "user,target,time,kind"), None);
        assert_eq!(read(&mut lines, "u1,42,,photo"), right("u1 photo:42 1"));
        let mut lines = reader(Some("blog"), true);
        assert_eq!(read(&mut lines, "uid,post"), None);
        assert_eq!(read(&mut lines, "u1,42"), right("u1 blog:42 1"));
        assert_eq!(read(&mut lines, "u1,42,3"), right("u1 blog:42 3000000"));
    }

    #[test]
    fn what_is_wrong_is_named_with_field_and_limit() {
        let long = "x".repeat(129);
        for (line, kind, part) in [
            (
                format!("{long},1"),
                Some("blog"),
                "user must have 1 to 128 bytes, this one has 129",
            ),
            (
                "u1,a b".into(),
                Some("blog"),
                "target: id must be printable ASCII",
            ),
            ("u1,1,soon".into(), Some("blog"), "time \"soon\" is neither"),
            (
                "u1".into(),
                Some("blog"),
                "has 1 fields, not user,target[,time]",
            ),
            (
                "u1,1,2,3".into(),
                Some("blog"),
                "has 4 fields, not user,target[,time]",
            ),
            (
                "u1,1,2".into(),
                None,
                "has 3 fields, not user,target,time,kind; where all are of one kind, give --kind",
            ),
            ("u1,1,2,Blog".into(), None, "kind must begin with a-z"),
            ("user,target,kind".into(), Some("blog"), "leave out --kind"),
            ("user,target".into(), None, "give --kind"),
            (
                "user,target,colour".into(),
                Some("blog"),
                "a column \"colour\"",
            ),
            ("user,target,user".into(), Some("blog"), "twice"),
        ] {
            let problem = read(&mut reader(kind, false), &line).unwrap().unwrap_err();
            assert!(problem.contains(part), "{line}: {problem}");
        }
        let only = Kinds::only([Kind::parse("photo").unwrap()]);
        let mut lines = LineReader::new(None, only, false);
        let problem = read(&mut lines, "u1,1,2,blog").unwrap().unwrap_err();
        assert!(problem.contains("not among"), "{problem}");
    }
}
