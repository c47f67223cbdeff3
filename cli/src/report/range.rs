//! The largest gradient of each site over time, between the limits of its format at the site's scale.

use super::{
    Report,
    axis::{Axis, Unit},
    page::{card, details, grid, section},
    plot::Plot,
    series::extent,
    site,
    text::escape,
};
use crate::record::{
    Record, SiteSeries,
    gradients::{self, format_of},
    site_names::shorten_names,
};
use gradscale::gradscale_core::store_format::StoreFormat;

/// Returns the HTML section of the report about the largest gradients and their distance from overflow.
pub fn section_of(report: &Report<'_>) -> String {
    const HEADING: &str = "Largest gradients and headroom";
    let names = report.sites();
    if names.is_empty() {
        return section("range", HEADING, "No method stores gradients in f16.", "");
    }
    let first = report.gradient_scaling().map(|(method, _)| method).next();
    let content: String = report
        .with_sites()
        .filter_map(|(method, class)| {
            let run = report.runs_of(method).find(|run| !run.sites.is_empty())?;
            let range = range(run);
            let cards = names
                .iter()
                .zip(shorten_names(&names))
                .filter_map(|(name, short)| Some(card(&escape(short), &drawing(run, site(run, name)?, range, &class))));
            let skipped = run.skipped_at.len();
            let summary = format!("{}, seed {}: {skipped} skipped steps", escape(method), run.seed);
            Some(details(&summary, first == Some(method), &grid("small", &cards.collect::<Vec<_>>())))
        })
        .collect();
    let lead = "The line is log₂ of the largest magnitude of a step. The area around it is what the site’s format holds at its \
                scale: above <span class=\"z2\">normal</span> numbers a value overflows, below \
                <span class=\"z1\">subnormal</span> ones it is flushed. <span class=\"z3\">Ticks</span> at the bottom are \
                skipped steps.";
    section("range", HEADING, lead, &content)
}

/// Returns the limits of a site's values over the steps: flushed, normal, overflow, as powers of two.
fn limits(site: &SiteSeries, format: StoreFormat) -> impl Iterator<Item = (f64, [f64; 3])> {
    let limits = move |alpha: i32| gradients::limits(format).map(|limit| f64::from(limit - alpha));
    site.iteration.iter().zip(&site.alpha).map(move |(&step, &alpha)| (step as f64, limits(alpha)))
}

/// Returns a common axis for all sites of a run, so that they can be compared.
fn range(run: &Record) -> Axis {
    let format = format_of(&run.method);
    let ends = run.sites.iter().flat_map(|site| {
        let largest = site.amax.iter().copied().flatten();
        largest.chain(limits(site, format).flat_map(|(_, [low, _, high])| [low, high]))
    });
    let (low, high) = extent(ends);
    Axis::new(Unit::Exponent, low - 2.0, high + 2.0)
}

fn drawing(run: &Record, site: &SiteSeries, range: Axis, class: &str) -> String {
    let mut plot = Plot::small(Axis::new(Unit::Plain, 0.0, run.iterations as f64), range);
    let band = |from: usize, to: usize| -> Vec<(f64, f64, f64)> {
        limits(site, format_of(&run.method)).map(|(step, limits)| (step, limits[from], limits[to])).collect()
    };
    plot.band("zone z1", &band(0, 1));
    plot.band("zone z2", &band(1, 2));
    let points = site.iteration.iter().zip(&site.amax);
    let points: Vec<_> = points.map(|(&step, amax)| (step as f64, amax.unwrap_or(f64::NAN))).collect();
    plot.line(&format!("line {class}"), &points);
    for &step in &run.skipped_at {
        let x = plot.x.at(step as f64);
        plot.svg.line("line z3", (x, plot.y.from), (x, plot.y.from - 7.0));
    }
    plot.svg.finish(&format!("Largest gradient of {} over training steps", site.name))
}
