//! A step in parts, some of them on other ranks.
//!
//! Each part is run as if it were the whole step, but at the exponents of its first part, and its rows add up. Its weight
//! gradients are rounded to halves, added exactly and rounded once, also where there is only one rank: that is why
//! results do not depend on how many there are. All that decides anything (rows, losses, statistics) is known on all
//! ranks before anything is decided, and merged in the order of the parts; so all decide alike, and repeat together.

use crate::{
    Error,
    distributed::{self, BatchStatistics, Exchange, Kind, MOST_PARTS, ParallelError},
    graph::{Buf, Fixed, Part},
    train::{
        Gradients, StepOutcome, Trainer,
        distributed::{Turn, buckets::Parts, step_report},
        step::Failed,
    },
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data},
    stats::Stats,
};
use pollster::block_on;
use std::fmt;

/// What a rank has of its parts before it hears of the others.
struct Own {
    /// Of the last part: what its gradients are.
    gradients: Gradients,
    /// Which parameters and slots that is about.
    digest: u32,
    /// Loss, and statistics that wait, of each part.
    values: Vec<f32>,
}

/// Rows of all ranks; losses and statistics of all parts, in their order.
type Merged = (Vec<Stats>, Vec<f32>);

impl<B: Backend> Trainer<B> {
    /// One step over so many parts. `part` runs the forward and backward pass of the part with that number
    /// ([`Trainer::backward`] or its kin, once) and returns its gradients; with several ranks each calls it for its own
    /// parts only: number p is that of rank p modulo their number. The step is taken with the mean of the parts' gradients,
    /// and its loss is the mean of theirs. Weights do not depend on the number of ranks, but on that of parts.
    ///
    /// `part` is called again, with the same seed of dropout, where a step is repeated, and must then do the same.
    /// Gradients of the outcome's clipping are those of all parts; running statistics are the mean over all parts.
    ///
    /// # Errors
    /// Those of `part`, here or on another rank; fewer parts than ranks, or more than [`MOST_PARTS`]; parts that run other
    /// networks, or more than one pass; more parts than ranks where batch norm is over all of them
    /// ([`Trainer::with_batch_statistics`]); those of [`Trainer::step`].
    pub fn step_parts<E: From<Error<B::Error>> + fmt::Display>(
        &mut self, parts: u32, mut part: impl FnMut(&mut Self, u32) -> Result<Gradients, E>,
    ) -> Result<StepOutcome, E> {
        let ranks = self.ranks.group.size();
        if usize::try_from(parts).is_ok_and(|parts| parts < ranks) || !(1..=MOST_PARTS).contains(&parts) {
            return Err(wrong(ParallelError::Parts { parts, ranks }));
        }
        if self.settings.batch_statistics == BatchStatistics::World && parts as usize != ranks {
            return Err(wrong(ParallelError::BatchStatistics { parts, ranks }));
        }
        if self.settings.each_call {
            return Err(wrong(ParallelError::Part("has no running statistics of each call")));
        }
        self.attempts.clear();
        let (seed, mut failed) = (self.counters.seed, Failed::default());
        loop {
            let ended = self.attempt_parts(parts, &mut part, &mut failed);
            self.ranks.turn = Turn::Whole;
            self.ranks.parts.added = None;
            match ended {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => self.counters.seed = seed,
                Err(error) => {
                    self.counters.seed = seed;
                    self.ranks.group.fail(&error.to_string());
                    return Err(error);
                }
            }
        }
    }

    /// The outcome, unless all parts have to be run again.
    fn attempt_parts<E: From<Error<B::Error>>>(
        &mut self, parts: u32, part: &mut impl FnMut(&mut Self, u32) -> Result<Gradients, E>, failed: &mut Failed,
    ) -> Result<Option<StepOutcome>, E> {
        let seed = self.counters.seed;
        let own = self.run_parts(parts, part)?;
        self.counters.seed = seed + u64::from(parts);
        Ok(self.end_parts(parts, own, failed)?)
    }

