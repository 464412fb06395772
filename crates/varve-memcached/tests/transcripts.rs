//! What clients send, and what they are answered: as memcached 1.6.18 does, byte by byte, but the flags `E`
//! and `x`, which are of a later version. Each transcript is sent to a server of its own, all at once and
//! byte by byte: answers come in order, and each request sees what those before it did (MC-2).

mod common;

use common::{Server, answers_to, binary};

/// Sent, and answered.
type Row = (&'static str, &'static str);

#[track_caller]
fn check(rows: &[Row]) {
    let (mut sent, mut expected) = (String::new(), String::new());
    for (request, answer) in rows {
        sent.push_str(request);
        expected.push_str(answer);
    }
    let whole = answers_to(&Server::start(), sent.as_bytes());
    let whole = String::from_utf8_lossy(&whole).into_owned();
    if whole != expected {
        // Which one it is.
        let server = Server::start();
        for (request, answer) in rows {
            let got = answers_to(&server, request.as_bytes());
            assert_eq!(String::from_utf8_lossy(&got), *answer, "to {request:?}");
        }
        assert_eq!(whole, expected, "MC-2: all at once");
    }
    let server = Server::start();
    let slowly = server.answers_byte_by_byte(sent.as_bytes());
    assert_eq!(
        String::from_utf8_lossy(&slowly),
        expected,
        "MC-2: byte by byte"
    );
}

