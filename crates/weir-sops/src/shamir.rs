//! Shamir's secret sharing over GF(2⁸), as SOPS splits data keys among key groups.

/// The data key from its parts; `None` if the parts do not belong together.
///
/// The last byte of a part is its place, the others are its values of one polynomial for each byte of the key.
pub(crate) fn combine(parts: &[impl AsRef<[u8]>]) -> Option<Vec<u8>> {
    let length = parts.first()?.as_ref().len();
    if parts.len() < 2 || length < 2 {
        return None;
    }
    let mut places = Vec::with_capacity(parts.len());
    for part in parts {
        let (place, values) = part.as_ref().split_last()?;
        if values.len() + 1 != length || places.contains(place) || *place == 0 {
            return None;
        }
        places.push(*place);
    }
    let key = (0..length - 1).map(|byte| {
        let values = parts.iter().map(|part| part.as_ref()[byte]);
        values.zip(&weights(&places)).fold(0, |sum, (value, weight)| sum ^ multiply(value, *weight))
    });
    Some(key.collect())
}

/// What every value counts for at the origin: the product of `other / (other - place)` over the other places.
fn weights(places: &[u8]) -> Vec<u8> {
    let weight = |place: &u8| {
        places
            .iter()
            .filter(|other| *other != place)
            .fold(1, |product, other| multiply(product, multiply(*other, inverse(other ^ place))))
    };
    places.iter().map(weight).collect()
}

fn multiply(left: u8, right: u8) -> u8 {
    let mut product = 0;
    let mut shifted = left;
    for bit in 0..8 {
        if right >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted = shifted << 1 ^ if shifted & 0x80 == 0 { 0 } else { 0x1B };
    }
    product
}

/// The 254th power, by squaring.
fn inverse(value: u8) -> u8 {
    let mut power = value;
    let mut result = 1;
    for _ in 0..7 {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_an_inverse() {
        assert!((1..=255).all(|value| multiply(value, inverse(value)) == 1));
    }

    #[test]
    fn parts_of_a_line_give_its_start() {
        // 7 + 3·x for the first byte, 200 + 91·x for the second.
        let part = |place: u8| vec![7 ^ multiply(3, place), 0xC8 ^ multiply(91, place), place];
        assert_eq!(combine(&[part(1), part(9)]), Some(vec![7, 200]));
        assert_eq!(combine(&[part(200), part(9), part(77)]), Some(vec![7, 200]));
        assert_eq!(combine(&[part(9), part(9)]), None, "the same part twice");
        assert_eq!(combine(&[part(9)]), None);
        assert_eq!(combine(&[vec![1, 2, 3], vec![1, 2]]), None);
    }
}
