//! Takes `redis_url` apart: one server, the seeds of a cluster, or sentinels and the name of the primary that they watch.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

/// Where sentinels listen if nothing else is said.
const SENTINEL_PORT: u16 = 26_379;
/// What a URL says behind a question mark to open the sentinels, percent-encoded; the primary's user stands where it always does.
const SENTINEL_PASSWORD: &str = "sentinel_password=";

/// What `redis_url` names.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// One server.
    One(ConnectionInfo),
    /// Some nodes of a cluster; they know the others.
    Cluster(Vec<ConnectionInfo>),
    /// Sentinels, and what they watch.
    Watched {
        sentinels: Vec<ConnectionInfo>,
        /// The name under which they watch the primary.
        name: String,
        /// How to speak to the primary, wherever it is.
        server: ConnectionInfo,
    },
}

impl Address {
    /// The user that it names.
    pub(super) fn user(&self) -> Option<String> {
        let server = match self {
            Self::One(server) | Self::Watched { server, .. } => server,
            Self::Cluster(seeds) => seeds.first()?,
        };
        Some(server.redis_settings().username()?.to_owned())
    }

    /// How `redis-cli` finds a server of these, which is at `place` where a cluster or sentinels say so. Passwords are asked for.
    pub(super) fn redis_cli(&self, place: Option<(&str, u16)>) -> String {
        let info = match self {
            Self::One(server) | Self::Watched { server, .. } => Some(server),
            Self::Cluster(seeds) => seeds.first(),
        };
        let mut words = vec!["redis-cli".to_owned()];
        if let Some(info) = info {
            match (info.addr(), place) {
                (ConnectionAddr::Unix(path), _) => words.push(format!("-s {}", path.display())),
                (address, Some((host, port))) => words.extend(found_at(address, host, port)),
                (address, None) => {
                    if let (Self::One(_), Some((host, port))) = (self, self::place(info)) {
                        words.extend(found_at(address, host, port));
                    }
                }
            }
            let settings = info.redis_settings();
            words.extend(settings.username().map(|user| format!("--user {user}")));
            words.extend(settings.password().map(|_| "--askpass".to_owned()));
        }
        words.join(" ")
    }

    /// Reads a URL. An error says what is wrong, and repeats nothing that may be a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("is not a URL")?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        match kind {
            "cluster" => {
                let parts = Parts::of(scheme, rest);
                if !matches!(parts.path, "" | "/" | "/0") {
                    return Err("names a database: a cluster has none but 0".to_owned());
                }
                let seeds: Result<_, _> = parts.hosts().map(|host| parts.info(host, "")).collect();
                Ok(Self::Cluster(seeds?))
            }
            "sentinel" => {
                let (rest, password) = without(rest, SENTINEL_PASSWORD);
                if password.is_some_and(str::is_empty) {
                    return Err("has an empty sentinel_password".to_owned());
                }
                let parts = Parts::of(scheme, &rest);
                let mut path = parts.path.trim_start_matches('/').splitn(2, '/');
                let name = path.next().unwrap_or("").to_owned();
                if name.is_empty() {
                    return Err("names no primary: redis+sentinel://HOST:PORT,…/NAME".to_owned());
                }
                let database = path.next().unwrap_or("");
                let server = parts.info("primary", &format!("/{database}"))?;
                // What opens the primary need not open a sentinel, and those ask for nothing as a rule.
                let user = password.map(|password| format!(":{password}"));
                let open = Parts {
                    user: user.as_deref(),
                    ..parts
                };
                let sentinels: Result<_, _> = open
                    .hosts()
                    .map(|host| open.info(&with_port(host), ""))
                    .collect();
                Ok(Self::Watched {
                    sentinels: sentinels?,
                    name,
                    server,
                })
            }
            _ => {
                // As a list it would be one strange host name.
                if kind != "unix" && scheme != "unix" && Parts::of(scheme, rest).hosts.contains(',')
                {
                    return Err(
                        "lists several servers: use redis+cluster:// or redis+sentinel://"
                            .to_owned(),
                    );
                }
                let info = url.into_connection_info();
                info.map(Self::One).map_err(|error| why(&error))
            }
        }
    }
}

fn found_at(address: &ConnectionAddr, host: &str, port: u16) -> Vec<String> {
    let mut words = vec![format!("-h {host} -p {port}")];
    if matches!(address, ConnectionAddr::TcpTls { .. }) {
        words.push("--tls".to_owned());
    }
    words
}

/// Whether a URL can be used, for whoever reads settings.
pub fn check_url(url: &str) -> Result<(), String> {
    Address::parse(url).map(|_| ())
}

/// The same server settings at another place.
pub(super) fn at(like: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match like.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    like.clone().set_addr(address)
}

/// Host and port of a server that has them.
pub(super) fn place(info: &ConnectionInfo) -> Option<(&str, u16)> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host, *port))
        }
        _ => None,
    }
}

/// The pieces of a URL with a list of hosts.
#[derive(Clone, Copy)]
struct Parts<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    /// Query and fragment.
    tail: &'a str,
}

impl<'a> Parts<'a> {
    fn of(scheme: &'a str, rest: &'a str) -> Self {
        let (rest, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        Self {
            scheme,
            user,
            hosts,
            path,
            tail,
        }
    }

    fn hosts(&self) -> impl Iterator<Item = &'a str> {
        self.hosts.split(',')
    }

