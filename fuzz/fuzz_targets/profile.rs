//! Any text is read or refused; what is read can be written and read again.
#![no_main]

use bruckner_choose::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok((profile, _)) = Profile::read(text) else { return };
    // Control characters become spaces the first time.
    let (plain, dropped) = Profile::read(&profile.write()).expect("what was written");
    assert_eq!(dropped, []);
    assert_eq!(Profile::read(&plain.write()), Ok((plain.clone(), Vec::new())));
    let mpi = plain.made.mpi.clone();
    plain.knowledge(&mpi);
});
