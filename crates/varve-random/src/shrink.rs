//! Makes a list of statements smaller while the same difference shows: fewer statements, fewer columns, fewer
//! rows and clauses, simpler values.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::compare::Difference;
use crate::draw::Statement;
use crate::play::replay;
use crate::side::Pair;

pub struct Shrinker<'a> {
    pub pair: &'a mut Pair,
    pub until: Instant,
    pub difference: Difference,
}

impl Shrinker<'_> {
    pub fn new(pair: &mut Pair, difference: Difference, time: Duration) -> Shrinker<'_> {
        Shrinker {
            pair,
            until: Instant::now() + time,
            difference,
        }
    }

    /// Whether the statements still show it.
    fn shows(&mut self, statements: &[Statement]) -> Result<bool> {
        let found = replay(self.pair, statements, self.difference.what)?;
        match found {
            Some(found) if found.signature() == self.difference.signature() => {
                self.difference = found;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The smallest list found in time; `None` if the difference does not come again.
    pub fn shrink(&mut self, mut statements: Vec<Statement>) -> Result<Option<Vec<Statement>>> {
        if !self.shows(&statements)? {
            return Ok(None);
        }
        statements.truncate(self.difference.at + 1);
        loop {
            let before = size(&statements);
            fewer(&mut statements, self.until, |statements| {
                self.shows(statements)
            })?;
            self.fewer_columns(&mut statements)?;
            self.smaller_statements(&mut statements)?;
            if size(&statements) == before || Instant::now() >= self.until {
                break;
            }
        }
        // What is shown is what the last of them says.
        self.shows(&statements)?;
        Ok(Some(statements))
    }

    fn fewer_columns(&mut self, statements: &mut Vec<Statement>) -> Result<()> {
        let mut tags = Vec::new();
        statements
            .iter()
            .for_each(|statement| statement.part.tags(&mut tags));
        for tag in tags {
            if Instant::now() >= self.until {
                break;
            }
            let mut fewer = statements.clone();
            for statement in &mut fewer {
                statement.part = statement.part.without(&tag);
            }
            if self.shows(&fewer)? {
                *statements = fewer;
            }
        }
        Ok(())
    }

    fn smaller_statements(&mut self, statements: &mut [Statement]) -> Result<()> {
        for i in (0..statements.len()).rev() {
            let mut n = 0;
            while let Some(part) = statements[i].part.edited(n) {
                if Instant::now() >= self.until {
                    return Ok(());
                }
                let before = std::mem::replace(&mut statements[i].part, part);
                if !self.shows(statements)? {
                    statements[i].part = before;
                    n += 1;
                }
            }
        }
        Ok(())
    }
}

/// Leaves out what is not needed for `shows`: halves first, single ones last.
pub fn fewer<T: Clone>(
    items: &mut Vec<T>,
    until: Instant,
    mut shows: impl FnMut(&[T]) -> Result<bool>,
) -> Result<()> {
    let mut chunk = items.len().div_ceil(2).max(1);
    loop {
        let mut end = items.len();
        while end > 0 && Instant::now() < until {
            let start = end.saturating_sub(chunk);
            let mut fewer = items.clone();
            fewer.drain(start..end);
            if shows(&fewer)? {
                *items = fewer;
            }
            end = start;
        }
        if chunk == 1 {
            return Ok(());
        }
        chunk = chunk.div_ceil(2).min(chunk - 1);
    }
}

fn size(statements: &[Statement]) -> usize {
    statements
        .iter()
        .map(|statement| statement.part.render().len() + 1)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_stays() {
        let mut items: Vec<u32> = (0..100).collect();
        let until = Instant::now() + Duration::from_secs(60);
        let shows = |items: &[u32]| Ok(items.contains(&3) && items.contains(&71));
        fewer(&mut items, until, shows).unwrap();
        assert_eq!(items, [3, 71]);
    }
}
