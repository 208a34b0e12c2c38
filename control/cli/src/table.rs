//! Plain tables: columns of text with two blanks between them, so that `grep`, `cut` and `awk` work on them.

use std::fmt::Display;

use comfy_table::{CellAlignment, Table, presets};

/// A column: its head, and whether it holds numbers, which stand to the right.
pub(crate) struct Column(&'static str, CellAlignment);

/// A column of words.
pub(crate) const fn text(head: &'static str) -> Column {
    Column(head, CellAlignment::Left)
}

/// A column of numbers.
pub(crate) const fn number(head: &'static str) -> Column {
    Column(head, CellAlignment::Right)
}

/// The table, each line ended. A cell that is empty becomes `-`, so that each line has as many words as columns.
pub(crate) fn render(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns.iter().map(|column| column.0));
    for (index, column) in columns.iter().enumerate() {
        if let Some(shown) = table.column_mut(index) {
            shown.set_padding((0, 2)).set_cell_alignment(column.1);
        }
    }
    for row in rows {
        table.add_row(row.into_iter().map(|cell| if cell.is_empty() { "-".into() } else { cell }));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Elements with commas between them.
pub(crate) fn list<T: Display>(elements: &[T]) -> String {
    elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
