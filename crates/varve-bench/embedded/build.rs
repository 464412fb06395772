//! Compiles the C adapters of the peers that come as system packages, and links their libraries.

fn main() {
    println!("cargo:rerun-if-changed=native");
    println!("cargo:rerun-if-env-changed=VARVE_BENCH_PEERS");
    if std::env::var_os("CARGO_FEATURE_NATIVE").is_none() {
        return;
    }
    let root = std::env::var("VARVE_BENCH_PEERS")
        .expect("VARVE_BENCH_PEERS names the directory that tools/get-peers.sh filled");
    let libraries = format!("{root}/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    cc::Build::new()
        .files(["native/rocksdb.c", "native/wiredtiger.c"])
        .include(format!("{root}/usr/include"))
        .opt_level(2)
        .warnings(true)
        .compile("peers");
    println!("cargo:rustc-link-search=native={libraries}");
    println!("cargo:rustc-link-lib=dylib:+verbatim=librocksdb.so");
    println!("cargo:rustc-link-lib=dylib:+verbatim=libwiredtiger.so");
    println!("cargo:rustc-link-arg=-Wl,-rpath-link,{libraries}");
}
