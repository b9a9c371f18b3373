//! Determines whether every rank of a job has loaded this library, without sending a message.
//!
//! Before it is certain that all ranks have loaded the library, none may communicate, because a rank without it would never answer. At
//! that time the ranks know only how they were started, so each must reach the same conclusion from that alone:
//!
//! - **`bruckner exec`** started this process, and has set an environment variable (the mark): a user who starts one rank of a
//!   program with it starts all of them with it. The mark contains job and rank, so it is invalid in another job that this one
//!   starts. It also contains the program, because a script or another program in between may remove the library from some ranks.
//! - **One node**: all ranks have the launcher's environment. If a job consists of several programs, each process is checked for
//!   the library.
//! - **Hydra** (MPICH, Intel MPI) passes on the whole environment, unless an option forbids it. In that case the ranks on the
//!   launcher's node still inherit the environment, but see from Hydra's command line that others do not.
//! - **srun** gives all tasks of a step the same environment.
//!
//! Open MPI's mpirun does not pass on its environment: `LD_PRELOAD` set before mpirun reaches only the ranks on its own node, `-x
//! LD_PRELOAD` reaches all, and ranks cannot distinguish the two cases. PMIx could distinguish them, but cannot be queried before
//! `MPI_Init` (Open MPI 5 then fails), nor afterwards without waiting for ranks that never answer.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Environment variable that `bruckner exec` sets to its mark: job, rank and program.
pub const MARK: &str = "BRUCKNER_EXEC";

/// Environment variables by which launchers tell a process its job and its rank.
const IDENTITY: [&str; 8] = [
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_FD",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
];

/// Maximum number of ranks on a node for which the process of each rank is checked.
const MOST_SIBLINGS: usize = 512;

/// Information that a process has about how its job was started.
pub struct LaunchContext<'a> {
    /// Returns the value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Name of the parent process.
    pub parent: String,
    /// Command line of the parent's parent process.
    pub command: Vec<String>,
    /// Returns whether all children of the parent process have loaded the library. `None` if they are not exactly the given number of
    /// ranks.
    pub siblings: &'a dyn Fn(usize) -> Option<bool>,
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Executable file of this process.
    pub program: Option<FileId>,
}

/// Identity of a file, independent of its name: device and inode number.
pub type FileId = (u64, u64);

/// The program that `bruckner exec` started for this rank of this job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Started {
    /// `bruckner exec` was not used.
    Nothing,
    /// `bruckner exec` started this program, or a script that passes the library on according to the user.
    This,
    /// `bruckner exec` started another program, which in turn started this program.
    Another,
}

/// Whether all ranks have loaded the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LibraryPresence {
    /// All ranks have loaded the library. The text is the reason for this conclusion.
    All(&'static str),
    /// It is unknown whether all ranks have loaded the library. The text advises the user what to do.
    Unknown(String),
}

/// Returns the value of [`MARK`], the variable that `bruckner exec` sets: job, rank, and the program file that it starts. Without a file it
/// contains `any`: by `--through`, the user promises that a script passes `LD_PRELOAD` on to the program.
pub fn mark(variable: &dyn Fn(&str) -> Option<String>, file: Option<FileId>) -> String {
    let file = file.map_or_else(|| "any".to_owned(), |(device, number)| format!("{device}:{number}"));
    format!("{} {file}", identity(variable))
}

/// Returns a text that identifies the job and the rank of a process, as far as its launcher tells them.
fn identity(variable: &dyn Fn(&str) -> Option<String>) -> String {
    let values = IDENTITY.map(|name| variable(name).unwrap_or_default());
    values.join(":")
}

