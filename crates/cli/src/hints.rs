//! What to write instead of an option or a word that a subcommand does not take, where it is known
//! what was meant.

/// Options of memcached, and ours.
const OF_MEMCACHED: &[(&str, &str)] = &[
    ("-p", "memcached's -p PORT is --memcache 127.0.0.1:PORT"),
    ("-m", "memcached's -m MEGABYTES is --memory, such as --memory 64M"),
    ("-c", "memcached's -c is --connections"),
    ("-t", "memcached's -t is --threads"),
    ("-l", "memcached's -l ADDRESS is --memcache ADDRESS:PORT"),
    ("-s", "memcached's -s PATH is --memcache unix:PATH"),
    ("-I", "memcached's -I is --item-bytes-max"),
    ("-e", "memcached's -e FILE is --engine tier --save-at-shutdown with --data on tmpfs"),
    ("-Y", "memcached's -Y is --auth-file"),
    ("-d", "it stays in the foreground: a supervisor such as systemd starts it in the background (docs/operations.md)"),
    ("-v", "what is logged is said by --log, such as --log info"),
    ("-U", "there is no UDP"),
];

const LEADING_MINUS: &str =
    "what begins with - is taken for an option. Put -- in front of keys and values: stratakv put -- KEY -7";

const NO_SERVER: &str = "the memcache protocol has no command for this. Stop the server and run this on its --data. Or take a backup \
                         (`backup --server`), restore it elsewhere and run this there";

/// The hint for an option that `subcommand` does not have.
pub(crate) fn unknown_option(subcommand: &str, option: &str) -> Option<&'static str> {
    match (subcommand, option) {
        (_, "--server") => Some(NO_SERVER),
        ("get" | "put" | "del" | "update", option) if !option.starts_with("--") && option.starts_with('-') => {
            Some(LEADING_MINUS)
        }
        ("serve", option) => OF_MEMCACHED.iter().find(|(theirs, _)| option.starts_with(theirs)).map(|(_, hint)| *hint),
        _ => None,
    }
}

/// The hint for a word that `subcommand` does not take.
pub(crate) fn stray_word(subcommand: &str) -> Option<&'static str> {
    match subcommand {
        "serve" | "dump" | "stats" | "check" | "repair" | "collections" => Some("name the store with --data DIR"),
        "scan" => Some("choose keys with --prefix P, or with --from A and --to B; name the store with --data DIR"),
        "get" => Some("get takes one key; name the store with --data DIR"),
        "put" => Some("put takes one key and one value: put quotes around a value that has spaces"),
        _ => None,
    }
}

/// The hint for arguments that `subcommand` lacks.
pub(crate) fn missing(subcommand: &str) -> Option<&'static str> {
    match subcommand {
        "put" => Some(
            "put wants a key and a value: stratakv put KEY VALUE. A value - comes from stdin, --file FILE takes it from a file, '' is an empty one",
        ),
        "del" => Some("del wants keys or a range: stratakv del KEY..., del --prefix P, or del --from A --to B"),
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
        assert!(unknown_option("scan", "--server").is_some_and(|hint| hint.contains("no command for this")));
        assert!(unknown_option("put", "-7").is_some_and(|hint| hint.contains("put -- KEY -7")));
        assert_eq!((unknown_option("get", "--nonsense"), unknown_option("stats", "-p")), (None, None));
        assert!(missing("put").is_some_and(|hint| hint.contains("put KEY VALUE")));
        assert!(missing("del").is_some_and(|hint| hint.contains("--prefix P")));
        assert_eq!(missing("serve"), None);
        assert!(stray_word("check").is_some_and(|hint| hint.contains("--data DIR")));
        assert!(stray_word("scan").is_some_and(|hint| hint.contains("--prefix P")));
        assert_eq!(stray_word("doctor"), None);
        assert_eq!(unknown_option("serve", "--nonsense"), None);
        assert_eq!(unknown_option("serve", ""), None);
    }
}
