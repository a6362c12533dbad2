//! `thumbd serve` as a process of its own: start, talk to it, wait for what it says, kill it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::app::{ADMIN_TOKEN, Answer, SERVICE_KEY, send};
use crate::process::{end, signal, thumbd};
use crate::servers::TestEnv;

/// Far above what anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(20);
/// Lines of its log that are kept: more than a test at the level `trace` makes.
const LINES_MAX: usize = 100_000;

/// A process; it is killed when it is dropped.
pub(crate) struct Serve {
    pub(crate) child: Child,
    /// Empty until it serves.
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) variables: Vec<(String, String)>,
    log: watch::Receiver<Vec<String>>,
}

impl Serve {
    /// Starts it and waits until it serves.
    pub(crate) async fn start(env: &TestEnv, settings: &[(&str, &str)]) -> Self {
        let mut serve = Self::spawn(env, settings);
        serve.serving().await;
        serve
    }

    /// Starts it.
    pub(crate) fn spawn(env: &TestEnv, settings: &[(&str, &str)]) -> Self {
        let mut variables: Vec<(String, String)> = [
            ("THUMBD_LISTEN", "127.0.0.1:0"),
            ("THUMBD_SERVICE_KEY", SERVICE_KEY),
            ("THUMBD_ADMIN_TOKEN", ADMIN_TOKEN),
            ("THUMBD_REDIS_URL", &env.redis_url),
            ("THUMBD_DATABASE_URL", &env.database_url),
            ("THUMBD_KEY_PREFIX", &env.key_prefix),
        ]
        .iter()
        .chain(settings)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
        let mut child = run(&["serve"], &variables);
        variables.retain(|(name, _)| name != "THUMBD_LISTEN" && name.starts_with("THUMBD_"));
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = watch::channel(Vec::new());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                sender.send_modify(|lines| {
                    if lines.len() == LINES_MAX {
                        lines.remove(0);
                    }
                    lines.push(line);
                });
            }
        });
        Self {
            child,
            url: String::new(),
            client: Client::builder().no_proxy().build().unwrap(),
            variables,
            log,
        }
    }

    /// Waits until it serves.
    pub(crate) async fn serving(&mut self) {
        let line = self.said("address=").await;
        let address = line.split_once("address=").unwrap().1;
        let address = address.split_whitespace().next().unwrap();
        self.url = format!("http://{address}");
    }

    /// Waits until it serves, or has ended.
    pub(crate) async fn comes_up(&mut self) -> bool {
        let mut log = self.log.clone();
        let serves = |lines: &Vec<String>| lines.iter().any(|line| line.contains("address="));
        let up = tokio::time::timeout(PATIENCE, log.wait_for(serves)).await;
        let up = matches!(up, Ok(Ok(_)));
        if up {
            self.serving().await;
        }
        up
    }

    /// What it has said, as far as it is kept.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Waits until its log has a line with these words, and gives it.
    pub(crate) async fn said(&self, words: &str) -> String {
        let mut log = self.log.clone();
        let has = |line: &&String| line.contains(words);
        let heard = log.wait_for(|lines| lines.iter().any(|line| has(&line)));
        let found = match tokio::time::timeout(PATIENCE, heard).await {
            Ok(Ok(lines)) => lines.iter().find(has).cloned(),
            _ => None,
        };
        found.unwrap_or_else(|| panic!("it does not say '{words}': {:#?}", *self.log.borrow()))
    }

    pub(crate) async fn admin(&self, path: &str) -> reqwest::Result<Value> {
        let call = self.client.post(format!("{}{path}", self.url));
        let answer = call.bearer_auth(ADMIN_TOKEN).send().await?;
        answer.error_for_status()?.json().await
    }

    pub(crate) async fn batch(&self, operations: Vec<Value>) -> Value {
        let call = self.client.post(format!("{}/v1/batch", self.url));
        let body = json!({ "operations": operations });
        let answer = call.bearer_auth(SERVICE_KEY).json(&body).send().await;
        answer.unwrap().json().await.unwrap()
    }

    /// A request about one pair; `target` is `kind/id`, as it stands in the path.
    pub(crate) fn one(&self, method: Method, user: &str, target: &str) -> reqwest::RequestBuilder {
        let url = format!("{}/v1/likes/{target}", self.url);
        let request = self.client.request(method, url);
        request.bearer_auth(SERVICE_KEY).header("X-User-Id", user)
    }

    pub(crate) async fn like(&self, user: &str, target: &str) -> Answer {
        send(self.one(Method::PUT, user, target)).await
    }

    pub(crate) async fn get(&self, user: &str, target: &str) -> Answer {
        send(self.one(Method::GET, user, target)).await
    }

    /// Compares Redis and MySQL.
    pub(crate) async fn verify(&self) {
        let names = ["THUMBD_SERVICE_KEY", "THUMBD_ADMIN_TOKEN"];
        let others = |(name, _): &&(String, String)| !names.contains(&name.as_str());
        let variables: Vec<_> = self.variables.iter().filter(others).cloned().collect();
        tokio::task::spawn_blocking(move || output(run(&["verify"], &variables)))
            .await
            .unwrap();
    }

    /// Its answer to whoever asks whether it is ready.
    pub(crate) async fn ready(&self) -> Value {
        let ready = self.client.get(format!("{}/readyz", self.url));
        send(ready).await.json()
    }

    /// The value of a metric, with its labels as they are shown.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let metrics = self.client.get(format!("{}/metrics", self.url));
        let text = send(metrics).await.text;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value)
    }

    /// Waits until it has ended by itself; gives its exit code and what it has said.
    pub(crate) async fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let status = end(&mut self.child);
        let mut log = self.log.clone();
        // Until the last line was read.
        while log.changed().await.is_ok() {}
        (status, self.lines())
    }

    pub(crate) fn kill(&mut self) {
        signal(&self.child, "KILL");
        end(&mut self.child);
    }

    pub(crate) fn stop(mut self) {
        signal(&self.child, "TERM");
        assert_eq!(end(&mut self.child).code(), Some(0));
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(POLL).await;
    }
}

pub(crate) fn run(arguments: &[&str], variables: &[(String, String)]) -> Child {
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    thumbd(arguments, &variables)
}

/// What a program prints, if it ends well.
pub(crate) fn output(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    text
}
