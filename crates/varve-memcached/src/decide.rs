//! What becomes of an item: the rules of memcached, without storage and without protocol.
//!
//! The caller has the item to itself from before `decide` until its change is made.

use crate::item::{Item, ItemRef, STALE, WON};
use crate::items::Effect;
use crate::request::{Mode, Request, Verb};

/// What a change of an item with the cas `old` gives it, when the clock says `clock`: more, also after the
/// clock was set back (MC-3).
pub fn next_cas(clock: u64, old: u64) -> u64 {
    old.checked_add(1).map_or(clock, |next| next.max(clock))
}

/// How a request went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Done,
    /// There is no such item.
    Missing,
    /// `Add` found one, or `Replace`, `Append` and `Prepend` none.
    NotStored,
    /// The item has another cas.
    Exists,
    /// What is there is no number.
    NotNumeric,
    /// The value would be longer than values may be.
    TooLarge,
}

/// What is to be done with the row.
#[derive(PartialEq, Eq, Debug)]
pub enum Change {
    Keep,
    Put(Item),
    Delete,
}

#[derive(PartialEq, Eq, Debug)]
pub struct Decision {
    pub status: Status,
    pub change: Change,
    /// The item as it is told, if the change is not what is told.
    pub told: Option<Item>,
    /// What the item is after it was added to.
    pub number: u64,
    /// This client is to renew the item.
    pub wins: bool,
    /// The number was not there, and was made.
    pub is_new: bool,
}

impl Decision {
    fn none(status: Status) -> Decision {
        Decision {
            status,
            change: Change::Keep,
            told: None,
            number: 0,
            wins: false,
            is_new: false,
        }
    }

    fn put(item: Item) -> Decision {
        Decision {
            change: Change::Put(item),
            ..Decision::none(Status::Done)
        }
    }

    /// The item that an answer is about.
    pub fn item(&self) -> Option<ItemRef<'_>> {
        match (&self.change, &self.told) {
            (Change::Put(item), _) | (_, Some(item)) => Some(item.by_ref()),
            _ => None,
        }
    }
}

/// `found`: the item under the request's key, if there is one that is not over. `cas`: what a changed item
/// gets, unless the client says. `most_bytes`: how long values may be.
pub fn decide(
    request: &Request,
    found: Option<ItemRef<'_>>,
    cas: u64,
    most_bytes: usize,
) -> Decision {
    let cas = request.new_cas.unwrap_or(cas);
    match request.verb {
        Verb::Get => get(request, found, cas),
        Verb::Store(mode) => store(request, mode, found, cas, most_bytes),
        Verb::Delete => delete(request, found, cas),
        Verb::Increment | Verb::Decrement => add(request, found, cas),
    }
}

/// The item that is made where there is none, if one is wanted.
fn made(request: &Request, cas: u64) -> Option<Item> {
    let vivify = |expires| Item {
        cas,
        expires: request.expires.unwrap_or(expires),
        ..Item::default()
    };
    request.vivify.map(vivify)
}

fn get(request: &Request, found: Option<ItemRef<'_>>, cas: u64) -> Decision {
    let Some(found) = found else {
        return made(request, cas).map_or(Decision::none(Status::Missing), |made| Decision {
            wins: true,
            ..Decision::put(Item { marks: WON, ..made })
        });
    };
    let was_won = found.marks & WON != 0;
    let expires = request.expires.unwrap_or(found.expires);
    // What it was until now.
    let ends_soon = |before| found.expires != 0 && found.expires < before;
    let may_win = request.may_renew && !was_won;
    let wins = may_win && (found.wants_renewal() || request.renew_before.is_some_and(ends_soon));
    let item = Item {
        expires,
        marks: found.marks | if wins { WON } else { 0 },
        ..found.to_item()
    };
    let is_same = item.by_ref() == found;
    Decision {
        wins,
        ..match is_same {
            true => Decision {
                told: Some(item),
                ..Decision::none(Status::Done)
            },
            false => Decision::put(item),
        }
    }
}

