//! Calls the functions that a device would call, and prints nothing, because formatting links panics. No code of this
//! program can panic, so its handler is not linked; `run.sh` checks that.

#![no_std]
#![no_main]

use core::{hint::black_box, panic::PanicInfo};
use cortex_m_rt::entry;
use gradscale_core::{
    cast::Round,
    format::Format,
    scaled::Scaled,
    site::{Site, SiteConfig, SiteOutcome},
    solve::Exact,
    stats::{Convention, Detail, Stats, WORDS},
};
use gradscale_firmware::probes;
use half::f16;

const N: usize = 64;

#[entry]
fn main() -> ! {
    let (mut v, mut y, mut patterns, words) = ([0f32; N], [f16::ZERO; N], [0u16; N], [0; WORDS]);
    let parts = [Scaled::new(1f32, 3); 3];
    // Slices of unknown length, as for the callee. With known lengths the compiler would remove checks here that it
    // keeps elsewhere.
    let (v, y, patterns) = (black_box(&mut v[..]), black_box(&mut y[..]), black_box(&mut patterns[..]));
    let (words, parts) = (black_box(&words[..]), black_box(&parts[..]));
    let mut row = black_box(Stats::new(Convention::FP16, 0, Detail::Moments));
    let mut other = black_box(row);
    let mut site = black_box(Site::new(SiteConfig::exact()));
    loop {
        probes::rescale(v, black_box(0), black_box(1));
        probes::observe(&mut row, v);
        black_box(probes::store(v, y)).ok();
        black_box(probes::encode(black_box(Format::FP16), v, patterns, black_box(Round::NearestEven))).ok();
        black_box(probes::dither(black_box(Format::FP16), v, patterns, black_box(1))).ok();
        black_box(probes::load(y, v)).ok();
        black_box(probes::merge(&mut row, &other)).ok();
        black_box(probes::send(&row));
        if let Ok(received) = probes::receive(words, row.convention(), row.exponent()) {
            other = received;
        }
        black_box(probes::decide(black_box(&Exact::FP16), &row)).ok();
        if let Ok(site) = &mut site {
            black_box(probes::step(site, &row, black_box(SiteOutcome::Skipped)));
        }
        black_box(probes::branch(parts));
        #[cfg(feature = "models")]
        models(&row, &other);
    }
}

/// Runs the paper's rules, the schedules and the operators. They are several times the code of the rest, most of it f64
/// arithmetic in software.
#[cfg(feature = "models")]
fn models(row: &Stats, other: &Stats) {
    use gradscale_core::{
        loss_scale::{Dynamic, Feedback, LossScale},
        model::terms::{ConvShape, Terms},
        ops::{At, Unary},
    };
    black_box(probes::decide_by_models(black_box(1e-3), row, other, black_box(Terms::linear(9)))).ok();
    let shape = ConvShape { out_channels: 8, kernel: [3; 2], stride: [2; 2], dilation: [1; 2], groups: 1 };
    black_box(probes::terms(black_box(shape))).ok();
    black_box(probes::operator(black_box(Unary::Id), black_box(0.5), black_box(1.0), black_box(At::default())));
    let mut scale = black_box(LossScale::Dynamic(Dynamic::default()));
    black_box(probes::schedule(&mut scale, black_box(&Feedback::FOUND_INF))).ok();
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    panicked()
}

/// Function with a unique name that `run.sh` can find, whatever panic machinery the compiler links.
#[inline(never)]
fn panicked() -> ! {
    cortex_m::asm::udf()
}
