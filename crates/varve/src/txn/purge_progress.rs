//! What purge is doing, for the status. Its coordinator writes it; everything is Relaxed and stands for
//! itself.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What purge is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PurgeState {
    /// There is nothing to do, or nothing that may be done yet.
    Idle,
    Running,
    /// It has come to a standstill (purge/pacing.rs).
    Stopped,
}

impl PurgeState {
    /// As InnoDB says it.
    pub fn name(self) -> &'static str {
        match self {
            PurgeState::Idle => "running but idle",
            PurgeState::Running => "running",
            PurgeState::Stopped => "stopped",
        }
    }
}

#[derive(Default)]
pub struct PurgeProgress {
    state: AtomicU8,
    /// Of the oldest log in the history everything below this undo number is purged.
    undo_no: AtomicU64,
    /// Logs a second, as bits of an `f64`: those that purge works off at the pace that it has, and those that
    /// join the history meanwhile.
    working_off: AtomicU64,
    joining: AtomicU64,
}

impl PurgeProgress {
    pub fn state(&self) -> PurgeState {
        let states = [PurgeState::Idle, PurgeState::Running, PurgeState::Stopped];
        states[self.state.load(Ordering::Relaxed) as usize]
    }

    pub fn set_state(&self, state: PurgeState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    pub fn undo_no(&self) -> u64 {
        self.undo_no.load(Ordering::Relaxed)
    }

    /// As of the last batch; 0 before the first.
    pub fn working_off(&self) -> f64 {
        f64::from_bits(self.working_off.load(Ordering::Relaxed))
    }

    pub fn joining(&self) -> f64 {
        f64::from_bits(self.joining.load(Ordering::Relaxed))
    }

    pub fn set_speeds(&self, working_off: f64, joining: f64) {
        self.working_off
            .store(working_off.to_bits(), Ordering::Relaxed);
        self.joining.store(joining.to_bits(), Ordering::Relaxed);
    }

    pub fn set_undo_no(&self, undo_no: u64) {
        self.undo_no.store(undo_no, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept() {
        let progress = PurgeProgress::default();
        assert_eq!(progress.state(), PurgeState::Idle);
        for state in [PurgeState::Running, PurgeState::Stopped, PurgeState::Idle] {
            progress.set_state(state);
            assert_eq!(progress.state(), state);
        }
    }
}
