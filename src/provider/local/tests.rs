//! Models that are made here, read from directories; a real one is read by `__test__/local-embedder.test.mjs`.

use std::path::Path;

use serde_json::{Value, json};

use super::*;

/// A file of tensors: name, kind, shape, bytes.
fn tensors(all: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let (mut head, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, kind, shape, bytes) in all {
        let start = data.len();
        data.extend_from_slice(bytes);
        head.insert((*name).to_owned(), json!({"dtype": kind, "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let head = Value::Object(head).to_string();
    [&(head.len() as u64).to_le_bytes(), head.as_bytes(), &data].concat()
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn words() -> Value {
    json!({
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {"[UNK]": 0, "cat": 1, "dog": 2, "##s": 3}},
    })
}

fn write(directory: &Path, tokenizer: &Value, weights: &[u8]) {
    std::fs::write(directory.join("config.json"), "{\"normalize\": true}").expect("written");
    std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).expect("written");
    std::fs::write(directory.join("model.safetensors"), weights).expect("written");
}

async fn embedded(model: &LocalEmbedder, texts: &[&str]) -> Vectors {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    model.embed(&texts, &CancellationToken::new()).await.expect("embedded")
}

#[tokio::test]
async fn a_text_is_the_mean_of_its_tokens() {
    let directory = tempfile::tempdir().expect("a directory");
    let rows = [9.0, 9.0, 3.0, 4.0, 0.0, 2.0, 1.0, 0.0];
    write(directory.path(), &words(), &tensors(&[("embeddings", "F32", &[4, 2], floats(&rows))]));
    let model = LocalEmbedder::open(directory.path()).expect("read");
    let got = embedded(&model, &["Cat", "dog DOG", "cats unicorn", "unicorn", ""]).await;
    let half = std::f32::consts::FRAC_1_SQRT_2;
    assert_eq!(got, [vec![0.6, 0.8], vec![0.0, 1.0], vec![half, half], vec![0.0, 0.0], vec![0.0, 0.0]]);
    assert!(model.model().starts_with("local/") && model.model().len() == 22, "{}", model.model());

    // The same files elsewhere are the same model; others are another one.
    let other = tempfile::tempdir().expect("a directory");
    write(other.path(), &words(), &tensors(&[("embeddings", "F32", &[4, 2], floats(&rows))]));
    assert_eq!(LocalEmbedder::open(other.path()).expect("read").model(), model.model());
    write(other.path(), &words(), &tensors(&[("embeddings", "F32", &[4, 2], floats(&[1.0; 8]))]));
    assert_ne!(LocalEmbedder::open(other.path()).expect("read").model(), model.model());

    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(model.embed(&["cat".to_owned()], &cancel).await, Err(ModelError::Aborted));
}

#[tokio::test]
async fn tokens_share_rows_and_count_differently() {
    let directory = tempfile::tempdir().expect("a directory");
    let mapping: Vec<u8> = [0_i64, 1, 1, 0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let all = tensors(&[
        ("embedding.weight", "I8", &[2, 2], vec![100, 0, 0, 50]),
        ("mapping", "I64", &[4], mapping),
        ("weights", "F32", &[4], floats(&[1.0, 3.0, 0.5, 2.0])),
    ]);
    write(directory.path(), &words(), &all);
    let model = LocalEmbedder::open(directory.path()).expect("read");
    // cat: 3 × (0, 50); ##s: 2 × (100, 0).
    assert_eq!(embedded(&model, &["cats"]).await, [vec![0.8, 0.6]]);
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let refused = |weights: &[u8]| {
        write(path, &words(), weights);
        LocalEmbedder::open(path).expect_err("refused").to_string()
    };
    let good = || ("embeddings", "F32", &[4_usize, 2] as &[usize], floats(&[1.0; 8]));
    let cut = tensors(&[good()]);
    #[rustfmt::skip]
    let table: &[(Vec<u8>, &str)] = &[
        (vec![], "it has no head"),
        (vec![255; 16], "a head of"),
        (cut[..cut.len() - 1].to_vec(), "does not fit its shape"),
        (tensors(&[("other", "F32", &[4, 2], floats(&[1.0; 8]))]), "expected a tensor `embeddings` or `embedding.weight`"),
        (tensors(&[("embeddings", "U4", &[4, 2], floats(&[1.0; 8]))]), "expected F64, F32, F16, BF16, I64, I32 or I8, got \"U4\""),
        (tensors(&[("embeddings", "F32", &[2, 2, 2], floats(&[1.0; 8]))]), "expected one or two dimensions, got 3"),
        (tensors(&[("embeddings", "F32", &[usize::MAX, 2], floats(&[1.0; 8]))]), "does not fit its shape"),
        (tensors(&[("embeddings", "F32", &[3, 2], floats(&[1.0; 6]))]), "it has 3 tokens, and the tokenizer 4"),
        (tensors(&[good(), ("mapping", "I32", &[4], floats(&[0.0; 4])), ("weights", "F32", &[1], floats(&[1.0]))]), "it has 1 tokens"),
        (tensors(&[good(), ("mapping", "I32", &[4], vec![255; 16])]), "`mapping`: expected whole numbers below 4"),
    ];
    for (weights, want) in table {
        let said = refused(weights);
        assert!(said.contains(want) && said.contains("model.safetensors"), "{said}");
    }
    std::fs::write(path.join("tokenizer.json"), "{}").expect("written");
    let said = LocalEmbedder::open(path).expect_err("refused").to_string();
    assert!(said.contains("tokenizer.json: `model`"), "{said}");
    std::fs::remove_file(path.join("config.json")).expect("removed");
    assert!(LocalEmbedder::open(path).expect_err("refused").file.ends_with("config.json"));
    std::fs::create_dir(path.join("config.json")).expect("made");
    assert!(LocalEmbedder::open(path).expect_err("refused").problem.contains("expected a file"));
}