fn store(
    request: &Request,
    mode: Mode,
    found: Option<ItemRef<'_>>,
    cas: u64,
    most_bytes: usize,
) -> Decision {
    let asks_cas = request.cas.is_some() && mode != Mode::Add;
    let fresh = |value: Vec<u8>| Item {
        flags: request.flags,
        cas,
        expires: request.expires.unwrap_or(0),
        marks: 0,
        value,
    };
    let Some(found) = found else {
        return match mode {
            Mode::Set | Mode::Replace if asks_cas => Decision::none(Status::Missing),
            Mode::Set | Mode::Add => Decision::put(fresh(request.value.clone())),
            Mode::Append | Mode::Prepend if request.vivify.is_some() => Decision::put(Item {
                expires: request.vivify.unwrap_or(0),
                ..fresh(request.value.clone())
            }),
            _ => Decision::none(Status::NotStored),
        };
    };
    let is_other = asks_cas && request.cas != Some(found.cas);
    match mode {
        Mode::Add => Decision::none(Status::NotStored),
        // Somebody with older data than what is there: better than none, until a newer one comes.
        Mode::Set | Mode::Replace
            if is_other
                && request.invalidate
                && request.cas != Some(0)
                && request.cas < Some(found.cas) =>
        {
            Decision::put(Item {
                expires: found.expires,
                marks: STALE | found.marks & WON,
                ..fresh(request.value.clone())
            })
        }
        _ if is_other => Decision::none(Status::Exists),
        Mode::Set | Mode::Replace => Decision::put(fresh(request.value.clone())),
        Mode::Append | Mode::Prepend => {
            let (first, second) = match mode {
                Mode::Append => (found.value, &request.value[..]),
                _ => (&request.value[..], found.value),
            };
            if first.len() + second.len() > most_bytes {
                return Decision::none(Status::TooLarge);
            }
            Decision::put(Item {
                flags: found.flags,
                expires: found.expires,
                ..fresh([first, second].concat())
            })
        }
    }
}

fn delete(request: &Request, found: Option<ItemRef<'_>>, cas: u64) -> Decision {
    let Some(found) = found else {
        return Decision::none(Status::Missing);
    };
    if request.cas.is_some_and(|wanted| wanted != found.cas) {
        return Decision::none(Status::Exists);
    }
    if request.effect() == Effect::Delete {
        return Decision {
            change: Change::Delete,
            ..Decision::none(Status::Done)
        };
    }
    let mut item = Item {
        cas,
        ..found.to_item()
    };
    if request.keep_key {
        (item.value, item.flags) = (Vec::new(), 0);
    }
    if request.invalidate {
        item.marks = STALE;
        item.expires = request.expires.unwrap_or(item.expires);
    }
    Decision::put(item)
}

fn add(request: &Request, found: Option<ItemRef<'_>>, cas: u64) -> Decision {
    let Some(found) = found else {
        let value = request.initial.to_string().into_bytes();
        return made(request, cas).map_or(Decision::none(Status::Missing), |made| Decision {
            number: request.initial,
            is_new: true,
            ..Decision::put(Item { value, ..made })
        });
    };
    // In memcached's order.
    if found.value.is_empty() {
        return Decision::none(Status::NotNumeric);
    }
    if request.cas.is_some_and(|wanted| wanted != found.cas) {
        return Decision::none(Status::Exists);
    }
    let Some(old) = number(found.value) else {
        return Decision::none(Status::NotNumeric);
    };
    let number = match request.verb {
        Verb::Increment => old.wrapping_add(request.delta),
        _ => old.saturating_sub(request.delta),
    };
    let mut value = number.to_string().into_bytes();
    // A number never gets shorter: memcached writes over it in its place. A longer one is a new item, which
    // nobody has called stale.
    let marks = match value.len() <= found.value.len() {
        true => found.marks,
        false => 0,
    };
    value.resize(value.len().max(found.value.len()), b' ');
    Decision {
        number,
        ..Decision::put(Item {
            flags: found.flags,
            cas,
            expires: request.expires.unwrap_or(found.expires),
            marks,
            value,
        })
    }
}