    /// What all ranks make of their parts.
    fn end_parts(&mut self, parts: u32, own: Own, failed: &mut Failed) -> Result<Option<StepOutcome>, Error<B::Error>> {
        let (rows, _) = block_on(self.collect(false))?;
        let (rows, values) = self.gather_seen(&own, &rows, parts)?;
        let Own { mut gradients, .. } = own;
        let added = self.ranks.parts.added.take().ok_or(Error::Gradients)?;
        gradients.micro = parts;
        self.tickets.serial += 1;
        let statistics: usize = gradients.statistics.iter().map(|&(id, _)| self.parameters.len(id)).sum();
        let losses = values.chunks_exact(statistics + 1).map(|part| f64::from(part[0]));
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let loss = (losses.sum::<f64>() / f64::from(parts)) as f32;
        let mut norm = None;
        if !self.found_inf(&rows) {
            let exact = self.ranks.exchange == Exchange::Exact;
            if exact && !self.fit_exponents(&gradients, &rows) {
                return Ok(None);
            }
            self.take_means(&gradients.contributes, added)?;
            self.take_statistics(&mut gradients, &values, statistics)?;
            if self.update(&gradients)? {
                norm = Some(block_on(self.read_one(self.parameters.fixed().norm()))?);
            }
            self.share_updated(&gradients)?;
            if exact {
                self.next_exponents(&gradients, &rows);
            }
        }
        let before = failed.before(self.counters.failed);
        let (finished, read) = self.judge(&gradients, &rows, (loss, norm), (before, true));
        self.ended(&gradients, finished, read, failed)
    }

    /// Runs the parts of this rank.
    fn run_parts<E: From<Error<B::Error>>>(
        &mut self, parts: u32, part: &mut impl FnMut(&mut Self, u32) -> Result<Gradients, E>,
    ) -> Result<Own, E> {
        let (rank, size, seed) = (self.ranks.group.rank(), self.ranks.group.size(), self.counters.seed);
        let mut own: Option<Own> = None;
        self.ranks.parts = Parts { count: parts, ..Parts::default() };
        for number in (0..parts).skip(rank).step_by(size) {
            self.ranks.parts.last = number as usize + size >= parts as usize;
            self.ranks.turn = if own.is_none() { Turn::First } else { Turn::Later };
            self.counters.seed = seed + u64::from(number);
            let mut gradients = part(self, number)?;
            self.check_gradients(&gradients)?;
            if gradients.micro != 1 {
                return Err(wrong(ParallelError::Part("is one pass: cut the step into more parts")));
            }
            gradients.contributes.sort_unstable();
            gradients.statistics.sort_unstable();
            let own = match &mut own {
                Some(own) if own.digest != digest(&gradients) => {
                    return Err(wrong(ParallelError::Part("runs the same network as the others")));
                }
                Some(own) => {
                    own.gradients = gradients;
                    own
                }
                None => own.insert(Own { digest: digest(&gradients), gradients, values: Vec::new() }),
            };
            self.add_part(own)?;
        }
        if let Some(mut added) = self.ranks.parts.added.take() {
            self.send_rest(&mut added);
            self.ranks.parts.added = Some(added);
        }
        own.ok_or_else(|| wrong(ParallelError::Parts { parts, ranks: size }))
    }

    /// Takes a part's gradients, loss and statistics from the device.
    fn add_part(&mut self, own: &mut Own) -> Result<(), Error<B::Error>> {
        self.add_gradients(&own.gradients)?;
        own.values.push(block_on(self.read_one(self.parameters.fixed().loss()))?);
        for &(id, _) in &own.gradients.statistics {
            own.values.extend(self.gradient_of(id)?);
        }
        Ok(())
    }

