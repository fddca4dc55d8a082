//! A page as HTML: one file, its style inside, nothing from elsewhere, no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::standing::{EVEN, Ratio, Standing};
use super::{DataCell, DataRow, DataTable, NamedFigure, Page, PageFigure, PageSection, VerdictLine};
use crate::page::figures::{percent, times};
use crate::plot::{COLOUR_COUNT, mark};

const STYLE: &str = include_str!("page.css");

/// The whole file.
pub fn render(page: &Page) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (page.title) }
                    @for text in &page.lead { p { (text) } }
                }
                (contents(page))
                main {
                    (verdicts(page))
                    section #conditions {
                        h2 { "How it was measured" }
                        @for note in &page.notes { p.note { (note) } }
                        div.facts { (table(&page.facts)) }
                    }
                    @for one in &page.sections { (section(one)) }
                }
                footer { p { "Made by StrataKV " (env!("CARGO_PKG_VERSION")) ". This file loads nothing from elsewhere." } }
            }
        }
    };
    markup.into_string()
}

fn contents(page: &Page) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                li { a href="#verdicts" { "Verdicts" } }
                li { a href="#conditions" { "How it was measured" } }
                @for one in &page.sections { li { a href=(format!("#{}", one.id)) { (one.title) } } }
            }
        }
    }
}

/// What comes first: in how many figures ours is behind, and each of them.
fn verdicts(page: &Page) -> Markup {
    let (mut claims, mut others): (Vec<_>, Vec<_>) = page.verdicts.iter().partition(|one| one.claim.is_some());
    claims.sort_by_key(|one| one.rank());
    others.sort_by_key(|one| one.rank());
    html! {
        section #verdicts {
            h2 { "Verdicts" }
            @if page.verdicts.is_empty() {
                p { "Nothing stands beside this run, and no published figure is about it. "
                    "To compare runs: " code { "stratakv bench report OURS.json OTHER.json --output FILE.html" } "." }
            }
            @if !others.is_empty() { (counts(&others)) (beside_stores(&others)) }
            @if !claims.is_empty() { (beside_papers(&claims)) }
        }
    }
}

/// A sentence for each other store.
fn counts(lines: &[&VerdictLine]) -> Markup {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for one in lines {
        let pair = (one.ours.store.as_str(), peer_name(one));
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let of = |(ours, peer): (&str, &str), standing: Standing| {
        let these = lines.iter().filter(|one| one.ours.store == ours && peer_name(one) == peer);
        these.filter(|one| one.ratio.is_some_and(|ratio| ratio.standing == standing)).count()
    };
    html! {
        ul.counts {
            @for pair in pairs {
                li {
                    b { (pair.0) } " beside " b { (pair.1) } ": "
                    span.behind { "behind in " (of(pair, Standing::Behind)) } ", "
                    "even within spread in " (of(pair, Standing::Even)) ", "
                    span.ahead { "ahead in " (of(pair, Standing::Ahead)) }
                    " of " (lines.iter().filter(|one| (one.ours.store.as_str(), peer_name(one)) == pair).count()) " figures."
                }
            }
        }
    }
}

fn peer_name(line: &VerdictLine) -> &str {
    line.peer.as_ref().map_or("", |peer| &peer.store)
}

fn beside_stores(lines: &[&VerdictLine]) -> Markup {
    let rows = lines.iter().map(|one| DataRow { head: one.question.clone(), cells: verdict_cells(one) });
    let table = DataTable {
        caption: "Losses first. A ratio above 1 means that ours is better: twice the throughput, or half the latency."
            .into(),
        rows: rows.collect(),
        ..DataTable::new("", &["figure", "verdict", "ratio", "spread of the ratio", "ours", "peer"])
    };
    html! {
        (self::table(&table))
        p { "Even within spread: the best round of one reaches the worst of the other. Of a single round no spread is "
            "known; figures within " (percent(EVEN)) " of each other are even then." }
    }
}

fn verdict_cells(line: &VerdictLine) -> Vec<DataCell> {
    let standing = line.ratio.map(|ratio| ratio.standing);
    let word = standing.map_or("not seen in one of them", Standing::word);
    let peer = line.peer.as_ref().map(named).unwrap_or_default();
    vec![
        DataCell { standing, ..word.into() },
        DataCell { standing, ..line.ratio.map(|ratio| times(ratio.median)).unwrap_or_default().into() },
        line.ratio.map(range).unwrap_or_default().into(),
        named(&line.ours).into(),
        peer.into(),
    ]
}

fn named(figure: &NamedFigure) -> String {
    format!("{}: {}", figure.store, figure.text)
}

fn range(ratio: Ratio) -> String {
    match ratio.rounds {
        1 => "one round".into(),
        _ => format!("{} to {}", times(ratio.min), times(ratio.max)),
    }
}

fn beside_papers(lines: &[&VerdictLine]) -> Markup {
    // Figures of one store stand beside nobody's.
    let has_peers = lines.iter().any(|one| one.claim.is_some() && one.peer.is_some());
    let row = |one: &&VerdictLine| {
        let claim = one.claim.as_ref()?;
        let standing = Some(if claim.is_met { Standing::Ahead } else { Standing::Behind });
        let ratio = one.ratio.map(|ratio| times(ratio.median)).unwrap_or_default();
        let word = if claim.is_met { "reached" } else { "missed" };
        let mut cells = vec![
            DataCell { standing, ..word.into() },
            claim.published.clone().into(),
            claim.source.clone().into(),
            named(&one.ours).into(),
        ];
        if has_peers {
            cells.extend([one.peer.as_ref().map(named).unwrap_or_default().into(), ratio.into()]);
        }
        Some(DataRow { head: one.question.clone(), cells })
    };
    let all = ["figure", "verdict", "published", "where", "ours", "peer", "ratio"];
    let head = if has_peers { &all[..] } else { &all[..5] };
    let table = DataTable {
        rows: lines.iter().filter_map(row).collect(),
        ..DataTable::new("Beside published figures, as ratios and shapes: the papers' machines are others.", head)
    };
    html! { h3 { "Published figures" } (self::table(&table)) }
}

fn section(section: &PageSection) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @for text in &section.text { p { (text) } }
            @if !section.legend.is_empty() { (legend(&section.legend)) }
            div.figures { @for one in &section.figures { (figure(one)) } }
        }
    }
}

