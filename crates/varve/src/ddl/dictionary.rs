//! The stored definitions, as one table after the other is looked for.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::{Result, SpaceId};
use crate::catalog::OpenTable;
use crate::txn::Transaction;

use super::lookups::{self, Found, Lookup, Prefix, Rows};
use super::store::{StoredDef, load_def, load_defs};

/// Reads definitions and look-ups. Each answer is what the transaction's view sees, and a transaction that
/// only reads costs next to nothing.
pub struct Dictionary {
    pub system: Arc<OpenTable>,
    /// Instead of the stored look-ups.
    collected: Option<Rows>,
}

impl Dictionary {
    /// Goes by the stored look-ups, which are complete.
    pub fn new(system: Arc<OpenTable>) -> Dictionary {
        let collected = None;
        Dictionary { system, collected }
    }

    /// Goes by the definitions alone, all of which are read now and do not change.
    pub fn collect(trx: &mut Transaction, system: Arc<OpenTable>) -> Result<Dictionary> {
        let collected = Some(lookups::collect(&load_defs(trx, &system)?));
        Ok(Dictionary { system, collected })
    }

    /// The definition of this name.
    pub fn read(&self, trx: &mut Transaction, name: &str) -> Result<Option<StoredDef>> {
        let Some(mut stored) = load_def(trx, &self.system, name)? else {
            return Ok(None);
        };
        if let Ok(def) = &stored.def
            && let Some(found) = self.find(trx, Lookup::Table(def.id))?
            && found.name == name
        {
            stored.created_by = found.created_by;
        }
        Ok(Some(stored))
    }

    pub fn find(&self, trx: &mut Transaction, lookup: Lookup<'_>) -> Result<Option<Found>> {
        let key = lookup.key();
        match &self.collected {
            Some(rows) => Ok(rows.get(&key).cloned()),
            None => lookups::stored_one(trx, &self.system, &key),
        }
    }

    /// All look-ups that begin so.
    pub fn all(&self, trx: &mut Transaction, prefix: &Prefix) -> Result<Rows> {
        let prefix = prefix.bytes();
        match &self.collected {
            Some(rows) => {
                let from = rows.range(prefix.to_vec()..);
                let such = from.take_while(|(key, _)| key.starts_with(prefix));
                Ok(such
                    .map(|(key, found)| (key.clone(), found.clone()))
                    .collect())
            }
            None => lookups::stored(trx, &self.system, prefix),
        }
    }

    /// The tablespaces that definitions name, with the tables' names. Those of definitions that can't be read
    /// are not among them.
    pub fn tablespaces(&self, trx: &mut Transaction) -> Result<HashMap<SpaceId, String>> {
        let such = Prefix::spaces();
        let named = self.all(trx, &such)?.into_iter();
        let named = named.filter_map(|(key, found)| {
            let number = such.number_in(&key)?;
            Some((SpaceId(number as u32), found.name))
        });
        Ok(named.collect())
    }

    /// The last one of those that begin so, with the row's name.
    pub fn last(&self, trx: &mut Transaction, prefix: &Prefix) -> Result<Option<(Vec<u8>, Found)>> {
        match &self.collected {
            Some(_) => Ok(self.all(trx, prefix)?.pop_last()),
            None => lookups::last(trx, &self.system, prefix.bytes()),
        }
    }
}
