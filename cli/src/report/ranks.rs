//! Section of traffic between ranks.

use super::{Report, page::section};
use crate::record::{GradientTraffic, Stretch};

/// Returns the HTML section of the report about communication between ranks; empty for a single rank.
pub fn section_of(report: &Report<'_>) -> String {
    let rows: String = report.runs.iter().flat_map(|run| &run.ranks).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let lead = "Rank 0, per step: bytes sent and received, and communication time including the wait for slower ranks. \
        Hidden: the part during the backward pass. Blocked: the share of the step in which the rank only waited.";
    let table = format!(
        "<div class=\"wide\"><table><thead><tr><th>steps</th><th>ranks</th><th>sent</th><th>received</th>\
         <th>communication</th><th>hidden</th><th>blocked</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    );
    section("ranks", "Ranks", lead, &table)
}

fn row(stretch: &Stretch) -> String {
    let Stretch { first, steps, whole, travelled } = stretch;
    let GradientTraffic { ranks, sent, received, seconds, hidden } = travelled;
    let last = first + steps - 1;
    let of_step = |bytes: u64| bytes_said(bytes as f64 / *steps as f64);
    let (sent, received) = (of_step(*sent), of_step(*received));
    let milliseconds = |seconds: f64| format!("{:.1}&nbsp;ms", 1e3 * seconds / *steps as f64);
    let (all, behind) = (milliseconds(*seconds), milliseconds(*hidden));
    let share = 100.0 * (seconds - hidden).max(0.0) / whole.max(f64::MIN_POSITIVE);
    format!(
        "<tr><th scope=\"row\">{first}–{last}</th><td>{ranks}</td><td>{sent}</td><td>{received}</td>\
         <td>{all}</td><td>{behind}</td><td>{share:.0}&nbsp;%</td></tr>\n"
    )
}

/// Formats a number of bytes with a readable unit.
fn bytes_said(bytes: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1.0, "B"));
    let digits = usize::from(unit > 1.0);
    format!("{:.digits$}&nbsp;{name}", bytes / unit)
}
