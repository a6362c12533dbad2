//! Who may do what. A caller is whoever holds a key, a user by a token, or anyone; what each may do is decided here and nowhere else.

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq as _;

use super::problem::Problem;
use super::subject::USER;
use crate::auth::{NamedKey, Right, TokenKeys, TokenRules, digest};
use crate::config::{Secret, Settings, Visibility};
use crate::domain::UserId;

/// The keys of this process.
pub(super) struct Keys {
    service: Option<Secret>,
    admin: Option<Secret>,
    named: Vec<NamedKey>,
    tokens: Option<TokenKeys>,
    rules: TokenRules,
    open: Open,
}

/// What anyone may do. Where there are no keys, as in `dev` on a loopback address, the doors are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Open {
    /// Reads that name no user.
    read: bool,
    /// Reads and writes as any user.
    write: bool,
    admin: bool,
}

/// Who asks.
#[derive(Debug)]
pub(super) enum Caller<'a> {
    /// Without a key.
    Anyone(Open),
    /// The site's back end, by the service key.
    Service,
    /// By the admin token.
    Admin,
    /// By a named key.
    Named(&'a NamedKey),
    /// A user, by a token.
    User(UserId),
}

impl Keys {
    pub(super) fn new(settings: &Settings) -> Self {
        let tokens = [&settings.jwt_secret, &settings.jwt_keys];
        let write = settings.service_key.is_none() && !settings.names_writers();
        Self {
            service: settings.service_key.clone(),
            admin: settings.admin_token.clone(),
            named: settings.keys.clone(),
            tokens: tokens
                .into_iter()
                .flatten()
                .cloned()
                .reduce(TokenKeys::join),
            rules: TokenRules {
                issuer: settings.jwt_issuer.clone(),
                audience: settings.jwt_audience.clone(),
                leeway_seconds: settings.jwt_leeway_seconds,
            },
            open: Open {
                read: write || !settings.read_requires_key,
                write,
                admin: settings.admin_token.is_none() && !settings.names_admins(),
            },
        }
    }

    /// Whether everybody may read what names no user.
    pub(super) fn reads_are_public(&self) -> bool {
        self.open.read
    }

    /// Who asks. Whoever shows something that is no key here is refused, also where none is needed: it may have expired.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller<'_>, Problem> {
        if !headers.contains_key(header::AUTHORIZATION) {
            return Ok(Caller::Anyone(self.open));
        }
        match bearer(headers).and_then(|token| self.holder(token)) {
            Some(caller) => Ok(caller),
            None if self.open.write => Ok(Caller::Anyone(self.open)),
            None => Err(Problem::unauthorized("a key or a token that is valid")),
        }
    }

    fn holder(&self, token: &[u8]) -> Option<Caller<'_>> {
        let is = |key: &Option<Secret>| key.as_ref().is_some_and(|key| same(key, token));
        if is(&self.service) {
            return Some(Caller::Service);
        }
        if is(&self.admin) {
            return Some(Caller::Admin);
        }
        if !self.named.is_empty() {
            let digest = digest(token);
            if let Some(key) = self.named.iter().find(|key| key.is(&digest)) {
                return Some(Caller::Named(key));
            }
        }
        let text = str::from_utf8(token).ok()?;
        let user = self.tokens.as_ref()?.user(&self.rules, text)?;
        Some(Caller::User(user))
    }
}

