//! Asks a server for its figures: over HTTP at the address of `--admin`, or by `stats`.

use std::net::ToSocketAddrs;
use std::time::Duration;

use serde_json::Value;

use super::sample::Sample;
use crate::admin_http::{self, AdminRequest};
use crate::failure::Failure;
use crate::remote::Client;

/// For a whole answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A longer answer is none: 1,024 shards with a hundred figures each take less.
const ANSWER_BYTES_MAX: usize = 32 << 20;
const HEADERS_MAX: usize = 64;

/// Where figures come from.
pub(super) enum SampleSource {
    /// `HOST:PORT`.
    Admin(String),
    /// A connection to the memcache port.
    Memcache(Box<Client>),
}

impl SampleSource {
    /// The figures of now.
    ///
    /// # Errors
    /// Nobody answers, or with something else.
    pub(super) fn sample(&mut self) -> Result<Sample, Failure> {
        match self {
            SampleSource::Admin(address) => {
                let figures = get(address, "/stats.json")?.unwrap_or(Value::Null);
                let sample = Sample::of_json(&figures);
                let sample = sample.ok_or_else(|| not_ours(address, "/stats.json has other content"))?;
                // Older servers do not have it.
                let shards = get(address, "/shards.json")?;
                Ok(sample.with_shards(shards.as_ref()))
            }
            SampleSource::Memcache(client) => Ok(Sample::of_statistics(&client.statistics("")?)),
        }
    }
}

fn not_ours(address: &str, why: &str) -> Failure {
    Failure::failed(format!(
        "{address} is no admin address of a stratakv: {why}; name the one that `serve --admin` has, or a memcache port with --server"
    ))
}

/// What is at a path; `None`: there is no such path.
fn get(address: &str, path: &str) -> Result<Option<Value>, Failure> {
    let named = address.to_socket_addrs().map_err(|error| {
        Failure::usage(format!("--admin {address}: {error}; write HOST:PORT, for example 127.0.0.1:9101"))
    });
    let request = AdminRequest { host: address, path, timeout: PATIENCE, answer_bytes_max: ANSWER_BYTES_MAX };
    let answer = admin_http::ask(named?, &request).map_err(|error| {
        Failure::failed(format!(
            "no answer from {address}: {error}; does `stratakv serve --admin {address}` run there?"
        ))
    })?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(body)) = response.parse(&answer) else {
        return Err(not_ours(address, "it does not speak HTTP"));
    };
    match response.code {
        Some(200) => {}
        Some(404) => return Ok(None),
        code => return Err(not_ours(address, &format!("it answered with status {}", code.unwrap_or(0)))),
    }
    let body = answer.get(body..).unwrap_or_default();
    serde_json::from_slice(body).map(Some).map_err(|_| not_ours(address, "its answer is not JSON"))
}
