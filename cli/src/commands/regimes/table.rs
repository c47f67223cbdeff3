//! `table.md`: result of each method in each regime, with a summary.

use super::{
    Regime,
    results::{Cell, Results},
};
use crate::{output::layout, record::Spread};
use std::fmt::Write;

/// Legend below the table of the regimes' scores.
pub const LEGEND: &str = "Scores: test images classified correctly in percent (heads: by the worst one); for fill, infinite and \
                          nan the mean squared error in percent of the variance, where less is better; for several \
                          seeds mean ± standard deviation. ↓: clearly behind fp32, by more than 3 points or a quarter \
                          of an error, and by twice the standard error of the difference; for one seed, by 10 points or \
                          twice the error. This rule is for tables of many regimes; compare grades by what chance \
                          explains. bad-sample: test images classified correctly, short-recordings: \
                          characters that are wrong (less is better), rare-reward: chance to open the lock, all in \
                          percent; eight-bits: test images classified correctly in percent, of examples and outputs the \
                          mean of five tasks; 2^…: loss scale at the end. ✗: steps skipped, ↻: attempts that overflowed and were repeated; means over \
                          seeds.";

/// Formats the mean score of a cell with its spread.
pub fn score(cell: &Cell<'_>) -> String {
    match Spread::new(&cell.scores()) {
        None => "none".to_owned(),
        Some(Spread { mean, deviation: None }) => format!("{mean:.1}"),
        Some(Spread { mean, deviation: Some(deviation) }) => format!("{mean:.1} ± {deviation:.1}"),
    }
}

/// Formats skipped steps and retried attempts; empty if there were none.
pub fn losses(cell: &Cell<'_>) -> String {
    let number = |mean: f64| if mean.fract() == 0.0 { format!("{mean:.0}") } else { format!("{mean:.1}") };
    let parts = [("✗", cell.mean(|row| row.skipped)), ("↻", cell.mean(|row| row.repeated))];
    let parts = parts.iter().filter(|(_, mean)| *mean > 0.0).map(|(sign, mean)| format!("{sign}{}", number(*mean)));
    parts.collect::<Vec<_>>().join(" ")
}

/// Formats the loss scales after the last step, if the regime is about them.
pub fn scales(cell: &Cell<'_>) -> Option<String> {
    let all: Vec<i32> = cell.rows.iter().filter_map(|row| row.scale).collect();
    let (lowest, highest) = (all.iter().min()?, all.iter().max()?);
    let moves = cell.regime.task.is_natural() && cell.rows.iter().any(|row| !row.exponents.is_empty());
    moves.then(|| if lowest == highest { format!("2^{lowest}") } else { format!("2^{lowest}…2^{highest}") })
}

