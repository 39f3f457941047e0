//! Who of the others is there, as one node sees them: whose beat stands still, and for how long.
//!
//! A time in which this node itself saw nothing, or in which its own beat stood still, is nobody's silence.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::node::{GONE_MAX, Other, SILENCE_MAX};

/// The own beat stands still for so long: so does whatever writes.
const STALL_MAX: Duration = Duration::from_secs(2);
/// A node that is silent for so long is looked for at its url.
const SUSPECT: Duration = Duration::from_secs(1);
/// A machine that says that nobody listens there says so at once.
const REFUSAL_MAX: Duration = Duration::from_millis(150);
/// After so long without a look nothing is known of the time between.
pub(super) const BLIND_MAX: Duration = Duration::from_millis(1_500);

/// What a node has seen of the others.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) there: HashSet<i64>,
    /// The last beat of each, and when it was seen to be new.
    beats: HashMap<i64, (i64, Instant)>,
    looked: Option<Instant>,
    /// The last beat of this node itself, and when it was seen to be new.
    own: Option<(i64, Instant)>,
    /// Nobody listens there, since it was silent.
    gone: HashSet<i64>,
}

impl Watched {
    /// Notes this node's own beat. Where that stands still, the database takes no writes, and those of others stand still with it: nobody
    /// was silent then.
    pub(super) fn note_own(&mut self, beat: i64, now: Instant) {
        match self.own {
            Some((last, since)) if last == beat => {
                if now.duration_since(since) > STALL_MAX {
                    self.beats.clear();
                    self.looked = None;
                }
            }
            _ => self.own = Some((beat, now)),
        }
    }

    /// Notes a look: those that have beaten since the one before. Where too much time has gone since the one before, nobody has been silent in it.
    pub(super) fn note(&mut self, beats: impl Iterator<Item = (i64, i64)>, now: Instant) -> Vec<i64> {
        let was_blind = self.looked.is_none_or(|looked| now.duration_since(looked) > BLIND_MAX);
        self.looked = Some(now);
        let before = std::mem::take(&mut self.beats);
        let mut beaten = Vec::new();
        let seen = |(number, beat): (i64, i64)| match before.get(&number) {
            Some((last, since)) if *last == beat && !was_blind => (number, (beat, *since)),
            last => {
                beaten.extend(last.filter(|(last, _)| *last != beat).map(|_| number));
                (number, (beat, now))
            }
        };
        self.beats = beats.map(seen).collect();
        let beats = &self.beats;
        self.gone.retain(|number| beats.get(number).is_some_and(|(_, since)| *since < now));
        beaten
    }

    /// Notes that nobody listens where a node is reached that is silent.
    pub(super) fn note_refusal(&mut self, number: i64) {
        self.gone.insert(number);
    }

    fn silence(&self, number: i64, now: Instant) -> Option<Duration> {
        self.beats.get(&number).map(|(_, since)| now.duration_since(*since))
    }

    /// Whether it is silent for a while, so that it is worth a look whether it is there.
    pub(super) fn is_suspect(&self, number: i64, now: Instant) -> bool {
        !self.gone.contains(&number) && self.silence(number, now).is_some_and(|silence| silence >= SUSPECT)
    }

    /// Whether it is silent for so long that it may be declared over.
    pub(super) fn is_silent(&self, number: i64, now: Instant) -> bool {
        let most = if self.gone.contains(&number) { GONE_MAX } else { SILENCE_MAX };
        self.silence(number, now).is_some_and(|silence| silence >= most)
    }
}

/// The number of a node whose machine says that nobody listens at its url. That is no proof (a firewall may say it), and spares time.
pub(super) async fn refuses(node: &Other) -> Option<i64> {
    let url: http::Uri = node.url.as_ref()?.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']);
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let connect = tokio::net::TcpStream::connect((host, port));
    let refused = tokio::time::timeout(REFUSAL_MAX, connect).await.ok()?.err()?;
    (refused.kind() == std::io::ErrorKind::ConnectionRefused).then_some(node.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_still_is_silent_but_not_behind_a_gap_of_our_own() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut watched = Watched::default();
        for tick in 0..=16 {
            watched.note([(1, 5), (2, tick)].into_iter(), at(u64::try_from(tick).expect("small") * 250));
        }
        assert!(watched.is_silent(1, at(4_000)) && !watched.is_silent(2, at(4_000)));
        watched.note([(1, 5)].into_iter(), at(6_000));
        assert!(!watched.is_silent(1, at(6_000)), "two seconds in which nothing was seen");
        for tick in 1..=16 {
            watched.note([(1, 5)].into_iter(), at(6_000 + tick * 250));
        }
        assert!(watched.is_silent(1, at(10_000)));
        assert!(!watched.is_silent(3, at(10_000)), "nobody knows it");
    }
    #[test]
    fn who_is_silent_where_nobody_listens_is_gone_sooner() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut watched = Watched::default();
        for tick in 0..=8 {
            watched.note([(1, 5), (2, 5)].into_iter(), at(tick * 250));
            assert_eq!(watched.is_suspect(1, at(tick * 250)), tick >= 4, "{tick}");
        }
        watched.note_refusal(1);
        assert!(!watched.is_suspect(1, at(2_000)), "it is known");
        assert!(
            watched.is_silent(1, at(2_000)) && !watched.is_silent(1, at(1_999)) && !watched.is_silent(2, at(2_000))
        );
        watched.note([(1, 6), (2, 5)].into_iter(), at(2_250));
        for tick in 10..=17 {
            watched.note([(1, 6), (2, 5)].into_iter(), at(tick * 250));
        }
        assert!(!watched.is_silent(1, at(4_250)), "it has beaten since, so it was there");
        assert!(watched.is_silent(2, at(4_250)));
    }

    #[tokio::test]
    async fn a_machine_says_whether_anybody_listens() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let node = |url: String| Other { number: 7, beat: 1, name: "n".into(), url: Some(url) };
        assert_eq!(refuses(&node(format!("http://127.0.0.1:{port}"))).await, None);
        drop(listener);
        assert_eq!(refuses(&node(format!("http://127.0.0.1:{port}"))).await, Some(7));
        assert_eq!(refuses(&node(format!("http://localhost:{port}"))).await, Some(7));
        assert_eq!(refuses(&node("http://nobody.invalid:9".into())).await, None, "there is no such machine");
        assert_eq!(refuses(&Other { number: 7, beat: 1, name: "n".into(), url: None }).await, None);
    }
}
