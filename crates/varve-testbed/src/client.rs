//! SQL over a server's socket: the part of the client protocol that tests need, so that a transaction's
//! fate is known exactly.
//!
//! Connects as root without a password, sends text queries, reads text results. No TLS, no prepared
//! statements, no packets of 16 MiB or more.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than any statement of ours takes, shorter than anybody waits.
const READ_TIMEOUT: Duration = Duration::from_secs(600);

const PROTOCOL_41: u32 = 1 << 9;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;
const UTF8MB4_GENERAL_CI: u8 = 45;
const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;
const COM_RESET_CONNECTION: u8 = 31;

#[derive(Debug)]
pub enum SqlError {
    /// The server answered with an error.
    Server { code: u16, message: String },
    /// The connection broke: what the statement did is unknown.
    Lost(io::Error),
}

impl SqlError {
    /// Deadlock, lock wait timeout, or a snapshot too old to write with: the transaction may be tried again.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Server {
                code: 1205 | 1213 | 1020,
                ..
            }
        )
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { code, message } => write!(f, "error {code}: {message}"),
            Self::Lost(error) => write!(f, "connection lost: {error}"),
        }
    }
}

impl std::error::Error for SqlError {}

impl From<io::Error> for SqlError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

pub type SqlResult<T> = Result<T, SqlError>;

/// A row of text values; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// All that the server says to a statement that succeeds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Answer {
    /// `None` for a statement without a result. Values are bytes; `None` is NULL.
    pub rows: Option<Vec<Vec<Option<Vec<u8>>>>>,
    pub affected: u64,
    pub last_insert_id: u64,
    /// How many there are; `SHOW WARNINGS` has their texts.
    pub warnings: u16,
    pub info: String,
}

impl Answer {
    /// Its rows in a line: values with commas between them, rows with blanks.
    pub fn rows_text(&self) -> String {
        let value = |value: &Option<Vec<u8>>| match value {
            Some(value) => String::from_utf8_lossy(value).into_owned(),
            None => "NULL".into(),
        };
        let row = |row: &Vec<_>| row.iter().map(value).collect::<Vec<_>>().join(",");
        let rows = self.rows.iter().flatten();
        rows.map(row).collect::<Vec<_>>().join(" ")
    }
}

pub struct Client {
    /// Read through a buffer: an answer is many small packets.
    stream: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(socket: &Path) -> SqlResult<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let mut client = Self {
            stream: BufReader::new(stream),
        };
        let (sequence, greeting) = client.read_packet()?;
        check_error(&greeting)?;
        client.write_packet(sequence + 1, &login())?;
        let (_, answer) = client.read_packet()?;
        check_error(&answer)?;
        match answer.first() {
            Some(0) => Ok(client),
            _ => Err(malformed(
                "the server wants another authentication than root's empty password",
            )),
        }
    }

    /// Runs one statement and returns its rows, none for a statement without a result.
    pub fn query(&mut self, sql: &str) -> SqlResult<Vec<Row>> {
        self.send(sql)?;
        let rows = self.receive()?.rows.unwrap_or_default();
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let row = |row: Vec<Option<Vec<u8>>>| row.into_iter().map(|v| v.map(text)).collect();
        Ok(rows.into_iter().map(row).collect())
    }

    /// Sends a statement, whose answer is to be received before the next one.
    pub fn send(&mut self, sql: &str) -> SqlResult<()> {
        let mut packet = vec![COM_QUERY];
        packet.extend_from_slice(sql.as_bytes());
        Ok(self.write_packet(0, &packet)?)
    }

    /// Waits for what the server says to the statement that was sent last.
    pub fn receive(&mut self) -> SqlResult<Answer> {
        let (_, head) = self.read_packet()?;
        check_error(&head)?;
        if head.first() == Some(&0) {
            return ok_packet(&head);
        }
        let columns = Reader(&head)
            .length()?
            .ok_or_else(|| malformed("no column count"))?;
        for _ in 0..columns {
            self.read_packet()?;
        }
        self.read_packet()?;
        let mut rows = Vec::new();
        loop {
            let (_, packet) = self.read_packet()?;
            check_error(&packet)?;
            if packet.first() == Some(&0xfe) && packet.len() < 9 {
                let warnings = Reader(&packet[1..]).short()?;
                return Ok(Answer {
                    rows: Some(rows),
                    warnings,
                    ..Answer::default()
                });
            }
            let mut reader = Reader(&packet);
            rows.push(
                (0..columns)
                    .map(|_| reader.bytes())
                    .collect::<SqlResult<_>>()?,
            );
        }
    }

    /// Makes the connection like a new one: no transaction, no temporary tables, variables as they were.
    pub fn reset(&mut self) -> SqlResult<()> {
        self.write_packet(0, &[COM_RESET_CONNECTION])?;
        let (_, answer) = self.read_packet()?;
        check_error(&answer)
    }

    /// The single value of a query that has one.
    pub fn value(&mut self, sql: &str) -> SqlResult<String> {
        let rows = self.query(sql)?;
        match rows.as_slice() {
            [row] if row.len() == 1 => Ok(row[0].clone().unwrap_or_default()),
            _ => Err(malformed(&format!("expected one value from {sql}"))),
        }
    }

    fn read_packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        let mut packet = vec![0; length];
        self.stream.read_exact(&mut packet)?;
        Ok((head[3], packet))
    }

    fn write_packet(&mut self, sequence: u8, body: &[u8]) -> io::Result<()> {
        assert!(body.len() < 0xff_ffff, "statements are short");
        let mut packet = (body.len() as u32).to_le_bytes();
        packet[3] = sequence;
        self.stream.get_mut().write_all(&[&packet, body].concat())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server also notices a closed socket; saying so only spares its log a line.
        let _ = self.write_packet(0, &[COM_QUIT]);
    }
}