fn legend(stores: &[String]) -> Markup {
    html! {
        ul.legend {
            @for (place, name) in stores.iter().enumerate() {
                li { span class=(format!("store-{}", place % COLOUR_COUNT)) aria-hidden="true" { (mark(place)) } " " (name) }
            }
        }
    }
}

fn figure(figure: &PageFigure) -> Markup {
    html! {
        div.figure.wide[figure.plot.is_empty()] {
            @if !figure.plot.is_empty() { div.plot { (PreEscaped(&figure.plot)) } }
            @if let Some(one) = &figure.table { (table(one)) }
            @if let Some(one) = &figure.further { details { summary { (one.caption) } (table(one)) } }
        }
    }
}

fn table(table: &DataTable) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(table.caption) {
            table {
                caption { (table.caption) }
                thead { tr {
                    @for (column, one) in table.head.iter().enumerate() {
                        th.number[is_of_numbers(table, column)] scope="col" { (one) }
                    }
                } }
                tbody {
                    @for row in &table.rows {
                        tr { th scope="row" { (row.head) } @for one in &row.cells { (cell(one)) } }
                    }
                }
            }
        }
    }
}

fn cell(cell: &DataCell) -> Markup {
    let class = match cell.standing {
        Some(Standing::Ahead) => "ahead",
        Some(Standing::Behind) => "behind",
        Some(Standing::Even) | None if is_number(&cell.text) => "number",
        _ => "",
    };
    html! {
        td class=[(!class.is_empty()).then_some(class)] {
            (cell.text)
            @if let Some((share, store)) = cell.bar { (bar(share, store)) }
        }
    }
}

/// Whether the figures of a column end at the same place, so that its heading should too.
fn is_of_numbers(table: &DataTable, column: usize) -> bool {
    let Some(place) = column.checked_sub(1) else { return false };
    let mut cells =
        table.rows.iter().filter_map(|row| row.cells.get(place)).filter(|cell| !cell.text.is_empty()).peekable();
    cells.peek().is_some() && cells.all(|cell| cell.standing.is_none() && is_number(&cell.text))
}

/// Whether figures below one another are to end at the same place.
fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !text.contains(':')
}

fn bar(share: f64, store: usize) -> Markup {
    let width = format!("{:.1}%", share.clamp(0.0, 1.0) * 100.0);
    html! {
        svg.bar aria-hidden="true" {
            rect width=(width) height="100%" fill=(format!("var(--store-{})", store % COLOUR_COUNT)) {}
        }
    }
}
