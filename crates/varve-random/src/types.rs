//! The types of columns, and values for them: few ordinary ones, so that keys meet, and the odd ones.

use fastrand::Rng;

pub fn any<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(..of.len())]
}

/// True in one of so many cases.
pub fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(..n) == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Signed,
    Unsigned,
    Zerofill,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// By width in bytes.
    Int(u8, Sign),
    Decimal(u8, u8, Sign),
    Float,
    Double,
    Bit(u8),
    Char(u8),
    Varchar(u16),
    /// By size: tiny, ordinary, medium, long.
    Text(u8),
    Binary(u8),
    Varbinary(u16),
    Blob(u8),
    Enum,
    Set,
    Date,
    /// With so many digits of a second's fraction.
    Time(u8),
    Datetime(u8),
    Timestamp(u8),
    Year,
    Inet4,
    Inet6,
    Uuid,
    Json,
    Geometry,
}

/// What can be compared without a conversion that warns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Number,
    Text,
    Bytes,
    Moment,
    TimeOfDay,
    Other,
}

/// They look at accents after all letters: beginnings of texts have another order.
const LEVELS: [&str; 4] = [
    "utf8mb4_uca1400_as_cs",
    "latin2_czech_cs",
    "cp1250_czech_cs",
    "utf8mb4_thai_520_w2",
];

/// Of a CHAR without padding InnoDB and the server's sorts take the spaces behind into account.
pub fn is_odd_char(kind: &Type, collation: Option<&str>) -> bool {
    matches!(kind, Type::Char(_)) && collation.is_some_and(|name| name.contains("nopad"))
}

pub fn has_levels(collation: Option<&str>) -> bool {
    collation.is_some_and(|name| LEVELS.contains(&name))
}

/// Not tis620_thai_nopad_ci: for the server a text and the same with zero bytes behind are equal there, an
/// index of Varve's keeps them apart.
pub const COLLATIONS: [&str; 47] = [
    "latin1_swedish_ci",
    "latin1_bin",
    "latin1_general_cs",
    "latin1_german2_ci",
    "ascii_general_ci",
    "utf8mb3_general_ci",
    "utf8mb4_general_ci",
    "utf8mb4_general_nopad_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_bin",
    "utf8mb4_nopad_bin",
    "utf8mb4_czech_ci",
    "utf8mb4_uca1400_ai_ci",
    LEVELS[0],
    "utf8mb4_uca1400_nopad_ai_ci",
    "ucs2_general_ci",
    "utf16_unicode_ci",
    LEVELS[1],
    LEVELS[2],
    "big5_chinese_ci",
    "gbk_chinese_ci",
    "gb2312_chinese_ci",
    "sjis_japanese_ci",
    "cp932_japanese_nopad_ci",
    "ujis_japanese_ci",
    "eucjpms_bin",
    "euckr_korean_ci",
    "tis620_thai_ci",
    "cp1251_bulgarian_ci",
    "cp1251_general_cs",
    "koi8r_general_ci",
    "greek_general_ci",
    "hebrew_bin",
    "cp1257_lithuanian_ci",
    "latin5_turkish_ci",
    "latin7_general_cs",
    "cp852_general_ci",
    "swe7_swedish_ci",
    "utf16le_general_ci",
    "utf32_unicode_ci",
    "utf32_general_nopad_ci",
    "utf8mb4_turkish_ci",
    "utf8mb4_danish_ci",
    LEVELS[3],
    "utf8mb4_myanmar_ci",
    "utf8mb3_unicode_nopad_ci",
];

const TEXTS: [&str; 34] = [
    "", "a", "A", "b", "ab", "aB", "abc", "abcd", "a ", "a\t", " a", "ä", "Á", "ß", "ss", "ch",
    "z", "zz", "x_y", "0", "10", "é", "бв", "日本", "Я", "α", "ñ", "ll", "i", "I", "ı", "aa", "เก",
    "한",
];
const DATES: [&str; 9] = [
    "2024-02-29",
    "2024-03-01",
    "2000-01-01",
    "1999-12-31",
    "1971-06-15",
    "2037-12-31",
    "2024-03-01",
    "9999-12-31",
    "0000-00-00",
];
const TIMES: [&str; 6] = [
    "00:00:00",
    "23:59:59",
    "12:30:15.123456",
    "12:30:15",
    "01:02:03.5",
    "12:30:15.999999",
];

