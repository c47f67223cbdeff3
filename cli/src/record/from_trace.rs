//! Conversion of a trace to a record.

use super::{Event, Extremes, LogEntry, Point, Record, Recorder};
use gradscale::{
    Cause, Repeated, SiteReport, Skipped,
    gradscale_core::{
        stats::Stats,
        step_outcome::{self, NonFiniteKind},
    },
    replay::{OverflowedActivation, Seen, Step},
};
use std::collections::{BTreeMap, HashMap};

/// Returns the record of a training under the name `method`. A trace has no losses, scores and predictions of
/// decisions.
///
/// # Errors
/// Rows that are none, in words.
pub fn recorded(method: &str, steps: &[Step]) -> Result<Record, String> {
    let last = steps.last().map_or(0, |step| step.iteration);
    let mut recorder = Recorder::new(method, 0, last, &[]);
    let mut extremes: HashMap<&str, Extremes> = HashMap::new();
    let mut overflows: HashMap<&str, u64> = HashMap::new();
    let mut repeated = Vec::new();
    for step in steps {
        let rows = step.sites.iter().map(Seen::row).collect::<Result<Vec<_>, _>>()?;
        for (seen, row) in step.sites.iter().zip(&rows) {
            *overflows.entry(&seen.name).or_default() += row.counts().non_finite();
        }
        let sites = step.sites.iter().zip(&rows).map(|(seen, row)| report(seen, row, overflows[&seen.name[..]]));
        let sites: Vec<SiteReport<'_>> = sites.collect();
        let blame = step_outcome::find_first_non_finite(rows.iter().map(Stats::counts));
        let blame = blame.map(|blame| (step.sites[blame.site].name.clone(), blame));
        let activation = step.activation.clone().map(|OverflowedActivation { site, exponent }| (site, exponent));
        if step.repeated {
            let activation = activation.map(|(site, exponent)| Repeated {
                site,
                kind: NonFiniteKind::Overflow,
                exponent,
                excess: None,
            });
            let gradient =
                blame.map(|(site, blame)| Repeated { site, kind: blame.kind, exponent: blame.exponent, excess: None });
            let said = activation.or(gradient);
            repeated.extend(said.map(|said| Event::new(&said, Some(&said.site), &sites)));
            continue;
        }
        for (seen, site) in step.sites.iter().zip(&sites) {
            extremes.entry(&seen.name).or_default().add(site);
        }
        let sampled = recorder.samples(step.iteration);
        let points = sites.iter().filter(|_| sampled);
        let points = points.map(|site| Point::new(site, extremes[site.name], step.iteration)).collect();
        let skipped = step.skipped.then(|| {
            let gradient = blame.as_ref().map(|(site, blame)| (site.clone(), blame.kind, blame.exponent));
            let first = activation.map(|(site, exponent)| (site, NonFiniteKind::Overflow, exponent)).or(gradient);
            let said = Skipped {
                site: first.as_ref().map(|(site, kind, _)| (site.clone(), *kind)),
                exponent: first.as_ref().map_or(0, |(_, _, exponent)| *exponent),
                cause: Cause::NotFinite,
                // A trace has no losses.
                loss: None,
            };
            Event::new(&said, blame.as_ref().map(|(site, _)| &site[..]), &sites)
        });
        recorder.restore(&LogEntry {
            iteration: step.iteration,
            loss: f32::NAN,
            losses: BTreeMap::new(),
            seconds: 0.0,
            skipped,
            repeated: std::mem::take(&mut repeated),
            scores: None,
            validation: None,
            sites: points,
            activations: Vec::new(),
            ranks: None,
        });
    }
    Ok(recorder.done())
}

/// Returns the report of a site from its row alone.
fn report<'a>(seen: &'a Seen, row: &'a Stats, overflows: u64) -> SiteReport<'a> {
    let counts = row.counts();
    let share = |part: u64| if counts.nonzero() == 0 { 0.0 } else { part as f64 / counts.nonzero() as f64 };
    SiteReport {
        name: &seen.name,
        alpha: seen.next,
        row,
        gamma_measured: share(counts.flushed),
        gamma_predicted: None,
        bound: None,
        overflows,
        subnormal_share: share(counts.subnormal),
        log2_amax: (counts.amax > 0.0).then(|| f64::from(counts.amax).log2() - f64::from(counts.exponent)),
    }
}
