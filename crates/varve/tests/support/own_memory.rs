//! What memory this process has.

/// A field of its status that is a size, in bytes: `VmRSS`, all that is in memory, or `RssAnon`, what of that
/// no file has.
pub fn own_memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = value.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}
