//! Replay of a trace's steps with a schedule or rule.

use super::{
    Seen, Step,
    rules::{Exponents, verdict},
    shift::shift_in,
};
use crate::{Preset, Scaling};
use gradscale_core::{
    loss_scale::Feedback,
    scaled::Scaled,
    site::{Calls, Site},
    stats::{Counts, Stats},
    step_outcome::{FirstNonFinite, NonFiniteKind, find_first_non_finite, may_repeat, site_outcome},
    store_format::StoreFormat,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Replayed step of a trace, or an attempt at it that is repeated.
#[derive(Debug, Serialize)]
pub struct Played {
    /// Number of the replayed step, from 1.
    pub iteration: u64,
    /// True if the replayed method would have skipped the step.
    pub skipped: bool,
    /// True for a replayed attempt that overflowed; the same batch follows again, with the same number.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// Replayed records of the sites, in the order of the backward pass.
    pub sites: Vec<PlayedSite>,
}

/// Replayed record of one cast site in one step.
#[derive(Debug, Serialize)]
pub struct PlayedSite {
    /// Name of the replayed cast site: layer and operator.
    pub name: String,
    /// Exponent that the replayed method has for the site in this step.
    pub alpha: i32,
    /// Exponent that the replayed method decides for the next step.
    pub next: i32,
    /// Fraction of the site's non-zero values that would have flushed.
    pub gamma: f64,
    /// Fraction of the site's non-zero values that would have been subnormal.
    pub subnormal_share: f64,
}

/// Summary of a replay over all steps.
#[derive(Debug, Default)]
pub struct Summary {
    /// Number of steps that the replayed method skipped.
    pub skipped: usize,
    /// Number of attempts that the replayed method repeated.
    pub repeats: usize,
    /// Totals of the cast sites, by name.
    pub sites: BTreeMap<String, Total>,
}

/// Totals of one cast site over all replayed steps.
#[derive(Debug, Default)]
pub struct Total {
    /// Exponent of the site in its first step.
    pub first: i32,
    /// Exponent of the site in its last step.
    pub last: i32,
    /// Number of steps in which the site stored values.
    pub steps: usize,
    /// Sum over steps of the fraction of values that flushed.
    pub flushed: f64,
    /// Largest fraction of values that flushed in one step.
    pub worst: f64,
    /// Sum over steps of the fraction of values stored as subnormals.
    pub subnormal: f64,
}

/// Player of a trace: a schedule, or a rule for each site, that processes one step after the other.
#[derive(Debug)]
pub struct Player {
    scaling: Scaling,
    sites: BTreeMap<String, Site>,
    summary: Summary,
}

impl Player {
    /// Creates a player of traces in its initial state, for the scaling to replay.
    #[must_use]
    pub fn new(scaling: Scaling) -> Self {
        Self { scaling, sites: BTreeMap::new(), summary: Summary::default() }
    }

    /// Returns the summary of all steps that were replayed so far.
    #[must_use]
    pub fn summary(self) -> Summary {
        self.summary
    }

    /// Replays a step and returns its attempts, the final one last. `recorded` is the number of attempts that failed in
    /// the training.
    ///
    /// # Errors
    /// Rows that are invalid, or lack the operands that a rule needs; as a sentence.
    pub fn step(&mut self, step: &Step, recorded: u32) -> Result<Vec<Played>, String> {
        step.check_replayable()?;
        if step.repeated && step.activation.is_some() {
            return self.repeat_for_activation(step);
        }
        let mut attempts = Vec::new();
        loop {
            let rows = self.rows(step)?;
            let counts: Vec<&Counts> = rows.iter().map(Stats::counts).collect();
            let blame = find_first_non_finite(counts.iter().copied());
            let failed = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
            let repeated = blame.is_some_and(|blame| self.repeats(step, &rows, blame, failed, recorded));
            for (at, (seen, row)) in step.sites.iter().zip(&rows).enumerate() {
                let Some(site) = self.sites.get_mut(&seen.name) else { continue };
                if repeated {
                    site.repeat(row);
                } else {
                    site.finish(row, site_outcome(blame.is_none(), site.config().repeats(), blame, at));
                }
            }
            // Rows of parameters are not needed, because an overflow at a site reaches some parameter.
            let skipped = blame.is_some() && !repeated;
            if let Scaling::Loss(schedule) = &mut self.scaling {
                let largest = counts.iter().map(|counts| Scaled::new(counts.amax, counts.exponent));
                let amax = largest.reduce(|a, b| if b.data > a.data { b } else { a });
                schedule.update(&Feedback { found_inf: skipped, amax });
            }
            self.summary.skipped += usize::from(skipped);
            self.summary.repeats += usize::from(repeated);
            let played = step.sites.iter().zip(&rows).map(|(seen, row)| self.played(&seen.name, row));
            let sites: Vec<PlayedSite> = played.collect();
            if !repeated {
                sites.iter().for_each(|site| self.note(site));
            }
            attempts.push(Played { iteration: step.iteration, skipped, repeated, sites });
            if !repeated {
                return Ok(attempts);
            }
        }
    }

    /// Replays an attempt that failed because of an activation. No exponent of a gradient changes that, so a rule that
    /// repeats fails too, and any other has no such attempt.
    fn repeat_for_activation(&mut self, step: &Step) -> Result<Vec<Played>, String> {
        if !matches!(&self.scaling, Scaling::Gradient(gradient) if gradient.repeats()) {
            return Ok(Vec::new());
        }
        let rows = self.rows(step)?;
        for (seen, row) in step.sites.iter().zip(&rows) {
            if let Some(site) = self.sites.get_mut(&seen.name) {
                site.repeat(row);
            }
        }
        self.summary.repeats += 1;
        let sites = step.sites.iter().zip(&rows).map(|(seen, row)| self.played(&seen.name, row)).collect();
        Ok(vec![Played { iteration: step.iteration, skipped: false, repeated: true, sites }])
    }

    /// Returns the format of gradients in the replayed method.
    const fn format(&self) -> StoreFormat {
        match &self.scaling {
            Scaling::Loss(_) => StoreFormat::Fp16,
            Scaling::Gradient(gradient) => gradient.formats.gradient,
            Scaling::Blocks(blocks) => blocks.formats().gradient,
        }
    }

    /// Computes the statistics rows of a step at the replayed exponents.
    fn rows(&mut self, step: &Step) -> Result<Vec<Stats>, String> {
        let (mut rows, mut exponents) = (Vec::new(), Exponents::new());
        for seen in &step.sites {
            // The values of a store, as the replayed method would count them at the same exponent.
            let row = shift_in(&seen.row()?, seen.exponent, self.format());
            let alpha = self.exponent(seen, &row, &exponents).map_err(|cause| format!("{}: {cause}", seen.name))?;
            exponents.insert(seen.name.clone(), alpha);
            rows.push(shift_in(&row, alpha, self.format()));
        }
        Ok(rows)
    }

    /// Returns true if the batch would be repeated. One that is not finite is repeated only if the training has
    /// repeated it too.
    fn repeats(&self, step: &Step, rows: &[Stats], blame: FirstNonFinite, failed: u32, recorded: u32) -> bool {
        let Scaling::Gradient(gradient) = &self.scaling else { return false };
        let site = self.sites.get(&step.sites[blame.site].name);
        let outlier = blame.kind != NonFiniteKind::Nan && site.is_some_and(|site| site.is_outlier(&rows[blame.site]));
        let tried = blame.kind == NonFiniteKind::Overflow || failed < recorded;
        gradient.repeats() && tried && !outlier && may_repeat(Calls::One, failed)
    }

    /// Returns the exponent at which a cast site stores in the replayed step.
    fn exponent(&mut self, seen: &Seen, row: &Stats, played: &Exponents) -> Result<i32, String> {
        let gradient = match &self.scaling {
            Scaling::Loss(schedule) => return Ok(schedule.exponent()),
            Scaling::Gradient(gradient) => *gradient,
            Scaling::Blocks(_) => return Err("block scaling needs the values, which a trace does not have".to_owned()),
        };
        if !self.sites.contains_key(&seen.name) {
            let site = Site::new(gradient.site_in(self.format())).map_err(|error| error.to_string())?;
            self.sites.insert(seen.name.clone(), site);
        }
        let site = self.sites.get_mut(&seen.name).ok_or("a site vanished")?;
        if !site.request().at_once {
            // Delayed scaling starts at 2^0; any other site without an exponent stores at the incoming one.
            let first = if gradient.preset == Preset::Amax { 0 } else { row.exponent() };
            return Ok(site.alpha().unwrap_or(first));
        }
        let (verdict, measured_at) = match gradient.preset {
            Preset::Exact | Preset::Amax => (site.exact(row), row.exponent()),
            preset @ (Preset::Paper(_) | Preset::Authors(_)) => {
                let decides = seen.operands.as_ref();
                verdict(&preset, decides.ok_or("an older trace without operands; record it again")?, row, played)?
            }
        };
        Ok(site.decide(verdict, measured_at).unwrap_or(measured_at))
    }

    fn played(&self, name: &str, row: &Stats) -> PlayedSite {
        let counts = row.counts();
        let share = |part: u64| if counts.nonzero() == 0 { 0.0 } else { part as f64 / counts.nonzero() as f64 };
        let (gamma, subnormal_share) = (share(counts.flushed), share(counts.subnormal));
        let next = match &self.scaling {
            Scaling::Loss(schedule) => schedule.exponent(),
            Scaling::Gradient(_) | Scaling::Blocks(_) => {
                self.sites.get(name).and_then(Site::alpha).unwrap_or(counts.exponent)
            }
        };
        PlayedSite { name: name.to_owned(), alpha: counts.exponent, next, gamma, subnormal_share }
    }

    fn note(&mut self, site: &PlayedSite) {
        let first = Total { first: site.alpha, ..Total::default() };
        let total = self.summary.sites.entry(site.name.clone()).or_insert(first);
        total.last = site.alpha;
        total.steps += 1;
        total.flushed += site.gamma;
        total.worst = total.worst.max(site.gamma);
        total.subnormal += site.subnormal_share;
    }
}
