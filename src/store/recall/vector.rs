//! Vectors as they are stored: of length one, little-endian, four bytes a number. Then a product is a cosine.

/// A vector as it is stored. None: it has no direction (all zero) or holds what is no finite number.
pub(super) fn encode(vector: &[f32]) -> Option<Vec<u8>> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !length.is_finite() || length <= f64::EPSILON {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, reason = "a component of a unit vector lies in -1..=1")]
    let unit = |x: &f32| (f64::from(*x) / length) as f32;
    Some(vector.iter().map(unit).flat_map(f32::to_le_bytes).collect())
}

/// The product of two stored vectors of the same length in bytes: the cosine of the angle between them.
pub(super) fn cosine(a: &[f32], b: &[u8]) -> f32 {
    // Several sums side by side: the compiler makes one wide one of them.
    let mut sums = [0.0_f32; 8];
    let (wide_a, rest_a) = a.as_chunks::<8>();
    let (wide_b, rest_b) = b.as_chunks::<32>();
    for (a, b) in wide_a.iter().zip(wide_b) {
        let (numbers, _) = b.as_chunks::<4>();
        for (sum, (x, y)) in sums.iter_mut().zip(a.iter().zip(numbers)) {
            *sum += x * f32::from_le_bytes(*y);
        }
    }
    let (numbers, _) = rest_b.as_chunks::<4>();
    let rest: f32 = rest_a.iter().zip(numbers).map(|(x, y)| x * f32::from_le_bytes(*y)).sum();
    (sums.iter().sum::<f32>() + rest).clamp(-1.0, 1.0)
}

/// The numbers of a stored vector.
pub(super) fn decode(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_the_cosine() {
        let long = |x: f32| (0..37_u8).map(|n| x * f32::from(n)).collect::<Vec<_>>();
        #[rustfmt::skip]
        let table = [
            (vec![1.0, 0.0], vec![5.0, 0.0], 1.0),
            (vec![1.0, 0.0], vec![0.0, 2.0], 0.0),
            (vec![1.0, 0.0], vec![-3.0, 0.0], -1.0),
            (vec![1.0, 1.0], vec![1.0, 0.0], std::f32::consts::FRAC_1_SQRT_2),
            (long(0.5), long(7.0), 1.0),
            (long(0.5), long(-7.0), -1.0),
        ];
        for (a, b, want) in table {
            let (a, b) = (encode(&a).expect("a direction"), encode(&b).expect("a direction"));
            let got = cosine(&decode(&a), &b);
            assert!((got - want).abs() < 1e-5, "{got}, not {want}");
        }
    }

    #[test]
    fn what_has_no_direction_is_no_vector() {
        for vector in [vec![], vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY]] {
            assert_eq!(encode(&vector), None, "{vector:?}");
        }
        assert!(encode(&[f32::MAX, f32::MAX]).is_some());
    }
}
