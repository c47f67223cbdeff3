//! Calls every entry point once or a few times with little data: short enough for an interpreter.

use crate::{hash::Hash, inputs, probes};
use core::fmt::{self, Write};
use gradscale_core::{
    cast::Round,
    format::Format,
    loss_scale::{Dynamic, DynamicConfig, Feedback, LossScale, RisingFloor},
    model::terms::{ConvShape, Terms},
    ops::{At, Unary},
    scaled::Scaled,
    site::{Memory, Site, SiteConfig, SiteOutcome},
    solve::Exact,
    stats::{Convention, Detail, Stats},
};
use half::f16;

const N: usize = 24;

/// Prints the section that calls each entry point of the library once and prints its result.
pub fn print(out: &mut impl Write) -> fmt::Result {
    let mut v = [0f32; N];
    for (v, i) in v.iter_mut().zip(0..) {
        *v = inputs::gradient(5, i, -18);
    }
    let (mut y, mut patterns) = ([f16::ZERO; N], [0u16; N]);
    probes::rescale(&mut v, -3, 2);
    writeln!(out, "store: {:?}, {:016x}", probes::store(&v, &mut y), sum(y.map(f16::to_bits)))?;
    for format in [Format::BF16, Format::E5M2.saturating(), Format::E4M3] {
        let encoded = probes::encode(format, &v, &mut patterns, Round::TowardZero);
        writeln!(out, "encode: {encoded:?}, {:016x}", sum(patterns))?;
        let dithered = probes::dither(format, &v, &mut patterns, 7);
        writeln!(out, "dither: {dithered:?}, {:016x}", sum(patterns))?;
    }
    writeln!(out, "too short: {:?}, {:?}", probes::store(&v, &mut y[1..]), probes::load(&y[1..], &mut v))?;

    let mut row = Stats::new(Convention::FP16, 5, Detail::Moments);
    probes::observe(&mut row, &v);
    writeln!(out, "load: {:?}", probes::load(&y, &mut v))?;
    let mut other = Stats::new(Convention::FP16, 5, Detail::Moments);
    probes::observe(&mut other, &v);
    writeln!(out, "merge: {:?}, {:?}", probes::merge(&mut row, &other), row.counts())?;
    let words = probes::send(&row);
    let received = probes::receive(&words, row.convention(), row.exponent());
    writeln!(
        out,
        "send: {:016x}, received: {}",
        sum(words),
        received.is_ok_and(|received| received.to_words() == words)
    )?;

    writeln!(out, "decide: {:?}", probes::decide(&Exact::FP16, &row))?;
    writeln!(out, "models: {:?}", probes::decide_by_models(1e-3, &row, &other, Terms::linear(10)))?;
    let shape = ConvShape { out_channels: 8, kernel: [3, 5], stride: [2, 1], dilation: [1, 4], groups: 2 };
    writeln!(out, "terms: {:?}", probes::terms(shape))?;
    writeln!(out, "branch: {:?}", probes::branch(&[Scaled::new(3.0, 4), Scaled::new(1e-30, -9), Scaled::new(0.0, 1)]))?;
    for &op in Unary::ALL {
        writeln!(out, "{op:?}: {:?}", probes::operator(op, 0.375, -1.5, At { seed: 1, index: 2 }))?;
    }
    sites(out, &row)?;
    schedules(out)
}

/// Prints the exponents of a site over more steps than its histories hold, and its final state.
fn sites(out: &mut impl Write, row: &Stats) -> fmt::Result {
    let Ok(mut site) = Site::new(SiteConfig { interval: 1, memory: Memory::Least, ..SiteConfig::exact() }) else {
        return Err(fmt::Error);
    };
    for step in 0..20 {
        let end = if step % 6 == 5 { SiteOutcome::Skipped } else { SiteOutcome::Stepped };
        writeln!(out, "site: {:?}", probes::step(&mut site, row, end))?;
    }
    let state = site.state();
    site.restore(&state);
    writeln!(out, "site: {state:?}, {}", site.history().count())
}

fn schedules(out: &mut impl Write) -> fmt::Result {
    let Ok(floor) = RisingFloor::new(&[(3, 15), (5, 16)]) else { return Err(fmt::Error) };
    let Ok(dynamic) = Dynamic::new(DynamicConfig { interval: 2, floor, ..DynamicConfig::default() }) else {
        return Err(fmt::Error);
    };
    let mut schedule = LossScale::Dynamic(dynamic);
    for step in 0..10 {
        let feedback = if step % 3 == 0 { Feedback::FOUND_INF } else { Feedback::FINITE };
        writeln!(out, "schedule: {:?}", probes::schedule(&mut schedule, &feedback))?;
    }
    Ok(())
}

fn sum<const M: usize>(words: [impl Into<u64>; M]) -> u64 {
    let mut hash = Hash::new();
    for word in words {
        hash.add(word.into());
    }
    hash.get()
}
