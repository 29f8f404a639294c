//! As much DER as certificates and public keys need.

/// An element: its tag and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// Tag, length and content.
    pub(super) whole: &'a [u8],
}

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const OID: u8 = 0x06;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const BITS: u8 = 0x03;
const BOOLEAN: u8 = 0x01;
const UTF8: u8 = 0x0C;

/// The first element, and what is behind it.
pub(super) fn read(input: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (tag, rest) = input.split_first()?;
    if tag & 0x1F == 0x1F {
        return None;
    }
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(*first), rest),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7F);
            let bytes = rest.get(..count)?;
            let length = bytes.iter().fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
            // Lengths have one form only.
            if length < 0x80 || bytes[0] == 0 {
                return None;
            }
            (length, &rest[count..])
        }
        _ => return None,
    };
    let content = rest.get(..length)?;
    let rest = &rest[length..];
    let whole = &input[..input.len() - rest.len()];
    Some((Element { tag: *tag, content, whole }, rest))
}

/// The only element of the input.
pub(super) fn only(input: &[u8], tag: u8) -> Option<Element<'_>> {
    let (element, rest) = read(input)?;
    (rest.is_empty() && element.tag == tag).then_some(element)
}

/// All elements of a content.
pub(super) fn all(mut content: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut elements = Vec::new();
    while !content.is_empty() {
        let (element, rest) = read(content)?;
        elements.push(element);
        content = rest;
    }
    Some(elements)
}

/// An element of a tag and a content.
pub(super) fn encode(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let skip = bytes.iter().take_while(|byte| **byte == 0).count();
        out.push(0x80 | (bytes.len() - skip) as u8);
        out.extend_from_slice(&bytes[skip..]);
    }
    out.extend_from_slice(content);
    out
}

/// A certificate, as far as it is looked at here.
#[derive(Debug, Clone)]
pub(super) struct Certificate<'a> {
    /// The parts of what is signed.
    parts: Vec<Element<'a>>,
    /// Identifier and value of each extension, with the extension itself.
    extensions: Vec<(&'a [u8], &'a [u8], Element<'a>)>,
    /// The public key with its algorithm.
    pub(super) public_key: &'a [u8],
}

const EXTENSIONS: u8 = 0xA3;

