//! Section of skipped and retried steps.

use super::{
    Report,
    page::{details, section},
    text::{escape, power},
};
use crate::record::{Record, event::Event};

/// Returns the HTML section of the report about skips and repeats.
pub fn section_of(report: &Report<'_>) -> String {
    const HEADING: &str = "Skips and repeats";
    let runs: Vec<&Record> =
        report.coloured().flat_map(|(method, _)| report.runs_of(method)).filter(|run| !run.events.is_empty()).collect();
    if runs.is_empty() {
        return section("events", HEADING, "Every step succeeded at its first attempt.", "");
    }
    let lead = "A step that overflows changes nothing. A method with repeats retries the batch with scales decided \
        from its own gradients; others skip it and lower their scale. Every method skips a batch whose gradients are \
        not finite at any scale.";
    let content: String = runs.into_iter().map(table).collect();
    section("events", HEADING, lead, &content)
}

fn table(run: &Record) -> String {
    let row = |(step, event): &(u64, Event)| {
        let magnitude = event.magnitude.map_or_else(|| "–".to_owned(), |log2| power(2, log2.round()));
        let decided = event.decided.map_or_else(|| "–".to_owned(), |alpha| power(2, f64::from(alpha)));
        let said = escape(&event.said);
        format!("<tr><th scope=\"row\">{step}</th><td>{said}</td><td>{magnitude}</td><td>{decided}</td></tr>\n")
    };
    let rows: String = run.events.iter().map(row).collect();
    let all = run.skipped_steps + run.repeats;
    let more = all.saturating_sub(run.events.len() as u64);
    let more = if more == 0 { String::new() } else { format!("<p>{more} more are not listed.</p>\n") };
    let summary =
        format!("{}, seed {}: {} skipped, {} repeated", escape(&run.method), run.seed, run.skipped_steps, run.repeats);
    let table = format!(
        "<div class=\"wide\"><table><thead><tr><th>step</th><th>what happened</th><th>largest value at the site</th>\
         <th>next scale of the site</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n{more}"
    );
    details(&summary, false, &table)
}
