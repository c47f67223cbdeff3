//! Where the gradients of parts are added up: by the devices of all ranks, where these reach one another, or by the hosts.

use super::Trainer;
use crate::{
    Error,
    graph::{Fixed, Part},
    parallel::{self, Exchange, Group, Kind, Measured, Route, Sums},
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, Invitation},
};
use pollster::block_on;
use std::time::Instant;

/// The gradients of this rank's parts.
pub(super) enum Added {
    Host(Sums),
    /// In the devices' own memory.
    Devices,
}

impl<B: Backend> Trainer<B> {
    /// How gradients get from rank to rank.
    #[must_use]
    pub const fn route(&self) -> &Route {
        &self.ranks.route
    }

    /// How long gradients are on their way in a step of so many parts, either way, by trying: see [`Group::measure`].
    ///
    /// # Errors
    /// A rank that is gone or has failed, and the device's.
    pub fn measure_exchange(&mut self, parts: u32) -> Result<Measured, Error<B::Error>> {
        let weights: Vec<usize> = self.parameters.weights().collect();
        let group = self.ranks.group.clone();
        let Route::Devices(_) = self.ranks.route else {
            let weights = weights.iter().map(|&id| self.parameters.len(id)).sum();
            return Ok(group.measure(weights, parts)?);
        };
        group.race(|exchange| {
            self.begin_sums(&weights, parts, exchange)?;
            for _ in 0..parallel::share(parts, group.rank(), group.size()) {
                self.add_gradients(&mut Added::Devices, &weights)?;
            }
            self.exec.wire_mean().map_err(Error::Device)
        })
    }

    /// Lets the devices of all ranks reach one another, where they can.
    pub(super) fn connect(&mut self, group: &Group) -> Result<Route, Error<B::Error>> {
        if group.is_alone() {
            return Ok(Route::Host(None));
        }
        let by = self.exec.device().reaches_by();
        let can = group.numbers(by.is_some().into())?;
        let Some(by) = by.filter(|_| !can.contains(&0)) else { return Ok(Route::Host(None)) };
        let invited = if group.rank() == 0 { self.exec.device().invite().map(Some) } else { Ok(None) };
        let mine = invited.as_ref().ok().copied().flatten();
        let invitation = group.share(mine.as_ref().map_or(&[], Invitation::as_slice))?;
        let joined = match (invited, <&Invitation>::try_from(&invitation[..])) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), Ok(invitation)) => {
                let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                let (rank, size) = (number(group.rank()), number(group.size()));
                self.exec.device_mut().join(invitation, rank, size).map_err(|error| error.to_string())
            }
            // Rank 0 says why.
            (Ok(_), Err(_)) => Ok(()),
        };
        let why = joined.err().unwrap_or_default();
        let all = group.gather(Kind::Told, why.as_bytes())?;
        let refused = all.iter().enumerate().find(|(_, why)| !why.is_empty());
        Ok(match refused {
            Some((rank, why)) => Route::Host(Some(format!("rank {rank}: {}", String::from_utf8_lossy(why)))),
            None => Route::Devices(by),
        })
    }

    /// Room for the gradients of some parameters.
    pub(super) fn begin_sums(
        &mut self, contributes: &[usize], parts: u32, exchange: Exchange,
    ) -> Result<Added, Error<B::Error>> {
        let len = contributes.iter().map(|&id| self.parameters.len(id)).sum();
        let group = &self.ranks.group;
        if let Route::Devices(_) = self.ranks.route {
            self.exec.wire_begin(len, parts, exchange == Exchange::Exact).map_err(Error::Device)?;
            return Ok(Added::Devices);
        }
        Ok(Added::Host(Sums::new(exchange, len, (parts, group.rank(), group.size()))))
    }

    /// Adds those of the part that has just run.
    pub(super) fn add_gradients(&mut self, added: &mut Added, contributes: &[usize]) -> Result<(), Error<B::Error>> {
        let mut at = 0;
        for &id in contributes {
            let (buf, len, exponent) =
                (Fixed::part(id, Part::Gradient), self.parameters.len(id), self.ranks.exponents[id]);
            match added {
                Added::Host(sums) => {
                    let values = block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device)?;
                    sums.add(at, &values, exponent);
                }
                Added::Devices => self.exec.wire_add((at, len), buf, exponent).map_err(Error::Device)?,
            }
            at += len;
        }
        Ok(())
    }

    /// The mean gradients of all parts, in the place of those of this rank's last part.
    pub(super) fn take_means(
        &mut self, contributes: &[usize], added: Added, parts: u32,
    ) -> Result<(), Error<B::Error>> {
        let group = self.ranks.group.clone();
        let means = match added {
            Added::Host(sums) => Some(parallel::mean(&group, sums, parts)?),
            Added::Devices => {
                let start = Instant::now();
                self.exec.wire_mean().map_err(Error::Device)?;
                group.carried(self.carried(contributes, parts), start);
                None
            }
        };
        let mut at = 0;
        for &id in contributes {
            let (buf, len) = (Fixed::part(id, Part::Gradient), self.parameters.len(id));
            let exponent = self.ranks.exponents[id].unwrap_or(0);
            match &means {
                Some(means) => {
                    let values = means.of(at..at + len, exponent);
                    self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
                }
                None => self.exec.wire_take((at, len), buf, exponent).map_err(Error::Device)?,
            }
            at += len;
        }
        Ok(())
    }

    /// Bytes to other ranks, if devices exchange them: of each value a half and the half of the mean; of several parts of a
    /// rank their sum in eight; f32 both ways.
    fn carried(&self, contributes: &[usize], parts: u32) -> u64 {
        let size = self.ranks.group.size();
        let bytes = match self.ranks.exchange {
            Exchange::Exact if parts as usize == size => 2 + 2,
            Exchange::Exact => 8 + 2,
            Exchange::Fast => 4 + 4,
        };
        let len: usize = contributes.iter().map(|&id| self.parameters.len(id)).sum();
        (len * bytes * (size - 1) / size) as u64
    }
}
