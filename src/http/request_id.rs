//! The name of a request, by which an answer and a line of the log find each other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Where a caller gives it and the answer repeats it.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const BYTES_MAX: usize = 128;

/// The caller's own id if it is well-formed, otherwise a new one: what is not printable ASCII could forge lines of a log.
pub(super) fn of(headers: &HeaderMap) -> HeaderValue {
    match headers.get(HEADER) {
        Some(value) if well_formed(value.as_bytes()) => value.clone(),
        _ => new(),
    }
}

fn well_formed(id: &[u8]) -> bool {
    (1..=BYTES_MAX).contains(&id.len())
        && id
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
}

/// A random number of this process, and a count.
fn new() -> HeaderValue {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let process = PROCESS.get_or_init(rand::random);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 32];
    for (bytes, number) in id.chunks_exact_mut(16).zip([*process, count]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15];
        }
    }
    HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(id: &'static str) -> HeaderValue {
        of(&HeaderMap::from_iter([(
            HEADER,
            HeaderValue::from_static(id),
        )]))
    }

    #[test]
    fn a_well_formed_id_is_kept() {
        assert_eq!(given("abc-1:2/3"), "abc-1:2/3");
    }

    #[test]
    fn others_are_replaced_by_ones_that_differ() {
        for id in ["", "a b", "a\"b", "a,b"] {
            assert_ne!(given(id), id);
        }
        let (one, two) = (of(&HeaderMap::new()), of(&HeaderMap::new()));
        assert_ne!(one, two);
        assert!(well_formed(one.as_bytes()) && one.len() == 32);
    }
}
