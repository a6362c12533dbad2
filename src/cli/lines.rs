//! Files of lines with fields: CSV, packed or not. Each line is read by itself, so that one with an open quote spoils neither its
//! neighbours nor the memory.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use anyhow::Context as _;
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

/// Longest line that can hold what is wanted: two ids in quotes and a word have fewer than 600 bytes.
const LINE_BYTES_MAX: usize = 4096;

/// The file, unpacked if need be, and the bar that follows it; `-` is standard input.
pub(super) fn open(file: &str) -> anyhow::Result<(Box<dyn Read + Send>, ProgressBar)> {
    if file == "-" {
        let progress = ProgressBar::new_spinner()
            .with_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}")?);
        progress.enable_steady_tick(Duration::from_millis(200));
        return Ok((unpacked(std::io::stdin())?, progress));
    }
    let opened = std::fs::File::open(file).with_context(|| format!("{file} cannot be opened"))?;
    let metadata = opened
        .metadata()
        .with_context(|| format!("{file} cannot be looked at"))?;
    anyhow::ensure!(!metadata.is_dir(), "{file} is a directory");
    let style = ProgressStyle::with_template(
        "{bar:30} {percent:>3} % of the file, {elapsed}, {eta} left, {msg}",
    )?;
    let progress = ProgressBar::new(metadata.len()).with_style(style);
    let input =
        unpacked(progress.wrap_read(opened)).with_context(|| format!("{file} cannot be read"))?;
    Ok((input, progress))
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

/// Hands on the fields of each line that is not empty, with its number from 1, until nobody wants more.
pub(super) fn each(
    input: impl Read,
    mut take: impl FnMut(u64, Result<Vec<String>, String>) -> bool,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(64 * 1024, input);
    let mut bytes = Vec::new();
    let mut number = 0;
    while next_line(&mut input, &mut bytes)? {
        number += 1;
        if number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let line = bytes.trim_ascii();
        if !line.is_empty() && !take(number, fields(line)) {
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