    fn info(&self, host: &str, path: &str) -> Result<ConnectionInfo, String> {
        if host.is_empty() {
            return Err("has an empty place in its list of hosts".to_owned());
        }
        let user = self.user.map(|user| format!("{user}@")).unwrap_or_default();
        let url = format!("{}://{user}{host}{path}{}", self.scheme, self.tail);
        let info = url.as_str().into_connection_info();
        info.map_err(|error| format!("{host:?}: {}", why(&error)))
    }
}

/// Takes a parameter out of what stands behind the question mark.
fn without<'a>(rest: &'a str, parameter: &str) -> (String, Option<&'a str>) {
    let Some((before, query)) = rest.split_once('?') else {
        return (rest.to_owned(), None);
    };
    let (taken, others): (Vec<&str>, Vec<&str>) = query
        .split('&')
        .partition(|pair| pair.starts_with(parameter));
    let value = taken.first().map(|pair| &pair[parameter.len()..]);
    let others = others.join("&");
    let mark = if others.is_empty() { "" } else { "?" };
    (format!("{before}{mark}{others}"), value)
}

fn with_port(host: &str) -> String {
    let port = host.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:{SENTINEL_PORT}")
    }
}

/// The kind alone: details may hold the URL.
fn why(error: &redis::RedisError) -> String {
    error.category().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(infos: &[ConnectionInfo]) -> Vec<(&str, u16)> {
        infos.iter().filter_map(place).collect()
    }

    #[test]
    fn urls_name_one_server_a_cluster_or_sentinels() {
        let one = Address::parse("redis://:secret@h:1/2").unwrap();
        assert!(matches!(&one, Address::One(info) if place(info) == Some(("h", 1))));
        let Address::Cluster(seeds) =
            Address::parse("rediss+cluster://u:p%2F@a:1,b,[::1]:3").unwrap()
        else {
            panic!("no cluster")
        };
        assert_eq!(places(&seeds), [("a", 1), ("b", 6379), ("::1", 3)]);
        assert!(matches!(seeds[0].addr(), ConnectionAddr::TcpTls { .. }));
        assert_eq!(seeds[1].redis_settings().password(), Some("p/"));
        let moved = at(&seeds[0], "c", 9);
        assert!(
            matches!(moved.addr(), ConnectionAddr::TcpTls { host, port: 9, .. } if host == "c")
        );
        assert_eq!(moved.redis_settings().username(), Some("u"));
        let Address::Watched {
            sentinels,
            name,
            server,
        } = Address::parse("redis+sentinel://:p@a,b:5/main/3").unwrap()
        else {
            panic!("no sentinels")
        };
        assert_eq!(places(&sentinels), [("a", SENTINEL_PORT), ("b", 5)]);
        assert_eq!((name.as_str(), server.redis_settings().db()), ("main", 3));
        assert_eq!(sentinels[0].redis_settings().password(), None);
        assert_eq!(server.redis_settings().password(), Some("p"));
    }

    #[test]
    fn sentinels_have_a_password_of_their_own() {
        let url = "rediss+sentinel://u:p@a,b/main?protocol=resp3&sentinel_password=s%2Fp";
        let Address::Watched {
            sentinels, server, ..
        } = Address::parse(url).unwrap()
        else {
            panic!("no sentinels")
        };
        for sentinel in &sentinels {
            let settings = sentinel.redis_settings();
            assert_eq!(
                (settings.username(), settings.password()),
                (None, Some("s/p"))
            );
            assert!(matches!(sentinel.addr(), ConnectionAddr::TcpTls { .. }));
        }
        let settings = server.redis_settings();
        assert_eq!(
            (settings.username(), settings.password()),
            (Some("u"), Some("p"))
        );
        assert_eq!(settings.protocol(), redis::ProtocolVersion::RESP3);
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_its_password() {
        for url in [
            "redis://:hunter2@a:1,b:2",
            "redis+cluster://:hunter2@a:1/3",
            "redis+cluster://:hunter2@a:1,,b:2",
            "redis+cluster://:hunter2@a:x",
            "redis+sentinel://:hunter2@a:1",
            "redis+sentinel://:hunter2@a:1/main/x",
            "redis+sentinel://:hunter2@/main",
            "redis+sentinel://:hunter2@a/main?sentinel_password=",
            "redis+sentinel://a/main?sentinel_password=hunter2/",
        ] {
            let problem = check_url(url).unwrap_err();
            assert!(!problem.contains("hunter2"), "{url}: {problem}");
        }
        for url in ["redis+unix:///a,b", "unix:///a,b"] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn redis_cli_is_told_the_way_and_no_password() {
        for (url, place, want) in [
            ("redis://a", None, "redis-cli -h a -p 6379"),
            (
                "rediss://u:hunter2@a:7/3",
                None,
                "redis-cli -h a -p 7 --tls --user u --askpass",
            ),
            (
                "redis+unix:///s?pass=hunter2",
                None,
                "redis-cli -s /s --askpass",
            ),
            (
                "redis+cluster://:hunter2@a:1,b:2",
                Some(("b", 2)),
                "redis-cli -h b -p 2 --askpass",
            ),
            ("redis+cluster://a:1,b:2", None, "redis-cli"),
            (
                "redis+sentinel://a/main",
                Some(("c", 3)),
                "redis-cli -h c -p 3",
            ),
            ("redis+sentinel://a/main", None, "redis-cli"),
        ] {
            assert_eq!(Address::parse(url).unwrap().redis_cli(place), want, "{url}");
        }
    }
}
