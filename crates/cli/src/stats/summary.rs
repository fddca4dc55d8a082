//! The few lines of `stats` that most readers want, made of the counters below them.

use std::io::{self, Write};

use stratakv_base::quantity::{format_bytes, format_count};

const PAGE_BYTES: u64 = 4096;

/// Writes the summary, and an empty line. `figure` finds a counter by its name; an engine or a
/// server that lacks one has no line for it.
pub(super) fn write(figure: &dyn Fn(&str) -> Option<u64>, output: &mut impl Write) -> io::Result<()> {
    let lines = [
        ("Items", items(figure)),
        ("Hits", hits(figure)),
        ("Memory", memory(figure)),
        ("Clients", clients(figure)),
        ("Region", region(figure)),
        ("Disk", disk(figure)),
    ];
    for (name, text) in lines {
        if let Some(text) = text {
            writeln!(output, "{name:<9}{text}")?;
        }
    }
    writeln!(output)
}

fn items(figure: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let items = ["curr_items", "records", "items"].into_iter().find_map(figure)?;
    let bytes = figure("bytes").map_or(String::new(), |bytes| format!(", {}", format_bytes(bytes)));
    Some(format!("{items}{bytes}"))
}

/// Of a server its gets; of a store that this command opened there is nothing to tell.
fn hits(figure: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let (hits, misses) = (figure("get_hits")?, figure("get_misses")?);
    match hits + misses {
        0 => Some("no gets yet".to_owned()),
        gets => Some(format!("{:.1} % of {}", hits as f64 * 100.0 / gets as f64, format_count(gets, "get"))),
    }
}

fn memory(figure: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let parts = || ["index_bytes", "cache_bytes", "memtable_bytes"].into_iter().filter_map(figure).reduce(|a, b| a + b);
    let account = || figure("memory_limit_bytes")?.checked_sub(figure("memory_unused_bytes")?);
    let used_bytes = figure("memory_bytes").or_else(account).or_else(parts)?;
    let limit = figure("memory_limit_bytes").map_or(String::new(), |bytes| format!(" of {}", format_bytes(bytes)));
    Some(format!("{}{limit}{}", format_bytes(used_bytes), memory_parts(figure)))
}

/// What a shard of a block engine does with its memory.
fn memory_parts(figure: &dyn Fn(&str) -> Option<u64>) -> String {
    let parts = [
        ("memory_index_bytes", "index"),
        ("memory_tables_bytes", "tables"),
        ("memory_blocks_bytes", "blocks"),
        ("memory_work_bytes", "work"),
        ("memory_reserve_bytes", "reserve"),
        ("memory_unused_bytes", "unused"),
    ];
    let known = parts.iter().filter_map(|(name, text)| Some(format!("{} {text}", format_bytes(figure(name)?))));
    let known: Vec<String> = known.collect();
    if known.is_empty() { String::new() } else { format!(": {}", known.join(", ")) }
}

fn clients(figure: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let (connections, held_bytes) = (figure("curr_connections")?, figure("client_memory_bytes")?);
    let limit = figure("client_memory_limit_bytes")
        .map_or(String::new(), |bytes| format!(" of {} for their buffers", format_bytes(bytes)));
    Some(format!("{}, {}{limit}", format_count(connections, "connection"), format_bytes(held_bytes)))
}

fn region(figure: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let (used_bytes, bytes) = (figure("region_used_bytes")?, figure("region_bytes")?);
    Some(format!("{} of {}", format_bytes(used_bytes), format_bytes(bytes)))
}

fn disk(figure: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    if let Some(capacity_bytes) = figure("ssd_capacity_bytes") {
        let used_bytes = figure("ssd_bytes").unwrap_or(0);
        let text = || format!("{} of {}", format_bytes(used_bytes), format_bytes(capacity_bytes));
        return (capacity_bytes > 0).then(text);
    }
    let (bytes, free_pages) = (figure("usable_bytes")?, figure("pages_free").unwrap_or(0));
    let free_bytes = free_pages.saturating_mul(PAGE_BYTES);
    Some(format!("{}, {} of it free", format_bytes(bytes), format_bytes(free_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(figures: &[(&str, u64)]) -> String {
        let mut out = Vec::new();
        let figure = |name: &str| figures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        write(&figure, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_is_told_where_there_is_something_to_tell() {
        let slab =
            [("records", 3), ("index_bytes", 1 << 20), ("cache_bytes", 1 << 20), ("memory_limit_bytes", 1 << 30)];
        let disk = [("usable_bytes", 16 << 20), ("pages_free", 256)];
        assert_eq!(
            of(&[&slab[..], &disk].concat()),
            "Items    3\nMemory   2.00 MiB of 1.00 GiB\nDisk     16.0 MiB, 1.00 MiB of it free\n\n"
        );
        let parts =
            [("memory_index_bytes", 1 << 20), ("memory_blocks_bytes", 3 << 20), ("memory_unused_bytes", 1020 << 20)];
        assert_eq!(
            of(&[&slab[1..], &parts].concat()),
            "Memory   4.00 MiB of 1.00 GiB: 1.00 MiB index, 3.00 MiB blocks, 1020 MiB unused\n\n"
        );
        let server = [("curr_items", 2), ("bytes", 2048), ("get_hits", 3), ("get_misses", 1), ("curr_connections", 1)];
        let more = [("client_memory_bytes", 1024), ("client_memory_limit_bytes", 1 << 20), ("records", 9)];
        assert_eq!(
            of(&[&server[..], &more].concat()),
            "Items    2, 2.00 KiB\nHits     75.0 % of 4 gets\n\
             Clients  1 connection, 1.00 KiB of 1.00 MiB for their buffers\n\n"
        );
        assert!(of(&[("get_hits", 0), ("get_misses", 0)]).starts_with("Hits     no gets yet\n"));
        assert!(of(&[("region_used_bytes", 1 << 20), ("region_bytes", 4 << 20)]).contains("1.00 MiB of 4.00 MiB"));
        // A cache in memory only has no disk.
        assert_eq!(of(&[("ssd_capacity_bytes", 0), ("ssd_bytes", 0)]), "\n");
    }
}
