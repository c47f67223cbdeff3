//! Section of underflow: by site and method, predicted and measured, with the constraint that bound the decisions.

use super::{
    Report,
    axis::{Axis, Unit},
    page::{card, details, grid, legend, section},
    plot::RowPlot,
    series::mean_and_spread,
    site,
    text::{escape, percent},
    threshold,
};
use crate::record::{Record, SiteSeries, site_names::shorten_names};
use std::collections::BTreeMap;

/// Smallest share on the axes, as a power of ten.
const MIN_LOG10_SHARE: f64 = -7.0;

/// Constraints that may bind a decision, with their colours.
const RULES: [(&str, &str); 5] =
    [("threshold", "b0"), ("normal range", "b1"), ("overflow", "b2"), ("range", "b3"), ("one", "b4")];

/// Explanation of the limits of decisions, as HTML.
const MEANINGS: &str = "<p>Threshold: γ′ is kept, without room for more. Normal range: all but a share γ′ even avoid \
    the subnormal numbers. Overflow: no exponent keeps both γ′ and the largest values, so the largest took precedence. \
    Range: the values are further away than one decision can move the scale. One: the needed scale is below 1, which \
    the paper’s rules exclude.</p>";

/// Returns the HTML section of the report about underflow at the sites.
pub fn section_of(report: &Report<'_>) -> String {
    let names = report.sites();
    if names.is_empty() {
        return section("underflow", "Underflow", "No method stores gradients in f16.", "");
    }
    let lost = |site: &SiteSeries| mean_and_spread(site.lost.iter().flatten().copied()).map(|(mean, _)| mean);
    let mut cards = vec![
        card(
            "<b>Flushed</b>: share of the values, mean over the steps, by method",
            &measured(report, &names, SiteSeries::mean_flushed),
        ),
        card(
            "<b>Lost</b>: share of the sum of magnitudes, mean over the steps that decided, by method",
            &measured(report, &names, lost),
        ),
    ];
    let mut tables = String::new();
    // A trace has no predictions of decisions.
    let decided = report.data.is_some();
    if decided && report.gradient_scaling().next().is_some() {
        tables += &details("Limits of the decisions", false, MEANINGS);
    }
    for (method, class) in report.gradient_scaling() {
        let name = escape(method);
        let beside = if decided { ", predicted by the decisions ○" } else { "" };
        cards.push(card(
            &format!("<b>Worst step under {name}</b>: measured <span class=\"{class}\">●</span>{beside}"),
            &predicted(report, &names, method, &class),
        ));
        let held: Vec<_> = names.iter().map(|site| counts(report, method, site)).collect();
        let occur = RULES.into_iter().filter(|(rule, _)| held.iter().any(|counts| counts.contains_key(*rule)));
        let caption = format!("<b>Limits of the decisions</b> of {name}{}", rules(occur));
        cards.extend(decided.then(|| card(&caption, &bound(report, &names, method))));
        tables += &details(&format!("Numbers of {name}, by site"), false, &table(report, &names, method));
    }
    let legend = legend(report.with_sites().map(|(method, class)| (class, method)));
    let lead = "Share of the non-zero gradients that were stored as zero, and which share of the sum of all magnitudes they \
                had. Dashed: γ′, what gradient scaling allows. A site may exceed it between decisions, or where overflow bound the decision because its values span more than the format holds.";
    section("underflow", "Underflow", lead, &(legend + &grid("cards", &cards) + &tables))
}

fn rules(rules: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let entry = |(name, class): (&str, &str)| format!("<li class=\"{class}\"><i></i>{name}</li>");
    format!("<ul class=\"legend\">{}</ul>", rules.map(entry).collect::<String>())
}

fn axis() -> Axis {
    Axis::new(Unit::Power(10), MIN_LOG10_SHARE, 0.0)
}

/// Returns log10 of a share, at least the lower end of the axis.
fn place(share: f64) -> f64 {
    if share > 0.0 { share.log10().max(MIN_LOG10_SHARE) } else { MIN_LOG10_SHARE }
}

fn marked(rows: &mut RowPlot, gammas: impl Iterator<Item = f64>) {
    for gamma in gammas {
        rows.mark("dashed strong", gamma.log10());
    }
}

/// Draws the mean over seeds of a share, for each site and method.
fn measured(report: &Report<'_>, names: &[&str], share: fn(&SiteSeries) -> Option<f64>) -> String {
    let mut rows = RowPlot::new(&shorten_names(names), axis(), "share (10⁻⁷ and less at the left)");
    let gammas: Vec<f64> = report.gradient_scaling().filter_map(|(method, _)| threshold(method)).collect();
    marked(&mut rows, gammas.into_iter());
    for (i, name) in names.iter().enumerate() {
        let y = rows.y(i);
        rows.svg.line("grid", (rows.x.from, y), (rows.x.to, y));
        let lanes = report.with_sites().count() as f64;
        for (lane, (method, class)) in report.with_sites().enumerate() {
            // Methods one below the other, so that none hides another.
            let y = y + (lane as f64 - (lanes - 1.0) / 2.0) * (9.0 / lanes);
            let shares = report.runs_of(method).filter_map(|run| site(run, name)).filter_map(share);
            if let Some((mean, _)) = mean_and_spread(shares) {
                let tip = format!("{name}, {method}: {}", percent(mean));
                rows.svg.dot(&format!("fill {class}"), (rows.x.at(place(mean)), y), 3.4, &tip);
            }
        }
    }
    rows.svg.finish("Mean share at each site, by method")
}

