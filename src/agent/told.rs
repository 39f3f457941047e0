//! The conversation as a model is told it: in its words, and as hooks leave it.
//!
//! Nothing is copied where nothing is put in other words, and each message is put in them once: what a turn costs does not grow with the session.
//! Only a hook that hears the messages hears all of them each time.

use super::originals::give_back_originals;
use super::turn::Turn;
use crate::context::{describe_images, has_image};
use crate::model::Messages;
use crate::protocol::Message;

impl Turn {
    /// The conversation as the model is told it: the very same where nothing is to be left out or put in other words.
    pub(super) async fn told(&self, without_images: bool) -> Messages {
        let hooks = &self.input.environment.hooks;
        let messages = self.in_its_words(without_images);
        if !hooks.hears_messages() {
            return messages;
        }
        let mut told = hooks.transform_messages(messages.to_vec()).await;
        give_back_originals(&messages, &mut told);
        told.into()
    }

    /// The conversation with the calls as the model made them, and with words for images where it takes none.
    fn in_its_words(&self, without_images: bool) -> Messages {
        let (messages, registry) = (&self.input.messages, &self.input.environment.registry);
        let retells = registry.retells();
        if retells.is_none() && !without_images {
            return messages.clone();
        }
        let by = retells.unwrap_or(0).wrapping_mul(2).wrapping_add(u64::from(without_images));
        let has = |message: &Message| (without_images && has_image(message)) || registry.is_retold(message);
        let put = |message: &mut Message| {
            registry.retell(message);
            if without_images {
                describe_images(std::slice::from_mut(message));
            }
        };
        messages.retold(by, has, put)
    }
}
