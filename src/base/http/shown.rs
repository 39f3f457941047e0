//! Addresses for people's eyes: what may be a key or a password in one is left out.

use reqwest::Url;

/// What stands for what is left out.
const HIDDEN: &str = "(hidden)";
/// Letters and digits in a row, both of them, from which on a part of a path is taken for a key.
const KEY_CHARS: usize = 16;

/// The address as it may be shown: whole when it holds neither user nor password, query, fragment nor what looks like a key; else where
/// it leads to, and no more. Nothing of a text that is no address and might hold one of these.
pub fn shown_address(text: &str) -> String {
    let plain = !text.contains(['@', '?', '#']) && !text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_key);
    if plain && !text.contains("sk-") {
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

fn is_key(word: &str) -> bool {
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
            ("https:///s3cret?", "https://s3cret/(hidden)"),
        ];
        for (text, want) in table {
            assert_eq!(shown_address(text), want, "{text}");
        }
    }
}
