//! How the database is reached: what `postgres://…` says, the limits of each connection, and TLS.
//!
//! `sslmode` is as libpq has it: `disable`, `prefer` (what is assumed: encrypted where the server can), `require`, `verify-ca` and
//! `verify-full`. But for `prefer` a certificate is always held against the name, as in `verify-full`: whose it is matters as much as that
//! nobody listens. `sslrootcert` names a file with the authorities that count; without it those of the system do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::fault::Fault;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that the database takes for a statement, waits for a lock, and bears a transaction that does nothing; milliseconds. The
/// last is what a process that was frozen in the middle of one can hold others up for.
pub(super) const LIMITS: &str =
    "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=3000";
/// How long a connection may take until it can be used, TLS and the log-in included.
pub(super) const READY_MAX: Duration = Duration::from_secs(10);
/// After so much silence the other side is asked whether it is still there; three times.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long what was sent may stay without an answer of the other machine.
pub(super) const SENT_MAX: Duration = Duration::from_secs(15);

/// Where a database is, without what is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place(String);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A database as it is reached.
#[derive(Clone)]
pub(super) struct Reach {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) place: Place,
}

impl Reach {
    /// What a URL says. `password`: where it has none.
    ///
    /// # Errors
    /// What is wrong with it, without what is secret.
    pub(super) fn of(url: &str, password: Option<&str>) -> Result<Self, String> {
        let (url, said) = parted(url);
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| words(&error))?;
        if config.get_hosts().is_empty() {
            return Err("it names no host".into());
        }
        // Of a password with an `@` the rest would be taken for a host, and shown.
        if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
            return Err("it has two `@`: in a password write %40".into());
        }
        if let Some(password) = password.filter(|_| config.get_password().is_none()) {
            config.password(password);
        }
        let (mode, verified) = match said.mode.as_deref() {
            Some("disable") => (SslMode::Disable, false),
            None | Some("prefer" | "allow") => (SslMode::Prefer, false),
            Some("require" | "verify-ca" | "verify-full") => (SslMode::Require, true),
            Some(other) => {
                let modes = "disable, prefer, require, verify-ca or verify-full";
                return Err(format!("sslmode: expected {modes}; got {other}"));
            }
        };
        let options = config.get_options().map_or_else(|| LIMITS.to_owned(), |own| format!("{LIMITS} {own}"));
        config.ssl_mode(mode).options(options).keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE);
        config.keepalives_retries(3).tcp_user_timeout(SENT_MAX);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("simse");
        }
        let tls = MakeRustlsConnect::new(tls(verified, said.authorities.as_deref().map(Path::new))?);
        Ok(Self { place: place_of(&config), config, tls })
    }
}

impl Reach {
    /// A connection of its own, and what drives it.
    pub(super) async fn line(&self) -> Result<(Client, AbortOnDropHandle<()>), Fault> {
        let connected = tokio::time::timeout(READY_MAX, self.config.connect(self.tls.clone()));
        let (client, connection) = connected.await.map_err(|_| Fault::Lost("no connection within 10 s".into()))??;
        let driven = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database has ended");
            }
        });
        Ok((client, AbortOnDropHandle::new(driven)))
    }
}

/// What the driver does not know of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    mode: Option<String>,
    authorities: Option<String>,
}

/// Takes `sslmode` and `sslrootcert` out of a URL.
fn parted(url: &str) -> (String, Said) {
    let mut said = Said::default();
    let Some((front, query)) = url.split_once('?') else { return (url.to_owned(), said) };
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", mode)) => said.mode = Some(mode.to_owned()),
            Some(("sslrootcert", file)) => said.authorities = Some(decoded(file)),
            _ => rest.push(pair),
        }
    }
    let front = front.to_owned();
    (if rest.is_empty() { front } else { format!("{front}?{}", rest.join("&")) }, said)
}

/// A value of a URL's query as a text.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn place_of(config: &Config) -> Place {
    let ports = config.get_ports();
    let name = |(at, host): (usize, &Host)| {
        let port = ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(name).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Place(format!("postgres://{}/{database}", hosts.join(",")))
}

fn tls(verified: bool, authorities: Option<&Path>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    if !verified {
        let anyone = Arc::new(Anyone(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth());
    }
    let Some(file) = authorities else {
        let builder = builder.with_platform_verifier().map_err(|error| error.to_string())?;
        return Ok(builder.with_no_client_auth());
    };
    let failed = |cause: String| format!("sslrootcert: {}: {cause}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))? {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("no certificate stands in it".to_owned()));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Takes any certificate: `prefer` keeps out who only listens.
#[derive(Debug)]
struct Anyone(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The words of an error and of what caused it. They name a parameter, never its value.
fn words(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_what_is_secret() {
        let table = [
            ("postgres://u:s3cret@h:5433/d", Ok("postgres://h:5433/d")),
            ("postgresql://u@h/d?sslmode=disable", Ok("postgres://h:5432/d")),
            ("postgres://u:s3cret@a:1,b:2/d?application_name=x&sslmode=prefer", Ok("postgres://a:1,b:2/d")),
            ("postgres://u@%2Frun%2Fpg/d", Ok("postgres:///run/pg:5432/d")),
            ("postgres://u:s3cret@h/d?sslmode=maybe", Err("sslmode: expected disable")),
            ("postgres://u:s3cret@h/d?colour=red", Err("colour")),
            ("postgres://u:s3cret@h:none/d", Err("port")),
            ("postgres:///d", Err("no host")),
            ("postgres://u:pass@s3cret@h/d", Err("%40")),
            ("postgres://h/d?sslmode=require&sslrootcert=%2Fno%2Fsuch.pem", Err("/no/such.pem")),
        ];
        for (url, want) in table {
            let found = Reach::of(url, Some("s3cret-too")).map(|reach| reach.place.to_string());
            match (&found, want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{url}"),
                (Err(said), Err(want)) => assert!(said.contains(want) && !said.contains("s3cret"), "{url}: {said}"),
                _ => panic!("{url}: {found:?}"),
            }
        }
    }
}
