//! `include/bruckner.h` is what cbindgen makes of the source; `BLESS=1` writes it.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("a configuration");
    let sources = ["handles", "setup", "collectives", "plans", "errors"];
    let builder = sources.iter().fold(cbindgen::Builder::new().with_config(config), |builder, name| {
        builder.with_src(here.join("src").join(name).with_extension("rs"))
    });
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let file = here.join("include/bruckner.h");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &made).expect("written");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap_or_default(), made, "run with BLESS=1");
}
