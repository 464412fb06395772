//! What open tables know of each other by their foreign keys.
//!
//! Each handle has its links: for each of its foreign keys the parent, and the children of the table, as far
//! as they are there. They are made anew, under the lock of `Tables`, whenever a table at one of their ends
//! appears, goes or is replaced. A handle refers to others weakly: tables may refer to each other in circles.
//! What the parents are called is here, too: a parent can be renamed while statements use its children, whose
//! handles stay. `OpenTable::def` has the names of when the handle was opened.
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
    /// By the number of the foreign key: what the parent is called now.
    names: Arc<[String]>,
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
        let names = keys.iter().map(|key| key.parent.clone()).collect();
        Links {
            ends: RwLock::new(Ends {
                names,
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

    /// What the parents are called, by the number of the foreign key.
    pub fn parent_names(&self) -> Arc<[String]> {
        self.ends.read().names.clone()
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

    /// A parent has another name.
    pub(super) fn rename_parent(&self, from: &str, to: &str) {
        let mut ends = self.ends.write();
        let name = |name: &String| if name == from { to } else { name }.to_string();
        ends.names = ends.names.iter().map(name).collect();
    }
}

/// The parents of `child`, by foreign key.
pub(super) fn parents_of(
    child: &Arc<OpenTable>,
    by_name: impl Fn(&str) -> Option<Arc<OpenTable>>,
) -> Vec<Option<Arc<Parent>>> {
    let parent = |(key, name): (&ForeignKey, &String)| {
        if key.kept {
            return None;
        }
        let parent = by_name(name)?;
        let (_, index) = child.def.parent_index(key, &parent.def).ok()?;
        let table = Arc::downgrade(&parent);
        Some(Arc::new(Parent { table, index }))
    };
    let names = child.links.parent_names();
    child
        .def
        .foreign_keys
        .iter()
        .zip(&*names)
        .map(parent)
        .collect()
}

/// The children of `parent` among these tables.
pub(super) fn children_of(
    parent: &Arc<OpenTable>,
    tables: impl Iterator<Item = Arc<OpenTable>>,
) -> Vec<Arc<Child>> {
    let mut children = Vec::new();
    for child in tables {
        for number in child.foreign_keys_to(&parent.def.name) {
            let key = &child.def.foreign_keys[number];
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
