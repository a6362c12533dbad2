//! A client that writes down what it asks for and what it is told.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;

use super::{Call, Event, Told};
use crate::app::SERVICE_KEY;

/// Writes a history.
pub(crate) struct Recorder {
    begun: Instant,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            events: Mutex::default(),
        }
    }

    /// Asks a thumbd; `id` is that of a blog.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        url: &str,
        call: Call,
        user: &str,
        id: &str,
    ) -> Told {
        let method = match call {
            Call::Like => Method::PUT,
            Call::Unlike => Method::DELETE,
            Call::Read => Method::GET,
        };
        let request = client.request(method, format!("{url}/v1/likes/blog/{id}"));
        let request = request.bearer_auth(SERVICE_KEY).header("X-User-Id", user);
        let start = self.begun.elapsed();
        let told = told(call, request).await;
        let event = Event {
            pair: (user.to_owned(), format!("blog:{id}")),
            call,
            start,
            end: self.begun.elapsed(),
            told,
        };
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        told
    }

    pub(crate) fn events(self) -> Vec<Event> {
        self.events
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn told(call: Call, request: RequestBuilder) -> Told {
    let answer = match request.send().await {
        Ok(answer) => answer,
        // It was never sent.
        Err(error) if error.is_connect() => return Told::Refused,
        Err(_) => return Told::Unknown,
    };
    let status = answer.status().as_u16();
    let Ok(body) = answer.json::<Value>().await else {
        return Told::Unknown;
    };
    match (status, call) {
        (200, Call::Read) => Told::Seen {
            liked: body["liked"].as_bool(),
            count: body["count"].as_i64(),
        },
        (200, _) => Told::Done {
            changed: body["changed"].as_bool().expect("it says so"),
            count: body["count"].as_i64(),
        },
        (503, _) => match body["code"].as_str().expect("a code") {
            "outcome_unknown" | "timeout" => Told::Unknown,
            _ => Told::Refused,
        },
        _ => panic!("{status}: {body}"),
    }
}