fn sized(prefix: &[&str; 4], size: u8) -> String {
    prefix[usize::from(size)].to_string()
}

impl Type {
    pub fn draw(rng: &mut Rng) -> Type {
        let sign = *any(
            rng,
            &[Sign::Signed, Sign::Signed, Sign::Unsigned, Sign::Zerofill],
        );
        match rng.u32(..35) {
            0..8 => Type::Int(*any(rng, &[1, 2, 3, 4, 4, 8]), sign),
            8 => Type::Decimal(*any(rng, &[5, 10, 38]), *any(rng, &[0, 2, 5]), sign),
            9 => Type::Float,
            10 => Type::Double,
            11 => Type::Bit(*any(rng, &[1, 7, 8, 33, 64])),
            12..15 => Type::Char(*any(rng, &[1, 3, 10, 40])),
            15..20 => Type::Varchar(*any(rng, &[1, 5, 20, 60, 300])),
            20..22 => Type::Text(rng.u8(..4)),
            22 => Type::Binary(*any(rng, &[1, 4, 16])),
            23 => Type::Varbinary(*any(rng, &[3, 16, 300])),
            24 => Type::Blob(rng.u8(..4)),
            25 => Type::Enum,
            26 => Type::Set,
            27 => Type::Date,
            28 => Type::Time(*any(rng, &[0, 3, 6])),
            29 => Type::Datetime(*any(rng, &[0, 1, 6])),
            30 => Type::Timestamp(*any(rng, &[0, 2, 6])),
            31 => Type::Year,
            32 => any(rng, &[Type::Inet4, Type::Inet6, Type::Uuid]).clone(),
            33 => Type::Json,
            _ => Type::Geometry,
        }
    }

    pub fn sql(&self) -> String {
        let signed = |name: String, sign: &Sign| match sign {
            Sign::Signed => name,
            Sign::Unsigned => name + " UNSIGNED",
            Sign::Zerofill => name + " UNSIGNED ZEROFILL",
        };
        let fraction = |name: &str, digits: u8| match digits {
            0 => name.to_string(),
            digits => format!("{name}({digits})"),
        };
        match self {
            Type::Int(bytes, sign) => {
                let name = match bytes {
                    1 => "TINYINT",
                    2 => "SMALLINT",
                    3 => "MEDIUMINT",
                    4 => "INT",
                    _ => "BIGINT",
                };
                signed(name.into(), sign)
            }
            Type::Decimal(digits, scale, sign) => {
                signed(format!("DECIMAL({digits},{scale})"), sign)
            }
            Type::Float => "FLOAT".into(),
            Type::Double => "DOUBLE".into(),
            Type::Bit(n) => format!("BIT({n})"),
            Type::Char(n) => format!("CHAR({n})"),
            Type::Varchar(n) => format!("VARCHAR({n})"),
            Type::Text(size) => sized(&["TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"], *size),
            Type::Binary(n) => format!("BINARY({n})"),
            Type::Varbinary(n) => format!("VARBINARY({n})"),
            Type::Blob(size) => sized(&["TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"], *size),
            Type::Enum => "ENUM('a','b','zz','')".into(),
            Type::Set => "SET('a','b','zz','q')".into(),
            Type::Date => "DATE".into(),
            Type::Time(digits) => fraction("TIME", *digits),
            Type::Datetime(digits) => fraction("DATETIME", *digits),
            Type::Timestamp(digits) => fraction("TIMESTAMP", *digits),
            Type::Year => "YEAR".into(),
            Type::Inet4 => "INET4".into(),
            Type::Inet6 => "INET6".into(),
            Type::Uuid => "UUID".into(),
            Type::Json => "JSON".into(),
            Type::Geometry => "GEOMETRY".into(),
        }
    }

    pub fn has_collation(&self) -> bool {
        matches!(
            self,
            Type::Char(_) | Type::Varchar(_) | Type::Text(_) | Type::Enum | Type::Set
        )
    }

    pub fn can_be_compressed(&self) -> bool {
        matches!(
            self,
            Type::Varchar(_) | Type::Text(_) | Type::Varbinary(_) | Type::Blob(_)
        )
    }

