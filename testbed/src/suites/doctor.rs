//! `bruckner doctor`: each problem that it must find, produced on purpose.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::Table;
use crate::launch::{Launch, Outcome, Output, library};
use crate::mpis::{Mpi, home, root};

/// A problem, the output of `bruckner doctor`, and the text that this output must contain.
struct Complaint {
    what: &'static str,
    said: Output,
    expected: &'static str,
    /// Whether the problem is reported as a note, not as an error.
    note: bool,
}

pub(crate) fn run(table: &mut Table) -> Result<()> {
    for mpi in table.of(&[Mpi::Openmpi4]) {
        let mut outcome = Outcome::default();
        for Complaint { what, said, expected, note } in complaints(mpi)? {
            let mark = if note { "note " } else { "problem " };
            let told = said.out.lines().any(|line| line.starts_with(mark) && line.contains(expected));
            outcome.cases += 1;
            outcome.seconds += said.seconds;
            if !told || said.succeeded != note {
                outcome.failures += 1;
                outcome.talk += &format!("{what}: `{expected}` is not in the output:\n{}{}\n", said.out, said.err);
            }
        }
        table.tell(mpi.name(), "bruckner doctor finds what is wrong", 2, &outcome);
    }
    Ok(())
}

fn complaints(mpi: Mpi) -> Result<Vec<Complaint>> {
    let place = home().join("doctor");
    std::fs::create_dir_all(&place)?;
    let doctor = root().join("target/release/bruckner");
    let alone = |program: Option<&Path>, set: &[(&'static str, String)]| {
        let launch = set
            .iter()
            .fold(Launch::plain(mpi, 1, &doctor).argument("doctor"), |launch, (name, value)| launch.set(name, value));
        program.iter().fold(launch, |launch, program| launch.argument(program.display().to_string())).run()
    };
    let both = |set: (&'static str, String)| Launch::plain(mpi, 2, &doctor).argument("doctor").set(set.0, set.1).run();
    // Runs a line of shell on each rank before the command.
    let shell = |mpi: Mpi, ranks: u32, before: &str| {
        let script = format!("r=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; {before}; exec {} doctor", doctor.display());
        Launch::plain(mpi, ranks, Path::new("/bin/sh")).argument("-c").argument(script).run()
    };
    let wrong = |what, said, expected| Complaint { what, said, expected, note: false };
    let noted = |what, said, expected| Complaint { what, said, expected, note: true };
    let (still, privileged, past) = programs(&place)?;
    let of_mpich = Mpi::Mpich4.compile_plain("counted")?;
    let refused = place.join("open.conf");
    std::fs::write(&refused, "BRUCKNER_CHECK = 1\n")?;
    std::fs::set_permissions(&refused, PermissionsExt::from_mode(0o666))?;
    let profile = place.join("other.toml");
    std::fs::write(&profile, OTHER_PROFILE)?;
    std::fs::set_permissions(&profile, PermissionsExt::from_mode(0o600))?;
    let speaks_last = format!(
        "export BRUCKNER_CONFIG=/nowhere/bruckner.conf; \
         [ $r = 0 ] && {{ said=$({} doctor); code=$?; sleep 1; echo \"$said\"; exit $code; }}",
        doctor.display()
    );
    let small = "mount -t tmpfs -o size=1m none /dev/shm";
    let library_of_openmpi = Mpi::library_of_openmpi4()?.display().to_string();
    Ok(vec![
        wrong("no MPI", alone(None, &[("BRUCKNER_MPI", "/nowhere/libmpi.so".into())])?, "installed: "),
        wrong(
            "two MPIs",
            shell(Mpi::Mpich4, 2, &format!("export BRUCKNER_MPI={library_of_openmpi}"))?,
            "started 2 processes, but each has an MPI_COMM_WORLD of its own",
        ),
        wrong(
            "preloaded on one rank",
            shell(mpi, 2, &format!("[ $r = 0 ] && export LD_PRELOAD={}", library().display()))?,
            "the library is preloaded on only 1 of 2 ranks",
        ),
        wrong("off on one rank", shell(mpi, 2, "[ $r = 1 ] && export BRUCKNER=off")?, "BRUCKNER=off is set on rank 1"),
        wrong(
            "a program of another MPI",
            alone(Some(&of_mpich), &[])?,
            "is linked with MPICH, but was started by the launcher of Open MPI",
        ),
        wrong("a static program", alone(Some(&still), &[])?, "is statically linked"),
        wrong("raised privileges", alone(Some(&privileged), &[])?, "is set-user-id"),
        wrong("Fortran", alone(Some(&past), &[])?, "Fortran calls cannot be intercepted"),
        wrong("small /dev/shm", in_namespace(mpi, &format!("{small}; exec \"$@\""), &doctor)?, "MiB free, but"),
        wrong("private shared memory", private(mpi, &doctor)?, "cannot attach the same POSIX shared memory object"),
        wrong("no settings file", both(("BRUCKNER_CONFIG", "/nowhere/bruckner.conf".into()))?, "there is no such file"),
        wrong("rank 0 prints last", shell(mpi, 2, &speaks_last)?, "there is no such file"),
        wrong(
            "a settings file that all may write to",
            both(("BRUCKNER_CONFIG", refused.display().to_string()))?,
            "other users may write to it",
        ),
        wrong(
            "another machine's profile",
            both(("BRUCKNER_PROFILE", profile.display().to_string()))?,
            "the profile was measured with MPICH 5.0.2",
        ),
        noted("too many ranks", Launch::plain(mpi, 3, &doctor).argument("doctor").run()?, "more ranks than cores"),
        noted(
            "no binding to cores",
            Launch::plain(mpi, 2, &doctor).option("--bind-to").option("none").argument("doctor").run()?,
            "pin them",
        ),
    ])
}

/// Runs `bruckner doctor` on ranks that each have a /dev/shm of their own.
fn private(mpi: Mpi, doctor: &Path) -> Result<Output> {
    let script = format!("mount -t tmpfs none /dev/shm; exec {} doctor", doctor.display());
    let launch = Launch::plain(mpi, 2, Path::new("/usr/bin/unshare")).argument("--mount").argument("sh");
    launch.argument("-c").argument(script).run()
}

/// Runs the launcher and all ranks in one mount namespace, after a script.
fn in_namespace(mpi: Mpi, script: &str, doctor: &Path) -> Result<Output> {
    let launch = mpi.launch(2, false);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(launch.get_program()).args(launch.get_args());
    command.arg(doctor).arg("doctor");
    for (name, value) in launch.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let start = std::time::Instant::now();
    let ended = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let seconds = start.elapsed().as_secs_f64();
    Ok(Output { out: text(&ended.stdout), err: text(&ended.stderr), succeeded: ended.status.success(), seconds })
}

/// Builds a static program, one with raised privileges, and one whose Fortran calls bypass the library.
fn programs(place: &Path) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let compile = |source: &str, words: &[&str]| -> Result<()> {
        std::fs::write(place.join("source.c"), source)?;
        let made = Command::new("cc").args(words).current_dir(place).output()?;
        ensure!(made.status.success(), "cc: {}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    };
    compile("int main(void) { return 0; }\n", &["-static", "source.c", "-o", "still"])?;
    compile("int main(void) { return 0; }\n", &["source.c", "-o", "privileged"])?;
    std::fs::set_permissions(place.join("privileged"), PermissionsExt::from_mode(0o4755))?;
    compile("void mpi_allreduce_(void) {}\n", &["-shared", "-fPIC", "source.c", "-o", "libpast.so"])?;
    compile(
        "void mpi_allreduce_(void);\nint main(void) { mpi_allreduce_(); return 0; }\n",
        &["source.c", "-L.", "-lpast", "-Wl,-rpath,$ORIGIN", "-o", "past"],
    )?;
    Ok((place.join("still"), place.join("privileged"), place.join("past")))
}

/// A profile that was made with another MPI.
const OTHER_PROFILE: &str = "name = 'm'
about = ''
[network]
source = ''
protocols = [{ latency = 1e-6, per_byte = 1e-9 }]
[tune]
version = 1
mpi = 'MPICH 5.0.2'
";
