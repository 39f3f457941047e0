//! Addresses for people's eyes: what may be a key or a password in one is left out.

use reqwest::Url;

/// What stands for what is left out.
const HIDDEN: &str = "(hidden)";
/// Letters and digits in a row, both of them, from which on a part of a path is taken for a key.
const KEY_CHARS: usize = 16;
/// Bytes of a secret in an address: a shorter one would be met by chance.
const SECRET_BYTES_MIN: usize = 4;

/// The address as it may be shown: whole when it holds neither user nor password, query, fragment nor what looks like a key; else where
/// it leads to, and no more. Nothing of a text that is no address and might hold one of these.
pub fn shown_address(text: &str) -> String {
    // What stands for another letter may stand for one of these.
    let plain = !text.contains(['@', '?', '#', ';', '%']) && !text.split('/').any(has_key);
    if plain {
        return text.to_owned();
    }
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            // Of a default port nothing is said, as in the address itself.
            format!("{}/{HIDDEN}", url.origin().ascii_serialization())
        }
        Ok(_) | Err(_) => HIDDEN.to_owned(),
    }
}

/// What may be a secret in an address, as it is and as it stands there: the user, what is asked, the fragment, and parts of the path that look
/// like keys. Of a text that is no address nothing.
pub fn secrets_of_address(text: &str) -> Vec<String> {
    let Some(url) = Url::parse(text).ok().filter(Url::has_host) else { return Vec::new() };
    let mut values = vec![url.username().to_owned(), url.password().unwrap_or_default().to_owned()];
    values.extend(url.query_pairs().flat_map(|(name, value)| {
        // One without a value is one itself.
        let bare = if value.is_empty() { name.into_owned() } else { String::new() };
        [value.into_owned(), bare]
    }));
    values.extend([url.query(), url.fragment()].into_iter().flatten().map(str::to_owned));
    values.extend(url.path().split('/').filter(|part| has_key(part)).map(str::to_owned));
    values.retain(|value| value.len() >= SECRET_BYTES_MIN);
    values
}

/// Whether a part of a path looks like a key: one word, or several joined in ways that names of models are not. Those have dates and
/// versions between their dashes, and no letters of both sizes mixed with digits; a UUID is told by its form.
fn has_key(part: &str) -> bool {
    let words = || part.split(|letter: char| !letter.is_ascii_alphanumeric());
    let mixed = |word: &str| {
        let has = |is: fn(&u8) -> bool| word.as_bytes().iter().any(is);
        has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
    };
    let prefix = ["sk-", "ghp_", "gho_", "ghs_", "github_pat_", "xoxb-", "xoxp-", "glpat-", "hf_", "gsk_"];
    words().any(is_key)
        || part.len() >= KEY_CHARS && words().filter(|word| mixed(word)).count() >= 2
        || uuid::Uuid::try_parse(part).is_ok()
        || part.split(['=', ';', '/']).any(|piece| prefix.iter().any(|prefix| piece.starts_with(prefix)))
}

/// Whether a word looks like a key: letters and digits, many in a row.
pub fn is_key(word: &str) -> bool {
    let both = word.bytes().any(|byte| byte.is_ascii_digit()) && word.bytes().any(|byte| byte.is_ascii_alphabetic());
    both && word.len() >= KEY_CHARS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        #[rustfmt::skip]
        let table = [
            ("https://api.openai.com/v1", "https://api.openai.com/v1"), ("http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/v1/"),
            ("127.0.0.1:11434/v1", "127.0.0.1:11434/v1"), ("", ""), ("https://x.example/openai/deployments/gpt-4o-2024-08-06", "https://x.example/openai/deployments/gpt-4o-2024-08-06"),
            ("https://user:s3cret@h.example:8443/v1", "https://h.example:8443/(hidden)"), ("https://s3cret@h.example/v1", "https://h.example/(hidden)"),
            ("https://h.example/v1?key=s3cret", "https://h.example/(hidden)"), ("https://h.example/v1?s3cret", "https://h.example/(hidden)"),
            ("https://h.example/v1#s3cret", "https://h.example/(hidden)"), ("https://h.example/s3cretABC0123456789/v1", "https://h.example/(hidden)"),
            ("https://h.example/sk-s3cret/v1", "https://h.example/(hidden)"), ("http://[::1]:80/?s3cret", "http://[::1]/(hidden)"),
            ("user:s3cret@h.example/v1", "(hidden)"), ("http://user:s3 cret@[/", "(hidden)"), ("postgres://u:s3cret@h/d", "(hidden)"), ("//u:s3cret@h/v1", "(hidden)"),
            ("https://h.example/3f2c1a4b-1234-4abc-9def-001122334455/v1", "https://h.example/(hidden)"), ("https://h.example/AbCd12_-EfGh34-IjKl56-MnOp78/v1", "https://h.example/(hidden)"),
            ("https://h.example/v1;key=s3cret", "https://h.example/(hidden)"), ("https://h.example/v1%3Fkey=s3cret", "https://h.example/(hidden)"),
            ("https://h.example/ghp_s3cretabc/v1", "https://h.example/(hidden)"), ("https://h.example/models/claude-3-5-sonnet-20241022", "https://h.example/models/claude-3-5-sonnet-20241022"),
            ("https:///s3cret?", "https://s3cret/(hidden)"),
        ];
        for (text, want) in table {
            assert_eq!(shown_address(text), want, "{text}");
        }
    }
}
