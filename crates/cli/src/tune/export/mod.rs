//! Export of the fastest algorithms of an MPI to the MPI's own tuning files. A rule covers the measured numbers of ranks and the range of
//! measured sizes; for all other calls the MPI keeps its default.

mod intel;
mod mpich;
mod open_mpi;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bruckner::Name;
use bruckner_choose::{NativeSetting, NativeSettings, Profile, Vendor};
use clap::ValueEnum;

/// The MPI whose tuning files are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Rule files for the components `tuned` and `han`
    OpenMpi,
    /// JSON selection trees for both layers of MPICH
    Mpich,
    /// Environment variables I_MPI_ADJUST_*
    Intel,
}

impl Format {
    /// Returns the format for an MPI, by its name.
    pub(super) fn of(mpi: &str) -> Option<Format> {
        match Vendor::of(mpi) {
            Vendor::OpenMpi4 | Vendor::OpenMpi => Some(Format::OpenMpi),
            Vendor::Mpich => Some(Format::Mpich),
            Vendor::Other => mpi.starts_with("Intel").then_some(Format::Intel),
        }
    }

    /// Whether the format can express a setting, and the setting is correct for every call that the rule would cover.
    pub(super) fn takes(self, name: Name, setting: &str) -> bool {
        match self {
            Format::OpenMpi => open_mpi::takes(name, setting),
            Format::Mpich => mpich::takes(name, setting),
            Format::Intel => intel::takes(setting),
        }
    }
}

/// A range of sizes with one setting; both ends were measured.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Span {
    from: u64,
    to: u64,
    setting: String,
}

/// Settings by collective and number of ranks, in order of size.
type Rules = BTreeMap<Name, BTreeMap<u32, Vec<Span>>>;

