//! Compares this crate with the Go libraries on random inputs.
//!
//! `cargo run --release -p weir-manifest --example compare -- RECORDER OP COUNT SEED [SAMPLE…]`
//!
//! RECORDER is the program built from `hack/record/yaml`; OP one of its operations, or `all`; the SAMPLE files are
//! mutated byte by byte. Prints each difference, made smaller, and exits with 1 if there is one.
#![expect(clippy::print_stdout, reason = "it is a command line tool")]

#[path = "../tests/ops/mod.rs"]
mod ops;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Map, Value, json};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

struct Reference {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Reference {
    fn start(program: &str) -> std::io::Result<Self> {
        let mut child =
            Command::new(program).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || std::io::Error::other("no pipe");
        let requests = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, requests, answers })
    }

    fn ask(&mut self, op: &str, input: &str) -> std::io::Result<ops::Outcome> {
        writeln!(self.requests, "{}", json!({ "op": op, "in": input }))?;
        self.requests.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        Ok(match answer["out"].as_str() {
            Some(out) => Ok(out.to_owned()),
            None => Err(answer["err"].as_str().unwrap_or_default().to_owned()),
        })
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PIECES: &[&str] = &[
    "a",
    "b",
    "key",
    "é",
    "😀",
    "0",
    "1",
    "12",
    "0x1",
    "1e3",
    "1.5",
    ".5",
    "_",
    "-",
    "--",
    "---",
    "...",
    "+",
    ":",
    ": ",
    ":\n",
    "?",
    "? ",
    ",",
    ", ",
    "[",
    "]",
    "{",
    "}",
    "#",
    " #",
    "# c",
    "&",
    "&x",
    "*x",
    "*",
    "!",
    "!!str",
    "!!int ",
    "!a",
    "|",
    "|\n",
    "|-\n",
    "|+\n",
    "|2\n",
    ">",
    ">\n",
    ">-\n",
    "'",
    "\"",
    "%",
    "@",
    "`",
    "=",
    "<<",
    "<<: ",
    "~",
    "null",
    "yes",
    "no",
    "true",
    "on",
    "y",
    " ",
    "  ",
    "    ",
    "\n",
    "\n\n",
    "\n  ",
    "\n    ",
    "\n- ",
    "\n  - ",
    "- ",
    "\t",
    "\r\n",
    "\r",
    "\\",
    "\\n",
    "\\x41",
    "\\u00e9",
    "''",
    "\u{2028}",
    "\u{85}",
    "\u{a0}",
    "\u{feff}",
    "\nkey: ",
    "\n  k2: ",
    "k3: ",
    "\n---\n",
    "\n...\n",
    "2020-01-01",
    "1:30",
    "{{ x }}",
    "${X}",
    "word word",
    "long words that go on and on until folded ",
    "\n# comment\n",
    "\n  # comment\n",
    " # line",
    "- # item",
    "\n\n# two\n\n",
];

fn text(random: &mut Random, pieces: usize) -> String {
    (0..=random.below(pieces)).map(|_| random.pick(PIECES)).collect()
}

fn number_like(random: &mut Random) -> String {
    const DIGITS: &[&str] = &[
        "0", "1", "7", "9", "8", "_", ".", "e", "E", "+", "-", "x", "b", "o", "f", ":", "12", "000", "2020",
        "T", "Z",
    ];
    (0..=random.below(8)).map(|_| random.pick(DIGITS)).collect()
}

fn string(random: &mut Random) -> String {
    match random.below(6) {
        0 => number_like(random),
        1 => text(random, 2),
        2 => text(random, 30),
        3 => {
            let words = random.below(40);
            (0..words)
                .map(|_| {
                    random.pick(&["a", "word ", "longer-word ", "  ", "é ", "\n", "x: ", "'", "\"", " #"])
                })
                .collect()
        }
        _ => text(random, 6),
    }
}

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 7 } else { 12 }) {
        0 => Value::Null,
        1 => json!(random.chance(2)),
        2 => json!(random.next() as i64 - (1 << 40)),
        3 => json!(f64::from_bits(random.next() << 16 | random.next() & 0xFFFF)),
        4 => json!((random.below(2_000_000) as f64 - 1e6) / [1.0, 10.0, 1e3, 1e9, 1e-9][random.below(5)]),
        5 | 6 => Value::from(string(random)),
        7 | 8 => (0..random.below(5)).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let entries = random.below(5);
            Value::Object(
                (0..entries).map(|_| (string(random), value(random, depth - 1))).collect::<Map<_, _>>(),
            )
        }
    }
}

