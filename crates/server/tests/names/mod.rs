//! The names of `stats` and `stats settings`: those of memcached, but for what `docs/memcache.md`
//! says is left out.

use std::collections::BTreeSet;

use stratakv::Engine;

use super::{Bench, Memcached, converse};

/// What memcached 1.6.18 prints, with extstore and TLS built in and none of them used.
const GENERAL: &str = "pid uptime time version libevent pointer_size rusage_user rusage_system max_connections curr_connections total_connections \
    rejected_connections connection_structures response_obj_oom response_obj_count response_obj_bytes read_buf_count read_buf_bytes \
    read_buf_bytes_free read_buf_oom reserved_fds cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired \
    get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits \
    touch_misses store_too_large store_no_memory auth_cmds auth_errors bytes_read bytes_written limit_maxbytes accepting_conns \
    listen_disabled_num time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes hash_is_expanding \
    slab_reassign_rescues slab_reassign_chunk_rescues slab_reassign_evictions_nomem slab_reassign_inline_reclaim \
    slab_reassign_busy_items slab_reassign_busy_deletes slab_reassign_running slabs_moved lru_crawler_running lru_crawler_starts \
    lru_maintainer_juggles malloc_fails log_worker_dropped log_worker_written log_watcher_skipped log_watcher_sent log_watchers \
    unexpected_napi_ids round_robin_fallback bytes curr_items total_items slab_global_page_pool expired_unfetched evicted_unfetched \
    evicted_active evictions reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold moves_to_warm \
    moves_within_lru direct_reclaims lru_bumps_dropped";
const SETTINGS: &str = "maxbytes maxconns tcpport udpport inter verbosity oldest evictions domain_socket umask shutdown_command growth_factor chunk_size \
    num_threads num_threads_per_udp stat_key_prefix detail_enabled reqs_per_event cas_enabled tcp_backlog binding_protocol \
    auth_enabled_sasl auth_enabled_ascii item_size_max maxconns_fast hashpower_init slab_reassign slab_automove slab_automove_ratio \
    slab_automove_window slab_chunk_max lru_crawler lru_crawler_sleep lru_crawler_tocrawl tail_repair_time flush_enabled \
    dump_enabled hash_algorithm lru_maintainer_thread lru_segmented hot_lru_pct warm_lru_pct hot_max_factor warm_max_factor temp_lru \
    temporary_ttl idle_timeout watcher_logbuf_size worker_logbuf_size read_buf_mem_limit track_sizes inline_ascii_response \
    ext_item_size ext_item_age ext_low_ttl ext_recache_rate ext_wbuf_size ext_compact_under ext_drop_under ext_max_sleep \
    ext_max_frag slab_automove_freeratio ext_drop_unread ssl_enabled ssl_chain_cert ssl_key ssl_verify_mode ssl_keyformat \
    ssl_ciphers ssl_ca_cert ssl_wbuf_size ssl_session_cache ssl_kernel_tls ssl_min_version num_napi_ids memory_file";

/// Where the page names what is left out: in backticks, in the first column of a table.
const LEFT_OUT: [(&str, &str, &str); 2] = [
    ("stats", GENERAL, "<!-- left out of stats -->"),
    ("stats settings", SETTINGS, "<!-- left out of stats settings -->"),
];

fn listed(names: &str) -> BTreeSet<&str> {
    names.split_whitespace().collect()
}

fn told(address: std::net::SocketAddr, command: &str) -> String {
    String::from_utf8(converse(address, format!("{command}\r\n").as_bytes())).unwrap()
}

fn names(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split(' ').next()).collect()
}

/// The names in the first column of the table that follows `mark`.
fn documented<'a>(page: &'a str, mark: &str) -> BTreeSet<&'a str> {
    let (_, after) = page.split_once(mark).unwrap_or_else(|| panic!("the page has no {mark}"));
    let rows = after.trim_start().lines().take_while(|line| line.starts_with('|')).skip(2);
    rows.filter_map(|row| row.split('|').nth(1)).flat_map(|column| column.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_names_are_those_of_memcached_but_for_those_documented() {
    let page = include_str!("../../../../docs/memcache.md");
    for engine in [Engine::Slab, Engine::Hash, Engine::Tier, Engine::Matrix] {
        let bench = Bench::of(engine);
        for (command, memcached, mark) in LEFT_OUT {
            let text = told(bench.address(), command);
            let (ours, left_out) = (names(&text), documented(page, mark));
            let unique: BTreeSet<&str> = ours.iter().copied().collect();
            assert_eq!(ours.len(), unique.len(), "a name comes twice: {text}");
            let missing: BTreeSet<&str> = listed(memcached).difference(&unique).copied().collect();
            assert_eq!(missing, left_out, "{command} with {engine:?}, and docs/memcache.md");
        }
    }
}

#[test]
fn the_recorded_names_are_those_that_memcached_prints() {
    let Some(memcached) = Memcached::start() else { return };
    for (command, recorded, _) in LEFT_OUT {
        let text = told(memcached.address, command);
        let printed: BTreeSet<&str> = names(&text).into_iter().collect();
        // A build without extstore or TLS has fewer.
        assert!(printed.is_subset(&listed(recorded)), "{command}: {:?}", printed.difference(&listed(recorded)));
    }
}

/// Values that are more than 0.
#[test]
fn names_of_memcached_have_the_values_that_they_mean() {
    let bench = Bench::new();
    let sent = b"set a 0 0 1\r\n1\r\nmg a\r\ntouch a 0\r\ntouch b 0\r\nincr b 1\r\ngets a\r\ncas a 0 0 1 1\r\n2\r\n";
    converse(bench.address(), sent);
    let text = told(bench.address(), "stats");
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(&format!("STAT {name} ")))
            .unwrap_or_else(|| panic!("{name}: {text}"))
    };
    let counted =
        [("cmd_meta", "1"), ("total_items", "1"), ("cmd_touch", "2"), ("touch_hits", "1"), ("touch_misses", "1")];
    for (name, number) in
        counted.into_iter().chain([("incr_misses", "1"), ("cas_badval", "1"), ("accepting_conns", "1")])
    {
        assert_eq!(value(name), number, "{name}");
    }
    assert_eq!(value("hash_bytes"), value("index_bytes"));
    assert!(value("reserved_fds").parse::<u64>().is_ok_and(|descriptors| descriptors > 32), "{text}");
    assert!(value("rusage_user").parse::<f64>().is_ok_and(|seconds| seconds < 1e6), "{text}");
}
