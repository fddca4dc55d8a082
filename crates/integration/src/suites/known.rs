//! Differences that are known, each with its reason.

use super::base;
use super::server::Kind;

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The client.
    pub suite: String,
    /// The servers that differ.
    pub servers: Vec<String>,
    /// The test, without its parameters.
    pub test: String,
    /// Why it differs.
    pub reason: String,
}

/// The list in the repository.
///
/// # Errors
/// A line of it cannot be read.
pub fn list() -> Result<Vec<Known>, String> {
    read(include_str!("known.txt"))
}

fn read(text: &str) -> Result<Vec<Known>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(line).collect()
}

fn line(line: &str) -> Result<Known, String> {
    let fields: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
    let &[suite, servers, test, reason] = &fields[..] else { return Err(format!("known.txt: no four fields: {line}")) };
    let servers: Vec<String> = servers.split(',').map(|name| name.trim().to_owned()).collect();
    let stranger = servers.iter().find(|name| !Kind::ALL.iter().any(|kind| kind.name() == name.as_str()));
    match stranger {
        Some(name) => Err(format!("known.txt: there is no server `{name}`")),
        None if super::named(suite).is_none() => Err(format!("known.txt: there is no suite `{suite}`")),
        None => Ok(Known { suite: suite.to_owned(), servers, test: test.to_owned(), reason: reason.to_owned() }),
    }
}

impl Known {
    /// Whether this is the reason of a difference.
    pub fn explains(&self, suite: &str, server: Kind, test: &str) -> bool {
        self.suite == suite && self.servers.iter().any(|name| name == server.name()) && self.test == base(test)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

    #[test]
    fn the_list_can_be_read() {
        assert!(list().expect("the list is well formed").iter().all(|known| !known.reason.is_empty()));
    }

    #[test]
    fn a_line_explains_its_test_with_its_servers_only() {
        let known = line("memjs | slab, packed | a.test_b | why | so").expect("four fields");
        assert!(known.explains("memjs", Kind::Packed, "a.test_b[x]"));
        assert!(!known.explains("memjs", Kind::Ours(Engine::Tier), "a.test_b"));
        assert!(!known.explains("memjs", Kind::Packed, "a.test_bc"));
        assert_eq!(known.reason, "why | so");
    }

    #[test]
    fn unknown_names_are_refused() {
        assert!(line("memjs | slap | a | why").is_err());
        assert!(line("other | slab | a | why").is_err());
        assert!(line("memjs | slab | a").is_err());
    }
}
