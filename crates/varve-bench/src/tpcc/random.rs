//! What is random in the benchmark, after clauses 2.1.6, 4.3.2 and 4.3.3 of the specification.

use fastrand::Rng;

/// The constants of `NURand` for last names, when tables are filled and when they are used: 2.1.6.1 wants
/// them 65 to 119 apart, and not by 96 or 112.
const LAST_NAME_LOAD: u32 = 157;
const LAST_NAME_RUN: u32 = 223;
const CUSTOMER: u32 = 259;
const ITEM: u32 = 7911;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// Numbers from `low` to `high`, some of them far more often than others.
fn nurand(rng: &mut Rng, a: u32, c: u32, low: u32, high: u32) -> u32 {
    let drawn = rng.u32(0..=a) | rng.u32(low..=high);
    (drawn + c) % (high - low + 1) + low
}

/// One of `customers` ids.
pub fn customer(rng: &mut Rng, customers: u32) -> u32 {
    nurand(rng, 1023, CUSTOMER, 1, customers)
}

/// One of `items` ids.
pub fn item(rng: &mut Rng, items: u32) -> u32 {
    nurand(rng, 8191, ITEM, 1, items)
}

/// The last name of a customer who is put in: the first ones have all names that there are, one each.
pub fn last_name_loaded(rng: &mut Rng, customer: u32) -> String {
    match customer {
        1..=1000 => last_name(customer - 1),
        _ => last_name(nurand(rng, 255, LAST_NAME_LOAD, 0, 999)),
    }
}

/// The last name of somebody who is there, where a district has so many customers.
pub fn last_name_asked(rng: &mut Rng, customers: u32) -> String {
    let greatest = customers.min(1000) - 1;
    last_name(nurand(rng, 255, LAST_NAME_RUN, 0, greatest))
}

fn last_name(number: u32) -> String {
    let digit = |by: u32| SYLLABLES[(number / by % 10) as usize];
    [digit(100), digit(10), digit(1)].concat()
}

/// So many letters and digits.
pub fn text(rng: &mut Rng, shortest: usize, longest: usize) -> String {
    let length = rng.usize(shortest..=longest);
    (0..length).map(|_| rng.alphanumeric()).collect()
}

/// So many digits.
pub fn digits(rng: &mut Rng, length: usize) -> String {
    (0..length).map(|_| rng.digit(10)).collect()
}

/// A text, a tenth of which have the word ORIGINAL somewhere in them.
pub fn data(rng: &mut Rng) -> String {
    let mut data = text(rng, 26, 50);
    if rng.u32(0..10) == 0 {
        let at = rng.usize(0..=data.len() - 8);
        data.replace_range(at..at + 8, "ORIGINAL");
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_three_syllables() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn numbers_stay_in_their_range_and_are_not_uniform() {
        let mut rng = Rng::with_seed(1);
        let mut drawn = [0u32; 3001];
        for _ in 0..100_000 {
            drawn[customer(&mut rng, 3000) as usize] += 1;
        }
        assert_eq!(drawn[0], 0);
        assert!(drawn[1..].iter().max() > Some(&150), "33 would be uniform");
        let small = (0..1000).all(|_| (1..=30).contains(&customer(&mut rng, 30)));
        assert!(small, "fewer customers than the constants suppose");
    }
}
