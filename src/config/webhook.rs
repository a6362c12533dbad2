//! Where changes are posted to, and with what they are signed: both as an operator writes them, checked.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;

use super::field::{Rule, Shape};
use super::rules::rule;

/// Longest address: more than any proxy lets through.
const URL_BYTES_MAX: usize = 2048;
/// What stands before the Base64 of a secret, so that one sees what it is.
const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a secret, as Standard Webhooks has them: fewer could be guessed, more are hashed down by HMAC anyway.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Secrets at once: an old and a new one.
const SECRETS_MAX: usize = 2;

/// Where changes are posted to. Path and query may hold a token: it prints without them.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    uri: Uri,
    origin: String,
}

impl WebhookUrl {
    /// Checks an address: `https`, or `http` to this machine itself, because what is told says who likes what.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("has {} bytes, too many", text.len()));
        }
        // What is wrong is not repeated: it may be a secret.
        let url = reqwest::Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
        let host = url.host_str().unwrap_or_default();
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(host) => {}
            "http" => return Err("is http:// to another machine".to_owned()),
            _ => return Err("begins with another scheme".to_owned()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("holds a user or a password".to_owned());
        }
        if url.fragment().is_some() {
            return Err("holds a #".to_owned());
        }
        let uri = url.as_str().parse();
        Ok(Self {
            uri: uri.map_err(|error| format!("is not a URL: {error}"))?,
            origin: url.origin().ascii_serialization(),
        })
    }

    /// The address itself.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Its scheme, host and port, which may be shown.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/[secret]", self.origin)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = address.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

/// With what deliveries are signed, each with all of them. Prints as `[secret]`.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecrets(Vec<Vec<u8>>);

impl WebhookSecrets {
    /// Reads one secret or two, with white space between them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys: Vec<Vec<u8>> = text.split_whitespace().map(key).collect::<Result<_, _>>()?;
        match keys.len() {
            0 => Err("is empty".to_owned()),
            1..=SECRETS_MAX => Ok(Self(keys)),
            count => Err(format!("holds {count} secrets, too many")),
        }
    }

    /// The keys; the only way to them.
    pub fn expose(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The key in a secret. Errors do not repeat it.
fn key(secret: &str) -> Result<Vec<u8>, String> {
    let text = secret
        .strip_prefix(SECRET_PREFIX)
        .ok_or_else(|| format!("does not begin with {SECRET_PREFIX}"))?;
    let key = STANDARD
        .decode(text)
        .map_err(|_| format!("has no Base64 behind {SECRET_PREFIX}"))?;
    let bytes = key.len();
    if bytes < *SECRET_BYTES.start() {
        Err(format!("has {bytes} bytes, too few"))
    } else if bytes > *SECRET_BYTES.end() {
        Err(format!("has {bytes} bytes, too many"))
    } else {
        Ok(key)
    }
}

pub(super) fn webhook_url() -> Rule<WebhookUrl> {
    let allowed = format!(
        "a URL that begins with https://, or with http:// if it leads to this machine (localhost, 127.0.0.1, [::1]); up to {URL_BYTES_MAX} bytes, without user, password and #"
    );
    Rule {
        secret: true,
        ..rule(Shape::Text, allowed, WebhookUrl::parse)
    }
}

pub(super) fn webhook_secrets() -> Rule<WebhookSecrets> {
    let allowed = format!(
        "{SECRET_PREFIX} and the Base64 of {} to {} random bytes, such as {SECRET_PREFIX}$(openssl rand -base64 32); or two of these with a space between them",
        SECRET_BYTES.start(),
        SECRET_BYTES.end()
    );
    Rule {
        secret: true,
        ..rule(Shape::Text, allowed, WebhookSecrets::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret of so many bytes.
    fn secret(bytes: usize) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(vec![7; bytes]))
    }

    #[test]
    fn a_webhook_is_https_or_on_this_machine() {
        for right in [
            "https://www.example.com/hooks/likes?token=hunter2",
            "https://10.0.0.1:8443/",
            "https://[2001:db8::1]/x",
            "http://localhost:8080/x",
            "http://127.0.0.1:8080/x",
            "http://127.9.9.9/x",
            "http://[::1]:8080/x",
        ] {
            let url = WebhookUrl::parse(right).unwrap();
            assert_eq!(url.uri(), right, "{right}");
            assert!(right.starts_with(url.origin()), "{right}");
            assert!(!format!("{url:?}").contains("hunter2"));
        }
        for wrong in [
            "",
            "www.example.com/hunter2",
            "http://www.example.com/hunter2",
            "http://10.0.0.1/hunter2",
            "http://localhost.example.com/hunter2",
            "http://[2001:db8::1]/hunter2",
            "https://user:hunter2@www.example.com/",
            "https://hunter2@www.example.com/",
            "https://www.example.com/#hunter2",
            "https:///",
            "ftp://localhost/hunter2",
            "hunter2:hunter2",
            &format!("https://www.example.com/{}", "a".repeat(URL_BYTES_MAX)),
        ] {
            let problem = WebhookUrl::parse(wrong).unwrap_err();
            assert!(!problem.contains("hunter2"), "{wrong}: {problem}");
        }
    }

    #[test]
    fn secrets_of_a_webhook_are_one_or_two_and_long_enough() {
        let keys = |text: &str| WebhookSecrets::parse(text).map(|all| all.expose().count());
        assert_eq!(keys(&secret(24)), Ok(1));
        assert_eq!(keys(&secret(64)), Ok(1));
        assert_eq!(keys(&format!(" {}\n{} ", secret(24), secret(32))), Ok(2));
        let shown = format!("{:?}", WebhookSecrets::parse(&secret(24)));
        assert_eq!(shown, "Ok([secret])");
        let three = [secret(24), secret(24), secret(24)].join(" ");
        for wrong in [
            "",
            " ",
            "hunter2",
            "whsec_",
            "whsec_hunter2hunter2hunter2hunter2hunter2!",
            &secret(23),
            &secret(65),
            &three,
            &format!("{} hunter2", secret(24)),
        ] {
            let problem = keys(wrong).unwrap_err();
            assert!(!problem.contains("hunter2"), "{wrong}: {problem}");
            assert!(!wrong.contains(&problem), "{problem}");
        }
    }
}
