//! Kubernetes quantities in their canonical spelling (`1000m` → `1`, `0.5` → `500m`, `1024Mi` → `1Gi`).
//!
//! Mirrors the rules of `k8s.io/apimachinery/pkg/api/resource`.

/// One quantity in units of 10⁻⁹, the finest the API keeps.
const NANO: i128 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// The canonical spelling of a quantity, or `None` if it is not one or is out of range.
pub fn canonical(text: &str) -> Option<String> {
    let text = text.trim();
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (multiplier, format) = suffix_value(suffix)?;
    let nano = scaled(number, multiplier)?;
    let nano = if negative { -nano } else { nano };
    Some(print(nano, format))
}

/// A multiplier as numerator × 10^exponent.
#[derive(Clone, Copy)]
struct Multiplier {
    factor: i128,
    exponent: i32,
}

fn suffix_value(suffix: &str) -> Option<(Multiplier, Format)> {
    let binary =
        |power: u32| Some((Multiplier { factor: 1_i128 << (10 * power), exponent: 0 }, Format::Binary));
    let decimal = |exponent: i32| Some((Multiplier { factor: 1, exponent }, Format::Decimal));
    match suffix {
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i32 = digits.parse().ok()?;
            Some((Multiplier { factor: 1, exponent }, Format::Exponent))
        }
    }
}

/// `number × multiplier` in nano units, rounded up in magnitude.
fn scaled(number: &str, multiplier: Multiplier) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let mantissa: i128 = digits.parse().ok()?;
    let mantissa = mantissa.checked_mul(multiplier.factor)?;
    let exponent = multiplier.exponent.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    if exponent >= 0 {
        mantissa.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?)
    } else {
        match 10_i128.checked_pow(exponent.unsigned_abs()) {
            Some(divisor) => Some(mantissa / divisor + i128::from(mantissa % divisor != 0)),
            None => Some(i128::from(mantissa != 0)),
        }
    }
}

fn print(nano: i128, format: Format) -> String {
    if nano == 0 {
        return "0".to_owned();
    }
    let whole = nano % NANO == 0;
    let small = nano > -1024 * NANO && nano < 1024 * NANO;
    match format {
        Format::Binary if whole && !small => print_binary(nano / NANO),
        Format::Binary | Format::Decimal => print_decimal(nano, decimal_suffix),
        Format::Exponent => print_decimal(nano, |exponent| match exponent {
            0 => String::new(),
            exponent => format!("e{exponent}"),
        }),
    }
}

fn print_binary(mut value: i128) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut power = 0;
    while power + 1 < SUFFIXES.len() && value % 1024 == 0 {
        value /= 1024;
        power += 1;
    }
    format!("{value}{}", SUFFIXES[power])
}

fn print_decimal(nano: i128, suffix: impl Fn(i32) -> String) -> String {
    let mut value = nano;
    let mut exponent = -9;
    while exponent < 18 && value % 1000 == 0 {
        value /= 1000;
        exponent += 3;
    }
    format!("{value}{}", suffix(exponent))
}

fn decimal_suffix(exponent: i32) -> String {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(canonical(input).as_deref(), Some(expected), "{input}");
        assert_eq!(canonical(expected).as_deref(), Some(expected), "canonical form of {input} is stable");
    }

    #[test]
    fn quantities_become_canonical() {
        check("0", "0");
        check("0Mi", "0");
        check("1000m", "1");
        check("1", "1");
        check("0.5", "500m");
        check(".5", "500m");
        check("5.", "5");
        check("100m", "100m");
        check("1.5", "1500m");
        check("1500M", "1500M");
        check("1000M", "1G");
        check("1000Mi", "1000Mi");
        check("1024Mi", "1Gi");
        check("1.5Gi", "1536Mi");
        check("0.5Gi", "512Mi");
        check("512", "512");
        check("1Ki", "1Ki");
        check("0.5Ki", "512");
        check("1e3", "1e3");
        check("12E6", "12e6");
        check("1000e3", "1e6");
        check("-1500m", "-1500m");
        check("+2", "2");
        check("0.0000000001", "1n");
        check("1048576", "1048576");
        check("3000000", "3M");
    }

    #[test]
    fn other_texts_are_not_quantities() {
        for text in ["", "-", "abc", "1X", "1.2.3", "1 Gi", "e3", "1mi"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
