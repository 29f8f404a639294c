//! Base64 and base32 with Go's strictness and error texts.

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Standard base64 with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    encode_with(bytes, BASE64, 6, 4)
}

/// Standard base32 with padding.
pub(crate) fn encode32(bytes: &[u8]) -> String {
    encode_with(bytes, BASE32, 5, 8)
}

fn encode_with(bytes: &[u8], alphabet: &[u8], bits: u32, block: usize) -> String {
    let mut out = String::with_capacity(bytes.len() * 8 / bits as usize + block);
    let mut buffer: u32 = 0;
    let mut filled = 0;
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        filled += 8;
        while filled >= bits {
            filled -= bits;
            let index = (buffer >> filled) as usize & (alphabet.len() - 1);
            out.push(char::from(alphabet[index]));
        }
        buffer &= (1 << filled) - 1;
    }
    if filled > 0 {
        let index = (buffer << (bits - filled)) as usize & (alphabet.len() - 1);
        out.push(char::from(alphabet[index]));
    }
    while !out.len().is_multiple_of(block) {
        out.push('=');
    }
    out
}

/// Reads standard base64; line breaks are skipped, padding is required.
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    decode_with(text, BASE64, 6, 4, "base64")
}

/// Reads standard base32; line breaks are skipped, padding is required.
pub(crate) fn decode32(text: &[u8]) -> Result<Vec<u8>, String> {
    decode_with(text, BASE32, 5, 8, "base32")
}

fn decode_with(text: &[u8], alphabet: &[u8], bits: u32, block: usize, name: &str) -> Result<Vec<u8>, String> {
    let corrupt = |at: usize| format!("illegal {name} data at input byte {at}");
    let is_break = |byte: u8| byte == b'\n' || byte == b'\r';
    let mut out = Vec::with_capacity(text.len() * bits as usize / 8);
    let mut position = 0;
    loop {
        // One block of characters, fewer only if padding ends the text.
        let mut buffer: u64 = 0;
        let mut count = 0;
        let mut ended = false;
        while count < block {
            while text.get(position).is_some_and(|byte| is_break(*byte)) {
                position += 1;
            }
            let Some(byte) = text.get(position).copied() else {
                if count == 0 {
                    return Ok(out);
                }
                return Err(corrupt(position - count));
            };
            if let Some(value) = alphabet.iter().position(|candidate| *candidate == byte) {
                position += 1;
                buffer = buffer << bits | value as u64;
                count += 1;
                continue;
            }
            if byte != b'=' {
                return Err(corrupt(position));
            }
            let valid: &[usize] = if block == 4 { &[2, 3] } else { &[2, 4, 5, 7] };
            if !valid.contains(&count) {
                return Err(corrupt(position));
            }
            let mut missing = block - count;
            while missing > 0 {
                while text.get(position).is_some_and(|byte| is_break(*byte)) {
                    position += 1;
                }
                match text.get(position) {
                    Some(b'=') => position += 1,
                    Some(_) => return Err(corrupt(position - 1)),
                    None => return Err(corrupt(text.len())),
                }
                missing -= 1;
            }
            while text.get(position).is_some_and(|byte| is_break(*byte)) {
                position += 1;
            }
            if position < text.len() {
                return Err(corrupt(position));
            }
            ended = true;
            break;
        }
        let total = count as u32 * bits;
        let bytes = total / 8;
        for index in (0..bytes).rev() {
            out.push((buffer >> (total - bytes * 8 + index * 8)) as u8);
        }
        if ended {
            return Ok(out);
        }
    }
}
