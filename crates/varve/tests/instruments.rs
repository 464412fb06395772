//! What is told of threads, files and memory is told to its end: nothing is left when a database is closed.

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use varve::{
    ColumnType, Database, FileOperation, Instruments, Isolation, Memory, Options, TableDef, Value,
    set_instruments,
};

const ROWS: i64 = 30_000;

#[derive(Default)]
struct Seen {
    threads: HashMap<ThreadId, String>,
    open: HashSet<RawFd>,
    read: usize,
    written: usize,
    synced: usize,
    memory: [i64; 3],
    most_memory: [i64; 3],
}

#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Seen>>);

impl Instruments for Watcher {
    fn thread_begins(&self, name: &str) {
        let mut seen = self.0.lock().unwrap();
        let before = seen
            .threads
            .insert(std::thread::current().id(), name.into());
        assert_eq!(before, None, "{name} begins twice");
    }

    fn thread_ends(&self) {
        let own = std::thread::current().id();
        let name = self.0.lock().unwrap().threads.remove(&own);
        assert!(name.is_some(), "a thread ends that has not begun");
    }

    fn file(&self, operation: FileOperation<'_>, call: &mut dyn FnMut() -> RawFd) {
        use FileOperation::{ChangeSize, Close, Create, Open, Read, Remove, Rename, Sync, Write};
        // Before it is closed, or another one may be opened with its number.
        if let Close(file) = operation {
            assert!(self.0.lock().unwrap().open.remove(&file));
        }
        let done = call();
        let mut seen = self.0.lock().unwrap();
        match operation {
            Create(_) | Open(_) if done >= 0 => {
                assert!(seen.open.insert(done), "{done} is open");
            }
            Read(file, bytes) => {
                assert!(seen.open.contains(&file));
                seen.read += bytes;
            }
            Write(file, bytes) => {
                assert!(seen.open.contains(&file));
                seen.written += bytes;
            }
            Sync(file) => {
                assert!(seen.open.contains(&file));
                seen.synced += 1;
            }
            ChangeSize(file) => assert!(seen.open.contains(&file)),
            Create(_) | Open(_) | Close(_) | Remove(_) | Rename(..) => {}
        }
    }

    fn memory(&self, what: Memory, bytes: i64) {
        let mut seen = self.0.lock().unwrap();
        let now = &mut seen.memory[what as usize];
        *now += bytes;
        assert!(*now >= 0, "{what:?}: {now} bytes");
        let now = *now;
        let most = &mut seen.most_memory[what as usize];
        *most = now.max(*most);
    }
}

/// More than the pool has room for, and an index for which it is sorted in files.
fn fill(db: &Database, name: &str) {
    let def = TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("pad", ColumnType::text(400))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row = [Value::Int(id), Value::Text("x".repeat(400))];
        let row = def.row(&row).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
    }
    trx.commit().unwrap();
    drop(table);
    db.redefine_table(&def.index("by_pad", &["pad"])).unwrap();
}

#[test]
fn what_begins_ends() {
    let watcher = Watcher::default();
    set_instruments(Box::new(watcher.clone())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for use_native_aio in [true, false] {
        let options = Options {
            buffer_pool_bytes: 8 << 20,
            sort_buffer_bytes: 1 << 20,
            use_native_aio,
            ..Options::default()
        };
        let db = Database::open(dir.path(), options).unwrap();
        fill(&db, &format!("a/t{use_native_aio}"));
        {
            let seen = watcher.0.lock().unwrap();
            let is_there = |name: &&str| seen.threads.values().any(|n| n == name);
            let threads = ["varve-log", "varve-cleaner", "varve-purge", "varve-io"];
            assert!(threads.iter().all(is_there), "{:?}", seen.threads);
            assert_eq!(seen.memory[Memory::BufferPool as usize], 8 << 20);
            assert!(seen.memory[Memory::LogBuffer as usize] > 0);
        }
        db.close().unwrap();
        let seen = watcher.0.lock().unwrap();
        assert!(seen.threads.is_empty(), "INSTR-1: {:?}", seen.threads);
        assert!(seen.open.is_empty(), "INSTR-1: {:?}", seen.open);
        assert_eq!(seen.memory, [0; 3], "INSTR-1");
        assert!(seen.most_memory[Memory::SortBuffers as usize] > 0);
        assert!(seen.read > 0 && seen.written > ROWS as usize * 400 && seen.synced > 0);
    }
}
