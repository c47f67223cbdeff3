//! Text for terminals: wrapped lines and aligned tables of the terminal's width.

use std::{io, iter::repeat_n};
use terminal_size::{Width, terminal_size_of};

/// Width where there is no terminal, for example in a file or a pipe.
const DEFAULT_WIDTH: usize = 80;
/// Minimum width: a window that is narrower wraps by itself, since numbers would not fit.
const MIN_WIDTH: usize = 20;
/// Maximum width of running text, because longer lines are hard to read. Tables use the whole width.
const MAX_TEXT_WIDTH: usize = 110;

/// Returns the number of columns of the standard output.
pub fn width() -> usize {
    columns(terminal_size_of(io::stdout()))
}

/// Returns the number of columns of the standard error.
pub fn error_width() -> usize {
    columns(terminal_size_of(io::stderr()))
}

fn columns(size: Option<(Width, terminal_size::Height)>) -> usize {
    size.map_or(DEFAULT_WIDTH, |(Width(width), _)| usize::from(width)).max(MIN_WIDTH)
}

/// Wraps a line if it is wider than the terminal; otherwise it stays as it is, with its columns.
pub fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width { format!("{line}\n") } else { wrap("", line, width) }
}

/// Wraps a text at blanks. The first line begins with `first`, the others with as many blanks. A word that is longer than
/// a line is cut.
pub fn wrap(first: &str, text: &str, width: usize) -> String {
    let indent = first.chars().count();
    let room = width.min(MAX_TEXT_WIDTH).saturating_sub(indent).max(1);
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    // A number stays with its sign of percent.
    let bound = text.replace(" %", "\u{a0}%");
    for word in bound.split(' ').filter(|word| !word.is_empty()) {
        let letters: Vec<char> = word.chars().map(|c| if c == '\u{a0}' { ' ' } else { c }).collect();
        let mut pieces = letters.chunks(room).peekable();
        while let Some(piece) = pieces.next() {
            if used > 0 && used + 1 + piece.len() > room {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.extend(piece);
            used += piece.len();
            if pieces.peek().is_some() {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
        }
    }
    lines.push(line);
    let blanks = " ".repeat(indent);
    let start = |i: usize| if i == 0 { first } else { blanks.as_str() };
    let lines = lines.iter().enumerate().map(|(i, line)| format!("{}{line}", start(i)).trim_end().to_owned() + "\n");
    lines.collect()
}

/// Formats a table: the first column to the left, numbers to the right. Columns that do not fit the width follow below,
/// behind the first column once more.
pub fn table(heads: &[String], rows: &[Vec<String>], width: usize) -> String {
    let Some((first, others)) = heads.split_first() else { return String::new() };
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let length = |text: &str| text.chars().count();
    let names: Vec<String> = rows.iter().map(|row| cell(row, 0)).collect();
    let columns: Vec<Column> = others
        .iter()
        .zip(1..)
        .map(|(head, column)| Column::new(head, rows.iter().map(|row| cell(row, column)).collect()))
        .collect();
    // Names leave room for each column, and take at most half of a line.
    let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
    let max_name = width.saturating_sub(GAP + widest).min(width / 2).max(1);
    let name_width = names.iter().chain([first]).map(|name| length(name)).max().unwrap_or(0).min(max_name);
    let mut blocks: Vec<Vec<&Column>> = Vec::new();
    let mut used = 0;
    for column in &columns {
        match blocks.last_mut() {
            Some(block) if used + GAP + column.width <= width => {
                block.push(column);
                used += GAP + column.width;
            }
            _ => {
                blocks.push(vec![column]);
                used = name_width + GAP + column.width;
            }
        }
    }
    let block = |block: &Vec<&Column>| {
        let height = block.iter().map(|column| column.head.len()).max().unwrap_or(1).max(1);
        let mut lines = Vec::new();
        for line in 0..height {
            // Heads of one line stand at the bottom.
            let name = if line + 1 == height { first.as_str() } else { "" };
            let heads = block.iter().map(|column| {
                let text = (line + column.head.len()).checked_sub(height).and_then(|at| column.head.get(at));
                format!("{:GAP$}{:>w$}", "", text.map_or("", String::as_str), w = column.width)
            });
            lines.push(format!("{name:name_width$}{}", heads.collect::<String>()));
        }
        lines.push(repeat_n('-', name_width + block.iter().map(|column| GAP + column.width).sum::<usize>()).collect());
        for (i, name) in names.iter().enumerate() {
            let values = block.iter().map(|column| format!("{:GAP$}{:>w$}", "", column.cells[i], w = column.width));
            let values: String = values.collect();
            let mut parts = wrap("", name, name_width);
            parts.truncate(parts.trim_end().len());
            let mut parts: Vec<&str> = parts.lines().collect();
            // A long name takes several lines, of which the last has the numbers.
            let last = parts.pop().unwrap_or("");
            lines.extend(parts.into_iter().map(str::to_owned));
            lines.push(format!("{last:name_width$}{values}"));
        }
        lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect::<String>()
    };
    blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Number of blanks between two columns.
const GAP: usize = 2;

/// Column of a table: its head in lines, and its cells.
struct Column {
    head: Vec<String>,
    cells: Vec<String>,
    width: usize,
}

impl Column {
    fn new(head: &str, cells: Vec<String>) -> Self {
        let longest = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        let word = head.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        let width = longest.max(word);
        let head = wrap("", head, width.max(1)).lines().map(str::to_owned).collect();
        Self { head, cells, width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that no line is wider than the terminal, at any width, and that nothing is lost.
    #[test]
    fn every_width_is_kept() {
        let text = "gs is worse: mIoU 41.2 %, fp32 47.9 %; segnet.encoder.norm1/dgrad lost 12 % of its gradients.";
        let heads = ["method", "mIoU %", "gradient error %", "skipped", "loss"].map(str::to_owned);
        let row = |name: &str| [name, "47.9 ± 1.2", "0.012", "400", "0.2796"].map(str::to_owned).to_vec();
        let rows = [row("fp32"), row("gs:exact,gamma=1e-4,interval=100,calls=each")];
        for width in [20, 40, 80, 200] {
            let wrapped = wrap("- ", text, width);
            let table = table(&heads, &rows, width);
            for line in wrapped.lines().chain(table.lines()) {
                assert!(line.chars().count() <= width, "{width}: {line:?}");
            }
            let joined = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(joined(&wrapped), joined(&format!("- {text}")), "{width}");
            assert!(
                rows.iter().flatten().skip(1).all(|cell| joined(&table).contains(&joined(cell))),
                "{width}:\n{table}"
            );
        }
        assert_eq!(wrap("- ", "one two three", 9), "- one two\n  three\n");
        assert_eq!(wrap("", "lost 12 %", 8), "lost\n12 %\n");
        let short = table(&heads[..3], &[row("fp32")], 80);
        assert_eq!(
            short,
            "                    gradient\nmethod      mIoU %   error %\n----------------------------\nfp32    47.9 ± 1.2     0.012\n"
        );
    }
}
