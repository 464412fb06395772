//! Delta debugging: fewer things with which something still fails (Zeller and Hildebrandt, "Simplifying and
//! Isolating Failure-Inducing Input", IEEE TSE 2002; here only complements are tried, which is enough to end
//! where no single thing can go).

/// A part of `items` with which `fails` holds, though it does without none of them: what it began with if
/// `fails` never holds.
pub fn minimal<T: Clone>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = items.len().max(1);
    loop {
        let before = items.len();
        let mut at = 0;
        while at < items.len() {
            let end = (at + size).min(items.len());
            let rest = [&items[..at], &items[end..]].concat();
            match fails(&rest) {
                true => items = rest,
                false => at = end,
            }
        }
        if size == 1 && items.len() == before {
            return items;
        }
        size = (size / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_left() {
        let cases: [&[usize]; 5] = [&[], &[7], &[0, 99], &[3, 4, 5, 60], &[1, 20, 40, 60, 80]];
        for needed in cases {
            let mut tried = 0;
            let found = minimal((0..100).collect(), |some| {
                tried += 1;
                needed.iter().all(|n| some.contains(n))
            });
            assert_eq!(found, needed);
            assert!(tried < 100, "{tried} tries for {needed:?}");
        }
        assert_eq!(minimal(vec![1, 2, 3], |_| false), [1, 2, 3]);
    }
}