/// Name and content of a file.
type File = (&'static str, String);

/// Output of an export: files, environment variables and remarks.
#[derive(Default, Debug)]
struct Written {
    files: Vec<File>,
    /// Names and values; `{}` stands for the output directory.
    variables: Vec<(String, String)>,
    remarks: Vec<String>,
}

/// Writes the tuning files into a directory. Returns shell commands that make the MPI use these files.
pub(super) fn export(format: Format, profile: &Profile, directory: &Path) -> Result<String> {
    let mpi = &profile.provenance.mpi;
    ensure!(Format::of(mpi) == Some(format), "the profile is for {mpi}, which does not read files of this format");
    ensure!(
        !profile.natives.is_empty(),
        "the profile has no results for the MPI's own algorithms: run `bruckner tune --natives` first"
    );
    let mut remarks = Vec::new();
    let rules = rules(&profile.natives, format, &mut remarks);
    let mut written = match format {
        Format::OpenMpi => open_mpi::write(&rules, &profile.natives),
        Format::Mpich => mpich::write(&rules, mpi)?,
        Format::Intel => intel::write(&rules, &profile.natives),
    };
    remarks.append(&mut written.remarks);
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let place: PathBuf = std::path::absolute(directory)?;
    for (name, text) in &written.files {
        let path = place.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    let mut text = comment(&format!("{mpi}: its own fastest algorithms, as measured"));
    remarks.iter().for_each(|remark| text.push_str(&comment(remark)));
    for (name, value) in &written.variables {
        let value = value.replace("{}", &place.display().to_string());
        text.push_str(&format!("export {name}='{}'\n", value.replace('\'', r"'\''")));
    }
    if written.variables.is_empty() {
        text.push_str("# no setting was found to be faster than the default\n");
    }
    Ok(text)
}

/// Formats a text as one comment line of a shell; control characters become spaces.
fn comment(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# {plain}\n")
}

/// Returns the rules by collective and number of ranks. Of two shapes with equally many ranks the first one counts.
fn rules(natives: &[NativeSettings], format: Format, remarks: &mut Vec<String>) -> Rules {
    let mut rules = Rules::new();
    let mut shapes: BTreeMap<u32, String> = BTreeMap::new();
    for NativeSettings { shape, settings } in natives {
        let ranks = shape.ranks();
        if let Some(other) = shapes.get(&ranks) {
            remarks.push(format!("{shape} is left out: {other} has the same number of ranks"));
            continue;
        }
        shapes.insert(ranks, shape.to_string());
        for name in Name::ALL {
            let mut sizes: Vec<&NativeSetting> = settings.iter().filter(|setting| setting.name == name).collect();
            sizes.sort_by_key(|setting| setting.bytes);
            let spans = spans(&sizes, |setting| format.takes(name, setting));
            if !spans.is_empty() {
                rules.entry(name).or_default().insert(ranks, spans);
            }
        }
    }
    rules
}

/// Merges consecutive measured sizes with the same setting into ranges.
fn spans(sizes: &[&NativeSetting], takes: impl Fn(&str) -> bool) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut before = "";
    for NativeSetting { bytes, setting, .. } in sizes {
        let setting = if takes(setting) { setting.as_str() } else { "" };
        match spans.last_mut() {
            _ if setting.is_empty() => {}
            Some(last) if before == setting => last.to = *bytes,
            _ => spans.push(Span { from: *bytes, to: *bytes, setting: setting.to_owned() }),
        }
        before = setting;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_choose::Shape;
    use bruckner_schedule::Topology;

    /// Returns results for one collective on a topology, as pairs of size and setting.
    pub(super) fn natives(topology: &str, name: Name, found: &[(u64, &str)]) -> NativeSettings {
        let topology: Topology = topology.parse().unwrap();
        let setting = |(bytes, setting): &(u64, &str)| NativeSetting {
            name,
            bytes: *bytes,
            setting: (*setting).to_owned(),
            ratio: 0.5,
            interval: [0.4, 0.6],
        };
        NativeSettings { shape: Shape::of(&topology), settings: found.iter().map(setting).collect() }
    }

    pub(super) fn rules_of(natives: &[NativeSettings], format: Format) -> Rules {
        rules(natives, format, &mut Vec::new())
    }

    #[test]
    fn nothing_reaches_beyond_what_was_measured() {
        let found = [(8, "a"), (64, "a"), (512, ""), (4096, "a"), (32768, "b"), (262_144, "b")];
        let natives = natives("1x4", Name::Allgather, &found);
        let sizes: Vec<&NativeSetting> = natives.settings.iter().collect();
        let span = |from, to, setting: &str| Span { from, to, setting: setting.to_owned() };
        assert_eq!(
            spans(&sizes, |setting| !setting.is_empty()),
            [span(8, 64, "a"), span(4096, 4096, "a"), span(32768, 262_144, "b")]
        );
        assert_eq!(spans(&sizes, |setting| setting == "b"), [span(32768, 262_144, "b")]);
    }

    /// A malicious profile cannot make the shell that reads the output run a command.
    #[test]
    fn nothing_gets_out_of_its_quotes() {
        assert_eq!(comment("Intel\necho hello"), "# Intel echo hello\n");
        assert!(intel::takes("I_MPI_ADJUST_ALLREDUCE=12"));
        for bad in ["", "I_MPI_ADJUST_ALLREDUCE=1'; echo", "PATH=1", "I_MPI_ADJUST_ALLREDUCE", "I_MPI_ADJUST_a=1"] {
            assert!(!intel::takes(bad), "{bad}");
        }
    }

    #[test]
    fn of_two_shapes_with_as_many_ranks_the_first_counts() {
        let two = ["4x4", "2x8"].map(|shape| natives(shape, Name::Allreduce, &[(8, "tuned rabenseifner")]));
        let mut remarks = Vec::new();
        assert_eq!(rules(&two, Format::OpenMpi, &mut remarks)[&Name::Allreduce].len(), 1);
        assert_eq!(remarks, ["2x8 is left out: 4x4 has the same number of ranks"]);
    }
}
