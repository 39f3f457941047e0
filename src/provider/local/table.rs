//! The vectors of a static model, as `model.safetensors` has them: `embeddings` (a row for each token, or for each group of
//! tokens), `mapping` (which row a token has) and `weights` (how much it counts).

use serde::Deserialize;
use serde_json::{Map, Value};

/// Longest head of the file.
const HEAD_BYTES_MAX: u64 = 1 << 20;
/// What the table of vectors is called, by who has written it.
const NAMES: [&str; 2] = ["embeddings", "embedding.weight"];

/// How a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Kind {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I8,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 => 1,
        }
    }

    /// The number that these bytes are.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "as exact as vectors are")]
    fn number(self, bytes: &[u8]) -> f32 {
        let (eight, four, two) = (|| first::<8>(bytes), || first::<4>(bytes), || first::<2>(bytes));
        match self {
            Self::F64 => f64::from_le_bytes(eight()) as f32,
            Self::I64 => i64::from_le_bytes(eight()) as f32,
            Self::F32 => f32::from_le_bytes(four()),
            Self::I32 => i32::from_le_bytes(four()) as f32,
            Self::F16 => half(u16::from_le_bytes(two())),
            Self::BF16 => f32::from_bits(u32::from(u16::from_le_bytes(two())) << 16),
            Self::I8 => f32::from(i8::from_le_bytes(first::<1>(bytes))),
        }
    }
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk::<N>().copied().unwrap_or([0; N])
}

/// A number of 16 bits (IEEE 754).
fn half(bits: u16) -> f32 {
    let (sign, exponent, rest) = (u32::from(bits >> 15) << 31, u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    match (exponent, rest) {
        // Zero, and what is smaller than the exponent can say.
        #[allow(clippy::cast_precision_loss, reason = "ten bits")]
        (0, rest) => f32::from_bits((rest as f32 / 16_777_216.0).to_bits() | sign),
        (31, rest) => f32::from_bits(sign | 255 << 23 | rest << 13),
        (exponent, rest) => f32::from_bits(sign | (exponent + 112) << 23 | rest << 13),
    }
}

#[derive(Debug, Deserialize)]
struct Described {
    dtype: Value,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// Numbers of one kind, as they stand in the file.
#[derive(Debug, Clone, PartialEq)]
struct Tensor {
    kind: Kind,
    rows: usize,
    columns: usize,
    start: usize,
}

/// The vectors of tokens.
pub(super) struct Table {
    data: Vec<u8>,
    embeddings: Tensor,
    /// Which row a token has. None: the one of its own number.
    mapping: Option<Vec<u32>>,
    weights: Option<Vec<f32>>,
}

fn described(head: &Map<String, Value>, name: &str, data: usize) -> Result<Option<Tensor>, String> {
    let Some(given) = head.get(name) else { return Ok(None) };
    let wrong = |why: String| format!("`{name}`: {why}");
    let found: Described = serde_json::from_value(given.clone()).map_err(|error| wrong(error.to_string()))?;
    let kind: Kind = serde_json::from_value(found.dtype.clone())
        .map_err(|_| wrong(format!("expected F64, F32, F16, BF16, I64, I32 or I8, got {}", found.dtype)))?;
    let (rows, columns) = match found.shape.as_slice() {
        [rows] => (*rows, 1),
        [rows, columns] => (*rows, *columns),
        other => return Err(wrong(format!("expected one or two dimensions, got {}", other.len()))),
    };
    let (start, end) = found.data_offsets;
    let bytes = rows.checked_mul(columns).and_then(|numbers| numbers.checked_mul(kind.bytes()));
    if start > end || end > data || bytes != Some(end - start) {
        return Err(wrong("its place in the file does not fit its shape".to_owned()));
    }
    Ok(Some(Tensor { kind, rows, columns, start }))
}

impl Table {
    /// Reads the file. `tokens`: how many numbers the tokenizer gives away.
    pub(super) fn read(mut file: Vec<u8>, tokens: usize) -> Result<Self, String> {
        let length = file.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)).ok_or("it has no head")?;
        let head_end = usize::try_from(length.min(HEAD_BYTES_MAX + 1)).unwrap_or(usize::MAX).saturating_add(8);
        if length > HEAD_BYTES_MAX || head_end > file.len() {
            return Err(format!("a head of {length} bytes"));
        }
        let head = serde_json::from_slice(&file[8..head_end]).map_err(|error| format!("its head: {error}"))?;
        file.drain(..head_end);
        let find = |name: &str| described(&head, name, file.len());
        let embeddings = NAMES.iter().find_map(|name| find(name).transpose()).transpose()?;
        let embeddings = embeddings.ok_or_else(|| format!("expected a tensor `{}` or `{}`", NAMES[0], NAMES[1]))?;
        let max = crate::base::limit::EMBEDDING_DIMENSIONS_MAX;
        if embeddings.rows == 0 || !(1..=max).contains(&embeddings.columns) {
            return Err(format!("expected vectors of 1 to {max} numbers, got {}", embeddings.columns));
        }
        let mapping = find("mapping")?.map(|tensor| mapping(&file, &tensor, embeddings.rows)).transpose()?;
        let weights = find("weights")?.map(|tensor| numbers(&file, &tensor));
        let least = mapping.as_ref().map_or(embeddings.rows, Vec::len);
        let least = weights.as_ref().map_or(least, |weights| weights.len().min(least));
        if least < tokens {
            return Err(format!("it has {least} tokens, and the tokenizer {tokens}"));
        }
        Ok(Self { data: file, embeddings, mapping, weights })
    }

    /// The mean of the tokens' vectors, each as much as it counts, brought to length one. Without tokens: all zero.
    pub(super) fn mean(&self, tokens: &[u32]) -> Vec<f32> {
        let Tensor { kind, columns, start, .. } = self.embeddings;
        let row_bytes = columns * kind.bytes();
        let mut sum = vec![0.0_f32; columns];
        for token in tokens.iter().map(|token| *token as usize) {
            let row = self.mapping.as_ref().map_or(token, |mapping| mapping[token] as usize);
            let weight = self.weights.as_ref().map_or(1.0, |weights| weights[token]);
            let bytes = &self.data[start + row * row_bytes..][..row_bytes];
            for (sum, number) in sum.iter_mut().zip(bytes.chunks_exact(kind.bytes())) {
                *sum += weight * kind.number(number);
            }
        }
        let length = sum.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        if length > 0.0 && length.is_finite() {
            #[allow(clippy::cast_possible_truncation, reason = "a component of a unit vector lies in -1..=1")]
            sum.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        } else {
            sum.fill(0.0);
        }
        sum
    }
}

