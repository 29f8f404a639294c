#!/usr/bin/env python3
"""Writes the field numbers of built-in kinds, for reading bodies in protobuf.

    hack/record/apiserver/protobuf.py MODULES > crates/weir-testcluster/src/builtin/data/protobuf.deflate

MODULES is a directory of Go modules with `k8s.io/api` and `k8s.io/apimachinery` (`go env GOMODCACHE`). One line for each
message: its name, then its fields as `number name type`. Types: s text, n number, b flag, f fraction, y bytes, t and u
times, q quantity, i number or text, d duration, r raw JSON, and the index of another line; `*` before it: repeated; `%`:
a map from text; `!`: the fields stand in the object itself.
"""
import glob
import re
import sys
import zlib

VERSION = "v0.37.2"
STABLE = re.compile(r"^v\d+$")
SPECIAL = {
    "k8s.io.apimachinery.pkg.apis.meta.v1.Time": "t",
    "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime": "u",
    "k8s.io.apimachinery.pkg.apis.meta.v1.Duration": "d",
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "q",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "i",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "r",
    "k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1": "r",
}
SCALARS = {"string": "s", "bool": "b", "bytes": "y", "double": "f", "float": "f"}
SCALARS.update({name: "n" for name in ("int32", "int64", "uint32", "uint64", "sint32", "sint64")})
INLINE = {
    "volumeSource", "handler", "persistentVolumeSource", "localObjectReference", "ephemeralContainerCommon",
    "ruleWithOperations", "rule", "ingressRuleValue",
}


def read(root):
    messages = {}
    patterns = [
        f"{root}/k8s.io/api@{VERSION}/*/*/generated.proto",
        f"{root}/k8s.io/apimachinery@{VERSION}/pkg/**/generated.proto",
    ]
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern, recursive=True)):
        text = re.sub(r"//[^\n]*", "", open(path).read())
        package = re.search(r"package\s+([\w.]+);", text).group(1)
        for name, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.S):
            fields = []
            for label, kind, field, number in re.findall(
                r"(optional|repeated)?\s*(map<[^>]*>|\.?[\w.]+)\s+(\w+) = (\d+)", body
            ):
                prefix = "*" if label == "repeated" else ""
                if kind.startswith("map<"):
                    prefix, kind = "%", kind[4:-1].split(",")[1].strip()
                kind = kind.lstrip(".")
                if kind not in SCALARS and "." not in kind:
                    kind = f"{package}.{kind}"
                fields.append((int(number), field, prefix, kind))
            messages[f"{package}.{name}"] = fields
    return messages


def main():
    messages = read(sys.argv[1])
    order, index = [], {}

    def add(name):
        if name not in index:
            index[name] = len(order)
            order.append(name)
            for _, _, _, kind in messages.get(name, []):
                if kind not in SCALARS and kind not in SPECIAL:
                    add(kind)
        return index[name]

    for name, fields in sorted(messages.items()):
        parts = name.split(".")
        if name.startswith("k8s.io.api.") and STABLE.match(parts[-2]):
            if any(field[1] == "metadata" for field in fields) and not parts[-1].endswith("List"):
                add(name)
    lines = []
    for name in order:
        out = [name]
        for number, field, prefix, kind in messages.get(name, []):
            inline = "!" if field in INLINE and not prefix else ""
            short = SCALARS.get(kind) or SPECIAL.get(kind) or str(add(kind))
            out.append(f"{number} {field} {inline}{prefix}{short}")
        lines.append("\t".join(out))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    sys.stdout.buffer.write(packer.compress(("\n".join(lines) + "\n").encode()) + packer.flush())


main()
