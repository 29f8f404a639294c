//! Digests in the form `<algorithm>:<hex>`.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use sha2::Digest as _;

/// The algorithms an artifact digest may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Algorithm {
    /// SHA-1, 40 hex digits.
    Sha1,
    /// SHA-256, the default.
    #[default]
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
    /// BLAKE3 with its default output of 32 bytes.
    Blake3,
}

impl Algorithm {
    /// The name used in front of the colon.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
            Self::Blake3 => "blake3",
        }
    }

    fn hex_length(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }

    /// Starts a digest.
    pub fn hasher(self) -> Hasher {
        Hasher(match self {
            Self::Sha1 => State::Sha1(sha1::Sha1::new()),
            Self::Sha256 => State::Sha256(sha2::Sha256::new()),
            Self::Sha384 => State::Sha384(Box::new(sha2::Sha384::new())),
            Self::Sha512 => State::Sha512(Box::new(sha2::Sha512::new())),
            Self::Blake3 => State::Blake3(Box::new(blake3::Hasher::new())),
        })
    }

    /// The digest of `bytes`.
    pub fn digest(self, bytes: &[u8]) -> Digest {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl FromStr for Algorithm {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512, Self::Blake3]
            .into_iter()
            .find(|algorithm| algorithm.name() == text)
            .ok_or(ParseError::UnsupportedAlgorithm)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Why a digest text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no text.
    #[error("empty digest")]
    Empty,
    /// Not of the form `<algorithm>:<hex>`.
    #[error("invalid checksum digest format")]
    Format,
    /// The algorithm is none of those supported.
    #[error("unsupported digest algorithm")]
    UnsupportedAlgorithm,
    /// The hex part has another length than the algorithm gives.
    #[error("invalid checksum digest length")]
    Length,
}

/// A digest: algorithm and lower-case hex value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

impl Digest {
    /// The algorithm in front of the colon.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hex value after the colon.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Empty);
        }
        let (algorithm, hex) = text.split_once(':').ok_or(ParseError::Format)?;
        let algorithm: Algorithm = algorithm.parse()?;
        if !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ParseError::Format);
        }
        if hex.len() != algorithm.hex_length() {
            return Err(ParseError::Length);
        }
        Ok(Self { algorithm, hex: hex.to_owned() })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.algorithm, self.hex)
    }
}

/// A digest in the making. Also a [`Write`], which never fails.
pub struct Hasher(State);

enum State {
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha384(Box<sha2::Sha384>),
    Sha512(Box<sha2::Sha512>),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha1(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Sha384(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
            State::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// The digest of all bytes added.
    pub fn finish(self) -> Digest {
        let (algorithm, hex) = match self.0 {
            State::Sha1(state) => (Algorithm::Sha1, hex::encode(state.finalize())),
            State::Sha256(state) => (Algorithm::Sha256, hex::encode(state.finalize())),
            State::Sha384(state) => (Algorithm::Sha384, hex::encode(state.finalize())),
            State::Sha512(state) => (Algorithm::Sha512, hex::encode(state.finalize())),
            State::Blake3(state) => (Algorithm::Blake3, state.finalize().to_hex().to_string()),
        };
        Digest { algorithm, hex }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hasher")
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads `input` to its end and returns its digest and length in bytes.
pub fn digest_reader(algorithm: Algorithm, mut input: impl Read) -> io::Result<(Digest, u64)> {
    let mut hasher = algorithm.hasher();
    let length = io::copy(&mut input, &mut hasher)?;
    Ok((hasher.finish(), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(algorithm: Algorithm, expected: &str) {
        let digest = algorithm.digest(b"abc");
        assert_eq!(digest.to_string(), expected);
        assert_eq!(expected.parse(), Ok(digest));
    }

    #[test]
    fn known_values() {
        check(Algorithm::Sha1, "sha1:a9993e364706816aba3e25717850c26c9cd0d89d");
        check(Algorithm::Sha256, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check(
            Algorithm::Sha384,
            "sha384:cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        );
        check(
            Algorithm::Sha512,
            "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        );
        check(Algorithm::Blake3, "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
    }

    #[test]
    fn refused_texts() {
        for (text, error) in [
            ("", ParseError::Empty),
            ("abc", ParseError::Format),
            ("md5:abc", ParseError::UnsupportedAlgorithm),
            ("sha256:abc", ParseError::Length),
            ("sha256:XYZ", ParseError::Format),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(error), "{text}");
        }
    }
}
