//! Lock modes, which of them get along, and sets of them.

/// How a record is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

impl From<Mode> for TableMode {
    fn from(mode: Mode) -> TableMode {
        match mode {
            Mode::Shared => TableMode::Shared,
            Mode::Exclusive => TableMode::Exclusive,
        }
    }
}

/// How a table is locked. Queues of records use two of these modes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TableMode {
    /// On a table: the owner locks records shared, or reads them through a view.
    IntentionShared = 0,
    /// On a table: the owner changes records.
    IntentionExclusive = 1,
    Shared = 2,
    Exclusive = 3,
    /// On a table: the owner draws consecutive AUTO_INCREMENT values for one statement.
    AutoInc = 4,
}

use TableMode::{AutoInc, Exclusive, IntentionExclusive, IntentionShared, Shared};

impl TableMode {
    const ALL: [TableMode; 5] = [
        IntentionShared,
        IntentionExclusive,
        Shared,
        Exclusive,
        AutoInc,
    ];

    /// Two owners can't hold these two modes at the same time. As in InnoDB.
    pub fn conflicts_with(self, other: TableMode) -> bool {
        self.enemies().has(other)
    }

    fn enemies(self) -> ModeSet {
        match self {
            IntentionShared => ModeSet::of(&[Exclusive]),
            IntentionExclusive => ModeSet::of(&[Shared, Exclusive]),
            Shared => ModeSet::of(&[IntentionExclusive, Exclusive, AutoInc]),
            Exclusive => ModeSet::of(&TableMode::ALL),
            AutoInc => ModeSet::of(&[Shared, Exclusive, AutoInc]),
        }
    }

    /// A holder of `self` need not ask for `other`.
    pub fn covers(self, other: TableMode) -> bool {
        ModeSet::EMPTY.with(self).covers(other)
    }

    pub(super) fn is_intention(self) -> bool {
        matches!(self, IntentionShared | IntentionExclusive)
    }

    /// Conflicts with an intention: all noted ones must be known before it is granted.
    pub(super) fn is_strong(self) -> bool {
        matches!(self, Shared | Exclusive)
    }

    /// As `SHOW ENGINE STATUS` writes it.
    pub fn name(self) -> &'static str {
        match self {
            IntentionShared => "IS",
            IntentionExclusive => "IX",
            Shared => "S",
            Exclusive => "X",
            AutoInc => "AUTO-INC",
        }
    }
}

/// The modes that one owner holds on one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ModeSet(u8);

impl ModeSet {
    pub const EMPTY: ModeSet = ModeSet(0);

    const fn of(modes: &[TableMode]) -> ModeSet {
        let mut set = 0;
        let mut at = 0;
        while at < modes.len() {
            set |= 1 << modes[at] as u8;
            at += 1;
        }
        ModeSet(set)
    }

    pub fn has(self, mode: TableMode) -> bool {
        self.0 & 1 << mode as u8 != 0
    }

    pub fn with(self, mode: TableMode) -> ModeSet {
        ModeSet(self.0 | 1 << mode as u8)
    }

    pub fn without(self, mode: TableMode) -> ModeSet {
        ModeSet(self.0 & !(1 << mode as u8))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Another owner can't get `mode` while these are held.
    pub fn conflicts_with(self, mode: TableMode) -> bool {
        self.0 & mode.enemies().0 != 0
    }

    /// A holder of these need not ask for `mode`.
    pub fn covers(self, mode: TableMode) -> bool {
        match mode {
            IntentionShared => self.0 & !(1 << AutoInc as u8) != 0,
            IntentionExclusive => self.has(IntentionExclusive) || self.has(Exclusive),
            Shared => self.has(Shared) || self.has(Exclusive),
            Exclusive => self.has(Exclusive),
            AutoInc => self.has(AutoInc) || self.has(Exclusive),
        }
    }

    pub fn iter(self) -> impl Iterator<Item = TableMode> {
        TableMode::ALL
            .into_iter()
            .filter(move |mode| self.has(*mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// InnoDB's table, row by row: IS, IX, S, X, AUTO-INC.
    #[test]
    fn conflicts_are_innodbs() {
        let rows = ["...X.", "..XX.", ".X.XX", "XXXXX", "..XXX"];
        for (a, row) in TableMode::ALL.into_iter().zip(rows) {
            for (b, cell) in TableMode::ALL.into_iter().zip(row.chars()) {
                assert_eq!(
                    a.conflicts_with(b),
                    cell == 'X',
                    "{} {}",
                    a.name(),
                    b.name()
                );
                assert_eq!(ModeSet::EMPTY.with(a).conflicts_with(b), cell == 'X');
            }
        }
    }

    #[test]
    fn what_covers_a_mode_conflicts_with_all_that_it_conflicts_with() {
        for held in 0..32 {
            let held = ModeSet(held);
            for mode in TableMode::ALL.into_iter().filter(|mode| held.covers(*mode)) {
                for other in TableMode::ALL {
                    assert!(
                        !mode.conflicts_with(other) || held.conflicts_with(other),
                        "{held:?} does not stand in for {}",
                        mode.name()
                    );
                }
            }
        }
    }
}
