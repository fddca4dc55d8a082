//! The tools, what they say, and what they may not say.

use std::fs;

use std::path::Path;

use stratakv_integration::program::{self, Serve, free_address};

use super::stores::{Kind, Made};

/// What a program said, and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn all(&self) -> String {
        format!("exit code {}\n{}{}", self.code, self.out, self.err)
    }
}

pub(crate) fn run_program<A: AsRef<str>>(arguments: &[A]) -> Said {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    said(&program::run(&arguments))
}

pub(crate) fn said(output: &std::process::Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    Said { code, out: text(&output.stdout), err: text(&output.stderr) }
}

/// What all tools say of one store.
#[derive(Debug)]
pub(crate) struct Row {
    kind: Kind,
    check: Said,
    check_json: Said,
    repair: Option<Said>,
    stats: Said,
    /// Keys that a get refuses; `None`: all, since the store does not open.
    refused: Option<Vec<Vec<u8>>>,
    /// Of each key that was refused, and of one that was not.
    gets: Vec<(Vec<u8>, Said)>,
    records: usize,
    dump: Option<(Said, Said)>,
    backup: Option<Said>,
    serve: Served,
}

#[derive(Debug)]
struct Served {
    /// Why it does not serve: its exit code, and what it said.
    refusal: Option<(i32, String)>,
    /// Keys that were not answered with their values.
    refused: Vec<Vec<u8>>,
    readyz: String,
}

/// Runs all of them. `trial`: for what they write.
pub(crate) fn run_all(made: &Made, trial: &Path) -> Row {
    fs::create_dir_all(trial).expect("a directory");
    let tool = |name: &str, more: &[&str]| {
        let (mut all, more) = (vec![name.to_owned()], more.iter().map(|one| (*one).to_owned()));
        all.extend(made.arguments());
        all.extend(more);
        run_program(&all)
    };
    let refused = made.refused(&format!("{made:?}"));
    let lost = refused.clone().unwrap_or_else(|| made.records.keys().take(1).cloned().collect());
    let right = made.records.keys().find(|key| refused.as_ref().is_some_and(|refused| !refused.contains(key)));
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let gets = lost.iter().take(1).chain(right).map(|key| (key.clone(), tool("get", &[&text(key)]))).collect();
    let backup = trial.join("backup");
    let row = Row {
        kind: made.kind,
        check: tool("check", &[]),
        check_json: tool("check", &["--json"]),
        repair: (made.kind == Kind::Matrix).then(|| tool("repair", &[])),
        stats: tool("stats", &[]),
        gets,
        refused,
        records: made.records.len(),
        dump: (!made.kind.is_cache()).then(|| (tool("dump", &[]), tool("dump", &["--skip-damaged"]))),
        backup: (!made.kind.is_cache()).then(|| tool("backup", &[&backup.display().to_string()])),
        serve: serve(made, trial),
    };
    drop(fs::remove_dir_all(trial));
    row
}

/// It may mend and write, so it is the last one.
fn serve(made: &Made, trial: &Path) -> Served {
    let admin = free_address().expect("a port");
    let mut serve = Serve::on(made.data()).options(&["--admin", &admin.to_string()]);
    serve.log = trial.join("log");
    let further = made.directories[1..].iter().map(|directory| directory.display().to_string());
    serve.options.extend(further.flat_map(|directory| ["--data".to_owned(), directory]));
    let mut served = serve.spawn().expect("the server can be started");
    if let Err(message) = served.wait_ready() {
        let code = message.split("exit status: ").nth(1).and_then(|rest| rest.split(')').next()?.parse().ok());
        return Served { refusal: Some((code.unwrap_or(-1), message)), refused: Vec::new(), readyz: String::new() };
    }
    let mut client = served.client();
    let mut refused = Vec::new();
    for (key, value) in &made.records {
        match client.get(key) {
            Ok(Some(found)) => assert!(found == *value, "{made:?}: a server gives a wrong value"),
            Ok(None) | Err(_) => refused.push(key.clone()),
        }
    }
    let readyz = program::admin(admin, "/readyz").expect("the admin address");
    served.stop();
    Served { refusal: None, refused, readyz }
}

impl Row {
    /// The rules at the head of the page.
    pub(crate) fn judge(&self, what: &str, harmless: bool) {
        let lost_any = self.refused.as_ref().is_none_or(|refused| !refused.is_empty());
        let is_sound = self.check.code == 0;
        assert!(
            !(is_sound && lost_any),
            "{what}: a get refuses {:?}, and check says {}",
            self.refused,
            self.check.all()
        );
        assert_eq!(is_sound, self.check.out.ends_with("sound\n"), "{what}: {}", self.check.all());
        assert_eq!(self.check.code, self.check_json.code, "{what}: {}", self.check_json.all());
        let says_sound = self.check_json.out.contains("\"sound\":true");
        assert_eq!(is_sound, says_sound, "{what}: {}", self.check_json.all());
        if harmless {
            assert!(is_sound && !lost_any, "{what}: nothing that counts was hit: {}", self.check.all());
        }
        self.judge_reads(what);
        for said in [&self.stats].into_iter().chain(self.repair.as_ref().filter(|said| said.code == 0)) {
            assert!(!said.err.contains("panicked"), "{what}: {}", said.all());
        }
        if let (Some(refused), None) = (&self.refused, &self.serve.refusal) {
            assert!(
                refused.is_empty() || !self.serve.refused.is_empty(),
                "{what}: a server finds what nobody else does"
            );
            let is_plain = self.serve.readyz == "ready";
            let misses = self.kind.is_cache() || self.serve.refused.is_empty();
            assert!(misses || !is_plain, "{what}: {:?} are refused, and /readyz says {}", refused, self.serve.readyz);
        }
    }

