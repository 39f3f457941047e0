//! `view_image`: shows a model an image of the workspace.
//!
//! The file is handed on as it is, within caps of bytes and pixels: what providers do with large images they do better than
//! we could. It has to be whole, because a broken one spoils every later request of the conversation (ADR 0018).

use std::io::Read;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::fs_common::{PATH_ALIASES, blocking, definition, io_failed, open, paths, text_argument};
use super::fs_guard::Guard;
use crate::base::image::{Image, image, whole};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{Part, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// What models take.
const TAKEN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The image, relative to the working directory or absolute", "required": true},
    });
    let description = format!(
        "Shows you an image of the working directory: PNG, JPEG, GIF or WebP, at most {} bytes and {} pixels at either side. \
         For models that take images.",
        limit::IMAGE_BYTES_MAX,
        limit::IMAGE_SIDE_PIXELS_MAX
    );
    definition("view_image", ToolCategory::Read, &description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct ViewImage {
    workspace: Arc<Workspace>,
}

impl ViewImage {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for ViewImage {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        PATH_ALIASES
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.workspace, arguments, &["path"])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let path = text_argument(&arguments, "path")?;
            let (guard, cancel) = (Guard::new(&self.workspace, context), context.cancel.clone());
            let workspace = guard.workspace();
            blocking(move || {
                if cancel.is_cancelled() {
                    return Err(ToolError::Aborted);
                }
                view(&workspace, &guard, &path)
            })
            .await
        })
    }
}

fn view(workspace: &Workspace, guard: &Guard, path: &str) -> Result<ToolOutput, ToolError> {
    let file = open(workspace, path)?;
    let found = file.metadata().map_err(|e| io_failed("read", path, &e))?;
    let most = limit::IMAGE_BYTES_MAX;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| io_failed("read", path, &e))?;
    let Some(found_image) = image(&bytes) else {
        let expected = "expected a file that begins as a PNG, JPEG, GIF or WebP does. fs_read says what it is";
        return Err(ToolError::failed(format!("\"{path}\" is no image that can be shown: {expected}")));
    };
    let media_type = found_image.media_type;
    let told = format!("{media_type}, {}, {} bytes", found_image.pixels(), found.len());
    if let Some(why) = hindrance(found_image, &bytes) {
        return Err(ToolError::failed(format!("Image \"{path}\" ({told}) cannot be shown: {why}")));
    }
    if let Ok(real) = workspace.resolve(path) {
        guard.saw(&real, &found, None);
    }
    let image = Part::Image { media_type: media_type.to_owned(), data: STANDARD.encode(&bytes) };
    Ok(ToolOutput { text: format!("Image \"{path}\": {told}"), parts: vec![image], details: None })
}

/// What keeps an image from being shown; `bytes` are all of it, or one more than may be.
pub(super) fn hindrance(Image { media_type, size }: Image, bytes: &[u8]) -> Option<String> {
    if !TAKEN.contains(&media_type) {
        return Some("models take PNG, JPEG, GIF and WebP: convert it first".to_owned());
    }
    let enough = "make a smaller copy, 1568 pixels at its longer side are enough";
    let (most, side) = (limit::IMAGE_BYTES_MAX, limit::IMAGE_SIDE_PIXELS_MAX);
    if bytes.len() as u64 > most {
        return Some(format!("it has more than {most} bytes: {enough}"));
    }
    if size.is_some_and(|(width, height)| width.max(height) > side) {
        return Some(format!("it has more than {side} pixels at a side: {enough}"));
    }
    whole(media_type, bytes).err().map(|flaw| format!("it is broken: {flaw}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::super::fs_common::testing::{aborted, context, workspace};
    use super::*;
    use crate::tool::bound_parts;

    fn output(tool: &ViewImage, path: &str) -> Result<ToolOutput, String> {
        let Value::Object(arguments) = json!({ "path": path }) else { panic!("an object") };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(tool.run(arguments, &context())).map_err(|e| e.to_string())
    }

    #[test]
    fn an_image_is_shown_whole_or_refused() {
        let (home, workspace) = workspace(&[("a.txt", "text"), ("dir/", "")]);
        let tool = ViewImage::new(workspace);
        let gif = |width: u8, comment: usize| {
            let head = [&b"GIF89a"[..], &[0, width, 3, 0, 0, 0, 0]].concat();
            let blocks = [&b"\x01x"[..]].repeat(comment / 2).concat();
            let frame = b"\x2c\0\0\0\0\x01\0\x01\0\0\x02\x01\x44\0\x3b";
            [&head[..], b"\x21\xfe", &blocks, b"\0", frame].concat()
        };
        let (small, bare) = (gif(1, 0), gif(1, 0).len());
        let put = |name: &str, bytes: &[u8]| fs::write(home.path().join(name), bytes).unwrap();
        put("p.gif", &small);
        put("p.bmp", b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\x18\0");
        let most = usize::try_from(limit::IMAGE_BYTES_MAX).unwrap();
        let mut large = gif(1, most - bare);
        large.resize(most, 1);
        put("most.gif", &large);
        large.push(1);
        put("large.gif", &large);
        put("wide.gif", &gif(32, 0));
        put("cut.gif", &small[..small.len() - 2]);
        // Complete but for its last bytes, as a download that broke off leaves it.
        put("cut.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0\xb9\xea\xde\x81\0\0");
        put("false.png", b"<html>404</html>");
        let shown = output(&tool, "p.gif").unwrap();
        assert_eq!(shown.text, format!("Image \"p.gif\": image/gif, 256x3 pixels, {bare} bytes"));
        let [Part::Image { media_type, data }] = shown.parts.as_slice() else { panic!("{shown:?}") };
        assert_eq!((media_type.as_str(), STANDARD.decode(data).unwrap()), ("image/gif", small));
        let shown = output(&tool, "most.gif").unwrap();
        assert_eq!(bound_parts(shown.clone()), shown, "what is shown passes the cap on all calls");
        #[rustfmt::skip]
        let table = [
            ("large.gif", "Image \"large.gif\" (image/gif, 256x3 pixels, 1500001 bytes) cannot be shown: it has more than 1500000 bytes"),
            ("wide.gif", "Image \"wide.gif\" (image/gif, 8192x3 pixels, 31 bytes) cannot be shown: it has more than 8000 pixels at a side"),
            ("cut.gif", "Image \"cut.gif\" (image/gif, 256x3 pixels, 29 bytes) cannot be shown: it is broken: it ends at byte 29"),
            ("cut.png", "Image \"cut.png\" (image/png, 2x3 pixels, 35 bytes) cannot be shown: it is broken: it ends at byte 35"),
            ("false.png", "\"false.png\" is no image that can be shown: expected a file that begins as a PNG"),
            ("p.bmp", "Image \"p.bmp\" (image/bmp, 2x3 pixels, 30 bytes) cannot be shown: models take"),
            ("a.txt", "\"a.txt\" is no image that can be shown"), ("dir", "Path \"dir\" is a directory"),
            ("q.gif", "No such file or directory: \"q.gif\". Did you mean \"p.gif\""), ("../p.png", "Path \"../p.png\" escapes"),
        ];
        for (path, want) in table {
            let said = output(&tool, path).unwrap_err();
            assert!(said.starts_with(want), "{said}");
        }
        aborted(&tool, json!({"path": "p.gif"}));
    }
}
