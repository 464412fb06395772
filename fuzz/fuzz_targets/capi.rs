//! `crates/varve-fuzz/src/capi/` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::run("capi", input));
