//! The routes of the servers that share the store.

use super::{GET, POST, Row, row};
use crate::protocol::{Drained, NodeList};
use crate::server::openapi::operation;
use crate::server::routes::nodes;

pub(super) fn rows() -> Vec<Row> {
    let list = operation("nodes", "The servers that share the store, and how much each has to do.")
        .more("For the role `owner`.")
        .gives::<NodeList>(200, "The servers.");
    let drain = operation("drain", "Hands the sessions of this server over to the others; from now on it takes none.")
        .more("For the role `owner`. What runs goes on to the end of its turn.")
        .gives::<Drained>(200, "It takes none any more.")
        .refuses(&[409]);
    vec![row(GET, "/nodes", nodes::list, list), row(POST, "/drain", nodes::drain, drain)]
}
