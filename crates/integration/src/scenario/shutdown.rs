//! The end of a server.

use super::{ScenarioOutcome, Setting, honest};

pub(super) fn sigterm(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    let mut trial = setting.trial(&setting.place.join("data"), 8, honest());
    let rounds = setting.either(3, 30);
    for round in 0..rounds {
        let mut served = trial.start()?;
        if round > 0
            && served
                .said()
                .lines()
                .rev()
                .find(|line| line.starts_with("data"))
                .is_none_or(|l| l.contains("after a crash"))
        {
            return Err(format!("it was not closed in order:\n{}", served.said()));
        }
        let load = trial.load(&served);
        load.go_on(100 + 50 * round)?;
        load.expect_cut();
        served.ask_to_stop();
        let status = trial.wait(served, load)?;
        if !status.success() {
            return Err(format!("SIGTERM ended it with {status}"));
        }
    }
    let tally = trial.finish()?;
    Ok(ScenarioOutcome::Held(format!("{tally:?}")))
}
