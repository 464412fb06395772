//! What was done, by memcached's names. A connection counts for itself, and adds what it has counted after
//! each batch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decide::{Decision, Status};
use crate::request::{Request, Verb};

macro_rules! counts {
    ($($name:ident),* $(,)?) => {
        /// What one connection has counted.
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct Counts { $(pub $name: u64),* }

        /// What all have. Relaxed: each number is for itself.
        #[derive(Default)]
        pub struct Counters { $($name: AtomicU64),* }

        impl Counters {
            /// Adds what was counted, which begins anew.
            pub fn take(&self, counts: &mut Counts) {
                let counts = std::mem::take(counts);
                $(if counts.$name != 0 {
                    self.$name.fetch_add(counts.$name, Ordering::Relaxed);
                })*
            }

            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed))),*]
            }

            /// They begin anew.
            pub fn reset(&self) {
                $(self.$name.store(0, Ordering::Relaxed);)*
            }
        }
    };
}

counts! {
    total_connections, rejected_connections, cmd_get, cmd_set, cmd_flush, cmd_touch, get_hits, get_misses,
    delete_misses, delete_hits, incr_misses, incr_hits, decr_misses, decr_hits, cas_misses, cas_hits,
    cas_badval, touch_hits, touch_misses, bytes_read, bytes_written, total_items, items_swept,
    auth_cmds, auth_errors,
}

impl Counts {
    pub fn read(&mut self, is_there: bool) {
        self.cmd_get += 1;
        match is_there {
            true => self.get_hits += 1,
            false => self.get_misses += 1,
        }
    }

    pub fn change(&mut self, request: &Request, decision: &Decision) {
        let is_done = decision.status == Status::Done;
        let is_missing = decision.status == Status::Missing;
        let (hits, misses) = match request.verb {
            Verb::Get if request.expires.is_none() => return self.read(is_done),
            Verb::Get => {
                self.cmd_touch += 1;
                (&mut self.touch_hits, &mut self.touch_misses)
            }
            Verb::Delete => (&mut self.delete_hits, &mut self.delete_misses),
            Verb::Increment => (&mut self.incr_hits, &mut self.incr_misses),
            Verb::Decrement => (&mut self.decr_hits, &mut self.decr_misses),
            Verb::Store(_) => {
                self.cmd_set += 1;
                self.total_items += u64::from(is_done);
                if request.cas.is_none() {
                    return;
                }
                self.cas_badval += u64::from(decision.status == Status::Exists);
                (&mut self.cas_hits, &mut self.cas_misses)
            }
        };
        *hits += u64::from(is_done);
        *misses += u64::from(is_missing);
    }
}
