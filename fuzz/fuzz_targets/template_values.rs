//! Every function on random values, nested in one another, in the places actions allow.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use weir_gotemplate::{Execution, FixedHost, Functions, Limits, MissingKey, Options, Set, Value, helm};

/// Functions that only cost time here: they make keys and hash passwords.
const SLOW: &[&str] = &[
    "bcrypt",
    "derivePassword",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "htpasswd",
];

fn text(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length = input.int_in_range(0..=24)?;
    Ok(input.bytes(length.min(input.len()))?.to_vec())
}

fn value(input: &mut Unstructured<'_>, level: u8) -> Result<Value> {
    let kinds = if level > 4 { 9 } else { 11 };
    Ok(match input.int_in_range(0..=kinds)? {
        0 => Value::Nil,
        1 => Value::Bool(input.arbitrary()?),
        2 => Value::Int(input.arbitrary()?),
        3 => Value::Int64(input.arbitrary()?),
        4 => Value::Uint64(input.arbitrary()?),
        5 => Value::Float(input.arbitrary()?),
        6 => Value::Float(f64::from(input.arbitrary::<i8>()?)),
        7 | 8 => Value::String(text(input)?.into()),
        9 => Value::Bytes(text(input)?.into()),
        10 => {
            let count = input.int_in_range(0..=4)?;
            Value::list((0..count).map(|_| value(input, level + 1)).collect::<Result<_>>()?)
        }
        _ => {
            let count = input.int_in_range(0..=4)?;
            let entries = (0..count)
                .map(|_| Ok((text(input)?, value(input, level + 1)?)))
                .collect::<Result<Vec<_>>>()?;
            Value::map(entries)
        }
    })
}

fn operand(input: &mut Unstructured<'_>, names: &[&str], level: u8, out: &mut String) -> Result<()> {
    match input.int_in_range(0..=if level > 3 { 7 } else { 10 })? {
        0..=4 => out.push_str(&format!("$v{}", input.int_in_range(0..=3)?)),
        5 => out.push_str(&input.int_in_range(-9..=99)?.to_string()),
        6 => out.push_str(&format!("{:?}", String::from_utf8_lossy(&text(input)?).replace(char::is_control, ""))),
        7 => out.push_str(["nil", "true", ".", "\"\"", "1.5", "$v0.a.b", "(index $v1 0)"][input.int_in_range(0..=6)?]),
        _ => {
            out.push('(');
            call(input, names, level + 1, out)?;
            out.push(')');
        }
    }
    Ok(())
}

fn call(input: &mut Unstructured<'_>, names: &[&str], level: u8, out: &mut String) -> Result<()> {
    out.push_str(input.choose(names)?);
    for _ in 0..input.int_in_range(0..=4)? {
        out.push(' ');
        operand(input, names, level, out)?;
    }
    if input.ratio(1, 5)? {
        out.push_str(" | ");
        out.push_str(input.choose(names)?);
    }
    Ok(())
}

fn run(bytes: &[u8]) -> Result<()> {
    let mut input = Unstructured::new(bytes);
    let functions = Functions::helm();
    let mut names: Vec<&str> = functions.names().filter(|name| !SLOW.contains(name)).collect();
    names.sort_unstable();
    let data = Value::list((0..4).map(|_| value(&mut input, 0)).collect::<Result<_>>()?);
    let mut source = String::new();
    for at in 0..4 {
        source.push_str(&format!("{{{{ $v{at} := index . {at} }}}}"));
    }
    for _ in 0..3 {
        let mut action = String::new();
        call(&mut input, &names, 0, &mut action)?;
        source.push_str(&match input.int_in_range(0..=4)? {
            0 => format!("{{{{ if {action} }}}}a{{{{ else }}}}b{{{{ end }}}}"),
            1 => format!("{{{{ range $k, $e := {action} }}}}{{{{ $e }}}}{{{{ end }}}}"),
            2 => format!("{{{{ with {action} }}}}{{{{ . }}}}{{{{ end }}}}"),
            3 => format!("{{{{ $v0 = {action} }}}}"),
            _ => format!("{{{{ {action} }}}}"),
        });
    }
    let mut set = Set::new(Functions::helm());
    if set.parse("t", &source).is_err() {
        return Ok(());
    }
    let limits = Limits {
        steps_max: 20_000,
        produced_bytes_max: 4 << 20,
        value_bytes_max: 1 << 20,
        list_items_max: 10_000,
        template_levels_max: 200,
    };
    let options = Options { limits, missing_key: MissingKey::Zero };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    if let Err(error) = execution.execute("t", &data) {
        let _ = helm::render_error("t", &error);
    }
    let _ = helm::to_plain(&data);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(bytes);
});
