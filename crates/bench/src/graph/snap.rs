//! Lists of edges as text, as the Stanford Network Analysis Project gives them out.

use std::io::BufRead;

use super::Vertex;
use crate::target::BenchError;

/// Reads lines `from<TAB>to` (any blanks will do) of numbers up to 2^32 - 1; lines that begin with
/// `#`, and empty ones, are passed over. Holds one line at a time.
///
/// # Errors
/// Items: a line that is neither, with its number, after which nothing follows; the reader's own.
pub fn edges_of_snap(text: impl BufRead) -> impl Iterator<Item = Result<(Vertex, Vertex), BenchError>> {
    let mut failed = false;
    let numbered = (1u64..).zip(text.lines());
    let edges = numbered.filter_map(|(number, line)| match line {
        Ok(line) if line.trim().is_empty() || line.starts_with('#') => None,
        Ok(line) => Some(edge(&line).ok_or_else(|| malformed(number, &line))),
        Err(error) => Some(Err(BenchError::Wrong(format!("line {number} cannot be read: {error}")))),
    });
    edges.take_while(move |edge| !std::mem::replace(&mut failed, edge.is_err()))
}

fn edge(line: &str) -> Option<(Vertex, Vertex)> {
    let mut fields = line.split_whitespace().map(str::parse);
    match (fields.next(), fields.next(), fields.next()) {
        (Some(Ok(from)), Some(Ok(to)), None) => Some((from, to)),
        _ => None,
    }
}

fn malformed(number: u64, line: &str) -> BenchError {
    let shown: String = line.chars().take(40).collect();
    BenchError::Wrong(format!(
        "line {number} is no edge: `{}`; a line has two numbers of vertices up to {}, source and destination, or begins with #",
        shown.escape_debug(),
        Vertex::MAX
    ))
}
