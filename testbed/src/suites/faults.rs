//! Faults that must not change what a program computes.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::Table;
use crate::launch::{Launch, Outcome, Output, library};
use crate::mpis::{Mpi, home, root};

pub(crate) fn run(table: &mut Table) -> Result<()> {
    for mpi in table.of(Mpi::ALL) {
        all_mpis(table, mpi)?;
    }
    for mpi in table.of(&[Mpi::Mpich5, Mpi::Openmpi5, Mpi::Intel]) {
        reported(table, mpi)?;
    }
    for mpi in table.of(&[Mpi::Openmpi4, Mpi::Mpich4, Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel]) {
        limits(table, mpi)?;
    }
    table.tell("none", "programs without MPI", 1, &without_mpi()?);
    table.tell("none", "raised privileges", 1, &privileged()?);
    Ok(())
}

/// Runs all tests on one MPI, except those of programs that do not use MPI.
pub(super) fn of(table: &mut Table, mpi: Mpi) -> Result<()> {
    all_mpis(table, mpi)?;
    reported(table, mpi)?;
    limits(table, mpi)
}

fn all_mpis(table: &mut Table, mpi: Mpi) -> Result<()> {
    table.tell(mpi.name(), "a rank is killed, with and without the library", 2, &killed(mpi)?);
    table.tell(mpi.name(), "configurations", 2, &configurations(mpi)?);
    table.tell(mpi.name(), "a GPU runtime on one rank", 2, &gpu(mpi)?);
    table.tell(mpi.name(), "a GPU runtime loaded late", 2, &late_gpu(mpi)?);
    table.tell(mpi.name(), "a panic while planning", 3, &panics(mpi)?);
    Ok(())
}

fn reported(table: &mut Table, mpi: Mpi) -> Result<()> {
    table.tell(mpi.name(), "calls counted for a report", 2, &counted(mpi)?);
    table.tell(mpi.name(), "library in library in one of two programs", 2, &one_of_two(mpi)?);
    Ok(())
}

fn limits(table: &mut Table, mpi: Mpi) -> Result<()> {
    let program = mpi.compile("lacking")?;
    let outcome = Launch::plain(mpi, 2, &program).set("BRUCKNER", "off").test()?;
    table.tell(mpi.name(), "not enough memory on a rank", 2, &outcome);
    // Intel MPI itself needs more memory than such limits allow.
    if mpi != Mpi::Intel {
        table.tell(mpi.name(), "resource limits of a process", 2, &limited(mpi)?);
    }
    Ok(())
}

/// Counts a case, and a failure with its output if the case does not hold.
fn expect(outcome: &mut Outcome, holds: bool, what: &str, said: &str) {
    outcome.cases += 1;
    if !holds {
        outcome.failures += 1;
        outcome.talk += &format!("{what}:\n{said}\n");
    }
}

/// Kills a rank: with and without the library, the job must end soon by itself and fail.
fn killed(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("mortal")?;
    let mut outcome = Outcome::default();
    let runs = [
        Launch::plain(mpi, 2, &program),
        Launch::preloaded(mpi, 2, &program),
        Launch::preloaded(mpi, 2, &program).set("BRUCKNER", "always"),
    ];
    for launch in runs {
        let said = launch.run()?;
        outcome.seconds += said.seconds;
        let ended = !said.succeeded && said.out.contains("killing") && !said.err.contains("still ran");
        expect(&mut outcome, ended, "the job did not end by itself", &said.err);
    }
    Ok(outcome)
}

