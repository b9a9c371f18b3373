//! A crate without code, a development dependency of every crate. With it `cargo nextest run -p CRATE` enables the same features of shared
//! dependencies as `--workspace`, so that cargo does not build them again.
