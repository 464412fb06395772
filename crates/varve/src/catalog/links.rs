//! What open tables know of each other by their foreign keys.
//!
//! Each handle has its links: its foreign keys, and the names of the tables that refer to it. The table at
//! the other end is looked up when a statement needs it, and remembered weakly: tables may refer to each
//! other in circles, and none keeps another one open. What the parents and their columns are called is here
//! rather than in `OpenTable::def`, which has their names of when the handle was opened: they can be renamed
//! while statements use the children, whose handles stay.
//!
//! - **FK-2** Between two DDL statements the names in each handle are those that the definitions say: who
//!   opens a table reads them, and DDL changes those of handles that are there (TAB-2). A statement that has
//!   locked the table at the other end, and finds that it is not dropped, works with the right one: DDL locks
//!   a table before it drops or replaces it, and marks it as dropped before it lets go. Who finds the mark
//!   waits until that DDL statement has changed `Tables`
//!   ([`Tables::serialize_ddl`](super::Tables::serialize_ddl)), and looks the name up again.
//!
//! A table whose name begins with `#` is being made for another one, or is what another one replaced. It is
//! nobody's parent, and no parent knows it as a child; but the rows that it gets have parents by the foreign
//! keys that are new. While a table has stepped aside its children's new rows, and changes of its parents,
//! wait for the one that takes its place.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use crate::base::Result;

use super::foreign::ForeignKey;
use super::table::OpenTable;
use super::tables::{End, Tables};

/// A foreign key of the handle, seen from the child.
struct Parent {
    table: Weak<OpenTable>,
    /// Of the parent: the index that begins with what is referred to.
    index: usize,
}

/// A foreign key of another table, or of this one, seen from the parent.
pub struct ChildKey {
    /// Which of the child's foreign keys it is.
    pub number: usize,
    pub parent_columns: Vec<usize>,
    /// Of the parent: the index that begins with them, if there is one.
    pub parent_index: Option<usize>,
}

/// A table that refers to this one.
pub struct ChildLink {
    pub name: String,
    found: RwLock<Option<FoundChild>>,
}

#[derive(Clone)]
struct FoundChild {
    table: Weak<OpenTable>,
    keys: Arc<[ChildKey]>,
}

impl ChildLink {
    fn new(name: &str) -> Arc<ChildLink> {
        Arc::new(ChildLink {
            name: name.into(),
            found: RwLock::default(),
        })
    }

    /// Its foreign keys to this table, if they are known: they are the same as long as the link is.
    pub fn keys(&self) -> Option<Arc<[ChildKey]>> {
        let found = self.found.read();
        found.as_ref().map(|found| found.keys.clone())
    }
}

/// An open child, and its foreign keys that are looked at.
pub type OpenChild = (Arc<OpenTable>, Arc<[ChildKey]>);

#[derive(Default)]
struct Ends {
    /// The handle's foreign keys, in which parents and their columns are called what they are called now.
    keys: Arc<[ForeignKey]>,
    /// By the number of the foreign key: what was found last.
    parents: Vec<Option<Arc<Parent>>>,
    children: Arc<[Arc<ChildLink>]>,
}

pub struct Links {
    ends: RwLock<Ends>,
    /// Relaxed: the first row of a new child has had its parent's row locked shared. A transaction that locks
    /// that row exclusively afterwards got it from there, and sees what was stored here before.
    has_children: AtomicBool,
}

/// The table that a link leads to, if it is open still (TAB-3).
fn follow(table: &Weak<OpenTable>) -> Option<Arc<OpenTable>> {
    let table = table.upgrade()?;
    fence(Ordering::SeqCst);
    (!table.is_dropped()).then_some(table)
}

impl Links {
    /// Of a handle with these foreign keys, and without children.
    pub(super) fn new(keys: &[ForeignKey]) -> Links {
        Links {
            ends: RwLock::new(Ends {
                keys: keys.into(),
                parents: keys.iter().map(|_| None).collect(),
                ..Ends::default()
            }),
            has_children: AtomicBool::new(false),
        }
    }

    /// One load, for tables that are nobody's parents.
    pub fn has_children(&self) -> bool {
        self.has_children.load(Ordering::Relaxed)
    }

    pub fn children(&self) -> Arc<[Arc<ChildLink>]> {
        self.ends.read().children.clone()
    }

    /// The foreign keys, with what the parents and their columns are called now.
    pub fn keys(&self) -> Arc<[ForeignKey]> {
        self.ends.read().keys.clone()
    }

