//! First screen: the verdict in a sentence, bars of the scores, gradients before and after scaling. Then the rest of
//! the verdict and the table of scores.

use super::{
    Report, curves, histogram,
    page::{card, details, grid, section},
    scales,
    text::escape,
};
use crate::{
    metrics::{Metric, Metrics},
    record::{summary::Summary, verdict},
};

const READING: &str = "<p class=\"reading\">\
    FP16 turns magnitudes up to 2⁻²⁵ into zeros (they are flushed) and those from 65520 on into infinities (they overflow, \
    and the step is skipped). \
    E5M2 does so up to 2⁻¹⁷ and from 61440 on, E4M3 up to 2⁻¹⁰ and above 464. \
    A scale 2<sup>α</sup> multiplies gradients before they are stored, so that they are within this range. A loss scale is \
    one α for the whole network; gradient scaling has one for each cast site, a place where gradients are stored. \
    The sections below show first the training by each method, then the cast sites, from the network’s input to its \
    loss. <span class=\"mouse\">Point at a mark to read its numbers.</span>\
    <span class=\"touch\">Tap a mark to read its numbers.</span></p>\n";

/// Returns the statements of the verdict on a report, most important first; empty for a trace.
fn statements(report: &Report<'_>) -> Vec<verdict::Sentence> {
    let methods = report.methods.iter().copied();
    report.data.map(|data| verdict::verdict(&report.subject, methods, report.runs, data.baseline())).unwrap_or_default()
}

/// Formats text for HTML; a number and its sign stay together.
fn text_of(sentence: &str) -> String {
    escape(sentence).replace(" %", "&nbsp;%")
}

/// Returns a paragraph with the first statement of the verdict. A trace has none, so its counts take the place.
fn headline(report: &Report<'_>) -> String {
    match statements(report).first() {
        Some(first) => {
            format!("<p class=\"headline\"><b>{}:</b> {}</p>\n", escape(&first.about), text_of(&first.text))
        }
        None => format!("<p class=\"headline\">{}</p>\n", text_of(&report.circumstances)),
    }
}

/// Renders the first screen of the page.
pub fn first_screen(report: &Report<'_>) -> String {
    let mut cards: Vec<String> = bars(report).into_iter().collect();
    let histograms = histogram::before_and_after(report);
    let nothing = match &histograms[..] {
        [] => "<p>Nothing was stored as f16, so no gradient needed a scale.</p>\n",
        _ => "",
    };
    cards.extend(histograms);
    format!(
        "<section id=\"verdict\">\n{}</section>\n<section id=\"before-after\">\n{}{nothing}</section>\n",
        headline(report),
        grid("first", &cards)
    )
}

/// Draws bars of the primary score in which methods differ most; `None` if no run has scores.
fn bars(report: &Report<'_>) -> Option<String> {
    let test_set = report.data?.baseline();
    let judged = verdict::evaluate(report.methods.iter().copied(), report.runs, test_set).grades;
    let sized = judged.iter().filter_map(|one| Some((one.score?, one.size()?)));
    let largest = sized.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(score, _)| score);
    let any = || report.runs.iter().filter_map(|run| run.metrics.as_ref()).flat_map(Metrics::judged).next();
    let metric: Metric = largest.or_else(|| any().map(|(metric, _)| metric))?;
    let spread = if report.runs.iter().any(|run| run.seed != report.runs[0].seed) {
        ": mean ± standard deviation, dots are seeds"
    } else {
        ""
    };
    let caption = format!("<b>{}</b> on the test set{spread}; dashed: a constant answer", metric.name());
    Some(card(&caption, &curves::score_bars(report, metric, Some(test_set.constant))))
}

/// Renders what follows the first screen: the rest of the verdict, warnings, circumstances, how to read the page.
pub fn after_first_screen(report: &Report<'_>) -> String {
    let reading = details("How to read this page", false, READING);
    format!("<section id=\"details\">\n{}{reading}</section>\n", rest_of_verdict(report))
}

/// Renders circumstances, warnings, and the statements after the first.
fn rest_of_verdict(report: &Report<'_>) -> String {
    let item = |said: &verdict::Sentence| format!("<li><b>{}:</b> {}</li>\n", escape(&said.about), text_of(&said.text));
    let items: String = statements(report).iter().skip(1).map(item).collect();
    let items = if items.is_empty() { items } else { format!("<ul class=\"verdict\">\n{items}</ul>\n") };
    let doubts = Summary::new(report.methods.iter().copied(), report.runs).doubts;
    let doubt = |doubt: &String| format!("<li>{}</li>\n", escape(doubt));
    let doubts = match &doubts[..] {
        [] => String::new(),
        all => format!(
            "<ul class=\"verdict doubts\"><li><b>Warnings</b></li>{}</ul>\n",
            all.iter().map(doubt).collect::<String>()
        ),
    };
    let how =
        report.data.map_or_else(String::new, |_| format!("<p class=\"how\">{}</p>\n", escape(&report.circumstances)));
    let items = if items.is_empty() { items } else { details("The verdict in detail", false, &items) };
    how + &doubts + &items
}

/// Explanation of the table's columns.
const SUMMARY: &str = "Of several seeds: mean ± standard deviation. Flushed %: share of a site’s non-zero gradients that \
                       became zero, mean over the steps, at the site that lost most.";

/// Returns the HTML section with the table of `table.md`.
pub fn summary(report: &Report<'_>) -> String {
    section("summary", "Summary", SUMMARY, &table(report))
}

/// Renders a further comparison: its verdict, scores, gradients, scales and numbers.
pub fn beside(report: &Report<'_>) -> String {
    let mut cards: Vec<String> = bars(report).into_iter().collect();
    cards.extend(histogram::before_and_after(report));
    let content = headline(report) + &grid("cards", &cards) + &table(report) + &rest_of_verdict(report);
    let scales = details("Scales", false, &grid("cards", &scales::each(report)));
    section("beside", &escape(&report.title), &escape(report.about), &(content + &scales))
}

/// Maximum number of columns after the method that fit a phone.
const MAX_PHONE_COLUMNS: usize = 3;

fn table(report: &Report<'_>) -> String {
    let summary = Summary::new(report.methods.iter().copied(), report.runs);
    let heads: String = summary.heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let colour = |name: &str| report.coloured().find(|(method, _)| *method == name).map_or_else(String::new, |c| c.1);
    let row = |row: &Vec<String>| {
        let [method, numbers @ ..] = &row[..] else { return String::new() };
        let numbers: String = numbers.iter().map(|number| format!("<td>{}</td>", escape(number))).collect();
        let (colour, method) = (colour(method), escape(method));
        format!("<tr><th scope=\"row\" class=\"{colour}\"><i></i>{method}</th>{numbers}</tr>\n")
    };
    let rows: String = summary.rows.iter().map(row).collect();
    let failure = |failure: &String| format!("<p class=\"failure\">{}</p>\n", escape(failure));
    let failures: String = summary.failures.iter().map(failure).collect();
    let more = summary.heads.get(1 + MAX_PHONE_COLUMNS..).unwrap_or_default().join(", ").replace(" %", "");
    format!(
        "<p class=\"more\">Swipe the table for {more} →</p>\n<div class=\"wide\"><table><thead><tr>{heads}</tr></thead>\
         <tbody>\n{rows}</tbody></table></div>\n{failures}"
    )
}
