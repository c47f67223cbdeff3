//! Normalisations: sums over groups by parts, numbers of groups, then element by element.

use super::parallel_reduce::Split;
use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{Call, strided},
};
use gradscale_core::{
    backend::{NormSaved, Store},
    ops::{Norm, NormOver},
};

/// Bytes of a group's numbers, and of its total: of one f32, or of two.
const NUMBERS: u64 = 16;
const ONE: u64 = 4;
const TWO: u64 = 8;

/// The value of `BATCH`.
fn batch(p: &Norm) -> u32 {
    u32::from(p.over() == NormOver::Batch)
}

/// The members of `Shape` in norm_groups.wgsl.
fn shape(p: &Norm) -> [u32; 4] {
    let [_, h, w, channels] = p.x();
    let groups = match p.over() {
        NormOver::Batch => 1,
        NormOver::Group(groups) => groups,
    };
    [h * w, channels, groups, p.size()]
}

/// How the sums over groups are divided: the groups of a batch lie side by side.
fn over_groups(p: &Norm) -> Split {
    let beside = if p.over() == NormOver::Batch { p.x()[3] } else { 1 };
    Split::new(p.groups(), p.size(), beside)
}

/// The scale of channels, or nothing in its place.
fn scale<'a>(x: &NormSaved<&'a Memory>, call: Call<'a>) -> Call<'a> {
    match x.weight {
        Some(scale) => call.memory(7, scale),
        None => call.unused(7, x.x),
    }
}

impl Wgpu {
    pub(crate) fn run_norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let len = p.x().iter().product::<u32>();
        if p.groups() == 0 {
            return Ok(());
        }
        if !p.is_given() {
            self.save(p, x, saved, 0)?;
            self.save(p, x, saved, 1)?;
        }
        let numbers = self.group_numbers(p, saved)?;
        let call = Call::new(&kernel::NORM).constant("BATCH", batch(p)).constant("AFFINE", affine.is_some().into());
        let call = call.params(shape(p)).params([len]).operand(x);
        let call = match affine {
            Some([scale, shift]) => call.memory(6, scale).memory(7, shift),
            None => call.unused(6, x).unused(7, x),
        };
        let call = call.buffer(9, &numbers);
        self.launch(call.store(y), strided(len.div_ceil(8)))
    }

    /// Saves means (0) or variances (1).
    fn save(&self, p: &Norm, x: &Memory, saved: &Memory, which: u32) -> Result<(), Error> {
        // Where nothing is centred, the mean of no terms is 0.
        let terms = which == 1 || p.is_centered();
        let split = if terms { over_groups(p) } else { Split::new(p.groups(), 0, 1) };
        let parts = self.totals(split.bytes(ONE))?;
        let (name, along) = split.along();
        let call = Call::new(&kernel::NORM_MOMENT).constant("BATCH", batch(p)).constant("SECOND", which);
        let call = call.constant(name, along).params(split.params()).params(shape(p)).operand(x);
        self.launch(call.memory(7, saved).buffer(8, &parts), split.groups())?;
        let end = split.of_parts();
        let (name, along) = end.along();
        let call = Call::new(&kernel::NORM_SAVE).constant(name, along).params(end.params());
        let call = call.params([which * p.groups(), p.size()]).memory(3, saved).buffer(8, &parts);
        self.launch(call, end.groups())
    }

    /// Mean and inverse of each group.
    fn group_numbers(&self, p: &Norm, saved: &Memory) -> Result<wgpu::Buffer, Error> {
        let numbers = self.numbers(NUMBERS * u64::from(p.groups()))?;
        let call = Call::new(&kernel::NORM_NUMBERS).params([p.groups(), p.eps().to_bits()]);
        self.launch(call.memory(7, saved).buffer(9, &numbers), strided(p.groups()))?;
        Ok(numbers)
    }

    pub(crate) fn run_norm_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: &Store<'_, Self>,
        affine: Option<&[Store<'_, Self>; 2]>,
    ) -> Result<(), Error> {
        let [n, h, w, channels] = p.x();
        let len = n * h * w * channels;
        let is_batch = p.over() == NormOver::Batch;
        let scaled = u32::from(x.weight.is_some());
        let numbers = if p.groups() == 0 { self.numbers(NUMBERS)? } else { self.group_numbers(p, x.saved)? };
        // Sums over channels serve as those over groups where a group is a channel.
        let weigh = |split: Split, over_channels: bool| {
            let parts = self.totals(split.bytes(TWO))?;
            let (name, along) = split.along();
            let call = Call::new(&kernel::NORM_WEIGH)
                .constant("BATCH", batch(p))
                .constant("CHANNELS", over_channels.into())
                .constant("SCALED", scaled)
                .constant(name, along);
            let call = call.params(split.params()).params(shape(p)).operand(x.x).operand(dy);
            let call = scale(&x, call).buffer(8, &parts).buffer(9, &numbers);
            self.launch(call, split.groups())?;
            Ok::<_, Error>(parts)
        };
        if !p.is_given() && p.groups() != 0 {
            let split = over_groups(p);
            let parts = weigh(split, is_batch)?;
            let end = split.of_parts();
            let (name, along) = end.along();
            let call = Call::new(&kernel::NORM_MEANS)
                .constant("SCALED", scaled * batch(p))
                .constant("CENTERED", p.is_centered().into())
                .constant(name, along);
            let call = call.params(end.params()).params([p.size()]);
            self.launch(scale(&x, call).buffer(8, &parts).buffer(9, &numbers), end.groups())?;
        }
        if len != 0 {
            let call = Call::new(&kernel::NORM_VJP).constant("BATCH", batch(p)).constant("SCALED", scaled);
            let call = call.params(shape(p)).params([len]).operand(x.x).operand(dy);
            let call = scale(&x, call).buffer(9, &numbers);
            self.launch(call.store(dx), strided(len.div_ceil(8)))?;
        }
        let Some(stores) = affine.filter(|_| channels != 0) else { return Ok(()) };
        let split = Split::new(channels, n * h * w, channels);
        // Those of a batch are still there.
        let parts = if is_batch && !p.is_given() { self.totals(split.bytes(TWO))? } else { weigh(split, true)? };
        let end = split.of_parts();
        for (store, is_scale) in stores.iter().zip([1, 0]) {
            let (name, along) = end.along();
            let call = Call::new(&kernel::NORM_AFFINE).constant("SCALE", is_scale).constant(name, along);
            self.launch(call.params(end.params()).buffer(8, &parts).store(store), end.groups())?;
        }
        Ok(())
    }
}
