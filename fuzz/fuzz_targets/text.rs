//! A schedule or program that parses is printed as text that parses to the same document.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(read) = bruckner_schedule::read(text) {
        let printed = read.document.to_string();
        let again = bruckner_schedule::read(&printed).expect("what is printed can be read");
        assert_eq!(again.document, read.document);
        assert_eq!(again.document.to_string(), printed);
    }
});
