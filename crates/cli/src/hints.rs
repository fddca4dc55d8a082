//! What to write instead of an option that is not there, where what was meant is known.

/// Options of memcached, and ours.
const OF_MEMCACHED: &[(&str, &str)] = &[
    ("-p", "memcached's -p PORT is --memcache 127.0.0.1:PORT"),
    ("-m", "memcached's -m MEGABYTES is --memory, such as --memory 64M"),
    ("-c", "memcached's -c is --connections"),
    ("-t", "memcached's -t is --threads"),
    ("-l", "memcached's -l ADDRESS is --memcache ADDRESS:PORT"),
    ("-s", "memcached's -s PATH is --memcache unix:PATH"),
    ("-I", "memcached's -I is --item-bytes-max"),
    ("-e", "memcached's -e FILE is --engine tier --park with --data on tmpfs"),
    ("-Y", "memcached's -Y is --auth-file"),
    ("-d", "it stays in the foreground: a supervisor such as systemd starts it in the background (docs/operations.md)"),
    ("-v", "what is logged is said by --log, such as --log info"),
    ("-U", "there is no UDP"),
];

const NO_SERVER: &str = "a server cannot be asked for this, as the memcache protocol knows single keys. End the server and run this on \
                         its --data, or take a backup of it (`backup --server`), restore that elsewhere and run this there";

/// The hint for an option that `subcommand` does not have.
pub(crate) fn unknown_option(subcommand: &str, option: &str) -> Option<&'static str> {
    match (subcommand, option) {
        (_, "--server") => Some(NO_SERVER),
        ("serve", option) => OF_MEMCACHED.iter().find(|(theirs, _)| option.starts_with(theirs)).map(|(_, hint)| *hint),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_known_of_memcached_and_of_servers() {
        assert!(unknown_option("serve", "-p").is_some_and(|hint| hint.contains("--memcache")));
        assert!(unknown_option("serve", "-m").is_some_and(|hint| hint.contains("--memory")));
        assert!(unknown_option("scan", "--server").is_some_and(|hint| hint.contains("single keys")));
        assert_eq!(unknown_option("get", "-p"), None);
        assert_eq!(unknown_option("serve", "--nonsense"), None);
        assert_eq!(unknown_option("serve", ""), None);
    }
}
