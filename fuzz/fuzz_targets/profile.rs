//! Any text is read as a profile or refused; a profile that was read can be written and read again.
#![no_main]

use bruckner_choose::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok((profile, _)) = Profile::read(text) else { return };
    // Control characters become spaces in the first round trip, so only the second must be exact.
    let (plain, dropped) = Profile::read(&profile.write()).expect("what was written");
    assert_eq!(dropped, []);
    assert_eq!(Profile::read(&plain.write()), Ok((plain.clone(), Vec::new())));
    let mpi = plain.made.mpi.clone();
    plain.knowledge(&mpi);
});