/// Checks that writing a report changes no result of a program, even if a rank makes calls that the MPI refuses, or if ranks belong to
/// another `MPI_COMM_WORLD` (spawned processes), whose calls are not counted.
fn counted(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("counted")?;
    let mut outcome = Outcome::default();
    for mode in ["on", "off", "always"] {
        let launch = Launch::preloaded(mpi, 2, &program).argument("refused").oversubscribed();
        let said = launch.set("BRUCKNER", mode).set("BRUCKNER_REPORT", "stderr").run()?;
        outcome.seconds += said.seconds;
        let right = said.succeeded && said.out.contains("cases 200 failures 0");
        expect(&mut outcome, right, mode, &format!("{}{}", said.out, said.err));
        if mpi == Mpi::Mpich5 {
            // MPICH's launcher cannot spawn processes if it was given options about cores.
            let mut command = Command::new("timeout");
            command.arg("600").arg(mpi.launcher()).args(["-n", "2", "-genv", "LD_PRELOAD"]).arg(library());
            command.args(["-genv", "BRUCKNER", mode, "-genv", "BRUCKNER_REPORT", "stderr"]);
            let said = command.arg(&program).arg("spawned").stdin(Stdio::null()).output()?;
            let text = [said.stdout, said.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
            let right = said.status.success() && text[0].contains("cases 200 failures 0");
            expect(&mut outcome, right, &format!("BRUCKNER={mode}, spawned"), &text.concat());
        }
    }
    Ok(outcome)
}

/// Runs `bruckner exec` before only one of the programs of a job.
fn one_of_two(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("counted")?;
    let (command, shown) = (root().join("target/release/bruckner"), program.display().to_string());
    let mut outcome = Outcome::default();
    for mode in ["on", "off"] {
        let launch = Launch::plain(mpi, 1, &command).argument("exec").argument(&shown).argument("refused");
        let launch = [":", "-n", "1", &shown, "refused"].iter().fold(launch, |launch, word| launch.argument(*word));
        let said = launch.set("BRUCKNER", mode).oversubscribed().run()?;
        outcome.seconds += said.seconds;
        let right = said.succeeded && said.out.contains("cases 200 failures 0");
        expect(&mut outcome, right, mode, &format!("{}{}", said.out, said.err));
    }
    Ok(outcome)
}

/// A script that runs a program, after the commands `on_rank_1` on rank 1.
fn script(program: &Path, on_rank_1: &str) -> String {
    let rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}";
    format!("if [ \"{rank}\" = 1 ]; then {on_rank_1}; fi; exec {}", program.display())
}

fn algorithm(report: &Path, collective: &str) -> String {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let communicators = report["communicators"].as_array().into_iter().flatten();
    let rows = communicators.flat_map(|record| record["rows"].as_array().into_iter().flatten());
    let row = rows.filter(|row| row["collective"] == collective).max_by_key(|row| row["calls"].as_u64());
    row.map_or_else(String::new, |row| {
        format!("{}: {}", row["algorithm"].as_str().unwrap_or(""), row["reason"].as_str().unwrap_or(""))
    })
}

/// The administrator's settings file, which exists as long as this value.
struct Administrators(PathBuf);

impl Administrators {
    fn put(text: &str) -> Result<Administrators> {
        let path = PathBuf::from("/etc/bruckner.conf");
        if path.exists() {
            bail!("{} exists: it would be overwritten", path.display());
        }
        std::fs::write(&path, text)?;
        Ok(Administrators(path))
    }
}

