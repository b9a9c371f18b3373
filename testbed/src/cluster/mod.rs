//! An emulated cluster on one machine: nodes are network namespaces with host names of their own, joined by a link with a delay and a
//! rate. Real MPIs run across these nodes as across machines: TCP between nodes, shared memory inside, and a remote shell that enters a
//! node with a clean environment, as a real one does.

pub(crate) mod link;
mod tap;
mod wire;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser};

pub(crate) use wire::Wire;

use crate::mpis::{Mpi, home, root};

/// Shape of an emulated cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shape {
    /// Number of nodes, with --ppn ranks each; or the ranks of each node, such as 4,4,3,1
    #[arg(long, value_name = "N|LIST", default_value = "2", value_parser = nodes)]
    nodes: Nodes,
    /// Ranks of each node
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ppn: u32,
    #[command(flatten)]
    pub(crate) wire: Wire,
}

#[derive(Clone, Debug)]
enum Nodes {
    Alike(u32),
    Listed(Vec<u32>),
}

fn nodes(text: &str) -> Result<Nodes, String> {
    let list: Option<Vec<u32>> = text.split(',').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
    match list.as_deref() {
        Some([count]) => Ok(Nodes::Alike(*count)),
        Some(list) => Ok(Nodes::Listed(list.to_vec())),
        None => Err("a number of nodes, or the ranks of each, such as 4,4,3,1".to_owned()),
    }
}

#[derive(Parser)]
struct ShapeText {
    #[command(flatten)]
    shape: Shape,
}

impl Shape {
    /// Parses a shape from command-line options.
    pub(crate) fn of(options: &[&str]) -> Result<Shape> {
        Ok(ShapeText::try_parse_from(std::iter::once(&"shape").chain(options))?.shape)
    }

    /// Returns the number of ranks on each node.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        match &self.nodes {
            Nodes::Alike(count) => vec![self.ppn; *count as usize],
            Nodes::Listed(list) => list.clone(),
        }
    }

    /// Checks that a cluster of this shape is possible.
    fn check(&self) -> Result<()> {
        let count = match &self.nodes {
            Nodes::Alike(count) => *count as usize,
            Nodes::Listed(list) => list.len(),
        };
        ensure!(count <= 1000, "at most 1000 nodes");
        ensure!(self.ppn <= 1000, "at most 1000 ranks of a node");
        let wire = &self.wire;
        for (node, other) in wire.lost_links.iter().chain(&wire.lost_nodes).map(|lost| (lost.node, lost.other)) {
            let last = node.max(other.unwrap_or(0));
            ensure!(last < count, "there is no node {last}: there are {count} nodes, numbered from 0");
            ensure!(other != Some(node), "there is no link from node {node} to itself");
        }
        Ok(())
    }

    /// Returns the number of ranks on all nodes.
    fn total(&self) -> u32 {
        self.ranks().iter().sum()
    }
}

/// Emulated nodes, which are up as long as this value lives.
pub(crate) struct Cluster {
    shape: Shape,
    names: Vec<String>,
    place: PathBuf,
    link: Option<Child>,
    began: Instant,
}

/// Runs a command that must succeed.
fn must(program: &str, arguments: &[&str], input: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{program} does not start"))?;
    child.stdin.take().context("piped")?.write_all(input.as_bytes())?;
    let run = child.wait_with_output()?;
    if !run.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&run.stderr).trim());
    }
    Ok(())
}

/// Prefix of node names; a process ID and the number of the node follow.
const PREFIX: &str = "bruckner";

fn ip_of(node: usize) -> String {
    format!("10.77.{}.{}", (node + 1) >> 8, (node + 1) & 255)
}

