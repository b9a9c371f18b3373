//! Output and exit status of the `bruckner` command.

use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Output};

fn bruckner(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bruckner")).args(args).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn status(args: &[&str]) -> (i32, String) {
    let output = bruckner(args);
    (output.status.code().expect("it ends by itself"), text(&output.stderr))
}

#[test]
fn the_wrong_question_ends_with_2_and_a_reason() {
    for (args, reason) in [
        (vec!["verify"], "COLLECTIVE|all|probes|FILE"),
        (vec!["verify", "allgather"], "add --topology T"),
        (vec!["verify", "nonsense"], "cannot verify `nonsense`: expected `all`, `probes`, one of"),
        (vec!["explain", "allgather", "--topology", "4x"], "at column 3 of `4x`"),
        (vec!["explain", "allgather", "--topology", "4x4", "--algorithm", "brick"], "unknown algorithm `brick`"),
        (
            vec!["explain", "allgather", "--topology", "4x4", "--algorithm", "modified-bruck(2)"],
            "`modified-bruck(2)` does not implement allgather",
        ),
        (vec!["explain", "allgather", "--topology", "4x4", "--format", "table"], "add --rank R"),
        (
            vec!["explain", "allgather", "--topology", "4x4", "--rank", "16"],
            "rank 16 does not exist: there are 16 ranks",
        ),
        (vec!["explain", "allgather", "--topology", "65536x16"], "1048576 ranks are too many to show"),
        (vec!["explain", "bcast", "--topology", "4x4", "--root", "16"], "root 16 does not exist: there are 16 ranks"),
        (vec!["explain", "allgather", "--topology", "2x1", "--counts", "1,x"], "not `1,x`"),
        (vec!["explain", "allgather", "--topology", "2x1", "--counts", "1,2,3"], "one count for each rank"),
    ] {
        let (code, error) = status(&args);
        assert_eq!(code, 2, "{args:?}: {error}");
        assert!(error.contains(reason), "{args:?}: {error}");
    }
}

#[test]
fn a_text_that_breaks_an_invariant_ends_with_1_and_its_line() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../schedule/filetests/verify/");
    let breaks = format!("{corpus}in-flight-breaks.bruck");
    let output = bruckner(&["verify", &breaks]);
    assert_eq!(output.status.code(), Some(1));
    let found = text(&output.stdout);
    assert!(found.contains("in-flight-breaks.bruck:11: in-flight: rank 0, instruction 2: writes t0[0]"), "{found}");
    assert_eq!(status(&["verify", &format!("{corpus}in-flight-holds.bruck")]).0, 0);
}

