//! HTTP/1.1 by hand over one keep-alive connection, as little of it as the load needs: the generator shares its cores with what it measures.

use std::io::{self, Error, ErrorKind, Write};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{limits::SERVICE_KEY, pairs::Pair};

const HEADERS_MAX: usize = 16 * 1024;

/// A connection that carries one request at a time.
pub(crate) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: Vec::with_capacity(HEADERS_MAX),
        })
    }

    /// Sends a request and gives back status and body of the answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<(u16, &[u8])> {
        self.stream.write_all(request).await?;
        self.input.clear();
        let head = loop {
            self.fill().await?;
            if let Some(at) = find(&self.input, b"\r\n\r\n") {
                break at + 4;
            }
            if self.input.len() > HEADERS_MAX {
                return Err(Error::new(ErrorKind::InvalidData, "headers without end"));
            }
        };
        let (status, length) = parse_head(&self.input[..head])?;
        while self.input.len() < head + length {
            self.fill().await?;
        }
        Ok((status, &self.input[head..head + length]))
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.input).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

/// Writes the request that likes one target.
pub(crate) fn like(request: &mut Vec<u8>, pair: Pair) {
    request.clear();
    let Pair { user, target } = pair;
    let _ = write!(
        request,
        "PUT /v1/likes/blog/{target} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {SERVICE_KEY}\r\nx-user-id: {user}\r\ncontent-length: 0\r\n\r\n"
    );
}

/// Writes the request that likes many targets.
pub(crate) fn batch(request: &mut Vec<u8>, pairs: impl Iterator<Item = Pair>) {
    let mut body = Vec::with_capacity(8 * 1024);
    body.extend(br#"{"operations":["#);
    for (at, Pair { user, target }) in pairs.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(
            body,
            r#"{comma}{{"op":"like","user":"{user}","kind":"blog","id":"{target}"}}"#
        );
    }
    body.extend(b"]}");
    request.clear();
    let _ = write!(
        request,
        "POST /v1/batch HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {SERVICE_KEY}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    request.extend(body);
}

/// How often a text stands in a body.
pub(crate) fn occurrences(body: &[u8], text: &str) -> u64 {
    std::str::from_utf8(body).map_or(0, |body| body.matches(text).count() as u64)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Status and length of the body. A body without a length is an error: nothing here answers with one.
fn parse_head(head: &[u8]) -> io::Result<(u16, usize)> {
    let wrong = |what| Error::new(ErrorKind::InvalidData, what);
    let head = std::str::from_utf8(head).map_err(|_| wrong("headers are not text"))?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| wrong("no status line"))?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .ok_or_else(|| wrong("no content-length"))?;
    Ok((status, length))
}
