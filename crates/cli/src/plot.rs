//! `bruckner plot`: draws the results of `bruckner bench`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bruckner_measure::{Results, TimingMethod};
use bruckner_render::{DrawError, Figure, HeatMap, by_label, markdown, report, speedups, times};
use clap::{Args, ValueEnum};

use crate::{Answer, print};

/// Draw the results of `bruckner bench`
///
/// With -o FILE.html the output is a full report, with -o FILE.md it is tables in Markdown. Otherwise pictures of one kind are drawn as
/// SVG: one for each MPI, topology and label.
#[derive(Args)]
pub(crate) struct Plot {
    /// Result files written by `bruckner bench -o`
    #[arg(required = true, value_name = "RESULTS")]
    results: Vec<PathBuf>,
    /// Output file: FILE.svg, FILE.html or FILE.md; several pictures are numbered. Without it, SVG to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Kind of picture
    #[arg(long, value_enum, default_value_t = Kind::Time)]
    kind: Kind,
    /// Draw the speedup of the library's fastest algorithm against the values of this label, such as delay, instead of against sizes
    #[arg(long, value_name = "LABEL", conflicts_with = "kind")]
    against: Option<String>,
    /// Method of timing
    #[arg(long, value_enum, default_value_t = Which::Barrier)]
    look: Which,
    /// Confidence level of the intervals of speedups
    #[arg(long, value_name = "FRACTION", default_value_t = 0.99)]
    confidence: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Time against size, with intervals
    Time,
    /// Speedup over native, against size
    Speed,
    /// Heat map of the fastest contender for each collective and size
    Heat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Time of single calls, from a barrier until the last rank is done
    Barrier,
    /// Time per call of consecutive calls without a barrier between them
    BackToBack,
}

impl Plot {
    pub(crate) fn run(&self) -> Result<Answer> {
        ensure!(self.confidence > 0.5 && self.confidence < 1.0, "--confidence must be above 0.5 and below 1");
        let mut all = Results::default();
        for path in &self.results {
            let read = Results::read(path).with_context(|| path.display().to_string())?;
            all.launches.extend(read.launches);
        }
        let ending = self.output.as_deref().and_then(Path::extension).map(std::ffi::OsStr::to_ascii_lowercase);
        if let Some(ending) = &ending {
            let known = ["svg", "html", "md"].iter().any(|known| ending == known);
            ensure!(known, "-o takes FILE.svg, FILE.html or FILE.md");
        }
        if ending.as_ref().is_some_and(|ending| ending == "md") {
            self.write(self.output.as_deref(), &markdown(&all, self.look(), self.confidence))?;
            return Ok(Answer::Success);
        }
        if ending.is_some_and(|ending| ending == "html") {
            let page = report(&all, self.confidence)?;
            self.write(self.output.as_deref(), &page)?;
            return Ok(Answer::Success);
        }
        let pictures = self.pictures(&all)?;
        ensure!(!pictures.is_empty(), "the results hold nothing to draw for this kind of picture");
        let several = pictures.len() > 1;
        ensure!(
            !several || self.output.is_some(),
            "there are {} pictures, too many for standard output: name a file with -o FILE.svg",
            pictures.len()
        );
        for (number, picture) in pictures.iter().enumerate() {
            let path = self.output.as_deref().map(|path| match several {
                true => numbered(path, number + 1),
                false => path.to_owned(),
            });
            self.write(path.as_deref(), picture)?;
        }
        Ok(Answer::Success)
    }

    fn look(&self) -> TimingMethod {
        match self.look {
            Which::Barrier => TimingMethod::FromBarrier,
            Which::BackToBack => TimingMethod::BackToBack,
        }
    }

    fn pictures(&self, all: &Results) -> Result<Vec<String>, anyhow::Error> {
        let look = self.look();
        let figures = match (self.kind, &self.against) {
            (_, Some(label)) => by_label(all, label, look, self.confidence)?,
            (Kind::Time, None) => times(all, look),
            (Kind::Speed, None) => speedups(all, look, self.confidence),
            (Kind::Heat, None) => {
                let maps = HeatMap::of(all, look, self.confidence);
                return Ok(maps.iter().map(HeatMap::svg).collect::<Result<_, DrawError>>()?);
            }
        };
        Ok(figures.iter().map(Figure::svg).collect::<Result<_, DrawError>>()?)
    }

    fn write(&self, path: Option<&Path>, text: &str) -> Result<()> {
        match path {
            Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string()),
            None => print(text),
        }
    }
}

/// Inserts a number into a file name: `plot.svg` becomes `plot-2.svg`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}-{number}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_pictures_are_numbered() {
        assert_eq!(numbered(Path::new("out/plot.svg"), 2), Path::new("out/plot-2.svg"));
        assert_eq!(numbered(Path::new("plot"), 1), Path::new("plot-1"));
    }
}
