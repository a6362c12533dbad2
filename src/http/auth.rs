//! Who may say what: the service key lets a caller name users, the admin token opens the admin calls.

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq as _;

use super::problem::Problem;
use crate::config::{Secret, Settings};

/// The keys of this process. Where one is not set, as in `dev` on a loopback address, its door is open.
pub(super) struct Keys {
    service: Option<Secret>,
    admin: Option<Secret>,
    read_requires_key: bool,
}

impl Keys {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            service: settings.service_key.clone(),
            admin: settings.admin_token.clone(),
            read_requires_key: settings.read_requires_key,
        }
    }

    /// For whoever names users.
    pub(super) fn check_service(&self, headers: &HeaderMap) -> Result<(), Problem> {
        check(self.service.as_ref(), headers, "the service key")
    }

    /// For reads that name no user.
    pub(super) fn check_read(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.read_requires_key {
            self.check_service(headers)
        } else {
            Ok(())
        }
    }

    /// Whether everybody may read what names no user.
    pub(super) fn reads_are_public(&self) -> bool {
        !self.read_requires_key
    }

    /// For admin calls.
    pub(super) fn check_admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        check(self.admin.as_ref(), headers, "the admin token")
    }
}

fn check(key: Option<&Secret>, headers: &HeaderMap, name: &str) -> Result<(), Problem> {
    match key {
        Some(key) if !bearer(headers).is_some_and(|given| same(key, given)) => {
            Err(Problem::unauthorized(name))
        }
        _ => Ok(()),
    }
}

/// The one bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    let one = values.next().is_none() && scheme.eq_ignore_ascii_case(b"bearer ");
    one.then(|| token.trim_ascii())
}

/// Takes the same time whatever is given: a text of another length is not compared, but the key with itself.
fn same(key: &Secret, given: &[u8]) -> bool {
    let key = key.expose().as_bytes();
    let same_length = key.len() == given.len();
    let compared = if same_length { given } else { key };
    bool::from(key.ct_eq(compared)) & same_length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(read_requires_key: bool) -> Keys {
        Keys::new(&Settings {
            service_key: Some(Secret::new("service-key")),
            admin_token: Some(Secret::new("admin-token")),
            read_requires_key,
            ..Settings::default()
        })
    }

    fn with(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_the_right_key_opens_its_door() {
        let keys = keys(true);
        for right in ["Bearer service-key", "bearer service-key"] {
            assert!(keys.check_service(&with(&[right])).is_ok());
            assert!(keys.check_read(&with(&[right])).is_ok());
            assert!(keys.check_admin(&with(&[right])).is_err());
        }
        assert!(keys.check_admin(&with(&["Bearer admin-token"])).is_ok());
        assert!(keys.check_service(&with(&["Bearer admin-token"])).is_err());
    }

    #[test]
    fn everything_else_is_refused() {
        let keys = keys(true);
        let wrong: [&[&'static str]; 8] = [
            &[],
            &["Bearer"],
            &["Bearer "],
            &["service-key"],
            &["Basic service-key"],
            &["Bearer service-ke"],
            &["Bearer service-key2"],
            &["Bearer service-key", "Bearer service-key"],
        ];
        for values in wrong {
            assert!(keys.check_service(&with(values)).is_err(), "{values:?}");
            assert!(keys.check_read(&with(values)).is_err(), "{values:?}");
        }
    }

    #[test]
    fn reads_are_public_unless_told_otherwise_and_without_keys_all_is_open() {
        assert!(keys(false).check_read(&HeaderMap::new()).is_ok());
        let open = Keys::new(&Settings::default());
        assert!(open.check_service(&HeaderMap::new()).is_ok());
        assert!(open.check_admin(&HeaderMap::new()).is_ok());
    }
}