impl Cluster {
    /// Brings the nodes up; needs root.
    pub(crate) fn up(shape: &Shape) -> Result<Cluster> {
        shape.check()?;
        take_down_what_was_left()?;
        let count = shape.ranks().len();
        let process = std::process::id();
        let place = home().join(format!("cluster-{process}"));
        std::fs::create_dir_all(&place)?;
        let names = (0..count).map(|number| format!("{PREFIX}{process}n{number}")).collect();
        let mut cluster = Cluster { shape: shape.clone(), names, place, link: None, began: Instant::now() };
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for (node, name) in cluster.names.iter().enumerate() {
            let _ = writeln!(hosts, "{} {name}", ip_of(node));
        }
        for name in &cluster.names {
            ensure!(!crate::interrupt::was_interrupted(), "interrupted");
            must("ip", &["netns", "add", name], "")?;
            let configuration = Path::new("/etc/netns").join(name);
            std::fs::create_dir_all(&configuration)?;
            std::fs::write(configuration.join("hosts"), &hosts)?;
        }
        let devices: Vec<String> = (0..count).map(|node| format!("b{process}n{node}")).collect();
        cluster.join(&devices)?;
        for (node, name) in cluster.names.iter().enumerate() {
            must("ip", &["link", "set", &devices[node], "netns", name], "")?;
            must("ip", &["-n", name, "-batch", "-"], &cluster.configuration(node, &devices[node]))?;
        }
        cluster.write_files()?;
        cluster.began = Instant::now();
        Ok(cluster)
    }