#[test]
fn values_are_stored_and_read() {
    check(&[
        ("get a\r\n", "END\r\n"),
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("set b 4294967295 0 0\r\n\r\n", "STORED\r\n"),
        (
            "get b x  a\r\n",
            "VALUE b 4294967295 0\r\n\r\nVALUE a 5 3\r\nabc\r\nEND\r\n",
        ),
        ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("add c 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("replace d 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace c 1 0 2\r\nyz\r\n", "STORED\r\n"),
        ("append c 9 0 1\r\n!\r\n", "STORED\r\n"),
        ("prepend c 9 0 1\r\n<\r\n", "STORED\r\n"),
        ("append d 9 0 1\r\n!\r\n", "NOT_STORED\r\n"),
        ("get c\r\n", "VALUE c 1 4\r\n<yz!\r\nEND\r\n"),
        ("set n 0 0 2 noreply\r\n10\r\n", ""),
        ("set crlf 0 0 4\r\n\r\n\r\n\r\n", "STORED\r\n"),
        ("get crlf\r\n", "VALUE crlf 0 4\r\n\r\n\r\n\r\nEND\r\n"),
        ("delete a\r\n", "DELETED\r\n"),
        ("delete a\r\n", "NOT_FOUND\r\n"),
        ("delete b 0\r\n", "DELETED\r\n"),
        ("delete c noreply\r\n", ""),
        ("get a b c n\r\n", "VALUE n 0 2\r\n10\r\nEND\r\n"),
        ("get a\n", "END\r\n"),
    ]);
}

#[test]
fn numbers_are_counted() {
    check(&[
        ("incr n 1\r\n", "NOT_FOUND\r\n"),
        ("set n 7 0 2\r\n10\r\n", "STORED\r\n"),
        ("decr n 1\r\n", "9\r\n"),
        ("get n\r\n", "VALUE n 7 2\r\n9 \r\nEND\r\n"),
        ("incr n 1\r\n", "10\r\n"),
        ("decr n 100\r\n", "0\r\n"),
        (
            "incr n 18446744073709551615\r\n",
            "18446744073709551615\r\n",
        ),
        ("incr n 1\r\n", "0\r\n"),
        ("incr n 5 noreply\r\n", ""),
        ("incr n 0\r\n", "5\r\n"),
        (
            "incr n x\r\n",
            "CLIENT_ERROR invalid numeric delta argument\r\n",
        ),
        (
            "incr n -1\r\n",
            "CLIENT_ERROR invalid numeric delta argument\r\n",
        ),
        ("set t 0 0 1\r\nx\r\n", "STORED\r\n"),
        (
            "incr t 1\r\n",
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
    ]);
}

#[test]
fn items_end() {
    check(&[
        ("set a 0 -1 1\r\nx\r\n", "STORED\r\n"),
        ("get a\r\n", "END\r\n"),
        ("add a 0 100 1\r\ny\r\n", "STORED\r\n"),
        ("touch a 200\r\n", "TOUCHED\r\n"),
        ("touch b 200\r\n", "NOT_FOUND\r\n"),
        ("touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ("gat 100 a b\r\n", "VALUE a 0 1\r\ny\r\nEND\r\n"),
        ("gat x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ("touch a 0\r\n", "TOUCHED\r\n"),
        ("mg a t\r\n", "HD t-1\r\n"),
        ("gat -1 a\r\n", "VALUE a 0 1\r\ny\r\nEND\r\n"),
        ("get a\r\n", "END\r\n"),
        ("set b 0 0 1\r\nz\r\n", "STORED\r\n"),
        ("flush_all 1000\r\n", "OK\r\n"),
        ("get b\r\n", "VALUE b 0 1\r\nz\r\nEND\r\n"),
        ("flush_all noreply\r\n", ""),
        ("get b\r\n", "END\r\n"),
        (
            "flush_all x\r\n",
            "CLIENT_ERROR invalid exptime argument\r\n",
        ),
    ]);
}

/// A `gat` has as many keys as the line holds.
#[test]
fn many_keys_are_touched() {
    let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    let mut said: String = keys
        .iter()
        .map(|key| format!("set {key} 0 0 1 noreply\r\nx\r\n"))
        .collect();
    said.push_str(&format!("gat 1000 {}\r\n", keys.join(" ")));
    let answers = answers_to(&Server::start(), said.as_bytes());
    let items = String::from_utf8(answers).unwrap().matches("VALUE").count();
    assert_eq!(items, 100);
}

/// The first byte decides which protocol a connection speaks (MC-5).
#[test]
fn a_connection_speaks_one_protocol() {
    let server = Server::start();
    let noop = binary::request(0x0a, 0, &[], "", "");
    // The second byte of the packet ends a line.
    let mixed = [b"mn\r\n", &noop[..], b"\r\nmn\r\n"].concat();
    assert_eq!(
        answers_to(&server, &mixed),
        b"MN\r\nERROR\r\nERROR\r\nMN\r\n",
        "MC-5"
    );
    let mixed = [&noop[..], b"version\r\nand so on until it is a head"].concat();
    assert_eq!(
        binary::answers(&answers_to(&server, &mixed)).len(),
        1,
        "MC-5"
    );
}

/// Bad requests are answered by name, and the next one is understood (MC-5).
#[test]
fn bad_requests_are_answered() {
    const FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
    let key = "k".repeat(250);
    let long = "k".repeat(251);
    let leak = |text: String| -> &'static str { text.leak() };
    let bad = |request: String| (leak(request), FORMAT);
    check(&[
        ("\r\n", "ERROR\r\n"),
        ("nonsense a b\r\n", "ERROR\r\n"),
        ("get\r\n", "ERROR\r\n"),
        ("gets  \r\n", "ERROR\r\n"),
        ("set a 0 0\r\n", "ERROR\r\n"),
        ("set a x 0 1\r\n", FORMAT),
        ("set a 0 x 1\r\n", FORMAT),
        ("set a 0 0 x\r\n", FORMAT),
        ("set a 0 0 -1\r\n", FORMAT),
        ("set a 4294967296 0 1\r\n", FORMAT),
        ("set a 0 0 99999999999\r\n", FORMAT),
        ("cas a 0 0 1 x\r\n", FORMAT),
        ("set a 0 0 1\r\nxyz", "CLIENT_ERROR bad data chunk\r\n"),
        (
            "delete a 60\r\n",
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
        ),
        (leak(format!("set {key} 0 0 1\r\nx\r\n")), "STORED\r\n"),
        bad(format!("get a {long}\r\n")),
        bad(format!("set {long} 0 0 0\r\n")),
        ("\r\n", "ERROR\r\n"),
        bad(format!("delete {long}\r\n")),
        bad(format!("incr {long} 1\r\n")),
        bad(format!("touch {long} 1\r\n")),
        bad(format!("mg {long}\r\n")),
        (
            leak(format!(
                "set a 0 0 1048577\r\n{}\r\n",
                "x".repeat(1_048_577)
            )),
            "SERVER_ERROR object too large for cache\r\n",
        ),
        ("get a\r\n", "END\r\n"),
        ("shutdown\r\n", "ERROR: shutdown not enabled\r\n"),
        ("verbosity\r\n", "ERROR\r\n"),
        ("verbosity 1\r\n", "OK\r\n"),
        ("stats detail on\r\n", "OK\r\n"),
        ("stats detail dump x\r\n", "END\r\n"),
        ("stats detail off\r\n", "OK\r\n"),
        (
            "stats detail x\r\n",
            "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
        ),
        (
            "stats detail\r\n",
            "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
        ),
        ("stats reset x\r\n", "RESET\r\n"),
        ("stats nonsense\r\n", "ERROR\r\n"),
        ("mn\r\n", "MN\r\n"),
    ]);
}

#[test]
fn meta_commands() {
    check(&[
        ("mg a v\r\n", "EN\r\n"),
        ("mg a v q\r\nmn\r\n", "MN\r\n"),
        ("mg a k O9\r\n", "EN ka O9\r\n"),
        ("ms a 3 F7 k Ox\r\nabc\r\n", "HD ka Ox\r\n"),
        ("mg a\r\n", "HD\r\n"),
        ("mg a s v f k Oy t\r\n", "VA 3 s3 f7 ka Oy t-1\r\nabc\r\n"),
        ("ms a 1 ME\r\nx\r\n", "NS\r\n"),
        ("ms b 1 MR\r\nx\r\n", "NS\r\n"),
        ("ms a 1 MA q\r\n!\r\n", ""),
        ("ms a 1 MP\r\n<\r\n", "HD\r\n"),
        ("mg a v\r\n", "VA 5\r\n<abc!\r\n"),
        ("ms a 1 C1\r\nx\r\n", "EX\r\n"),
        ("ms b 1 C1 k\r\nx\r\n", "NF kb\r\n"),
        ("ms a 1 E77 c\r\nx\r\n", "HD c77\r\n"),
        ("ms a 1 C77 E80\r\ny\r\n", "HD\r\n"),
        ("mg a c v\r\n", "VA 1 c80\r\ny\r\n"),
        ("md a C1\r\n", "EX\r\n"),
        ("md a q\r\n", ""),
        ("md a Oz\r\n", "NF Oz\r\n"),
        ("ma n\r\n", "NF\r\n"),
        ("ma n N0 J13 v\r\n", "VA 2\r\n13\r\n"),
        ("ma n v t\r\n", "VA 2 t-1\r\n14\r\n"),
        ("ma n MD D4\r\n", "HD\r\n"),
        ("ma n MI D1 v O2\r\n", "VA 2 O2\r\n11\r\n"),
        (
            "ma n MX\r\n",
            "CLIENT_ERROR invalid mode for ma M token\r\n",
        ),
        ("ms YQ== 2 b\r\nhi\r\n", "HD\r\n"),
        ("mg YQ== b k v\r\n", "VA 2 kYQ== b\r\nhi\r\n"),
        ("get a\r\n", "VALUE a 0 2\r\nhi\r\nEND\r\n"),
        ("mg *** b\r\n", "CLIENT_ERROR error decoding key\r\n"),
        ("mg a v v\r\n", "CLIENT_ERROR duplicate flag\r\n"),
        ("mg a !\r\n", "CLIENT_ERROR invalid flag\r\n"),
        ("mg\r\n", "ERROR\r\n"),
        ("ms a\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("ms a x\r\n", "CLIENT_ERROR bad command line format\r\n"),
        (
            "ms a 2 MZ\r\nhi\r\n",
            "CLIENT_ERROR invalid mode for ms M token\r\n",
        ),
        (
            "ms a 2 TX\r\nhi\r\n",
            "CLIENT_ERROR bad token in command line format\r\n",
        ),
        ("ms a 2\r\nxyz\r", "CLIENT_ERROR bad data chunk\r\n"),
        ("me none\r\n", "EN\r\n"),
        ("me\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("ms n 1 C0\r\nx\r\n", "EX\r\n"),
        ("md n C0\r\n", "EX\r\n"),
        ("ma n C0 MI D0 v\r\n", "VA 2\r\n11\r\n"),
        ("ma n D89 v t T3000\r\n", "VA 3 t3000\r\n100\r\n"),
        ("mg n R5000 v\r\n", "VA 3 W\r\n100\r\n"),
    ]);
}

/// One client of several renews what is missing, ends soon, or was marked as stale.
#[test]
fn one_client_wins() {
    check(&[
        ("mg a v N30\r\n", "VA 0 W\r\n\r\n"),
        ("mg a v N30\r\n", "VA 0 Z\r\n\r\n"),
        ("mg a v\r\n", "VA 0 Z\r\n\r\n"),
        ("ms a 1 T3000\r\nx\r\n", "HD\r\n"),
        ("mg a v N30\r\n", "VA 1\r\nx\r\n"),
        ("mg a R1000\r\n", "HD\r\n"),
        ("mg a R9000\r\n", "HD W\r\n"),
        ("mg a R9000\r\n", "HD Z\r\n"),
        ("md a I T0\r\n", "HD\r\n"),
        ("mg a v t\r\n", "VA 1 t-1 X W\r\nx\r\n"),
        ("mg a v\r\n", "VA 1 Z X\r\nx\r\n"),
        ("md a x\r\n", "HD\r\n"),
        ("mg a s v\r\n", "VA 0 s0 Z X\r\n\r\n"),
    ]);
}

/// Seconds pass while a client waits.
#[test]
fn the_time_that_is_left_is_told() {
    let server = Server::start();
    let said = b"ms a 1 T1000\r\nx\r\nmg a t\r\ntouch a 5000\r\nmg a t\r\nma n N9000 t\r\n";
    let answers = String::from_utf8(answers_to(&server, said)).unwrap();
    let told: Vec<u32> = answers
        .lines()
        .filter_map(|line| line.strip_prefix("HD t"))
        .map(|seconds| seconds.parse().unwrap())
        .collect();
    assert_eq!(told.len(), 3, "{answers}");
    for (told, most) in told.into_iter().zip([1000, 5000, 9000]) {
        assert!((most - 500..=most).contains(&told), "{answers}");
    }
}

/// A cas is another one after each change.
#[test]
fn a_cas_is_compared() {
    let server = Server::start();
    let cas_of = |key: &str| {
        let answer = answers_to(&server, format!("gets {key}\r\n").as_bytes());
        let answer = String::from_utf8(answer).unwrap();
        let words: Vec<&str> = answer.lines().next().unwrap().split(' ').collect();
        words[4].parse::<u64>().unwrap()
    };
    let say = |text: String| String::from_utf8(answers_to(&server, text.as_bytes())).unwrap();
    say("set a 0 0 1\r\nx\r\n".into());
    let first = cas_of("a");
    assert_eq!(first, cas_of("a"), "a read is no change");
    assert_eq!(say(format!("cas a 0 0 1 {first}\r\ny\r\n")), "STORED\r\n");
    let second = cas_of("a");
    assert!(second > first, "MC-3");
    assert_eq!(say(format!("cas a 0 0 1 {first}\r\nz\r\n")), "EXISTS\r\n");
    assert_eq!(
        say(format!("cas b 0 0 1 {first}\r\nz\r\n")),
        "NOT_FOUND\r\n"
    );
    say("touch a 100\r\n".into());
    assert_eq!(cas_of("a"), second, "nor is another time");
    say("delete a\r\nset a 0 0 1\r\nx\r\n".into());
    assert!(cas_of("a") > second, "MC-3");
}

#[test]
fn statistics_count_what_was_done() {
    let server = Server::start();
    let said = "set a 0 0 1\r\nx\r\nget a b\r\ndelete c\r\nincr a 1\r\nstats\r\n";
    answers_to(&server, said.as_bytes());
    let stats = answers_to(&server, b"stats\r\nstats nonsense\r\nstats reset\r\n");
    let stats = String::from_utf8(stats).unwrap();
    for line in [
        "STAT cmd_get 2",
        "STAT get_hits 1",
        "STAT get_misses 1",
        "STAT cmd_set 1",
        "STAT delete_misses 1",
        "STAT pointer_size 64",
    ] {
        assert!(stats.contains(&format!("{line}\r\n")), "{line} in {stats}");
    }
    let end = "END\r\nERROR\r\nRESET\r\n";
    assert!(stats.ends_with(end), "{stats}");
    let stats = answers_to(&server, b"stats\r\nstats settings\r\n");
    let stats = String::from_utf8(stats).unwrap();
    assert!(stats.contains("STAT cmd_get 0\r\n"), "{stats}");
    assert!(stats.contains("STAT item_size_max 1048576\r\n"), "{stats}");
}

/// Operation, cas, extras, key, value; then the answers: status, extras, key, value.
#[test]
fn the_binary_protocol() {
    let server = Server::start();
    let say = |packets: &[Vec<u8>]| {
        let answers = answers_to(&server, &packets.concat());
        binary::answers(&answers)
    };
    let stored = |flags: u32| [flags.to_be_bytes(), [0; 4]].concat();
    let set = |op, key: &str, value: &str| binary::request(op, 0, &stored(7), key, value);
    let key = |op, key: &str| binary::request(op, 0, &[], key, "");
    let plain = |op| key(op, "");
    let told =
        |op: u8, status: u16, text: &str| (op, status, vec![], String::new(), text.to_owned());
    let item = |op: u8, key: &str, value: &str| (op, 0, vec![0, 0, 0, 7], key.into(), value.into());
    assert_eq!(
        say(&[
            set(0x01, "a", "abc"),
            key(0x00, "a"),
            key(0x0c, "a"),
            key(0x00, "b"),
            key(0x0c, "b"),
            key(0x09, "b"),
            key(0x09, "a"),
            set(0x02, "a", "x"),
            set(0x03, "b", "x"),
            set(0x11, "q", "quiet"),
            set(0x12, "q", "twice"),
            binary::request(0x0e, 0, &[], "a", "!"),
            binary::request(0x0f, 0, &[], "a", "<"),
            binary::request(0x0e, 0, &[], "b", "!"),
            key(0x0d, "a"),
            binary::request(0x01, 12345, &stored(7), "a", "x"),
            binary::request(0x1c, 0, &[0, 0, 0, 100], "a", ""),
            binary::request(0x1d, 0, &[0, 0, 0, 0], "a", ""),
            binary::request(0x23, 0, &[0, 0, 0, 0], "b", ""),
            key(0x04, "a"),
            key(0x14, "q"),
            key(0x04, "a"),
            key(0x10, "detail on"),
            key(0x10, "detail dump"),
            key(0x10, "detail"),
            plain(0x0a),
        ]),
        [
            told(0x01, 0, ""),
            item(0x00, "", "abc"),
            item(0x0c, "a", "abc"),
            told(0x00, 1, "Not found"),
            (0x0c, 1, vec![], "b".into(), String::new()),
            item(0x09, "", "abc"),
            told(0x02, 2, "Data exists for key."),
            told(0x03, 1, "Not found"),
            told(0x12, 2, "Data exists for key."),
            told(0x0e, 0, ""),
            told(0x0f, 0, ""),
            told(0x0e, 5, "Not stored."),
            item(0x0d, "a", "<abc!"),
            told(0x01, 2, "Data exists for key."),
            item(0x1c, "", ""),
            item(0x1d, "", "<abc!"),
            (0x23, 1, vec![], "b".into(), String::new()),
            told(0x04, 0, ""),
            told(0x04, 1, "Not found"),
            told(0x10, 0, ""),
            (0x10, 0, vec![], "detailed".into(), "END\r\n".into()),
            told(0x10, 0, ""),
            told(0x10, 1, "Not found"),
            told(0x0a, 0, ""),
        ]
    );
    let counted = |op, delta: u64, initial: u64, expires: u32| {
        let extras = [
            &delta.to_be_bytes()[..],
            &initial.to_be_bytes(),
            &expires.to_be_bytes(),
        ];
        binary::request(op, 0, &extras.concat(), "n", "")
    };
    let number = |n: u64| String::from_utf8(n.to_be_bytes().to_vec()).unwrap();
    assert_eq!(
        say(&[
            counted(0x05, 1, 5, u32::MAX),
            counted(0x05, 1, 5, 0),
            counted(0x05, 3, 5, 0),
            counted(0x15, 1, 5, 0),
            counted(0x06, 4, 5, 0),
            set(0x01, "n", "x"),
            counted(0x06, 4, 5, 0),
            plain(0x0b),
            binary::request(0x08, 0, &[0, 0, 0, 0], "", ""),
            plain(0x18),
            key(0x00, "n"),
            // None of the operations, with a body that is skipped.
            binary::request(0x66, 0, &[], "key", "value"),
            plain(0x0a),
        ]),
        [
            told(0x05, 1, "Not found"),
            told(0x05, 0, &number(5)),
            told(0x05, 0, &number(8)),
            told(0x06, 0, &number(5)),
            told(0x01, 0, ""),
            told(0x06, 6, "Non-numeric server-side value for incr or decr"),
            told(
                0x0b,
                0,
                &format!("1.6.18-varve-{}", env!("CARGO_PKG_VERSION"))
            ),
            told(0x08, 0, ""),
            told(0x00, 1, "Not found"),
            told(0x66, 0x81, "Unknown command"),
            told(0x0a, 0, ""),
        ]
    );
    // Parts of other lengths than the operation has: nobody knows what the client means.
    for bad in [
        binary::request(0x00, 0, &[1], "a", ""),
        binary::request(0x00, 0, &[], "", ""),
        binary::request(0x01, 0, &[], "a", "x"),
        binary::request(0x00, 0, &[], &"k".repeat(251), ""),
    ] {
        let op = bad[1];
        let got = say(&[bad, plain(0x0a)]);
        assert_eq!(got, [told(op, 4, "Invalid arguments")], "MC-5");
    }
    let stats = say(&[plain(0x10)]);
    assert!(stats.iter().any(|stat| stat.3 == "cmd_get"), "{stats:?}");
    assert_eq!(stats.last(), Some(&told(0x10, 0, "")));
}
