//! The results on a terminal: tables of its width first, and last the verdicts, which stay on the screen.

use super::results::{Case, Results};
use crate::{
    output::layout::{table, wrap},
    record::{Record, gradients, summary::Summary, verdict::Sentence},
};

/// Returns the text for a terminal of so many columns.
pub fn text(results: &Results<'_>, width: usize) -> String {
    let details = results.cases.iter().map(|case| details(case, results, width));
    let headlines = results.cases.iter().filter_map(|case| case.verdict().into_iter().next());
    let headlines = headlines.map(|headline| sentence("", &headline, width));
    details.chain(headlines).collect::<Vec<_>>().join("\n")
}

/// Returns table, gradients, warnings and settings of a case, and its verdict but for the first sentence.
fn details(case: &Case<'_>, results: &Results<'_>, width: usize) -> String {
    let records: Vec<&Record> = case.runs.iter().collect();
    let summary = Summary::new(case.methods(), &records);
    let mut text = wrap("", &case.title(), width) + "\n";
    text += &table(&summary.heads, &summary.rows, width);
    // Labels of the axis reach six columns beyond the bars, which are indented by two.
    let columns = i32::try_from(width).unwrap_or(i32::MAX).saturating_sub(8).min(gradients::COLUMNS);
    if let Some(picture) = gradients::text(&records, columns) {
        text.push('\n');
        for line in picture.lines() {
            // Bars and axis are indented; titles are sentences.
            text += &if line.starts_with(' ') { format!("{line}\n") } else { wrap("", line, width) };
        }
    }
    if !summary.failures.is_empty() || !summary.doubts.is_empty() {
        text.push('\n');
    }
    for failure in &summary.failures {
        text += &wrap("", failure, width);
    }
    for doubt in &summary.doubts {
        text += &wrap("warning: ", doubt, width);
    }
    text = text + "\n" + &wrap("", &case.circumstances(&results.origin), width);
    let verdict = case.verdict();
    if let [_, rest @ ..] = &verdict[..]
        && !rest.is_empty()
    {
        text.push('\n');
        text.extend(rest.iter().map(|statement| sentence("  ", statement, width)));
    }
    text
}

fn sentence(first: &str, Sentence { about, text }: &Sentence, width: usize) -> String {
    wrap(first, &format!("{about}: {text}"), width)
}