/// The number that a value begins with: spaces, maybe a `+`, digits, and then the end or a space.
fn number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let text = value.trim_ascii_start();
    let end = text.iter().position(is_space).unwrap_or(text.len());
    let word = &text[..end];
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAS: u64 = 100;

    fn item(value: &str) -> Item {
        Item {
            flags: 5,
            cas: 7,
            expires: 50,
            marks: 0,
            value: value.into(),
        }
    }

    fn request(verb: Verb, value: &str) -> Request {
        Request {
            value: value.into(),
            flags: 9,
            expires: matches!(verb, Verb::Store(_)).then_some(60),
            ..Request::new(verb, b"key")
        }
    }

    fn decided(request: &Request, found: Option<&Item>) -> Decision {
        decide(request, found.map(Item::by_ref), CAS, 10)
    }

    /// Who stores, what is there, the cas that is asked for, how it goes, and what is there then.
    #[test]
    fn what_is_stored() {
        use Mode::{Add, Append, Prepend, Replace, Set};
        use Status::{Done, Exists, Missing, NotStored, TooLarge};
        for (mode, there, cas, status, after) in [
            (Set, None, None, Done, Some("new")),
            (Set, None, Some(7), Missing, None),
            (Set, Some("old"), None, Done, Some("new")),
            (Set, Some("old"), Some(7), Done, Some("new")),
            (Set, Some("old"), Some(8), Exists, None),
            (Add, None, None, Done, Some("new")),
            (Add, Some("old"), None, NotStored, None),
            (Replace, None, None, NotStored, None),
            (Replace, None, Some(7), Missing, None),
            (Replace, Some("old"), None, Done, Some("new")),
            (Replace, Some("old"), Some(8), Exists, None),
            (Append, None, None, NotStored, None),
            (Append, Some("old"), None, Done, Some("oldnew")),
            (Append, Some("old"), Some(7), Done, Some("oldnew")),
            (Append, Some("old"), Some(8), Exists, None),
            (Append, Some("12345678"), None, TooLarge, None),
            (Prepend, None, None, NotStored, None),
            (Prepend, Some("old"), None, Done, Some("newold")),
        ] {
            let wanted = Request {
                cas,
                ..request(Verb::Store(mode), "new")
            };
            let found = there.map(item);
            let got = decided(&wanted, found.as_ref());
            let what = format!("{mode:?} {there:?} {cas:?}");
            assert_eq!(got.status, status, "{what}");
            let keeps = matches!(mode, Append | Prepend);
            let put = after.map(|value| Item {
                flags: if keeps { 5 } else { 9 },
                expires: if keeps { 50 } else { 60 },
                cas: CAS,
                ..item(value)
            });
            let change = put.map_or(Change::Keep, Change::Put);
            assert_eq!(got.change, change, "{what}");
        }
    }

    #[test]
    fn numbers_are_added_to_in_their_place() {
        use Status::{Done, NotNumeric};
        use Verb::{Decrement, Increment};
        let most = u64::MAX.to_string();
        for (verb, there, delta, status, number, after) in [
            (Increment, "1", 1, Done, 2, "2"),
            (Increment, "9", 1, Done, 10, "10"),
            (Increment, "10 ", 5, Done, 15, "15 "),
            (Increment, &most, 1, Done, 0, "0                   "),
            (Decrement, "10", 1, Done, 9, "9 "),
            (Decrement, "3", 5, Done, 0, "0"),
            (Increment, "x", 1, NotNumeric, 0, ""),
            (Increment, "", 1, NotNumeric, 0, ""),
            (Increment, "-1", 1, NotNumeric, 0, ""),
            (Increment, "1 2", 1, Done, 2, "2  "),
            (Increment, " 1x", 1, NotNumeric, 0, ""),
            (Increment, "\r\n", 5, NotNumeric, 0, ""),
            (Increment, "\r\n2", 5, Done, 7, "7  "),
            (Increment, " -1", 1, NotNumeric, 0, ""),
            (Increment, "18446744073709551616", 1, NotNumeric, 0, ""),
            (
                Increment,
                "000000000000000000001",
                1,
                Done,
                2,
                "2                    ",
            ),
        ] {
            let wanted = Request {
                delta,
                ..request(verb, "")
            };
            let got = decided(&wanted, Some(&item(there)));
            assert_eq!((got.status, got.number), (status, number), "{there:?}");
            if status == Done {
                let put = Item {
                    cas: CAS,
                    ..item(after)
                };
                assert_eq!(got.change, Change::Put(put), "{there:?}");
            }
        }
        for (there, marks) in [("8", STALE), ("9", 0)] {
            let stale = Item {
                marks: STALE,
                ..item(there)
            };
            let wanted = Request {
                delta: 1,
                ..request(Increment, "")
            };
            let got = decided(&wanted, Some(&stale));
            assert_eq!(got.item().unwrap().marks, marks, "{there}");
        }
        let mut wanted = request(Increment, "");
        assert_eq!(decided(&wanted, None).status, Status::Missing);
        (wanted.vivify, wanted.initial) = (Some(90), 13);
        let got = decided(&wanted, None);
        let made = got.item().unwrap();
        assert_eq!((got.number, made.value, made.expires), (13, &b"13"[..], 90));
    }

    #[test]
    fn one_client_renews_a_stale_item() {
        let invalid = Request {
            invalidate: true,
            expires: Some(30),
            ..request(Verb::Delete, "")
        };
        let Change::Put(stale) = decided(&invalid, Some(&item("x"))).change else {
            panic!("it stays");
        };
        assert_eq!((stale.marks, stale.expires, stale.cas), (STALE, 30, CAS));
        let classic = request(Verb::Get, "");
        assert!(
            !decided(&classic, Some(&stale)).wins,
            "it could not be told"
        );
        let get = Request {
            may_renew: true,
            ..classic
        };
        let first = decided(&get, Some(&stale));
        assert!(first.wins);
        let Change::Put(won) = first.change else {
            panic!("it is marked");
        };
        assert_eq!((won.marks, won.cas), (STALE | WON, CAS), "no other cas");
        let second = decided(&get, Some(&won));
        assert!(!second.wins);
        assert_eq!(second.change, Change::Keep);
        // The first one has seen the old cas: what it brings is stored, but stays stale.
        let late = Request {
            cas: Some(7),
            invalidate: true,
            ..request(Verb::Store(Mode::Set), "late")
        };
        let Change::Put(late) = decided(&late, Some(&won)).change else {
            panic!("it is stored");
        };
        assert_eq!((late.marks, late.expires), (STALE | WON, 30));
    }

    #[test]
    fn one_client_renews_what_is_missing_or_ends_soon() {
        let vivify = Request {
            vivify: Some(44),
            ..request(Verb::Get, "")
        };
        let made = decided(&vivify, None);
        assert!(made.wins);
        let Change::Put(made) = made.change else {
            panic!("it is made");
        };
        assert_eq!((made.marks, made.expires, made.value.len()), (WON, 44, 0));
        assert!(!decided(&vivify, Some(&made)).wins);
        for (before, wins) in [(50, false), (51, true)] {
            let renew = Request {
                may_renew: true,
                renew_before: Some(before),
                ..request(Verb::Get, "")
            };
            assert_eq!(decided(&renew, Some(&item("x"))).wins, wins, "{before}");
        }
    }

    #[test]
    fn what_is_deleted() {
        let mut wanted = request(Verb::Delete, "");
        assert_eq!(decided(&wanted, None).status, Status::Missing);
        assert_eq!(decided(&wanted, Some(&item("x"))).change, Change::Delete);
        wanted.cas = Some(8);
        let got = decided(&wanted, Some(&item("x")));
        assert_eq!((got.status, got.change), (Status::Exists, Change::Keep));
        (wanted.cas, wanted.keep_key) = (None, true);
        let got = decided(&wanted, Some(&item("x")));
        let left = got.item().unwrap();
        assert_eq!((left.value, left.flags, left.expires), (&b""[..], 0, 50));
    }

    /// MC-3.
    #[test]
    fn a_cas_grows_after_the_clock_was_set_back() {
        for (clock, old, next) in [
            (100, 0, 100),
            (100, 99, 100),
            (100, 100, 101),
            (100, 500, 501),
        ] {
            assert_eq!(next_cas(clock, old), next, "MC-3");
        }
        // A client has set it, and said so that it ends there.
        assert_eq!(next_cas(100, u64::MAX), 100);
    }
}
