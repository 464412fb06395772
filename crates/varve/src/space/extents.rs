//! What a tablespace remembers about its extents, so that finding a free page scans nothing.
//!
//! A mirror in memory of the allocation pages: per extent its owner and how many pages are in use. The pages
//! are the truth; the mirror is built from them once ([`super::Space::reserve`]) and follows each change.
//!
//! Policy: a user's first 32 pages come one by one from extents shared by small users ([`MIXED`]), so that a
//! small table is small; after that it gets extents of its own and fills them, starting near the page it
//! names, so that leaves that follow each other lie together. Only when the file can't give that are other
//! users' extents used.

use std::collections::{BTreeSet, HashMap};

use super::alloc_page::{EXTENT_PAGES, Geometry, MIXED};
use crate::base::{NO_PAGE, PageNo};

/// A user that took fewer pages than this shares extents with others.
const SHARED_PAGES: u32 = 32;

/// Owner of an extent of which nothing is in use.
pub(super) const FREE: u32 = 0;

#[derive(Clone, Copy)]
struct Extent {
    owner: u32,
    used: u32,
}

#[derive(Clone, Copy, Default)]
struct User {
    /// Extents that it owns.
    extents: u32,
    /// Pages that it took from others' extents since the file was opened.
    shared: u32,
}

pub(super) struct Extents {
    geometry: Geometry,
    size: u32,
    extents: Vec<Extent>,
    /// Extents with a free page, by owner.
    with_room: BTreeSet<(u32, u32)>,
    users: HashMap<u32, User>,
    used: u32,
    /// Free pages that mini-transactions have reserved.
    pub reserved: u32,
    /// Groups whose allocation page has been written.
    formatted: Vec<bool>,
}

/// Where the next page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub extent: u32,
    /// The extent was free and gets this owner.
    pub claim: Option<u32>,
}

