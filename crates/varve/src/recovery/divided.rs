//! The redo after it was divided: partitions, what of them is in the file, and those that users needed last.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::pages::{UnitNo, Units};
use super::partition::{Kept, Loaded, Partition, Redo, Source};
use super::scatter::{Layout, Run, Sink};
use super::spill::Spill;
use crate::base::{Lsn, Result};

pub struct Divided {
    layout: Layout,
    partitions: Box<[Partition]>,
    /// Of the log.
    end: Lsn,
    spill: Spill,
    kept: Kept,
    held_bytes: usize,
    /// Of that, what partitions that are not done with have. Relaxed: an account of memory.
    held_now: AtomicUsize,
}

impl Divided {
    /// Of a log that ends at `end` and changes these pages: the runs of each thread that has read it.
    pub fn new(units: &Units, threads: Vec<Vec<Run>>, sink: Sink, end: Lsn) -> Divided {
        let (layout, spill, memory_bytes) = sink.into_parts();
        let mut threads: Vec<_> = threads.into_iter().map(Vec::into_iter).collect();
        let mut next = || Partition::new(Redo::new(threads.iter_mut().filter_map(Iterator::next)));
        let mut partitions: Box<[Partition]> = (0..layout.partitions).map(|_| next()).collect();
        for (n, unit) in units.all().iter().enumerate() {
            let partition = &mut partitions[layout.partition_of(unit.no)];
            partition.units.push(n as u32);
        }
        let held_bytes = partitions.iter().map(|p| p.redo().held_bytes()).sum();
        Divided {
            kept: Kept::new(memory_bytes / 8),
            layout,
            partitions,
            end,
            spill,
            held_bytes,
            held_now: AtomicUsize::new(held_bytes),
        }
    }

    /// How many there are.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    pub fn partition_of(&self, unit: UnitNo) -> usize {
        self.layout.partition_of(unit)
    }

    /// The units of a partition, as their places among all.
    pub fn units_of(&self, partition: usize) -> &[u32] {
        &self.partitions[partition].units
    }

    pub fn load(&self, partition: usize, units: &Units) -> Result<Arc<Loaded>> {
        let source = Source {
            units,
            spill: &self.spill,
            end: self.end,
        };
        self.partitions[partition].load(&source)
    }

    /// For a page that somebody needs now: others of its partition may be next.
    pub fn load_for_user(&self, partition: usize, units: &Units) -> Result<Arc<Loaded>> {
        let loaded = self.load(partition, units)?;
        if Arc::strong_count(&loaded) == 1 {
            // Nobody else has it. If that has changed by now it is kept for a while without need.
            self.kept.keep(partition, loaded.clone());
        }
        Ok(loaded)
    }

    /// No page of the partition lacks redo any more. May be called again.
    pub fn clear(&self, partition: usize) {
        let gone = self.partitions[partition].clear();
        self.held_now.fetch_sub(gone, Relaxed);
        self.kept.let_go(partition);
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.spill.bytes()
    }

    /// What blocks of changes took in the beginning.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub fn remove_file(&self) -> Result<()> {
        self.spill.remove()
    }

    /// Sabotage: loses a block of redo.
    pub fn lose_block(&self) {
        let _ = self.partitions.iter().any(|p| p.redo().lose_block());
    }

    #[cfg(test)]
    pub fn spilled_blocks(&self) -> usize {
        let blocks = |p: &Partition| p.redo().spilled_blocks();
        self.partitions.iter().map(blocks).sum()
    }

    /// What they take now.
    pub fn held_bytes_now(&self) -> usize {
        self.held_now.load(Relaxed)
    }

    /// The same, counted.
    #[cfg(test)]
    pub fn bytes_of_blocks(&self) -> usize {
        self.partitions.iter().map(|p| p.redo().held_bytes()).sum()
    }

    #[cfg(test)]
    pub fn kept(&self) -> Vec<usize> {
        self.kept.partitions()
    }
}
