//! Where the gradients of parts are added up: by the devices of all ranks, where these reach one another, or by the hosts.

use crate::{
    Error,
    distributed::{self, Exchange, Group, Kind, Means, Measured, Pending, Route, Sums},
    graph::{Fixed, Part},
    train::Trainer,
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, Invitation},
};
use std::time::Instant;

/// The gradients of this rank's parts.
#[derive(Debug)]
pub(in crate::train) enum Added {
    /// In the order in which they travel.
    Host(Vec<Parcel>),
    /// In the devices' own memory.
    Devices,
}

/// Gradients that travel together.
#[derive(Debug)]
pub(in crate::train) struct Parcel {
    pub weights: Vec<usize>,
    pub travels: Travels,
}

/// When they do.
#[derive(Debug)]
pub(in crate::train) enum Travels {
    /// When it is known that they fit.
    Behind(Sums),
    /// They are on their way.
    Ahead(Pending<Means>),
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
            self.begin_on_devices(&weights, parts, exchange)?;
            for _ in 0..distributed::share(parts, group.rank(), group.size()) {
                self.add_on_devices(&weights)?;
            }
            self.exec.wire_mean().map_err(Error::Device)
        })
    }

    /// Lets the devices of all ranks reach one another, where they can.
    pub(in crate::train) fn connect(&mut self, group: &Group) -> Result<Route, Error<B::Error>> {
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

    /// Room for the gradients of a step's parts, of which this program is one.
    pub(in crate::train) fn begin_sums(&mut self, program: usize) -> Result<Added, Error<B::Error>> {
        let program = self.exec.program(program);
        let mut weights = program.contributes.clone();
        weights.sort_unstable();
        if let Route::Devices(_) = self.ranks.route {
            self.begin_on_devices(&weights, self.ranks.parts.count, self.ranks.exchange)?;
            return Ok(Added::Devices);
        }
        let mut all: Vec<Vec<usize>> = program.buckets.iter().map(|bucket| bucket.weights.clone()).collect();
        if all.is_empty() {
            all.push(weights);
        }
        let place = (self.ranks.parts.count, self.ranks.group.rank(), self.ranks.group.size());
        let parcel = |weights: Vec<usize>| {
            let len = weights.iter().map(|&id| self.parameters.len(id)).sum();
            Parcel { weights, travels: Travels::Behind(Sums::new(self.ranks.exchange, len, place)) }
        };
        Ok(Added::Host(all.into_iter().map(parcel).collect()))
    }

    fn begin_on_devices(&mut self, weights: &[usize], parts: u32, exchange: Exchange) -> Result<(), Error<B::Error>> {
        let len = weights.iter().map(|&id| self.parameters.len(id)).sum();
        self.exec.wire_begin(len, parts, exchange == Exchange::Exact).map_err(Error::Device)
    }

    /// Adds the gradients of the part that has just run, in the devices' own memory.
    pub(in crate::train) fn add_on_devices(&mut self, weights: &[usize]) -> Result<(), Error<B::Error>> {
        let mut at = 0;
        for &id in weights {
            let (buf, len) = (Fixed::part(id, Part::Gradient), self.parameters.len(id));
            self.exec.wire_add((at, len), buf, self.ranks.exponents[id]).map_err(Error::Device)?;
            at += len;
        }
        Ok(())
    }

    /// Adds those of a parcel, unless it has been sent.
    pub(in crate::train) async fn add_parcel(&self, parcel: &mut Parcel) -> Result<(), Error<B::Error>> {
        let Travels::Behind(sums) = &mut parcel.travels else { return Ok(()) };
        let mut at = 0;
        for &id in &parcel.weights {
            let (buf, len) = (Fixed::part(id, Part::Gradient), self.parameters.len(id));
            let values = self.exec.read(buf, Precision::Single, len).await.map_err(Error::Device)?;
            sums.add(at, &values, self.ranks.exponents[id]);
            at += len;
        }
        Ok(())
    }

    /// The mean gradients of all parts, in the place of those of this rank's last part.
    pub(in crate::train) fn take_means(&mut self, contributes: &[usize], added: Added) -> Result<(), Error<B::Error>> {
        let (group, parts) = (self.ranks.group.clone(), self.ranks.parts.count);
        match added {
            Added::Host(parcels) => {
                for Parcel { weights, travels } in parcels {
                    let means = match travels {
                        Travels::Behind(sums) => group.mean(sums, parts)?,
                        Travels::Ahead(pending) => pending.wait()?,
                    };
                    self.write_means(&weights, &means)?;
                }
            }
            Added::Devices => {
                let start = Instant::now();
                self.exec.wire_mean().map_err(Error::Device)?;
                group.carried(self.carried(contributes, parts), start);
                let mut at = 0;
                for &id in contributes {
                    let (buf, len) = (Fixed::part(id, Part::Gradient), self.parameters.len(id));
                    let exponent = self.ranks.exponents[id].unwrap_or(0);
                    self.exec.wire_take((at, len), buf, exponent).map_err(Error::Device)?;
                    at += len;
                }
            }
        }
        Ok(())
    }

    fn write_means(&mut self, weights: &[usize], means: &Means) -> Result<(), Error<B::Error>> {
        let mut at = 0;
        for &id in weights {
            let (buf, len) = (Fixed::part(id, Part::Gradient), self.parameters.len(id));
            let values = means.of(at..at + len, self.ranks.exponents[id].unwrap_or(0));
            self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
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
