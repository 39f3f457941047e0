//! Looking in the tables: by words, by a piece of text, by nearness of vectors; and keeping vectors.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};

use super::{COLUMNS, KeptEntry, RecallStore, StoreError, kept, note, project_at, project_of, range_of, vector, words};

/// Texts that have words of a question in common with it, with what BM25 makes of that: more is better, no upper end.
pub(super) type WordHits = HashMap<i64, f64>;

impl RecallStore {
    /// Texts of a project that have at least one of the question's words. Empty: none, or the question has no words.
    ///
    /// # Errors
    /// What the database says.
    pub(super) fn by_words(&self, project: &str, query: &str) -> Result<WordHits, StoreError> {
        let asked = words::asked(query);
        self.with("search by words", |c| {
            let mut hits = WordHits::new();
            let Some(number) = project_of(c, project)? else { return Ok(hits) };
            let (first, last) = range_of(number);
            // BM25 is a sum over the words; asked for one by one, no word can be anything but a word.
            let sql = "SELECT rowid, -bm25(word) FROM word WHERE word MATCH ?1 AND rowid BETWEEN ?2 AND ?3";
            let mut find = c.prepare_cached(sql)?;
            for word in asked {
                let mut rows = find.query((format!("\"{word}\""), first, last))?;
                while let Some(row) = rows.next()? {
                    *hits.entry(row.get(0)?).or_default() += row.get::<_, f64>(1)?;
                }
            }
            Ok(hits)
        })
    }

    /// Places of texts that hold `piece` as it stands, newest first, at most `limit`.
    ///
    /// # Errors
    /// What the database says.
    pub(super) fn containing(&self, project: &str, piece: &str, limit: usize) -> Result<Vec<i64>, StoreError> {
        self.with("search by a piece of text", |c| {
            let Some(number) = project_of(c, project)? else { return Ok(Vec::new()) };
            let (first, last) = range_of(number);
            let sql =
                "SELECT key FROM entry WHERE key BETWEEN ? AND ? AND instr(text, ?) > 0 ORDER BY key DESC LIMIT ?";
            c.prepare_cached(sql)?.query_map((first, last, piece, limit), |row| row.get(0))?.collect()
        })
    }

    /// The cosine of each text of a project that has a vector of this embedding model and of this length. Empty when
    /// `wanted` has no direction.
    ///
    /// # Errors
    /// What the database says.
    pub(super) fn by_nearness(
        &self,
        project: &str,
        embedder: &str,
        wanted: &[f32],
    ) -> Result<HashMap<i64, f32>, StoreError> {
        let Some(wanted) = vector::encode(wanted) else { return Ok(HashMap::new()) };
        let (wanted, bytes) = (vector::decode(&wanted), wanted.len());
        self.with("search by nearness", |c| {
            let mut near = HashMap::new();
            let (Some(number), Some(embedder)) = (project_of(c, project)?, embedder_of(c, embedder)?) else {
                return Ok(near);
            };
            let (first, last) = range_of(number);
            let sql = "SELECT key, data FROM vector WHERE key BETWEEN ? AND ? AND embedder = ? AND length(data) = ?";
            let mut scan = c.prepare_cached(sql)?;
            let mut rows = scan.query((first, last, embedder, bytes))?;
            while let Some(row) = rows.next()? {
                near.insert(row.get(0)?, vector::cosine(&wanted, row.get_ref(1)?.as_blob()?));
            }
            Ok(near)
        })
    }

    /// Texts of a project without a vector of this model (and of this length, where one is named), newest first. Those
    /// that the model has refused are left out.
    ///
    /// # Errors
    /// What the database says.
    pub(super) fn without_vector(
        &self,
        project: &str,
        (embedder, dimensions): (&str, Option<usize>),
        limit: usize,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        self.with("look for texts without a vector", |c| {
            let Some(number) = project_of(c, project)? else { return Ok(Vec::new()) };
            let embedder = embedder_of(c, embedder)?.unwrap_or(-1);
            let (first, last) = range_of(number);
            let sql = "SELECT key, text FROM entry WHERE key BETWEEN ?1 AND ?2 AND NOT EXISTS (
                    SELECT 1 FROM vector WHERE vector.key = entry.key AND embedder = ?3
                    AND (?4 IS NULL OR length(data) IN (?4, 0)))
                ORDER BY key DESC LIMIT ?5";
            let bytes = dimensions.map(|numbers| numbers * size_of::<f32>());
            let mut find = c.prepare_cached(sql)?;
            find.query_map((first, last, embedder, bytes, limit), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    /// Keeps vectors of texts, in place of those that they had. Texts that are gone by now are passed over; a vector without
    /// a direction says that the model knows nothing of the text, and it is not asked again.
    ///
    /// # Errors
    /// What the database says.
    pub fn put_vectors(&self, embedder: &str, vectors: &[(i64, Vec<f32>)]) -> Result<(), StoreError> {
        self.with("keep vectors", |connection| {
            let transaction = connection.transaction()?;
            transaction.execute("INSERT INTO embedder (name) VALUES (?) ON CONFLICT DO NOTHING", [embedder])?;
            let number = embedder_of(&transaction, embedder)?;
            let mut put = transaction.prepare_cached(
                "INSERT OR REPLACE INTO vector (key, embedder, data) SELECT key, ?2, ?3 FROM entry WHERE key = ?1",
            )?;
            for (key, numbers) in vectors {
                if put.execute((key, number, vector::encode(numbers).unwrap_or_default()))? > 0 {
                    note(&transaction, project_at(*key), (*key, true))?;
                }
            }
            drop(put);
            transaction.commit()
        })
    }

    /// Notes that a model takes a text in no way, so that it is not asked again.
    ///
    /// # Errors
    /// What the database says.
    pub fn put_refused(&self, embedder: &str, key: i64) -> Result<(), StoreError> {
        self.with("note a refused text", |connection| {
            let transaction = connection.transaction()?;
            transaction.execute("INSERT INTO embedder (name) VALUES (?) ON CONFLICT DO NOTHING", [embedder])?;
            let number = embedder_of(&transaction, embedder)?;
            let sql =
                "INSERT OR REPLACE INTO vector (key, embedder, data) SELECT key, ?2, x'' FROM entry WHERE key = ?1";
            if transaction.execute(sql, (key, number))? > 0 {
                note(&transaction, project_at(key), (key, true))?;
            }
            transaction.commit()
        })
    }

    /// The vector of a text, and the model that it is of.
    ///
    /// # Errors
    /// What the database says.
    pub fn vector_of(&self, key: i64) -> Result<Option<(String, Vec<f32>)>, StoreError> {
        self.with("read a vector", |c| {
            let sql = "SELECT name, data FROM vector JOIN embedder ON embedder.number = vector.embedder
                WHERE key = ? AND length(data) > 0";
            let mut find = c.prepare_cached(sql)?;
            find.query_row([key], |row| Ok((row.get(0)?, vector::decode(row.get_ref(1)?.as_blob()?)))).optional()
        })
    }

    /// The texts at these places, in that order. Those that are gone by now are left out.
    ///
    /// # Errors
    /// What the database says.
    pub fn at(&self, keys: &[i64]) -> Result<Vec<KeptEntry>, StoreError> {
        self.with("read remembered texts", |c| {
            let mut find = c.prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE key = ?"))?;
            let found = keys.iter().map(|key| find.query_row([key], kept).optional());
            found.filter_map(Result::transpose).collect()
        })
    }
}

pub(super) fn embedder_of(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let mut find = connection.prepare_cached("SELECT number FROM embedder WHERE name = ?")?;
    find.query_row([name], |row| row.get(0)).optional()
}