fn login() -> Vec<u8> {
    let capabilities = PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;
    let mut packet = capabilities.to_le_bytes().to_vec();
    packet.extend((1u32 << 24).to_le_bytes());
    packet.push(UTF8MB4_GENERAL_CI);
    packet.extend([0; 23]);
    packet.extend(b"root\0");
    packet.push(0); // The answer to the challenge is empty, as the password is.
    packet.extend(b"mysql_native_password\0");
    packet
}

fn check_error(packet: &[u8]) -> SqlResult<()> {
    match packet {
        [0xff, low, high, rest @ ..] => {
            let message = rest
                .strip_prefix(b"#")
                .map_or(rest, |rest| rest.get(5..).unwrap_or(b""));
            let message = String::from_utf8_lossy(message).into_owned();
            Err(SqlError::Server {
                code: u16::from_le_bytes([*low, *high]),
                message,
            })
        }
        _ => Ok(()),
    }
}

fn ok_packet(packet: &[u8]) -> SqlResult<Answer> {
    let mut reader = Reader(packet);
    reader.take(1)?;
    let mut number = || -> SqlResult<u64> {
        let number = reader.length()?;
        Ok(number.ok_or_else(|| malformed("no number"))? as u64)
    };
    let (affected, last_insert_id) = (number()?, number()?);
    reader.short()?;
    Ok(Answer {
        rows: None,
        affected,
        last_insert_id,
        warnings: reader.short()?,
        info: reader.message(),
    })
}

fn malformed(what: &str) -> SqlError {
    SqlError::Lost(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Reads length-encoded values off a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> SqlResult<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(n)
            .ok_or_else(|| malformed("packet too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// `None` is the mark of NULL.
    fn length(&mut self) -> SqlResult<Option<usize>> {
        let width = match self.take(1)?[0] {
            0xfb => return Ok(None),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            small => return Ok(Some(small.into())),
        };
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width)?);
        Ok(Some(u64::from_le_bytes(bytes) as usize))
    }

    /// The rest of an OK packet, which begins with its length in some versions of the protocol.
    fn message(self) -> String {
        let rest = match self.0 {
            [n, rest @ ..] if usize::from(*n) == rest.len() => rest,
            rest => rest,
        };
        String::from_utf8_lossy(rest).into_owned()
    }

    fn short(&mut self) -> SqlResult<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn bytes(&mut self) -> SqlResult<Option<Vec<u8>>> {
        match self.length()? {
            Some(n) => Ok(Some(self.take(n)?.to_vec())),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_text_null_and_long_values() {
        let long = "x".repeat(300);
        let mut packet = b"\x02ab\xfb\xfc\x2c\x01".to_vec();
        packet.extend(long.as_bytes());
        let mut reader = Reader(&packet);
        assert_eq!(reader.bytes().unwrap(), Some(b"ab".to_vec()));
        assert_eq!(reader.bytes().unwrap(), None);
        assert_eq!(reader.bytes().unwrap(), Some(long.into()));
        assert!(reader.bytes().is_err(), "nothing is left");
    }

    #[test]
    fn an_ok_packet_counts() {
        let packet = b"\x00\xfc\x2c\x01\x07\x02\x00\x03\x00\x04done";
        let expected = Answer {
            affected: 300,
            last_insert_id: 7,
            warnings: 3,
            info: "done".into(),
            ..Answer::default()
        };
        assert_eq!(ok_packet(packet).unwrap(), expected);
    }

    #[test]
    fn an_error_packet_says_code_and_message() {
        let error = check_error(b"\xff\xbd\x04#40001Deadlock found").unwrap_err();
        assert!(error.is_conflict(), "{error}");
        assert_eq!(error.to_string(), "error 1213: Deadlock found");
        assert!(check_error(b"\x00\x00").is_ok());
    }
}
