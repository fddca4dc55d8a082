//! What a chore needs and a machine may lack. There are two kinds of it, as for the tests
//! (`crates/integration/src/requirement.rs`): in CI only one of them is a failure.

/// What a machine lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A tool that could be installed: in CI everything that can run must run.
    Tool(String),
    /// What no installation gives: root, namespaces, an archive, a kernel that allows it.
    Given(String),
}

/// Why a chore did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It could not begin.
    Lacks(Lack),
    /// What it looked at is wrong.
    Failed(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Stop {
        Stop::Failed(why)
    }
}

impl From<Lack> for Stop {
    fn from(lack: Lack) -> Stop {
        Stop::Lacks(lack)
    }
}

/// Whether this is CI.
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The outcome of a chore. What a machine lacks is said in one line, and is no failure, unless a
/// tool is missing in CI.
///
/// # Errors
/// What failed, or the tool.
pub fn judge(outcome: Result<(), Stop>) -> Result<(), String> {
    match outcome {
        Ok(()) => Ok(()),
        Err(Stop::Failed(why)) => Err(why),
        Err(Stop::Lacks(lack)) => lack.decide(is_ci()).map(|line| println!("{line}")),
    }
}

impl Lack {
    /// The line that says what is skipped.
    ///
    /// # Errors
    /// It is a tool, and this is CI.
    fn decide(self, is_ci: bool) -> Result<String, String> {
        match self {
            Lack::Tool(tool) if is_ci => Err(format!("{tool}; with CI=true everything must run")),
            Lack::Tool(what) | Lack::Given(what) => Ok(format!("skipped: {}", what.replace('\n', "; "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_ci_a_missing_tool_fails_and_what_no_installation_gives_does_not() {
        let tool = || Lack::Tool("crun is not installed".into());
        let root = || Lack::Given("it takes root:\nuse sudo".into());
        assert_eq!(tool().decide(false), Ok("skipped: crun is not installed".to_owned()));
        assert!(tool().decide(true).is_err_and(|why| why.contains("CI=true")));
        for is_ci in [false, true] {
            assert_eq!(root().decide(is_ci), Ok("skipped: it takes root:; use sudo".to_owned()));
        }
        assert_eq!(judge(Err(root().into())), Ok(()));
        assert_eq!(judge(Err("broken".to_owned().into())), Err("broken".to_owned()));
    }
}
