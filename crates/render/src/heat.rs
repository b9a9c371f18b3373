//! Heat map of the fastest contender for each collective and size.

use bruckner_measure::{Results, TimingMethod, native, shortened};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{DrawError, FONT, INK, colour};
use crate::figures::{Group, winners};

/// Heat map of winners: for each collective and size the fastest contender that is significantly faster than the MPI's own function under
/// its best setting (or its default setting, where no other was measured), with the speedup; otherwise the MPI's own function.
pub struct HeatMap(Group);

const CELL: (i32, i32) = (164, 46);
const ROWS: i32 = 130;
const HEAD: i32 = 64;

impl HeatMap {
    /// Makes one map for each MPI, topology and set of labels.
    pub fn of(results: &Results, look: TimingMethod, confidence: f64) -> Vec<HeatMap> {
        winners(results, look, confidence).into_iter().map(HeatMap).collect()
    }

    /// Draws the map as SVG.
    pub fn svg(&self) -> Result<String, DrawError> {
        let HeatMap(Group { title, names, winners }) = self;
        let mut rows: Vec<&str> = Vec::new();
        let mut columns = Vec::new();
        for winner in winners {
            if !rows.contains(&winner.row.as_str()) {
                rows.push(&winner.row);
            }
            if !columns.contains(&&winner.column) {
                columns.push(&winner.column);
            }
        }
        if rows.is_empty() {
            return Err(DrawError::Empty("nothing was measured".into()));
        }
        columns.sort();
        let width = (ROWS + CELL.0 * columns.len() as i32 + 12).max(480);
        let height = HEAD + CELL.1 * rows.len() as i32 + 12;
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (width as u32, height as u32)).into_drawing_area();
            root.fill(&WHITE)?;
            root.draw_text(title, &(FONT, 16).into_font().color(&INK), (12, 10))?;
            let middle = Pos::new(HPos::Center, VPos::Center);
            let left = Pos::new(HPos::Left, VPos::Center);
            for (at, column) in columns.iter().enumerate() {
                let place = (ROWS + CELL.0 * at as i32 + CELL.0 / 2, HEAD - 12);
                root.draw_text(&column.1, &(FONT, 13).into_font().color(&INK).pos(middle), place)?;
            }
            for (at, row) in rows.iter().enumerate() {
                let place = (12, HEAD + CELL.1 * at as i32 + CELL.1 / 2);
                root.draw_text(row, &(FONT, 13).into_font().color(&INK).pos(left), place)?;
            }
            for winner in winners {
                let column = columns.iter().position(|column| **column == winner.column).unwrap_or(0) as i32;
                let row = rows.iter().position(|row| *row == winner.row).unwrap_or(0) as i32;
                let (x, y) = (ROWS + CELL.0 * column, HEAD + CELL.1 * row);
                let wins = !native::is_native(&winner.name);
                // A larger speedup has a more saturated colour.
                let full = if wins { ((winner.speed - 1.0) * 0.35).clamp(0.12, 0.75) } else { 0.08 };
                let cell = colour(names, &winner.name).mix(full).filled();
                root.draw(&Rectangle::new([(x + 1, y + 1), (x + CELL.0 - 1, y + CELL.1 - 1)], cell))?;
                let name = shortened(&winner.name, 26);
                let style = (FONT, 12).into_font().color(&INK).pos(middle);
                let centre = x + CELL.0 / 2;
                if wins {
                    root.draw_text(&name, &style, (centre, y + CELL.1 / 2 - 8))?;
                    let speed = format!("{:.2}", winner.speed);
                    root.draw_text(&speed, &style, (centre, y + CELL.1 / 2 + 9))?;
                } else {
                    root.draw_text(&name, &style, (centre, y + CELL.1 / 2))?;
                }
            }
            root.present()?;
        }
        Ok(text)
    }
}
