//! Exchanges with one server whose answers may be streams: over the network, or over a Unix socket.
//!
//! Not for models and not for strangers: redirects are not followed, and whoever sends says every header.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, Method, Url};

use super::{Answer, HttpError, Kind, POOL_IDLE, client_for, header, host_of, make_client, parse_url, sent};

/// The way to one server.
#[derive(Debug, Clone)]
pub struct Way {
    client: Client,
    url: Url,
    host: String,
}

impl Way {
    /// The way to an address; with a socket, over that one.
    ///
    /// # Errors
    /// [`HttpError`] when the address is none, or the client cannot be made.
    pub async fn to(url: &str, socket: Option<&Path>) -> Result<Self, HttpError> {
        let url = parse_url(url)?;
        let (client, host) = match socket {
            None => (client_for(Kind::of(&url)).await?, host_of(&url)),
            Some(socket) => {
                let place = socket.to_owned();
                let none = reqwest::redirect::Policy::none();
                let over = |builder: reqwest::ClientBuilder| {
                    builder.pool_idle_timeout(POOL_IDLE).redirect(none).unix_socket(place)
                };
                (make_client(Kind::Loopback, over)?, socket.display().to_string())
            }
        };
        Ok(Self { client, url, host })
    }

    /// What the server is called in messages: its host and port, or its socket.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a request and waits for the headers of its answer, whatever its status; `silence` is the longest one, here and in the
    /// body.
    ///
    /// # Errors
    /// [`HttpError`] when there is no answer.
    pub async fn send(
        &self,
        method: &Method,
        headers: &[(&str, &str)],
        (body, silence): (Option<Bytes>, Duration),
    ) -> Result<Answer, HttpError> {
        let mut builder = self.client.request(method.clone(), self.url.clone());
        for (name, value) in headers {
            let (name, value) = header(name, value)?;
            builder = builder.header(name, value);
        }
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let response = sent(builder, &self.host, silence).await?;
        Ok(Answer::of(response, self.host.clone(), silence))
    }
}
