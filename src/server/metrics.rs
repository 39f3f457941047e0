//! `GET /metrics`: what the server counts, for Prometheus. Its limits are those of `GET /health?verbose=true`.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;

use super::Shared;
use super::answer::Answer;
use super::call::Call;
use crate::base::metrics::{Kind, Page, process};
use crate::protocol::ApiError;

/// Answers with the page.
pub(super) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let mut page = Page::default();
    call.shared.app.write_metrics(&mut page);
    write_limits(&call.shared, &mut page);
    // Small files of the kernel's, and still files.
    let written = tokio::task::spawn_blocking(move || {
        process::write(&mut page);
        page.into_text()
    });
    let text = written.await.map_err(|_| ApiError::internal("the metrics could not be written"))?;
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(Page::CONTENT_TYPE));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn write_limits(shared: &Shared, page: &mut Page) {
    let limits = shared.limits();
    page.family("simse_limit_used", Kind::Gauge, "How much of what is bounded is taken, by the limit's name.");
    for limit in &limits {
        page.sample(&[("limit", &limit.name)], limit.used);
    }
    page.family("simse_limit_max", Kind::Gauge, "How much of it there is.");
    for limit in &limits {
        page.sample(&[("limit", &limit.name)], limit.limit);
    }
}
