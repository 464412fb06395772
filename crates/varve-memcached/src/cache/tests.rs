//! What is in memory, and for how long.

mod orders;

use super::*;

fn item(value: &str, cas: u64) -> Item {
    Item {
        cas,
        value: value.into(),
        ..Item::default()
    }
}

fn small() -> Cache {
    Cache::new(1 << 20, 1024)
}

fn value(cache: &Cache, container: usize, key: &str) -> Option<String> {
    let item = cache.get(container, key.as_bytes());
    item.map(|item| String::from_utf8(item.value.clone()).unwrap())
}

#[test]
fn what_was_not_seen_is_neither_replaced_nor_removed() {
    let cache = small();
    let made = |put: Result<(), Refusal>| matches!(put, Err(Refusal::Made));
    cache.put(0, b"a", None, item("1", 1)).unwrap();
    assert!(made(cache.put(0, b"a", None, item("2", 2))));
    let first = cache.get(0, b"a").unwrap();
    cache.put(0, b"a", Some(&first), item("2", 1)).unwrap();
    // The same cas and another item.
    assert!(made(cache.put(0, b"a", Some(&first), item("3", 3))));
    assert!(made(cache.remove(0, b"a", Some(&first))));
    assert!(made(cache.remove(0, b"a", None)));
    assert_eq!(value(&cache, 0, "a").as_deref(), Some("2"));
    let second = cache.get(0, b"a").unwrap();
    cache.remove(0, b"a", Some(&second)).unwrap();
    assert!(made(cache.remove(0, b"a", Some(&second))));
    cache.remove(0, b"a", None).unwrap();
    assert!(made(cache.put(0, b"a", Some(&second), item("3", 3))));
    assert_eq!(value(&cache, 0, "a"), None);
}

/// What is read in a table does not replace what was put here only.
#[test]
fn what_is_there_stays() {
    let cache = small();
    cache.put(0, b"a", None, item("here", 1)).unwrap();
    let read = item("table", 2);
    cache.fill(0, b"a", read.by_ref(), cache.moment());
    assert_eq!(value(&cache, 0, "a").as_deref(), Some("here"));
    assert_eq!(cache.clear(0), 1);
    cache.fill(0, b"a", read.by_ref(), cache.moment());
    assert_eq!(value(&cache, 0, "a").as_deref(), Some("table"));
}

#[test]
fn what_is_over_is_not_there() {
    let cache = small();
    let over = Item {
        expires: 1,
        ..item("over", 1)
    };
    cache.put(0, b"a", None, over.clone()).unwrap();
    assert_eq!((value(&cache, 0, "a"), cache.count()), (None, 1));
    cache.put(0, b"a", None, item("new", 2)).unwrap();
    assert_eq!(value(&cache, 0, "a").as_deref(), Some("new"));
    cache.put(0, b"b", None, over).unwrap();
    cache.sweep(now());
    assert_eq!(cache.count(), 1);
    assert!((1..1000).contains(&cache.bytes()));
}

#[test]
fn containers_are_apart() {
    let cache = small();
    for container in [0, 1] {
        let put = item(&container.to_string(), 1);
        cache.put(container, b"a", None, put).unwrap();
    }
    assert_eq!(cache.clear(0), 1);
    assert_eq!(value(&cache, 0, "a"), None);
    assert_eq!(value(&cache, 1, "a").as_deref(), Some("1"));
}

/// It stays within its bytes, keeps what is used, and refuses what would push out all else.
#[test]
fn it_is_bounded() {
    let bytes = 1 << 20;
    let cache = Cache::new(bytes, 1024);
    cache.put(0, b"used", None, item("it", 1)).unwrap();
    for n in 0..10_000 {
        let put = item(&"x".repeat(1000), 1);
        cache.put(0, n.to_string().as_bytes(), None, put).unwrap();
        assert_eq!(value(&cache, 0, "used").as_deref(), Some("it"), "{n}");
    }
    let weights = cache
        .stripes
        .iter()
        .map(|stripe| read(stripe).items.weight());
    let weight: u64 = weights.sum();
    assert!(weight <= bytes as u64, "{weight}");
    assert!(weight > bytes as u64 / 2, "{weight}");
    let long = item(&"x".repeat(bytes), 1);
    assert!(matches!(
        cache.put(0, b"long", None, long.clone()),
        Err(Refusal::Because(_))
    ));
    cache.fill(0, b"long", long.by_ref(), cache.moment());
    cache.begin_change(0, b"used").end(Some(long));
    assert_eq!(
        (value(&cache, 0, "long"), value(&cache, 0, "used")),
        (None, None)
    );
}

/// Nobody has a lock while he looks at more than 16 MiB of items, as far as there may be so many stripes.
#[test]
fn stripes_grow_in_number_before_they_grow() {
    for (bytes, value_bytes, wanted) in [
        (1 << 20, 1 << 20, 1),
        (1 << 20, 1024, 64),
        (64 << 20, 1 << 20, 8),
        (1 << 30, 1 << 20, 64),
        (3 << 30, 1024, 128),
        (4 << 30, 1 << 20, 256),
        (64 << 30, 1 << 20, 4096),
        (1 << 40, 1024, 4096),
    ] {
        assert_eq!(stripes(bytes, value_bytes), wanted, "{bytes} {value_bytes}");
    }
}

/// The longest value has room, whatever the sizes.
#[test]
fn values_that_are_allowed_have_room() {
    for (bytes, value_bytes) in [
        (1 << 20, 1024),
        (64 << 20, 1 << 20),
        (8 << 20, 1 << 20),
        (4 << 20, 3 << 20),
    ] {
        let cache = Cache::new(bytes, value_bytes);
        let put = Item {
            value: vec![0; value_bytes],
            ..Item::default()
        };
        cache.put(0, &[b'k'; 250], None, put).unwrap();
        assert_eq!(cache.count(), 1, "{bytes} {value_bytes}");
    }
}

/// Counts up the same numbers by several threads: none is lost, and none is counted twice.
#[test]
fn changes_of_one_key_are_made_one_after_the_other() {
    let cache = small();
    let (threads, times) = (4, 2000);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..times {
                    loop {
                        let seen = cache.get(0, b"n");
                        let next = seen.as_ref().map_or(0, |item| item.cas) + 1;
                        match cache.put(0, b"n", seen.as_ref(), item("", next)) {
                            Ok(()) => break,
                            Err(Refusal::Made) => {}
                            Err(e) => panic!("{e:?}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(cache.get(0, b"n").unwrap().cas, threads * times);
}