impl<'a> Certificate<'a> {
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let signed = *all(only(der, SEQUENCE)?.content)?.first()?;
        let parts = all(signed.content)?;
        // Version (if it is given), serial number, algorithm, issuer, validity, subject, key.
        let first = usize::from(parts.first()?.tag == 0xA0);
        let public_key = parts.get(first + 5).filter(|key| key.tag == SEQUENCE)?.whole;
        let mut extensions = Vec::new();
        if let Some(list) = parts.iter().find(|part| part.tag == EXTENSIONS) {
            for extension in all(only(list.content, SEQUENCE)?.content)? {
                let fields = all(extension.content)?;
                let id = fields.first().filter(|id| id.tag == OID)?;
                let value = fields.iter().skip(1).find(|field| field.tag != BOOLEAN)?;
                if value.tag != OCTETS {
                    return None;
                }
                extensions.push((id.content, value.content, extension));
            }
        }
        Some(Self { parts, extensions, public_key })
    }

    /// The value of an extension.
    pub(super) fn extension(&self, id: &[u8]) -> Option<&'a [u8]> {
        self.extensions.iter().find(|(found, _, _)| *found == id).map(|(_, value, _)| *value)
    }

    /// What is signed, without an extension.
    pub(super) fn signed_without(&self, id: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        for part in &self.parts {
            if part.tag != EXTENSIONS {
                content.extend_from_slice(part.whole);
                continue;
            }
            let kept: Vec<u8> = self
                .extensions
                .iter()
                .filter(|(found, _, _)| *found != id)
                .flat_map(|(_, _, extension)| extension.whole)
                .copied()
                .collect();
            content.extend(encode(EXTENSIONS, &encode(SEQUENCE, &kept)));
        }
        encode(SEQUENCE, &content)
    }

    /// Whether the certificate says that its key may be used for something.
    pub(super) fn may(&self, purpose: &[u8]) -> bool {
        const PURPOSES: &[u8] = &[0x55, 0x1D, 0x25];
        let purposes = || all(only(self.extension(PURPOSES)?, SEQUENCE)?.content);
        purposes().is_some_and(|found| found.iter().any(|one| one.tag == OID && one.content == purpose))
    }

    /// The addresses and names of the subject: mail addresses, URIs, and the names Fulcio gives machines.
    pub(super) fn subjects(&self) -> Option<Vec<String>> {
        const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1D, 0x11];
        let Some(value) = self.extension(ALTERNATIVE_NAME) else { return Some(Vec::new()) };
        let mut subjects = Vec::new();
        for name in all(only(value, SEQUENCE)?.content)? {
            let text = match name.tag {
                // Mail address and URI.
                0x81 | 0x86 => name.content,
                0xA0 => {
                    let fields = all(name.content)?;
                    let [_, value] = fields.as_slice() else { continue };
                    match only(value.content, UTF8) {
                        Some(text) => text.content,
                        None => continue,
                    }
                }
                _ => continue,
            };
            subjects.push(std::str::from_utf8(text).ok()?.to_owned());
        }
        Some(subjects)
    }

    /// Who vouched for the identity.
    pub(super) fn issuer(&self) -> Option<String> {
        // 1.3.6.1.4.1.57264.1.8, a text, and the older 1.3.6.1.4.1.57264.1.1, its bytes alone.
        const ISSUER: &[u8] = &[0x2B, 0x06, 0x01, 0x04, 0x01, 0x83, 0xBF, 0x30, 0x01, 0x08];
        const OLD_ISSUER: &[u8] = &[0x2B, 0x06, 0x01, 0x04, 0x01, 0x83, 0xBF, 0x30, 0x01, 0x01];
        let bytes = match self.extension(ISSUER) {
            Some(value) => only(value, UTF8)?.content,
            None => self.extension(OLD_ISSUER)?,
        };
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths() {
        for length in [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0x1_0000] {
            let content = vec![7; length];
            let encoded = encode(OCTETS, &content);
            assert_eq!(only(&encoded, OCTETS).unwrap().content, content);
            assert!(only(&encoded[..encoded.len() - 1], OCTETS).is_none() || length == 0);
        }
        // A length in a longer form than needed.
        assert!(read(&[0x04, 0x81, 0x01, 0x00]).is_none());
        assert!(read(&[0x04, 0x80, 0x00, 0x00]).is_none());
        assert!(read(&[0x04, 0x84, 0xFF, 0xFF, 0xFF, 0xFF]).is_none());
    }

    #[test]
    fn certificates() {
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.subject_alt_names = vec![rcgen::SanType::URI("https://example.com/x".try_into().unwrap())];
        let oid = [1, 3, 6, 1, 4, 1, 57264, 1, 1];
        parameters.custom_extensions =
            vec![rcgen::CustomExtension::from_oid_content(&oid, b"https://issuer".to_vec())];
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let parsed = Certificate::parse(certificate.der()).unwrap();
        assert_eq!(parsed.subjects().unwrap(), ["https://example.com/x"]);
        assert_eq!(parsed.issuer().as_deref(), Some("https://issuer"));
        assert_eq!(parsed.public_key, rcgen::PublicKeyData::subject_public_key_info(&key));
        let id: &[u8] = &[0x2B, 0x06, 0x01, 0x04, 0x01, 0x83, 0xBF, 0x30, 0x01, 0x01];
        let signed = all(only(certificate.der(), SEQUENCE).unwrap().content).unwrap()[0];
        assert_eq!(parsed.signed_without(b"none"), signed.whole);
        assert!(parsed.signed_without(id).len() < signed.whole.len());
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(certificate) = Certificate::parse(&bytes) {
                let _ = (certificate.subjects(), certificate.issuer());
            }
        }
    }
}
