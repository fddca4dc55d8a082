//! A report of measurements as a document: what a builder fills in, and [`render`] writes as one
//! file of HTML that loads nothing from elsewhere.
//!
//! Every suite, `bench ycsb` and the comparison with other stores build such a [`Page`]; how it
//! looks is decided in one place.

pub mod claims;
pub mod figures;
mod fills;
mod phases;
mod render;
pub mod runs;
mod served;
pub mod standing;

pub use fills::of_fills;
pub use phases::{PhasesContext, of_phases};
pub use render::render;
pub use served::of_served;

use claims::ClaimCheck;
use standing::{Ratio, Standing};

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What was measured.
    pub title: String,
    /// What a reader should know first, a paragraph each.
    pub lead: Vec<String>,
    /// What the figures do not show, or where they are unlike.
    pub notes: Vec<String>,
    /// Each figure beside that of another store, or beside what was published.
    pub verdicts: Vec<VerdictLine>,
    /// Where and how it was measured: a column for each run.
    pub facts: DataTable,
    /// The rest.
    pub sections: Vec<PageSection>,
}

/// One question, and how ours answers it beside another store, or beside a paper.
#[derive(Clone, Debug)]
pub struct VerdictLine {
    /// What is asked: the setting and the figure.
    pub question: String,
    /// Ours.
    pub ours: NamedFigure,
    /// The other store; `None` where ours is held against a published figure alone.
    pub peer: Option<NamedFigure>,
    /// How many times better ours is; `None` if one of them was not seen.
    pub ratio: Option<Ratio>,
    /// What a paper says of it.
    pub claim: Option<ClaimCheck>,
}

impl VerdictLine {
    /// The order of lines: losses first, then what is even, then what is ahead.
    fn rank(&self) -> u8 {
        match (&self.claim, self.ratio) {
            (Some(claim), _) if claim.is_met => 2,
            (Some(_), _) => 0,
            (None, Some(ratio)) => ratio.standing as u8,
            (None, None) => 1,
        }
    }
}

/// A store's figure.
#[derive(Clone, Debug)]
pub struct NamedFigure {
    /// Whose.
    pub store: String,
    /// The figure with its unit, and the range of its rounds.
    pub text: String,
}

/// A part of the page under a heading.
#[derive(Clone, Debug, Default)]
pub struct PageSection {
    /// Where links lead.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// A paragraph each.
    pub text: Vec<String>,
    /// Stores by colour and mark, if plots have several.
    pub legend: Vec<String>,
    /// Plots and tables.
    pub figures: Vec<PageFigure>,
}

/// A plot, or a table, or both.
#[derive(Clone, Debug, Default)]
pub struct PageFigure {
    /// SVG of [`crate::plot::inline`]; empty for none.
    pub plot: String,
    /// Its numbers.
    pub table: Option<DataTable>,
    /// Long tables, which are shown when they are asked for.
    pub further: Option<DataTable>,
}

/// Numbers. The first column names the row.
#[derive(Clone, Debug, Default)]
pub struct DataTable {
    /// What the table is of.
    pub caption: String,
    /// Headings of all columns.
    pub head: Vec<String>,
    /// Lines.
    pub rows: Vec<DataRow>,
}

/// A line of a table.
#[derive(Clone, Debug, Default)]
pub struct DataRow {
    /// What it is of.
    pub head: String,
    /// Under the headings after the first.
    pub cells: Vec<DataCell>,
}

/// One figure of a table.
#[derive(Clone, Debug, Default)]
pub struct DataCell {
    /// As it is read.
    pub text: String,
    /// If it is one beside another store's.
    pub standing: Option<Standing>,
    /// Drawn as a bar of this share of the column, in this store's colour.
    pub bar: Option<(f64, usize)>,
}

impl From<String> for DataCell {
    fn from(text: String) -> DataCell {
        DataCell { text, ..DataCell::default() }
    }
}

impl From<&str> for DataCell {
    fn from(text: &str) -> DataCell {
        text.to_owned().into()
    }
}

impl DataTable {
    /// Without rows yet.
    pub fn new(caption: impl Into<String>, head: &[&str]) -> DataTable {
        let head = head.iter().map(|one| (*one).to_owned()).collect();
        DataTable { caption: caption.into(), head, rows: Vec::new() }
    }

    /// A further line.
    pub fn push<T: Into<DataCell>>(&mut self, head: impl Into<String>, cells: impl IntoIterator<Item = T>) {
        self.rows.push(DataRow { head: head.into(), cells: cells.into_iter().map(Into::into).collect() });
    }

    /// Draws the figures of the first column after the names as bars: each figure, and whose it is.
    fn with_bars(mut self, figures: &[(Option<f64>, usize)]) -> DataTable {
        let longest = figures.iter().filter_map(|(figure, _)| *figure).fold(0.0, f64::max);
        for (row, (figure, store)) in self.rows.iter_mut().zip(figures) {
            if let (Some(cell), Some(figure)) = (row.cells.first_mut(), figure.filter(|_| longest > 0.0)) {
                cell.bar = Some((figure / longest, *store));
            }
        }
        self
    }
}

#[cfg(test)]
#[path = "../../tests/unit/page.rs"]
mod tests;
