//! LMDB by heed.
#![expect(unsafe_code, reason = "LMDB maps a file that others could change")]

use std::io::Write;
use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use crate::lines::Lines;

/// Named databases that can be open at once: the one asked for, and one that is looked for.
const DATABASES_MAX: u32 = 65_536;
/// What LMDB keeps of a named database in the main one.
const NAMED_BYTES: usize = 48;

/// Writes the records of the main database, or of a named one.
///
/// # Errors
/// It is no environment of LMDB, has no such database, or cannot be read.
pub fn read<W: Write>(path: &Path, database: Option<&str>, lines: &mut Lines<W>) -> Result<(), String> {
    let wrong = |error: heed::Error| format!("{}: {error}", path.display());
    if !path.exists() {
        return Err(format!("there is no {}", path.display()));
    }
    let mut options = EnvOpenOptions::new();
    options.max_dbs(DATABASES_MAX);
    let mut flags = EnvFlags::READ_ONLY;
    flags.set(EnvFlags::NO_SUB_DIR, path.is_file());
    // SAFETY: read-only; LMDB keeps readers of other processes apart from writers by its lock file.
    let env = unsafe { options.flags(flags).open(path) }.map_err(wrong)?;
    let read = read_from(&env, path, database, lines);
    env.prepare_for_closing().wait();
    read
}

fn read_from<W: Write>(
    env: &Env<WithTls>,
    path: &Path,
    database: Option<&str>,
    lines: &mut Lines<W>,
) -> Result<(), String> {
    let wrong = |error: heed::Error| format!("{}: {error}", path.display());
    let transaction = env.read_txn().map_err(wrong)?;
    let found = env.open_database::<Bytes, Bytes>(&transaction, database).map_err(wrong)?;
    let found = found.ok_or_else(|| format!("{} has no database `{}`", path.display(), database.unwrap_or("")))?;
    let mut before: Option<&[u8]> = None;
    let from = lines.begun_behind().map(<[u8]>::to_vec);
    let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
    for record in found.range(&transaction, &(from, Bound::Unbounded)).map_err(wrong)? {
        let (key, value) = record.map_err(wrong)?;
        if database.is_none() && is_named(env, &transaction, key, value) {
            let name = String::from_utf8_lossy(key);
            lines.note(format!("the database `{name}` is not read here: --database {name}"));
            continue;
        }
        if before == Some(key) {
            lines.leave_out("more values of a key than one: a store has one", key);
            continue;
        }
        before = Some(key);
        lines.write(key, value)?;
    }
    Ok(())
}

/// Whether a record of the main database is the root of a named one.
fn is_named(env: &Env<WithTls>, transaction: &RoTxn<'_>, key: &[u8], value: &[u8]) -> bool {
    // A name has no zero byte: the library would panic.
    let may_be_name = value.len() == NAMED_BYTES && !key.contains(&0);
    let name = std::str::from_utf8(key).ok().filter(|_| may_be_name);
    let opened: Option<Database<Bytes, Bytes>> =
        name.and_then(|name| env.open_database(transaction, Some(name)).ok().flatten());
    opened.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_and_other_databases_are_told_of() {
        let folder = std::env::temp_dir().join(format!("stratakv-export-lmdb-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // SAFETY: nobody else has it.
        let env = unsafe { EnvOpenOptions::new().max_dbs(2).map_size(1 << 20).open(&folder) }.unwrap();
        let mut transaction = env.write_txn().unwrap();
        let main: Database<Bytes, Bytes> = env.create_database(&mut transaction, None).unwrap();
        let other: Database<Bytes, Bytes> = env.create_database(&mut transaction, Some("other")).unwrap();
        main.put(&mut transaction, b"k", b"v").unwrap();
        // It is as long as the root of a database.
        main.put(&mut transaction, b"long", &[b'x'; NAMED_BYTES]).unwrap();
        main.put(&mut transaction, b"zero\0", &[b'x'; NAMED_BYTES]).unwrap();
        other.put(&mut transaction, b"o", b"1").unwrap();
        transaction.commit().unwrap();
        env.prepare_for_closing().wait();
        let exported = |database| {
            let mut out = Vec::new();
            let mut lines = Lines::new(&mut out);
            read(&folder, database, &mut lines).and_then(|()| lines.end()).unwrap();
            let report = lines.report();
            (String::from_utf8(out).unwrap(), report)
        };
        let (text, report) = exported(None);
        assert!(text.lines().count() == 3 && text.contains("\"k\"") && text.contains("\"long\""), "{text}");
        assert!(report.contains("3 records") && report.contains("--database other"), "{report}");
        assert_eq!(exported(Some("other")).0, "{\"key\":\"o\",\"value\":\"1\"}\n");
        for (key, rest) in [("a", 3), ("k", 2), ("long", 1), ("zero\0", 0)] {
            let mut lines = Lines::new(Vec::new());
            lines.begin_behind(Some(key.into())).unwrap();
            read(&folder, None, &mut lines).unwrap();
            assert!(lines.report().contains(&format!("{rest} records")), "{key}: {}", lines.report());
        }
        let why = read(&folder, Some("absent"), &mut Lines::new(Vec::new())).unwrap_err();
        assert!(why.contains("no database `absent`"), "{why}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
