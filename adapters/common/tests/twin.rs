//! Reference site of the core, for comparison with an adapter's.

use gradscale_adapters::gradscale_core::{
    site::{Site, SiteConfig, SiteOutcome},
    stats::{Convention, Detail, Stats},
};
use half::f16;

/// Site of the core that receives the same gradients.
pub struct Twin(Site);

impl Twin {
    pub fn new() -> Self {
        Self(Site::new(SiteConfig::exact()).expect("a site"))
    }

    /// Runs one step and returns the exponent of its store, the stored values, and the fraction of them that flushed.
    pub fn step(&mut self, gradient: &[f32]) -> (i32, Vec<f32>, f64) {
        if self.0.request().at_once {
            let mut seen = Stats::new(Convention::FP16, 0, Detail::Full);
            seen.observe(gradient);
            self.0.decide(self.0.exact(&seen), 0);
        }
        let exponent = self.0.alpha().expect("a decision");
        let scaled: Vec<f32> = gradient.iter().map(|v| v * 2f32.powi(exponent)).collect();
        let mut row = Stats::new(Convention::FP16, exponent, self.0.request().detail);
        row.observe(&scaled);
        self.0.finish(&row, SiteOutcome::Stepped);
        let stored = scaled.iter().map(|&u| f16::from_f32(u).to_f32() * 2f32.powi(-exponent)).collect();
        (exponent, stored, row.counts().flushed as f64 / row.counts().nonzero() as f64)
    }
}