    /// Starts the link process, which creates the devices.
    fn join(&mut self, devices: &[String]) -> Result<()> {
        // The link has real-time priority: if it were scheduled late, the delay would grow.
        let mut command = Command::new("chrt");
        command
            .args(["-f", "10"])
            .arg(std::env::current_exe()?)
            .arg("link")
            .args(self.shape.wire.options())
            .args(devices);
        // The link has a process group of its own, so interrupts from the terminal do not reach it; it ends with its input.
        let mut link = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = link.stdout.take().context("piped")?;
        self.link = Some(link);
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line == "ready\n", "the link does not start");
        Ok(())
    }

    /// Returns the configuration of a node's network interface, as lines for `ip`.
    fn configuration(&self, node: usize, device: &str) -> String {
        let hardware = |node| link::address(node).map(|byte| format!("{byte:02x}")).join(":");
        let mut lines = format!(
            "link set lo up\nlink set {device} address {} mtu 9000\naddr add {}/16 dev {device}\nlink set {device} up\n",
            hardware(node),
            ip_of(node)
        );
        for other in (0..self.names.len()).filter(|&other| other != node) {
            let (address, hardware) = (ip_of(other), hardware(other));
            let _ = writeln!(lines, "neigh add {address} lladdr {hardware} dev {device} nud permanent");
        }
        lines
    }

    fn write_files(&self) -> Result<()> {
        let agent = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
             exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ip netns exec \"$host\" \
             unshare -u sh -c \"hostname $host; $*\"\n";
        std::fs::write(self.agent(), agent)?;
        std::fs::set_permissions(self.agent(), PermissionsExt::from_mode(0o755))?;
        let ranks = self.shape.ranks();
        let lines = |between: &str| {
            let each = self.names.iter().zip(&ranks);
            each.map(|(name, ranks)| format!("{name}{between}{ranks}\n")).collect::<String>()
        };
        std::fs::write(self.hosts(true), lines(" slots="))?;
        std::fs::write(self.hosts(false), lines(":"))?;
        Ok(())
    }

    fn agent(&self) -> PathBuf {
        self.place.join("rsh")
    }

    fn hosts(&self, open_mpi: bool) -> PathBuf {
        self.place.join(if open_mpi { "hosts-openmpi" } else { "hosts" })
    }

    /// Returns the beginning of a command line that starts a program on all ranks, from the first node.
    pub(crate) fn launch(&self, mpi: Mpi) -> Command {
        let mut inner = mpi.command(mpi.launcher());
        let (agent, hosts) = (self.agent(), self.hosts(mpi.is_open_mpi()));
        let (agent, hosts) = (agent.display().to_string(), hosts.display().to_string());
        match mpi.base() {
            Mpi::Openmpi4 | Mpi::Openmpi5 => {
                let four = mpi.base() == Mpi::Openmpi4;
                let (mca, plm) = if four { ("--mca", "plm_rsh") } else { ("--prtemca", "plm_ssh") };
                let near = if four { "vader" } else { "sm" };
                inner.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
                inner.args(["--hostfile", &hosts]);
                inner.args([mca, &format!("{plm}_agent"), &agent, mca, &format!("{plm}_no_tree_spawn"), "1"]);
                inner.args(["--mca", "btl", &format!("tcp,{near},self")]);
                match mpi.transport() {
                    [] => inner.args(["--mca", "pml", "ob1"]),
                    transport => inner.args(transport),
                };
                inner.args(["--mca", "mpi_yield_when_idle", "1"]);
                inner.args(["--mca", "btl_base_warn_component_unused", "0"]);
            }
            _ => {
                inner.args(["-launcher", "ssh", "-launcher-exec", &agent, "-f", &hosts]);
            }
        }
        // UCX would detect that all namespaces are on one machine, and bypass the emulated link.
        if matches!(mpi, Mpi::Mpich4 | Mpi::Mpich5 | Mpi::MpichAbi) {
            inner.env("UCX_TLS", "tcp,self").env("FI_PROVIDER", "tcp");
        }
        if mpi == Mpi::Intel {
            inner.env("I_MPI_FABRICS", "shm:ofi").env("FI_PROVIDER", "tcp").env("I_MPI_PIN", "0");
        }
        inner.args(["-n", &self.shape.total().to_string()]);
        // The launcher runs inside the first node.
        let first = &self.names[0];
        let mut command = Command::new("ip");
        command.args(["netns", "exec", first, "unshare", "-u", "sh", "-c"]);
        command.arg(format!("hostname {first}; exec \"$@\"")).arg("sh");
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command
    }

    /// Returns the number of ranks on all nodes.
    pub(crate) fn ranks(&self) -> u32 {
        self.shape.total()
    }

    /// Ends all processes on nodes whose time of loss has come, and adds these nodes to `lost`.
    pub(crate) fn end_lost_nodes(&self, lost: &mut Vec<usize>) {
        for node in &self.shape.wire.lost_nodes {
            if self.began.elapsed() >= node.after && !lost.contains(&node.node) {
                lost.push(node.node);
                if let Some(name) = self.names.get(node.node) {
                    end_all_in(name);
                }
            }
        }
    }

    /// Runs a command under an MPI's launcher across the nodes, as from a terminal; returns its exit code.
    pub(crate) fn run(&self, mpi: Mpi, command: &[String]) -> Result<i32> {
        let mut launch = self.launch(mpi);
        if mpi == Mpi::Mpich4 && self.shape.total() > 2 {
            launch.args(["-genv", "LD_PRELOAD", &crate::setup::patient().display().to_string()]);
        }
        self.run_and_lose_nodes(launch.args(command))
    }

    /// Runs `bruckner bench`, which starts the launcher as often as it needs, with some settings on all ranks.
    pub(crate) fn bench(&self, mpi: Mpi, ask: &[String], settings: &[String]) -> Result<()> {
        let Wire { delay, rate, .. } = &self.shape.wire;
        let labels = [format!("delay={}us", delay.as_nanos() as f64 / 1e3), format!("rate={}gbit", *rate as f64 / 1e9)];
        let labels = labels.iter().flat_map(|label| ["--label".to_owned(), label.clone()]);
        let ask: Vec<String> = ask.iter().cloned().chain(labels).collect();
        self.command(mpi, "bench", &ask, settings)
    }

    /// Runs a command of `bruckner` that starts the launcher as often as it needs, with some settings on all ranks.
    pub(crate) fn command(&self, mpi: Mpi, name: &str, ask: &[String], settings: &[String]) -> Result<()> {
        match self.run_and_lose_nodes(&mut command(name, &self.launch(mpi), ask, settings))? {
            0 => Ok(()),
            code => bail!("bruckner {name} ended with {code}"),
        }
    }

    /// Ends all processes on the nodes.
    pub(crate) fn end_all(&self) {
        self.names.iter().for_each(|name| end_all_in(name));
    }

    /// Runs a command and returns its exit code. Meanwhile, ends all processes of a node at the time given by `--lose-node`, and ends the
    /// command on an interrupt.
    fn run_and_lose_nodes(&self, command: &mut Command) -> Result<i32> {
        let mut child = command.spawn().with_context(|| format!("{:?} does not start", command.get_program()))?;
        let (mut lost, mut asked) = (Vec::new(), None);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(if asked.is_some() { 130 } else { status.code().unwrap_or(1) });
            }
            self.end_lost_nodes(&mut lost);
            match (crate::interrupt::was_interrupted(), asked) {
                (true, None) => {
                    // A launcher in the same terminal gets the interrupt, too, and ends its ranks.
                    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
                    asked = Some(Instant::now());
                }
                (true, Some(since)) if since.elapsed() > Duration::from_secs(5) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Ok(130);
                }
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns a command of `bruckner` followed by a launcher's command line, with some settings on all ranks.
pub(crate) fn command(name: &str, launcher: &Command, ask: &[String], settings: &[String]) -> Command {
    let mut command = Command::new(root().join("target/release/bruckner"));
    command.arg(name).args(ask);
    command.arg("--").arg(launcher.get_program()).args(launcher.get_args());
    if !settings.is_empty() {
        command.arg("env").args(settings);
    }
    for (name, value) in launcher.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}

