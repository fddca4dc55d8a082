//! One frame of the dashboard: what stands where. 80 columns and 24 lines are enough.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use stratakv_base::quantity::format_bytes;

use super::rates::Interval;
use super::sample::Figures;

/// Heights of the two upper rows of panels, with their borders.
const ROW: u16 = 7;

/// What a frame is made of.
pub(super) struct Shown<'s> {
    /// Where the figures come from.
    pub(super) address: &'s str,
    pub(super) interval: Interval<'s>,
    /// Why there is nothing newer, if the server does not answer.
    pub(super) trouble: Option<&'s str>,
}

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>) {
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(ROW),
        Constraint::Length(ROW),
        Constraint::Min(ROW),
        Constraint::Length(2),
    ]);
    let [head, upper, middle, lower, foot] = rows.areas(frame.area());
    frame.render_widget(Paragraph::new(header(shown)), head);
    let interval = &shown.interval;
    pair(frame, upper, ("Throughput", throughput(interval)), ("Latency in µs", latency(interval)));
    pair(frame, middle, ("Memory", memory(interval)), ("Connections and threads", threads(interval)));
    let engine = format!("Engine {}", interval.now.text("engine"));
    pair(frame, lower, (&engine, engine_lines(interval)), ("Shards", shards(interval, lower.height)));
    let bound = Line::from(vec![Span::styled("Bound by ", bold()), Span::raw(interval.bound_by())]);
    let keys = shown.trouble.map_or_else(|| "q ends".to_owned(), |why| format!("no answer: {why}"));
    frame.render_widget(Paragraph::new(vec![bound, Line::from(keys)]), foot);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn pair(frame: &mut Frame<'_>, area: Rect, left: (&str, Vec<String>), right: (&str, Vec<String>)) {
    let areas: [Rect; 2] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    for (area, (title, lines)) in areas.into_iter().zip([left, right]) {
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(format!(" {title} "))), area);
    }
}

