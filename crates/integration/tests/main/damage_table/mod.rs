//! docs/damage.md: what each tool says of each damage, made by running them, and the rules that
//! they follow. `STRATAKV_WRITE_DAMAGE=1` writes the page; else a page that says something else
//! fails.

mod eio;
mod stores;
mod tools;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use stratakv_integration::place;

use self::stores::{Kind, Made, damages};
use self::tools::{Row, run_all, run_program};

const HEAD: &str = "\
# What the tools say of damage

This page is made by `crates/integration/tests/main/damage_table`, which damages stores and runs the
tools. `STRATAKV_WRITE_DAMAGE=1 cargo test -p stratakv-integration --test main damage_table` writes
it anew. The test fails where the page says something else, and where a tool breaks one of these
rules:

- A value is right, or it is refused: no damage is ever given out as data.
- `check` says `sound` if and only if every get gives its record and nothing else is wrong.
- `check` stays `sound` where only free space is hit.
- Exit codes follow: 0 only where nothing is wrong, 4 for damage, 1 for a device that gives errors.
- `dump` and `backup` end with 0 only if nothing is missing from what they wrote.
- `dump --skip-damaged` writes exactly the records that a get gives.
- A server that met damage says so under `/readyz`.
- An error of the device is never called damage, and nobody is told to remove anything.

`get` was asked for every key: `right` means all of them, `refuses the lost` that the others are
right. `stats` opens the store and tells what that found. `repair` is for regions of `matrix`.
`doctor` looks at disks and kernels, not at stores, so it has no column. A cache drops what is
damaged, and is `ready` all the while. A number is an exit code.

## Files, bits and interruptions
";

/// Damages of all kinds of stores; those of one, for tests that run beside one another.
fn table_of(kind: Kind) -> String {
    let place = place::directory();
    let made = Made::new(kind, &place.path().join("made"), false);
    let mut text = format!("\n### {}\n\n", kind.name());
    text += "| structure | damage | `check` | `repair` | `stats` | `get` | `dump` | `backup` | `serve` | `/readyz` |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|\n";
    let whole = run_all(&made, &place.path().join("whole"));
    whole.judge(&format!("{}: whole", kind.name()), true);
    line(&mut text, "nothing", "none", &whole);
    for (number, damage) in damages(&made).into_iter().enumerate() {
        let copy = made.copy(&place.path().join(format!("damaged{number}")));
        damage.of(&made, &copy).apply();
        let row = run_all(&copy, &place.path().join("trial"));
        row.judge(&format!("{}: {} {}", kind.name(), damage.structure, damage.how), damage.harmless);
        line(&mut text, damage.structure, damage.how, &row);
        remove(&copy);
    }
    let killed = Made::new(kind, &place.path().join("killed"), true);
    let row = run_all(&killed, &place.path().join("trial"));
    // A cache promises nothing that was in memory.
    if !kind.is_cache() {
        row.judge(&format!("{}: killed", kind.name()), true);
    }
    line(&mut text, "the store", "process killed", &row);
    if !kind.is_cache() {
        let half = half_restored(&made, place.path());
        let row = run_all(&half, &place.path().join("trial"));
        row.judge(&format!("{}: restore interrupted", kind.name()), false);
        line(&mut text, "the store", "restore interrupted", &row);
    }
    text
}

fn line(text: &mut String, structure: &str, how: &str, row: &Row) {
    let cells = row.cells().join(" | ");
    writeln!(text, "| {structure} | {how} | {cells} |").expect("memory takes it");
}

fn remove(made: &Made) {
    made.directories.iter().for_each(|directory| drop(fs::remove_dir_all(directory)));
}

/// A backup, and the files in it.
fn backup_of(made: &Made, to: &Path) -> Vec<PathBuf> {
    let store = made.open().expect("it opens");
    store.backup(to).expect("a backup");
    store.close().expect("closed");
    vec![to.join("backup.toml"), to.join("shard-000.backup")]
}

