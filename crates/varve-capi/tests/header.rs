//! `include/varve.h` is what cbindgen makes of the sources. Run with VARVE_BLESS=1 to write it anew.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_committed_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    // cbindgen follows `mod`: naming the modules, too, would declare their functions twice.
    let builder = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/lib.rs"));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/varve.h");
    if env::var_os("VARVE_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "{} is out of date; write it anew with VARVE_BLESS=1 cargo test -p varve-capi --test header",
        path.display()
    );
}
