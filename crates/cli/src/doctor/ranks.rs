//! Checks that the ranks of a job carry out together, because they involve the MPI.

use anyhow::Result;
use bruckner::{Communicator, Name, Operation};
use bruckner_config::show_settings;
use bruckner_engine::mpi::is_pinned;
use bruckner_engine::{Engine, Mpi};
use rustix::fs::statvfs;

use super::Findings;

/// Environment variables in which launchers give a process its rank and the number of ranks, with the name of the launcher.
const LAUNCHERS: [(&str, &str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
    ("PMI_RANK", "PMI_SIZE", "the mpirun of MPICH or Intel MPI"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"),
];

/// Upper estimate of the shared memory that one rank needs, in bytes.
const FOR_A_RANK: u64 = 4 << 20;

/// Returns the rank of this process, the number of ranks and the launcher's name, from the launcher's variables.
fn launched() -> Option<(u32, u32, &'static str)> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    LAUNCHERS.iter().find_map(|(rank, size, whose)| Some((number(rank)?, number(size)?, *whose)))
}

/// Whether this process has rank 0 according to its launcher, or was started without a launcher.
pub(super) fn is_first_of_job() -> bool {
    launched().is_none_or(|(rank, ..)| rank == 0)
}

/// Runs all checks that involve the MPI. Collective.
pub(super) fn examine(mpi: &'static Mpi, findings: &mut Findings) -> Result<()> {
    let world = mpi.comm_world();
    let (major, minor) = mpi.standard();
    findings.found("MPI", mpi.name());
    findings.found("MPI library", mpi.library.path.display().to_string());
    findings.found("MPI family", format!("{}, MPI {major}.{minor}", mpi.family.name()));
    if let Some((_, started, whose)) = launched().filter(|(_, started, _)| *started > 1 && mpi.size(world) == Ok(1)) {
        findings.wrong.push(format!(
            "{whose} started {started} processes, but each has an MPI_COMM_WORLD of its own: launcher and MPI library \
             belong to different MPIs, or use different PMI versions (srun: try --mpi=pmix or --mpi=pmi2)"
        ));
    }
    on_all(mpi, findings)?;
    let engine = Engine::get()?;
    engine.init()?;
    let found = engine.findings()?;
    findings.found("ranks", found.ranks.to_string());
    findings.found("topology", found.topology);
    let cores =
        if found.oversubscribed { "oversubscribed: more ranks than cores" } else { "at least one for each rank" };
    findings.found("cores", cores);
    let shared = if found.shared_memory { "yes" } else { "no: ranks of a node exchange messages" };
    findings.found("shared memory", shared);
    findings.found("direct reads", if found.reads { "yes" } else { "no" });
    if !found.shared_memory && std::env::var("BRUCKNER_SHM").as_deref() != Ok("off") {
        findings.wrong.push(
            "the ranks of a node cannot attach the same POSIX shared memory object: mount /dev/shm, and let all ranks of the node \
             share it (containers: --ipc=host)"
                .into(),
        );
    }
    if found.oversubscribed {
        findings.notes.push(
            "oversubscription: more ranks than cores, so ranks mostly wait for a core: start fewer ranks on each node"
                .into(),
        );
    }
    // First the complaints about the settings of this rank, then the engine's complaints about the settings that all ranks use.
    let (_, mut complaints) = show_settings();
    complaints.extend(found.complaints);
    complaints.dedup();
    findings.wrong.extend(complaints);
    test_allreduce(engine, mpi, findings)
}

/// Gathers local facts of all ranks (preloading, `BRUCKNER=off`, space in /dev/shm, pinning) and checks them. Collective.
fn on_all(mpi: &'static Mpi, findings: &mut Findings) -> Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let preloads = variable("LD_PRELOAD").contains("libbruckner");
    let off = matches!(variable("BRUCKNER").as_str(), "off" | "0");
    let room = statvfs("/dev/shm").map_or(u64::MAX, |about| about.f_bavail.saturating_mul(about.f_frsize));
    let mine = [u64::from(preloads), u64::from(off), room, u64::from(is_pinned())];
    let all = mpi.gather(mpi.comm_world(), &mine)?;
    let rows: Vec<&[u64]> = all.chunks(mine.len()).collect();
    let ranks = rows.len() as u64;
    let those = |column: usize| rows.iter().enumerate().filter(move |(_, row)| row[column] != 0);
    let preloaded = those(0).count();
    if preloaded > 0 && preloaded < rows.len() {
        findings.wrong.push(format!(
            "the library is preloaded on only {preloaded} of {ranks} ranks: start the program with `bruckner exec`"
        ));
    }
    if let Some((rank, _)) = those(1).next() {
        findings.wrong.push(format!(
            "BRUCKNER=off is set on rank {rank}, so the MPI handles all calls: unset it to use the library"
        ));
    }
    let settings = show_settings().0;
    let switch = settings.iter().find(|setting| setting.name == "BRUCKNER");
    if let Some(switch) = switch.filter(|switch| !off && matches!(switch.value.as_str(), "off" | "0")) {
        findings.wrong.push(format!("BRUCKNER = off in {}, so all calls are passed through to the MPI", switch.source));
    }
    let least = rows.iter().map(|row| row[2]).min().unwrap_or(u64::MAX);
    if least < FOR_A_RANK.saturating_mul(ranks) {
        findings.wrong.push(format!(
            "/dev/shm has {} MiB free, but {ranks} ranks may need {} MiB: enlarge it (containers: --shm-size)",
            least >> 20,
            (FOR_A_RANK * ranks) >> 20
        ));
    }
    if ranks > 1 && those(3).count() < rows.len() {
        findings
            .notes
            .push("ranks may move from core to core: pin them (mpirun --bind-to core, srun --cpu-bind=cores)".into());
    }
    Ok(())
}

/// Runs an allreduce whose result every rank can check. Collective.
fn test_allreduce(engine: &Engine<Mpi>, mpi: &'static Mpi, findings: &mut Findings) -> Result<()> {
    let world = mpi.comm_world();
    let (rank, ranks) = (u64::from(mpi.rank(world)?), u64::from(mpi.size(world)?));
    let mut sum = [0u64];
    let ran = Communicator::world()?.allreduce(&[rank + 1], &mut sum, Operation::Sum)?.run();
    let mine = ran.is_ok() && sum[0] == ranks * (ranks + 1) / 2;
    let wrong: Vec<usize> = (mpi.gather(world, &[u64::from(mine)])?.iter().enumerate())
        .filter_map(|(rank, right)| (*right == 0).then_some(rank))
        .collect();
    let by = engine.algorithm_of(world, Name::Allreduce)?.unwrap_or_else(|| "native".into());
    let said = if wrong.is_empty() { "correct" } else { "WRONG RESULT" };
    findings.found("test", format!("allreduce by {by}: {said}"));
    if let Some(rank) = wrong.first() {
        findings
            .wrong
            .push(format!("an allreduce gave a wrong result on rank {rank}: set BRUCKNER=off, and please report this"));
    }
    Ok(())
}
