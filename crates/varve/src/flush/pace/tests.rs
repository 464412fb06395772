//! The pace against a model of a buffer pool: which pages are dirty since when, under different loads.

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

const PAGES: usize = 3000;
const CAPACITY: u64 = 100_000_000;

/// A load, for a second each.
#[derive(Clone, Copy)]
struct Load {
    /// Bytes of redo.
    redo: u64,
    /// Changes of pages.
    changes: usize,
    /// The share of the changes that goes to a tenth of the pages.
    hot: f64,
    /// Pages that are written to free their frames: none of that tenth, if it is hot.
    lru: usize,
}

const UNIFORM: Load = Load {
    redo: 10_000_000,
    changes: 600,
    hot: 0.0,
    lru: 0,
};

struct Model {
    rng: SmallRng,
    start: Instant,
    ticks: u32,
    end: u64,
    first_change: Vec<u64>,
    lru_pages: u64,
    pace: Pace,
    options: FlushOptions,
    /// Of each round.
    ages: Vec<f64>,
    written: Vec<usize>,
    causes: Vec<Cause>,
}

impl Model {
    fn new(options: FlushOptions) -> Model {
        let start = Instant::now();
        Model {
            rng: SmallRng::seed_from_u64(1),
            start,
            ticks: 0,
            end: 8,
            first_change: vec![0; PAGES],
            lru_pages: 0,
            pace: Pace::new(Lsn(8), start),
            options,
            ages: Vec::new(),
            written: Vec::new(),
            causes: Vec::new(),
        }
    }

    /// The dirty pages, oldest first.
    fn dirty(&self) -> Vec<(u64, usize)> {
        let pages = self.first_change.iter().copied().enumerate();
        let mut dirty: Vec<_> = pages.filter(|p| p.1 != 0).map(|(n, c)| (c, n)).collect();
        dirty.sort_unstable();
        dirty
    }

    fn change(&mut self, page: usize, at: u64) {
        if self.first_change[page] == 0 {
            self.first_change[page] = at;
        }
    }

    /// A tenth of a second of the load.
    fn load(&mut self, load: &Load) {
        let changes = load.changes / 10;
        for n in 0..changes {
            let at = self.end + load.redo / 10 * n as u64 / changes as u64;
            let among = match self.rng.random_bool(load.hot) {
                true => PAGES / 10,
                false => PAGES,
            };
            let page = self.rng.random_range(0..among);
            self.change(page, at);
        }
        self.end += load.redo / 10;
        let coldest = if load.hot > 0.0 { PAGES / 10 } else { 0 };
        for _ in 0..load.lru / 10 {
            let tried = (0..50).map(|_| self.rng.random_range(coldest..PAGES));
            let tried: Vec<usize> = tried.collect();
            if let Some(page) = tried.into_iter().find(|p| self.first_change[*p] != 0) {
                self.first_change[page] = 0;
                self.lru_pages += 1;
            }
        }
    }

    fn clean(&mut self) {
        self.ticks += 1;
        let now = self.start + TICK * self.ticks;
        let dirty = self.dirty();
        let sight = Sight {
            now,
            end: Lsn(self.end),
            oldest: Lsn(dirty.first().map_or(self.end, |p| p.0)),
            capacity: CAPACITY,
            dirty: dirty.len(),
            frames: PAGES,
            lru_pages: self.lru_pages,
        };
        let up_to =
            |lsn: Lsn, most: usize| dirty.iter().filter(|p| p.0 <= lsn.0).take(most).count();
        self.pace.measure(&sight, &self.options, up_to);
        self.ages.push(sight.age());
        let mut written = 0;
        if let Some(plan) = self.pace.plan(now, 64) {
            let mut due: Vec<_> = dirty.iter().filter(|p| p.0 <= plan.up_to.0).collect();
            if plan.cause == Cause::MaxDirty {
                // Any: those that will have to give way next.
                due.sort_unstable_by_key(|p| p.1);
            }
            for page in due.into_iter().take(plan.pages) {
                self.first_change[page.1] = 0;
                written += 1;
            }
            self.pace.wrote(now, &plan, written, written == plan.pages);
            self.causes.push(plan.cause);
        }
        self.written.push(written);
    }

    fn run(&mut self, load: &Load, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.load(load);
            self.clean();
        }
    }

    /// Forgets what was before the load had come to rest.
    fn settled(&mut self) {
        self.ages.clear();
        self.written.clear();
        self.causes.clear();
    }

    fn ages(&self) -> (f64, f64) {
        let least = self.ages.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.ages.iter().copied().fold(0.0, f64::max))
    }

    /// Pages written in the least and in the most of all seconds.
    fn seconds(&self) -> (usize, usize) {
        let seconds = self.written.chunks_exact(10).map(|s| s.iter().sum());
        let seconds: Vec<usize> = seconds.collect();
        (
            *seconds.iter().min().unwrap(),
            *seconds.iter().max().unwrap(),
        )
    }
}

