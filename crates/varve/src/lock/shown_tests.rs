//! What lists of transactions and of waits say.

use std::thread;

use super::Mode::{Exclusive, Shared};
use super::tests::{PATIENT, until_waiting};
use super::{LockAmount, LockManager, LockTarget, Mode, TableMode, TrxLocks, Wait};
use crate::base::{IndexId, TableId, TrxId, TrxNo};

const INDEX: IndexId = IndexId(7);

fn lock(m: &LockManager, l: &TrxLocks, key: &[u8], mode: Mode) {
    m.lock_record(l, INDEX, key, mode, PATIENT).unwrap();
}

fn assert_all_free(m: &LockManager) {
    let status = m.status();
    assert_eq!((status.locked, status.gaps), (0, 0));
}

/// SHOWN-1
#[test]
fn transactions_are_listed_from_their_begin_to_their_end() {
    let m = LockManager::new();
    let (a, b, spare) = (m.owner(), m.owner(), m.owner());
    a.shown().begin(8, 2);
    a.shown().set_session(77);
    b.shown().begin(7, 1);
    m.set_trx(&b, TrxId(41));
    b.set_changes(3);
    lock(&m, &a, b"k", Shared);
    lock(&m, &a, b"l", Exclusive);
    m.lock_table(&a, TableId(1), TableMode::IntentionShared, Wait::No)
        .unwrap();
    m.lock_gap(&a, INDEX, b"m", None).unwrap();
    lock(&m, &spare, b"x", Exclusive);
    let all = m.transactions();
    let told: Vec<_> = all
        .iter()
        .map(|t| {
            (
                t.owner.number,
                t.owner.trx,
                t.owner.session,
                t.isolation,
                t.changes,
            )
        })
        .collect();
    assert_eq!(
        told,
        [(7, Some(TrxId(41)), 0, 1, 3), (8, None, 77, 2, 0)],
        "SHOWN-1"
    );
    b.shown().set_view(Some(TrxNo(5)));
    let of_view = |no| m.owner_of_view(TrxNo(no)).map(|owner| owner.number);
    assert_eq!((of_view(5), of_view(6)), (Some(7), None));
    let amount = all[1].locks;
    assert_eq!(
        (amount.records, amount.tables, amount.gaps, amount.count()),
        (2, 1, 1, 4)
    );
    assert!(amount.bytes > 200, "{amount:?}");
    assert_eq!(all[0].locks, LockAmount::default());
    for owner in [&a, &b, &spare] {
        m.release_all(owner);
        owner.shown().end();
    }
    assert!(m.transactions().is_empty(), "SHOWN-1");
    assert_all_free(&m);
}

/// Who waits only for its turn has nobody in its way but those before it.
#[test]
fn those_before_a_waiter_are_told_if_nobody_holds_what_it_wants() {
    let m = LockManager::new();
    let (holder, writer, reader) = (m.owner(), m.owner(), m.owner());
    for (number, owner) in [&holder, &writer, &reader].into_iter().enumerate() {
        owner.shown().begin(number as u64 + 1, 0);
    }
    lock(&m, &holder, b"k", Shared);
    let in_the_way = |number| {
        let waiting = m.status().waiting;
        let wait = waiting.into_iter().find(|w| w.owner.number == number);
        let holders = wait.map(|w| w.holders).unwrap_or_default();
        holders
            .iter()
            .map(|(owner, mode)| (owner.number, *mode))
            .collect::<Vec<_>>()
    };
    thread::scope(|s| {
        let m = &m;
        let wait = move |owner: TrxLocks, mode| {
            lock(m, &owner, b"k", mode);
            m.release_all(&owner);
        };
        s.spawn(move || wait(writer, Exclusive));
        until_waiting(m, 1);
        s.spawn(move || wait(reader, Shared));
        until_waiting(m, 2);
        while in_the_way(3).is_empty() {
            thread::yield_now();
        }
        assert_eq!(in_the_way(2), [(1, TableMode::Shared)]);
        assert_eq!(in_the_way(3), [(2, TableMode::Exclusive)]);
        m.release_all(&holder);
    });
    assert_all_free(&m);
}

/// DEAD-3: the queue of a wait that is told of is there.
#[test]
fn status_says_who_waits_for_whom() {
    let m = LockManager::new();
    let holder = m.owner();
    m.set_trx(&holder, TrxId(41));
    assert!(m.convert_implicit(TrxId(41), INDEX, &[0xab, 1]));
    assert!(!m.convert_implicit(TrxId(42), INDEX, &[0xab, 1]));
    let waiter = thread::spawn({
        let m = m.clone();
        move || {
            let l = m.owner();
            m.set_trx(&l, TrxId(43));
            lock(&m, &l, &[0xab, 1], Exclusive);
            m.release_all(&l);
        }
    });
    until_waiting(&m, 1);
    let status = loop {
        let status = m.status();
        if !status.waiting.is_empty() {
            break status;
        }
    };
    let waiting = &status.waiting[0];
    let holders: Vec<_> = waiting
        .holders
        .iter()
        .map(|(owner, mode)| (owner.trx, *mode))
        .collect();
    assert_eq!(
        (waiting.owner.trx, &holders[..]),
        (
            Some(TrxId(43)),
            &[(Some(TrxId(41)), TableMode::Exclusive)][..]
        )
    );
    assert_eq!(
        waiting.wants.to_string(),
        "record lock, index 7, mode X, key 0xab01"
    );
    assert!(matches!(
        &waiting.wants.target,
        LockTarget::Record { index: INDEX, .. }
    ));
    m.release_all(&holder);
    waiter.join().unwrap();
    assert!(
        !m.convert_implicit(TrxId(41), INDEX, &[0xab, 1]),
        "it has ended"
    );
    assert_all_free(&m);
}
