//! What can be set about flushing. Names and defaults are InnoDB's.

use crate::base::{Error, Result};

/// How the page cleaner works. Everything can be changed while the database is open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlushOptions {
    /// Pages per second that are written while there is nothing else to do, and when `max_dirty_pages_pct` is
    /// reached.
    pub io_capacity: u32,
    /// Pages per second that are written at most, as long as the checkpoint age is below its asynchronous
    /// watermark and threads find free frames. At least `io_capacity`.
    pub io_capacity_max: u32,
    /// The percentage of the buffer pool's pages that the cleaner tries to keep from being dirty at the same
    /// time: it may exceed this for a while.
    pub max_dirty_pages_pct: f64,
    /// Above this percentage pages are written, the more the nearer `max_dirty_pages_pct`; 0: only above
    /// that.
    pub max_dirty_pages_pct_lwm: f64,
    /// Writes pages ahead, so that the checkpoint age settles well below its watermarks. Without it nothing
    /// is written because of the age below the asynchronous one.
    pub adaptive_flushing: bool,
    /// The percentage of the redo capacity below which a checkpoint age causes no writing.
    pub adaptive_flushing_lwm: f64,
    /// Over how many rounds of the cleaner, each a tenth of a second, the speed of the redo log and other
    /// quantities are averaged.
    pub flushing_avg_loops: u32,
    /// How many free frames the cleaner keeps ahead of demand, up to a 32nd of the pool, and how far it looks
    /// for them: four times as many, or a quarter of the pool.
    pub lru_scan_depth: u32,
}

impl Default for FlushOptions {
    fn default() -> FlushOptions {
        FlushOptions {
            io_capacity: 200,
            io_capacity_max: 2000,
            max_dirty_pages_pct: 90.0,
            max_dirty_pages_pct_lwm: 0.0,
            adaptive_flushing: true,
            adaptive_flushing_lwm: 10.0,
            flushing_avg_loops: 30,
            lru_scan_depth: 1536,
        }
    }
}

impl FlushOptions {
    pub const LEAST_IO_CAPACITY: u32 = 100;
    pub const MOST_AVG_LOOPS: u32 = 1000;
    pub const LEAST_LRU_SCAN_DEPTH: u32 = 100;
    pub const MOST_ADAPTIVE_FLUSHING_LWM: f64 = 70.0;
    pub const MOST_DIRTY_PAGES_PCT: f64 = 99.999;

    pub(crate) fn validate(&self) -> Result<()> {
        let bounds = [
            (
                "io_capacity",
                f64::from(self.io_capacity),
                f64::from(Self::LEAST_IO_CAPACITY),
                f64::from(u32::MAX),
            ),
            (
                "io_capacity_max",
                f64::from(self.io_capacity_max),
                f64::from(self.io_capacity),
                f64::from(u32::MAX),
            ),
            (
                "max_dirty_pages_pct",
                self.max_dirty_pages_pct,
                0.0,
                Self::MOST_DIRTY_PAGES_PCT,
            ),
            (
                "max_dirty_pages_pct_lwm",
                self.max_dirty_pages_pct_lwm,
                0.0,
                self.max_dirty_pages_pct,
            ),
            (
                "adaptive_flushing_lwm",
                self.adaptive_flushing_lwm,
                0.0,
                Self::MOST_ADAPTIVE_FLUSHING_LWM,
            ),
            (
                "flushing_avg_loops",
                f64::from(self.flushing_avg_loops),
                1.0,
                f64::from(Self::MOST_AVG_LOOPS),
            ),
            (
                "lru_scan_depth",
                f64::from(self.lru_scan_depth),
                f64::from(Self::LEAST_LRU_SCAN_DEPTH),
                f64::from(u32::MAX),
            ),
        ];
        for (name, value, least, most) in bounds {
            // Neither is a number.
            if !(least..=most).contains(&value) {
                return Err(Error::invalid(format!(
                    "flush.{name} {value} is not between {least} and {most}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused_by_name() {
        FlushOptions::default().validate().unwrap();
        let refused = |change: fn(&mut FlushOptions), name: &str| {
            let mut options = FlushOptions::default();
            change(&mut options);
            let why = options.validate().unwrap_err().to_string();
            assert!(why.contains(name), "{why}");
        };
        refused(|o| o.io_capacity = 99, "flush.io_capacity 99");
        refused(|o| o.io_capacity_max = 199, "flush.io_capacity_max 199");
        refused(
            |o| o.max_dirty_pages_pct = 100.0,
            "flush.max_dirty_pages_pct 100",
        );
        refused(
            |o| o.max_dirty_pages_pct = f64::NAN,
            "flush.max_dirty_pages_pct NaN",
        );
        refused(
            |o| o.max_dirty_pages_pct_lwm = 90.5,
            "flush.max_dirty_pages_pct_lwm 90.5",
        );
        refused(
            |o| o.adaptive_flushing_lwm = 71.0,
            "flush.adaptive_flushing_lwm 71",
        );
        refused(|o| o.flushing_avg_loops = 0, "flush.flushing_avg_loops 0");
        refused(|o| o.lru_scan_depth = 99, "flush.lru_scan_depth 99");
    }
}