/// Returns the largest value of a site over all runs of a method.
fn largest(report: &Report<'_>, method: &str, name: &str, value: fn(&SiteSeries) -> Option<f64>) -> Option<f64> {
    report.runs_of(method).filter_map(|run| site(run, name)).filter_map(value).reduce(f64::max)
}

fn predicted(report: &Report<'_>, names: &[&str], method: &str, class: &str) -> String {
    let mut rows = RowPlot::new(&shorten_names(names), axis(), "share flushed (10⁻⁷ and less at the left)");
    marked(&mut rows, threshold(method).into_iter());
    for (i, name) in names.iter().enumerate() {
        let y = rows.y(i);
        let Some(worst) = largest(report, method, name, |site| Some(site.extremes.worst)) else { continue };
        let expected = largest(report, method, name, worst_predicted);
        let right = rows.x.at(place(worst));
        rows.svg.line("grid", (rows.x.from, y), (rows.x.to, y));
        let words = expected.map_or_else(|| "nothing".to_owned(), percent);
        let tip = format!("{name}: at most {} measured, {words} predicted", percent(worst));
        if let Some(expected) = expected {
            let left = rows.x.at(place(expected));
            rows.svg.line("join", (left, y), (right, y));
            rows.svg.dot("ring", (left, y), 5.2, &tip);
        }
        rows.svg.dot(&format!("fill {class}"), (right, y), 3.2, &tip);
    }
    rows.svg.finish(&format!("Largest share flushed at each site under {method}, measured and predicted"))
}

/// Returns the worst predicted share; `None` if the rule predicts none.
fn worst_predicted(site: &SiteSeries) -> Option<f64> {
    let predicted = site.gamma_predicted.iter().flatten().copied().filter(|gamma| !gamma.is_nan());
    predicted.reduce(f64::max).map(|sampled| sampled.max(site.extremes.worst_at_decision))
}

/// Counts how often each constraint bound a decision, over all seeds.
fn counts(report: &Report<'_>, method: &str, name: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let bounds = report.runs_of(method).filter_map(|run: &Record| site(run, name)).flat_map(|site| &site.bound);
    for rule in bounds.flatten() {
        *counts.entry(rule.clone()).or_default() += 1;
    }
    counts
}

fn bound(report: &Report<'_>, names: &[&str], method: &str) -> String {
    let mut rows = RowPlot::new(&shorten_names(names), Axis::new(Unit::Percent, 0.0, 1.0), "% of the steps");
    for (i, name) in names.iter().enumerate() {
        let counts = counts(report, method, name);
        let whole = counts.values().sum::<usize>().max(1) as f64;
        let (y, mut from) = (rows.y(i), 0.0);
        for (rule, class) in RULES {
            let share = counts.get(rule).copied().unwrap_or(0) as f64 / whole;
            let tip = format!("{name}: bound by {rule} in {}", percent(share));
            let ends = (rows.x.at(from), rows.x.at(from + share));
            rows.svg.rect(&format!("fill {class}"), (ends.0, y - rows.half()), (ends.1, y + rows.half()), &tip);
            from += share;
        }
    }
    rows.svg.finish(&format!("Rules that bound the decisions of {method}, by site"))
}

fn table(report: &Report<'_>, names: &[&str], method: &str) -> String {
    let row = |name: &&str| {
        let largest = |value| largest(report, method, name, value).map_or_else(|| "–".to_owned(), percent);
        let bound: Vec<String> = counts(report, method, name).keys().cloned().collect();
        let overflows: u64 = report.runs_of(method).filter_map(|run| site(run, name)?.overflows.last().copied()).sum();
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{overflows}</td>\
             <td>{}</td></tr>\n",
            escape(name),
            largest(worst_predicted),
            largest(|site| Some(site.extremes.worst_between)),
            largest(|site| Some(site.extremes.worst)),
            largest(|site| site.lost.iter().flatten().copied().reduce(f64::max)),
            largest(|site| site.zeros.iter().copied().reduce(f64::max)),
            bound.join(", ")
        )
    };
    let rows: String = names.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table><thead><tr><th>site</th><th>largest predicted</th><th>largest measured, steps not \
         bound by overflow</th><th>largest measured</th><th>largest share of Σ|u| lost</th><th>largest share of zeros before the store</th><th>values that overflowed</th><th>bound by</th></tr></thead>\
         <tbody>\n{rows}</tbody></table></div>\n"
    )
}
