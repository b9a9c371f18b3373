//! Line charts with intervals over a categorical x axis, several charts to a figure.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Reason why no picture can be drawn.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// The results hold nothing to show.
    #[error("there is nothing to show: {0}")]
    Empty(String),
    /// The drawing backend failed.
    #[error("the picture cannot be drawn: {0}")]
    Drawing(String),
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: DrawingAreaErrorKind<E>) -> DrawError {
        DrawError::Drawing(error.to_string())
    }
}

/// A value with its interval. On the x axis, 0 is the first category, and 0.5 lies between the first two.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Position on the x axis.
    pub x: f64,
    /// Value on the y axis.
    pub y: f64,
    /// Lower end of the interval of `y`.
    pub low: f64,
    /// Upper end of the interval of `y`.
    pub high: f64,
}

/// The line of one contender.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Name of the contender.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<Point>,
}

/// Scale of the y axis and format of its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Seconds on a logarithmic axis.
    Seconds,
    /// Speedups on a linear axis from 0, with a line at 1.
    Speedup,
    /// Numbers on a logarithmic axis.
    Count,
}

/// A labelled circle on the line at y = 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// Position on the x axis.
    pub x: f64,
    /// Label of the mark.
    pub text: String,
    /// Name of the series that the mark belongs to.
    pub series: String,
}

/// One chart of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Categories of the x axis.
    pub categories: Vec<String>,
    /// Label of the x axis.
    pub x: String,
    /// Label of the y axis.
    pub y: String,
    /// Scale of the y axis.
    pub scale: Scale,
    /// Lines, one for each contender.
    pub series: Vec<Series>,
    /// Labelled circles at y = 1, such as break-even points.
    pub marks: Vec<Mark>,
    /// Vertical lines with a label, by position on the x axis, from left to right.
    pub vertical_lines: Vec<(f64, String)>,
}

/// Several charts with one legend.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Title above all charts.
    pub title: String,
    /// Charts, in the order in which they are drawn.
    pub charts: Vec<Chart>,
}

/// Colours that most people can tell apart; the first six are from the palette of Okabe and Ito.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(130, 90, 44),
    RGBColor(110, 60, 160),
    RGBColor(0, 90, 60),
    RGBColor(170, 170, 30),
];
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);
pub(crate) const FONT: &str = "Helvetica, Arial, sans-serif";

const WIDTH: i32 = 440;
const HEIGHT: i32 = 280;
const TITLE_HEIGHT: i32 = 34;
const LEGEND_LINE: i32 = 20;
/// Approximate width of a letter in the legend, in pixels.
const LETTER_WIDTH: i32 = 7;

/// Returns the colour of a contender, by its position among the figure's contenders; the MPI's own function is black or grey.
pub(crate) fn colour(names: &[String], name: &str) -> RGBColor {
    match name {
        "native" => BLACK,
        name if name.starts_with("native") => RGBColor(120, 120, 120),
        name => {
            let others = names.iter().filter(|name| !name.starts_with("native"));
            COLOURS[others.take_while(|other| *other != name).count() % COLOURS.len()]
        }
    }
}

impl Figure {
    /// Returns the names of all contenders, in the order in which they first occur.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for series in self.charts.iter().flat_map(|chart| &chart.series) {
            if !names.contains(&series.name) {
                names.push(series.name.clone());
            }
        }
        names
    }

    /// Draws the figure as SVG.
    pub fn svg(&self) -> Result<String, DrawError> {
        if self.charts.iter().all(|chart| chart.series.iter().all(|series| series.points.is_empty())) {
            return Err(DrawError::Empty("no contender was measured together with native".into()));
        }
        let names = self.names();
        let columns = if self.charts.len() > 4 { 3 } else { self.charts.len().clamp(1, 2) as i32 };
        let rows = (self.charts.len() as i32 + columns - 1) / columns;
        let width = columns * WIDTH;
        let legend = legend(&names, width);
        let legend_height = legend.last().map_or(0, |(_, y)| y + LEGEND_LINE + 6);
        let height = TITLE_HEIGHT + rows * HEIGHT + legend_height;
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (width as u32, height as u32)).into_drawing_area();
            root.fill(&WHITE)?;
            let title = (FONT, 16).into_font().color(&INK);
            root.draw_text(&self.title, &title, (12, 10))?;
            let (_, body) = root.split_vertically(TITLE_HEIGHT);
            let (body, foot) = body.split_vertically(rows * HEIGHT);
            for (chart, area) in self.charts.iter().zip(body.split_evenly((rows as usize, columns as usize))) {
                chart.draw(&area, &names)?;
            }
            for (name, (x, y)) in names.iter().zip(&legend) {
                let colour = colour(&names, name);
                foot.draw(&PathElement::new(vec![(x + 12, y + 9), (x + 36, y + 9)], colour.stroke_width(2)))?;
                foot.draw(&Circle::new((x + 24, y + 9), 3, colour.filled()))?;
                foot.draw_text(name, &(FONT, 13).into_font().color(&INK), (x + 42, y + 3))?;
            }
            root.present()?;
        }
        Ok(text)
    }
}

