//! Text tables that fit the terminal: columns of words wrap, columns of numbers do not.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

/// A column of a table: its heading and its alignment.
#[derive(Clone)]
pub(crate) struct Column {
    head: String,
    is_number: bool,
}

/// Returns a left-aligned column of words, which may wrap.
pub(crate) fn words(head: impl Into<String>) -> Column {
    Column { head: head.into(), is_number: false }
}

/// Returns a right-aligned column of numbers or other short texts, which never wraps.
pub(crate) fn numbers(head: impl Into<String>) -> Column {
    Column { head: head.into(), is_number: true }
}

/// Returns the width of the output in characters: the value of `COLUMNS`, else the width of the terminal; `None` if neither exists.
pub(crate) fn terminal() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || console::Term::stdout().size_checked().map(|(_, columns)| columns.into());
    named.filter(|columns| *columns > 0).or_else(terminal)
}

/// Formats a table to the width of the terminal.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    within(columns, rows, terminal())
}

/// Formats a table to `width` characters, or without a limit. If all headings are empty, there is no heading line.
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

/// Wraps the lines of a text to the width of the terminal.
pub(crate) fn folded(text: &str) -> String {
    terminal().map_or_else(|| text.to_owned(), |width| fold(text, width))
}

/// Wraps lines at spaces to `width` characters. Continuation lines start below the last column of the line if that leaves at least half
/// the width.
fn fold(text: &str, width: usize) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let mut rest: Vec<char> = line.chars().collect();
        let leading = rest.iter().take_while(|c| **c == ' ').count();
        let column = rest.windows(3).rposition(|three| three[..2] == [' ', ' '] && three[2] != ' ');
        let hanging = column.map(|at| at + 2).filter(|at| *at <= width / 2).unwrap_or(leading + 2);
        let mut from = leading;
        while rest.len() > width {
            // Break at the last space within the width; if there is none, at the next space after it.
            let is_space = |at: &usize| rest[*at] == ' ';
            let fits = (from..=width).rev().find(|at| is_space(at) && *at > from);
            let Some(at) = fits.or_else(|| (from.max(width) + 1..rest.len()).find(is_space)) else { break };
            let tail: Vec<char> = rest[at..].iter().copied().skip_while(|c| *c == ' ').collect();
            folded.extend(&rest[..at]);
            folded.truncate(folded.trim_end_matches(' ').len());
            folded.push('\n');
            rest = std::iter::repeat_n(' ', hanging).chain(tail).collect();
            from = hanging;
        }
        folded.extend(rest);
        folded.push('\n');
    }
    folded
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
        let row = ["locality(node, between=ring)", "1.5 us", "20.5 us", "one message between nodes at a time"];
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
    fn sentences_go_on_below_their_column() {
        let text = "MPI            none: no launcher started this process\n\
                    a rather long sentence, /with/a/path/that/is/longer/than/a/line in it\n\
                    short\n";
        assert_eq!(
            fold(text, 32),
            "MPI            none: no launcher\n\
             \x20              started this\n\
             \x20              process\n\
             a rather long sentence,\n\
             \x20 /with/a/path/that/is/longer/than/a/line\n\
             \x20 in it\n\
             short\n"
        );
        assert_eq!(fold(text, 100), text);
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
