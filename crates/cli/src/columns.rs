//! Tables that narrow: where the terminal has too few columns, names and words go on in the next line; numbers stay whole.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

/// A column: its head, and how it is set.
#[derive(Clone)]
pub(crate) struct Column {
    head: String,
    is_number: bool,
}

/// A column of names or words.
pub(crate) fn words(head: impl Into<String>) -> Column {
    Column { head: head.into(), is_number: false }
}

/// A column of numbers, or of other things that are short.
pub(crate) fn numbers(head: impl Into<String>) -> Column {
    Column { head: head.into(), is_number: true }
}

/// How many columns the terminal has, or `COLUMNS` says; nothing limits a file.
pub(crate) fn terminal() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || console::Term::stdout().size_checked().map(|(_, columns)| columns.into());
    named.filter(|columns| *columns > 0).or_else(terminal)
}

/// Rows below their heads, for this terminal.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    within(columns, rows, terminal())
}

/// The same, so wide; heads of which none says anything are left out.
fn within(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if columns.iter().any(|column| !column.head.is_empty()) {
        table.set_header(columns.iter().map(|column| &column.head));
    }
    table.add_rows(rows);
    match width.and_then(|width| u16::try_from(width).ok()) {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for (set, column) in columns.iter().zip(table.column_iter_mut()) {
        set_column(set, column);
    }
    table.trim_fmt() + "\n"
}

fn set_column(set: &Column, column: &mut comfy_table::Column) {
    column.set_padding((0, 2));
    if set.is_number {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(width: Option<usize>) -> String {
        let columns = [words("algorithm"), numbers("8 B"), numbers("64 B"), words("what it is")];
        let row =
            ["locality(node, between=ring)", "1.5 us", "20.5 us", "one message between nodes at a time"];
        within(&columns, &[row.map(str::to_owned).to_vec()], width)
    }

    #[test]
    fn a_file_has_room_for_all() {
        assert_eq!(
            example(None),
            "algorithm                        8 B     64 B  what it is\n\
             locality(node, between=ring)  1.5 us  20.5 us  one message between nodes at a time\n"
        );
    }

    #[test]
    fn what_does_not_fit_goes_on_below() {
        let text = example(Some(50));
        assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
        let words = |text: &str| text.split_whitespace().count();
        assert_eq!(words(&text), words(&example(None)));
        assert!(text.contains("1.5 us  20.5 us"), "{text}");
    }
}