/// Comes to rest at `TARGET`, and writes in no second half as much or twice as much as in another: no waves.
#[test]
fn a_steady_load_comes_to_rest() {
    let hot = Load {
        hot: 0.9,
        ..UNIFORM
    };
    let fast = Load {
        redo: 20_000_000,
        ..UNIFORM
    };
    for (name, load) in [("uniform", UNIFORM), ("hot", hot), ("fast", fast)] {
        let mut model = Model::new(FlushOptions::default());
        model.run(&load, 40);
        let highest = model.ages().1;
        assert!(highest < ASYNC, "{name}: {highest} while it begins");
        model.settled();
        model.run(&load, 60);
        let (low, high) = model.ages();
        assert!(
            low > TARGET - 0.06 && high < TARGET + 0.06,
            "{name}: {low} to {high}"
        );
        let (least, most) = model.seconds();
        assert!(
            least * 2 > most,
            "{name}: {least} to {most} pages in a second"
        );
        assert!(model.causes.iter().all(|c| *c == Cause::Adaptive), "{name}");
    }
}

/// Half the pages become dirty at once: they are worked off without a wave that comes back with every trip
/// through the log.
#[test]
fn a_wave_of_changes_does_not_come_back() {
    let mut model = Model::new(FlushOptions::default());
    model.run(&UNIFORM, 30);
    for page in 0..PAGES / 2 {
        model.change(page, model.end);
    }
    model.run(&UNIFORM, 30);
    assert!(model.ages().1 < ASYNC, "{:?}", model.ages());
    model.settled();
    model.run(&UNIFORM, 40);
    let (least, most) = model.seconds();
    assert!(least * 3 > most * 2, "{least} to {most} pages in a second");
}

/// Pages that are written to free their frames are not written for their age, too; and those that nobody
/// wants the frame of are not forgotten for that.
#[test]
fn what_is_written_for_frames_is_not_written_again() {
    let load = Load {
        lru: 300,
        ..UNIFORM
    };
    let mut model = Model::new(FlushOptions::default());
    model.run(&load, 40);
    model.settled();
    model.run(&load, 60);
    let (low, high) = model.ages();
    assert!(low > 0.5 && high < ASYNC, "{low} to {high}");
    let per_second = model.written.iter().sum::<usize>() / 60;
    // Without those for frames it takes about 270.
    assert!(per_second < 120, "{per_second} pages in a second");
}

/// Nearly all that is written is written for frames, but pages that nobody wants the frame of hold up the
/// checkpoint: it comes to rest where it does otherwise.
#[test]
fn hot_pages_are_written_beside_many_for_frames() {
    for lru in [1000, 2000, 4000] {
        let load = Load {
            changes: 2 * lru,
            hot: 0.5,
            lru,
            ..UNIFORM
        };
        let mut model = Model::new(FlushOptions::default());
        model.run(&load, 60);
        model.settled();
        model.run(&load, 60);
        let (low, high) = model.ages();
        assert!(
            low > TARGET - 0.06 && high < TARGET + 0.06,
            "{lru}: {low} to {high}"
        );
    }
}

/// A limit below what the load needs is kept below the asynchronous watermark, and gives way above it, in
/// time.
#[test]
fn io_capacity_max_gives_way_in_time() {
    let options = FlushOptions {
        io_capacity: 100,
        io_capacity_max: 100,
        ..FlushOptions::default()
    };
    let mut model = Model::new(options);
    model.run(&UNIFORM, 5);
    let first = model.ages.iter().position(|age| *age >= ASYNC);
    for second in model.written[..first.unwrap_or(model.written.len())].chunks(10) {
        assert!(second.iter().sum::<usize>() <= 164, "{second:?}");
    }
    model.run(&UNIFORM, 35);
    assert!(model.ages().1 < SYNC, "{:?}", model.ages());
    model.settled();
    model.run(&UNIFORM, 60);
    let (low, high) = model.ages();
    assert!(low > ASYNC && high < SYNC, "{low} to {high}");
    assert!(model.causes.iter().all(|c| *c == Cause::Async));
    let (least, most) = model.seconds();
    assert!(least * 2 > most, "{least} to {most} pages in a second");
}