    /// Whether the gradients of all parts could travel at their exponents. If not, they have others now, and all parts are
    /// to be run again: so it is in the first step, and where gradients have jumped.
    fn fit_exponents(&mut self, gradients: &Gradients, rows: &[Stats]) -> bool {
        let mut fit = true;
        for &id in &gradients.contributes {
            let amax = rows[usize::from(self.parameters.infos[id].slot.0)].counts().amax;
            let exponent = &mut self.ranks.exponents[id];
            if !distributed::fits(amax, *exponent) {
                *exponent = distributed::exponent(amax);
                fit = false;
            }
        }
        fit
    }

    /// Those of the next step; what is all zeros keeps its own.
    fn next_exponents(&mut self, gradients: &Gradients, rows: &[Stats]) {
        for &id in &gradients.contributes {
            let amax = rows[usize::from(self.parameters.infos[id].slot.0)].counts().amax;
            let exponent = &mut self.ranks.exponents[id];
            *exponent = distributed::exponent(amax).or(*exponent);
        }
    }

    /// The statistics that wait, of all parts, added in their order; each part's are so many values behind its loss.
    fn take_statistics(
        &mut self, gradients: &mut Gradients, values: &[f32], statistics: usize,
    ) -> Result<(), Error<B::Error>> {
        let mut at = 1;
        for (id, calls) in &mut gradients.statistics {
            let mut sum = vec![0f32; self.parameters.len(*id)];
            for part in values.chunks_exact(statistics + 1) {
                sum.iter_mut().zip(&part[at..]).for_each(|(sum, value)| *sum += value);
            }
            at += sum.len();
            *calls *= gradients.micro;
            self.exec.write(Fixed::part(*id, Part::Gradient), Data::F32(&sum)).map_err(Error::Device)?;
        }
        Ok(())
    }

    fn gradient_of(&self, id: usize) -> Result<Vec<f32>, Error<B::Error>> {
        let (buf, len) = (Fixed::part(id, Part::Gradient), self.parameters.len(id));
        block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device)
    }

    pub(in crate::train) async fn read_one(&self, buf: Buf) -> Result<f32, Error<B::Error>> {
        let one = self.exec.read(buf, Precision::Single, 1).await.map_err(Error::Device)?;
        Ok(one.first().copied().unwrap_or(f32::NAN))
    }

    /// The rows of all ranks, merged; losses and statistics of all parts, in their order.
    fn gather_seen(&self, own: &Own, rows: &[Stats], parts: u32) -> Result<Merged, Error<B::Error>> {
        let group = &self.ranks.group;
        let convention = rows.first().map(|row| format!("{:?}", row.convention())).unwrap_or_default();
        let convention = format!("{convention} {}", self.ranks.exchange);
        let digest = crc32c::crc32c_append(own.digest ^ self.sites.fingerprint(), convention.as_bytes());
        let all = group.gather(Kind::Seen, &step_report::write(digest, &own.values, rows))?;
        let share = |rank| distributed::share(parts, rank, group.size()) as usize;
        let of_part = own.values.len() / share(group.rank()).max(1);
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            step_report::read(bytes, digest, share(rank) * of_part, rows).ok_or(ParallelError::Apart(rank))
        };
        let seen = all.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let merged = step_report::merge(&seen, rows).ok_or(ParallelError::Apart(group.rank()))?;
        // Part p is of rank p modulo their number.
        let part = |part: usize| seen[part % group.size()].values.chunks_exact(of_part).nth(part / group.size());
        let values = (0..parts as usize).filter_map(part).flatten().copied().collect();
        Ok((merged, values))
    }
}

fn wrong<E, F: From<Error<E>>>(error: ParallelError) -> F {
    Error::Parallel(error).into()
}

/// A number that is the same where the same parameters got gradients, and the same slots rows.
fn digest(gradients: &Gradients) -> u32 {
    let Gradients { contributes, statistics, order, clip, loss, .. } = gradients;
    let clip = clip.map(f32::to_bits);
    crc32c::crc32c(format!("{contributes:?} {statistics:?} {order:?} {clip:?} {loss}").as_bytes())
}
