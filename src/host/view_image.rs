//! `view_image`: shows a model an image of the workspace.
//!
//! The file is handed on as it is, within a cap: what providers do with large images they do better than we could
//! (ADR 0018).

use std::io::Read;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::fs_common::{PATH_ALIASES, blocking, definition, io_failed, open, paths, text_argument};
use super::fs_guard::Guard;
use crate::base::image::{Image, image};
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
        "Shows you an image of the working directory: PNG, JPEG, GIF or WebP, at most {} bytes. For models that take images.",
        limit::IMAGE_BYTES_MAX
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
            let (workspace, cancel) = (Arc::clone(&self.workspace), context.cancel.clone());
            let guard = Guard::new(&workspace, context);
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
    let Some(Image { media_type, size }) = image(&bytes) else {
        return Err(ToolError::failed(format!("\"{path}\" is no image that can be shown: use fs_read")));
    };
    let size = size.map_or_else(|| "size unknown".to_owned(), |(w, h)| format!("{w}x{h} pixels"));
    let told = format!("{media_type}, {size}, {} bytes", found.len());
    if !TAKEN.contains(&media_type) {
        let why = "models take PNG, JPEG, GIF and WebP: convert it first";
        return Err(ToolError::failed(format!("Image \"{path}\" ({told}) cannot be shown: {why}")));
    }
    if bytes.len() as u64 > most {
        let why =
            format!("it has more than {most} bytes: make a smaller copy, 1568 pixels at its longer side are enough");
        return Err(ToolError::failed(format!("Image \"{path}\" ({told}) cannot be shown: {why}")));
    }
    if let Ok(real) = workspace.resolve(path) {
        guard.saw(&real, &found, None);
    }
    let image = Part::Image { media_type: media_type.to_owned(), data: STANDARD.encode(&bytes) };
    Ok(ToolOutput { text: format!("Image \"{path}\": {told}"), parts: vec![image], details: None })
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
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0";
        let put = |name: &str, bytes: &[u8]| fs::write(home.path().join(name), bytes).unwrap();
        put("p.png", png);
        put("p.bmp", b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\x18\0");
        let most = usize::try_from(limit::IMAGE_BYTES_MAX).unwrap();
        let mut large = png.to_vec();
        large.resize(most, 1);
        put("most.png", &large);
        large.push(1);
        put("large.png", &large);
        let shown = output(&tool, "p.png").unwrap();
        assert_eq!(shown.text, "Image \"p.png\": image/png, 2x3 pixels, 29 bytes");
        let [Part::Image { media_type, data }] = shown.parts.as_slice() else { panic!("{shown:?}") };
        assert_eq!((media_type.as_str(), STANDARD.decode(data).unwrap()), ("image/png", png.to_vec()));
        let shown = output(&tool, "most.png").unwrap();
        assert_eq!(bound_parts(shown.clone()), shown, "what is shown passes the cap on all calls");
        #[rustfmt::skip]
        let table = [
            ("large.png", "Image \"large.png\" (image/png, 2x3 pixels, 1500001 bytes) cannot be shown: it has more than 1500000 bytes"),
            ("p.bmp", "Image \"p.bmp\" (image/bmp, 2x3 pixels, 30 bytes) cannot be shown: models take"),
            ("a.txt", "\"a.txt\" is no image that can be shown"), ("dir", "Path \"dir\" is a directory"),
            ("q.png", "No such file or directory: \"q.png\". Did you mean \"p.png\""), ("../p.png", "Path \"../p.png\" escapes"),
        ];
        for (path, want) in table {
            let said = output(&tool, path).unwrap_err();
            assert!(said.starts_with(want), "{said}");
        }
        aborted(&tool, json!({"path": "p.png"}));
    }
}
