//! Sprig's digests, passwords and ciphers.

use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

use super::{Outcome, argument, bytes, int, text};
use crate::base64;
use crate::exec::Context;
use crate::function::{Function, Param};
use crate::value::Value;

use Param::{Int, String as Str, Uint32};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("sha1sum", &[Str], |_, arguments| {
        Ok(Value::string(hexadecimal(&sha1::Sha1::digest(bytes(arguments, 0)))))
    }),
    Function::new("sha256sum", &[Str], |_, arguments| {
        Ok(Value::string(hexadecimal(&Sha256::digest(bytes(arguments, 0)))))
    }),
    Function::new("sha512sum", &[Str], |_, arguments| {
        Ok(Value::string(hexadecimal(&Sha512::digest(bytes(arguments, 0)))))
    }),
    Function::new("adler32sum", &[Str], |_, arguments| {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in bytes(arguments, 0) {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        Ok(Value::string((high << 16 | low).to_string()))
    }),
    Function::new("bcrypt", &[Str], |context, arguments| {
        Ok(Value::string(bcrypt_hash(context, bytes(arguments, 0))))
    }),
    Function::new("htpasswd", &[Str, Str], |context, arguments| {
        let user = text(arguments, 0);
        if user.contains(':') {
            return Ok(Value::string(format!("invalid username: {user}")));
        }
        let hash = bcrypt_hash(context, bytes(arguments, 1));
        Ok(Value::string(format!("{user}:{hash}")))
    }),
    Function::new("randBytes", &[Int], |context, arguments| {
        let Ok(count) = usize::try_from(int(arguments, 0)) else {
            return Err("runtime error: makeslice: len out of range".into());
        };
        context.check_bytes(count as u64)?;
        let mut bytes = vec![0; count];
        context.host().random(&mut bytes);
        Ok(Value::string(base64::encode(&bytes)))
    }),
    Function::new("uuidv4", &[], |context, _| {
        let mut bytes = [0; 16];
        context.host().random(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = hexadecimal(&bytes);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Ok(Value::string(parts.join("-")))
    }),
    Function::new("derivePassword", &[Uint32, Str, Str, Str, Str], derive_password),
    Function::new("encryptAES", &[Str, Str], |context, arguments| {
        let plain = bytes(arguments, 1);
        if plain.is_empty() {
            return Ok(Value::string(""));
        }
        let mut start = [0; BLOCK_BYTES];
        context.host().random(&mut start);
        let padding = BLOCK_BYTES - plain.len() % BLOCK_BYTES;
        let mut content = plain.to_vec();
        content.extend(std::iter::repeat_n(padding as u8, padding));
        let length = content.len();
        let cipher = cbc::Encryptor::<aes::Aes256>::new(&key(bytes(arguments, 0)).into(), &start.into());
        if cipher.encrypt_padded::<NoPadding>(&mut content, length).is_err() {
            return Err("crypto/cipher: input not full blocks".into());
        }
        Ok(Value::string(base64::encode(&[&start[..], &content].concat())))
    }),
    Function::new("decryptAES", &[Str, Str], |_, arguments| {
        let source = bytes(arguments, 1);
        if source.is_empty() {
            return Ok(Value::string(""));
        }
        let encrypted = base64::decode(source)?;
        let Some((start, encrypted)) = encrypted.split_first_chunk::<BLOCK_BYTES>() else {
            let capacity = source.len() / 4 * 3;
            return Err(
                format!("runtime error: slice bounds out of range [:16] with capacity {capacity}").into()
            );
        };
        if !encrypted.len().is_multiple_of(BLOCK_BYTES) {
            return Err("crypto/cipher: input not full blocks".into());
        }
        let mut plain = encrypted.to_vec();
        let cipher = cbc::Decryptor::<aes::Aes256>::new(&key(bytes(arguments, 0)).into(), start.into());
        if cipher.decrypt_padded::<NoPadding>(&mut plain).is_err() {
            return Err("crypto/cipher: input not full blocks".into());
        }
        let Some(padding) = plain.last().map(|byte| usize::from(*byte)) else {
            return Err("runtime error: index out of range [-1]".into());
        };
        let Some(length) = plain.len().checked_sub(padding) else {
            let below = padding - plain.len();
            return Err(format!("runtime error: slice bounds out of range [:-{below}]").into());
        };
        plain.truncate(length);
        Ok(Value::string(plain))
    }),
];

const BLOCK_BYTES: usize = 16;

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        out.push_str(&format!("{byte:02x}"));
        out
    })
}

/// The first 32 bytes of the password, filled up with zeros.
fn key(password: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let length = password.len().min(32);
    key[..length].copy_from_slice(&password[..length]);
    key
}

/// The work factor of password hashes, as a power of two.
const BCRYPT_COST: u32 = 10;
const BCRYPT_PASSWORD_BYTES_MAX: usize = 72;

fn bcrypt_hash(context: &mut Context<'_>, password: &[u8]) -> String {
    let failed = |why: String| format!("failed to encrypt string with bcrypt: {why}");
    if password.len() > BCRYPT_PASSWORD_BYTES_MAX {
        return failed("bcrypt: password length exceeds 72 bytes".to_owned());
    }
    let mut salt = [0; 16];
    context.host().random(&mut salt);
    match bcrypt::hash_with_salt(password, BCRYPT_COST, salt) {
        Ok(parts) => parts.format_for_version(bcrypt::Version::TwoA),
        Err(error) => failed(error.to_string()),
    }
}

/// Forms of derived passwords: each letter stands for a set of characters.
const FORMS: &[(&str, &[&str])] = &[
    ("maximum", &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"]),
    (
        "long",
        &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
    ),
    ("medium", &["CvcnoCvc", "CvcCvcno"]),
    ("short", &["Cvcn"]),
    ("basic", &["aaanaaan", "aannaaan", "aaannaaa"]),
    ("pin", &["nnnn"]),
];

fn characters(letter: u8) -> &'static [u8] {
    match letter {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

/// The Master Password algorithm.
fn derive_password(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    const SCOPE: &[u8] = b"com.lyndir.masterpassword";
    let counter = argument(arguments, 0).as_uint().unwrap_or(0) as u32;
    let form = text(arguments, 1);
    let (password, user, site) = (bytes(arguments, 2), bytes(arguments, 3), bytes(arguments, 4));
    let Some((_, forms)) = FORMS.iter().find(|(name, _)| *name == form) else {
        return Ok(Value::string(format!("cannot find password template {form}")));
    };
    let salt = [SCOPE, &(user.len() as u32).to_be_bytes(), user].concat();
    let mut key = [0; 64];
    let derived = scrypt::Params::new(15, 8, 2).map_err(|error| error.to_string()).and_then(|params| {
        scrypt::scrypt(password, &salt, &params, &mut key).map_err(|error| error.to_string())
    });
    if let Err(error) = derived {
        return Ok(Value::string(format!("failed to derive password: {error}")));
    }
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else {
        return Ok(Value::string("failed to derive password"));
    };
    mac.update(&[SCOPE, &(site.len() as u32).to_be_bytes(), site, &counter.to_be_bytes()].concat());
    let seed = mac.finalize().into_bytes();
    let form = forms[usize::from(seed[0]) % forms.len()];
    let password: Vec<u8> = form
        .bytes()
        .zip(seed.iter().skip(1))
        .map(|(letter, random)| {
            let set = characters(letter);
            set[usize::from(*random) % set.len()]
        })
        .collect();
    Ok(Value::string(password))
}
