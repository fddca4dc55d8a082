//! The file of figures: what each path takes, with what tools that was counted, and which changes
//! were accepted since the last release. This reads, changes and writes it; nobody else does.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::figures::{Count, Figures, Leeway};

const HEAD: &str = "\
# What an operation takes, for `cargo xtask bench-gate`, which writes this file too:
#   cargo xtask bench-gate --accept \"REASON\"   takes over what changed
#   cargo xtask bench-gate --release VERSION   begins the accounts of the next release
# CONTRIBUTING.md says when. docs/testing.md says what is counted, and how.
";

/// The file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// What counted: names of tools, and their versions.
    pub tools: BTreeMap<String, String>,
    /// The last release.
    pub release: String,
    /// By path.
    pub paths: BTreeMap<String, Figures>,
    /// Changes since the last release, in order.
    pub accepted: Vec<AcceptedChange>,
}

/// A change of a figure that somebody answers for.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedChange {
    pub path: String,
    pub count: Count,
    pub from: f64,
    pub to: f64,
    pub reason: String,
}

impl Ledger {
    /// Reads the file.
    ///
    /// # Errors
    /// It is not such a file, or its accounts do not add up.
    pub fn parse(text: &str) -> Result<Ledger, String> {
        let table: toml::Table = text.parse().map_err(|error| format!("not TOML: {error}"))?;
        let mut ledger = Ledger { release: string(&table, "release")?, ..Ledger::default() };
        for (tool, _) in section(&table, "tools")? {
            ledger.tools.insert(tool.clone(), string(section(&table, "tools")?, tool)?);
        }
        for (path, _) in section(&table, "paths")? {
            let of_path = section(section(&table, "paths")?, path)?;
            let mut figures = Figures::default();
            for count in Count::ALL {
                figures.set(count, number(of_path, count.name())?);
            }
            ledger.paths.insert(path.clone(), figures);
        }
        for change in table.get("accepted").and_then(toml::Value::as_array).into_iter().flatten() {
            let change = change.as_table().ok_or("`accepted` is no list of tables")?;
            let count = string(change, "count")?;
            ledger.accepted.push(AcceptedChange {
                path: string(change, "path")?,
                count: Count::named(&count).ok_or_else(|| format!("`{count}` is not counted"))?,
                from: number(change, "from")?,
                to: number(change, "to")?,
                reason: string(change, "reason")?,
            });
        }
        ledger.check()?;
        Ok(ledger)
    }

    /// Whether accepted changes lead from the release's figures to those of today within their
    /// bounds: a figure that was edited by hand shows here.
    fn check(&self) -> Result<(), String> {
        for change in &self.accepted {
            let AcceptedChange { path, count, .. } = change;
            let today =
                self.paths.get(path).ok_or_else(|| format!("a change of `{path}` was accepted, which is no path"))?;
            let of_count = self.accepted.iter().filter(|other| other.path == *path && other.count == *count);
            let ends_at = of_count.fold(None, |before: Option<f64>, change| match before {
                Some(before) if before != change.from => Some(f64::NAN),
                _ => Some(change.to),
            });
            if ends_at != Some(today.get(*count)) {
                return Err(format!("{path}: the accepted changes of {count} do not lead to the figure of today"));
            }
            if change.reason.trim().is_empty() {
                return Err(format!("{path}: a change of {count} was accepted without a reason"));
            }
            self.check_budget(path, *count, today.get(*count))?;
        }
        Ok(())
    }

    /// The figure at the last release.
    fn released(&self, path: &str, count: Count) -> Option<f64> {
        let first = self.accepted.iter().find(|change| change.path == path && change.count == count);
        first.map(|change| change.from).or_else(|| self.paths.get(path).map(|figures| figures.get(count)))
    }

    fn check_budget(&self, path: &str, count: Count, to: f64) -> Result<(), String> {
        let Some(released) = self.released(path, count) else { return Ok(()) };
        let (added, budget) = (to - released, count.budget(released));
        if added <= budget {
            return Ok(());
        }
        Err(format!(
            "{path}: {count} would grow from {released} at release {} to {to}, by {added:.2}; changes of one release \
             may add {budget:.2}: make the path cheaper first",
            self.release
        ))
    }