/// What a restore leaves that ended in the middle: here for want of the end of its backup.
fn half_restored(made: &Made, place: &Path) -> Made {
    let (backup, to) = (place.join("cut"), place.join("half"));
    let files = backup_of(made, &backup);
    let whole = fs::metadata(&files[1]).expect("a file").len();
    fs::File::options().write(true).open(&files[1]).and_then(|file| file.set_len(whole - 8)).expect("cut");
    let directories: Vec<PathBuf> = (0..made.directories.len()).map(|number| to.join(number.to_string())).collect();
    let half = Made { directories, ..made.clone() };
    let arguments = [&["restore".to_owned(), backup.display().to_string()], &half.arguments()[..]].concat();
    let shards = ["--shards".to_owned(), made.directories.len().to_string()];
    let level = if made.open().expect("it opens").region().is_some() { &[][..] } else { &shards[..] };
    let ended = run_program(&[&arguments[..], level].concat());
    assert_eq!(ended.code, 4, "a backup without its end: {}", ended.all());
    // Whoever tries again is told what a get is told.
    let again = run_program(&[&arguments[..], level].concat());
    assert!(again.code == 4 && again.err.contains("a restore into it was interrupted"), "{}", again.all());
    half
}

/// Backups, and what `restore` says of them.
fn table_of_backups() -> String {
    let place = place::directory();
    let made = Made::new(Kind::InPlace, &place.path().join("made"), false);
    let mut text = "\n### Backups\n\n| structure | damage | `restore` |\n|---|---|---|\n".to_owned();
    let hits = ["none", "bit", "cut in half", "missing"];
    for (number, structure) in ["`backup.toml`", "a shard's file"].into_iter().enumerate() {
        for how in hits {
            let (backup, to) = (place.path().join("backup"), place.path().join("to"));
            let file = backup_of(&made, &backup).swap_remove(number);
            let bytes = fs::read(&file).expect("it can be read");
            let mut flipped = bytes.clone();
            // Of the text the first letter that is no comment's.
            let at = if number == 0 { find_line(&bytes) } else { bytes.len() / 2 };
            flipped[at] ^= 0x80;
            match how {
                "bit" => fs::write(&file, &flipped).expect("written"),
                "cut in half" => fs::write(&file, &bytes[..bytes.len() / 2]).expect("written"),
                "missing" => fs::remove_file(&file).expect("removed"),
                _ => {}
            }
            let said = run_program(&["restore", &backup.display().to_string(), "--data", &to.display().to_string()]);
            let is_whole = how == "none";
            assert_eq!(said.code == 0, is_whole, "{structure}, {how}: {}", said.all());
            let cell = if is_whole { "restores".to_owned() } else { format!("refuses ({})", said.code) };
            writeln!(text, "| {structure} | {how} | {cell} |").expect("memory takes it");
            let restored = Made { directories: vec![to.clone()], ..made.clone() };
            assert_eq!(restored.refused(structure) == Some(Vec::new()), is_whole, "{structure}, {how}");
            drop((fs::remove_dir_all(&backup), fs::remove_dir_all(&to)));
        }
    }
    text
}

fn find_line(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/damage.md")
}

/// The page has this part, word for word.
fn compare(part: &str) {
    let page = fs::read_to_string(page()).expect("docs/damage.md");
    assert!(
        page.contains(part),
        "docs/damage.md says something else: STRATAKV_WRITE_DAMAGE=1 cargo test -p stratakv-integration --test main \
         damage_table writes it anew. This is what the tools say:\n{part}"
    );
}

fn writes() -> bool {
    std::env::var_os("STRATAKV_WRITE_DAMAGE").is_some()
}

/// The page as it is written; the tests below compare its parts.
#[test]
fn write_the_page() {
    if !writes() {
        return compare(HEAD);
    }
    let tables = Kind::ALL.map(table_of).concat();
    let devices = eio::table().expect("strace, to write the page");
    fs::write(page(), format!("{HEAD}{tables}{}{devices}", table_of_backups())).expect("written");
}

macro_rules! tables {
    ($($name:ident: $part:expr;)*) => {$(
        #[test]
        fn $name() {
            if !writes() {
                compare(&$part);
            }
        }
    )*};
}

tables! {
    damage_of_in_place: table_of(Kind::InPlace);
    damage_of_packed: table_of(Kind::Packed);
    damage_of_two_directories: table_of(Kind::Directories);
    damage_of_hash: table_of(Kind::Hash);
    damage_of_matrix: table_of(Kind::Matrix);
    damage_of_tier: table_of(Kind::Tier);
    damage_of_backups: table_of_backups();
}

#[test]
fn errors_of_devices_are_not_called_damage() {
    if !writes()
        && let Some(part) = eio::table()
    {
        compare(&part);
    }
}
