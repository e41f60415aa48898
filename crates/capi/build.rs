//! Names the shared library as programs find it at run time: by the interface's version.

fn main() {
    // Raised when the interface changes in a way that programs built before would notice.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfulgurite.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