/// Returns the positions of the names in a legend that wraps at `width` pixels.
fn legend(names: &[String], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (0, 0);
    let mut places = Vec::new();
    for name in names {
        let needed = 56 + LETTER_WIDTH * name.chars().count() as i32;
        if x > 0 && x + needed > width {
            (x, y) = (0, y + LEGEND_LINE);
        }
        places.push((x, y));
        x += needed;
    }
    places
}

impl Chart {
    /// Returns the smallest and the largest value with a margin around them; for speedups the range includes 1.
    fn range(&self) -> (f64, f64) {
        let points = self.series.iter().flat_map(|series| &series.points);
        let values = points.flat_map(|point| [point.low, point.high, point.y]).filter(|y| y.is_finite() && *y > 0.0);
        let one = (self.scale == Scale::Speedup).then_some(1.0);
        let (low, high) = values.chain(one).fold((f64::INFINITY, 0.0f64), |(low, high), y| (low.min(y), high.max(y)));
        (low / 1.15, high * 1.15)
    }

    /// Returns the tick values of the y axis with their labels.
    fn ticks(&self, low: f64, high: f64) -> Vec<(f64, String)> {
        let within = |tick: &f64| (low..=high).contains(tick);
        match self.scale {
            Scale::Seconds | Scale::Count => {
                // Coarse steps for a range of many decades, finer steps for less than one decade.
                const STEPS: [&[f64]; 4] = [
                    &[1.0],
                    &[1.0, 2.0, 5.0],
                    &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
                    &[
                        1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.2, 2.5, 2.8, 3.2, 3.6, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 8.0,
                        9.0,
                    ],
                ];
                let ticks = |steps: &[f64]| -> Vec<f64> {
                    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
                    let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
                    all.filter(within).collect()
                };
                let chosen = STEPS.iter().map(|steps| ticks(steps)).find(|ticks| ticks.len() >= 3);
                let chosen = chosen.unwrap_or_else(|| ticks(STEPS[3]));
                let label = |tick: f64| match self.scale {
                    Scale::Count => format!("{tick}"),
                    _ => bruckner_measure::time_text(tick).replace(".0 ", " "),
                };
                chosen.into_iter().map(|tick| (tick, label(tick))).collect()
            }
            Scale::Speedup => {
                let steps = (-1..6).flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
                let step = steps.into_iter().find(|step| high / step <= 7.0).unwrap_or(high);
                let digits = usize::from(step < 1.0);
                let ticks = (0..=(high / step) as u32).map(|n| f64::from(n) * step);
                ticks.filter(within).map(|tick| (tick, format!("{tick:.digits$}"))).collect()
            }
        }
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, names: &[String]) -> Result<(), DrawError> {
        let (low, high) = self.range();
        match self.scale {
            Scale::Seconds | Scale::Count => self.over(area, names, (low..high).log_scale(), (low, high)),
            // Speedups lie close together: a linear axis shows them best.
            Scale::Speedup => self.over(area, names, 0.0..high, (0.0, high)),
        }
    }

