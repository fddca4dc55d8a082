//! The sources of the suite.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::compared::tool;

/// The Redis whose suite it is, and that is the control.
pub const VERSION: &str = "7.0.15";

/// The suite's folder: `given`, or one that the distribution's package tools fetch below `folder`.
///
/// # Errors
/// It cannot be had, or is of another version.
pub fn fetch(given: Option<&Path>, folder: &Path) -> Result<PathBuf, String> {
    let own = folder.join(format!("redis-{VERSION}"));
    let source = given.map_or(own.clone(), Path::to_path_buf);
    if given.is_none() && !own.is_dir() {
        tool(Command::new("apt-get").args(["source", "--download-only", "redis"]), folder).map_err(|why| {
            format!(
                "{why}\nThe package tools need a line `deb-src`. Or name a checkout of Redis {VERSION}: --source DIR"
            )
        })?;
        tool(Command::new("tar").args(["xzf", &format!("redis_{VERSION}.orig.tar.gz")]), folder)?;
    }
    let named = std::fs::read_to_string(source.join("src/version.h"));
    let named = named.map_err(|error| format!("{} is no checkout of Redis: {error}", source.display()))?;
    match named.contains(&format!("\"{VERSION}\"")) {
        true => Ok(source),
        false => Err(format!("{} is not Redis {VERSION}", source.display())),
    }
}
