//! Sprig's arithmetic.

use num_bigint::BigInt;

use super::convert::{float_of, int_of};
use super::strings::{random_below, spaced};
use super::{Outcome, argument, int, text};
use crate::error::Fault;
use crate::exec::Context;
use crate::format;
use crate::function::{Function, Param};
use crate::strconv;
use crate::value::{Element, List, Value};

use Param::{Any, Float, Int, String as Str};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("atoi", &[Str], |_, arguments| {
        Ok(Value::Int(match strconv::parse_int(&text(arguments, 0), 10) {
            Ok(number) => number,
            Err(strconv::NumberError::Syntax) => 0,
            // The Go function returns the nearest number along with the error.
            Err(strconv::NumberError::Range) if text(arguments, 0).starts_with('-') => i64::MIN,
            Err(strconv::NumberError::Range) => i64::MAX,
        }))
    }),
    Function::new("int64", &[Any], |_, arguments| Ok(Value::Int64(int_of(argument(arguments, 0))))),
    Function::new("int", &[Any], |_, arguments| Ok(Value::Int(int_of(argument(arguments, 0))))),
    Function::new("float64", &[Any], |_, arguments| Ok(Value::Float(float_of(argument(arguments, 0))))),
    Function::variadic("seq", &[], Int, sequence),
    Function::new("toDecimal", &[Any], |_, arguments| {
        let shown = format::display_text(argument(arguments, 0));
        Ok(Value::Int64(strconv::parse_int(&shown, 8).unwrap_or(0)))
    }),
    Function::new("until", &[Int], |context, arguments| {
        let stop = int(arguments, 0);
        steps(context, 0, stop, if stop < 0 { -1 } else { 1 }).map(integers)
    }),
    Function::new("untilStep", &[Int, Int, Int], |context, arguments| {
        steps(context, int(arguments, 0), int(arguments, 1), int(arguments, 2)).map(integers)
    }),
    Function::new("add1", &[Any], |_, arguments| {
        Ok(Value::Int64(int_of(argument(arguments, 0)).wrapping_add(1)))
    }),
    Function::variadic("add", &[], Any, |_, arguments| {
        Ok(Value::Int64(arguments.iter().map(int_of).fold(0, i64::wrapping_add)))
    }),
    Function::new("sub", &[Any, Any], |_, arguments| {
        Ok(Value::Int64(int_of(argument(arguments, 0)).wrapping_sub(int_of(argument(arguments, 1)))))
    }),
    Function::new("div", &[Any, Any], |_, arguments| divide(arguments, i64::wrapping_div)),
    Function::new("mod", &[Any, Any], |_, arguments| divide(arguments, i64::wrapping_rem)),
    Function::variadic("mul", &[Any], Any, |_, arguments| {
        Ok(Value::Int64(arguments.iter().map(int_of).fold(1, i64::wrapping_mul)))
    }),
    Function::new("randInt", &[Int, Int], |context, arguments| {
        let (min, max) = (int(arguments, 0), int(arguments, 1));
        let range = max.wrapping_sub(min);
        if range <= 0 {
            return Err("invalid argument to Intn".into());
        }
        Ok(Value::Int(min.wrapping_add(random_below(context, range as u64) as i64)))
    }),
    Function::new("add1f", &[Any], |_, arguments| {
        decimals(&[argument(arguments, 0).clone(), Value::Int(1)], Decimal::add)
    }),
    Function::variadic("addf", &[], Any, |_, arguments| {
        let mut all = vec![Value::Float(0.0)];
        all.extend_from_slice(arguments);
        decimals(&all, Decimal::add)
    }),
    Function::variadic("subf", &[Any], Any, |_, arguments| decimals(arguments, Decimal::sub)),
    Function::variadic("divf", &[Any], Any, |_, arguments| decimals(arguments, Decimal::div)),
    Function::variadic("mulf", &[Any], Any, |_, arguments| decimals(arguments, Decimal::mul)),
    Function::variadic("biggest", &[Any], Any, |_, arguments| Ok(biggest(arguments))),
    Function::variadic("max", &[Any], Any, |_, arguments| Ok(biggest(arguments))),
    Function::variadic("min", &[Any], Any, |_, arguments| {
        Ok(Value::Int64(arguments.iter().map(int_of).min().unwrap_or(0)))
    }),
    Function::variadic("maxf", &[Any], Any, |_, arguments| {
        Ok(Value::Float(floats(arguments, |left, right| if right > left { right } else { left })))
    }),
    Function::variadic("minf", &[Any], Any, |_, arguments| {
        Ok(Value::Float(floats(arguments, |left, right| if right < left { right } else { left })))
    }),
    Function::new("ceil", &[Any], |_, arguments| Ok(Value::Float(float_of(argument(arguments, 0)).ceil()))),
    Function::new("floor", &[Any], |_, arguments| Ok(Value::Float(float_of(argument(arguments, 0)).floor()))),
    Function::variadic("round", &[Any, Int], Float, |_, arguments| {
        let on = match arguments.get(2) {
            Some(Value::Float(on)) => *on,
            _ => 0.5,
        };
        let power = 10.0_f64.powf(int(arguments, 1) as f64);
        let shifted = power * float_of(argument(arguments, 0));
        let rounded = if shifted.fract() >= on { shifted.ceil() } else { shifted.floor() };
        Ok(Value::Float(rounded / power))
    }),
];

