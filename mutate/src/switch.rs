//! Which mutation is on. `cargo xtask mutate` puts this file into `stratakv-base` of a copy of the
//! tree.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

enum Mode {
    On(u32),
    /// None is on; those that are met are written down.
    Watch(std::path::PathBuf),
}

static MODE: OnceLock<Mode> = OnceLock::new();
static MET: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Whether this mutation is on.
pub fn is(number: u32) -> bool {
    let mode = MODE.get_or_init(|| {
        if let Some(file) = std::env::var_os("MUTATIONS_MET") {
            return Mode::Watch(file.into());
        }
        let number = std::env::var("MUTATION").ok().and_then(|text| text.parse().ok());
        Mode::On(number.unwrap_or(0))
    });
    match mode {
        Mode::On(on) => *on == number,
        Mode::Watch(file) => {
            let (word, bit) = (number as usize / 64 % MET.len(), 1 << (number % 64));
            if MET[word].fetch_or(bit, Ordering::Relaxed) & bit == 0
                && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(file)
            {
                let _ = file.write_all(format!("{number}\n").as_bytes());
            }
            false
        }
    }
}
