//! Names, tags and digests of container images.

use regex::Regex;

use crate::error::Result;
use crate::fieldspec::FieldSpecs;
use crate::kustomization::Image;
use crate::node::{Node, Tag, wrong_kind};
use crate::resources::Resources;

/// The pattern of one image name; the name itself is a regular expression.
#[derive(Debug, Clone)]
pub(crate) struct ImageName {
    /// Set when the name has no special characters, which is nearly always.
    literal: Option<String>,
    regex: Regex,
}

impl ImageName {
    /// # Errors
    /// The name is no valid regular expression.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b':'));
        let pattern = format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$");
        Ok(Self { literal: plain.then(|| name.to_owned()), regex: crate::selector::compile(&pattern)? })
    }

    fn matches(&self, image: &str) -> bool {
        if let Some(literal) = &self.literal {
            let Some(rest) = image.strip_prefix(literal.as_str()) else { return false };
            if rest.is_empty() {
                return true;
            }
            if !rest.starts_with([':', '@']) {
                return false;
            }
        }
        self.regex.is_match(image)
    }
}

/// Name, tag and digest of a reference.
fn split(image: &str) -> (&str, &str, &str) {
    let slash = image.find('/').map_or(0, |position| position + 1);
    let (rest, digest) = match image[slash..].find('@') {
        Some(position) => (&image[..slash + position], &image[slash + position + 1..]),
        None => (image, ""),
    };
    match rest[slash..].find(':') {
        Some(position) => (&rest[..slash + position], &rest[slash + position + 1..], digest),
        None => (rest, "", digest),
    }
}

/// Sets the image wherever it is named: below any `containers` or `initContainers`, then in the fields of
/// the table. A field that both find is changed twice, which shows with `tagSuffix`.
pub(crate) fn set(
    image: &Image,
    name: &ImageName,
    specs: &FieldSpecs,
    resources: &mut Resources,
) -> Result<()> {
    for resource in resources.list_mut_same_ids() {
        if resource.kind() == "CustomResourceDefinition" {
            continue;
        }
        walk(&mut resource.node, image, name)?;
        for spec in specs {
            spec.visit(&mut resource.node, None, &mut |node| set_one(node, image, name))?;
        }
        resource.settle_links();
    }
    Ok(())
}

fn walk(node: &mut Node, image: &Image, name: &ImageName) -> Result<()> {
    match node {
        Node::Map(map) => {
            for (key, value) in map.iter_mut() {
                walk(value, image, name)?;
                if matches!(key, "containers" | "initContainers")
                    && let Node::List(containers) = value
                {
                    for container in containers {
                        match container {
                            Node::Map(map) => {
                                if let Some(field) = map.get_mut("image") {
                                    set_one(field, image, name)?;
                                }
                            }
                            other if other.is_null() => {}
                            other => return Err(wrong_kind("MappingNode", other)),
                        }
                    }
                }
            }
        }
        Node::List(list) => {
            for item in list {
                walk(item, image, name)?;
            }
        }
        Node::Scalar(_) => {}
    }
    Ok(())
}

fn set_one(node: &mut Node, image: &Image, name: &ImageName) -> Result<()> {
    let Node::Scalar(scalar) = node else { return Err(wrong_kind("ScalarNode", node)) };
    if !name.matches(&scalar.text) {
        return Ok(());
    }
    let (old_name, old_tag, old_digest) = split(&scalar.text);
    let new_name = if image.new_name.is_empty() { old_name } else { &image.new_name };
    let (tag, digest) = if !image.new_tag.is_empty() {
        (image.new_tag.clone(), image.digest.as_str())
    } else if !image.digest.is_empty() {
        (String::new(), image.digest.as_str())
    } else if !image.tag_suffix.is_empty() {
        (format!("{old_tag}{}", image.tag_suffix), "")
    } else {
        (old_tag.to_owned(), old_digest)
    };
    let mut text = new_name.to_owned();
    if !tag.is_empty() {
        text.push(':');
        text.push_str(&tag);
    }
    if !digest.is_empty() {
        text.push('@');
        text.push_str(digest);
    }
    node.set_scalar(text, Tag::Unset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(image: &str, change: &Image, expected: &str) {
        let mut node = Node::string(image);
        set_one(&mut node, change, &ImageName::new(&change.name).unwrap()).unwrap();
        assert_eq!(node.text(), expected);
    }

    fn change(name: &str, new_name: &str, new_tag: &str, digest: &str) -> Image {
        Image {
            name: name.into(),
            new_name: new_name.into(),
            new_tag: new_tag.into(),
            digest: digest.into(),
            tag_suffix: String::new(),
        }
    }

    #[test]
    fn references_are_rewritten() {
        check("nginx", &change("nginx", "", "1", ""), "nginx:1");
        check("nginx:2@sha256:ab", &change("nginx", "", "1", ""), "nginx:1");
        check("nginx:2", &change("nginx", "", "", "sha256:cd"), "nginx@sha256:cd");
        check("nginx:2", &change("nginx", "x", "1", "sha256:cd"), "x:1@sha256:cd");
        check("nginx:2", &change("nginx", "my/x", "", ""), "my/x:2");
        check("host:1234/img:2", &change("host:1234/img", "", "3", ""), "host:1234/img:3");
        check("docker.io/nginx", &change("nginx", "", "1", ""), "docker.io/nginx");
        check("app:{x}", &change("app", "", "1", ""), "app:1");
        check("nginx-extra", &change("nginx", "", "1", ""), "nginx-extra");
        check("axb", &change("a.b", "", "1", ""), "axb:1");
    }
}