fn biggest(arguments: &[Value]) -> Value {
    Value::Int64(arguments.iter().map(int_of).max().unwrap_or(0))
}

/// NaN wins, as in Go's `math.Max` and `math.Min`.
fn floats(arguments: &[Value], choose: fn(f64, f64) -> f64) -> f64 {
    let mut numbers = arguments.iter().map(float_of);
    let first = numbers.next().unwrap_or(0.0);
    numbers.fold(
        first,
        |left, right| {
            if left.is_nan() || right.is_nan() { f64::NAN } else { choose(left, right) }
        },
    )
}

fn divide(arguments: &[Value], operation: fn(i64, i64) -> i64) -> Outcome {
    let (left, right) = (int_of(argument(arguments, 0)), int_of(argument(arguments, 1)));
    if right == 0 {
        return Err("runtime error: integer divide by zero".into());
    }
    Ok(Value::Int64(operation(left, right)))
}

fn integers(numbers: Vec<i64>) -> Value {
    Value::List(List::typed(numbers.into_iter().map(Value::Int).collect(), Element::Int))
}

fn steps(context: &Context<'_>, start: i64, stop: i64, step: i64) -> Result<Vec<i64>, Fault> {
    if step == 0 || (stop < start) != (step < 0) {
        return Ok(Vec::new());
    }
    let distance = (i128::from(stop) - i128::from(start)).unsigned_abs();
    let count = distance.div_ceil(u128::from(step.unsigned_abs()));
    context.check_items(u64::try_from(count).unwrap_or(u64::MAX))?;
    Ok((0..count as i64).map(|index| start + index * step).collect())
}

fn sequence(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let (start, step, end) = match arguments.len() {
        1 => (1, None, int(arguments, 0)),
        2 => (int(arguments, 0), None, int(arguments, 1)),
        3 => (int(arguments, 0), Some(int(arguments, 1)), int(arguments, 2)),
        _ => return Ok(Value::string("")),
    };
    let direction = if end < start { -1 } else { 1 };
    if step.is_some_and(|step| step > 0) && direction < 0 {
        return Ok(Value::string(""));
    }
    let stop = end.wrapping_add(direction);
    let numbers = steps(context, start, stop, step.unwrap_or(direction))?;
    Ok(Value::string(spaced(numbers.into_iter())))
}

/// An exact decimal number: `digits × 10^exponent`.
struct Decimal {
    digits: BigInt,
    exponent: i64,
}

/// Decimal places kept when a division does not come out even.
const DIVISION_PLACES: i64 = 16;

impl Decimal {
    fn new(float: f64) -> Result<Self, Fault> {
        if !float.is_finite() {
            let shown = strconv::format_float(float, b'g', None);
            return Err(format!("Cannot create a Decimal from {shown}").into());
        }
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: BigInt = format!("{whole}{fraction}").parse().unwrap_or_default();
        let exponent = exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64;
        Ok(Self { digits, exponent })
    }

    fn aligned(self, other: Self) -> (BigInt, BigInt, i64) {
        let exponent = self.exponent.min(other.exponent);
        let scale = |decimal: Self| decimal.digits * ten_to((decimal.exponent - exponent) as u32);
        (scale(self), scale(other), exponent)
    }

    fn add(self, other: Self) -> Result<Self, Fault> {
        let (left, right, exponent) = self.aligned(other);
        Ok(Self { digits: left + right, exponent })
    }

    fn sub(self, other: Self) -> Result<Self, Fault> {
        let (left, right, exponent) = self.aligned(other);
        Ok(Self { digits: left - right, exponent })
    }

    fn mul(self, other: Self) -> Result<Self, Fault> {
        Ok(Self { digits: self.digits * other.digits, exponent: self.exponent + other.exponent })
    }

    /// Rounded half away from zero to [`DIVISION_PLACES`].
    fn div(self, other: Self) -> Result<Self, Fault> {
        if other.digits == BigInt::ZERO {
            return Err("decimal division by 0".into());
        }
        let shift = self.exponent - other.exponent + DIVISION_PLACES;
        let (numerator, denominator) = if shift >= 0 {
            (self.digits * ten_to(shift as u32), other.digits)
        } else {
            (self.digits, other.digits * ten_to(shift.unsigned_abs() as u32))
        };
        let negative = (numerator < BigInt::ZERO) != (denominator < BigInt::ZERO);
        let magnitude = |number: BigInt| if number < BigInt::ZERO { -number } else { number };
        let (numerator, denominator) = (magnitude(numerator), magnitude(denominator));
        let twice: BigInt = numerator * 2 + &denominator;
        let quotient: BigInt = twice / (denominator * 2);
        let digits = if negative { -quotient } else { quotient };
        Ok(Self { digits, exponent: -DIVISION_PLACES })
    }

    fn float(&self) -> f64 {
        format!("{}e{}", self.digits, self.exponent).parse().unwrap_or(0.0)
    }
}

fn ten_to(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

fn decimals(arguments: &[Value], operation: fn(Decimal, Decimal) -> Result<Decimal, Fault>) -> Outcome {
    let mut total = Decimal::new(float_of(argument(arguments, 0)))?;
    for value in arguments.iter().skip(1) {
        total = operation(total, Decimal::new(float_of(value))?)?;
    }
    Ok(Value::Float(total.float()))
}
