//! Conversions Sprig applies to any value: to text, to numbers, to lists of strings, and emptiness.

use crate::error::Fault;
use crate::exec::Context;
use crate::format;
use crate::strconv;
use crate::text::Text;
use crate::value::Value;

/// The text of a value: strings and bytes as they are, objects by their text, the rest as `%v`.
pub(super) fn text_of(value: &Value) -> Text {
    match value {
        Value::String(text) | Value::Bytes(text) => text.clone(),
        value => Text::from(format::display(value)),
    }
}

/// The texts of the items of a list (nil ones dropped), or the text of a single value.
///
/// Fails if they are longer than one string may be, all together.
pub(super) fn strings_of(context: &Context<'_>, value: &Value) -> Result<Vec<Text>, Fault> {
    let Some(items) = value.slice_items() else {
        return Ok(if matches!(value, Value::Nil) { Vec::new() } else { vec![text_of(value)] });
    };
    let mut texts = Vec::with_capacity(items.len());
    let mut bytes = 0;
    for item in items.iter().filter(|item| !matches!(item, Value::Nil)) {
        let text = text_of(item);
        // Texts that exist already are shared and cost nothing.
        if !matches!(item, Value::String(_)) {
            bytes += text.len() as u64;
            context.check_bytes(bytes)?;
        }
        texts.push(text);
    }
    Ok(texts)
}

/// Go's conversion of a float to `int64` on amd64: out of range gives the smallest number.
pub(super) fn float_to_int(float: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float) {
        float as i64
    } else {
        i64::MIN
    }
}

/// `1.00` becomes `1`; anything else stays.
fn without_zero_decimals(text: &str) -> &str {
    let trimmed = text.trim_end_matches('0');
    if trimmed.len() < text.len()
        && let Some(whole) = trimmed.strip_suffix('.')
    {
        return whole;
    }
    text
}

/// The integer a value stands for; 0 if it stands for none.
pub(super) fn int_of(value: &Value) -> i64 {
    match value {
        Value::Bool(flag) => i64::from(*flag),
        Value::Float(float) => float_to_int(*float),
        Value::String(text) => text
            .as_str()
            .and_then(|text| strconv::parse_int(without_zero_decimals(text), 0).ok())
            .unwrap_or(0),
        Value::Uint8(number) => i64::from(*number),
        Value::Uint64(number) => *number as i64,
        Value::Int(number) | Value::Int64(number) => *number,
        Value::Object(object)
            if object.type_name() == "time.Month" || object.type_name() == "time.Weekday" =>
        {
            object.integer().unwrap_or(0)
        }
        Value::Nil | Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::Object(_) => 0,
    }
}

/// The float a value stands for; 0 if it stands for none.
pub(super) fn float_of(value: &Value) -> f64 {
    match value {
        Value::Float(float) => *float,
        Value::String(text) => text.as_str().and_then(|text| strconv::parse_float(text).ok()).unwrap_or(0.0),
        Value::Uint64(number) => *number as f64,
        other => int_of(other) as f64,
    }
}

/// Sprig's `empty`.
pub(super) fn is_empty(value: &Value) -> bool {
    !value.truth()
}
