//! The file as a stream of operations. Each line is read by itself, so that one with an open quote spoils neither its neighbours nor the memory.

use std::io::{self, BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use tokio::sync::mpsc::Sender;

use crate::domain::{Action, Kind, Operation, Target, UserId};

/// Longest line that can hold an operation: two ids in quotes and the op have fewer than 600 bytes.
const LINE_BYTES_MAX: usize = 4096;

/// A line that is neither empty nor the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) number: u64,
    /// What it asks for, or why it cannot be read.
    pub(super) operation: Result<Operation, String>,
}

/// Unpacks what begins like gzip, whatever its name.
pub(super) fn unpacked(input: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let mut input = BufReader::new(input);
    let mut start = Vec::new();
    // A pipe may deliver the first byte alone.
    (&mut input)
        .take(GZIP.len() as u64)
        .read_to_end(&mut start)?;
    let packed = start == GZIP;
    let whole = io::Cursor::new(start).chain(input);
    Ok(if packed {
        Box::new(MultiGzDecoder::new(whole))
    } else {
        Box::new(whole)
    })
}

/// Sends all lines, until nobody takes them any more.
pub(super) fn read(input: impl Read, kind: &Kind, lines: &Sender<Line>) -> io::Result<()> {
    let mut input = BufReader::with_capacity(64 * 1024, input);
    let mut bytes = Vec::new();
    let mut number = 0;
    let mut header_possible = true;
    while next_line(&mut input, &mut bytes)? {
        number += 1;
        if number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let line = bytes.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let fields = fields(line);
        let header = std::mem::take(&mut header_possible) && is_header(&fields);
        if header {
            continue;
        }
        let operation = fields.and_then(|fields| operation(&fields, kind));
        if lines.blocking_send(Line { number, operation }).is_err() {
            break;
        }
    }
    Ok(())
}

/// Reads one line into `bytes`, keeping no more of it than shows that it is too long.
fn next_line(input: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    let limit = LINE_BYTES_MAX as u64 + 1;
    if input.by_ref().take(limit).read_until(b'\n', bytes)? == 0 {
        return Ok(false);
    }
    if bytes.last() != Some(&b'\n') && bytes.len() > LINE_BYTES_MAX {
        input.skip_until(b'\n')?;
    }
    Ok(true)
}

fn fields(line: &[u8]) -> Result<Vec<String>, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(line).map_err(|_| "not valid UTF-8".to_owned())?;
    if !text.contains('"') {
        return Ok(text
            .split(',')
            .map(|field| field.trim().to_owned())
            .collect());
    }
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .buffer_capacity(line.len())
        .trim(csv::Trim::All)
        .from_reader(line);
    let mut record = csv::StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(_) => Ok(record.iter().map(str::to_owned).collect()),
        Err(error) => Err(error.to_string()),
    }
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
        let input = unpacked(io::Cursor::new(bytes.to_vec())).unwrap();
        read(input, &Kind::parse("blog").unwrap(), &sender).unwrap();
        let mut lines = Vec::new();
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
            lines.push((line.number, text));
        }
        lines
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
        let input = unpacked(io::Cursor::new(vec![0x1f, 0x8b, 8, 0])).unwrap();
        assert!(read(input, &Kind::parse("blog").unwrap(), &sender).is_err());
    }
}