    pub(super) fn set_children(&self, names: &[String]) {
        self.change_children(|_| names.iter().map(|name| ChildLink::new(name)).collect());
    }

    /// The table of this name refers to this one, by foreign keys that nobody knows yet.
    pub(super) fn add_child(&self, name: &str) {
        self.change_children(|links| {
            let others = links.iter().filter(|link| link.name != name).cloned();
            others.chain([ChildLink::new(name)]).collect()
        });
    }

    pub(super) fn remove_child(&self, name: &str) {
        self.change_children(|links| {
            let others = links.iter().filter(|link| link.name != name);
            others.cloned().collect()
        });
    }

    fn change_children(&self, change: impl FnOnce(&[Arc<ChildLink>]) -> Arc<[Arc<ChildLink>]>) {
        let mut ends = self.ends.write();
        ends.children = change(&ends.children);
        let has_some = !ends.children.is_empty();
        self.has_children.store(has_some, Ordering::Relaxed);
    }

    /// The table of this name, or its columns, are called otherwise by the foreign keys that refer to it.
    pub(super) fn rename(&self, parent: &str, rename: impl Fn(&mut ForeignKey)) {
        if !self.ends.read().keys.iter().any(|key| key.parent == parent) {
            return;
        }
        let mut ends = self.ends.write();
        let mut keys = ends.keys.to_vec();
        let to_it = keys.iter_mut().filter(|key| key.parent == parent);
        to_it.for_each(rename);
        ends.keys = keys.into();
    }
}

impl Tables {
    /// The parent of `child` by its foreign key with this number, and the index in which its rows are found.
    /// One that can't be the parent is nobody.
    pub fn parent_of(
        &self,
        child: &OpenTable,
        number: usize,
    ) -> Result<End<(Arc<OpenTable>, usize)>> {
        let known = child.links.ends.read().parents[number].clone();
        if let Some(link) = known
            && let Some(parent) = follow(&link.table)
        {
            return Ok(End::Open((parent, link.index)));
        }
        if child.def.foreign_keys[number].kept {
            return Ok(End::Nobody);
        }
        loop {
            let keys = child.links.keys();
            let key = &keys[number];
            match self.end(&key.parent)? {
                End::Vacant => return Ok(End::Vacant),
                End::Open(parent) if parent.is_temporary() => {}
                End::Open(parent) => {
                    if let Ok((_, index)) = child.def.parent_index(key, &parent.def) {
                        let table = Arc::downgrade(&parent);
                        let link = Arc::new(Parent { table, index });
                        child.links.ends.write().parents[number] = Some(link);
                        return Ok(End::Open((parent, index)));
                    }
                }
                End::Nobody => {}
            }
            // Unless it or its columns were renamed meanwhile: `Tables::replace` changes the names here
            // before others find the new handle.
            if Arc::ptr_eq(&keys, &child.links.keys()) {
                return Ok(End::Nobody);
            }
        }
    }

    /// The child that a link of `parent` leads to. Nobody is there, too, if the child has been renamed: then
    /// the parent has other links.
    pub fn child_of(&self, parent: &OpenTable, link: &ChildLink) -> Result<End<OpenChild>> {
        let known = link.found.read().clone();
        if let Some(found) = known
            && let Some(child) = follow(&found.table)
        {
            return Ok(End::Open((child, found.keys)));
        }
        let child = match self.end(&link.name)? {
            End::Open(child) => child,
            End::Vacant => return Ok(End::Vacant),
            End::Nobody => return Ok(End::Nobody),
        };
        let keys: Arc<[ChildKey]> = keys_to(&child, parent).into();
        *link.found.write() = Some(FoundChild {
            table: Arc::downgrade(&child),
            keys: keys.clone(),
        });
        Ok(End::Open((child, keys)))
    }
}

/// The foreign keys of `child` by which rows of `parent` have children.
fn keys_to(child: &OpenTable, parent: &OpenTable) -> Vec<ChildKey> {
    let numbers = child.foreign_keys_to(&parent.def.name).into_iter();
    let keys = child.links.keys();
    let key = |number: usize| {
        let its = &keys[number];
        let parent_columns = child.def.parent_columns(its, &parent.def).ok()?;
        Some(ChildKey {
            number,
            parent_index: parent.def.index_beginning_with(&parent_columns),
            parent_columns,
        })
    };
    numbers.filter_map(key).collect()
}
