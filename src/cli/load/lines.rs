//! The file as a stream of operations.

use std::io::{self, Read};

use tokio::sync::mpsc::Sender;

use crate::cli::lines;
use crate::domain::{Action, Kind, Operation, Target, UserId};

/// A line that is neither empty nor the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) number: u64,
    /// What it asks for, or why it cannot be read.
    pub(super) operation: Result<Operation, String>,
}

/// Sends all lines, until nobody takes them any more.
pub(super) fn read(input: impl Read, kind: &Kind, sender: &Sender<Line>) -> io::Result<()> {
    let mut header_possible = true;
    lines::each(input, |number, fields| {
        let header = std::mem::take(&mut header_possible) && is_header(&fields);
        if header {
            return true;
        }
        let operation = fields.and_then(|fields| operation(&fields, kind));
        sender.blocking_send(Line { number, operation }).is_ok()
    })
}

fn is_header(fields: &Result<Vec<String>, String>) -> bool {
    let Ok(fields) = fields else { return false };
    let names = ["user", "target", "op"];
    (2..=3).contains(&fields.len())
        && fields
            .iter()
            .zip(names)
            .all(|(field, name)| field.eq_ignore_ascii_case(name))
}

fn operation(fields: &[String], kind: &Kind) -> Result<Operation, String> {
    let (user, target, op) = match fields {
        [user, target] => (user, target, "like"),
        [user, target, op] => (
            user,
            target,
            if op.is_empty() { "like" } else { op.as_str() },
        ),
        _ => {
            return Err(format!(
                "has {} fields, not user,target or user,target,op",
                fields.len()
            ));
        }
    };
    let action = match op {
        "like" => Action::Thumb,
        "unlike" => Action::Unthumb,
        _ => return Err("op is neither like nor unlike".to_owned()),
    };
    let user = UserId::parse(user.as_str()).map_err(|error| error.to_string())?;
    let target = Target::new(kind, target).map_err(|error| error.to_string())?;
    Ok(Operation {
        user,
        target,
        action,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Vec<(u64, String)> {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(100);
        let input = lines::unpacked(io::Cursor::new(bytes.to_vec())).unwrap();
        super::read(input, &Kind::parse("blog").unwrap(), &sender).unwrap();
        let mut read = Vec::new();
        while let Ok(line) = receiver.try_recv() {
            let text = match line.operation {
                Ok(operation) => format!(
                    "{} {} {}",
                    operation.user,
                    operation.target,
                    operation.action.thumbed()
                ),
                Err(problem) => problem,
            };
            read.push((line.number, text));
        }
        read
    }

    #[test]
    fn headers_blank_lines_and_line_ends_are_no_operations() {
        let lines =
            read_all(b"\xef\xbb\xbfUser,Target,Op\r\n\r\nu1, 42\r\nuser,target\nu2,7,unlike");
        let texts = [
            "u1 blog:42 true",
            "user blog:target true",
            "u2 blog:7 false",
        ];
        assert_eq!(
            lines,
            [
                (3, texts[0].into()),
                (4, texts[1].into()),
                (5, texts[2].into())
            ]
        );
        assert_eq!(read_all(b""), []);
        assert_eq!(read_all(b"u,1").len(), 1);
    }

    #[test]
    fn quotes_hold_commas_and_an_open_one_spoils_only_its_line() {
        let lines = read_all(b"\"a,b\",\"x\"\"y\"\n\"open,1\nu,2\n");
        assert_eq!(lines[0], (1, "a,b blog:x\"y true".into()));
        assert_eq!(
            lines[1],
            (2, "has 1 fields, not user,target or user,target,op".into())
        );
        assert_eq!(lines[2], (3, "u blog:2 true".into()));
    }

    #[test]
    fn bad_lines_keep_their_number_and_say_what_is_wrong() {
        let long = "x".repeat(1_000_000);
        let text = format!("u\nu,1,love\n,1\nu,a b\n{long}\nu,..\n");
        let mut bytes = text.into_bytes();
        bytes.extend(b"\xff,1\nu,1\n");
        let lines = read_all(&bytes);
        insta::assert_debug_snapshot!(lines);
    }

    #[test]
    fn a_damaged_gzip_is_an_error() {
        let (sender, _receiver) = tokio::sync::mpsc::channel(100);
        let input = lines::unpacked(io::Cursor::new(vec![0x1f, 0x8b, 8, 0])).unwrap();
        assert!(read(input, &Kind::parse("blog").unwrap(), &sender).is_err());
    }
}
