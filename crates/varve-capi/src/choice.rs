//! Enums that C passes. C may put any integer into an enum, and Rust must not have an enum with a number that
//! is none of its constants: so every function, callback and struct of this interface takes a `MaybeUninit`
//! of it. That has the same representation and allows all bits, and varve.h says the enum's name.
//!
//! - **CAPI-3** A number from C becomes a constant only in `chosen`, which refuses all others, and names the
//!   argument.

use std::mem::{MaybeUninit, transmute_copy};

use varve::{Error, Result};

/// An enum whose constants C chooses from.
pub trait Choice: Copy + 'static {
    const NAME: &'static str;
    const ALL: &'static [(u32, Self)];
}

macro_rules! choice {
    ($name:ident: $($constant:ident),+ $(,)?) => {
        impl $crate::choice::Choice for $name {
            const NAME: &'static str = stringify!($name);
            const ALL: &'static [(u32, $name)] = &[$(($name::$constant as u32, $name::$constant)),+];
        }
    };
}
pub(crate) use choice;

/// What C chose. `argument`: what it chose it for.
pub fn chosen<T: Choice>(argument: &str, given: MaybeUninit<T>) -> Result<T> {
    const { assert!(size_of::<T>() == size_of::<u32>()) };
    // SAFETY: both have four bytes, and C gives all of them a value (CAPI-2).
    let number: u32 = unsafe { transmute_copy(&given) };
    let constant = T::ALL.iter().find(|(n, _)| *n == number);
    let constant = constant.map(|(_, constant)| *constant);
    constant.ok_or_else(|| {
        let number = number as i32;
        Error::invalid(format!("{argument} is {number}, which is no {}", T::NAME))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::varve_lock;

    #[test]
    fn only_constants_are_chosen() {
        for number in [-1, 0, 1, 5, 6, i32::MAX] {
            let mut given = MaybeUninit::<varve_lock>::uninit();
            // SAFETY: an enum of C has the size of an int.
            unsafe { given.as_mut_ptr().cast::<i32>().write(number) };
            match chosen("lock", given) {
                Ok(lock) => assert_eq!(lock as i32, number),
                Err(e) => {
                    assert!(!(0..=5).contains(&number), "CAPI-3");
                    let what = format!("lock is {number}, which is no varve_lock");
                    assert!(e.to_string().contains(&what), "{e}");
                }
            }
        }
    }
}