    /// Goes into an index only by its beginning.
    pub fn needs_prefix(&self) -> bool {
        matches!(
            self,
            Type::Text(_) | Type::Blob(_) | Type::Json | Type::Geometry
        )
    }

    /// The longest prefix that an index may have, for those that may have one.
    pub fn prefix_max(&self) -> Option<u16> {
        match self {
            Type::Char(n) | Type::Binary(n) => Some((*n).into()),
            Type::Varchar(n) | Type::Varbinary(n) => Some(*n),
            Type::Text(0) | Type::Blob(0) => Some(60),
            Type::Text(_) | Type::Blob(_) | Type::Json | Type::Geometry => Some(100),
            _ => None,
        }
    }

    pub fn family(&self) -> Family {
        match self {
            Type::Int(..) | Type::Decimal(..) | Type::Float | Type::Double | Type::Year => {
                Family::Number
            }
            Type::Bit(_) => Family::Number,
            Type::Char(_) | Type::Varchar(_) | Type::Text(_) | Type::Json => Family::Text,
            Type::Enum | Type::Set => Family::Other,
            Type::Binary(_) | Type::Varbinary(_) | Type::Blob(_) => Family::Bytes,
            Type::Date | Type::Datetime(_) | Type::Timestamp(_) => Family::Moment,
            Type::Time(_) => Family::TimeOfDay,
            Type::Inet4 | Type::Inet6 | Type::Uuid | Type::Geometry => Family::Other,
        }
    }

    /// Arithmetic on it is exact, and the same in whichever order.
    pub fn is_exact(&self) -> bool {
        matches!(self, Type::Int(..) | Type::Decimal(..) | Type::Year)
    }

    /// Its values are distinct if and only if they are shown differently.
    pub fn is_shown_whole(&self) -> bool {
        self.is_exact()
            || matches!(
                self.family(),
                Family::Moment | Family::TimeOfDay | Family::Bytes
            )
    }

    /// A literal that the type takes.
    pub fn value(&self, rng: &mut Rng) -> String {
        match self {
            Type::Int(bytes, sign) => int(rng, *bytes, *sign),
            Type::Decimal(digits, scale, sign) => decimal(rng, digits - scale, *scale, *sign),
            Type::Float | Type::Double => {
                any(rng, &["0", "1", "-1", "0.5", "1.5e10", "-2.25", "3e-5"]).to_string()
            }
            Type::Bit(n) => match rng.u32(..3) {
                0 => "b'0'".into(),
                1 => "b'1'".into(),
                _ => format!("b'{}'", "1".repeat(rng.usize(1..=usize::from(*n)))),
            },
            Type::Char(n) => word(rng, (*n).into()),
            Type::Varchar(n) => word(rng, (*n).into()),
            Type::Text(0) => word(rng, 60),
            Type::Text(_) => long(rng, "REPEAT('ab', ", word),
            Type::Binary(n) => bytes(rng, (*n).into()),
            Type::Varbinary(n) => bytes(rng, (*n).into()),
            Type::Blob(0) => bytes(rng, 60),
            Type::Blob(_) => long(rng, "REPEAT(x'ff00', ", bytes),
            Type::Enum => any(rng, &["'a'", "'b'", "'zz'", "''", "1", "2"]).to_string(),
            Type::Set => any(rng, &["'a'", "'b'", "'a,b'", "''", "'zz,q'", "3", "15"]).to_string(),
            Type::Date => format!("'{}'", date(rng)),
            Type::Time(_) => match one_in(rng, 4) {
                true => any(rng, &["'-10:00:00'", "'838:59:59'", "'100:00:00.25'"]).to_string(),
                false => format!("'{}'", any(rng, &TIMES)),
            },
            Type::Datetime(_) => format!("'{} {}'", date(rng), any(rng, &TIMES)),
            // Within its range, in any zone.
            Type::Timestamp(_) => format!("'{} {}'", any(rng, &DATES[..5]), any(rng, &TIMES)),
            Type::Year => any(rng, &["2024", "1999", "1901", "2155", "0", "2000"]).to_string(),
            Type::Inet4 => any(
                rng,
                &["'0.0.0.0'", "'10.0.0.1'", "'255.255.255.255'", "'10.0.1.0'"],
            )
            .to_string(),
            Type::Inet6 => any(
                rng,
                &["'::'", "'::1'", "'2001:db8::ff'", "'::ffff:10.0.0.1'"],
            )
            .to_string(),
            Type::Uuid => format!(
                "'{:08x}-0000-{}000-8000-00000000000{}'",
                rng.u32(..4),
                any(rng, &["1", "4"]),
                rng.u32(..3)
            ),
            Type::Geometry => match one_in(rng, 4) {
                true => format!("ST_GeomFromText('LINESTRING(0 0, {} 1)')", rng.u32(..3)),
                false => format!("POINT({}, {})", rng.u32(..3), rng.u32(..2)),
            },
            Type::Json => any(
                rng,
                &[
                    "'{}'",
                    "'[1,2]'",
                    "'{\"a\": 1}'",
                    "'\"x\"'",
                    "'null'",
                    "'7'",
                ],
            )
            .to_string(),
        }
    }

