//! Steps of a trace under a schedule.

use super::{
    rules::{Exponents, verdict},
    shift::shift,
};
use crate::trace::{Seen, Step};
use gradscale::{
    Preset, Scaling,
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
        let (mut rows, mut exponents) = (Vec::new(), Exponents::new());
        for seen in &step.sites {
            let row = seen.row()?;
            let alpha = self.exponent(seen, &row, &exponents).map_err(|cause| format!("{}: {cause}", seen.name))?;
            exponents.insert(seen.name.clone(), alpha);
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

    /// The exponent at which a site stores in this step.
    fn exponent(&mut self, seen: &Seen, row: &Stats, played: &Exponents) -> Result<i32, String> {
        let gradient = match &self.scaling {
            Scaling::Loss(schedule) => return Ok(schedule.exponent()),
            Scaling::Gradient(gradient) => *gradient,
        };
        if !self.sites.contains_key(&seen.name) {
            let site = Site::new(gradient.site).map_err(|error| error.to_string())?;
            self.sites.insert(seen.name.clone(), site);
        }
        let site = self.sites.get_mut(&seen.name).ok_or("a site vanished")?;
        if !site.wish().at_once {
            return Ok(site.alpha().unwrap_or_else(|| row.exponent()));
        }
        let (verdict, measured_at) = match gradient.preset {
            Preset::Exact => (site.exact(row), row.exponent()),
            preset => {
                let decides = seen.operands.as_ref();
                verdict(&preset, decides.ok_or("an older trace, without operands; record it again")?, row, played)?
            }
        };
        Ok(site.decide(verdict, measured_at).unwrap_or(measured_at))
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
