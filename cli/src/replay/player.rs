//! Steps of a trace under a schedule.

use super::shift::shift;
use crate::trace::Step;
use gradscale::{
    Scaling,
    core::{
        loss_scale::Feedback,
        scaled::Scaled,
        site::{End, Site},
        stats::Stats,
        step::blame,
    },
};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a step would have been.
#[derive(Debug, Serialize)]
pub struct Played {
    pub iteration: u64,
    pub skipped: bool,
    pub sites: Vec<PlayedSite>,
}

#[derive(Debug, Serialize)]
pub struct PlayedSite {
    pub name: String,
    /// Exponent in this step.
    pub alpha: i32,
    /// Exponent for the next.
    pub next: i32,
    pub gamma: f64,
    pub subnormal_share: f64,
}

/// Over all steps.
#[derive(Debug, Default)]
pub struct Summary {
    pub skipped: usize,
    pub sites: BTreeMap<String, Total>,
}

#[derive(Debug, Default)]
pub struct Total {
    pub first: i32,
    pub last: i32,
    pub steps: usize,
    pub flushed: f64,
    pub worst: f64,
    pub subnormal: f64,
}

#[derive(Debug)]
pub struct Player {
    scaling: Scaling,
    sites: BTreeMap<String, Site>,
    summary: Summary,
}

impl Player {
    pub fn new(scaling: Scaling) -> Self {
        Self { scaling, sites: BTreeMap::new(), summary: Summary::default() }
    }

    pub fn summary(self) -> Summary {
        self.summary
    }

    pub fn step(&mut self, step: &Step) -> Result<Played, String> {
        let mut rows: Vec<Stats> = Vec::new();
        for seen in &step.sites {
            let row = seen.row()?;
            let alpha = match &self.scaling {
                Scaling::Loss(schedule) => schedule.exponent(),
                Scaling::Gradient(gradient) => {
                    if !self.sites.contains_key(&seen.name) {
                        let site = Site::new(gradient.site).map_err(|error| error.to_string())?;
                        self.sites.insert(seen.name.clone(), site);
                    }
                    let site = self.sites.get_mut(&seen.name).ok_or("a site vanished")?;
                    let decided =
                        if site.wish().at_once { site.decide(site.exact(&row), row.exponent()) } else { site.alpha() };
                    decided.unwrap_or_else(|| row.exponent())
                }
            };
            rows.push(shift(&row, alpha));
        }
        let counts: Vec<_> = rows.iter().map(Stats::counts).collect();
        let blame = blame(counts.iter().copied());
        // Without the parameters' own rows: what overflows at a site reaches some parameter.
        let skipped = blame.is_some();
        for (at, (seen, row)) in step.sites.iter().zip(&rows).enumerate() {
            let end = match blame {
                None => End::Stepped,
                Some(blame) if at > blame.site => End::SkippedAfter,
                Some(_) => End::SkippedHere,
            };
            if let Some(site) = self.sites.get_mut(&seen.name) {
                site.finish(row, end);
            }
        }
        if let Scaling::Loss(schedule) = &mut self.scaling {
            let largest = counts.iter().map(|counts| Scaled::new(counts.amax, counts.exponent));
            let amax = largest.reduce(|a, b| if b.data > a.data { b } else { a });
            schedule.update(&Feedback { found_inf: skipped, amax });
        }
        self.summary.skipped += usize::from(skipped);
        let sites = step.sites.iter().zip(&rows).map(|(seen, row)| self.note(&seen.name, row)).collect();
        Ok(Played { iteration: step.iteration, skipped, sites })
    }

    fn note(&mut self, name: &str, row: &Stats) -> PlayedSite {
        let counts = row.counts();
        let share = |part: u64| if counts.nonzero() == 0 { 0.0 } else { part as f64 / counts.nonzero() as f64 };
        let (gamma, subnormal_share) = (share(counts.flushed), share(counts.subnormal));
        let next = match &self.scaling {
            Scaling::Loss(schedule) => schedule.exponent(),
            Scaling::Gradient(_) => self.sites.get(name).and_then(Site::alpha).unwrap_or(counts.exponent),
        };
        let first = Total { first: counts.exponent, ..Total::default() };
        let total = self.summary.sites.entry(name.to_owned()).or_insert(first);
        total.last = counts.exponent;
        total.steps += 1;
        total.flushed += gamma;
        total.worst = total.worst.max(gamma);
        total.subnormal += subnormal_share;
        PlayedSite { name: name.to_owned(), alpha: counts.exponent, next, gamma, subnormal_share }
    }
}
