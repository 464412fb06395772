//! Numbers as clients write them: in decimal digits, maybe with a sign.

/// A number without a sign.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    u32::try_from(unsigned(text)?).ok()
}

pub fn signed(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let number = i64::try_from(unsigned(digits)?).ok()?;
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_with_a_sign() {
        for (text, number) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("+12", Some(12)),
            ("-12", Some(-12)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("--1", None),
            ("1x", None),
            (" 1", None),
        ] {
            assert_eq!(signed(text.as_bytes()), number, "{text:?}");
            let positive = number.and_then(|n| u64::try_from(n).ok());
            if text != "9223372036854775808" {
                assert_eq!(unsigned(text.as_bytes()), positive, "{text:?}");
            }
        }
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned_32(b"4294967295"), Some(u32::MAX));
        assert_eq!(unsigned_32(b"4294967296"), None);
    }
}