    /// Takes over the counts of a path that lie too far from its figures, or a path that is new.
    /// Returns how many.
    ///
    /// # Errors
    /// The sum of accepted changes since the release would be too large: nothing is taken over.
    pub fn accept(&mut self, path: &str, counted: &Figures, leeway: Leeway, reason: &str) -> Result<usize, String> {
        let Some(base) = self.paths.get(path).copied() else {
            self.paths.insert(path.to_owned(), *counted);
            return Ok(Count::ALL.len());
        };
        let departures = counted.departures(&base, leeway);
        departures.iter().try_for_each(|count| self.check_budget(path, *count, counted.get(*count)))?;
        for count in &departures {
            let (from, to) = (base.get(*count), counted.get(*count));
            let (path, reason) = (path.to_owned(), reason.to_owned());
            self.accepted.push(AcceptedChange { path, count: *count, from, to, reason });
        }
        if let Some(figures) = self.paths.get_mut(path) {
            departures.iter().for_each(|count| figures.set(*count, counted.get(*count)));
        }
        Ok(departures.len())
    }

    /// Begins the accounts of the next release at the figures of today.
    pub fn begin_release(&mut self, release: &str) {
        release.clone_into(&mut self.release);
        self.accepted.clear();
    }

    /// Tools that are not those that counted: of each its name, the file's and the one here.
    pub fn other_tools(&self, here: &BTreeMap<String, String>) -> Vec<String> {
        let differs = |(name, version): &(&String, &String)| self.tools.get(*name) != Some(*version);
        let told = |(name, version): (&String, &String)| {
            let counted_by = self.tools.get(name).map_or("none", String::as_str);
            format!("{name}: the figures are by `{counted_by}`, here is `{version}`")
        };
        here.iter().filter(differs).map(told).collect()
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}release = {}\n\n[tools]\n", quoted(&self.release));
        self.tools.iter().for_each(|(tool, version)| _ = writeln!(text, "{tool} = {}", quoted(version)));
        text.push_str("\n[paths]\n");
        for (path, figures) in &self.paths {
            _ = writeln!(text, "\n[paths.{}]", quoted(path));
            Count::ALL.iter().for_each(|count| _ = writeln!(text, "{} = {}", count.name(), figures.get(*count)));
        }
        for AcceptedChange { path, count, from, to, reason } in &self.accepted {
            let (path, count, reason) = (quoted(path), quoted(count.name()), quoted(reason));
            _ = writeln!(text, "\n[[accepted]]\npath = {path}\ncount = {count}");
            _ = writeln!(text, "from = {from}\nto = {to}\nreason = {reason}");
        }
        text
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn section<'a>(table: &'a toml::Table, name: &str) -> Result<&'a toml::Table, String> {
    table.get(name).and_then(toml::Value::as_table).ok_or_else(|| format!("there is no table `{name}`"))
}

fn string(table: &toml::Table, name: &str) -> Result<String, String> {
    table.get(name).and_then(toml::Value::as_str).map(str::to_owned).ok_or_else(|| format!("there is no text `{name}`"))
}

