//! How the servers of a store know one another: what one asks another, and what is answered, is signed with what all of them know, and
//! that itself is never said.
//!
//! Whatever listens where a server is thought to be can neither use what it is sent (it counts for one server alone, and numbers of
//! servers are never given twice) nor answer in its name.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::CallerPassed;
use crate::base::proof::SharedKey;
use crate::protocol::{ApiError, ErrorCode};
use crate::store::Cluster;

/// Who calls.
pub const CALLER: HeaderName = HeaderName::from_static("x-simse-caller");
/// The number of the server that is asked.
const NODE: HeaderName = HeaderName::from_static("x-simse-node");
/// A word that was never said before.
const NONCE: HeaderName = HeaderName::from_static("x-simse-nonce");
/// The signature of what is asked, and that of the answer.
const SIGNATURE: HeaderName = HeaderName::from_static("x-simse-signature");
/// How often a request was handed on.
pub const HOPS: HeaderName = HeaderName::from_static("x-simse-hops");
/// Stands in an answer of a server that goes, where another one has a better answer a little later.
pub const LEAVES: HeaderName = HeaderName::from_static("x-simse-leaves");
/// All that servers say to one another beside the request itself.
pub const BETWEEN_NODES: [HeaderName; 6] = [CALLER, NODE, NONCE, SIGNATURE, HOPS, LEAVES];
/// Longest word.
const NONCE_CHARS_MAX: usize = 64;

/// What a server signs and checks with.
#[derive(Debug, Clone)]
pub struct NodeKey {
    key: SharedKey,
    own: i64,
}

/// By what an answer is known to be that of the server that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    node: i64,
    nonce: String,
}

impl NodeKey {
    /// That of this server.
    pub fn of(cluster: &dyn Cluster) -> Self {
        Self { key: SharedKey::of(cluster.secret()), own: cluster.own() }
    }

    /// Signs what another server is asked. By what is returned its answer is known.
    ///
    /// # Errors
    /// When something of it cannot stand in a header.
    pub fn sign(
        &self,
        headers: &mut HeaderMap,
        (method, target): (&Method, &str),
        (node, caller): (i64, &CallerPassed),
    ) -> Result<Answers, ApiError> {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let (caller, number) = (caller.to_header(), node.to_string());
        let pieces = ["request", &number, &nonce, method.as_str(), target, &caller];
        let signature = self.key.sign(&pieces);
        for (name, text) in [(CALLER, &caller), (NODE, &number), (NONCE, &nonce), (SIGNATURE, &signature)] {
            let value = HeaderValue::try_from(text).map_err(|cause| ApiError::internal(cause.to_string()))?;
            headers.insert(name, value);
        }
        Ok(Answers { node, nonce })
    }

    /// Who calls through another server, which has looked at who it is, and by what the answer is to be known. None: nobody says so.
    ///
    /// # Errors
    /// `UNAUTHORIZED` where it is no other server of the store; `UPSTREAM_UNAVAILABLE` where it is, and means another one.
    pub fn admit(
        &self,
        headers: &HeaderMap,
        (method, target): (&Method, &Uri),
    ) -> Result<Option<(CallerPassed, Answers)>, ApiError> {
        if !headers.contains_key(CALLER) {
            return Ok(None);
        }
        let unknown = || ApiError::new(ErrorCode::Unauthorized, "this is no other server of the store");
        let one = |name: &HeaderName| {
            let mut values = headers.get_all(name).iter();
            let value = values.next().filter(|_| values.next().is_none());
            value.and_then(|value| value.to_str().ok()).ok_or_else(unknown)
        };
        let (caller, number, nonce, signature) = (one(&CALLER)?, one(&NODE)?, one(&NONCE)?, one(&SIGNATURE)?);
        let target = target.path_and_query().map_or("/", |target| target.as_str());
        let pieces = ["request", number, nonce, method.as_str(), target, caller];
        if nonce.len() > NONCE_CHARS_MAX || !self.key.is_signed(&pieces, signature) {
            return Err(unknown());
        }
        let node: i64 = number.parse().map_err(|_| unknown())?;
        if node != self.own {
            let message = format!("this is server {}, and {node} was meant: do two have one `--node-url`?", self.own);
            return Err(ApiError::new(ErrorCode::UpstreamUnavailable, message));
        }
        let caller = CallerPassed::of_header(caller.as_bytes()).ok_or_else(unknown)?;
        Ok(Some((caller, Answers { node, nonce: nonce.to_owned() })))
    }

