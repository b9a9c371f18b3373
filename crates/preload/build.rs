//! The name under which programs that link the library ask for it, if it is built to be installed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BRUCKNER_SONAME");
    if let Ok(name) = std::env::var("BRUCKNER_SONAME") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    }
}
