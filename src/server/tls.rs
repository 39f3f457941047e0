//! TLS at the door, where a certificate is given: HTTP/1.1 inside it, under the same limits as without.
//!
//! The files are looked at again and again, so that a renewed certificate serves the next connection; one that cannot be
//! used is said in the log, and the one before goes on.
//!
//! Invariant: nothing of a key is logged or shown, nor does an error quote the file that holds it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;

use super::ListenError;
use crate::base::{file, limit};
use crate::config::tokens::Stamp;

/// Largest file of certificates, or key, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the certificate and its key are: PEM, the chain with the server's own certificate first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain.
    pub certificate: PathBuf,
    /// The key of its first certificate.
    pub key: PathBuf,
}

/// What connections are secured with now.
pub(super) struct Tls {
    files: TlsFiles,
    now: RwLock<(Stamps, Arc<ServerConfig>)>,
}

pub(super) type Stamps = (Stamp, Stamp);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// [`ListenError::Tls`] that names the file and what is wrong with it.
    pub(super) async fn read(files: TlsFiles) -> Result<Self, ListenError> {
        let now = RwLock::new(read(files.clone()).await?);
        Ok(Self { files, now })
    }

    /// What secures the next connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.now.read().1))
    }

    /// Looks at the files again and again, until it is told to end.
    pub(super) async fn watch(&self, end: CancellationToken) {
        let mut bad = None;
        while end.run_until_cancelled(tokio::time::sleep(Duration::from_millis(limit::RELOAD_MS))).await.is_some() {
            let files = self.files.clone();
            let Ok(stamps) = tokio::task::spawn_blocking(move || stamps(&files)).await else { continue };
            if stamps == self.now.read().0 || bad == Some(stamps) {
                continue;
            }
            match read(self.files.clone()).await {
                Ok(next) => {
                    *self.now.write() = next;
                    bad = None;
                    tracing::info!(certificate = %self.files.certificate.display(), "a new certificate is used");
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate before goes on");
                    bad = Some(stamps);
                }
            }
        }
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    (Stamp::of(&files.certificate), Stamp::of(&files.key))
}

/// What the files hold now, ready for use.
pub(super) async fn read(files: TlsFiles) -> Result<(Stamps, Arc<ServerConfig>), ListenError> {
    let read = tokio::task::spawn_blocking(move || {
        // Before the files are read: what changes meanwhile is read again.
        let stamps = stamps(&files);
        config(&files).map(|config| (stamps, Arc::new(config)))
    });
    read.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}

fn config(files: &TlsFiles) -> Result<ServerConfig, ListenError> {
    let TlsFiles { certificate, key } = files;
    let text = content(certificate)?;
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|cause| refused(certificate, &in_words(&cause)))?;
    if chain.is_empty() {
        return Err(refused(certificate, "expected certificates in PEM; it holds none"));
    }
    let secret = content(key)?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|cause| match cause {
        pem::Error::NoItemsFound => refused(key, "expected a private key in PEM, without a password; it holds none"),
        other => refused(key, &in_words(&other)),
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|cause| refused(certificate, &cause.to_string()))?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, secret).map_err(|cause| match cause {
        rustls::Error::InconsistentKeys(_) => refused(key, "expected the key of the certificate; it is another's"),
        rustls::Error::InvalidCertificate(_) => refused(certificate, &cause.to_string()),
        other => refused(key, &other.to_string()),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn content(path: &Path) -> Result<Vec<u8>, ListenError> {
    file::read_small(path, FILE_BYTES_MAX).map(|(bytes, _)| bytes).map_err(|cause| refused(path, &cause.to_string()))
}

fn refused(path: &Path, problem: &str) -> ListenError {
    ListenError::Tls { path: path.to_owned(), problem: problem.to_owned() }
}

/// What is wrong with a PEM file, without a word of what is in it.
fn in_words(cause: &pem::Error) -> String {
    match cause {
        pem::Error::MissingSectionEnd { .. } => "a section has a beginning and no end",
        pem::Error::IllegalSectionStart { .. } => "a section begins with a line that is none",
        pem::Error::Base64Decode(_) => "what stands in a section is not Base64",
        pem::Error::NoItemsFound => "expected PEM; it holds nothing of that kind",
        _ => "it is not PEM",
    }
    .to_owned()
}
