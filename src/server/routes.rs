//! The routes (contract.md): each takes its request apart, asks the application, and answers.

mod board;
mod budget;
mod changes;
mod mcp;
mod nodes;
mod runs;
mod session_tokens;
pub(crate) mod table;

use std::sync::Arc;

use axum::Router;
use axum::http::header::{ACCEPT, ETAG, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde_json::json;

use super::Shared;
use super::answer::{Answer, Failure, json, ok, written};
use super::call::Call;
use super::guard::Nobody;
use super::headers::{etag, last_event_id, of_the_header};
use super::sse::{self, Opening, Selection};
use super::write::Done;
use super::{openapi, page};
use crate::app::{Accepted, EventPage, EventReader, Listing, Paused};
use crate::protocol::{ApiError, EVENT_TYPES, ErrorCode, GrantId, ModelList, Proof, SessionId, SessionView, ToolList};

/// All routes of the table.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let routes = table::rows().into_iter().fold(Router::new(), |router, row| router.route(row.path, row.handler));
    let routes = page::PATHS.into_iter().fold(routes, |routes, path| routes.route(path, get(page::show)));
    routes.fallback(unknown).method_not_allowed_fallback(not_allowed).with_state(shared)
}

async fn unknown(call: Call) -> Answer {
    Err(ApiError::not_found(format_args!("route {} {}", call.head.method, call.head.uri.path())).into())
}

/// The code of a request that is not valid, under HTTP's own status; the router adds `Allow`.
async fn not_allowed(call: Call) -> Answer {
    let message = format!("{} does not take {}", call.head.uri.path(), call.head.method);
    let error = ApiError::new(ErrorCode::InvalidArgument, message)
        .with_details(json!({ "field": "method", "expected": "a method that the header Allow names" }));
    Err(Failure::with_status(error, 405))
}

async fn create(mut call: Call) -> Answer {
    call.no_query()?;
    created(&call.write("create_session", None).await?)
}

/// The answer that names a new session's place.
fn created(done: &Done) -> Answer {
    let view: SessionView = done.read()?;
    let mut response = done.respond(StatusCode::CREATED);
    if let Ok(place) = HeaderValue::from_str(&format!("/sessions/{}", view.session_id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

async fn list(call: Call) -> Answer {
    let mut query = call.query()?;
    let (cursor, limit) = (query.text("cursor"), query.limit()?);
    query.finish(&["cursor", "limit"])?;
    ok(&call.shared.app.sessions(&call.caller, cursor.as_deref(), limit).await?)
}

async fn show(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let snapshot = query.flag("snapshot")?;
    let limit = if snapshot { Some(query.limit()?) } else { None };
    query.finish(if snapshot { &["snapshot", "limit"] } else { &["snapshot"] })?;
    let view = match limit {
        Some(limit) => call.shared.app.snapshot(&call.caller, &id, limit).await?,
        None => call.shared.app.session(&call.caller, &id).await?,
    };
    let mut response = json(StatusCode::OK, &view);
    response.headers_mut().insert(ETAG, etag(view.version));
    Ok(response)
}

async fn configure(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("configure", Some(id)).await?.respond(StatusCode::OK))
}

async fn delete(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.carry_out("delete_session", Some(id), (Vec::new(), b"")).await?.respond(StatusCode::OK))
}

async fn abort(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("abort", Some(id)).await?.respond(StatusCode::OK))
}

async fn interrupt(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("interrupt", Some(id)).await?.respond(StatusCode::OK))
}

/// 202: the turn has not come to a boundary yet.
async fn pause(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    let done = call.write("pause", Some(id)).await?;
    let paused: Paused = done.read()?;
    Ok(done.respond(if paused.paused { StatusCode::OK } else { StatusCode::ACCEPTED }))
}

async fn resume(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("resume", Some(id)).await?.respond(StatusCode::OK))
}

async fn feedback(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("feedback", Some(id)).await?.respond(StatusCode::OK))
}

/// 202: the turn that the decision is a prompt of goes on by itself.
async fn decide_plan(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    let body = call.json().await?;
    Ok(json(StatusCode::ACCEPTED, &call.shared.app.decide_plan(&call.caller, &id, body).await?))
}

async fn count_tokens(mut call: Call) -> Answer {
    call.no_query()?;
    let body = call.json().await?;
    ok(&call.shared.app.count_tokens(&call.caller, body).await?)
}

async fn explain(mut call: Call) -> Answer {
    call.no_query()?;
    let body = call.json().await?;
    ok(&call.shared.app.explain(&call.caller, body).await?)
}

