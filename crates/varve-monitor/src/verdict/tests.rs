//! Each sentence, from what leads to it.

use varve::{LockInfo, LockWaitInfo, StoreRoom, TrxNo};

use super::*;

fn standing() -> Standing {
    Standing {
        oldest_view: None,
        purge_waits_for: None,
        history_store: None,
        lock_waits: Vec::new(),
        unusable: None,
    }
}

fn purge(history: u64, working_off: f64, joining: f64) -> PurgeStanding {
    PurgeStanding {
        state: PurgeState::Running,
        history,
        history_bytes: 37 << 20,
        purged_below: TrxNo(1),
        waits_for: None,
        working_off,
        joining,
        left: None,
    }
}

/// Hardly any history.
const PURGED: PurgeStanding = PurgeStanding {
    state: PurgeState::Idle,
    history: 12,
    history_bytes: 16 << 10,
    purged_below: TrxNo(1),
    waits_for: None,
    working_off: 0.0,
    joining: 0.0,
    left: Some(Duration::ZERO),
};

fn facts(standing: &Standing) -> Facts<'_> {
    Facts {
        standing,
        purge: &PURGED,
        commits: 1234.4,
        purge_delay_usec: 0,
        recent_capacity_waits: 0.0,
        recent_free_page_waits: 0.0,
        checkpoint_age: 10 << 20,
        checkpoint_age_async: 80 << 20,
        checkpoint_max_age: 100 << 20,
        recovery_left: 0,
        recovery_seconds: 0,
    }
}

fn view(seconds: u64, kept: Option<u64>) -> Standing {
    let kept = kept.map(|bytes| Kept { versions: 7, bytes });
    let oldest_view = Some(OldView {
        number: TrxNo(9),
        session: 0,
        open_for: Duration::from_secs(seconds),
        kept,
    });
    Standing {
        oldest_view,
        ..standing()
    }
}

/// The worst is this.
#[track_caller]
fn check(facts: &Facts<'_>, level: Level, text: &str) {
    let found = verdict(facts);
    assert_eq!((found[0].level, found[0].text.as_str()), (level, text));
}

#[test]
fn nothing_is_wrong() {
    let text = "Nothing is wrong: 1,234 commits a second, 12 transactions wait for purge, 10 % of the redo log is in use";
    check(&facts(&standing()), Level::Well, text);
    check(&facts(&view(9, None)), Level::Well, text);
}

#[test]
fn a_snapshot_for_which_the_store_keeps_versions_costs_nothing() {
    check(
        &facts(&view(28 * 60 + 5, Some(37 << 20))),
        Level::Note,
        "A snapshot has been open for 28 min; 37 MiB of old versions are kept for it; it costs others nothing",
    );
    check(
        &facts(&view(70, Some(0))),
        Level::Note,
        "A snapshot has been open for 1 min 10 s; nothing had to be kept for it so far",
    );
    let mut of_connection = view(28 * 60 + 5, Some(0));
    of_connection.oldest_view.as_mut().unwrap().session = 10;
    let text = "A snapshot of connection 10 has been open for 28 min; nothing had to be kept for it so far";
    check(&facts(&of_connection), Level::Note, text);
}

#[test]
fn a_snapshot_that_purge_waits_for_costs() {
    let standing = view(3 * 3600 + 300, None);
    let mut facts = facts(&standing);
    let open = "A snapshot has been open for 3 h 5 min";
    check(
        &facts,
        Level::Note,
        &format!("{open}; it keeps purge from nothing so far"),
    );
    let stopped = |working_off, joining| PurgeStanding {
        state: PurgeState::Stopped,
        ..purge(1_250_000, working_off, joining)
    };
    let kept =
        format!("{open}; purge waits for it: the undo of 1,250,000 transactions is kept, 37 MiB");
    // Nothing was worked off yet, and the history grows faster than purge works.
    let slow = [stopped(0.0, 0.0), stopped(500.0, 600.0)];
    for purge in &slow {
        facts.purge = purge;
        check(&facts, Level::Warning, &kept);
    }
    let fast = stopped(12_500.0, 2_500.0);
    facts.purge = &fast;
    let needed = format!("{kept}; when it ends, purge will need about 2 min 5 s");
    check(&facts, Level::Warning, &needed);
    assert_eq!(
        verdict(&facts).len(),
        1,
        "purge is not blamed for what the snapshot does"
    );
}

