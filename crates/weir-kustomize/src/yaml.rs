//! Text of a tree that keeps the order of its fields, for texts embedded in other objects.

use crate::node::Node;

/// YAML of a tree, keys in their order.
pub(crate) fn to_text(node: &Node) -> String {
    let mut out = String::new();
    write(node, 0, &mut out);
    out
}

fn write(node: &Node, depth: usize, out: &mut String) {
    match node {
        Node::Map(map) if !map.is_empty() => {
            for (key, value) in map.iter() {
                indent(depth, out);
                out.push_str(&scalar(&Node::string(key)));
                out.push(':');
                write_value(value, depth, out);
            }
        }
        Node::List(items) if !items.is_empty() => {
            for item in items {
                indent(depth, out);
                out.push('-');
                match item {
                    Node::Map(map) if !map.is_empty() => {
                        let mut inner = String::new();
                        write(item, depth + 1, &mut inner);
                        out.push(' ');
                        out.push_str(inner.trim_start());
                    }
                    other => write_value(other, depth, out),
                }
            }
        }
        other => {
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
}

fn write_value(value: &Node, depth: usize, out: &mut String) {
    match value {
        Node::Map(map) if !map.is_empty() => {
            out.push('\n');
            write(value, depth + 1, out);
        }
        Node::List(items) if !items.is_empty() => {
            out.push('\n');
            write(value, depth, out);
        }
        other => {
            out.push(' ');
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn scalar(node: &Node) -> String {
    match node {
        Node::Map(_) => "{}".to_owned(),
        Node::List(_) => "[]".to_owned(),
        Node::Scalar(_) => node
            .to_json()
            .map(|value| weir_manifest::to_yaml(&value).trim_end().to_owned())
            .unwrap_or_default(),
    }
}
