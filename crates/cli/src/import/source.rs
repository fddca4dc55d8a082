//! What an import reads, as its URL says.

use crate::failure::Failure;
use crate::remote::ServerAddress;

const MEMCACHED_PORT: u16 = 11211;
const REDIS_PORT: u16 = 6379;
const FORMS: &str =
    "write memcached://HOST:PORT, redis://HOST:PORT/DATABASE, rediss://... for TLS, or redis+unix://PATH";

/// What is imported.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A server of memcached's protocol.
    Memcached(ServerAddress),
    /// A server of Redis's protocol, and which of its databases.
    Redis { address: ServerAddress, database: u32 },
}

impl Source {
    /// What this text names.
    ///
    /// # Errors
    /// It is no URL of a server, or has a password in it.
    pub(super) fn parse(text: &str) -> Result<Source, Failure> {
        let wrong = |why: &str| Failure::usage(format!("`{}`: {why}; {FORMS}", text.escape_debug()));
        let Some((scheme, rest)) = text.split_once("://") else { return Err(wrong("it is no URL")) };
        let is_unix = scheme.ends_with("+unix");
        if !is_unix && rest.contains('@') {
            return Err(Failure::usage(
                "the URL has a user or a password in it, which everybody on this machine can read in the list of processes: \
                 say --user NAME and --password-file FILE",
            ));
        }
        let (place, database) = if is_unix {
            rest.split_once("?db=").map_or((rest, ""), |(path, database)| (path, database))
        } else {
            rest.split_once('/').unwrap_or((rest, ""))
        };
        if place.is_empty() {
            return Err(wrong("it names no server"));
        }
        let database = match database {
            "" => 0,
            digits => digits.parse().map_err(|_| wrong("its database is no number"))?,
        };
        let host = |port: u16| with_port(place, port);
        let redis = |address| Source::Redis { address, database };
        Ok(match scheme {
            "memcached" | "memcache" => Source::Memcached(ServerAddress::Tcp(host(MEMCACHED_PORT))),
            "memcached+tls" | "memcaches" => Source::Memcached(ServerAddress::Tls(host(MEMCACHED_PORT))),
            "memcached+unix" => Source::Memcached(ServerAddress::Unix(place.into())),
            "redis" | "valkey" => redis(ServerAddress::Tcp(host(REDIS_PORT))),
            "rediss" | "redis+tls" | "valkeys" => redis(ServerAddress::Tls(host(REDIS_PORT))),
            "redis+unix" => redis(ServerAddress::Unix(place.into())),
            _ => return Err(wrong(&format!("nothing is known of `{}://`", scheme.escape_debug()))),
        })
    }
}

/// The host with its port, which may be left out.
fn with_port(host: &str, port: u16) -> String {
    let behind_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    match behind_address.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_servers() {
        let tcp = |text: &str| ServerAddress::Tcp(text.to_owned());
        let redis = |address, database| Source::Redis { address, database };
        for (text, source) in [
            ("memcached://h", Source::Memcached(tcp("h:11211"))),
            ("memcached://[::1]:7", Source::Memcached(tcp("[::1]:7"))),
            ("memcached+unix:///run/m@c", Source::Memcached(ServerAddress::Unix("/run/m@c".into()))),
            ("redis://127.0.0.1", redis(tcp("127.0.0.1:6379"), 0)),
            ("redis://[::1]/15", redis(tcp("[::1]:6379"), 15)),
            ("rediss://h:1/", redis(ServerAddress::Tls("h:1".into()), 0)),
            ("redis+unix:///run/r.sock?db=3", redis(ServerAddress::Unix("/run/r.sock".into()), 3)),
        ] {
            assert_eq!(Source::parse(text).unwrap(), source, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_told() {
        for (text, why) in [
            ("127.0.0.1:6379", "no URL"),
            ("http://h", "nothing is known of `http://`"),
            ("redis://", "no server"),
            ("redis://h/x", "no number"),
            ("redis://:secret@h", "--password-file"),
        ] {
            let failure = Source::parse(text).unwrap_err().message;
            assert!(failure.contains(why) && !failure.contains("secret"), "{text}: {failure}");
        }
    }
}