impl Drop for Administrators {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a program under limits of file size and address space that are sufficient for the program and its MPI.
fn limited(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("tooled")?;
    let mut outcome = Outcome::default();
    for limit in ["ulimit -f 1000000", "ulimit -v 3000000"] {
        let launch = Launch::preloaded(mpi, 2, Path::new("/bin/sh")).argument("-c");
        let said = launch.argument(format!("{limit} && exec {}", program.display())).run()?;
        outcome.seconds += said.seconds;
        let right = said.succeeded && said.out.contains("cases 100 failures 0");
        expect(&mut outcome, right, limit, &format!("{}{}", said.out, said.err));
    }
    Ok(outcome)
}

/// Tests settings files and variables that are unreadable, truncated, owned by another user, or different on each rank.
fn configurations(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("tooled")?;
    let mut outcome = Outcome::default();
    let place = home().join("configurations");
    std::fs::create_dir_all(&place)?;
    let file = place.join("bruckner.conf");
    let report = place.join("report.json");
    let shell = Path::new("/bin/sh");
    let run = |on_rank_1: &str, settings: &[(&'static str, String)]| -> Result<Output> {
        let _ = std::fs::remove_file(&report);
        let mut launch = Launch::preloaded(mpi, 2, shell).argument("-c").argument(script(&program, on_rank_1));
        launch = launch.set("BRUCKNER_REPORT", report.display().to_string());
        launch = settings.iter().fold(launch, |launch, (name, value)| launch.set(name, value));
        launch.run()
    };
    let mut right = |said: &Output, what: &str, complaint: &str, by: &str| {
        let found = algorithm(&report, "allreduce");
        let holds = said.succeeded && said.out.contains("cases 100 failures 0");
        let told = said.err.matches(complaint).count() == usize::from(!complaint.is_empty()) || complaint.is_empty();
        expect(&mut outcome, holds && told && found.starts_with(by), what, &format!("{}{}{found}", said.out, said.err));
    };
    let config = ("BRUCKNER_CONFIG", file.display().to_string());
    let owned = |text: &str, owner: u32, mode: u32| -> Result<()> {
        std::fs::write(&file, text)?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode))?;
        Ok(chown(&file, Some(owner), None)?)
    };
    owned("BRUCKNER_ALGORITHM = allreduce=recursive-doubling\n", 0, 0o644)?;
    right(&run(":", std::slice::from_ref(&config))?, "a good file", "", "recursive-doubling: selected by the user");
    owned("BRUCKNER_ALGORITHM = allreduce=rec", 0, 0o644)?;
    right(
        &run(":", std::slice::from_ref(&config))?,
        "a truncated file",
        "bruckner: BRUCKNER_ALGORITHM=allreduce=rec is ignored: ",
        "shm",
    );
    owned("BRUCKNER_ALGORITHM = allreduce=recursive-doubling\n", 65534, 0o644)?;
    right(
        &run(":", std::slice::from_ref(&config))?,
        "another user's file",
        "is not read: it belongs to user 65534",
        "shm",
    );
    owned("BRUCKNER_ALGORITHM = allreduce=recursive-doubling\n", 0, 0o666)?;
    right(
        &run(":", std::slice::from_ref(&config))?,
        "a file writable by all",
        "is not read: other users may write to it",
        "shm",
    );
    std::fs::remove_file(&file)?;
    let directory = ("BRUCKNER_CONFIG", place.display().to_string());
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755))?;
    right(&run(":", &[directory])?, "a directory instead of a file", "is not read: it is not a regular file", "shm");
    // Settings that differ between ranks: those of rank 0 apply to all ranks.
    right(
        &run("export BRUCKNER_ALGORITHM=allreduce=recursive-doubling", &[])?,
        "another algorithm on rank 1",
        "",
        "shm",
    );
    right(
        &run("export BRUCKNER_TOPOLOGY=2x1 BRUCKNER_SHM=off BRUCKNER=always", &[])?,
        "another machine on rank 1",
        "",
        "shm",
    );
    right(&run("export BRUCKNER_CONFIG=/nowhere", &[])?, "another file on rank 1", "", "shm");
    let said = run("export BRUCKNER=off", &[])?;
    let holds = said.succeeded && said.out.contains("cases 100 failures 0") && !report.exists();
    expect(&mut outcome, holds, "off on rank 1", &said.err);
    let said = run(":", &[("BRUCKNER_ALGORITHM", "allreduce=rnig".into()), ("BRUCKNER_FOO", "1".into())])?;
    let told = said.err.matches("bruckner: ").count() == 2 && said.err.contains("`BRUCKNER_FOO` is not a setting");
    expect(&mut outcome, said.succeeded && told, "wrong settings are explained once", &said.err);
    if mpi == Mpi::Openmpi4 {
        let _file = Administrators::put("BRUCKNER_ALGORITHM = allreduce=recursive-doubling\n")?;
        let asked = [("BRUCKNER_ALGORITHM", "allreduce=ring".to_owned())];
        let said = run(":", &asked)?;
        let found = algorithm(&report, "allreduce");
        expect(
            &mut outcome,
            said.succeeded && found.starts_with("recursive-doubling"),
            "the administrator's file",
            &found,
        );
    }
    Ok(outcome)
}

/// Builds an empty library with the name of a GPU runtime.
fn runtime() -> Result<PathBuf> {
    let place = home().join("gpu");
    std::fs::create_dir_all(&place)?;
    let runtime = place.join("libcuda.so.1");
    let made = Command::new("gcc").args(["-shared", "-fPIC", "-x", "c", "/dev/null", "-o"]).arg(&runtime).status()?;
    if !made.success() {
        bail!("gcc cannot build the fake GPU runtime");
    }
    Ok(runtime)
}

/// Loads a GPU runtime on one rank after the first calls: from then on only the MPI may access the buffers of this rank, and soon all
/// ranks must pass all calls through.
fn late_gpu(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("device")?;
    let report = home().join("gpu/late.json");
    let launch = Launch::preloaded(mpi, 2, &program).set("BRUCKNER", "always");
    let launch = launch.set("FAKE_RUNTIME", runtime()?.display().to_string()).set("BRUCKNER_FAULT", "device");
    let mut outcome = launch.set("BRUCKNER_REPORT", report.display().to_string()).test()?;
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let left = text.contains("some rank has loaded a GPU runtime");
    expect(&mut outcome, left, "ranks did not agree on the GPU runtime", &text);
    Ok(outcome)
}

