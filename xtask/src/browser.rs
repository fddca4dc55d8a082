//! Chromium without a window, for chores that look at pages as a person would.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

/// Programs that are Chromium, or talk as it does.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// A desktop, and a small phone: width and height.
pub const DESKTOP: (u32, u32) = (1280, 1000);
pub const PHONE: (u32, u32) = (360, 740);

/// What a person would look for: a name, and an expression that is true of the page.
pub type Check<'a> = (&'a str, &'a str);

/// Holds the page to each of these.
///
/// # Errors
/// One is not so.
pub fn check(browser: &mut Browser, expected: &[Check<'_>]) -> Result<(), String> {
    for (what, expression) in expected {
        if browser.evaluate(expression)? != Value::Bool(true) {
            let text = browser.evaluate("document.body.innerText")?;
            return Err(format!("{what}: not so. The page says:\n{}", text.as_str().unwrap_or_default()));
        }
    }
    Ok(())
}

/// Chromium, spoken to in its DevTools protocol over two pipes: messages of JSON, each ended by a
/// zero byte.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    loaded: bool,
    /// Exceptions, refusals by the page's policy, and other errors on it.
    pub complaints: Vec<String>,
}

impl Browser {
    pub fn start(profile: &Path) -> Result<Browser, String> {
        let installed = |name: &&&str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
        let program = BROWSERS.iter().find(installed).ok_or("no Chromium is installed (Debian: chromium)")?;
        // It reads from descriptor 3 and writes to 4.
        let script = "exec 3<&0 4>&1 </dev/null >/dev/null; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox"]);
        command.args(["--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage"]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|error| format!("cannot start {program}: {error}"))?;
        let (to, from) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        let from = BufReader::new(from);
        Ok(Browser { child, to, from, session: None, number: 0, loaded: false, complaints: Vec::new() })
    }

    pub fn open(&mut self, url: &str) -> Result<(), String> {
        let target = self.ask("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.ask("Target.attachToTarget", attach)?;
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.ask(domain, json!({}))?;
        }
        self.resize(DESKTOP.0, DESKTOP.1)?;
        self.ask("Page.navigate", json!({ "url": url }))?;
        while !self.loaded {
            self.hear()?;
        }
        Ok(())
    }

    pub fn resize(&mut self, width: u32, height: u32) -> Result<(), String> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", size).map(|_| ())
    }

    /// As if the page were printed (`print`) or not (`screen`), by somebody who likes it `light` or
    /// `dark`.
    pub fn emulate(&mut self, media: &str, scheme: &str) -> Result<(), String> {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.ask("Emulation.setEmulatedMedia", json!({ "media": media, "features": features })).map(|_| ())
    }

    pub fn evaluate(&mut self, expression: &str) -> Result<Value, String> {
        let answer = self.ask(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        )?;
        match answer.get("exceptionDetails") {
            Some(exception) => Err(format!("{expression}: {exception}")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits in the page until it is so, or for as long as anything may take.
    pub fn becomes_true(&mut self, expression: &str) -> Result<bool, String> {
        let patience_ms = PATIENCE.as_millis();
        let answer = self.evaluate(&format!(
            "new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 50);
               setTimeout(() => done(false), {patience_ms}); look(); }})"
        ))?;
        Ok(answer == Value::Bool(true))
    }

    pub fn screenshot(&mut self) -> Result<Vec<u8>, String> {
        let answer = self.ask("Page.captureScreenshot", json!({ "format": "png" }))?;
        let data = answer["data"].as_str().ok_or("no picture came")?;
        base64::engine::general_purpose::STANDARD.decode(data).map_err(|error| error.to_string())
    }

    /// Sends a command and waits for its answer; notes complaints that come meanwhile.
    fn ask(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let failed = |error: std::io::Error| format!("the browser does not hear or answer: {error}");
        self.to.write_all(format!("{message}\0").as_bytes()).map_err(failed)?;
        loop {
            let heard = self.hear()?;
            if heard["id"] == self.number {
                return match heard.get("error") {
                    Some(error) => Err(format!("{method}: {error}")),
                    None => Ok(heard["result"].clone()),
                };
            }
        }
    }

    /// The next message; complaints are noted.
    fn hear(&mut self) -> Result<Value, String> {
        let mut bytes = Vec::new();
        let failed = |error: std::io::Error| format!("the browser does not answer: {error}");
        if self.from.read_until(0, &mut bytes).map_err(failed)? == 0 {
            return Err("the browser ended".into());
        }
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        let heard: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        self.loaded |= heard["method"] == "Page.loadEventFired";
        let level = &heard["params"]["entry"]["level"];
        if heard["method"] == "Runtime.exceptionThrown" || (heard["method"] == "Log.entryAdded" && level == "error") {
            self.complaints.push(heard["params"].to_string());
        }
        Ok(heard)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.ask("Browser.close", json!({}));
        // What does not close is ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
