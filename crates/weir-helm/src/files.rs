//! `.Files`

use weir_gotemplate::{Element, Entries, Fault, List, Map, Method, NamedType, Param, Text, Value};

use crate::chart::File;
use crate::glob::Glob;

static FILES: NamedType = NamedType {
    name: "engine.files",
    methods: &[
        Method {
            name: "Get",
            params: &[Param::String],
            run: |files, arguments| Ok(Value::String(content(files, arguments).unwrap_or_default())),
        },
        Method {
            name: "GetBytes",
            params: &[Param::String],
            run: |files, arguments| Ok(Value::Bytes(content(files, arguments).unwrap_or_default())),
        },
        Method { name: "Glob", params: &[Param::String], run: glob },
        Method {
            name: "AsConfig",
            params: &[],
            run: |files, _| Ok(as_yaml(files, |data| data.to_str_lossy().into_owned())),
        },
        Method {
            name: "AsSecrets",
            params: &[],
            run: |files, _| Ok(as_yaml(files, |data| weir_gotemplate::helm::base64(data))),
        },
        Method {
            name: "Lines",
            params: &[Param::String],
            run: |files, arguments| {
                let Some(content) = content(files, arguments) else {
                    return Ok(Value::List(List::typed(Vec::new(), Element::String)));
                };
                if content.is_empty() {
                    return Err("runtime error: index out of range [-1]".into());
                }
                let text = content.strip_suffix(b"\n").unwrap_or(&content);
                Ok(Value::List(List::strings(text.split(|byte| *byte == b'\n'))))
            },
        },
    ],
};

/// The value templates see. The contents are copied when a template first looks at them: few do, and
/// charts carry large files that nothing reads.
pub(crate) fn to_value(files: &[File]) -> Value {
    let files = files.to_vec();
    let entries = move || -> Entries {
        files
            .iter()
            .map(|file| (Text::from(file.name.as_str()), Value::Bytes(Text::from(&file.data[..]))))
            .collect()
    };
    Value::Map(Map::lazy(Element::Bytes, entries).named(&FILES))
}

fn content(files: &Value, arguments: &[Value]) -> Option<Text> {
    let (Value::Map(files), Some(Value::String(name))) = (files, arguments.first()) else {
        return None;
    };
    match files.get(name)? {
        Value::Bytes(data) => Some(data),
        _ => None,
    }
}

fn glob(files: &Value, arguments: &[Value]) -> Result<Value, Fault> {
    let (Value::Map(files), Some(Value::String(pattern))) = (files, arguments.first()) else {
        return Ok(Value::Nil);
    };
    // A broken pattern matches everything.
    let glob = Glob::parse(&pattern.to_str_lossy());
    let mut entries = files.to_entries();
    entries.retain(|name, _| glob.as_ref().is_none_or(|glob| glob.matches(&name.to_str_lossy())));
    Ok(Value::Map(Map::typed(entries, Element::Bytes).named(&FILES)))
}

/// A YAML map from base names to contents.
fn as_yaml(files: &Value, show: impl Fn(&Text) -> String) -> Value {
    let Value::Map(files) = files else { return Value::from("") };
    let mut map = serde_json::Map::new();
    for (name, data) in files.to_entries() {
        let Value::Bytes(data) = data else { continue };
        let name = name.to_str_lossy();
        let base = name.rsplit('/').next().unwrap_or(&name).to_owned();
        map.insert(base, serde_json::Value::String(show(&data)));
    }
    let text = weir_manifest::to_yaml(&serde_json::Value::Object(map));
    Value::from(text.strip_suffix('\n').unwrap_or(&text))
}
