//! What open tables know of each other by their foreign keys.
//!
//! Each handle has its links: for each of its foreign keys the parent, and the children of the table, as far
//! as they are there. They are made anew, under the lock of `Tables`, whenever a table at one of their ends
//! appears, goes or is replaced. A handle refers to others weakly: tables may refer to each other in circles.
//! What the parents and their columns are called is here, too: they can be renamed while statements use the
//! children, whose handles stay. `OpenTable::def` has the names of when the handle was opened.
//!
//! - **FK-2** Between two changes of `Tables` the links of each handle that it has are those that the
//!   definitions say. A statement that has locked the table at the other end, and finds that it is not
//!   dropped, works with the right one: DDL locks a table before it drops or replaces it, and marks it as
//!   dropped before it lets go. Who finds the mark waits until that DDL statement has changed `Tables`
//!   ([`Tables::serialize_ddl`](super::Tables::serialize_ddl)), and looks again.
//!
//! A table whose name begins with `#` is being made for another one, or is what another one replaced. It is
//! nobody's parent, and no parent knows it as a child; but the rows that it gets have parents by the foreign
//! keys that are new. While a table has stepped aside its children's new rows, and changes of its parents,
//! wait for the one that takes its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::foreign::ForeignKey;
use super::table::OpenTable;

/// A foreign key of the handle, seen from the child.
pub struct Parent {
    pub table: Weak<OpenTable>,
    /// Of the parent: the index that begins with what is referred to.
    pub index: usize,
}

/// A foreign key of another table, or of this one, seen from the parent.
pub struct Child {
    pub table: Weak<OpenTable>,
    /// Which of the child's foreign keys it is.
    pub number: usize,
    pub parent_columns: Vec<usize>,
}

#[derive(Default)]
struct Ends {
    /// The handle's foreign keys, in which parents and their columns are called what they are called now.
    keys: Arc<[ForeignKey]>,
    /// By the number of the foreign key; `None`: there is no such table, or it can't be the parent.
    parents: Arc<[Option<Arc<Parent>>]>,
    children: Arc<[Arc<Child>]>,
    /// A child has stepped aside for its copy, which has not taken its place yet.
    waits: bool,
}

pub struct Links {
    ends: RwLock<Ends>,
    /// Relaxed: the first row of a new child has had its parent's row locked shared. A transaction that locks
    /// that row exclusively afterwards got it from there, and sees what was stored here before.
    has_children: AtomicBool,
}

impl Links {
    /// Of a handle with these foreign keys, tied to nobody.
    pub(super) fn new(keys: &[ForeignKey]) -> Links {
        Links {
            ends: RwLock::new(Ends {
                keys: keys.into(),
                ..Ends::default()
            }),
            has_children: AtomicBool::new(false),
        }
    }

    /// One load, for tables that are nobody's parents.
    pub fn has_children(&self) -> bool {
        self.has_children.load(Ordering::Relaxed)
    }

    pub fn children(&self) -> Arc<[Arc<Child>]> {
        self.ends.read().children.clone()
    }

    /// The parent by this foreign key.
    pub fn parent(&self, number: usize) -> Option<Arc<Parent>> {
        self.ends.read().parents.get(number)?.clone()
    }

    /// The foreign keys, with what the parents and their columns are called now.
    pub fn keys(&self) -> Arc<[ForeignKey]> {
        self.ends.read().keys.clone()
    }

    /// Whether a child has stepped aside for a moment.
    pub fn waits_for_child(&self) -> bool {
        self.ends.read().waits
    }

    pub(super) fn set(
        &self,
        parents: Vec<Option<Arc<Parent>>>,
        children: Vec<Arc<Child>>,
        waits: bool,
    ) {
        self.has_children
            .store(waits || !children.is_empty(), Ordering::Relaxed);
        let mut ends = self.ends.write();
        ends.parents = parents.into();
        ends.children = children.into();
        ends.waits = waits;
    }

    /// A parent, or its columns, have other names.
    pub(super) fn rename(&self, mut rename: impl FnMut(&mut ForeignKey)) {
        let mut ends = self.ends.write();
        let mut keys = ends.keys.to_vec();
        keys.iter_mut().for_each(&mut rename);
        ends.keys = keys.into();
    }
}

/// The parents of `child`, by foreign key.
pub(super) fn parents_of(
    child: &Arc<OpenTable>,
    by_name: impl Fn(&str) -> Option<Arc<OpenTable>>,
) -> Vec<Option<Arc<Parent>>> {
    let parent = |key: &ForeignKey| {
        if key.kept {
            return None;
        }
        let parent = by_name(&key.parent)?;
        let (_, index) = child.def.parent_index(key, &parent.def).ok()?;
        let table = Arc::downgrade(&parent);
        Some(Arc::new(Parent { table, index }))
    };
    child.links.keys().iter().map(parent).collect()
}

/// The children of `parent` among these tables.
pub(super) fn children_of(
    parent: &Arc<OpenTable>,
    tables: impl Iterator<Item = Arc<OpenTable>>,
) -> Vec<Arc<Child>> {
    let mut children = Vec::new();
    for child in tables {
        for number in child.foreign_keys_to(&parent.def.name) {
            let key = &child.links.keys()[number];
            if let Ok((parent_columns, _)) = child.def.parent_index(key, &parent.def) {
                children.push(Arc::new(Child {
                    table: Arc::downgrade(&child),
                    number,
                    parent_columns,
                }));
            }
        }
    }
    children
}
