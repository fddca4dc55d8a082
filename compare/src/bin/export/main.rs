//! The records of a RocksDB directory or of an LMDB file as lines of JSON, which `stratakv import`
//! reads. Here, as it links what StrataKV itself does without.

mod lines;
mod lmdb;
mod rocksdb;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::lines::Lines;

/// Records of RocksDB or LMDB as lines of JSON, for `stratakv import -`
#[derive(Parser)]
#[command(
    name = "export",
    after_help = "Examples:
  export rocksdb /var/lib/app/db | stratakv import - --format jsonl --data copy
  export rocksdb DIR --column-family users | stratakv import - --format jsonl --collection users
  export lmdb data.mdb --database posts > posts.jsonl
  export rocksdb DIR --resume C | stratakv import - --format jsonl --resume C --data copy

The source is opened for reading only. RocksDB must be closed, or its newest writes may be missing. \
LMDB may be in use. At the end it says how many records were written and what was left out; \
exit code 6 if something was.

With --resume the lines go on behind the last key that the checkpoint of `import --resume` names, which \
has to read the same file. A first and a last line tell that one where the export begins, and that it \
came to its end. Run the same line again until both exit with 0."
)]
struct Arguments {
    /// Go on behind the last key that this checkpoint of `stratakv import --resume` names
    #[arg(long, value_name = "FILE", global = true)]
    resume: Option<PathBuf>,
    #[command(subcommand)]
    source: Source,
}

#[derive(Subcommand)]
enum Source {
    /// A directory of RocksDB; it must order its keys by their bytes
    Rocksdb {
        /// Where its CURRENT and its tables are
        directory: PathBuf,
        /// Another one than `default`
        #[arg(long, value_name = "NAME", default_value = "default")]
        column_family: String,
    },
    /// An environment of LMDB: its directory, or its file
    Lmdb {
        /// `data.mdb`, or the directory with it
        path: PathBuf,
        /// A named database instead of the main one
        #[arg(long, value_name = "NAME")]
        database: Option<String>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut lines = Lines::new(io::BufWriter::with_capacity(1 << 20, io::stdout().lock()));
    let begun = match arguments.resume.as_deref().map(lines::last_key) {
        Some(behind) => behind.and_then(|key| lines.begin_behind(key)),
        None => Ok(()),
    };
    let read = begun.and_then(|()| match &arguments.source {
        Source::Rocksdb { directory, column_family } => rocksdb::read(directory, column_family, &mut lines),
        Source::Lmdb { path, database } => lmdb::read(path, database.as_deref(), &mut lines),
    });
    let ended = read.and_then(|()| lines.end());
    let mut say = io::stderr().lock();
    // Whoever reads neither is told by the exit code.
    let _told = write!(say, "{}", lines.report());
    match ended {
        Ok(()) if lines.is_complete() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(6),
        Err(why) => {
            let _told = writeln!(say, "export: {why}");
            ExitCode::FAILURE
        }
    }
}
