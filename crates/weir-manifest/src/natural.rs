//! The order in which the Go YAML libraries write the keys of a map: digits by value, letters last.

use std::cmp::Ordering;

use crate::letters::{is_digit, is_letter};

/// Compares two keys: `a2` before `a10`, `key-b` before `keya`, `B` before `a`.
///
/// At the first character that differs, letters come after everything else and digits compare by the value of the run
/// they begin. This is not always a total order for texts that mix digits of several scripts; sorting stays harmless.
pub fn natural_order(left: &str, right: &str) -> Ordering {
    compare(left, right, false)
}

/// The order of the newer library, which puts a letter before other characters when both follow a digit.
pub(crate) fn natural_order_after_digits(left: &str, right: &str) -> Ordering {
    compare(left, right, true)
}

fn compare(left: &str, right: &str, letters_first_after_digit: bool) -> Ordering {
    if left == right {
        return Ordering::Equal;
    }
    // The common beginning, cut at a character boundary.
    let mut common = left.bytes().zip(right.bytes()).take_while(|(a, b)| a == b).count();
    while !left.is_char_boundary(common) || !right.is_char_boundary(common) {
        common -= 1;
    }
    let (before, left_rest) = left.split_at(common);
    let right_rest = &right[common..];
    let (Some(a), Some(b)) = (left_rest.chars().next(), right_rest.chars().next()) else {
        return left.len().cmp(&right.len());
    };
    match (is_letter(a), is_letter(b)) {
        (true, true) => return a.cmp(&b),
        (false, false) => {}
        (a_is_letter, _) => {
            let after_digit = letters_first_after_digit && before.chars().next_back().is_some_and(is_digit);
            return if a_is_letter == after_digit { Ordering::Less } else { Ordering::Greater };
        }
    }
    // Zeros are leading ones unless another digit came before them.
    let seed = i64::from(
        (a == '0' || b == '0') && before.chars().rev().take_while(|&c| is_digit(c)).any(|c| c != '0'),
    );
    let (a_value, a_length) = digit_run(left_rest, seed);
    let (b_value, b_length) = digit_run(right_rest, seed);
    a_value.cmp(&b_value).then(a_length.cmp(&b_length)).then(a.cmp(&b))
}

fn digit_run(text: &str, seed: i64) -> (i64, usize) {
    let mut value = seed;
    let mut length = 0;
    for digit in text.chars().take_while(|&c| is_digit(c)) {
        value = value.wrapping_mul(10).wrapping_add(i64::from(u32::from(digit)) - i64::from(u32::from('0')));
        length += 1;
    }
    (value, length)
}
