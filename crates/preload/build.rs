//! Sets the soname of the library to `BRUCKNER_SONAME`, if the library is built for installation.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BRUCKNER_SONAME");
    if let Ok(name) = std::env::var("BRUCKNER_SONAME") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    }
}