impl Caller<'_> {
    /// Whether it may like and unlike at all.
    pub(super) fn check_write(&self) -> Result<(), Problem> {
        match self {
            Self::Anyone(Open { write: true, .. }) | Self::Service | Self::User(_) => Ok(()),
            Self::Anyone(_) => Err(Problem::unauthorized(
                "the service key or the token of a user",
            )),
            Self::Named(key) if key.has(Right::Write) => Ok(()),
            Self::Named(_) | Self::Admin => Err(Problem::forbidden("this key may not write")),
        }
    }

    /// Whether it may read at all.
    pub(super) fn check_read(&self) -> Result<(), Problem> {
        match self {
            Self::Anyone(Open { read: true, .. }) | Self::Service | Self::User(_) => Ok(()),
            Self::Anyone(_) => Err(Problem::unauthorized("a key, or the token of a user")),
            Self::Named(key) if key.has(Right::Read) => Ok(()),
            Self::Named(_) | Self::Admin => Err(Problem::forbidden("this key may not read")),
        }
    }

    /// Whether it may list its own likes; of which user and kind is asked for apart.
    pub(super) fn check_list_own(&self) -> Result<(), Problem> {
        match self {
            Self::Anyone(Open { write: false, .. }) => Err(Problem::unauthorized(
                "the service key or the token of the user",
            )),
            _ => self.check_read(),
        }
    }

    /// Whether it may list likes of this kind, or of all.
    pub(super) fn check_listed_kind(&self, kind: Option<&str>) -> Result<(), Problem> {
        match (self, kind) {
            (_, Some(kind)) => self.check_kind(kind),
            (Self::Named(key), None) if !key.covers_all() => {
                let detail = "this key is for some kinds alone, so the list must be of one";
                Err(Problem::forbidden(detail).at("kind"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it may have to do with all kinds at once.
    pub(super) fn check_all_kinds(&self) -> Result<(), Problem> {
        match self {
            Self::Named(key) if !key.covers_all() => {
                Err(Problem::forbidden("this key is for some kinds alone"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it may make admin calls.
    pub(super) fn check_admin(&self) -> Result<(), Problem> {
        match self {
            Self::Anyone(Open { admin: true, .. }) | Self::Admin => Ok(()),
            Self::Named(key) if key.has(Right::Admin) => Ok(()),
            Self::Anyone(_) => Err(Problem::unauthorized("the admin token")),
            _ => Err(Problem::forbidden("only the admin token opens admin calls")),
        }
    }

    /// Whether it may have to do with this kind.
    pub(super) fn check_kind(&self, kind: &str) -> Result<(), Problem> {
        match self {
            Self::Named(key) if !key.covers(kind) => {
                let detail = format!("this key is not for the kind {kind}");
                Err(Problem::forbidden(detail).at("kind"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it may name this user, in `field`.
    pub(super) fn check_user(&self, named: &UserId, field: &'static str) -> Result<(), Problem> {
        match self {
            Self::User(user) if user != named => {
                let detail = "the token of a user is good for this user alone";
                Err(Problem::forbidden(detail).at(field))
            }
            Self::Anyone(Open { write: false, .. }) => Err(Problem::unauthorized(
                "the service key or the token of this user",
            )),
            _ => Ok(()),
        }
    }

    /// Whether it is shown other users' likes, where the settings say who is. What it is not shown answers like what does not exist.
    pub(super) fn sees(&self, shown_to: Visibility) -> bool {
        match (shown_to, self) {
            (Visibility::Public, _) => true,
            (Visibility::Service, Self::Service | Self::Named(_)) => true,
            (Visibility::Service, Self::Anyone(open)) => open.write,
            (Visibility::Service, Self::User(_) | Self::Admin) | (Visibility::Own, _) => false,
        }
    }

    /// For whom it speaks: whom the header names, or itself.
    pub(super) fn speaks_for(&self, named: Option<UserId>) -> Result<Option<UserId>, Problem> {
        if let Some(named) = &named {
            self.check_user(named, USER)?;
        }
        Ok(match self {
            Self::User(user) => Some(user.clone()),
            _ => named,
        })
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

    fn keys() -> Keys {
        Keys::new(&Settings {
            service_key: Some(Secret::new("service-key")),
            admin_token: Some(Secret::new("admin-token")),
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
    fn a_bearer_is_known_or_refused() {
        let keys = keys();
        for right in ["Bearer service-key", "bearer service-key"] {
            let caller = keys.caller(&with(&[right])).unwrap();
            assert!(matches!(caller, Caller::Service), "{caller:?}");
        }
        let caller = keys.caller(&with(&["Bearer admin-token"])).unwrap();
        assert!(matches!(caller, Caller::Admin), "{caller:?}");
        let wrong: [&[&'static str]; 8] = [
            &["Bearer"],
            &["Bearer "],
            &["service-key"],
            &["Basic service-key"],
            &["Bearer service-ke"],
            &["Bearer service-key2"],
            &["Bearer service-key", "Bearer service-key"],
            &["Bearer a.b.c"],
        ];
        for values in wrong {
            assert!(keys.caller(&with(values)).is_err(), "{values:?}");
        }
    }

    #[test]
    fn without_keys_all_is_open() {
        let open = Keys::new(&Settings::default());
        for headers in [HeaderMap::new(), with(&["Bearer whatever"])] {
            let caller = open.caller(&headers).unwrap();
            assert!(caller.check_write().is_ok() && caller.check_admin().is_ok());
            let user = UserId::parse("u1").unwrap();
            let speaks = caller.speaks_for(Some(user.clone())).unwrap();
            assert_eq!(speaks, Some(user));
        }
    }
}
