//! `table.md`: verdict, gradients before and after scaling, table of scores.

use super::results::{Case, Results};
use crate::{
    machine::Origin,
    metrics::{MISSING_VALUE, Metrics},
    record::{Record, gradients, summary::Summary},
};
use std::fmt::Write;

/// Returns one line that summarizes a finished run, with a column of `width` for the method. Counts of 0 are left out, so
/// that lines fit a terminal.
pub fn line(record: &Record, width: usize) -> String {
    let head = format!("{:width$} seed {}", record.method, record.seed);
    match (&record.metrics, &record.failure) {
        (Some(metrics), _) => {
            let loss = record.final_loss.map_or_else(|| MISSING_VALUE.to_owned(), |loss| format!("{loss:.4}"));
            let mut line = format!("{head}  {}  loss {loss}", Metrics::words(metrics.first()));
            for (count, what) in [(record.skipped_steps, "skipped"), (record.repeats, "repeated")] {
                if count > 0 {
                    write!(line, "  {count} {what}").ok();
                }
            }
            write!(line, "  {:.1} s", record.seconds).ok();
            line
        }
        (None, Some(failure)) => format!("{head}  {failure}"),
        (None, None) => head,
    }
}

/// Mark by which a later run recognises the file as one of this program.
const MARK: &str = "<!-- gradscale compare -->\n\n";

/// Returns the text of `table.md`, with one part for each case. `notice` says that runs are missing.
pub fn table(results: &Results<'_>, notice: Option<&str>) -> String {
    let notice = notice.map_or(String::new(), |notice| format!("{notice}\n\n"));
    let parts = results.cases.iter().map(|case| part(case, &results.origin)).collect::<Vec<_>>();
    format!("{MARK}{notice}{}", parts.join("\n"))
}

fn part(case: &Case<'_>, origin: &Origin) -> String {
    let records: Vec<&Record> = case.runs.iter().collect();
    let summary = Summary::new(case.methods(), &records);
    let mut text = format!("# {}\n\n", case.title());
    for sentence in case.verdict() {
        writeln!(text, "- {}: {}", sentence.about, sentence.text).ok();
    }
    if !summary.doubts.is_empty() {
        writeln!(text, "\nWarnings:\n").ok();
    }
    for doubt in &summary.doubts {
        writeln!(text, "- {doubt}").ok();
    }
    if let Some(picture) = gradients::text(&records, gradients::COLUMNS) {
        write!(text, "\n```\n{picture}```\n").ok();
    }
    writeln!(text, "\n| {} |\n{}|", summary.heads.join(" | "), "|---".repeat(summary.heads.len())).ok();
    for row in &summary.rows {
        writeln!(text, "| {} |", row.join(" | ")).ok();
    }
    for failure in &summary.failures {
        writeln!(text, "\n{failure}").ok();
    }
    writeln!(text, "\n{}", case.circumstances(origin)).ok();
    text
}
