//! Programs that people run on Redis, against a server of ours: `cargo xtask programs`.

use super::*;

mod redis_cli;

/// Runs a script against a server of this engine, if Python has these modules.
fn run(script: &str, modules: &str, engines: &[Engine]) {
    let mut import = Command::new("python3");
    import.args(["-c", &format!("import {modules}")]).stdout(Stdio::null()).stderr(Stdio::null());
    if !or_skipped(import.status().is_ok_and(|status| status.success()), &format!("python module {modules}")) {
        return;
    }
    for engine in engines {
        let bench = Bench::of(*engine);
        let mut command = Command::new("python3");
        command.arg(format!("{}/tests/programs/{script}", env!("CARGO_MANIFEST_DIR")));
        command.arg(bench.address().port().to_string()).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if said.starts_with("skipped: ") {
            or_skipped(false, &format!("a version of {modules} that needs no more than there is ({said})"));
            return;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.ends_with("ok"), "{engine:?}: {said}\n{errors}");
    }
}

#[test]
fn rq_works_off_a_queue() {
    run("rq_session.py", "rq", &[Engine::Slab, Engine::Hash]);
}

#[test]
fn celery_carries_out_tasks_chains_groups_and_chords() {
    run("celery_session.py", "celery, kombu", &[Engine::Slab]);
}

#[test]
fn django_redis_caches_and_keeps_sessions() {
    run("django_session.py", "django_redis", &[Engine::Slab, Engine::Hash]);
}

#[test]
fn a_leaderboard_a_queue_and_channels_by_redis_py_work() {
    run("leaderboard.py", "redis", &ENGINES[..3]);
}
