//! Scales: by layer, and over time.

use super::{
    Report,
    axis::{Axis, Unit},
    page::{card, details, grid, legend, section},
    plot::{Plot, RowPlot},
    series::{extent, mean_and_spread, without_repeats},
    site,
    svg::Point,
    text::{escape, power},
};
use crate::record::{Record, SiteSeries, site_names::shorten_names};

/// Legend of the colours from the network's input to its loss.
const INPUT_TO_LOSS: &str = "<i class=\"ramp\"></i>";

/// Returns the HTML section of the report about the exponents of the sites.
pub fn section_of(report: &Report<'_>) -> String {
    let names = report.sites();
    if names.is_empty() {
        return section("scales", "Scales", "No method stores gradients in f16.", "");
    }
    let range = exponents(report, Unit::Power(2));
    let over = format!("<b>The same over time</b>, from the input {INPUT_TO_LOSS} to the loss; first seed");
    let by_layer: Vec<String> = each(report)
        .into_iter()
        .zip(report.gradient_scaling())
        .flat_map(|(each, (method, _))| [each, card(&over, &together(report, &names, range, method))])
        .collect();
    let over_time: Vec<String> = names
        .iter()
        .zip(shorten_names(&names))
        .map(|(name, short)| card(&escape(short), &over_time(report, name, exponents(report, Unit::Exponent))))
        .collect();
    let lead = "By site, from the input to the loss: bars are mean ± standard deviation over time and seeds, thin \
        lines span minimum to maximum, dots are the last value. Dashed: the last loss scale, the same for all sites.";
    let legend = legend(report.with_sites().map(|(method, class)| (class, method)));
    let content = legend
        + &grid("cards", &by_layer)
        + &details(
            "Scale of each site over time: its exponent α by training step, every seed",
            false,
            &grid("small", &over_time),
        );
    section("scales", "Scales", lead, &content)
}

/// Draws the exponents of all sites, one drawing for each method of gradient scaling.
pub fn each(report: &Report<'_>) -> Vec<String> {
    let (names, range) = (report.sites(), exponents(report, Unit::Power(2)));
    let of = |(method, class): (&str, String)| {
        let caption = format!("<b>Scale of each site</b> under {}", escape(method));
        card(&caption, &by_layer(report, &names, range, method, &class))
    };
    report.gradient_scaling().map(of).collect()
}

/// Returns a common axis of exponents for all methods and sites.
fn exponents(report: &Report<'_>, unit: Unit) -> Axis {
    let sites = report.runs.iter().flat_map(|run| &run.sites);
    let (low, high) = extent(sites.flat_map(|site| &site.alpha).copied().map(f64::from));
    Axis::new(unit, low - 1.0, high + 1.0)
}

fn by_layer(report: &Report<'_>, names: &[&str], range: Axis, method: &str, class: &str) -> String {
    let mut rows = RowPlot::new(&shorten_names(names), range, "scale 2^α");
    for (other, class) in report.with_sites().filter(|(other, _)| super::threshold(other).is_none()) {
        let ends = |run: &Record| run.sites.first().and_then(|site| site.alpha.last()).copied();
        for alpha in report.runs_of(other).filter_map(ends) {
            rows.mark(&format!("dashed {class}"), f64::from(alpha));
        }
    }
    draw_spans(&mut rows, names, class, report.runs_of(method).map(|run| (run.seed, &run.sites[..])));
    rows.svg.finish(&format!("Scale of each site under {method}"))
}

/// Draws the exponents of sites, one row for each name: mean, spread and range over time and seeds, and the last of each
/// seed. `runs` are seeds with their sites.
pub(super) fn draw_spans<'a>(
    rows: &mut RowPlot, names: &[&str], class: &str, runs: impl Iterator<Item = (u64, &'a [SiteSeries])>,
) {
    let runs: Vec<_> = runs.collect();
    for (i, name) in names.iter().enumerate() {
        let find =
            |&(seed, sites): &(u64, &'a [SiteSeries])| Some((seed, sites.iter().find(|site| site.name == *name)?));
        let seeds: Vec<(u64, &SiteSeries)> = runs.iter().filter_map(find).collect();
        let all = || seeds.iter().flat_map(|(_, site)| &site.alpha).copied().map(f64::from);
        let Some((mean, spread)) = mean_and_spread(all()) else { continue };
        let (y, (low, high)) = (rows.y(i), extent(all()));
        rows.svg.line(&format!("line {class}"), (rows.x.at(low), y), (rows.x.at(high), y));
        let tip = format!("{name}: mean 2^{mean:.1} ± {spread:.1}, from {} to {}", power(2, low), power(2, high));
        let (from, to) = (rows.x.at(mean - spread) - 1.0, rows.x.at(mean + spread) + 1.0);
        rows.svg.rect(&format!("bar {class}"), (from, y - 4.5), (to, y + 4.5), &tip);
        for (seed, site) in &seeds {
            if let Some(&last) = site.alpha.last() {
                let tip = format!("{name}, seed {seed}: {} at the end", power(2, f64::from(last)));
                rows.svg.dot(&format!("fill {class}"), (rows.x.at(f64::from(last)), y), 3.0, &tip);
            }
        }
    }
}

/// Draws the exponents of all sites of a method's first seed.
fn together(report: &Report<'_>, names: &[&str], range: Axis, method: &str) -> String {
    let last = report.runs.iter().map(|run| run.iterations).max().unwrap_or(1);
    let mut plot = Plot::new(Axis::new(Unit::Plain, 0.0, last as f64), range, "training step", "scale 2^α");
    let Some(run) = report.runs_of(method).find(|run| !run.sites.is_empty()) else { return String::new() };
    for (i, name) in names.iter().enumerate() {
        if let Some(site) = site(run, name) {
            // Nine colours.
            let colour = 8 * i / names.len().saturating_sub(1).max(1);
            plot.line(&format!("line s{colour}"), &steps(site));
        }
    }
    plot.svg.finish(&format!("Scales of all sites under {method} over training steps"))
}

/// Returns the exponents of a site as points over the steps.
fn steps(site: &SiteSeries) -> Vec<Point> {
    let points = site.iteration.iter().zip(&site.alpha).map(|(&step, &alpha)| (step as f64, f64::from(alpha)));
    without_repeats(points.collect())
}

fn over_time(report: &Report<'_>, name: &str, range: Axis) -> String {
    let last = report.runs.iter().map(|run| run.iterations).max().unwrap_or(1);
    let mut plot = Plot::small(Axis::new(Unit::Plain, 0.0, last as f64), range);
    for (method, class) in report.with_sites() {
        for site in report.runs_of(method).filter_map(|run| site(run, name)) {
            plot.line(&format!("line {class}"), &steps(site));
        }
    }
    plot.svg.finish(&format!("Scale of {name} over training steps, by method"))
}
