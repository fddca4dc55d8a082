//! A real graph that every Debian machine has: which package depends on which.

use std::collections::HashMap;
use std::io::BufRead;

use super::Vertex;
use crate::target::BenchError;

/// Packages and their dependencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages {
    /// Names by vertex, in the order in which they are met: as a package, or as what one depends
    /// on.
    pub names: Vec<String>,
    /// From the package that depends to the one that it needs.
    pub edges: Vec<(Vertex, Vertex)>,
}

impl Packages {
    /// Reads stanzas as `dpkg` keeps them (`/var/lib/dpkg/status`) and `apt-cache dumpavail` prints
    /// them: `Depends` and `Pre-Depends`. Each alternative (`a | b`) is an edge; versions and
    /// architectures are left out. What is no field is passed over.
    ///
    /// # Errors
    /// The reader's own; no package in the text.
    pub fn read(text: impl BufRead) -> Result<Packages, BenchError> {
        let mut reader = Reader::default();
        for line in text.split(b'\n') {
            reader.line(&String::from_utf8_lossy(&line?));
        }
        reader.stanza_end();
        if reader.packages.names.is_empty() {
            return Err(BenchError::Wrong(
                "no package is in the text: it has stanzas with `Package:` and `Depends:`, as /var/lib/dpkg/status and the output of \
                 `apt-cache dumpavail`"
                    .into(),
            ));
        }
        Ok(reader.packages)
    }

    /// The vertex of a package.
    pub fn vertex(&self, name: &str) -> Option<Vertex> {
        self.names.iter().position(|known| known == name).and_then(|at| at.try_into().ok())
    }
}

#[derive(Default)]
struct Reader {
    packages: Packages,
    vertices: HashMap<String, Vertex>,
    /// Of the stanza being read.
    package: Option<Vertex>,
    depends: String,
    /// The last field was one of dependencies: lines that begin with a blank belong to it.
    in_depends: bool,
}

impl Reader {
    fn line(&mut self, line: &str) {
        if line.trim().is_empty() {
            return self.stanza_end();
        }
        if line.starts_with([' ', '\t']) {
            if self.in_depends {
                self.depends.push_str(line);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.in_depends = matches!(field, "Depends" | "Pre-Depends");
        if self.in_depends {
            self.depends.push(',');
            self.depends.push_str(value);
        } else if field == "Package" && !value.trim().is_empty() {
            self.package = Some(self.vertex(value.trim()));
        }
    }

    fn stanza_end(&mut self) {
        let depends = std::mem::take(&mut self.depends);
        self.in_depends = false;
        let Some(package) = self.package.take() else { return };
        for needed in depends.split([',', '|']) {
            // `name:any (>= 1.0)` without what follows the name.
            let name = needed.trim().split([' ', '\t', '(', ':', '[', '<']).next().unwrap_or_default();
            if !name.is_empty() {
                let needed = self.vertex(name);
                self.packages.edges.push((package, needed));
            }
        }
    }

    fn vertex(&mut self, name: &str) -> Vertex {
        let next = self.vertices.len() as Vertex;
        let vertex = *self.vertices.entry(name.to_owned()).or_insert(next);
        if vertex == next {
            self.packages.names.push(name.to_owned());
        }
        vertex
    }
}
