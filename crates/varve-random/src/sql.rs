//! A statement as a tree whose parts can be left out: it prints SQL, and the shrinker takes it apart without
//! knowing any grammar.
//!
//! SQL is the same for both engines. Where a name has to differ, as that of an XA transaction, which the
//! whole server shares, `@SIDE@` stands for the schema's name.

/// Stands for the schema's name in a statement.
pub const SIDE: &str = "@SIDE@";

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Seq(Vec<Part>),
    /// Can be left out.
    May(Box<Part>),
    /// Each can be left out while another one stays.
    List(&'static str, Vec<Part>),
    /// As a list, but no item can be left out by itself.
    Whole(&'static str, Vec<Part>),
    /// Belongs to a column: goes with it.
    Of(String, Box<Part>),
    /// The second is simpler.
    Or(Box<Part>, String),
}

use Part::{List, May, Of, Or, Seq, Text, Whole};

pub fn text(sql: impl Into<String>) -> Part {
    Text(sql.into())
}

pub fn may(part: impl Into<Part>) -> Part {
    May(Box::new(part.into()))
}

/// Items with commas between them.
pub fn list(items: Vec<Part>) -> Part {
    List(", ", items)
}

pub fn of(tag: &str, part: impl Into<Part>) -> Part {
    Of(tag.into(), Box::new(part.into()))
}

/// Items with commas between them, which are needed all.
pub fn whole(items: Vec<Part>) -> Part {
    Whole(", ", items)
}

/// A part, and a simpler one that could be in its place.
pub fn or(part: impl Into<Part>, simpler: &str) -> Part {
    Or(Box::new(part.into()), simpler.into())
}

impl From<String> for Part {
    fn from(sql: String) -> Self {
        Text(sql)
    }
}

impl From<&str> for Part {
    fn from(sql: &str) -> Self {
        Text(sql.into())
    }
}

/// Parts in a row.
#[macro_export]
macro_rules! seq {
    ($($part:expr),* $(,)?) => {
        $crate::sql::Part::Seq(vec![$($crate::sql::Part::from($part)),*])
    };
}

impl Part {
    pub fn render(&self) -> String {
        let mut sql = String::new();
        self.write(&mut sql);
        sql
    }

    fn write(&self, sql: &mut String) {
        match self {
            Text(text) => sql.push_str(text),
            Seq(parts) => parts.iter().for_each(|part| part.write(sql)),
            List(separator, parts) | Whole(separator, parts) => {
                for (i, part) in parts.iter().enumerate() {
                    if i > 0 {
                        sql.push_str(separator);
                    }
                    part.write(sql);
                }
            }
            May(part) | Of(_, part) | Or(part, _) => part.write(sql),
        }
    }

    /// The tree with one of its parts left out or made simpler; `None` if it has no such `n`th part.
    pub fn edited(&self, n: usize) -> Option<Part> {
        let mut part = self.clone();
        let mut left = n;
        part.edit(&mut left).then_some(part)
    }

    /// Counts `left` down at each possible edit and carries out the one that is reached.
    fn edit(&mut self, left: &mut usize) -> bool {
        let mut reached = || match *left {
            0 => true,
            _ => {
                *left -= 1;
                false
            }
        };
        match self {
            Text(_) => false,
            Seq(parts) | Whole(_, parts) => parts.iter_mut().any(|part| part.edit(left)),
            List(_, parts) => {
                // First halves, then single ones.
                if parts.len() > 3 && reached() {
                    parts.truncate(parts.len() / 2);
                    return true;
                }
                if parts.len() > 1 {
                    for i in 0..parts.len() {
                        if reached() {
                            parts.remove(i);
                            return true;
                        }
                    }
                }
                parts.iter_mut().any(|part| part.edit(left))
            }
            May(part) => {
                if reached() {
                    *self = Seq(Vec::new());
                    return true;
                }
                part.edit(left)
            }
            Of(_, part) => part.edit(left),
            Or(part, simpler) => {
                if reached() {
                    *self = Text(std::mem::take(simpler));
                    return true;
                }
                part.edit(left)
            }
        }
    }

    /// All columns that parts belong to.
    pub fn tags(&self, found: &mut Vec<String>) {
        match self {
            Text(_) => {}
            Seq(parts) | List(_, parts) | Whole(_, parts) => {
                parts.iter().for_each(|part| part.tags(found));
            }
            May(part) | Or(part, _) => part.tags(found),
            Of(tag, part) => {
                if !found.contains(tag) {
                    found.push(tag.clone());
                }
                part.tags(found);
            }
        }
    }

    /// The tree without what belongs to a column.
    pub fn without(&self, tag: &str) -> Part {
        let belongs = |part: &Part| match part {
            Of(own, _) => own == tag,
            May(part) => matches!(&**part, Of(own, _) if own == tag),
            _ => false,
        };
        let rest = |parts: &[Part]| -> Vec<Part> {
            let kept = parts.iter().filter(|part| !belongs(part));
            kept.map(|part| part.without(tag)).collect()
        };
        match self {
            Text(_) => self.clone(),
            Seq(parts) => Seq(rest(parts)),
            List(separator, parts) => List(separator, rest(parts)),
            Whole(separator, parts) => Whole(separator, rest(parts)),
            May(part) => May(Box::new(part.without(tag))),
            Of(own, part) => Of(own.clone(), Box::new(part.without(tag))),
            Or(part, simpler) => Or(Box::new(part.without(tag)), simpler.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_leave_out_one_part_each() {
        let tree = seq![
            "SELECT ",
            list(vec![of("a", "a"), of("b", "b")]),
            may(seq![" LIMIT ", or("7", "1")]),
        ];
        assert_eq!(tree.render(), "SELECT a, b LIMIT 7");
        let edits: Vec<String> = (0..)
            .map_while(|n| tree.edited(n))
            .map(|t| t.render())
            .collect();
        let expected = [
            "SELECT b LIMIT 7",
            "SELECT a LIMIT 7",
            "SELECT a, b",
            "SELECT a, b LIMIT 1",
        ];
        assert_eq!(edits, expected);
        assert_eq!(tree.without("a").render(), "SELECT b LIMIT 7");
    }
}
