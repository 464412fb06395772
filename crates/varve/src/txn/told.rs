//! How often the administrator is told: what comes again and again would fill the log, and hide the rest.

use std::collections::HashMap;
use std::panic::Location;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many messages of one place in the code are told within `WINDOW`.
const MOST: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);

type Place = &'static Location<'static>;

/// What was told lately, by places in the code.
#[derive(Default)]
pub struct Told {
    places: Mutex<HashMap<Place, Lately>>,
}

struct Lately {
    since: Instant,
    told: u32,
    left_out: u64,
}

impl Told {
    /// Whether this place may say something. If so: how much it was kept from saying before.
    pub fn take(&self, place: Place, now: Instant) -> Option<u64> {
        let mut places = self.places.lock();
        let lately = places.entry(place).or_insert(Lately {
            since: now,
            told: 0,
            left_out: 0,
        });
        if now.saturating_duration_since(lately.since) >= WINDOW {
            (lately.since, lately.told) = (now, 0);
        }
        if lately.told == MOST {
            lately.left_out += 1;
            return None;
        }
        lately.told += 1;
        Some(std::mem::take(&mut lately.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_heard_a_hundred_times_a_minute() {
        let told = Told::default();
        let (here, there) = (Location::caller(), other());
        let begun = Instant::now();
        for _ in 0..MOST {
            assert_eq!(told.take(here, begun), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(told.take(here, begun + WINDOW / 2), None);
        }
        assert_eq!(told.take(there, begun), Some(0), "another place");
        assert_eq!(told.take(here, begun + WINDOW), Some(3));
        assert_eq!(told.take(here, begun + WINDOW), Some(0));
    }

    #[track_caller]
    fn other() -> Place {
        Location::caller()
    }
}
