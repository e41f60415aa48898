//! Sets `cfg(loom)` for this crate alone: the source files that it shares with others know by that
//! that they are being checked.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