/// Ends all processes of a namespace.
fn end_all_in(name: &str) {
    let found = Command::new("ip").args(["netns", "pids", name]).output();
    for process in found.map(|found| found.stdout).iter().flat_map(|text| text.split(|byte| *byte == b'\n')) {
        if let Ok(process) = std::str::from_utf8(process)
            && !process.is_empty()
        {
            let _ = Command::new("kill").args(["-KILL", process]).status();
        }
    }
}

fn remove(name: &str) {
    end_all_in(name);
    let _ = must("ip", &["netns", "del", name], "");
    let _ = std::fs::remove_dir_all(Path::new("/etc/netns").join(name));
}

/// Removes emulated nodes that testbed processes left behind because they were killed.
fn take_down_what_was_left() -> Result<()> {
    let listed = Command::new("ip").args(["netns", "list"]).output().context("ip does not start")?;
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('n')).map(|(process, _)| process);
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            remove(name);
        }
    }
    for place in std::fs::read_dir(home()).into_iter().flatten().flatten() {
        let name = place.file_name().to_string_lossy().into_owned();
        if let Some(process) = name.strip_prefix("cluster-")
            && !Path::new("/proc").join(process).exists()
        {
            let _ = std::fs::remove_dir_all(place.path());
        }
    }
    Ok(())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut link) = self.link.take() {
            // The link ends with its input, and prints statistics.
            drop(link.stdin.take());
            let _ = link.wait();
        }
        self.names.iter().for_each(|name| remove(name));
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_cannot_be_lost() {
        let check = |options: &[&str]| Shape::of(options).and_then(|shape| shape.check());
        assert!(check(&["--nodes", "2", "--lose-node", "1@2s", "--lose-link", "0-1@1s"]).is_ok());
        assert!(check(&["--nodes", "2", "--lose-node", "2@2s"]).is_err());
        assert!(check(&["--nodes", "2", "--lose-link", "0-0@2s"]).is_err());
        assert!(check(&["--nodes", "2", "--ppn", "0"]).is_err());
        assert!(check(&["--nodes", "2", "--rack", "0", "--rack-delay", "1ms"]).is_err());
    }
}
