//! Section of activations with exponents: their scales, and what they lost.

use super::{
    Report,
    axis::{Axis, Unit},
    page::{card, details, grid, section},
    plot::RowPlot,
    scales::draw_spans,
    series::extent,
    text::{escape, percent, power},
};
use crate::record::{Record, SiteSeries, site_names::shorten_names};

/// Returns the HTML section about activations; empty if none had an exponent in any run.
pub fn section_of(report: &Report<'_>) -> String {
    let has_some = |method: &str| report.runs_of(method).any(|run| !run.activations.is_empty());
    let methods: Vec<(&str, String)> = report.coloured().filter(|(method, _)| has_some(method)).collect();
    if methods.is_empty() {
        return String::new();
    }
    let lead = "Activations have exponents since one of them exceeded 65504, or from the first step with forward=on or a \
        format of 8 bits. Their scales are drawn like those of gradients.";
    let cards: Vec<String> = methods
        .iter()
        .map(|(method, class)| {
            let caption = format!("<b>Scale of each activation</b> under {}", escape(method));
            card(&caption, &draw_scales(report, method, class))
        })
        .collect();
    let tables: String = methods
        .iter()
        .map(|(method, _)| {
            details(&format!("Numbers of {}, by activation", escape(method)), false, &table(report, method))
        })
        .collect();
    section("activations", "Activations", lead, &(grid("cards", &cards) + &tables))
}

/// Returns the names of a method's activations, in the order of the forward pass.
fn names<'a>(report: &'a Report<'_>, method: &str) -> Vec<&'a str> {
    let longest = report.runs_of(method).map(|run| &run.activations).max_by_key(|all| all.len());
    longest.into_iter().flatten().map(|site| site.name.as_str()).collect()
}

/// Returns the name of an activation without the ending that all of them have.
fn without_suffix(name: &str) -> &str {
    name.strip_suffix("/forward").unwrap_or(name)
}

fn draw_scales(report: &Report<'_>, method: &str, class: &str) -> String {
    let names = names(report, method);
    let all = report.runs_of(method).flat_map(|run| &run.activations).flat_map(|site| &site.alpha);
    let (low, high) = extent(all.copied().map(f64::from));
    let mut rows = RowPlot::new(&shorten_names(&names), Axis::new(Unit::Power(2), low - 1.0, high + 1.0), "scale 2^α");
    draw_spans(&mut rows, &names, class, report.runs_of(method).map(|run| (run.seed, &run.activations[..])));
    rows.svg.finish(&format!("Scale of each activation under {method}"))
}

fn table(report: &Report<'_>, method: &str) -> String {
    let row = |name: &&str| {
        let find = |run: &'_ Record| run.activations.iter().position(|site| site.name == *name);
        let sites = || report.runs_of(method).filter_map(|run| find(run).map(|index| &run.activations[index]));
        let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |log2| power(2, log2));
        let lowest = sites().flat_map(|site| &site.alpha).min().map(|&alpha| f64::from(alpha));
        let last = sites().filter_map(|site| site.alpha.last()).max().map(|&alpha| f64::from(alpha));
        let largest = sites().flat_map(|site| site.amax.iter().flatten()).copied().reduce(f64::max);
        let flushed = sites().map(|site: &SiteSeries| site.extremes.worst).reduce(f64::max);
        let overflows: u64 = sites().filter_map(|site| site.overflows.last().copied()).sum();
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{overflows}</td></tr>\n",
            escape(without_suffix(name)),
            show(lowest),
            show(last),
            show(largest.map(f64::round)),
            flushed.map_or_else(|| "–".to_owned(), percent),
        )
    };
    let rows: String = names(report, method).iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table><thead><tr><th>activation</th><th>smallest scale</th><th>last scale</th><th>largest \
         value</th><th>largest share flushed</th><th>values that overflowed</th></tr></thead>\
         <tbody>\n{rows}</tbody></table></div>\n"
    )
}
