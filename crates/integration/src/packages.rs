//! Real data: what `apt-cache dumpavail` knows, one record for each stanza.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Key → stanza. The key is `name/version/architecture`, with a counter where that occurs twice; at
/// most 250 bytes without spaces, so that memcache takes it.
pub type Packages = BTreeMap<String, Vec<u8>>;

/// Reads them all.
///
/// # Errors
/// The program fails or prints nothing.
pub fn read(apt_cache: &Path) -> Result<Packages, String> {
    let output = Command::new(apt_cache).arg("dumpavail").output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("apt-cache dumpavail: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(parse(&output.stdout))
}

/// Splits at empty lines.
pub fn parse(dump: &[u8]) -> Packages {
    let mut packages = Packages::new();
    for stanza in stanzas(dump) {
        let field = |name: &str| {
            let line = stanza.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()));
            String::from_utf8_lossy(line.unwrap_or_default()).trim().to_owned()
        };
        let mut key = format!("{}/{}/{}", field("Package:"), field("Version:"), field("Architecture:"));
        key.retain(|c| c.is_ascii_graphic());
        key.truncate(240);
        let unique = (1..).map(|n| if n == 1 { key.clone() } else { format!("{key}#{n}") });
        if let Some(key) = unique.into_iter().find(|key| !packages.contains_key(key)) {
            packages.insert(key, stanza.to_vec());
        }
    }
    packages
}

fn stanzas(dump: &[u8]) -> Vec<&[u8]> {
    let (mut stanzas, mut start, mut at) = (Vec::new(), 0, 0);
    while at < dump.len() {
        let line_end = dump[at..].iter().position(|byte| *byte == b'\n').map_or(dump.len(), |len| at + len + 1);
        if dump[at..line_end].trim_ascii().is_empty() {
            stanzas.push(&dump[start..at]);
            start = line_end;
        }
        at = line_end;
    }
    stanzas.push(&dump[start..]);
    stanzas.retain(|stanza| !stanza.trim_ascii().is_empty());
    stanzas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_stanzas_and_keeps_their_bytes() {
        let dump = b"Package: a\nVersion: 1\nArchitecture: all\n\nPackage: a\nVersion: 1\nArchitecture: all\nX: \xff\n\n\nPackage: b\n";
        let packages = parse(dump);
        let keys: Vec<&str> = packages.keys().map(String::as_str).collect();
        assert_eq!(keys, ["a/1/all", "a/1/all#2", "b//"]);
        assert!(packages["a/1/all#2"].ends_with(b"X: \xff\n"));
    }
}
