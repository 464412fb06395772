//! `crates/varve-fuzz/src/memcached.rs` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::run("memcached", input));
