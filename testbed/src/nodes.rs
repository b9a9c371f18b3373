//! Emulated nodes: network namespaces with host names of their own, joined by a link, and a remote shell that enters them
//! with a clean environment, as a real one does.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::mpis::{Mpi, home};

/// Two nodes, for as long as this lives.
pub(crate) struct Nodes {
    names: [String; 2],
    place: PathBuf,
}

fn must(program: &str, arguments: &[&str]) -> Result<()> {
    let run = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{program} does not start"))?;
    if !run.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&run.stderr));
    }
    Ok(())
}

impl Nodes {
    /// Brings them up; as root.
    pub(crate) fn up() -> Result<Nodes> {
        let place = home().join("nodes");
        std::fs::create_dir_all(&place)?;
        let name = |number: u32| format!("bruckner{}n{number}", std::process::id());
        let nodes = Nodes { names: [name(1), name(2)], place };
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for (i, name) in nodes.names.iter().enumerate() {
            let _ = writeln!(hosts, "10.77.0.{} {name}", i + 1);
        }
        for name in &nodes.names {
            must("ip", &["netns", "add", name])?;
            let configuration = Path::new("/etc/netns").join(name);
            std::fs::create_dir_all(&configuration)?;
            std::fs::write(configuration.join("hosts"), &hosts)?;
        }
        let [first, second] = &nodes.names;
        let ends =
            ["link", "add", "b1", "netns", first, "type", "veth", "peer", "name", "b2", "netns", second];
        must("ip", &ends)?;
        for (i, name) in nodes.names.iter().enumerate() {
            let (end, address) = (format!("b{}", i + 1), format!("10.77.0.{}/24", i + 1));
            must("ip", &["-n", name, "addr", "add", &address, "dev", &end])?;
            must("ip", &["-n", name, "link", "set", &end, "up"])?;
            must("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        let agent = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
             exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ip netns exec \"$host\" \
             unshare -u sh -c \"hostname $host; $*\"\n";
        std::fs::write(nodes.agent(), agent)?;
        std::fs::set_permissions(nodes.agent(), PermissionsExt::from_mode(0o755))?;
        let slots = |text: &str| nodes.names.iter().map(|name| format!("{name}{text}\n")).collect::<String>();
        std::fs::write(nodes.hosts(true), slots(" slots=2"))?;
        std::fs::write(nodes.hosts(false), slots(":2"))?;
        Ok(nodes)
    }

    fn agent(&self) -> PathBuf {
        self.place.join("rsh")
    }

    fn hosts(&self, open_mpi: bool) -> PathBuf {
        self.place.join(if open_mpi { "hosts-openmpi" } else { "hosts" })
    }

    /// The beginning of a command line that starts a program on four ranks, two on each node, from the first of them.
    pub(crate) fn launch(&self, mpi: Mpi) -> Command {
        let mut inner = mpi.command(mpi.launcher());
        let (agent, hosts) = (self.agent(), self.hosts(mpi.is_open_mpi()));
        let (agent, hosts) = (agent.display().to_string(), hosts.display().to_string());
        match mpi {
            Mpi::Openmpi4 | Mpi::Openmpi5 => {
                let four = mpi == Mpi::Openmpi4;
                let (mca, plm) = if four { ("--mca", "plm_rsh") } else { ("--prtemca", "plm_ssh") };
                let near = if four { "vader" } else { "sm" };
                inner.args([
                    "--allow-run-as-root",
                    "--oversubscribe",
                    "--bind-to",
                    "none",
                    "--hostfile",
                    &hosts,
                ]);
                inner.args([mca, &format!("{plm}_agent"), &agent, mca, &format!("{plm}_no_tree_spawn"), "1"]);
                inner.args(["--mca", "btl", &format!("tcp,{near},self"), "--mca", "pml", "ob1"]);
                inner.args([
                    "--mca",
                    "mpi_yield_when_idle",
                    "1",
                    "--mca",
                    "btl_base_warn_component_unused",
                    "0",
                ]);
            }
            _ => {
                inner.args(["-launcher", "ssh", "-launcher-exec", &agent, "-f", &hosts]);
            }
        }
        if mpi == Mpi::Intel {
            inner.env("I_MPI_FABRICS", "shm:ofi").env("FI_PROVIDER", "tcp").env("I_MPI_PIN", "0");
        }
        inner.args(["-n", "4"]);
        // The same from inside the first node.
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
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = must("ip", &["netns", "del", name]);
            let _ = std::fs::remove_dir_all(Path::new("/etc/netns").join(name));
        }
    }
}
