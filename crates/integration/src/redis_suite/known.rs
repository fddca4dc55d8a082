//! Tests that are not run against ours, each with its reason.

use super::UNITS;
use super::run::SuiteServer;

/// Kinds of reasons: there are no others.
pub const REASONS: &[(&str, &str)] = &[
    ("replication", "it looks at replicas, or at a log of commands for them"),
    ("scripting", "it calls scripts or functions"),
    ("pubsub", "it publishes, or is told of changes of keys"),
    ("streams", "it uses streams, geo or HyperLogLog"),
    ("encoding", "it looks at how Redis lays values out in memory"),
    ("persistence", "it saves, loads or dumps in Redis's formats"),
    ("settings", "it changes a setting that is an option of the command line here"),
    ("limit", "it goes beyond a limit that docs/resp.md names"),
    ("differs", "docs/resp.md names the difference"),
    ("engine", "this engine cannot, and says so"),
    ("later", "docs/resp.md names the command as not there yet"),
];

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The unit.
    pub unit: String,
    /// The servers that it is not run against; none: all of ours.
    pub servers: Vec<String>,
    /// The test; with a `*` at its end all whose names begin so.
    pub test: String,
    /// A kind of reason.
    pub reason: String,
}

/// The list in the repository.
///
/// # Errors
/// A line of it cannot be read.
pub fn list() -> Result<Vec<Known>, String> {
    read(include_str!("known.txt"), UNITS)
}

/// A list of tests of these units.
///
/// # Errors
/// A line of it cannot be read.
pub fn read(text: &str, units: &[&str]) -> Result<Vec<Known>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|one| line(one, units)).collect()
}

fn line(line: &str, units: &[&str]) -> Result<Known, String> {
    let fields: Vec<&str> = line.splitn(4, " | ").map(str::trim).collect();
    let &[unit, servers, reason, test] = &fields[..] else { return Err(format!("no four fields: {line}")) };
    let servers: Vec<String> = match servers {
        "all" => Vec::new(),
        names => names.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let stranger = servers.iter().find(|name| !SuiteServer::OURS.iter().any(|server| server.name() == name.as_str()));
    if let Some(name) = stranger {
        return Err(format!("there is no server `{name}`: {line}"));
    }
    if !units.contains(&unit) {
        return Err(format!("there is no unit `{unit}`: {line}"));
    }
    if !REASONS.iter().any(|(name, _)| *name == reason) {
        return Err(format!("there is no reason `{reason}`: {line}"));
    }
    Ok(Known { unit: unit.to_owned(), servers, test: test.to_owned(), reason: reason.to_owned() })
}

impl Known {
    /// Whether it is about this server.
    pub fn is_of(&self, server: SuiteServer) -> bool {
        self.servers.is_empty() || self.servers.iter().any(|name| name == server.name())
    }

    /// How the suite is told to skip it.
    pub fn pattern(&self) -> String {
        let Some(front) = self.test.strip_suffix('*') else { return self.test.clone() };
        let mut pattern = String::from("/^");
        for letter in front.chars() {
            if !letter.is_alphanumeric() && letter != ' ' {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern
    }

    /// Whether this is the reason why a test is skipped.
    pub fn explains(&self, unit: &str, server: SuiteServer, test: &str) -> bool {
        let is_test = match self.test.strip_suffix('*') {
            Some(front) => test.starts_with(front),
            None => self.test == test,
        };
        is_test && self.unit == unit && self.is_of(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read() {
        list().expect("the list is well formed");
    }

    #[test]
    fn a_line_explains_its_tests_with_its_servers_only() {
        let [packed, tier] = ["packed", "tier"].map(|name| {
            *SuiteServer::OURS.iter().find(|server| server.name() == name).expect("there is such a server")
        });
        let line = |text| super::line(text, UNITS);
        let known = line("scan | packed | streams | XADD a | b*").expect("four fields");
        assert_eq!(known.pattern(), "/^XADD a \\| b");
        assert!(known.explains("scan", packed, "XADD a | bc") && !known.explains("scan", packed, "XADD a"));
        assert!(!known.explains("scan", tier, "XADD a | b") && !known.explains("multi", packed, "XADD a | b"));
        assert!(line("scan | all | later | x").expect("four fields").explains("scan", tier, "x"));
        for wrong in
            ["scan | all | because | x", "nothing | all | later | x", "scan | ours | later | x", "scan | all | x"]
        {
            assert!(line(wrong).is_err(), "{wrong}");
        }
    }
}
