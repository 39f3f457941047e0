//! The tables, and the steps from one version of them to the next.
//!
//! Rows of a session stand under its number, which is never given twice. The log is partitioned by it: with the sessions of a
//! partition its rows go at once. Numbers of events count from 1, and times are milliseconds since 1970.

use tokio_postgres::Client;

use super::connect::Place;
use super::fault::Fault;
use crate::store::StoreError;

/// What holds everybody off who would change tables at the same time: `simse` as a number.
pub(super) const LOCK: i64 = 0x73_69_6d_73_65;
/// Sessions of one partition of the log.
const PARTITION_SESSIONS: i64 = 1 << 17;

/// Step N leads from version N to N + 1. Steps are added, never changed. From version 3 on, `simse_schema.oldest` says which version a
/// program has to know at least to work with the tables as they are: so servers of two versions work side by side while they are replaced
/// one after the other. A step that only adds leaves it as it is.
const STEPS: &[&str] = &[
    "
    CREATE SEQUENCE session_number AS bigint;
    CREATE TABLE session (
        number bigint PRIMARY KEY,
        id text COLLATE \"C\" NOT NULL UNIQUE,
        client text COLLATE \"C\",
        status smallint NOT NULL,
        version bigint NOT NULL,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        message_count bigint NOT NULL,
        usage text NOT NULL,
        settings text NOT NULL,
        root text COLLATE \"C\",
        lineage text,
        children text,
        spent text,
        shared text
    ) WITH (fillfactor = 70);
    CREATE INDEX session_of_client ON session (client, number) WHERE client IS NOT NULL;
    CREATE INDEX session_of_nobody ON session (number) WHERE client IS NULL;
    CREATE INDEX session_of_root ON session (root, number) WHERE root IS NOT NULL;
    CREATE INDEX session_with_children ON session (number) WHERE children IS NOT NULL;
    CREATE TABLE log_end (
        session bigint PRIMARY KEY,
        seq bigint NOT NULL,
        head bytea NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE log (
        session bigint NOT NULL,
        first bigint NOT NULL,
        count bigint NOT NULL,
        turn text,
        at bigint NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (session, first)
    ) PARTITION BY RANGE (session);
    CREATE TABLE turn (
        session bigint NOT NULL,
        id text COLLATE \"C\" NOT NULL,
        place bigint GENERATED ALWAYS AS IDENTITY,
        open boolean NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (session, id)
    ) WITH (fillfactor = 70);
    CREATE UNIQUE INDEX turn_place ON turn (session, place);
    CREATE INDEX turn_open ON turn (session, place) WHERE open;
    CREATE TABLE said (
        session bigint NOT NULL,
        at bigint NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (session, at)
    );
    CREATE TABLE question (
        session bigint NOT NULL,
        seq bigint NOT NULL,
        id text NOT NULL,
        call text NOT NULL,
        PRIMARY KEY (session, seq)
    );
    CREATE TABLE fork (session bigint PRIMARY KEY, parent bigint NOT NULL, at bigint NOT NULL);
    CREATE INDEX fork_of ON fork (parent);
    CREATE TABLE doomed (session bigint PRIMARY KEY);
    CREATE TABLE saved_grant (id text COLLATE \"C\" PRIMARY KEY, body text NOT NULL);
    CREATE TABLE client_spending (client text COLLATE \"C\" PRIMARY KEY, began bigint NOT NULL, body text NOT NULL);
    CREATE SEQUENCE outcome_number AS bigint;
    CREATE TABLE outcome (
        name text COLLATE \"C\" PRIMARY KEY,
        number bigint NOT NULL DEFAULT nextval('outcome_number'),
        at bigint NOT NULL,
        fingerprint bytea NOT NULL,
        body text
    );
    CREATE UNIQUE INDEX outcome_in_order ON outcome (number);
    CREATE TABLE lifecycle (
        client text COLLATE \"C\" NOT NULL,
        place bigint NOT NULL,
        session bigint NOT NULL,
        seq bigint,
        gone text,
        at bigint,
        PRIMARY KEY (client, place)
    );
    CREATE INDEX lifecycle_of_session ON lifecycle (session) WHERE seq IS NOT NULL;
    CREATE INDEX lifecycle_end ON lifecycle (at, client, place) WHERE gone IS NOT NULL;
    CREATE TABLE lifecycle_newest (client text COLLATE \"C\" PRIMARY KEY, place bigint NOT NULL) WITH (fillfactor = 50);
    CREATE SEQUENCE node_number AS integer;
    CREATE TABLE node (
        number bigint PRIMARY KEY DEFAULT nextval('node_number'),
        home text,
        name text NOT NULL,
        version text NOT NULL,
        joined_at timestamptz NOT NULL DEFAULT now(),
        is_over boolean NOT NULL DEFAULT false,
        written bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 20);
    CREATE TABLE node_beat (node bigint PRIMARY KEY, beat bigint NOT NULL) WITH (fillfactor = 50);
    CREATE TABLE forgotten (one boolean PRIMARY KEY CHECK (one), place bigint NOT NULL, at bigint NOT NULL);
    INSERT INTO forgotten (one, place, at) VALUES (true, 0, 0);
",
    "
    ALTER TABLE log_end ADD COLUMN holder bigint;
    ALTER TABLE node ADD COLUMN url text, ADD COLUMN labels text[] NOT NULL DEFAULT '{}',
        ADD COLUMN is_draining boolean NOT NULL DEFAULT false;
    ALTER TABLE node_beat ADD COLUMN awake bigint NOT NULL DEFAULT 0, ADD COLUMN running bigint NOT NULL DEFAULT 0;
    ALTER TABLE outcome ADD COLUMN node bigint;
    CREATE TABLE note (kind text COLLATE \"C\", id text COLLATE \"C\", body text NOT NULL, PRIMARY KEY (kind, id));
    CREATE TABLE cluster (one boolean PRIMARY KEY CHECK (one), secret text NOT NULL);
",
    "
    ALTER TABLE simse_schema ADD COLUMN oldest bigint NOT NULL DEFAULT 3;
    ALTER TABLE log_end ADD COLUMN labels text[] NOT NULL DEFAULT '{}';
    CREATE TABLE node_spending (
        client text COLLATE \"C\" NOT NULL,
        node bigint NOT NULL,
        began bigint NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (client, node)
    ) WITH (fillfactor = 50);
",
    "
    CREATE UNLOGGED TABLE letter (
        id bigint PRIMARY KEY,
        sender bigint NOT NULL,
        receiver bigint NOT NULL,
        urgent boolean NOT NULL,
        taken boolean NOT NULL DEFAULT false,
        request bytea NOT NULL,
        answer bytea,
        at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 50);
    ALTER TABLE letter ALTER COLUMN request SET STORAGE EXTERNAL, ALTER COLUMN answer SET STORAGE EXTERNAL;
",
];

/// Brings the tables to the newest version. Others who come at the same time wait.
pub(super) async fn migrate(client: &Client, place: &Place) -> Result<(), StoreError> {
    let failed =
        |fault: tokio_postgres::Error| Fault::from(fault).told("bring the database to the newest version", place);
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(failed)?;
    let migrated = steps(client, place).await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.map_err(failed)?;
    migrated
}

async fn steps(client: &Client, place: &Place) -> Result<(), StoreError> {
    let failed =
        |fault: tokio_postgres::Error| Fault::from(fault).told("bring the database to the newest version", place);
    let made = "CREATE TABLE IF NOT EXISTS simse_schema (one boolean PRIMARY KEY CHECK (one), version bigint NOT NULL);
        INSERT INTO simse_schema (one, version) VALUES (true, 0) ON CONFLICT DO NOTHING";
    let found = client.query_opt("SELECT to_regclass('simse_schema')::text", &[]).await.map_err(failed)?;
    if found.and_then(|row| row.get::<_, Option<String>>(0)).is_none() {
        client.batch_execute(made).await.map_err(failed)?;
    }
    // The column is not in tables of versions that know nothing of it.
    let versions = "SELECT version, (to_jsonb(simse_schema) ->> 'oldest')::bigint FROM simse_schema";
    let row = client.query_one(versions, &[]).await.map_err(failed)?;
    let (found, oldest): (i64, Option<i64>) = (row.get(0), row.get(1));
    let known = newest();
    if found > known && oldest.is_some_and(|oldest| oldest <= known) {
        tracing::info!(%place, version = found, known, "the database is newer than this program, which works with it still");
        return Ok(());
    }
    let done = usize::try_from(found).ok().filter(|done| *done <= STEPS.len());
    let Some(done) = done else {
        return Err(StoreError::TooNew { path: place.to_string().into(), found, known });
    };
    if done > 0 && done < STEPS.len() {
        tracing::info!(%place, from = found, to = known, "the database is brought to the newest version");
    }
    for (step, version) in STEPS.iter().zip(1..).skip(done) {
        let step = format!("BEGIN; {step}; UPDATE simse_schema SET version = {version}; COMMIT");
        if let Err(error) = client.batch_execute(&step).await {
            // A connection that is gone has rolled back by itself.
            let _ = client.batch_execute("ROLLBACK").await;
            return Err(failed(error));
        }
    }
    Ok(())
}

/// Refuses tables that a newer version has added to, also where this one could work with them.
pub(super) async fn refuse_newer(client: &Client, place: &Place) -> Result<(), StoreError> {
    let row = client.query_one("SELECT version FROM simse_schema", &[]).await;
    let found = row.map_err(|fault| Fault::from(fault).told("look for the version of the database", place))?.get(0);
    let known = newest();
    if found > known { Err(StoreError::TooNew { path: place.to_string().into(), found, known }) } else { Ok(()) }
}

/// The version that this program makes.
fn newest() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// Makes the partition of the log that sessions of that number have their rows in. The first number behind it.
pub(super) async fn make_partition(client: &Client, number: i64) -> Result<i64, tokio_postgres::Error> {
    let (nth, from, upto) = partition_of(number);
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await?;
    let made = match client.query_one("SELECT to_regclass($1)::text", &[&format!("log_{nth}")]).await {
        Ok(row) if row.get::<_, Option<String>>(0).is_some() => Ok(()),
        // Made first and joined then: who appends meanwhile is not held up.
        Ok(_) => {
            let make = format!(
                "BEGIN; CREATE TABLE log_{nth} (LIKE log INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
                ALTER TABLE log ATTACH PARTITION log_{nth} FOR VALUES FROM ({from}) TO ({upto}); COMMIT"
            );
            let made = client.batch_execute(&make).await;
            if made.is_err() {
                let _ = client.batch_execute("ROLLBACK").await;
            }
            made
        }
        Err(error) => Err(error),
    };
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await?;
    made.map(|()| upto)
}

/// Which partition a session has its rows in: its own number, the first session of it, and the first one behind it.
pub(super) fn partition_of(number: i64) -> (i64, i64, i64) {
    let nth = number.div_euclid(PARTITION_SESSIONS);
    (nth, nth * PARTITION_SESSIONS, (nth + 1) * PARTITION_SESSIONS)
}
