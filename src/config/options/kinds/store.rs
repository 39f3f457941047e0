//! Where sessions are kept, as a setting.

use std::ffi::OsStr;

use serde_json::{Value, json};

use super::Setting;
use crate::config::store_address::STORE_PATTERN;
use crate::config::{STORE_EXPECTED, StoreAddress};

impl Setting for StoreAddress {
    const EXPECTED: &'static str = STORE_EXPECTED;
    fn parse(text: &OsStr) -> Option<Self> {
        text.to_str()?.parse().ok()
    }
    fn schema() -> Value {
        json!({ "type": "string", "pattern": STORE_PATTERN })
    }
    fn show(&self) -> Value {
        self.to_string().into()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}