    /// Signs an answer.
    pub fn sign_answer(&self, headers: &mut HeaderMap, answers: &Answers) {
        let signature = self.key.sign(&answers.pieces(&answers.node.to_string()));
        // Hexadecimal digits.
        headers.extend(HeaderValue::try_from(signature).ok().map(|value| (SIGNATURE, value)));
    }

    /// Whether it is an answer of the server that was asked; what says so goes.
    pub fn is_answer(&self, headers: &mut HeaderMap, answers: &Answers) -> bool {
        let given = headers.remove(SIGNATURE);
        let given = given.as_ref().and_then(|given| given.to_str().ok()).unwrap_or_default();
        self.key.is_signed(&answers.pieces(&answers.node.to_string()), given)
    }
}

impl Answers {
    fn pieces<'a>(&'a self, number: &'a str) -> [&'a str; 3] {
        ["answer", number, &self.nonce]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::TokenRole;

    fn key(secret: &str, own: i64) -> NodeKey {
        NodeKey { key: SharedKey::of(secret), own }
    }

    #[test]
    fn a_request_counts_for_one_server_as_it_was_signed() {
        let passed = CallerPassed { client: None, role: TokenRole::Operator, only: None, token: None };
        let (one, two) = (key("s", 1), key("s", 2));
        let mut signed = HeaderMap::new();
        let target = "/sessions/s/prompt?wait=true";
        let answers = one.sign(&mut signed, (&Method::POST, target), (2, &passed)).expect("signed");
        let admit = |by: &NodeKey, headers: &HeaderMap, method: Method, target: &str| {
            by.admit(headers, (&method, &target.parse().expect("an address")))
        };
        let code = |refused: Result<Option<(CallerPassed, Answers)>, ApiError>| refused.expect_err("refused").0.code;
        assert_eq!(admit(&two, &signed, Method::POST, target).ok().flatten(), Some((passed.clone(), answers.clone())));
        assert_eq!(admit(&two, &HeaderMap::new(), Method::POST, target).ok().flatten(), None);
        for (method, target) in [(Method::GET, target), (Method::POST, "/sessions/s/prompt")] {
            assert_eq!(code(admit(&two, &signed, method, target)), ErrorCode::Unauthorized);
        }
        assert_eq!(code(admit(&key("other", 2), &signed, Method::POST, target)), ErrorCode::Unauthorized);
        assert_eq!(code(admit(&key("s", 3), &signed, Method::POST, target)), ErrorCode::UpstreamUnavailable);
        let owner = CallerPassed { role: TokenRole::Owner, ..passed };
        let forged = |name: &HeaderName, text: &str| {
            let mut headers = signed.clone();
            headers.insert(name, HeaderValue::try_from(text).expect("a header"));
            code(admit(&two, &headers, Method::POST, target))
        };
        let (long, caller) = ("0".repeat(65), owner.to_header());
        for (name, text) in
            [(CALLER, caller.as_str()), (NODE, "3"), (NONCE, &long), (SIGNATURE, "00"), (SIGNATURE, "é0")]
        {
            assert_eq!(forged(&name, text), ErrorCode::Unauthorized, "{name} {text}");
        }
        for name in [NODE, NONCE, SIGNATURE] {
            let mut headers = signed.clone();
            headers.append(&name, HeaderValue::from_static("1"));
            assert_eq!(code(admit(&two, &headers, Method::POST, target)), ErrorCode::Unauthorized, "{name} twice");
            headers.remove(&name);
            assert_eq!(code(admit(&two, &headers, Method::POST, target)), ErrorCode::Unauthorized, "no {name}");
        }
    }

    #[test]
    fn an_answer_is_to_one_request() {
        let passed = CallerPassed { client: None, role: TokenRole::Owner, only: None, token: None };
        let (one, two) = (key("s", 1), key("s", 2));
        let sign = || one.sign(&mut HeaderMap::new(), (&Method::GET, "/"), (2, &passed)).expect("signed");
        let (answers, others) = (sign(), sign());
        let answer = |by: &NodeKey, to: &Answers| {
            let mut headers = HeaderMap::new();
            by.sign_answer(&mut headers, to);
            headers
        };
        let mut good = answer(&two, &answers);
        assert!(one.is_answer(&mut good, &answers) && good.is_empty());
        assert!(!one.is_answer(&mut answer(&two, &others), &answers));
        assert!(!one.is_answer(&mut answer(&key("other", 2), &answers), &answers));
        assert!(!one.is_answer(&mut HeaderMap::new(), &answers));
    }
}