fn numbers(data: &[u8], tensor: &Tensor) -> Vec<f32> {
    let bytes = &data[tensor.start..][..tensor.rows * tensor.columns * tensor.kind.bytes()];
    bytes.chunks_exact(tensor.kind.bytes()).map(|bytes| tensor.kind.number(bytes)).collect()
}

fn mapping(data: &[u8], tensor: &Tensor, rows: usize) -> Result<Vec<u32>, String> {
    let bytes = &data[tensor.start..][..tensor.rows * tensor.columns * tensor.kind.bytes()];
    let number = |bytes: &[u8]| match tensor.kind {
        Kind::I64 => i64::from_le_bytes(first::<8>(bytes)),
        Kind::I32 => i64::from(i32::from_le_bytes(first::<4>(bytes))),
        _ => -1,
    };
    let row = |bytes: &[u8]| u32::try_from(number(bytes)).ok().filter(|row| (*row as usize) < rows);
    let read: Option<Vec<u32>> = bytes.chunks_exact(tensor.kind.bytes()).map(row).collect();
    read.ok_or_else(|| format!("`mapping`: expected whole numbers below {rows}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_each_kind() {
        #[rustfmt::skip]
        let table: &[(Kind, &[u8], f32)] = &[
            (Kind::F64, &1.5_f64.to_le_bytes(), 1.5),
            (Kind::F32, &(-2.25_f32).to_le_bytes(), -2.25),
            (Kind::F16, &[0x00, 0x3C], 1.0),
            (Kind::F16, &[0x00, 0xC0], -2.0),
            (Kind::F16, &[0xFF, 0x7B], 65_504.0),
            (Kind::F16, &[0x01, 0x00], 5.960_464_5e-8),
            (Kind::F16, &[0x00, 0x80], 0.0),
            (Kind::F16, &[0x00, 0x7C], f32::INFINITY),
            (Kind::BF16, &[0x80, 0x3F], 1.0),
            (Kind::I64, &(-3_i64).to_le_bytes(), -3.0),
            (Kind::I32, &7_i32.to_le_bytes(), 7.0),
            (Kind::I8, &[0x80], -128.0),
        ];
        for (kind, bytes, want) in table {
            assert_eq!((kind.number(bytes), bytes.len()), (*want, kind.bytes()), "{kind:?} {bytes:?}");
        }
    }
}