impl Extents {
    /// The mirror of a file that has no pages yet; `grow` and `set_extent` fill it.
    pub fn new(geometry: Geometry) -> Extents {
        Extents {
            geometry,
            size: 0,
            extents: Vec::new(),
            with_room: BTreeSet::new(),
            users: HashMap::new(),
            used: 0,
            reserved: 0,
            formatted: Vec::new(),
        }
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    /// Pages that are neither in use nor promised.
    pub fn available(&self) -> u32 {
        (self.size - self.used).saturating_sub(self.reserved)
    }

    pub fn has_free_extent(&self) -> bool {
        self.with_room_from(FREE, 0).is_some()
    }

    pub fn is_formatted(&self, group: u32) -> bool {
        self.formatted[group as usize]
    }

    pub fn set_formatted(&mut self, group: u32) {
        self.formatted[group as usize] = true;
    }

    /// Pages of the extent that exist.
    fn capacity(&self, extent: u32) -> u32 {
        (self.size - extent * EXTENT_PAGES).min(EXTENT_PAGES)
    }

    /// The file now has `size` pages. New extents are free, but the first of each new group: its allocation
    /// page is in use, although it is written only when another page of the group is taken.
    pub fn grow(&mut self, size: u32) {
        if size <= self.size {
            return;
        }
        self.size = size;
        if let Some(last) = self.extents.len().checked_sub(1) {
            self.note_room(last as u32);
        }
        for extent in self.extents.len() as u32..size.div_ceil(EXTENT_PAGES) {
            let first_of_group = extent.is_multiple_of(self.geometry.group_extents());
            let (owner, used) = if first_of_group {
                (MIXED, 1)
            } else {
                (FREE, 0)
            };
            self.extents.push(Extent { owner, used });
            self.used += used;
            self.count_extent(owner, 1);
            self.note_room(extent);
        }
        let groups = self.geometry.groups(size) as usize;
        self.formatted.resize(groups, false);
    }

    /// The extent now has this owner and so many pages in use.
    pub fn set_extent(&mut self, extent: u32, owner: u32, used: u32) {
        let old = self.extents[extent as usize];
        self.with_room.remove(&(old.owner, extent));
        self.count_extent(old.owner, -1);
        self.used = self.used - old.used + used;
        self.extents[extent as usize] = Extent { owner, used };
        self.count_extent(owner, 1);
        self.note_room(extent);
    }

    fn count_extent(&mut self, owner: u32, by: i32) {
        let user = self.users.entry(owner).or_default();
        let extents = user.extents.checked_add_signed(by);
        user.extents = extents.expect("counted before");
        self.forget_if_nothing(owner);
    }

    /// The user has given all its pages back, and will take none any more.
    pub fn forget_user(&mut self, owner: u32) {
        if let Some(user) = self.users.get_mut(&owner) {
            user.shared = 0;
        }
        self.forget_if_nothing(owner);
    }

    fn forget_if_nothing(&mut self, owner: u32) {
        if let Some(user) = self.users.get(&owner)
            && (user.extents, user.shared) == (0, 0)
        {
            self.users.remove(&owner);
        }
    }

    fn note_room(&mut self, extent: u32) {
        let e = self.extents[extent as usize];
        if e.used < self.capacity(extent) {
            self.with_room.insert((e.owner, extent));
        } else {
            self.with_room.remove(&(e.owner, extent));
        }
    }

    /// The first extent of `owner` with room, at or after `extent`, else the first of all.
    fn with_room_from(&self, owner: u32, extent: u32) -> Option<u32> {
        let first = |from| {
            self.with_room
                .range((owner, from)..=(owner, u32::MAX))
                .next()
        };
        first(extent).or_else(|| first(0)).map(|f| f.1)
    }

    /// Chooses the extent for `owner`'s next page and counts the page as used. `None` if the file is full.
    pub fn take(&mut self, owner: u32, near: PageNo) -> Option<Choice> {
        let choice = self.choose(owner, near)?;
        if let Some(claim) = choice.claim {
            self.set_extent(choice.extent, claim, 0);
        }
        let e = &mut self.extents[choice.extent as usize];
        e.used += 1;
        self.used += 1;
        if e.owner != owner {
            self.users.entry(owner).or_default().shared += 1;
        }
        self.note_room(choice.extent);
        Some(choice)
    }

    fn choose(&self, owner: u32, near: PageNo) -> Option<Choice> {
        let near = match near {
            NO_PAGE => 0,
            no => no.0 / EXTENT_PAGES,
        };
        let room = |of: u32| {
            let extent = self.with_room_from(of, near)?;
            Some(Choice {
                extent,
                claim: None,
            })
        };
        let free = |claim: u32| {
            let extent = self.with_room_from(FREE, near)?;
            let claim = Some(claim);
            Some(Choice { extent, claim })
        };
        let user = self.users.get(&owner).copied().unwrap_or_default();
        let shares = owner == MIXED || (user.extents == 0 && user.shared < SHARED_PAGES);
        let found = match shares {
            true => room(MIXED).or_else(|| free(MIXED)),
            false => room(owner).or_else(|| free(owner)).or_else(|| room(MIXED)),
        };
        let any = || self.with_room.first().map(|f| f.1);
        found.or_else(|| {
            any().map(|extent| Choice {
                extent,
                claim: None,
            })
        })
    }

    /// A page of the extent is free again. An extent with no page in use is everybody's.
    pub fn give(&mut self, extent: u32) {
        let Extent { owner, used } = self.extents[extent as usize];
        assert!(used > 0, "a page of an empty extent is freed");
        let owner = if used == 1 { FREE } else { owner };
        self.set_extent(extent, owner, used - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_size(pages: u32) -> Extents {
        let mut e = Extents::new(Geometry { page_size: 4096 });
        e.grow(pages);
        e
    }

    fn choice(extent: u32, claim: Option<u32>) -> Option<Choice> {
        Some(Choice { extent, claim })
    }

    #[test]
    fn small_users_share_and_large_ones_get_extents_of_their_own() {
        let mut e = of_size(64 * 6);
        let extents: Vec<u32> = (0..40)
            .map(|_| e.take(7, NO_PAGE).unwrap().extent)
            .collect();
        assert!(extents[..32].iter().all(|x| *x == 0), "{extents:?}");
        assert!(extents[32..].iter().all(|x| *x == 1), "{extents:?}");
        assert_eq!(e.take(8, NO_PAGE), choice(0, None));
        // Its own extent first, then a free one near the page it names.
        for _ in 0..56 {
            assert_eq!(e.take(7, PageNo(0)), choice(1, None));
        }
        assert_eq!(e.take(7, PageNo(4 * 64)), choice(4, Some(7)));
        assert_eq!(e.take(7, PageNo(4 * 64)), choice(4, None));
        assert_eq!(e.used(), 1 + 40 + 1 + 56 + 2);
    }

    /// A file that lives long has had many users; only those of today are remembered.
    #[test]
    fn users_that_are_gone_are_forgotten() {
        let mut e = of_size(64 * 3);
        let before = e.users.len();
        for owner in 100..200 {
            let taken: Vec<u32> = (0..40)
                .map(|_| e.take(owner, NO_PAGE).unwrap().extent)
                .collect();
            assert_eq!(e.users.len(), before + 1);
            taken.into_iter().for_each(|extent| e.give(extent));
            e.forget_user(owner);
            assert_eq!(e.users.len(), before, "owner {owner}");
        }
        assert_eq!(e.used(), 1);
    }

    #[test]
    fn takes_from_others_before_it_says_full() {
        let mut e = of_size(64 * 3);
        let mut taken = 0;
        while e.take(7, NO_PAGE).is_some() {
            taken += 1;
        }
        assert_eq!((taken, e.available()), (64 * 3 - 1, 0));
        e.give(2);
        assert_eq!(e.take(9, NO_PAGE), choice(2, None));
        for _ in 0..64 {
            e.give(1);
        }
        assert!(e.has_free_extent());
        e.grow(64 * 4);
        assert_eq!(e.available(), 128);
    }

    #[test]
    fn a_file_that_grows_within_an_extent_has_room_there() {
        let mut e = of_size(4);
        for _ in 0..3 {
            assert_eq!(e.take(7, NO_PAGE), choice(0, None));
        }
        assert_eq!(e.take(7, NO_PAGE), None);
        e.grow(8);
        assert_eq!(e.available(), 4);
        assert_eq!(e.take(7, NO_PAGE), choice(0, None));
    }
}
