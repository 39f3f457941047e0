//! The seam that everything fills which turns texts into vectors: endpoints, local models, JavaScript.

use tokio_util::sync::CancellationToken;

use super::ModelError;
use crate::base::BoxFuture;

/// One vector for each text, in the order of the texts, all of one length.
pub type Vectors = Vec<Vec<f32>>;

/// Turns texts into vectors, so that near vectors mean near meanings.
pub trait Embedder: Send + Sync + 'static {
    /// Which model it is. Vectors of different models are never compared.
    fn model(&self) -> &str;

    /// Embeds texts, none of them empty. Ends soon after `cancel` fires.
    ///
    /// What comes back holds exactly one vector for each text, all of the same length (at least 1), and only finite
    /// numbers.
    ///
    /// # Errors
    /// [`ModelError`], whose kind says whether another try may help.
    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vectors, ModelError>>;
}