impl LaunchContext<'_> {
    fn started(&self) -> Started {
        let (is_named, left) = (!identity(self.variable).trim_matches(':').is_empty(), (self.variable)(MARK));
        let is = |file| left.as_deref() == Some(&mark(self.variable, file));
        let is_of_rank = || left.as_ref().is_some_and(|left| left.starts_with(&identity(self.variable)));
        match is_named {
            true if is(None) || (self.program.is_some() && is(self.program)) => Started::This,
            true if is_of_rank() => Started::Another,
            _ => Started::Nothing,
        }
    }

    /// Returns whether all ranks have loaded the library. All ranks that have loaded it get the same result.
    pub fn presence(&self) -> LibraryPresence {
        let number = |name: &str| (self.variable)(name).and_then(|value| value.trim().parse::<u32>().ok());
        let programs = number("OMPI_NUM_APP_CTX").unwrap_or(1);
        if self.ranks == 1 {
            return LibraryPresence::All("there is one rank");
        }
        let hydra = self.parent.starts_with("hydra_pmi_proxy") || self.parent.starts_with("hydra_bstrap");
        let srun = self.parent == "slurmstepd";
        let here = if self.parent.contains("hydra") {
            number("MPI_LOCALNRANKS")
        } else if srun {
            number("SLURM_STEP_NUM_NODES").filter(|nodes| *nodes == 1).map(|_| self.ranks)
        } else {
            number("OMPI_COMM_WORLD_LOCAL_SIZE")
        };
        let started = self.started();
        let marked = started == Started::This;
        // If the job is on one node, all ranks see Hydra's command line, and so agree on whether the job has several programs.
        let several =
            programs > 1 || (hydra && here == Some(self.ranks) && self.command.iter().any(|word| word == ":"));
        if marked && !several {
            return LibraryPresence::All("started by `bruckner exec`");
        }
        if here == Some(self.ranks) {
            match (self.siblings)(self.ranks as usize) {
                Some(false) => {
                    return LibraryPresence::Unknown(
                        "some processes of this job have not loaded the library; start all of them with `bruckner exec`".into(),
                    );
                }
                None if several || started == Started::Another => {}
                _ => return LibraryPresence::All("all ranks are on one node"),
            }
        }
        if started == Started::Another {
            return LibraryPresence::Unknown(
                "`bruckner exec` started a script or another program, which may remove the library on some ranks; put `bruckner exec` \
                 before the program inside it or, if it passes LD_PRELOAD on to all ranks, use `bruckner exec --through SCRIPT …`"
                    .into(),
            );
        }
        if hydra && !(marked && several) && !withholds(&self.command) {
            return LibraryPresence::All("the launcher passes its environment to all ranks");
        }
        if srun {
            return LibraryPresence::All("srun passes the same environment to all tasks");
        }
        let launcher = if hydra { "mpiexec" } else { "mpirun" };
        LibraryPresence::Unknown(format!(
            "on several nodes the library cannot tell whether all ranks have loaded it; start every program of the job with \
             `{launcher} … bruckner exec PROGRAM`"
        ))
    }

    /// Returns whether all ranks of the job, `ranks` in number, have loaded the library, from the environment and the parent of this
    /// process.
    pub fn presence_in_this_process(ranks: u32) -> LibraryPresence {
        let parent = std::os::unix::process::parent_id();
        let siblings = |ranks: usize| siblings(parent, ranks);
        let read = |pid: u32, what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let command = parent_of(&read(parent, "stat")).map(|above| read(above, "cmdline")).unwrap_or_default();
        let launch = LaunchContext {
            variable: &crate::load::environment_variable,
            parent: read(parent, "comm").trim().to_owned(),
            command: command.split('\0').map(str::to_owned).collect(),
            siblings: &siblings,
            ranks,
            program: file_id(Path::new("/proc/self/exe")),
        };
        launch.presence()
    }
}

/// Returns whether Hydra's command line restricts which environment variables are passed on, and does not name `LD_PRELOAD`.
fn withholds(command: &[String]) -> bool {
    let options = ["genvnone", "genvlist", "genvexcl", "envnone", "envlist", "envexcl"];
    let option = |word: &String| word.starts_with('-') && options.contains(&word.trim_start_matches('-'));
    command.iter().any(option) && !command.iter().any(|word| word.contains("LD_PRELOAD"))
}

/// Returns the parent's process number from the text of `/proc/PID/stat`. It is the second word after the name of the process, which may
/// contain any characters.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns whether all children of process `parent` have loaded this library; `None` unless there are `ranks` children and all of them use
/// MPI.
fn siblings(parent: u32, ranks: usize) -> Option<bool> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let children: Vec<&str> = children.split_whitespace().collect();
    if children.len() != ranks || ranks > MOST_SIBLINGS {
        return None;
    }
    let address = siblings as fn(u32, usize) -> Option<bool> as *mut std::ffi::c_void;
    let own = crate::load::object_of(address)?;
    let own = file_id(Path::new(own.to_str().ok()?))?;
    let mut all = true;
    for child in children {
        let files = mapped(child)?;
        if files.iter().any(|file| file_id(file) == Some(own)) {
            continue;
        }
        // A process without MPI is not a rank. It may be a script that starts a rank.
        let is_mpi =
            |file: &PathBuf| file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libmpi"));
        if !files.iter().any(is_mpi) {
            return None;
        }
        all = false;
    }
    Some(all)
}

/// Returns the identity of a file, which does not depend on the file's name.
pub fn file_id(file: &Path) -> Option<FileId> {
    std::fs::metadata(file).ok().map(|about| (about.dev(), about.ino()))
}

