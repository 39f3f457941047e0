//! Where other servers reach this one, as a setting.

use std::ffi::OsStr;

use serde_json::{Value, json};

use super::Setting;
use crate::config::node_url::NODE_URL_PATTERN;
use crate::config::{NODE_URL_EXPECTED, NodeUrl};

impl Setting for NodeUrl {
    const EXPECTED: &'static str = NODE_URL_EXPECTED;
    fn parse(text: &OsStr) -> Option<Self> {
        text.to_str()?.parse().ok()
    }
    fn schema() -> Value {
        json!({ "type": "string", "pattern": NODE_URL_PATTERN })
    }
    fn show(&self) -> Value {
        self.to_string().into()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}
