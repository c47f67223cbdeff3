//! Magnitudes of gradients, compared with the range of the format that stores them.

use super::{
    Report,
    axis::{Axis, Unit},
    page::{card, details, grid, section},
    plot::{RowPlot, WIDTH},
    series::extent,
    site,
    svg::Svg,
    text::{brief, escape, percent, power},
};
use crate::record::{
    Histogram,
    gradients::{self, Observed, Shares, format_of, limits, span, title, together, within},
    site_names::shorten_names,
};

/// CSS classes of the colours of [`gradients::zones`].
const COLOURS: [&str; 4] = ["z0", "z1", "z2", "z3"];

/// Returns the zones of the range of a method's format: name, CSS class, and both ends.
fn zones(method: &str) -> impl Iterator<Item = (&'static str, &'static str, f64, f64)> {
    gradients::zones(format_of(method))
        .into_iter()
        .zip(COLOURS)
        .map(|((zone, from, to), class)| (zone, class, from, to))
}

/// Draws the gradients before and after scaling; empty if nothing was stored as f16.
pub fn before_and_after(report: &Report<'_>) -> Vec<String> {
    let Some(observed) = Observed::latest(report.runs) else { return Vec::new() };
    let both = observed.before_and_after();
    let (low, high) = span(&both);
    let x = Axis::new(Unit::Power(2), f64::from(low - 1).min(-36.0), f64::from(high).max(24.0));
    let method = escape(&observed.run.method);
    let step = observed.sites.iter().map(|(_, histogram, _)| histogram.iteration).max().unwrap_or(0);
    let captions = [
        (format!("<b>Before scaling</b>: all gradients of step {step}"), "true magnitude"),
        (format!("<b>After scaling</b>: the same, as {method} stores them"), "stored magnitude"),
    ];
    let drawn = captions
        .iter()
        .zip(&both)
        .map(|((caption, name), shares)| card(caption, &together_drawing(&observed.run.method, shares, x, name)));
    drawn.collect()
}

/// Returns the HTML section of the report about gradients by magnitude.
pub fn section_of(report: &Report<'_>) -> String {
    const HEADING: &str = "Gradients by magnitude";
    let Some(Observed { run, mut sites }) = Observed::latest(report.runs) else {
        let lead = "Nothing was stored as f16, so there are no histograms.";
        return section("histogram", HEADING, lead, "");
    };
    // From the input to the loss.
    sites.reverse();
    let method = escape(&run.method);
    let methods: Vec<(&str, String)> = report.with_sites().collect();
    let cards =
        [card("<b>The same gradients under each method’s last scales</b>", &by_method(report, &sites, &methods))];
    let short = shorten_names(&sites.iter().map(|(name, ..)| *name).collect::<Vec<_>>()).into_iter();
    let each: Vec<String> = sites
        .iter()
        .zip(short)
        .map(|((name, histogram, _), short)| card(&escape(short), &alone(report, name, histogram, &methods)))
        .collect();
    let step = sites.iter().map(|(_, histogram, _)| histogram.iteration).max().unwrap_or(0);
    let format = format_of(&run.method);
    let [flushed, subnormal, _] = limits(format).map(|limit| power(2, f64::from(limit)));
    let overflow = f32::from_bits(format.convention().nearest_overflow());
    let lead = format!(
        "Non-zero gradients of all sites as {method}, seed {}, recorded them in step {step}, in bins of a power of \
         two. Background: how {} stores them: <span class=\"z0\">flushed</span> up to {flushed}, \
         <span class=\"z1\">subnormal</span> up to {subnormal}, <span class=\"z2\">normal</span>, \
         <span class=\"z3\">overflow</span> from {overflow:.0} on.",
        run.seed,
        title(format)
    );
    let order: Vec<String> = methods.iter().map(|(method, _)| escape(method)).collect();
    let ribbons = format!(
        "Each site, with the ranges of its format under the last scale of each method; from the top: {}. At the right, the share of \
         these gradients that the method would flush; the gradients of that method’s own training differ slightly.",
        order.join(", ")
    );
    let each =
        details("Each site under each method’s scale", true, &format!("<p>{ribbons}</p>{}", grid("small", &each)));
    section("histogram", HEADING, &lead, &(grid("cards", &cards) + &each))
}

