//! Debian's Chromium without a window, driven through its debugging protocol on two
//! pipes. <https://chromedevtools.github.io/devtools-protocol/>

use crate::support::base64::from_base64;
use crate::support::{PATIENCE, eventually, skip};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Among them all that Chromium needs to stay off the network. A trusted page on loopback
/// needs no sandbox, and root can't have one.
const FLAGS: [&str; 13] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    // Coloured edges of letters enlarge the screenshots.
    "--disable-lcd-text",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
];

/// A browser with one page; ended when dropped.
pub(crate) struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    /// Messages that are not answers.
    pub(crate) events: Vec<Value>,
    profile: PathBuf,
}

impl Browser {
    /// `None`, with a message, if the machine has no Chromium.
    pub(crate) fn start(name: &str) -> Option<Browser> {
        let version = Command::new("chromium").arg("--version").output();
        if !version.is_ok_and(|output| output.status.success()) {
            skip("no chromium: run `tests/support/fetch-tools.sh browser` first");
            return None;
        }
        let folder = format!("chromium-{name}-{}", std::process::id());
        let profile = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
        // Chromium reads from descriptor 3 and writes to 4.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec chromium "$@" 3<&0 4>&1 < /dev/null > /dev/null 2>&1"#, "sh"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start chromium");
        let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while answers.read_until(0, &mut bytes).is_ok_and(|len| len > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).expect("JSON");
                if sender.send(message).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let requests = child.stdin.take().expect("a pipe");
        let (session, events) = (None, Vec::new());
        let mut browser =
            Browser { child, requests, messages, last_id: 0, session, events, profile };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let wanted = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", wanted);
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Calls a method of the protocol.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).expect("ask chromium");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            let message = message.unwrap_or_else(|e| panic!("{method}: {e}"));
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Sets the size of the screen and the colour scheme, dark or light.
    #[track_caller]
    pub(crate) fn set_screen(&mut self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Shows a page.
    #[track_caller]
    pub(crate) fn open(&mut self, url: &str) {
        let result = self.call("Page.navigate", json!({ "url": url }));
        assert!(result["errorText"].is_null(), "{url}: {result}");
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        // Like a script of the page, so that the policy applies to it too.
        let wanted = json!({
            "expression": expression,
            "returnByValue": true,
            "awaitPromise": true,
            "allowUnsafeEvalBlockedByCSP": false,
        });
        let result = self.call("Runtime.evaluate", wanted);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// The value of an expression as text.
    #[track_caller]
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let is_met = eventually(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            self.value(expression) == true
        });
        assert!(is_met, "never true: {expression}\n{}", self.text("document.body.innerText"));
    }

    /// Presses the tab key.
    pub(crate) fn press_tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            let key =
                json!({ "type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9 });
            self.call("Input.dispatchKeyEvent", key);
        }
    }

    /// The page from its top down to `height_max`, as a PNG.
    pub(crate) fn screenshot(&mut self, height_max: u32) -> Vec<u8> {
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let height = size["height"].as_f64().expect("a height").min(height_max.into());
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1 });
        let wanted = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let result = self.call("Page.captureScreenshot", wanted);
        from_base64(result["data"].as_str().expect("an image"))
    }

    /// Errors of the page: scripts that failed, violations of the policy.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let bad = |event: &&Value| {
            event["method"] == "Runtime.exceptionThrown"
                || event["method"] == "Log.entryAdded"
                    && event["params"]["entry"]["level"] == "error"
        };
        self.events.iter().filter(bad).map(Value::to_string).collect()
    }

    /// The addresses that the page requested.
    pub(crate) fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|e| e["method"] == "Network.requestWillBeSent");
        sent.filter_map(|e| e["params"]["request"]["url"].as_str().map(str::to_owned)).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A regular close also ends its helper processes.
        let _ = self.requests.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        if !eventually(|| self.child.try_wait().is_ok_and(|status| status.is_some())) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
