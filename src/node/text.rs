//! Long texts on their way to JavaScript.

use napi::bindgen_prelude::{Either, Utf16String};

/// A text for JavaScript: UTF-16 where that is cheaper.
pub(super) type JsText = Either<String, Utf16String>;

/// Node converts UTF-8 with other than ASCII characters slowly; for these the units are made here.
pub(super) fn js_text(text: String) -> JsText {
    if text.is_ascii() { Either::A(text) } else { Either::B(Utf16String::from(text)) }
}