fn together_drawing(method: &str, shares: &Shares, x: Axis, name: &str) -> String {
    // Low, so that both fit the first screen of a phone.
    let (top, bottom) = (36.0, 122.0);
    let mut svg = Svg::new(WIDTH, bottom + 34.0);
    let x = x.placed(8.0, WIDTH - 8.0);
    for (i, (zone, class, from, to)) in zones(method).enumerate() {
        let (left, right) = (x.at(from.max(x.low)), x.at(to.min(x.high)));
        svg.rect(&format!("zone {class}"), (left, top), (right, bottom), "");
        // In a row and not over the zones, which may be narrow.
        let at = x.from + (x.to - x.from) * i as f64 / 4.0;
        svg.rect(&format!("fill {class}"), (at, 5.0), (at + 9.0, 14.0), "");
        svg.text("note", (at + 13.0, 13.0), zone);
        svg.text("share", (at + 13.0, 29.0), &percent(within(shares, from, to)));
    }
    bars(&mut svg, shares, x, top + 4.0, bottom);
    for tick in x.ticks(7.0) {
        svg.text("tick middle", (x.at(tick), bottom + 14.0), &x.label(tick));
    }
    svg.line("axis", (x.from, bottom), (x.to, bottom));
    svg.text("name middle", (WIDTH / 2.0, bottom + 31.0), name);
    svg.finish(&format!("Histogram of gradients by {name}"))
}

/// Draws the shares of the zones under each method's scales.
fn by_method(report: &Report<'_>, sites: &[(&str, &Histogram, i32)], methods: &[(&str, String)]) -> String {
    let names: Vec<&str> = methods.iter().map(|(method, _)| *method).collect();
    let mut rows = RowPlot::new(&names, Axis::new(Unit::Percent, 0.0, 1.0), "% of all gradients");
    for (i, method) in names.iter().enumerate() {
        let moved = sites.iter().filter_map(|(name, histogram, _)| Some((*histogram, last(report, method, name)?)));
        let shares = together(moved);
        let (y, mut start) = (rows.y(i), 0.0);
        for (zone, class, from, to) in zones(method) {
            let share = within(&shares, from, to);
            let tip = format!("{method}: {zone} {}", percent(share));
            rows.svg.rect(
                &format!("fill {class}"),
                (rows.x.at(start), y - rows.half()),
                (rows.x.at(start + share), y + rows.half()),
                &tip,
            );
            start += share;
        }
    }
    rows.svg.finish("Shares flushed, subnormal, normal and overflowing, by method")
}

/// Returns the last exponent of a site under a method, in its first run.
fn last(report: &Report<'_>, method: &str, name: &str) -> Option<i32> {
    report.runs_of(method).find_map(|run| site(run, name)?.alpha.last().copied())
}

fn bars(svg: &mut Svg, shares: &Shares, x: Axis, top: f64, bottom: f64) {
    let highest = shares.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    for &(end, share) in shares {
        let height = (bottom - top) * share / highest;
        let (left, right) = (x.at(f64::from(end) - 1.0) + 0.4, x.at(f64::from(end)) - 0.4);
        let tip = format!("{} to {}: {}", power(2, f64::from(end) - 1.0), power(2, f64::from(end)), percent(share));
        svg.rect("bin", (left, bottom - height), (right, bottom), &tip);
    }
}

/// Draws a site's histogram above a ribbon of the ranges of its format for each method.
fn alone(report: &Report<'_>, name: &str, histogram: &Histogram, methods: &[(&str, String)]) -> String {
    let shares = together([(histogram, 0)].into_iter());
    let bottom = 62.0;
    let mut svg = Svg::new(200.0, bottom + 11.0 * methods.len() as f64 + 20.0);
    let (low, high) = extent(shares.iter().map(|(end, _)| f64::from(*end)));
    let x = Axis::new(Unit::Exponent, (low - 2.0).min(-32.0), (high + 4.0).max(0.0)).placed(10.0, 152.0);
    bars(&mut svg, &shares, x, 4.0, bottom);
    for (i, (method, class)) in methods.iter().enumerate() {
        let y = bottom + 4.0 + 11.0 * i as f64;
        let Some(alpha) = last(report, method, name) else { continue };
        let alpha = f64::from(alpha);
        svg.rect(&format!("fill {class}"), (0.0, y), (7.0, y + 7.0), method);
        for (zone, class, from, to) in zones(method) {
            let ends = ((from - alpha).max(x.low).min(x.high), (to - alpha).min(x.high).max(x.low));
            let tip =
                format!("{method}, {}: {zone} {}", power(2, alpha), percent(within(&shares, from - alpha, to - alpha)));
            svg.rect(&format!("fill {class}"), (x.at(ends.0), y), (x.at(ends.1), y + 7.0), &tip);
        }
        let flushed = within(&shares, f64::NEG_INFINITY, f64::from(limits(format_of(method))[0]) - alpha);
        svg.text("tick end", (200.0, y + 7.5), &brief(flushed));
    }
    let y = bottom + 11.0 * methods.len() as f64 + 15.0;
    for tick in x.ticks(4.0) {
        svg.text("tick middle", (x.at(tick), y), &x.label(tick));
    }
    svg.finish(&format!("Histogram of the gradients at {name}, with what its format holds under each method"))
}
