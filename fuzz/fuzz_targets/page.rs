//! `crates/varve-fuzz/src/page.rs` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::run("page", input));