/// Makes one rank panic while it plans: all ranks must pass the call through and go on.
fn panics(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("tooled")?;
    let report = home().join("panic.json");
    let launch = Launch::preloaded(mpi, 3, &program).oversubscribed().set("BRUCKNER", "always");
    let launch = launch.set("BRUCKNER_FAULT", "plan@1").set("RUST_BACKTRACE", "0");
    let said = launch.set("BRUCKNER_REPORT", report.display().to_string()).run()?;
    let mut outcome = Outcome { seconds: said.seconds, ..Outcome::default() };
    let right = said.succeeded && said.out.contains("failures 0") && said.err.contains("a fault on purpose");
    expect(&mut outcome, right, "a panic on rank 1", &format!("{}{}", said.out, said.err));
    let found = algorithm(&report, "allreduce");
    expect(&mut outcome, found.starts_with("native: "), "after a panic", &found);
    Ok(outcome)
}

/// Loads a library with the name of a GPU runtime on one rank only: all ranks must pass the communicator's calls through to the MPI.
fn gpu(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("tooled")?;
    let runtime = runtime()?;
    let report = home().join("gpu/report.json");
    let both = format!("export LD_PRELOAD={}:{}", library().display(), runtime.display());
    let launch = Launch::preloaded(mpi, 2, Path::new("/bin/sh")).argument("-c").argument(script(&program, &both));
    let launch = launch.set("BRUCKNER", "always").set("BRUCKNER_FAULT", "device");
    let said = launch.set("BRUCKNER_REPORT", report.display().to_string()).run()?;
    let mut outcome = Outcome { seconds: said.seconds, ..Outcome::default() };
    let found = algorithm(&report, "allreduce");
    let native = found.starts_with("native: some rank has loaded a GPU runtime");
    expect(&mut outcome, said.succeeded && native, "a GPU runtime on rank 1", &format!("{}{found}", said.err));
    Ok(outcome)
}

/// Checks that a process with raised privileges ignores the environment variables of the user who started it.
fn privileged() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let place = home().join("privileged");
    std::fs::create_dir_all(&place)?;
    let command = place.join("bruckner");
    std::fs::copy(root().join("target/release/bruckner"), &command)?;
    let say = || -> Result<String> {
        let run = Command::new(&command).arg("doctor").env("BRUCKNER_MPI", "/nowhere/libmpi.so").output()?;
        Ok(String::from_utf8_lossy(&run.stdout).into_owned())
    };
    let ordinary = say()?;
    expect(&mut outcome, ordinary.contains("/nowhere/libmpi.so"), "BRUCKNER_MPI", &ordinary);
    chown(&command, Some(65534), None)?;
    std::fs::set_permissions(&command, PermissionsExt::from_mode(0o4755))?;
    let raised = say()?;
    let ignored = raised.contains("not started by a known MPI launcher");
    expect(&mut outcome, ignored, "BRUCKNER_MPI with raised privileges", &raised);
    std::fs::remove_file(&command)?;
    Ok(outcome)
}

/// Checks that programs without MPI behave the same with the library preloaded.
fn without_mpi() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let commands: [&[&str]; 6] = [
        &["/bin/true"],
        &["/bin/false"],
        &["/bin/sh", "-c", "echo a; ls / | head -n 3"],
        &["python3", "-c", "import os; print(sorted(os.listdir('/'))[:3])"],
        // A program with the set-user-id bit, started by user nobody.
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/mount", "--version"],
        &["/bin/sh", "-c", "exec 3>&2; echo to standard error >&3; exit 7"],
    ];
    let copy = root().join("target/testbed/libbruckner-copy.so");
    std::fs::copy(library(), &copy)?;
    for command in commands {
        let run = |preload: Option<&Path>| {
            let mut run = Command::new(command[0]);
            run.args(&command[1..]).stdin(Stdio::null()).env("BRUCKNER", "always").env("BRUCKNER_REPORT", "stderr");
            if let Some(library) = preload {
                run.env("LD_PRELOAD", library);
            }
            run.output()
        };
        let (without, with) = (run(None)?, run(Some(&copy))?);
        let same = without.status == with.status && without.stdout == with.stdout && without.stderr == with.stderr;
        expect(&mut outcome, same, &command.join(" "), &String::from_utf8_lossy(&with.stderr));
    }
    Ok(outcome)
}
