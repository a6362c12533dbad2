//! The trace that a request belongs to (W3C Trace Context): its id goes into the log and back to the caller. thumbd makes no traces
//! and no spans of its own, and calls nobody in the course of a request, so nothing is passed on.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Where a caller gives the trace and its own span.
pub(super) const HEADER: HeaderName = HeaderName::from_static("traceparent");
/// Where the answer repeats the trace, with a number of this request in the place of a span.
pub(super) const ANSWER: HeaderName = HeaderName::from_static("traceresponse");

/// Bytes of what version 00 gives: version, trace, parent, flags, and dashes between them.
const BYTES: usize = 55;

/// The id of a trace, 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Trace([u8; 32]);

impl Trace {
    /// The caller's trace. What is malformed, or given twice, counts as none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(HEADER).iter();
        match (given.next(), given.next()) {
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => None,
        }
    }

    fn parse(given: &[u8]) -> Option<Self> {
        let (known, more) = given.split_at_checked(BYTES)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let mut part = |digits: usize| parts.next().filter(|part| is_hex(part, digits));
        let (version, trace, parent, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // A later version may say more behind another dash.
        let whole = more.is_empty() || version != b"00" && more.starts_with(b"-");
        let is_some = |part: &[u8]| part.iter().any(|digit| *digit != b'0');
        let valid = version != b"ff" && whole && is_some(trace) && is_some(parent);
        let trace = <[u8; 32]>::try_from(trace).ok()?;
        valid.then_some(Self(trace))
    }

    /// 32 hex digits.
    pub(super) fn id(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// What the answer says: the trace, a number of this request, and that thumbd records no span.
    pub(super) fn answer(&self) -> HeaderValue {
        let span = rand::random_range(1..=u64::MAX);
        let value = format!("00-{}-{span:016x}-00", self.id());
        HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("-"))
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

fn is_hex(part: &[u8], digits: usize) -> bool {
    let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    part.len() == digits && part.iter().all(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn given(values: &[&str]) -> Option<Trace> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_str(value).unwrap());
        }
        Trace::of(&headers)
    }

    #[test]
    fn a_valid_trace_is_taken() {
        for value in [
            format!("00-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-00"),
            // A version that nobody knows yet.
            format!("cc-{TRACE}-00f067aa0ba902b7-01"),
            format!("cc-{TRACE}-00f067aa0ba902b7-01-what.comes"),
        ] {
            assert_eq!(given(&[&value]).unwrap().id(), TRACE, "{value}");
        }
    }

    #[test]
    fn what_is_malformed_is_none() {
        let zeros = "0".repeat(32);
        for value in [
            String::new(),
            "-".to_owned(),
            TRACE.to_owned(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("00-{TRACE}-00f067aa0ba902b7-01 "),
            format!("cc-{TRACE}-00f067aa0ba902b7-01what"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-00f067aa0ba902bg-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00_{TRACE}_00f067aa0ba902b7_01"),
            format!("0-{TRACE}0-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(given(&[&value]), None, "{value}");
        }
        let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert_eq!(given(&[&valid, &valid]), None);
        assert_eq!(given(&[]), None);
    }

    #[test]
    fn the_answer_has_the_trace_and_a_span_of_its_own() {
        let trace = given(&[&format!("00-{TRACE}-00f067aa0ba902b7-01")]).unwrap();
        let answers = [trace.answer(), trace.answer()];
        for answer in &answers {
            assert_eq!(
                Trace::parse(answer.as_bytes()),
                Some(trace),
                "{answer:?} is not one itself"
            );
        }
        assert_ne!(answers[0], answers[1]);
        assert!(answers[0].to_str().unwrap().ends_with("-00"));
    }
}