    fn judge_reads(&self, what: &str) {
        let Some(refused) = &self.refused else {
            for (_, get) in &self.gets {
                assert!(get.code != 0, "{what}: {}", get.all());
            }
            assert!(self.stats.code != 0 && self.check.code != 0, "{what}: {} {}", self.stats.all(), self.check.all());
            let others = self.dump.iter().flat_map(|(dump, skip)| [dump, skip]).chain(&self.backup);
            others.for_each(|said| assert!(said.code != 0, "{what}: {}", said.all()));
            return;
        };
        assert_eq!(self.stats.code, 0, "{what}: {}", self.stats.all());
        for (key, get) in &self.gets {
            let expected = if !refused.contains(key) {
                0
            } else if self.kind.is_cache() {
                3
            } else {
                4
            };
            assert!(get.code == expected || self.kind.is_cache() && get.code == 4, "{what}: {}", get.all());
        }
        if let Some((dump, skip)) = &self.dump {
            let lines = skip.out.lines().filter(|line| line.starts_with("{\"key\":\"k")).count();
            assert_eq!(lines, self.records - refused.len(), "{what}: {}", skip.err);
            for said in [dump, skip] {
                assert!(said.code == 0 || said.code == 4, "{what}: {}", said.err);
                assert!(said.code == 4 || refused.is_empty(), "{what}: a dump lacks records: {}", said.err);
            }
        }
        if let Some(backup) = &self.backup {
            assert!(backup.code != 0 || refused.is_empty(), "{what}: a backup lacks records: {}", backup.all());
        }
    }

    pub(crate) fn cells(&self) -> Vec<String> {
        let refuses = |code: i32| format!("refuses ({code})");
        let check = match &self.check {
            said if said.out.ends_with("sound\n") => "sound".to_owned(),
            said if said.out.contains("damaged: ") || said.out.contains("lost: ") => format!("damaged ({})", said.code),
            said => refuses(said.code),
        };
        let repair = match &self.repair {
            None => "—".to_owned(),
            Some(said) if said.code == 0 => "nothing to do".to_owned(),
            Some(said) if said.out.contains("shard 0: ") => format!("tells the loss ({})", said.code),
            Some(said) => refuses(said.code),
        };
        let stats = match self.stats.code {
            0 if self.stats.out.lines().filter(|line| line.starts_with("damaged")).all(|line| line.ends_with(" 0")) => {
                "opens".to_owned()
            }
            0 => "tells damage".to_owned(),
            code => refuses(code),
        };
        let get = match &self.refused {
            Some(refused) if refused.is_empty() => "right".to_owned(),
            Some(refused) if refused.len() == self.records => format!("refuses all ({})", self.gets[0].1.code),
            Some(_) => format!("refuses the lost ({})", self.gets[0].1.code),
            None => refuses(self.gets[0].1.code),
        };
        let dump = self.dump.as_ref().map_or("—".to_owned(), |(dump, skip)| match (dump.code, &self.refused) {
            (0, _) => "whole".to_owned(),
            (code, Some(_)) if !skip.out.is_empty() => format!("tells ({code})"),
            (code, _) => refuses(code),
        });
        let backup = self.backup.as_ref().map_or("—".to_owned(), |said| match said.code {
            0 => "whole".to_owned(),
            code => refuses(code),
        });
        let serve = match &self.serve {
            Served { refusal: Some((code, _)), .. } => refuses(*code),
            Served { refused, .. } if refused.is_empty() => "serves all".to_owned(),
            _ if self.refused.is_none() => "begins anew".to_owned(),
            _ if self.kind.is_cache() => "serves, misses".to_owned(),
            _ => "serves the rest".to_owned(),
        };
        let readyz = match &self.serve {
            Served { refusal: Some(_), .. } => "—",
            Served { readyz, .. } if readyz == "ready" => "ready",
            // A cache drops what it meets: whether it has met it already is a matter of time.
            _ if self.kind.is_cache() => "ready",
            Served { readyz, .. } if readyz.starts_with("ready, but damage was met") => "tells damage",
            Served { readyz, .. } => readyz,
        };
        vec![check, repair, stats, get, dump, backup, serve, readyz.to_owned()]
    }
}