#[test]
fn the_small_catalogue_verifies() {
    let output = bruckner(&["verify", "all", "--max-ranks", "6"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let last = text(&output.stdout).lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("verified ") && last.ends_with(" schedules, 0 refused"), "{last}");
    let listed = text(&bruckner(&["verify", "--catalogue", "--max-ranks", "6"]).stdout).lines().count();
    assert!(text(&output.stdout).contains(&format!("{listed} pairs of task and algorithm")), "{listed} are listed");
}

#[test]
fn all_probes_verify() {
    let output = bruckner(&["verify", "probes"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().last(), Some("verified 24 programs, 0 refused"));
}

/// The verifier refuses broken programs and accepts correct ones, on a small sample; CI runs the full numbers separately.
#[test]
fn the_judges_agree_on_a_sample() {
    let output = bruckner(&["verify", "--self-test", "400", "--seed", "7"]);
    let last = text(&output.stdout).lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("400 mutants: ") && last.ends_with(" 0 missed"), "{last}");
    let output = bruckner(&["verify", "--random", "300", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stdout).ends_with("300 programs: 300 accepted and correct, 0 refused, 0 accepted but wrong\n")
    );
}

/// `explain` without `--algorithm` prints the choice of the same code that chooses in the library.
#[test]
fn explain_says_what_would_run_and_why() {
    let chosen = |args: &[&str]| {
        let output = bruckner(&[&["explain"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let said = text(&output.stdout);
        // The output is a table of all algorithms, what the MPI's own function does if that is known, an empty comment line, and the choice.
        assert!(said.starts_with("; algorithm "), "{said}");
        let choice = said.lines().skip_while(|line| *line != ";").nth(1);
        choice.unwrap_or_default().to_owned()
    };
    let near = chosen(&["allreduce", "--topology", "4x4"]);
    assert!(near.starts_with("; locality(node): ") && near.contains("predicted from the default machine model"));
    let node = chosen(&["allgather", "--topology", "1x4", "--bytes", "8192", "--mpi", "mpich"]);
    assert!(node.starts_with("; shm: "), "{node}");
    let native =
        bruckner(&["explain", "alltoall", "--topology", "64x16", "--bytes", "4096", "--mpi", "mpich", "--rank", "0"]);
    let line = "; the MPI's own function: scattered, like spread-out(window=32) (maint/tuning/coll/mpir/generic.json:459)\n;\n";
    assert!(text(&native.stdout).contains(line), "{}", text(&native.stdout));
    let long = chosen(&["allgather", "--topology", "1x4", "--bytes", "16777216", "--mpi", "openmpi"]);
    assert!(
        long.starts_with("; native: no algorithm is predicted to be at least 1.4x faster than the MPI; "),
        "{long}"
    );
    let ordered = bruckner(&["explain", "reduce_scatter", "--topology", "1x4", "--ordered"]);
    assert_eq!(text(&ordered.stdout), "; native: no algorithm of the library can handle this call\n");
}

#[test]
fn json_is_json_and_complete() {
    let output = bruckner(&["explain", "alltoall", "--topology", "7x1", "--algorithm", "bruck(3)", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["schedule"].as_array().map(Vec::len), Some(7));
    assert_eq!(document["schedule"][0]["steps"], 4);
    assert_eq!(document["schedule"][2]["rounds"][1]["messages"][0]["places"][0]["runs"][0]["stride"], 3);
}

#[test]
fn a_file_gets_what_standard_output_would() {
    let file = std::env::temp_dir().join(format!("bruckner-explain-{}.txt", std::process::id()));
    let args = ["explain", "allgather", "--topology", "2x2", "--algorithm", "sparbit"];
    let mut with_file = args.to_vec();
    let name = file.display().to_string();
    with_file.extend(["-o", &name]);
    assert!(bruckner(&with_file).stdout.is_empty());
    let written = std::fs::read(&file).expect("the file is there");
    std::fs::remove_file(&file).expect("it can be removed");
    assert_eq!(written, bruckner(&args).stdout);
}

/// Plans one of 2^20 ranks; `.ci/run` checks the memory of the release build.
#[test]
fn a_million_ranks_are_no_matter() {
    for (collective, algorithm, steps) in [
        (
            "allgather",
            "locality(node)",
            "steps     4 (lower bound for the busiest rank: 4 with 1 port, if ranks of a node share received data)",
        ),
        ("allgather", "sparbit", "steps     20 (lower bound for the busiest rank: 20 with 1 port)"),
        ("alltoall", "bruck(1024)", "steps     2046 (lower bound for the busiest rank: 20 with 1 port)"),
    ] {
        let output = bruckner(&[
            "explain",
            collective,
            "--topology",
            "65536x16",
            "--bytes",
            "8",
            "--algorithm",
            algorithm,
            "--rank",
            "1000000",
            "--format",
            "table",
        ]);
        assert!(text(&output.stdout).lines().any(|line| line == steps), "{algorithm}");
    }
}

/// Libraries preloaded before stay in front of Bruckner's, and `BRUCKNER_EXEC` names this rank and the program that was started.
#[test]
fn exec_puts_the_library_behind_and_leaves_a_mark() {
    // An empty file will do: the dynamic loader skips a file that is no library, with a message on standard error.
    let library = std::env::temp_dir().join(format!("bruckner-exec-{}.so", std::process::id()));
    std::fs::write(&library, "").unwrap();
    let path = library.canonicalize().unwrap().display().to_string();
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bruckner"));
        command.args([
            "exec",
            "--library",
            &path,
            "sh",
            "-c",
            "echo \"$LD_PRELOAD $BRUCKNER_EXEC $1\"",
            "sh",
            "--flag",
        ]);
        command.env_remove("LD_PRELOAD").envs(environment.iter().copied());
        text(&command.output().expect("the command runs").stdout)
    };
    let shell = std::fs::metadata("/bin/sh").unwrap();
    let shell = format!("{}:{}", shell.dev(), shell.ino());
    assert_eq!(run(&[]), format!("{path} ::::::: {shell} --flag\n"));
    let there = format!("other.so {path}:third.so");
    let under_mpirun = run(&[("PMIX_NAMESPACE", "job"), ("PMIX_RANK", "3"), ("LD_PRELOAD", &there)]);
    assert_eq!(under_mpirun, format!("other.so:third.so:{path} job:3:::::: {shell} --flag\n"));
    let through = bruckner(&["exec", "--through", "--library", &path, "sh", "-c", "echo $BRUCKNER_EXEC"]);
    assert_eq!(text(&through.stdout), "::::::: any\n");
    // A path that the dynamic loader would split in two is refused before anything starts.
    let apart = library.with_file_name(format!("bruckner exec {}.so", std::process::id()));
    std::fs::rename(&library, &apart).unwrap();
    let refused = bruckner(&["exec", "--library", &apart.display().to_string(), "echo", "started"]);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), String::new()));
    assert!(text(&refused.stderr).contains("cannot hold a path with a space"));
    std::fs::remove_file(&apart).unwrap();
    let missing = bruckner(&["exec", "--library", "/nowhere.so", "true"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nowhere.so: No such file"));
    let unknown = bruckner(&["exec", "--library", "/dev/null", "no-such-program"]);
    assert_eq!((unknown.status.code(), text(&unknown.stdout)), (Some(127), String::new()));
    assert!(text(&unknown.stderr).contains("bruckner exec: no-such-program: "));
    let ends_as_it = bruckner(&["exec", "--library", "/dev/null", "sh", "-c", "exit 7"]);
    assert_eq!(ends_as_it.status.code(), Some(7));
}

#[test]
fn a_new_name_of_a_setting_takes_precedence_over_the_old_one() {
    let settings = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bruckner"));
        command.env_clear().envs(variables.iter().copied()).arg("settings");
        text(&command.output().expect("the command runs").stdout)
    };
    let online_tuning = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("BRUCKNER_ONLINE_TUNING ")).expect("it is listed");
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    assert_eq!(online_tuning(&settings(&[("BRUCKNER_WATCH", "off")])), "off");
    let both = settings(&[("BRUCKNER_WATCH", "off"), ("BRUCKNER_ONLINE_TUNING", "on")]);
    assert_eq!(online_tuning(&both), "on");
}
