//! How well a text fits what somebody has typed to find it.

/// A text in small letters, each by itself: a sigma at the end of a word is one in its middle.
pub fn small(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// All letters of `typed`, in that order, whatever their case. Less is better; None: not at all. For paths: what is found in the last
/// name counts most, for that is what people type.
pub fn fit(text: &str, typed: &str) -> Option<usize> {
    let lower = small(text);
    let wanted = small(typed);
    if let Some(at) = lower.rfind(&wanted) {
        let name = lower.rfind('/').map_or(0, |slash| slash + 1);
        return Some(match lower[name..].find(&wanted) {
            Some(within) => within,
            None => ELSEWHERE + at,
        });
    }
    let mut letters = lower.char_indices();
    let mut gaps = 0;
    let mut last = None;
    for letter in wanted.chars() {
        let (at, _) = letters.find(|(_, c)| *c == letter)?;
        gaps += last.map_or(0, |last: usize| at - last - 1);
        last = Some(at);
    }
    Some(SCATTERED + gaps)
}

/// In one piece, but not in the last name.
const ELSEWHERE: usize = 100;
/// With others between them.
const SCATTERED: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_better_than_folders_and_pieces_better_than_letters() {
        let order = ["routes.rs", "my_routes.rs", "routes/mod.rs", "r/o/u/t/e/s"];
        let fits: Vec<usize> = order.iter().map(|text| fit(text, "Routes").unwrap()).collect();
        assert!(fits.is_sorted() && fits[0] < fits[3], "{fits:?}");
        assert_eq!(fit("routes/routes.rs", "routes"), Some(0));
        assert_eq!(fit("anything", ""), Some(0));
        assert_eq!(fit("routes.rs", "sr"), Some(1_001));
        assert_eq!(fit("routes.rs", "x"), None);
        assert_eq!(fit("größe.md", "RÖ"), Some(1));
        assert_eq!(fit("ΟΔΟΣΑ.txt", "ΟΔΟΣ"), Some(0));
    }
}