async fn grants(call: Call) -> Answer {
    let (session, cursor) = session_of(&call, true)?;
    ok(&call.shared.app.grants(&call.caller, (session.as_ref(), cursor.as_deref())).await?)
}

async fn revoke(mut call: Call) -> Answer {
    let (session, _) = session_of(&call, false)?;
    let grant: GrantId = call.id("grantId")?;
    let fields = vec![("grantId", grant.as_str().into())];
    Ok(call.carry_out("revoke_grant", session, (fields, b"")).await?.respond(StatusCode::OK))
}

/// `?sessionId=`, of a list `?cursor=` too, and nothing else.
fn session_of(call: &Call, list: bool) -> Result<(Option<SessionId>, Option<String>), ApiError> {
    let mut query = call.query()?;
    let given = query.text("sessionId");
    let cursor = if list { query.text("cursor") } else { None };
    query.finish(if list { &["sessionId", "cursor"] } else { &["sessionId"] })?;
    let parsed = given.map(|text| text.parse::<SessionId>()).transpose();
    Ok((parsed.map_err(|cause| ApiError::unread("sessionId", &cause))?, cursor))
}

async fn history(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (cursor, limit) = (query.number("cursor")?, query.limit()?);
    let (back, raw, types) = (query.flag("back")?, query.flag("events")?, query.text("types"));
    query.finish(&["cursor", "limit", "back", "events", "types"])?;
    if back && raw {
        return Err(ApiError::invalid("back", "no `events=true` beside it: the log is read forwards").into());
    }
    let after = cursor.unwrap_or(0);
    if raw {
        let types = types.map(|list| event_types(&list, EVENT_TYPES)).transpose()?;
        return ok(&call.shared.app.event_page(&call.caller, &id, EventPage { after, limit, types }).await?);
    }
    if types.is_some() {
        return Err(ApiError::invalid("types", "`events=true` beside it: items have no types").into());
    }
    if back {
        return ok(&call.shared.app.history_back(&call.caller, &id, (cursor, limit)).await?);
    }
    ok(&call.shared.app.history(&call.caller, &id, after, limit).await?)
}

async fn turns(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (cursor, limit, hidden) = (query.text("cursor"), query.limit()?, query.flag("hidden")?);
    query.finish(&["cursor", "limit", "hidden"])?;
    ok(&call.shared.app.turns(&call.caller, &id, (cursor.as_deref(), limit), hidden).await?)
}

async fn turn(call: Call) -> Answer {
    call.no_query()?;
    let (id, turn) = (call.id("sessionId")?, call.id("turnId")?);
    ok(&call.shared.app.turn(&call.caller, &id, &turn).await?)
}

async fn tools(call: Call) -> Answer {
    call.no_query()?;
    ok(&ToolList { tools: call.shared.app.tools() })
}

async fn agent(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    ok(&call.shared.app.agent_state(&call.caller, &id).await?)
}

async fn agents(call: Call) -> Answer {
    let mut query = call.query()?;
    let directory = query.text("workingDirectory").map(Into::into);
    query.finish(&["workingDirectory"])?;
    ok(&call.shared.app.agents_in(directory).await?)
}

/// For whom a list of skills or commands is.
fn listing(call: &Call) -> Result<Listing, Failure> {
    let mut query = call.query()?;
    let session = query.text("sessionId").map(|id| id.parse::<SessionId>()).transpose();
    let session = session.map_err(|error| ApiError::invalid("sessionId", error.to_string()))?;
    let directory = query.text("workingDirectory").map(Into::into);
    query.finish(&["sessionId", "workingDirectory"])?;
    Ok(Listing { session, directory })
}

async fn skills(call: Call) -> Answer {
    let listing = listing(&call)?;
    ok(&call.shared.app.skills(&call.caller, listing).await?)
}

async fn slash_commands(call: Call) -> Answer {
    let listing = listing(&call)?;
    ok(&call.shared.app.slash_commands(&call.caller, listing).await?)
}

async fn models(call: Call) -> Answer {
    call.no_query()?;
    ok(&ModelList { models: call.shared.app.models().await })
}

async fn config(call: Call) -> Answer {
    call.no_query()?;
    ok(&*call.shared.app.config(&call.caller)?)
}

async fn document(call: Call) -> Answer {
    call.no_query()?;
    Ok(written(openapi::text()))
}

async fn health(call: Call) -> Answer {
    let mut query = call.query()?;
    let verbose = query.flag("verbose")?;
    query.finish(&["verbose"])?;
    let mut health = call.shared.app.health().await;
    if call.head.extensions.get::<Nobody>().is_some() {
        health = health.brief();
    }
    if verbose {
        health.limits = Some(call.shared.limits());
        call.shared.app.add_configuration(&mut health);
    }
    let status = if health.status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(json(status, &health))
}

