//! Backups beside everything else: each is made in small steps between those of the workload, restored, and
//! compared with what had committed when it ended. Most are increments on the one before, or on an older one.

use std::fs;

use varve::backup::{Backup, BackupOptions, merge_on, restore_on};
use varve::internals::io::{Disk, RealDisk};

use super::*;

/// No chain is longer.
const LONGEST: usize = 6;

/// A backup that is being made.
pub(super) struct BackupSteps {
    backup: Backup,
    dir: PathBuf,
    /// Pieces that are copied at each step.
    pieces: usize,
    /// Steps that pass once all is copied.
    rests: usize,
}

impl Runner {
    /// Goes on with a backup, or begins one.
    pub(super) fn step_backup(&mut self) {
        let Some(mut steps) = self.backup.take() else {
            if self.rng.random_ratio(self.config.backups, 100) {
                self.begin_backup();
            }
            return;
        };
        for _ in 0..steps.pieces {
            if !steps.backup.step().unwrap() {
                if steps.rests == 0 {
                    return self.end_backup(steps);
                }
                steps.rests -= 1;
                break;
            }
        }
        self.backup = Some(steps);
    }

    fn begin_backup(&mut self) {
        // Of none of the chain: now and then it begins anew, or goes on from an older one.
        let kept = self.rng.random_range(0..=self.chain.len().min(LONGEST - 1));
        let kept = match self.rng.random_range(0..4) {
            0 => kept,
            _ => self.chain.len() % LONGEST,
        };
        self.chain.truncate(kept);
        let dir = self.place_of_backups().join(format!("made-{kept}"));
        self.remove(&dir);
        let options = BackupOptions {
            base: self.chain.last().cloned(),
            piece_bytes: self.config.page_size as usize * self.rng.random_range(1..=8),
            ..BackupOptions::default()
        };
        let backup = self.db().backup_in_steps(&dir, options).unwrap();
        self.trace.note(format!("begin a backup on {kept} others"));
        self.backup = Some(BackupSteps {
            backup,
            dir,
            pieces: self.rng.random_range(1..30),
            rests: self.rng.random_range(0..20),
        });
    }

    /// Makes a database of it, which has what has committed by now.
    fn end_backup(&mut self, steps: BackupSteps) {
        self.trace.doing = "end of the backup".into();
        let made = steps.backup.finish().unwrap();
        assert!(made.damaged.is_empty() && made.lost.is_empty());
        assert_eq!(made.is_increment, !self.chain.is_empty());
        self.chain.push(steps.dir);
        let to = self.place_of_backups().join("restored");
        self.remove(&to);
        let chain: Vec<&Path> = self.chain.iter().map(|dir| &**dir).collect();
        let restored = restore_on(&*self.disk(), &chain, &to).unwrap();
        assert_eq!((restored.from, restored.to), (made.from, made.to));
        if made.is_increment {
            self.report.increments += 1;
        } else {
            assert_eq!(restored, made);
        }
        if self.rng.random_ratio(1, 8) {
            let name = match self.chain[0].ends_with("merged") {
                true => "merged-again",
                false => "merged",
            };
            let merged = self.place_of_backups().join(name);
            self.remove(&merged);
            assert_eq!(merge_on(&*self.disk(), &chain, &merged).unwrap(), restored);
            self.remove(&to);
            assert_eq!(
                restore_on(&*self.disk(), &[&*merged], &to).unwrap(),
                restored
            );
            // What is made next may go with it.
            self.chain = vec![merged];
        }
        let db = self.config.open_with(&to, None).unwrap();
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        let names = db.prepared();
        assert_eq!(names, self.db().prepared());
        names
            .iter()
            .for_each(|xid| db.rollback_prepared(xid).unwrap());
        let lasts = |number: usize| !self.is_temporary(number);
        let names = (0..self.oracle.tables()).filter(|number| lasts(*number));
        let mut names: Vec<String> = names.map(|n| self.oracle.def(n).name.clone()).collect();
        names.sort_unstable();
        assert_eq!(db.tables().unwrap(), names);
        // Handles of temporary tables stand for none.
        let table = |n: usize| match lasts(n) {
            true => db.table(&self.oracle.def(n).name).unwrap(),
            false => self.tables[n].clone(),
        };
        let tables: Vec<Table> = (0..self.oracle.tables()).map(table).collect();
        phases::verify(&self.oracle, &db, &tables, &lasts);
        db.close().unwrap();
        self.report.backups += 1;
        self.trace.note("end of a backup".into());
    }

    fn disk(&self) -> Arc<dyn Disk> {
        match &self.config.disk {
            Some(disk) => Arc::new(disk.clone()),
            None => Arc::new(RealDisk),
        }
    }

    /// Not in the database's own directory.
    fn place_of_backups(&self) -> PathBuf {
        match &self.config.disk {
            Some(_) => PathBuf::from("/backups"),
            None => self.backups.path().to_path_buf(),
        }
    }

    fn remove(&self, dir: &Path) {
        if self.config.disk.is_none() {
            let _ = fs::remove_dir_all(dir);
            return;
        }
        let disk = self.disk();
        if !disk.exists(dir).unwrap() {
            return;
        }
        for entry in disk.list(dir).unwrap() {
            let path = dir.join(&entry.name);
            match entry.is_dir {
                true => self.remove(&path),
                false => disk.remove(&path).unwrap(),
            }
        }
        disk.remove_dir(dir).unwrap();
    }
}