/// Nothing is written for the age until the asynchronous watermark is reached.
#[test]
fn adaptive_flushing_can_be_switched_off() {
    let options = FlushOptions {
        adaptive_flushing: false,
        ..FlushOptions::default()
    };
    let mut model = Model::new(options);
    model.run(&UNIFORM, 7);
    assert_eq!(model.seconds(), (0, 0));
    model.run(&UNIFORM, 60);
    assert!(model.ages().1 < SYNC, "{:?}", model.ages());
    assert!(model.causes.iter().all(|c| *c == Cause::Async));
}

/// Below `adaptive_flushing_lwm` nothing is written, and no page that is younger than that.
#[test]
fn the_low_water_mark_of_the_age() {
    let options = FlushOptions {
        adaptive_flushing_lwm: 50.0,
        ..FlushOptions::default()
    };
    let mut model = Model::new(options);
    model.run(&UNIFORM, 5);
    assert_eq!(model.seconds(), (0, 0));
    model.run(&UNIFORM, 40);
    model.settled();
    model.run(&UNIFORM, 20);
    assert!(model.ages().0 > 0.5, "{:?}", model.ages());
}

/// The share of dirty pages is kept near its limit, with `io_capacity` at it and up to `io_capacity_max`
/// above; with a low-water mark, by less from there on.
#[test]
fn dirty_pages_are_limited() {
    let load = Load {
        redo: 1000,
        changes: 1000,
        ..UNIFORM
    };
    let options = FlushOptions {
        max_dirty_pages_pct: 50.0,
        ..FlushOptions::default()
    };
    for (lwm, bounds) in [(0.0, 47.0..65.0), (10.0, 47.0..65.0)] {
        let options = FlushOptions {
            max_dirty_pages_pct_lwm: lwm,
            ..options
        };
        let mut model = Model::new(options);
        model.run(&load, 60);
        let pct = 100.0 * model.dirty().len() as f64 / PAGES as f64;
        assert!(bounds.contains(&pct), "{pct} % with {lwm}");
        assert!(model.causes.iter().all(|c| *c == Cause::MaxDirty));
    }
    assert_eq!(for_dirty(49.0, &options), 0.0);
    assert!((200.0..210.0).contains(&for_dirty(50.1, &options)));
    assert!(for_dirty(99.9, &options) > 1990.0);
    let with_lwm = FlushOptions {
        max_dirty_pages_pct_lwm: 20.0,
        ..options
    };
    assert_eq!(for_dirty(19.0, &with_lwm), 0.0);
    assert_eq!(for_dirty(25.0, &with_lwm), 100.0);
}

/// A limit of dirty pages that is exceeded all the time takes nothing from what the age demands.
#[test]
fn dirty_pages_do_not_hold_up_the_checkpoint() {
    let options = FlushOptions {
        max_dirty_pages_pct: 5.0,
        io_capacity_max: 500,
        ..FlushOptions::default()
    };
    let mut model = Model::new(options);
    model.run(&UNIFORM, 40);
    assert!(model.causes.contains(&Cause::MaxDirty));
    assert!(model.causes.contains(&Cause::Adaptive));
    assert!(model.ages().1 < ASYNC, "{:?}", model.ages());
}

/// `io_capacity` pages per second once the log has not grown for a second, until nothing is dirty.
#[test]
fn idle_time_is_used_only_after_a_quiet_second() {
    let mut model = Model::new(FlushOptions::default());
    let short = Load {
        changes: 5000,
        redo: 1_000_000,
        ..UNIFORM
    };
    model.run(&short, 1);
    let dirty = model.dirty().len();
    assert!(dirty > 1000);
    model.settled();
    (0..9).for_each(|_| model.clean());
    assert_eq!(model.written.iter().sum::<usize>(), 0, "not at once");
    model.settled();
    (0..50).for_each(|_| model.clean());
    let written = model.written.iter().sum::<usize>();
    assert!((900..=1100).contains(&written), "{written} in 5 seconds");
    assert!(model.causes.iter().all(|c| *c == Cause::Background));
    (0..300).for_each(|_| model.clean());
    assert_eq!(model.dirty().len(), 0);
}

/// A longer average follows a change of the load later.
#[test]
fn averages_reach_back_so_many_rounds() {
    let after = |loops| {
        let options = FlushOptions {
            flushing_avg_loops: loops,
            ..FlushOptions::default()
        };
        let mut model = Model::new(options);
        model.run(&UNIFORM, 1);
        model.pace.estimates().redo_rate / UNIFORM.redo as f64
    };
    assert!(after(1) > 0.99);
    assert!((0.2..0.4).contains(&after(30)), "{}", after(30));
    assert!(after(1000) < 0.02);
}