    /// Now and then one that it does not take, or only cut, rounded or converted.
    pub fn odd_value(&self, rng: &mut Rng) -> String {
        let of_any = [
            "-1",
            "99999999999999999999",
            "'abcdefghijklmnopqrstuvwxyz0123456789abcdefghij'",
        ];
        let more = [
            "''",
            "'x'",
            "1.5",
            "'2024-02-30'",
            "'😀'",
            "_latin1 x'e4'",
            "NULL",
            "300",
            "'12'",
        ];
        match one_in(rng, 3) {
            true => any(rng, &of_any).to_string(),
            false => any(rng, &more).to_string(),
        }
    }
}

fn date(rng: &mut Rng) -> String {
    match one_in(rng, 3) {
        true => any(rng, &DATES).to_string(),
        false => format!("2024-0{}-1{}", rng.u32(1..4), rng.u32(..3)),
    }
}

fn int(rng: &mut Rng, bytes: u8, sign: Sign) -> String {
    let bits = u32::from(bytes) * 8;
    if rng.u32(..8) > 0 {
        return rng.u32(..24).to_string();
    }
    match (sign, rng.bool()) {
        (Sign::Signed, true) => (-(1i128 << (bits - 1)) + i128::from(rng.u8(..2))).to_string(),
        (Sign::Signed, false) => match rng.bool() {
            true => ((1i128 << (bits - 1)) - 1).to_string(),
            false => format!("-{}", rng.u32(1..10)),
        },
        (_, true) => ((1i128 << bits) - 1).to_string(),
        (_, false) => (1i128 << (bits - 1)).to_string(),
    }
}

fn decimal(rng: &mut Rng, before: u8, after: u8, sign: Sign) -> String {
    let minus = if sign == Sign::Signed && one_in(rng, 3) {
        "-"
    } else {
        ""
    };
    match one_in(rng, 8) {
        true => format!("{minus}{}", "9".repeat(before.max(1).into())),
        false if after > 0 => format!("{minus}{}.{}", rng.u32(..10), rng.u32(..10)),
        false => format!("{minus}{}", rng.u32(..20)),
    }
}

fn word(rng: &mut Rng, length: usize) -> String {
    let mut text = String::new();
    for _ in 0..*any(rng, &[1, 1, 1, 2, 3, 20]) {
        let piece = match one_in(rng, 4) {
            true => *any(rng, &TEXTS),
            // Letters that all character sets have.
            false => *any(rng, &TEXTS[..11]),
        };
        if text.chars().count() + piece.chars().count() <= length {
            text += piece;
        }
    }
    format!("'{text}'")
}

fn bytes(rng: &mut Rng, length: usize) -> String {
    let most = length.min(*any(rng, &[2, 2, 5, 40]));
    let n = rng.usize(..=most);
    let hex: String = (0..n)
        .map(|_| *any(rng, &["00", "20", "41", "61", "ff", "80"]))
        .collect();
    format!("x'{hex}'")
}

/// Mostly short; some lie on pages of their own.
fn long(rng: &mut Rng, repeat: &str, short: fn(&mut Rng, usize) -> String) -> String {
    match one_in(rng, 8) {
        true => format!(
            "{repeat}{})",
            any(rng, &[100, 384, 400, 2000, 9000, 20_000])
        ),
        false => short(rng, 60),
    }
}
