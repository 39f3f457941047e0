//! The properties of the fuzz targets (`fuzz/`), held against the committed corpora and against random bytes.
//!
//! What a fuzzer once broke stands in `fuzz/corpus`, so that it is replayed here, without a fuzzer.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[path = "../../fuzz/src/properties/mod.rs"]
mod properties;

#[test]
fn every_committed_input_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, holds) in properties::ALL {
        let mut files: Vec<_> = fs::read_dir(corpus.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() >= 4, "{name}: {} inputs", files.len());
        for file in files {
            println!("{}", file.display());
            holds(&fs::read(&file).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn random_bytes_hold(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0..16_u8, 32..127_u8], 0..400)) {
        for (_, holds) in properties::ALL {
            holds(&bytes);
        }
    }
}
