//! A thread that fills the leaves of a load while the loader's own thread gathers the records for the next
//! ones.
//!
//! Leaves are handed over in the order of their keys, and the helper fills them in that order: it is the
//! loader, as far as the tree is concerned, and the other thread leaves the tree alone until it has `end`ed.
//! So every moment of the tree is one that it would have come through without a helper.
//!
//! - **HELP-1** When `end` returns, or the helper is dropped, its thread is gone: nobody changes the tree.
//!
//! After a failure it fills no other leaf; the loader hears of it with the next leaf, or in the end. A panic
//! poisons the log. It waits for leaves without any latch, and the loader's thread has none when it waits for
//! the helper.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::{Leaf, Tree};
use crate::base::{Error, Result, threads};

/// Leaves that are not filled yet, at most: a moment's work.
const LEAVES_AHEAD: usize = 32;

pub(super) struct Helper {
    /// `None` when there are no more.
    leaves: Option<SyncSender<Leaf>>,
    /// `None` when it is gone.
    thread: Option<JoinHandle<Result<()>>>,
}

impl Helper {
    /// `None`: the system gives no thread.
    pub fn start<T>(tree: &T) -> Option<Helper>
    where
        T: Deref<Target = Tree> + Clone + Send + 'static,
    {
        let tree = tree.clone();
        let (leaves, next) = sync_channel(LEAVES_AHEAD);
        let body = move || fill_all(&tree, &next);
        let thread = threads::spawn("varve-load", body);
        Some(Helper {
            leaves: Some(leaves),
            thread: Some(thread.ok()?),
        })
    }

    /// Has the leaf filled after all before.
    pub fn fill(&mut self, leaf: Leaf) -> Result<()> {
        match self.leaves.as_ref().map(|leaves| leaves.send(leaf)) {
            Some(Ok(())) => Ok(()),
            // It has ended before its end, with an error.
            _ => self.end(),
        }
    }

    /// HELP-1: waits until all leaves are filled.
    pub fn end(&mut self) -> Result<()> {
        self.leaves = None;
        match self.thread.take() {
            Some(thread) => thread.join().expect("its panics are caught"),
            None => Err(Error::invalid("a load that has failed goes on")),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Who gives up a load has its error, or needs none.
            let _ = self.end();
        }
    }
}

fn fill_all(tree: &Tree, leaves: &Receiver<Leaf>) -> Result<()> {
    let work = || leaves.iter().try_for_each(|leaf| leaf.fill(tree));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let why = format!(
            "the helper of a load panicked: {}",
            text.unwrap_or_default()
        );
        tree.env.log.poison(why.clone());
        Err(Error::Poisoned { why })
    })
}
