//! Long texts on their way to JavaScript.

use napi::bindgen_prelude::{Either, Latin1String, Utf16String};

/// A text for JavaScript, in one of the two forms in which it keeps texts itself.
pub(super) type JsText = Either<Latin1String, Utf16String>;

/// Node converts UTF-8 slowly: what is ASCII alone is copied as it is, and for all else the units are made here.
pub(super) fn js_text(text: String) -> JsText {
    if text.is_ascii() { Either::A(Latin1String::from(text)) } else { Either::B(Utf16String::from(text)) }
}
