//! Quantities as people read them.

use std::time::Duration;

/// In the units that one would say it in: `12 s`, `2 min 5 s`, `28 min`, `1 h 3 min`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) if m < 5 && s > 0 => format!("{m} min {s} s"),
        (0, m, _) => format!("{m} min"),
        (h, 0, _) => format!("{h} h"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// In powers of 1024: `37 MiB`, `1.2 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (bits, unit) in UNITS {
        let value = bytes as f64 / f64::from(1_u32 << bits);
        if value >= 10.0 {
            return format!("{value:.0} {unit}");
        }
        if value >= 1.0 {
            return format!("{value:.1} {unit}");
        }
    }
    format!("{bytes} bytes")
}

/// With commas between thousands.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
