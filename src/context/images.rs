//! Images in a conversation: how many stay, and what a model is told that takes none.
//!
//! Each request sends all of them again, so old ones go first; what the user sent stays.

use crate::base::limit;
use crate::protocol::{Message, Part};

/// What stands behind an output whose image has gone.
const GONE: &str = "[The image is no longer shown here: look at it again where you need it]";

/// Whether there are images of tools that are too many.
pub fn has_too_many_images(messages: &[Message]) -> bool {
    let (mut count, mut sum) = (0, 0);
    for message in messages {
        if let Message::ToolResult { parts, .. } = message
            && !parts.is_empty()
        {
            count += 1;
            sum += parts.iter().map(image_bytes).sum::<usize>();
        }
    }
    count > 1 && sum > limit::IMAGES_BYTES_MAX
}

/// Drops the images of tools that are too many, oldest first; their outputs say so.
///
/// The newest call's stay in any case: one call hands on no more than `CALL_IMAGES_BYTES_MAX`.
pub fn bound_images(messages: &mut [Message]) {
    let mut kept_bytes = 0;
    for message in messages.iter_mut().rev() {
        let Message::ToolResult { output, parts, .. } = message else { continue };
        if parts.is_empty() {
            continue;
        }
        let bytes: usize = parts.iter().map(image_bytes).sum();
        if kept_bytes > 0 && kept_bytes + bytes > limit::IMAGES_BYTES_MAX {
            parts.clear();
            output.push('\n');
            output.push_str(GONE);
        } else {
            kept_bytes += bytes;
        }
    }
}

fn image_bytes(part: &Part) -> usize {
    match part {
        Part::Image { data, .. } => data.len(),
        Part::Text { .. } => 0,
    }
}

/// Whether a message has an image.
pub fn has_image(message: &Message) -> bool {
    let (Message::User(parts) | Message::ToolResult { parts, .. }) = message else { return false };
    parts.iter().any(|part| matches!(part, Part::Image { .. }))
}

/// Puts words in the place of every image, for a model that takes none.
pub fn describe_images(messages: &mut [Message]) {
    for message in messages {
        match message {
            Message::User(parts) => parts.iter_mut().for_each(describe),
            Message::ToolResult { output, parts, .. } => {
                for mut part in parts.drain(..) {
                    describe(&mut part);
                    if let Part::Text { text } = part {
                        output.push('\n');
                        output.push_str(&text);
                    }
                }
            }
            Message::Assistant { .. } => {}
        }
    }
}

fn describe(part: &mut Part) {
    if let Part::Image { media_type, .. } = part {
        *part = Part::Text { text: format!("[{media_type}: not shown, because this model takes no images]") };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: usize) -> Part {
        Part::Image { media_type: "image/png".into(), data: "A".repeat(bytes) }
    }

    fn result(parts: Vec<Part>) -> Message {
        Message::ToolResult { call_id: "c".into(), name: "t".into(), output: "o".into(), is_error: false, parts }
    }

    /// How many images each message still has.
    fn counts(messages: &[Message]) -> Vec<usize> {
        let images = |parts: &[Part]| parts.iter().filter(|part| matches!(part, Part::Image { .. })).count();
        let count = |message: &Message| match message {
            Message::User(parts) | Message::ToolResult { parts, .. } => images(parts),
            Message::Assistant { .. } => 0,
        };
        messages.iter().map(count).collect()
    }

    #[test]
    fn the_newest_images_of_tools_stay() {
        let half = limit::IMAGES_BYTES_MAX / 2;
        let user = || Message::User(vec![image(half)]);
        let mut messages = vec![user(), result(vec![image(half)]), result(vec![]), result(vec![image(half), image(1)])];
        assert!(has_too_many_images(&messages));
        bound_images(&mut messages);
        assert!(!has_too_many_images(&messages));
        assert_eq!(counts(&messages), [1, 0, 0, 2]);
        let Message::ToolResult { output, .. } = &messages[1] else { panic!("{messages:?}") };
        assert_eq!(output, &format!("o\n{GONE}"));
        let before = messages.clone();
        bound_images(&mut messages);
        assert_eq!(messages, before);
        let mut large = vec![result(vec![image(2 * half + 1)])];
        bound_images(&mut large);
        assert_eq!(counts(&large), [1]);
    }

    #[test]
    fn a_model_without_eyes_is_told() {
        let mut messages = vec![Message::User(vec![image(1)]), result(vec![image(1), image(1)])];
        assert!(messages.iter().all(has_image));
        describe_images(&mut messages);
        assert!(!messages.iter().any(has_image));
        assert_eq!(counts(&messages), [0, 0]);
        let Message::ToolResult { output, .. } = &messages[1] else { panic!("{messages:?}") };
        assert_eq!(output.lines().count(), 3);
        assert!(output.ends_with("\n[image/png: not shown, because this model takes no images]"), "{output}");
    }
}
