//! An algorithm expression that parses is printed as text that parses to the same expression; a topology is printed unchanged.
#![no_main]

use bruckner_algorithms::Expression;
use bruckner_schedule::Topology;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(expression) = text.parse::<Expression>() {
        let printed = expression.to_string();
        assert_eq!(printed.parse().as_ref(), Ok(&expression));
    }
    if let Ok(topology) = text.parse::<Topology>() {
        assert_eq!(topology.to_string(), text);
    }
});