    /// Draws the chart with `y` as its y axis, which may be linear or logarithmic.
    fn over<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        names: &[String],
        y: Y,
        (low, high): (f64, f64),
    ) -> Result<(), DrawError>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let small = (FONT, 12).into_font().color(&INK);
        let ends = -0.3..self.categories.len() as f64 - 0.7;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 14).into_font().color(&INK))
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(66)
            .build_cartesian_2d(ends.clone(), y)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK)
            .x_labels(0)
            .y_labels(0)
            .y_label_formatter(&|_| String::new())
            .set_tick_mark_size(LabelAreaPosition::Left, 0)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .label_style(small.clone())
            .draw()?;
        for (tick, _) in &self.ticks(low, high) {
            chart.draw_series(LineSeries::new([(ends.start, *tick), (ends.end, *tick)], FAINT.stroke_width(1)))?;
        }
        // Labels of the categories below the plot, labels of the ticks at its left.
        let plane = chart.plotting_area();
        let (left, top) = area.get_base_pixel();
        let pixel = |x: f64, y: f64| {
            let (x, y) = plane.map_coordinate(&(x, y));
            (x - left, y - top)
        };
        let upright = (FONT, 11).into_font().transform(FontTransform::Rotate270).color(&INK);
        // Labels of vertical lines are at least 12 pixels apart, so that they do not overlap.
        let mut free = i32::MIN;
        for (x, text) in &self.vertical_lines {
            let ((x, bottom), (_, top)) = (pixel(*x, low), pixel(*x, high));
            area.draw(&PathElement::new(vec![(x, bottom), (x, top)], FAINT.stroke_width(1)))?;
            let beside = free.max(x - 12);
            area.draw_text(text, &upright.pos(Pos::new(HPos::Right, VPos::Top)), (beside, top))?;
            free = beside + 12;
        }
        let below = small.clone().pos(Pos::new(HPos::Center, VPos::Top));
        for (at, text) in self.categories.iter().enumerate() {
            let (x, y) = pixel(at as f64, low);
            area.draw(&PathElement::new(vec![(x, y), (x, y + 4)], INK))?;
            area.draw_text(text, &below, (x, y + 6))?;
        }
        let beside = small.clone().pos(Pos::new(HPos::Right, VPos::Center));
        for (tick, text) in &self.ticks(low, high) {
            let (x, y) = pixel(ends.start, *tick);
            area.draw(&PathElement::new(vec![(x - 4, y), (x, y)], INK))?;
            area.draw_text(text, &beside, (x - 7, y))?;
        }
        if self.scale == Scale::Speedup {
            chart.draw_series(LineSeries::new([(ends.start, 1.0), (ends.end, 1.0)], BLACK.stroke_width(1)))?;
        }
        for series in &self.series {
            let colour = colour(names, &series.name);
            let line = series.points.iter().map(|point| (point.x, point.y));
            chart.draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?;
            chart.draw_series(line.map(|at| Circle::new(at, 3, colour.filled())))?;
            let bars = series.points.iter().filter(|point| point.low < point.high);
            chart.draw_series(bars.map(|point| {
                PathElement::new(vec![(point.x, point.low), (point.x, point.high)], colour.stroke_width(1))
            }))?;
        }
        for mark in &self.marks {
            let colour = colour(names, &mark.series);
            let dots = EmptyElement::at((mark.x, 1.0))
                + Circle::new((0, 0), 5, colour.stroke_width(2))
                + Text::new(mark.text.clone(), (6, -16), (FONT, 12).into_font().color(&colour));
            chart.draw_series(std::iter::once(dots))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let point = |x: f64, y: f64| Point { x, y, low: y * 0.9, high: y * 1.1 };
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            points: (0..3).map(|x| point(f64::from(x), 1e-6 * factor * f64::from(x + 1))).collect(),
        };
        let chart = Chart {
            title: "allreduce".into(),
            categories: vec!["8 B".into(), "1 KiB".into(), "32 KiB".into()],
            x: "vector".into(),
            y: "time".into(),
            scale: Scale::Seconds,
            series: vec![series("native", 2.0), series("ring", 1.0)],
            marks: Vec::new(),
            vertical_lines: Vec::new(),
        };
        Figure { title: "on 4x4".into(), charts: vec![chart] }
    }

    #[test]
    fn a_figure_names_its_places_and_contenders() {
        let svg = figure().svg().unwrap();
        for text in ["allreduce", "8 B", "32 KiB", "native", "ring", "on 4x4"] {
            assert!(svg.contains(&format!("{text}\n")), "{text} is not in {svg}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn every_range_has_numbers_but_not_too_many() {
        let mut chart = figure().charts.remove(0);
        for (low, high) in [(3.1e-7, 4.0e-7), (1e-6, 1e-3), (9e-4, 1.1e-3), (1e-8, 10.0)] {
            let ticks = chart.ticks(low, high);
            assert!((2..=12).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
        }
        chart.scale = Scale::Speedup;
        for high in [1.1, 3.0, 70.0, 340.0] {
            let ticks = chart.ticks(0.0, high);
            assert!((2..=9).contains(&ticks.len()), "{high}: {ticks:?}");
        }
    }

    #[test]
    fn nothing_is_no_picture() {
        let mut figure = figure();
        figure.charts[0].series.clear();
        assert!(matches!(figure.svg(), Err(DrawError::Empty(_))));
    }

    #[test]
    fn a_legend_breaks_where_it_must() {
        let names: Vec<String> = (0..6).map(|n| format!("a rather long name {n}")).collect();
        let places = legend(&names, WIDTH);
        assert!(places.iter().all(|(x, _)| x + 56 + LETTER_WIDTH * 20 <= WIDTH));
        assert!(places.last().unwrap().1 > 0);
    }
}