/// Formats a cell of the table: score, skips, and a mark if the score is clearly below that of f32.
fn cell(results: &Results<'_>, regime: &Regime, method: &str) -> String {
    let Some(cell) = results.cell(regime, method) else { return "–".to_owned() };
    let behind = if results.behind(regime, method) == Some(true) { "↓" } else { "" };
    let parts = [score(&cell) + behind, losses(&cell), scales(&cell).unwrap_or_default()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns lines about the last regime, one for each method.
pub fn last(results: &Results<'_>) -> String {
    let Some(regime) = results.rows.last().and_then(|row| results.done().find(|regime| regime.name == row.regime))
    else {
        return String::new();
    };
    let mut lines = layout::fit(&format!("{}: {}", regime.name, regime.about), layout::width());
    for method in results.methods() {
        if results.cell(regime, method).is_some() {
            writeln!(lines, "  {method:26} {}", cell(results, regime, method)).ok();
        }
    }
    lines
}

/// Returns the number of regimes in which each method is as good as f32, in one sentence.
pub fn in_short(results: &Results<'_>) -> String {
    let counts = |method: &str| {
        let judged: Vec<bool> = results.done().filter_map(|regime| results.behind(regime, method)).collect();
        let good = judged.iter().filter(|behind| !**behind).count();
        (!judged.is_empty()).then(|| format!("{method} in {good} of {}", judged.len()))
    };
    let methods = results.methods();
    let parts: Vec<String> = methods.iter().filter(|method| **method != "fp32").filter_map(|m| counts(m)).collect();
    if parts.is_empty() {
        return "Nothing is compared with f32 here.".to_owned();
    }
    format!("Regimes in which a method is as good as f32: {}.", parts.join(", "))
}

/// Summarizes each method over all regimes in a sentence, except f32 and methods without a comparison.
pub fn sentences(results: &Results<'_>) -> Vec<(String, String)> {
    let sentence = |method: &&str| {
        let tried: Vec<Cell<'_>> = results.done().filter_map(|regime| results.cell(regime, method)).collect();
        let judged: Vec<(&Cell<'_>, bool)> =
            tried.iter().filter_map(|cell| Some((cell, results.behind(cell.regime, method)?))).collect();
        let behind: Vec<&str> =
            judged.iter().filter(|(_, behind)| *behind).map(|(cell, _)| cell.regime.name.as_str()).collect();
        let mut summary = format!("as good as fp32 in {} of {} regimes", judged.len() - behind.len(), judged.len());
        if !behind.is_empty() {
            write!(summary, ", behind in {}", behind.join(", ")).ok();
        }
        let rows = || tried.iter().flat_map(|cell| &cell.rows);
        let lost: u64 = rows().map(|row| row.finite_skipped).sum();
        let steps: u64 = rows().map(|row| row.steps).sum();
        let share = |part: u64| 100.0 * part as f64 / steps.max(1) as f64;
        write!(summary, ". Finite batches skipped: {lost} ({:.1} %)", share(lost)).ok();
        let repeated: u64 = rows().map(|row| row.repeated).sum();
        let repeats = |cell: &Cell<'_>| 100.0 * cell.mean(|row| row.repeated) / cell.mean(|row| row.steps).max(1.0);
        let within = tried.iter().filter(|cell| !cell.regime.beyond_reach());
        if repeated > 0 {
            write!(summary, "; attempts repeated: {:.1} % of steps", share(repeated)).ok();
            let worst =
                within.map(|cell| (repeats(cell), &cell.regime.name)).max_by(|one, two| one.0.total_cmp(&two.0));
            if let Some((repeats, name)) = worst.filter(|(repeats, _)| *repeats > 0.0) {
                write!(summary, ", {repeats:.1} % at most ({name}) where FP16 can serve all batches together").ok();
            }
        }
        summary.push('.');
        (!judged.is_empty()).then(|| ((*method).to_owned(), summary))
    };
    results.methods().iter().filter(|method| **method != "fp32").filter_map(sentence).collect()
}

/// Returns the settings, program and machine of the trainings.
pub fn circumstances(results: &Results<'_>) -> String {
    let mut seeds: Vec<u64> = results.rows.iter().map(|row| row.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let steps = |pick: fn(u64, u64) -> u64| results.rows.iter().map(|row| row.steps).reduce(pick).unwrap_or(0);
    let (origin, data) = (&results.origin, results.data);
    format!(
        "{} to {} steps, seed {}, {data}. gradscale {} ({}) on {}.",
        steps(u64::min),
        steps(u64::max),
        seeds.join(", "),
        origin.version,
        origin.commit,
        origin.machine
    )
}

/// Returns the rows of the table, of which the first has the names of the methods.
fn rows(results: &Results<'_>) -> Vec<Vec<String>> {
    let methods = results.methods();
    let heads = std::iter::once("regime").chain(methods.iter().copied()).map(str::to_owned);
    let row = |regime: &Regime| {
        let cells = methods.iter().map(|method| cell(results, regime, method));
        std::iter::once(regime.name.clone()).chain(cells).collect::<Vec<_>>()
    };
    std::iter::once(heads.collect()).chain(results.done().map(row)).collect()
}

/// Returns the results as text for a terminal of so many columns: table and its signs first, and last the verdict.
pub fn text(results: &Results<'_>, width: usize) -> String {
    let mut text = String::new();
    if let ([heads, rows @ ..], false) = (&rows(results)[..], results.rows.is_empty()) {
        text += &layout::table(heads, rows, width);
        for part in [LEGEND, &circumstances(results)] {
            text += &format!("\n{}", layout::wrap("", part, width));
        }
        text.push('\n');
    }
    for row in &results.rows {
        if let Some(failure) = &row.failure {
            text += &layout::wrap("", &format!("{}, {}, seed {}: {failure}", row.regime, row.method, row.seed), width);
        }
    }
    for (method, summary) in sentences(results) {
        text += &layout::wrap("  ", &format!("{method}: {summary}"), width);
    }
    text
}

/// Returns the text of the file with the table of all regimes.
pub fn table(results: &Results<'_>) -> String {
    let methods = results.methods();
    let rows = rows(results);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=methods.len()).map(width).collect();
    // By the first line a later run recognises the file as one of this program.
    let mut text = String::from("<!-- gradscale regimes -->\n\n# Scaling rules in hard regimes\n\n");
    for (method, summary) in sentences(results) {
        writeln!(text, "- {method}: {summary}").ok();
    }
    text.push('\n');
    // Without a training there are only figures and no table.
    let rows = if results.rows.is_empty() { &[][..] } else { &rows[..] };
    for (i, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | ")).ok();
        if i == 0 {
            writeln!(text, "|{}", widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect::<String>())
                .ok();
        }
    }
    for row in &results.rows {
        if let Some(failure) = &row.failure {
            writeln!(text, "\n{}, {}, seed {}: {failure}", row.regime, row.method, row.seed).ok();
        }
    }
    if !results.rows.is_empty() {
        writeln!(text, "\n{LEGEND}\n\n{}", circumstances(results)).ok();
    }
    for figure in &results.figures {
        writeln!(text, "\n## {}\n\n{}\n\n```text\n{}```", figure.name, figure.about, figure.text).ok();
    }
    text
}