fn mutate(random: &mut Random, sample: &str) -> String {
    // A window of lines, so that mistakes are not all in the same place.
    let lines: Vec<&str> = sample.split_inclusive('\n').collect();
    let start = random.below(lines.len());
    let mut chars: Vec<char> =
        lines.iter().skip(start).take(1 + random.below(25)).flat_map(|line| line.chars()).collect();
    for _ in 0..random.below(4) {
        let at = random.below(chars.len() + 1);
        match random.below(4) {
            0 if at < chars.len() => {
                chars.remove(at);
            }
            1 if at < chars.len() => {
                let to = random.below(chars.len());
                chars.swap(at, to);
            }
            _ => {
                let piece = random.pick(PIECES).chars();
                chars.splice(at..at, piece);
            }
        }
    }
    chars.into_iter().collect()
}

fn input(random: &mut Random, op: &str, samples: &[String]) -> String {
    if op.starts_with("write") {
        return value(random, 4).to_string();
    }
    match random.below(4) {
        0 => text(random, 12),
        1 => format!("a: {}\n", string(random)),
        2 => {
            let mut yaml = weir_manifest::to_yaml(&value(random, 3));
            if random.chance(2) {
                yaml = mutate(random, &yaml);
            }
            yaml
        }
        _ if samples.is_empty() => text(random, 30),
        _ => {
            let sample = &samples[random.below(samples.len())];
            mutate(random, sample)
        }
    }
}

/// Takes characters away as long as the difference stays.
fn shrink(reference: &mut Reference, op: &str, mut input: String) -> std::io::Result<String> {
    let mut size = input.chars().count() / 2;
    while size > 0 {
        let mut at = 0;
        loop {
            let chars: Vec<char> = input.chars().collect();
            if at + size > chars.len() {
                break;
            }
            let smaller: String = chars[..at].iter().chain(&chars[at + size..]).collect();
            let theirs = reference.ask(op, &smaller)?;
            let skipped = op.starts_with("write") && serde_json::from_str::<Value>(&smaller).is_err();
            if !skipped && ops::difference(op, &ops::answer(op, &smaller), &theirs, true).is_some() {
                input = smaller;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    Ok(input)
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, op, count, seed, samples @ ..] = arguments.as_slice() else {
        println!("usage: compare RECORDER OP COUNT SEED [SAMPLE…]");
        std::process::exit(2);
    };
    let samples = samples.iter().map(std::fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let count: usize = count.parse().map_err(std::io::Error::other)?;
    let mut random =
        Random(seed.parse::<u64>().map_err(std::io::Error::other)?.wrapping_mul(0x9E37_79B9) | 1);
    let mut reference = Reference::start(program)?;
    let ops: Vec<&str> = if op == "all" { ops::ALL.to_vec() } else { vec![op] };
    let mut differences = 0;
    for round in 0..count {
        let op = ops[round % ops.len()];
        let input = input(&mut random, op, &samples);
        let theirs = reference.ask(op, &input)?;
        // The reference loses track of byte order marks that are not at the start.
        if input.chars().skip(1).any(|c| c == '\u{FEFF}') && !op.starts_with("write") {
            continue;
        }
        if ops::difference(op, &ops::answer(op, &input), &theirs, true).is_none() {
            continue;
        }
        let small = shrink(&mut reference, op, input)?;
        let theirs = reference.ask(op, &small)?;
        let why = ops::difference(op, &ops::answer(op, &small), &theirs, true).unwrap_or_default();
        println!("{op} {small:?}\n{why}\n");
        differences += 1;
        if differences >= 20 {
            break;
        }
    }
    println!("{differences} differences in {count} inputs");
    std::process::exit(i32::from(differences > 0));
}
