//! Headings of the options in helps: the options that most users want stand first, without one.

use clap::{Arg, Command};

/// Options by topic. What is not listed stands first.
const HEADINGS: [(&str, &[&str]); 7] = [
    ("Store", &["device", "nvme", "placement", "shards", "io", "depth", "max_latency", "backup_rate"]),
    ("Engines `hash` and `matrix`", &["region", "region_path", "region_node", "pmem_levels", "compression"]),
    ("Engine `tier`", &["save_at_shutdown", "rejoin", "rejoin_cut_off"]),
    (
        "Network",
        &[
            "resp",
            "cluster_node",
            "cluster_self",
            "unix_mode",
            "threads",
            "connections",
            "item_bytes_max",
            "idle_timeout",
            "request_timeout",
            "admin_name",
        ],
    ),
    ("Network without the kernel's TCP", &["xdp", "address", "xdp_memory"]),
    ("Security", &["tls_cert", "tls_key", "tls_client_ca", "insecure", "user", "enable_shutdown"]),
    ("Logging", &["log", "log_format", "slow_log_ms"]),
];

/// The first options of `serve`, in their order.
const FIRST_OF_SERVE: [&str; 10] =
    ["data", "memory", "engine", "durability", "capacity", "memcache", "auth_file", "admin", "backup_dir", "config"];

/// The command with its options under headings, those of its subcommands too.
pub(crate) fn grouped(command: Command) -> Command {
    let is_serve = command.get_name() == "serve";
    let command = command.mut_args(|option| {
        let id = option.get_id().as_str().to_owned();
        if is_serve && let Some(place) = FIRST_OF_SERVE.iter().position(|first| *first == id) {
            return option.display_order(place);
        }
        match HEADINGS.iter().find(|(_, options)| options.contains(&id.as_str())) {
            Some((heading, _)) => option.help_heading(*heading),
            None => option,
        }
    });
    command.mut_subcommands(grouped)
}

/// The options of `serve`, in the order of its help.
pub(crate) fn in_order_of_help(serve: &Command) -> Vec<&Arg> {
    let mut options: Vec<&Arg> = serve.get_arguments().collect();
    let first = |option: &Arg| {
        let id = option.get_id().as_str();
        FIRST_OF_SERVE.iter().position(|first| *first == id).unwrap_or(FIRST_OF_SERVE.len())
    };
    let topic = |option: &Arg| {
        let heading = option.get_help_heading();
        HEADINGS.iter().position(|(known, _)| heading == Some(*known)).map_or(0, |place| place + 1)
    };
    options.sort_by_key(|option| (topic(option), first(option)));
    options
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_that_is_named_is_one() {
        let command = grouped(crate::Arguments::command());
        let serve = command.find_subcommand("serve").expect("a subcommand");
        let options: Vec<&str> = serve.get_arguments().map(|option| option.get_id().as_str()).collect();
        for named in HEADINGS.iter().flat_map(|(_, options)| *options).chain(&FIRST_OF_SERVE) {
            assert!(options.contains(named), "serve has no option {named}");
        }
    }

    /// A new option of `serve` needs a topic, or a place among the ten.
    #[test]
    fn every_option_of_serve_has_a_place() {
        let command = grouped(crate::Arguments::command());
        let serve = command.find_subcommand("serve").expect("a subcommand");
        for option in serve.get_arguments() {
            let id = option.get_id().as_str();
            assert!(option.get_help_heading().is_some() || FIRST_OF_SERVE.contains(&id), "{id} has no heading");
        }
    }

    #[test]
    fn the_help_of_serve_begins_with_what_matters() {
        let mut command = grouped(crate::Arguments::command());
        let help = command.find_subcommand_mut("serve").expect("a subcommand").render_help().to_string();
        let places: Vec<_> =
            ["--data <", "--memory <", "--config <", "Store:", "--placement <", "Network:", "Logging:"]
                .iter()
                .map(|part| help.find(part).unwrap_or_else(|| panic!("no {part}: {help}")))
                .collect();
        assert!(places[..3].is_sorted() && places[3..5].is_sorted() && places[2] < places[3], "{help}");
    }
}
