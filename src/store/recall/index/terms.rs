//! What FTS5 makes of words: their stems, without accents. FTS5 itself is asked, word by word, and each word once; so
//! the words in memory are those of the tables, whatever its cut does.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::store::recall::schema;

/// What a word costs beside its letters: its place in the table, and what it is.
const WORD_BYTES: usize = 64;

/// The words of a project's texts, and the terms they are.
pub(super) struct Terms {
    fts: Connection,
    words: HashMap<Box<str>, Box<[u32]>>,
    terms: HashMap<Box<str>, u32>,
    bytes: usize,
}

impl Terms {
    pub(super) fn new() -> rusqlite::Result<Self> {
        let fts = Connection::open_in_memory()?;
        fts.execute_batch(&format!(
            "CREATE VIRTUAL TABLE cut USING fts5(body, content='', tokenize=\"{}\");
             CREATE VIRTUAL TABLE term USING fts5vocab(cut, instance);",
            schema::CUT
        ))?;
        Ok(Self { fts, words: HashMap::new(), terms: HashMap::new(), bytes: 0 })
    }

    /// How many terms there are; each is a number below that.
    pub(super) fn len(&self) -> usize {
        self.terms.len()
    }

    /// Bytes that they take, as good as they can be told.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes words known.
    pub(super) fn learn<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> rusqlite::Result<()> {
        let mut new: Vec<&str> = words.filter(|word| !self.words.contains_key(*word)).collect();
        new.sort_unstable();
        new.dedup();
        let cut = self.cut(&new)?;
        for (word, terms) in new.into_iter().zip(cut) {
            let numbers = terms.into_iter().map(|term| self.number(term)).collect();
            self.bytes += word.len() + WORD_BYTES;
            self.words.insert(word.into(), numbers);
        }
        Ok(())
    }

    /// The terms of a word that was learnt.
    pub(super) fn of(&self, word: &str) -> &[u32] {
        self.words.get(word).map_or(&[], |terms| terms)
    }

    /// The terms of words that somebody asks for, as far as a text has them; asked words are not kept.
    pub(super) fn asked(&self, words: &[String]) -> rusqlite::Result<Vec<Vec<u32>>> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let known =
            |terms: Vec<String>| terms.iter().filter_map(|term| self.terms.get(term.as_str()).copied()).collect();
        Ok(self.cut(&words)?.into_iter().map(known).collect())
    }

    fn number(&mut self, term: String) -> u32 {
        let next = u32::try_from(self.terms.len()).unwrap_or(u32::MAX);
        self.bytes += term.len() + WORD_BYTES;
        *self.terms.entry(term.into()).or_insert(next)
    }

    /// What FTS5 makes of each word.
    fn cut(&self, words: &[&str]) -> rusqlite::Result<Vec<Vec<String>>> {
        let mut cut = vec![Vec::new(); words.len()];
        if words.is_empty() {
            return Ok(cut);
        }
        let transaction = self.fts.unchecked_transaction()?;
        {
            let mut put = transaction.prepare_cached("INSERT INTO cut (rowid, body) VALUES (?, ?)")?;
            for (row, word) in words.iter().enumerate() {
                put.execute((row + 1, word))?;
            }
            let mut read = transaction.prepare_cached("SELECT doc, term FROM term")?;
            let mut rows = read.query([])?;
            while let Some(row) = rows.next()? {
                let place: usize = row.get(0)?;
                if let Some(terms) = place.checked_sub(1).and_then(|place| cut.get_mut(place)) {
                    terms.push(row.get(1)?);
                }
            }
        }
        // Taken back, the table is empty again.
        transaction.rollback()?;
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_fts5_makes_of_them() {
        let mut terms = Terms::new().expect("opens");
        terms.learn(["tests", "testing", "café", "🎉", "\u{301}", "tests"].into_iter()).expect("learnt");
        assert_eq!(terms.of("tests"), terms.of("testing"));
        assert_eq!((terms.of("tests").len(), terms.of("\u{301}").len(), terms.of("unknown").len()), (1, 0, 0));
        assert_eq!(terms.len(), 3);
        let asked = ["cafe", "tested", "weather", "🎉"].map(str::to_owned);
        let want = [terms.of("café"), terms.of("tests"), &[], terms.of("🎉")];
        assert_eq!(terms.asked(&asked).expect("asked"), want.map(<[u32]>::to_vec));
        assert_eq!(terms.len(), 3, "what is asked is not kept");
        terms.learn(["more"].into_iter()).expect("learnt");
        assert_eq!(terms.of("more"), [3], "what was learnt before is in nobody's way");
    }
}