#[test]
fn purge_that_is_behind() {
    let standing = standing();
    let mut facts = facts(&standing);
    let (slow, losing) = (purge(500_000, 500.0, 500.0), purge(500_000, 500.0, 3000.7));
    let gaining = PurgeStanding {
        left: Some(Duration::from_secs(10)),
        ..purge(500_000, 50_000.0, 100.0)
    };
    // The speeds are those of its last batches.
    let stopped = PurgeStanding {
        state: PurgeState::Stopped,
        ..losing.clone()
    };
    for (purge, text) in [
        (&slow, "Purge is behind: 500,000 transactions wait for it"),
        (
            &stopped,
            "Purge is behind: 500,000 transactions wait for it",
        ),
        (
            &gaining,
            "Purge catches up: 500,000 transactions wait for it, for about 10 s",
        ),
        (
            &losing,
            "Purge is behind the writers: 500,000 transactions wait for it, 2,500 more every second; varve_max_purge_lag \
             would slow the writers down",
        ),
    ] {
        facts.purge = purge;
        check(&facts, Level::Warning, text);
    }
    facts.purge = &PURGED;
    facts.purge_delay_usec = 350;
    let text = "Each change of a row is delayed by 350 µs, because more transactions wait for purge than varve_max_purge_lag allows";
    check(&facts, Level::Warning, text);
}

#[test]
fn a_redo_log_that_is_full_and_one_that_will_be() {
    let standing = standing();
    let mut facts = facts(&standing);
    facts.checkpoint_age = 85 << 20;
    let text = "Changed pages are written slower than they are changed: 85 % of the redo log's 100 MiB are in use, so that \
                they are written faster than varve_io_capacity_max says";
    check(&facts, Level::Warning, text);
    facts.recent_capacity_waits = 3.0;
    let text = "The redo log is full: writers wait for changed pages to be written, 3 times in the last ten seconds; a \
                larger one than 100 MiB or a faster disk would help";
    check(&facts, Level::Bad, text);
}

#[test]
fn a_pool_without_free_pages() {
    let standing = standing();
    let mut facts = facts(&standing);
    facts.recent_free_page_waits = 5.0;
    let text = "The buffer pool had no free page 5 times in the last ten seconds, so that somebody waited for one: it is too \
                small for what goes on, or the disk too slow";
    check(&facts, Level::Warning, text);
}

#[test]
fn a_store_that_is_full_or_lost() {
    let room = |lost: Option<&str>| Standing {
        history_store: Some(StoreRoom {
            bytes: 3 << 29,
            max_bytes: 3 << 29,
            lost: lost.map(String::from),
        }),
        ..standing()
    };
    let text = "The history store is full, with 1.5 GiB: purge waits for old snapshots again";
    check(&facts(&room(None)), Level::Warning, text);
    let text = "The history store is lost, so old snapshots can't be read any more: no disk";
    check(&facts(&room(Some("no disk"))), Level::Bad, text);
}

#[test]
fn who_waits_for_whom() {
    let lock = |transaction, session| LockInfo {
        id: String::new(),
        transaction,
        session,
        mode: "X",
        table: "shop/item".into(),
        space: None,
        index: Some("PRIMARY".into()),
        key: Some("7".into()),
    };
    let wait = |seconds, holders: &[(u64, u64)]| LockWaitInfo {
        wanted: lock(43, 0),
        waited: Duration::from_secs(seconds),
        blocking: holders
            .iter()
            .map(|(id, session)| lock(*id, *session))
            .collect(),
    };
    let waits = |lock_waits| Standing {
        lock_waits,
        ..standing()
    };
    check(
        &facts(&waits(vec![wait(12, &[(41, 10)])])),
        Level::Bad,
        "Transaction 43 has waited 12 s for connection 10 to let go of a key of table shop/item, index PRIMARY (X)",
    );
    let several = waits(vec![
        wait(2, &[(41, 0), (42, 11)]),
        wait(1, &[]),
        wait(0, &[]),
    ]);
    let text = "Transaction 43 has waited 2 s for transaction 41, connection 11 to let go of a key of table shop/item, \
                index PRIMARY (X); 2 more wait";
    check(&facts(&several), Level::Warning, text);
    let short = waits(vec![wait(0, &[(41, 0)])]);
    assert_eq!(verdict(&facts(&short))[0].level, Level::Well);
}

#[test]
fn the_worst_comes_first() {
    let mut standing = view(60, Some(5 << 10));
    standing.unusable = Some("the disk is gone".into());
    let mut facts = facts(&standing);
    facts.recovery_left = 1;
    facts.recovery_seconds = 90;
    facts.recent_free_page_waits = 1.0;
    let found = verdict(&facts);
    let texts: Vec<&str> = found.iter().map(|f| f.text.as_str()).collect();
    assert_eq!(
        texts[0],
        "The database takes no more work: the disk is gone"
    );
    assert!(texts[1].starts_with("The buffer pool had no free page 1 times"));
    assert_eq!(
        texts[2],
        "A snapshot has been open for 1 min; 5.0 KiB of old versions are kept for it; it costs others nothing"
    );
    assert_eq!(
        texts[3],
        "Recovery from the last crash goes on in the background, for about 1 min 30 s"
    );
}