fn number(table: &toml::Table, name: &str) -> Result<f64, String> {
    let value = table.get(name);
    let number = value.and_then(|value| value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)));
    number.filter(|number| number.is_finite()).ok_or_else(|| format!("there is no number `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Leeway = Leeway { wider: &[], times: 1.0 };

    fn figures(instructions: f64) -> Figures {
        Figures::of(|count| match count {
            Count::Instructions => instructions,
            Count::SystemCalls => 1.5,
            Count::Allocations => 4.0,
            Count::CopiedBytes => 1_024.0,
        })
    }

    fn ledger() -> Ledger {
        let tools = BTreeMap::from([("rustc".to_owned(), "rustc 1.95.0 (\"x\")".to_owned())]);
        let paths = BTreeMap::from([("hash get".to_owned(), figures(10_000.0))]);
        Ledger { tools, release: "0.1.0".into(), paths, accepted: Vec::new() }
    }

    #[test]
    fn the_file_comes_back_as_it_was_written() {
        let mut ledger = ledger();
        ledger.accept("hash get", &figures(10_400.0), STRICT, "checksums \"of\" keys\nare compared").unwrap();
        assert_eq!(Ledger::parse(&ledger.text()), Ok(ledger));
        let empty = Ledger { release: "0.1.0".into(), ..Ledger::default() };
        assert_eq!(Ledger::parse(&empty.text()), Ok(empty));
    }

    #[test]
    fn an_accepted_change_moves_the_figure_and_says_why() {
        let mut ledger = ledger();
        assert_eq!(ledger.accept("hash get", &figures(10_400.0), STRICT, "checksums"), Ok(1));
        assert_eq!(ledger.paths["hash get"], figures(10_400.0));
        let [change] = &ledger.accepted[..] else { panic!("{:?}", ledger.accepted) };
        assert_eq!((change.from, change.to, change.reason.as_str()), (10_000.0, 10_400.0, "checksums"));
    }

    #[test]
    fn what_lies_near_is_not_taken_over() {
        let mut ledger = ledger();
        assert_eq!(ledger.accept("hash get", &figures(10_200.0), STRICT, "noise"), Ok(0));
        assert_eq!(ledger, self::ledger());
    }

    #[test]
    fn accepted_changes_of_a_release_are_bounded_in_sum() {
        let mut ledger = ledger();
        ledger.accept("hash get", &figures(10_400.0), STRICT, "one").unwrap();
        let before = ledger.clone();
        // 4 % more each: together more than 5 %.
        let refused = ledger.accept("hash get", &figures(10_816.0), STRICT, "two").unwrap_err();
        assert!(refused.contains("10000 at release 0.1.0") && refused.contains("may add 500.00"), "{refused}");
        assert_eq!(ledger, before);
        ledger.begin_release("0.2.0");
        assert_eq!(ledger.accept("hash get", &figures(10_816.0), STRICT, "two"), Ok(1));
    }

    #[test]
    fn what_became_cheaper_pays_for_what_costs_more() {
        let mut ledger = ledger();
        assert_eq!(ledger.accept("hash get", &figures(9_000.0), STRICT, "shorter"), Ok(1));
        assert_eq!(ledger.accept("hash get", &figures(10_400.0), STRICT, "longer"), Ok(1));
        assert!(ledger.accept("hash get", &figures(10_900.0), STRICT, "longer still").is_err());
    }

    #[test]
    fn a_figure_edited_by_hand_is_found_behind_an_accepted_change() {
        let mut ledger = ledger();
        ledger.accept("hash get", &figures(10_400.0), STRICT, "one").unwrap();
        let text = ledger.text();
        let edited = text.replace("instructions = 10400", "instructions = 10450");
        assert!(Ledger::parse(&edited).unwrap_err().contains("do not lead to"), "{edited}");
        let far = text.replace("10400", "10600");
        assert!(Ledger::parse(&far).unwrap_err().contains("may add"), "{far}");
        let silent = text.replace("reason = \"one\"", "reason = \" \"");
        assert!(Ledger::parse(&silent).unwrap_err().contains("without a reason"), "{silent}");
    }

    #[test]
    fn other_tools_are_named() {
        let ledger = ledger();
        assert!(ledger.other_tools(&ledger.tools).is_empty());
        let here = BTreeMap::from([("rustc".to_owned(), "rustc 1.96.0".to_owned())]);
        let [told] = &ledger.other_tools(&here)[..] else { panic!("nothing is told") };
        assert!(told.contains("1.95.0") && told.contains("1.96.0"), "{told}");
    }

    #[test]
    fn a_new_path_needs_no_bound() {
        let mut ledger = ledger();
        assert_eq!(ledger.accept("hash put", &figures(1.0), STRICT, "new"), Ok(4));
        assert!(ledger.accepted.is_empty());
    }
}
