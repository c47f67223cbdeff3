//! Methods and rules by their numbers, from those that there are.

use super::{GradientScaling, Layers, Method, Preset, SharedLayers, exceptions, listed};
use gradscale_core::{
    amp::{AmpPolicy, Full, Level, List, Precision},
    ops::Op,
    site::{Memory, Site, SiteConfig},
    solve::{Authors, ConfigError, Paper},
};

impl Method {
    /// The same scaling under another policy.
    #[must_use]
    pub fn with_amp(self, amp: AmpPolicy) -> Self {
        Self { amp, ..self }
    }

    /// At another level (`amp=O2`), with the lists that were changed.
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        let mut amp = AmpPolicy::new(level);
        for (op, list) in exceptions(&self.amp) {
            // They had room before.
            let _ = amp.set(op, list);
        }
        Self { amp, ..self }
    }

    /// With an operator on another list (`deny=gelu`).
    ///
    /// # Errors
    /// More operators than a policy has room for.
    pub fn with_list(self, op: Op, list: List) -> Result<Self, Full> {
        Ok(Self { amp: listed(&self.amp, op, list)?, ..self })
    }

    /// The same with layers that run in another precision than the policy says.
    #[must_use]
    pub fn with_layers(self, layers: Layers) -> Self {
        Self { layers, ..self }
    }

    /// With one more layer that runs in a precision of its own (`f32=net.encoder`, `half=net.head`).
    #[must_use]
    pub fn with_layer(mut self, layer: &str, precision: Precision) -> Self {
        self.layers.set(layer, precision);
        self
    }

    /// What gradients of weights that were read in half are stored as before they are f32 (`wgrad=half`): see
    /// [`Method::weight_gradients`]. Half under gradient scaling is an error of
    /// [`Trainer::new`](crate::Trainer::new).
    #[must_use]
    pub fn with_weight_gradients(self, weight_gradients: Precision) -> Self {
        Self { weight_gradients, ..self }
    }
}

/// Setters. Window, room, memory and outliers are of the exact rule, and threshold and interval of all but [`Preset::Amax`]:
/// the others have none, and stay as they are.
impl GradientScaling {
    /// The threshold γ′ of the rule (`gamma=`); the exact one keeps it in parts per million.
    ///
    /// # Errors
    /// A threshold outside (0, 1), or below 10^-6 for the exact rule.
    pub fn with_gamma(mut self, gamma: f64) -> Result<Self, ConfigError> {
        match &mut self.preset {
            Preset::Exact => self.site.exact = self.site.exact.with_gamma(gamma)?,
            // It has no threshold, and what is none for others is none here.
            Preset::Amax => drop(self.site.exact.with_gamma(gamma)?),
            Preset::Paper(paper) => {
                let new = Paper::new(gamma)?;
                *paper = if paper.is_literal() { new.literal() } else { new };
            }
            Preset::Authors(authors) => *authors = Authors::new(gamma)?,
        }
        Ok(self)
    }

    /// Steps from one decision to the next (`interval=`).
    ///
    /// # Errors
    /// 0.
    pub fn with_interval(self, interval: u32) -> Result<Self, ConfigError> {
        let scaling = self.of_site(SiteConfig { interval, ..self.site })?;
        // Largest magnitudes decide in every step.
        Ok(if self.preset == Preset::Amax { self } else { scaling })
    }

    /// How far above the threshold exponents go where there is room (`window=`).
    ///
    /// # Errors
    /// A window outside 0 to 30.
    pub fn with_window(self, window: i32) -> Result<Self, ConfigError> {
        let exact = self.site.exact.with_window(window)?;
        Ok(self.exactly(SiteConfig { exact, ..self.site }))
    }

    /// Bits kept free above where the threshold allows (`room=`).
    ///
    /// # Errors
    /// A room outside 2 to 30.
    pub fn with_room(self, room: i32) -> Result<Self, ConfigError> {
        let exact = self.site.exact.with_room(room)?;
        Ok(self.exactly(SiteConfig { exact, ..self.site }))
    }

    /// What sites remember of their last rows (`history=`). Only [`Memory::Ring`] tells outliers, so another takes them
    /// with it.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        let outliers = self.site.outliers.filter(|_| memory == Memory::Ring);
        self.exactly(SiteConfig { memory, outliers, ..self.site })
    }

    /// Batches so many exponents above all that is remembered are left out (`outliers=`), by [`Memory::Ring`].
    ///
    /// # Errors
    /// A number outside 8 to 100.
    pub fn with_outliers(self, bits: i32) -> Result<Self, ConfigError> {
        let site = SiteConfig { memory: Memory::Ring, outliers: Some(bits), ..self.site };
        Site::new(site)?;
        Ok(self.exactly(site))
    }

    /// Whether calls of one layer share a site (`calls=`).
    #[must_use]
    pub const fn with_calls(self, shared: SharedLayers) -> Self {
        Self { shared, ..self }
    }

    fn of_site(self, site: SiteConfig) -> Result<Self, ConfigError> {
        Site::new(site)?;
        Ok(Self { site, ..self })
    }

    fn exactly(self, site: SiteConfig) -> Self {
        if self.preset == Preset::Exact { Self { site, ..self } } else { self }
    }
}
