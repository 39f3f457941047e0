//! The limits of budgets.

/// Span of time of a client's budget: a day.
pub const BUDGET_WINDOW_MS: u64 = 86_400_000;
/// Trees and clients of which it is known what they have spent, beside those that are in use.
pub const BUDGET_ACCOUNTS_MAX: usize = 10_000;