/// Returns the files that are mapped in the memory of a process.
fn mapped(process: &str) -> Option<Vec<PathBuf>> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let mut files: Vec<PathBuf> =
        maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..]))).collect();
    files.dedup();
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(variables: &[(&str, &str)], parent: &str, command: &str, siblings: Option<bool>) -> LibraryPresence {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let siblings = |_: usize| siblings;
        let command = command.split(' ').map(str::to_owned).collect();
        LaunchContext {
            variable: &variable,
            parent: parent.into(),
            command,
            siblings: &siblings,
            ranks: 4,
            program: Some((7, 9)),
        }
        .presence()
    }

    fn is_all(reach: &LibraryPresence) -> bool {
        matches!(reach, LibraryPresence::All(_))
    }

    #[test]
    fn open_mpi_tells_nothing_beyond_its_node() {
        let job = |local| {
            vec![
                ("OMPI_COMM_WORLD_LOCAL_SIZE", local),
                ("OMPI_NUM_APP_CTX", "1"),
                ("PMIX_NAMESPACE", "j"),
                ("PMIX_RANK", "2"),
            ]
        };
        assert!(is_all(&reach(&job("4"), "mpirun", "bash", None)));
        let LibraryPresence::Unknown(why) = reach(&job("2"), "mpirun", "bash", None) else { panic!("two nodes") };
        assert!(why.contains("`mpirun … bruckner exec PROGRAM`"), "{why}");
        // The mark for this job and rank is valid; marks for other jobs, ranks or programs are not.
        let marked = |mark| [job("2"), vec![(MARK, mark)]].concat();
        for mark in ["j:2:::::: 7:9", "j:2:::::: any"] {
            assert!(is_all(&reach(&marked(mark), "prted", "sshd", None)), "{mark}");
        }
        for other in ["j:1:::::: 7:9", "k:2:::::: 7:9", "::::::: 7:9", "j:2:::::: 7:8", "j:2::::::", ""] {
            assert!(!is_all(&reach(&marked(other), "prted", "sshd", None)), "{other}");
        }
    }

    #[test]
    fn several_programs_are_looked_into() {
        let job = |local| vec![("OMPI_COMM_WORLD_LOCAL_SIZE", local), ("OMPI_NUM_APP_CTX", "2")];
        assert!(is_all(&reach(&job("4"), "mpirun", "bash", Some(true))));
        assert!(!is_all(&reach(&job("4"), "mpirun", "bash", Some(false))));
        assert!(!is_all(&reach(&job("4"), "mpirun", "bash", None)));
        assert!(!is_all(&reach(&[job("2"), vec![(MARK, "::::::: any")]].concat(), "prted", "sshd", Some(true))));
    }

    /// A job may have two programs of which only one was started by `bruckner exec`.
    #[test]
    fn hydra_may_start_several_programs() {
        let mark = ":::3:::: 7:9";
        let job = [("MPI_LOCALNRANKS", "4"), ("PMI_RANK", "3"), (MARK, mark)];
        let of = |command, siblings| is_all(&reach(&job, "hydra_pmi_proxy", command, siblings));
        assert!(of("mpiexec -n 4 bruckner exec ./app", Some(false)));
        let two = "mpiexec -n 2 bruckner exec ./app : -n 2 ./app";
        assert!(!of(two, Some(false)) && !of(two, None) && of(two, Some(true)));
    }

    /// A script started by `bruckner exec` may remove the library from some ranks. On a single node this is checked.
    #[test]
    fn a_script_in_between_is_not_trusted() {
        let hydra = |local| vec![("MPI_LOCALNRANKS", local), ("PMI_RANK", "3"), (MARK, ":::3:::: 7:8")];
        let of = |local, siblings| reach(&hydra(local), "hydra_pmi_proxy", "mpiexec -n 4 bruckner exec x.sh", siblings);
        assert!(is_all(&of("4", Some(true))));
        for unsure in [of("4", Some(false)), of("4", None), of("2", None)] {
            assert!(!is_all(&unsure));
        }
        let LibraryPresence::Unknown(why) = of("2", None) else { panic!("a script on two nodes") };
        assert!(why.contains("`bruckner exec --through SCRIPT …`"), "{why}");
        let srun = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_NODES", "2"), (MARK, ":::::::1 7:8")];
        assert!(!is_all(&reach(&srun, "slurmstepd", "", None)));
    }

    #[test]
    fn hydra_hands_on_what_it_is_not_told_to_keep() {
        let job = [("MPI_LOCALNRANKS", "2"), ("PMI_RANK", "3")];
        let of = |command| is_all(&reach(&job, "hydra_pmi_proxy", command, None));
        assert!(of("mpiexec -n 4 ./app"));
        assert!(of("sshd"));
        assert!(!of("mpiexec -genvnone -n 4 ./app"));
        assert!(!of("mpiexec -genvlist PATH -n 4 ./app"));
        assert!(of("mpiexec -genvlist PATH,LD_PRELOAD -n 4 ./app"));
        assert!(of("mpiexec -genvnone -genv LD_PRELOAD x.so -n 4 ./app"));
    }

    #[test]
    fn srun_and_others() {
        assert!(is_all(&reach(&[("SLURM_PROCID", "1")], "slurmstepd", "", None)));
        // These are only the variables of a batch script: the ranks were started by another launcher.
        assert!(!is_all(&reach(&[("SLURM_PROCID", "0")], "launcher", "bash", None)));
    }

    #[test]
    fn a_process_with_any_name_has_a_parent() {
        assert_eq!(parent_of("17 (a) b (c)) S 16 17 1"), Some(16));
        assert_eq!(parent_of(""), None);
    }
}
