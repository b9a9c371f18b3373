//! Checks that `include/bruckner.h` is what cbindgen generates from the source and the table of collectives; `BLESS=1` writes the file.

use std::fmt::Write as _;
use std::path::Path;

/// Returns declarations of the functions in the table, because cbindgen does not expand macros.
fn functions(table: &str) -> String {
    let (mut blocking, mut plans) = (String::new(), String::new());
    for line in table.lines().filter_map(|line| line.trim().strip_suffix(");")) {
        let (names, arguments) = line.split_once(" (").expect("NAME \"MPI's name\" (ARGUMENTS);");
        let (function, mpi) = names.split_once(' ').expect("two names");
        let mpi = format!("MPI_{}", mpi.trim_matches('"'));
        let of = |argument: &str| {
            let (name, kind) = argument.split_once(": ").expect("a name and a kind");
            let kind = match kind {
                "Read" => "*const c_void",
                "Write" => "*mut c_void",
                "Count" | "Root" => "c_int",
                "List" => "*const c_int",
                "Type" => "MPI_Datatype",
                "Op" => "MPI_Op",
                other => panic!("no kind of argument: {other}"),
            };
            format!("{name}: {kind}, ")
        };
        let arguments: String = arguments.split(", ").filter(|one| !one.is_empty()).map(of).collect();
        let head = "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn bruckner_";
        let _ = writeln!(
            blocking,
            "/// Runs the collective {mpi}. All arguments are those of {mpi}.\n///\n/// # Safety\n/// The arguments are right for {mpi}.\n\
             {head}{function}({arguments}comm: MPI_Comm) -> c_int {{}}"
        );
        let _ = writeln!(
            plans,
            "/// Makes a plan that runs {mpi} each time it is started. If `algorithm` is given, it is used, or the call fails;\n\
             /// null or \"\" leaves the choice to the library. Collective.\n///\n/// # Safety\n\
             /// The arguments are right for {mpi}, and stay so as long as the plan is used.\n\
             {head}{function}_init({arguments}comm: MPI_Comm, algorithm: *const c_char, plan: *mut *mut bruckner_plan) -> c_int {{}}"
        );
    }
    blocking + &plans
}

#[test]
fn the_header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("a configuration");
    let source = |name: &str| here.join("src").join(name).with_extension("rs");
    let table = std::fs::read_to_string(source("table")).expect("the table");
    let collectives = Path::new(env!("CARGO_TARGET_TMPDIR")).join("collectives.rs");
    std::fs::write(&collectives, functions(&table)).expect("written");
    let sources = [source("handles"), source("setup"), collectives, source("plans"), source("errors")];
    let builder = sources.into_iter().fold(cbindgen::Builder::new().with_config(config), cbindgen::Builder::with_src);
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let file = here.join("include/bruckner.h");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &made).expect("written");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap_or_default(), made, "run with BLESS=1");
}
