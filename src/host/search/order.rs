//! The order of paths: name by name, so that what is below `a` comes before `a.rs`.

use std::cmp::Ordering;

/// Compares two paths given as bytes, without a slash at either end. The empty path comes first.
pub(in crate::host) fn by_path(a: &[u8], b: &[u8]) -> Ordering {
    let differ = a.iter().zip(b).position(|(a, b)| a != b);
    // No name holds a NUL, and so a slash sorts before all that can be in a name.
    let rank = |byte: u8| if byte == b'/' { 0 } else { byte };
    match differ {
        Some(at) => rank(a[at]).cmp(&rank(b[at])),
        None => a.len().cmp(&b.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::by_path;

    #[test]
    fn a_directory_comes_before_what_its_name_begins() {
        let sorted = ["", "A", "a", "a/b", "a/b/c", "a/b.rs", "a!", "a.rs", "a0", "b"];
        for pair in sorted.windows(2) {
            assert!(by_path(pair[0].as_bytes(), pair[1].as_bytes()).is_lt(), "{pair:?}");
            assert!(by_path(pair[1].as_bytes(), pair[0].as_bytes()).is_gt(), "{pair:?}");
        }
    }

    proptest! {
        #[test]
        fn it_is_the_order_of_the_components(a in "[ab!][ab!.]{0,2}(/[ab!.][ab!]{1,2}){0,3}", b in "[ab!][ab!.]{0,2}(/[ab!.][ab!]{1,2}){0,3}") {
            prop_assert_eq!(by_path(a.as_bytes(), b.as_bytes()), Path::new(&a).cmp(Path::new(&b)));
        }
    }
}