/// Who was told the key of this server, and sends it nothing before it is known, asks this.
async fn proof(call: Call) -> Answer {
    call.no_query()?;
    let nonce: String = call.id("nonce")?;
    let proof = call.shared.proof_key.prove(&nonce);
    let proof = proof.ok_or_else(|| ApiError::invalid("nonce", "32 to 128 hexadecimal digits"))?;
    ok(&Proof { proof })
}

async fn prompt(mut call: Call) -> Answer {
    let id: SessionId = call.id("sessionId")?;
    let mut query = call.query()?;
    let wait = query.flag("wait")?;
    query.finish(&["wait"])?;
    if wants_stream(&call) {
        return prompt_stream(call, id).await;
    }
    let done = call.write("prompt", Some(id.clone())).await?;
    accepted(call, id, (done, wait)).await
}

async fn compact(mut call: Call) -> Answer {
    let id: SessionId = call.id("sessionId")?;
    let mut query = call.query()?;
    let wait = query.flag("wait")?;
    query.finish(&["wait"])?;
    let done = call.write("compact", Some(id.clone())).await?;
    accepted(call, id, (done, wait)).await
}

/// Answers to what has made a turn: at once, or with what became of it.
async fn accepted(call: Call, id: SessionId, (done, wait): (Done, bool)) -> Answer {
    if !wait {
        return Ok(done.respond(StatusCode::ACCEPTED));
    }
    let accepted: Accepted = done.read()?;
    let record = match call.shared.app.wait_turn(&call.caller, &id, &accepted.turn_id).await {
        // It was accepted, and runs when the server is there again: who was told that it was not would say it twice.
        Err(error) if error.code() == ErrorCode::UpstreamUnavailable => return Ok(done.respond(StatusCode::ACCEPTED)),
        waited => waited?,
    };
    let mut response = json(StatusCode::OK, &record);
    done.mark(&mut response);
    Ok(response)
}

/// Reads from before the prompt on, so that the turn's first event cannot be missed.
async fn prompt_stream(mut call: Call, id: SessionId) -> Answer {
    let body = call.bytes().await?;
    let app = Arc::clone(&call.shared.app);
    let position = app.session(&call.caller, &id).await?.last_seq;
    let mut reader = app.events(&call.caller, &id, position).await?;
    let done = call.carry_out("prompt", Some(id.clone()), (Vec::new(), &body)).await?;
    let accepted: Accepted = done.read()?;
    if done.replayed {
        // Its turn may have begun long ago, or have gone with its session.
        app.turn(&call.caller, &id, &accepted.turn_id).await?;
        reader = app.events(&call.caller, &id, 0).await?;
    }
    let mut response = stream(&call.shared, id, reader, Selection { types: None, turn: Some(accepted.turn_id) });
    done.mark(&mut response);
    Ok(response)
}

async fn events(call: Call) -> Answer {
    let id: SessionId = call.id("sessionId")?;
    let mut query = call.query()?;
    let after = query.number("after")?;
    let types = query.text("types");
    query.finish(&["after", "types"])?;
    // A browser that reconnects repeats the address and knows better by now.
    let resumed = last_event_id(&call.head.headers)?;
    let types = types.map(|list| event_types(&list, EVENT_TYPES)).transpose()?;
    let reader = call.shared.app.events(&call.caller, &id, resumed.or(after).unwrap_or(0)).await;
    let reader = reader.map_err(|error| if resumed.is_some() { of_the_header(error) } else { error })?;
    Ok(stream(&call.shared, id, reader, Selection { types, turn: None }))
}

fn stream(shared: &Shared, session: SessionId, reader: EventReader, selection: Selection) -> Response {
    let heartbeat = shared.options.heartbeat;
    let stop = shared.streams.clone();
    let open = shared.app.meters().streams.enter();
    sse::respond(Opening { session, reader, selection, heartbeat, stop, _open: open })
}

fn wants_stream(call: &Call) -> bool {
    let accepted = call.head.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|one| {
        one.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

pub(super) fn event_types(list: &str, known: &[&str]) -> Result<Vec<String>, ApiError> {
    let types: Vec<String> = list.split(',').map(|name| name.trim().to_owned()).collect();
    match types.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(types),
        Some(strange) => Err(ApiError::unfit("types", format!("some of {}", known.join(", ")), format!("`{strange}`"))),
    }
}
