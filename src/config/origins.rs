//! Which web pages may call by themselves: origins, exactly as browsers send them.

use super::field::{Rule, Shape};
use super::rules::rule;

/// Most origins that can be named: each request of a browser is compared with them.
const ORIGINS_MAX: usize = 100;

/// Pages that browsers let call thumbd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// All.
    Any,
    /// Those of these origins.
    Only(Vec<String>),
}

/// A list of origins, or `*`.
pub(super) fn origins() -> Rule<Origins> {
    rule(
        Shape::Text,
        format!(
            "* alone, or a comma list of up to {ORIGINS_MAX} origins such as https://www.example.com or http://localhost:3000: scheme, host in lower case, and the port if it is not the usual one; no path"
        ),
        parse,
    )
}

fn parse(text: &str) -> Result<Origins, String> {
    if text.trim() == "*" {
        return Ok(Origins::Any);
    }
    let origins: Vec<&str> = text.split(',').map(str::trim).collect();
    if origins.len() > ORIGINS_MAX {
        return Err(format!("has {} origins", origins.len()));
    }
    match origins.iter().find(|origin| !is_origin(origin)) {
        Some(wrong) => Err(format!("{wrong:?} is not an origin")),
        None => Ok(Origins::Only(
            origins.into_iter().map(str::to_owned).collect(),
        )),
    }
}

/// Whether browsers would write it just so. Anything else would match nothing, and nobody would know why.
fn is_origin(text: &str) -> bool {
    let secure = text.strip_prefix("https://").map(|rest| (rest, "443"));
    let plain = || text.strip_prefix("http://").map(|rest| (rest, "80"));
    let Some((rest, usual)) = secure.or_else(plain) else {
        return false;
    };
    // An IPv6 address has colons of its own.
    let end = rest.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match rest[end..].find(':') {
        Some(at) => (&rest[..end + at], Some(&rest[end + at + 1..])),
        None => (rest, None),
    };
    let right_port = port.is_none_or(|port| {
        let canonical = port
            .parse::<u16>()
            .is_ok_and(|number| number.to_string() == port);
        canonical && port != "0" && port != usual
    });
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let right_host = match address {
        Some(address) => address
            .parse::<std::net::Ipv6Addr>()
            .is_ok_and(|ip| ip.to_string() == address),
        None => {
            let right = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
            (1..=253).contains(&host.len()) && host.bytes().all(right)
        }
    };
    right_host && right_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_as_browsers_send_them() {
        assert_eq!(parse("*"), Ok(Origins::Any));
        let two = parse("https://www.example.com, http://localhost:3000").unwrap();
        let names = ["https://www.example.com", "http://localhost:3000"];
        assert_eq!(two, Origins::Only(names.map(str::to_owned).into()));
        for right in ["http://[::1]:8080", "https://10.0.0.1", "http://a:443"] {
            assert!(parse(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "*,https://a.example",
            "https://*.example.com",
            "a.example",
            "null",
            "https://",
            "https://a.example/",
            "https://a.example/x",
            "https://A.example",
            "https://a.example:443",
            "http://a.example:80",
            "http://a.example:080",
            "http://a.example:0",
            "http://a.example:65536",
            "http://a.example:",
            "http://user@a.example",
            "http://::1",
            "http://[::01]",
            "ftp://a.example",
            "https://a.example,,https://b.example",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let many = vec!["https://a.example"; ORIGINS_MAX + 1].join(",");
        assert!(parse(&many).is_err());
    }
}
