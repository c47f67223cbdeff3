//! Gradient scaling in another runtime: one cast site, three calls per step.
//!
//! `cargo run --release -p gradscale-core --example own_runtime`

use gradscale_core::{
    cast::{Round, f16_slice_from_f32},
    scale::Factor,
    site::{Site, SiteConfig, SiteOutcome},
    stats::{Convention, Stats},
};
use half::f16;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let mut site = Site::new(SiteConfig::exact())?;
    for step in 0..30 {
        // f32 results of your kernel, here shrinking during training. Unscaled FP16 would flush all of them.
        let gradient: Vec<f32> = (1..=1000).map(|i| i as f32 * 1e-12 * 0.8f32.powi(step)).collect();
        let request = site.request();
        if request.at_once {
            let mut probe = Stats::new(Convention::FP16, 0, request.detail);
            probe.observe(&gradient);
            site.decide(site.exact(&probe), 0);
        }
        // Epilogue of your kernel: scale, observe, round once.
        let alpha = site.alpha().unwrap_or(0);
        let scaled: Vec<f32> = gradient.iter().map(|&v| Factor::between(0, alpha).apply(v)).collect();
        let mut row = Stats::new(Convention::FP16, alpha, request.detail);
        row.observe(&scaled);
        let mut half = vec![f16::ZERO; scaled.len()];
        f16_slice_from_f32(&scaled, &mut half, Round::NearestEven)?;
        site.finish(&row, SiteOutcome::Stepped);
        println!("step {step:2}: 2^{alpha}, {} of {} flushed", row.counts().flushed, row.counts().nonzero());
    }
    site.history().for_each(|decision| println!("decided {decision}"));
    Ok(())
}
