//! What is said of a budget that is spent.

use crate::protocol::{ApiError, BudgetNotice, BudgetScope, ErrorBody, ErrorCode};

/// Why a turn ended.
pub(in crate::session) fn exceeded(notice: &BudgetNotice) -> ErrorBody {
    let details = serde_json::json!({ "why": "budget", "budget": notice });
    ErrorBody { code: ErrorCode::ResourceExhausted, message: notice.words(), details: Some(details) }
}

/// Why a prompt is not taken. A session's budget does not come back by itself: there is nothing to wait for.
pub(super) fn refusal(notice: &BudgetNotice) -> ApiError {
    let mut error = exceeded(notice);
    if notice.state.scope == BudgetScope::Session {
        error.code = ErrorCode::Conflict;
    }
    ApiError(error)
}