fn header(shown: &Shown<'_>) -> Line<'static> {
    let now = shown.interval.now;
    let uptime = now.uptime_s;
    let up = match (uptime / 86_400, uptime / 3600 % 24, uptime / 60 % 60) {
        (0, 0, minutes) => format!("{minutes} min {} s", uptime % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    };
    let state = match now.text("state") {
        "" | "serving" => String::new(),
        state => format!("  {}", state.to_uppercase()),
    };
    let rest = format!(
        " {}  {}, {}  up {up}  {}{state}",
        now.text("version"),
        now.text("engine"),
        now.text("durability"),
        shown.address
    );
    Line::from(vec![Span::styled("stratakv", bold()), Span::raw(rest)])
}

/// What a panel has between its borders, of 80 columns.
const INNER: usize = 38;

/// A name, and a figure at the right of a panel.
fn row(name: &str, figure: &str) -> String {
    let width = INNER.saturating_sub(name.chars().count());
    format!("{name}{figure:>width$}")
}

fn per_second(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1} /s") } else { format!("{rate:.0} /s") }
}

fn throughput(interval: &Interval<'_>) -> Vec<String> {
    let hit_rate = interval.hit_rate().map_or("no gets".to_owned(), |rate| format!("{:.1} %", rate * 100.0));
    let bytes = |name: &str| format_bytes(interval.rate(name) as u64);
    vec![
        row("operations", &per_second(interval.operations())),
        row("gets", &per_second(interval.rate("cmd_get"))),
        row("sets", &per_second(interval.rate("cmd_set"))),
        row("hits of gets", &hit_rate),
        row("in, out", &format!("{}/s, {}/s", bytes("bytes_read"), bytes("bytes_written"))),
    ]
}

fn latency(interval: &Interval<'_>) -> Vec<String> {
    if interval.now.operations.is_empty() {
        return vec!["the memcache port does not tell:".to_owned(), "name that of `serve --admin`".to_owned()];
    }
    let times = interval.times();
    if times.is_empty() {
        return vec!["no operations".to_owned()];
    }
    let head = format!("{:<12}{:>8}{:>8}{:>8}", "", "p50", "p99", "longest");
    let us = |ns: u64| if ns < 10_000 { format!("{:.1}", ns as f64 / 1e3) } else { (ns / 1000).to_string() };
    let lines = times.iter().map(|(name, times)| {
        let [p50, p99, longest] = [500, 990, 1000].map(|part| us(times.quantile_ns(part)));
        format!("{name:<12}{p50:>8}{p99:>8}{longest:>8}")
    });
    [head].into_iter().chain(lines).collect()
}

fn memory(interval: &Interval<'_>) -> Vec<String> {
    let now = interval.now;
    let parts = [
        ("index", "memory_index_bytes"),
        ("tables", "memory_tables_bytes"),
        ("cached, under way", "memory_blocks_bytes"),
        ("work and reserve", "memory_work_bytes"),
    ];
    let limit = now.figure("memory_limit_bytes");
    let unused = now.figure("memory_unused_bytes");
    let of = |used: u64, all: u64| format!("{} of {}", format_bytes(used), format_bytes(all));
    let mut lines = Vec::new();
    if limit > 0 {
        lines.push(row("store", &of(limit.saturating_sub(unused), limit)));
    } else {
        lines.push(row("index", &format_bytes(now.figure("index_bytes"))));
    }
    let clients = of(now.figure("client_memory_bytes"), now.figure("client_memory_limit_bytes"));
    lines.push(row("clients", &clients));
    let used = |name: &str| match name {
        "memory_work_bytes" => now.figure(name).saturating_add(now.figure("memory_reserve_bytes")),
        name => now.figure(name),
    };
    let known = parts.iter().filter(|(_, name)| used(name) > 0);
    lines.extend(known.map(|(text, name)| row(text, &format_bytes(used(name)))));
    lines.push(row("process", &format_bytes(now.figure("resident_bytes"))));
    lines
}

fn threads(interval: &Interval<'_>) -> Vec<String> {
    let now = interval.now;
    let open = format!("{} of {}", now.figure("curr_connections"), now.figure("max_connections"));
    let mut lines = vec![row("connections", &open)];
    let threads = interval.threads();
    let line = |(place, (busy, operations, connections)): (usize, &(f64, f64, u64))| {
        let filled = (busy * 10.0).round() as usize;
        let bar: String = (0..10).map(|cell| if cell < filled { '█' } else { '·' }).collect();
        format!("{place:>3} {bar}{:>4.0} %{:>9}{connections:>6}", busy * 100.0, per_second(*operations))
    };
    match threads.len() {
        0..=3 => lines.extend(threads.iter().enumerate().map(line)),
        // The busiest ones are those that matter.
        all => {
            let mut order: Vec<_> = threads.iter().enumerate().collect();
            order.sort_by(|(_, one), (_, other)| other.0.total_cmp(&one.0));
            lines.extend(order.into_iter().take(3).map(line));
            let sum: f64 = threads.iter().map(|(busy, _, _)| busy).sum();
            lines.push(format!("{all} threads, {sum:.1} busy"));
        }
    }
    lines
}

/// A text, the name of a figure, and how it is shown.
type EngineFigure = (&'static str, &'static str, Show);

/// Figures of an engine that tell how it does.
const OF_ENGINES: [(&str, &[EngineFigure]); 4] = [
    (
        "slab",
        &[
            ("records", "records", Show::Count),
            ("reads of pages", "page_reads", Show::Rate),
            ("cache hits", "cache_hits", Show::Rate),
            ("written", "write_bytes", Show::BytesRate),
            ("flushes", "flushes", Show::Rate),
            ("free pages", "pages_free", Show::Count),
            ("volumes", "usable_bytes", Show::Bytes),
        ],
    ),
    (
        "matrix",
        &[
            ("records, estimated", "records", Show::Count),
            ("written", "write_bytes", Show::BytesRate),
            ("compacted", "compacted_bytes", Show::BytesRate),
            ("tables", "table_bytes", Show::Bytes),
            ("free of the log", "container_units_free", Show::Count),
            ("stalled ticks", "stalled_ticks", Show::Rate),
            ("reads of pages", "page_reads", Show::Rate),
        ],
    ),
    (
        "hash",
        &[
            ("records", "records", Show::Count),
            ("region", "region_bytes", Show::Bytes),
            ("used of it", "region_used_bytes", Show::Bytes),
            ("free of it", "region_free_bytes", Show::Bytes),
            ("scrubbed", "scrubbed_bytes", Show::BytesRate),
            ("snapshots", "snapshots", Show::Count),
        ],
    ),
    (
        "tier",
        &[
            ("items", "items", Show::Count),
            ("hits in memory", "hits_dram", Show::Rate),
            ("hits on SSD", "hits_ssd", Show::Rate),
            ("evictions", "evictions", Show::Rate),
            ("second tier", "ssd_bytes", Show::Bytes),
            ("memory's segments", "dram_bytes", Show::Bytes),
            ("stalled ticks", "stalled_ticks", Show::Rate),
        ],
    ),
];

/// How a figure is shown.
#[derive(Clone, Copy)]
enum Show {
    Count,
    Bytes,
    Rate,
    BytesRate,
}

fn engine_lines(interval: &Interval<'_>) -> Vec<String> {
    let now = interval.now;
    let of = OF_ENGINES.iter().find(|(engine, _)| *engine == now.text("engine"));
    let Some((_, figures)) = of else { return Vec::new() };
    let line = |(text, name, show): &(&str, &str, Show)| {
        let shown = match show {
            Show::Count => now.figure(name).to_string(),
            Show::Bytes => format_bytes(now.figure(name)),
            Show::Rate => per_second(interval.rate(name)),
            Show::BytesRate => format!("{}/s", format_bytes(interval.rate(name) as u64)),
        };
        row(text, &shown)
    };
    figures.iter().map(line).collect()
}

fn shards(interval: &Interval<'_>, height: u16) -> Vec<String> {
    let shards = &interval.now.shards;
    if shards.is_empty() {
        return vec!["not told here: name --admin".to_owned()];
    }
    let figure = |shard: &Figures, names: &[&str]| names.iter().find_map(|name| shard.get(*name)).copied().unwrap_or(0);
    let head = format!("{:>5}{:>11}{:>10}{:>9}", "shard", "records", "under way", "waiting");
    let line = |(place, shard): (usize, &Figures)| {
        let records = figure(shard, &["records", "items"]);
        let under_way = figure(shard, &["operations_in_progress"]);
        let waiting = figure(shard, &["operations_waiting_for_room"]);
        let mark = match figure(shard, &["broken_shards", "read_only_after_a_failure"]) {
            0 => "",
            _ => " !",
        };
        format!("{place:>5}{records:>11}{under_way:>10}{waiting:>9}{mark}")
    };
    // Borders, the head, and a line for the rest.
    let room = usize::from(height).saturating_sub(3);
    let mut order: Vec<_> = shards.iter().enumerate().collect();
    if shards.len() > room {
        order.sort_by_key(|(_, shard)| std::cmp::Reverse(figure(shard, &["operations_in_progress"])));
        order.truncate(room.saturating_sub(1));
    }
    let left_out = shards.len() - order.len();
    let rest = (left_out > 0).then(|| format!("{left_out} more, with less under way"));
    [head].into_iter().chain(order.into_iter().map(line)).chain(rest).collect()
}
