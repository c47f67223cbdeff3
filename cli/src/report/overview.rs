//! First section: verdict, gradients before and after scaling, table of scores.

use super::{
    Report, histogram,
    page::{grid, section},
    scales,
    text::escape,
};
use crate::record::{summary::Summary, verdict};

const READING: &str = "<p class=\"reading\"><b>How to read this.</b> \
    FP16 turns magnitudes up to 2⁻²⁵ into zeros (they are flushed) and those from 65520 on into infinities (they overflow, \
    and the step is skipped). \
    A scale 2<sup>α</sup> multiplies gradients before they are stored, so that they are within this range. A loss scale is \
    one α for the whole network; gradient scaling has one for each cast site, a place where gradients are stored. \
    The sections below show first the training by each method, then the cast sites, from the network’s input to its \
    loss. <span class=\"mouse\">Point at a mark to read its numbers.</span>\
    <span class=\"touch\">Tap a mark to read its numbers.</span></p>\n";

/// Renders the verdict of all comparisons on the page.
pub fn verdict(reports: &[Report<'_>]) -> String {
    let mut content = String::new();
    for report in reports {
        if report.title != reports[0].title {
            content += &format!("<h3>{}</h3>\n", escape(&report.title));
        }
        let methods = || report.methods.iter().copied();
        let said =
            report.data.map(|data| verdict::verdict(methods(), report.runs, data.baseline())).unwrap_or_default();
        let item = |said: &verdict::Sentence| {
            // A number and its sign stay together.
            let text = escape(&said.text).replace(" %", "&nbsp;%");
            format!("<li><b>{}:</b> {text}</li>\n", escape(&said.about))
        };
        let items: String = said.iter().map(item).collect();
        let circumstances = escape(&report.circumstances);
        let doubts = Summary::new(methods(), report.runs).doubts;
        let doubt = |doubt: &String| format!("<li>{}</li>\n", escape(doubt));
        let doubts = match &doubts[..] {
            [] => String::new(),
            all => {
                format!("<p>Warnings:</p>\n<ul class=\"doubts\">{}</ul>\n", all.iter().map(doubt).collect::<String>())
            }
        };
        let items = if said.is_empty() { items } else { format!("<ul class=\"verdict\">\n{items}</ul>\n") };
        content += &format!("{items}{doubts}<p class=\"how\">{circumstances}</p>\n");
    }
    section("verdict", "What happened", "", &content)
}

/// Renders the section of gradients before and after scaling.
pub fn gradients(report: &Report<'_>) -> String {
    let cards = histogram::before_and_after(report);
    let lead = if cards.is_empty() {
        "Nothing was stored as f16, so no gradient needed a scale."
    } else {
        "Gradients by magnitude, and how FP16 stores them."
    };
    section("before-after", "Gradients before and after scaling", lead, &(grid("cards", &cards) + READING))
}

/// Returns the HTML section with the table of `table.md`.
pub fn summary(report: &Report<'_>) -> String {
    let seeds = "Of several seeds: mean ± standard deviation. Flushed at worst: the largest share of a site’s non-zero \
                 gradients that a step turned into zeros.";
    section("summary", "Summary", seeds, &table(report))
}

/// Renders a further comparison: its gradients, scales and numbers.
pub fn beside(report: &Report<'_>) -> String {
    let mut cards = histogram::before_and_after(report);
    cards.extend(scales::each(report));
    let lead = "Two towers share one trunk, and each classifies the digit. The second tower’s loss counts 2⁻⁴⁶ of \
                the first’s and its learning rate 2⁴⁶ times as much, so that in f32 both train alike; in FP16 no single \
                scale holds the gradients of both.";
    section("beside", &escape(&report.title), lead, &(table(report) + &grid("cards", &cards)))
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
