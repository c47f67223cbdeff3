//! Setters of methods and gradient scaling.

use super::{
    ForwardScaling, GradientScaling, Layers, Method, Preset, Products, SharedLayers, StoreFormats, exceptions, listed,
};
use gradscale_core::{
    amp::{AmpPolicy, Full, Level, List, Precision},
    ops::Op,
    site::{Memory, Site, SiteConfig},
    solve::{Authors, ConfigError, Paper},
    store_format::StoreFormat,
};

impl Method {
    /// Sets the method's autocast policy.
    #[must_use]
    pub fn with_amp(self, amp: AmpPolicy) -> Self {
        Self { amp, ..self }
    }

    /// Sets the method's mixed-precision level (`amp=O2`) and keeps the changes to the lists.
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        let mut amp = AmpPolicy::new(level);
        for (op, list) in exceptions(&self.amp) {
            // Cannot fail, because the old policy had space for them.
            let _ = amp.set(op, list);
        }
        Self { amp, ..self }
    }

    /// Moves an operator to another autocast list of the method (`deny=gelu`).
    ///
    /// # Errors
    /// More operators than a policy can override.
    pub fn with_list(self, op: Op, list: List) -> Result<Self, Full> {
        Ok(Self { amp: listed(&self.amp, op, list)?, ..self })
    }

    /// Sets the layers that run in another precision than that of the policy.
    #[must_use]
    pub fn with_layers(self, layers: Layers) -> Self {
        Self { layers, ..self }
    }

    /// Gives a layer of the network its own precision (`f32=net.encoder`, `half=net.head`).
    #[must_use]
    pub fn with_layer(mut self, layer: &str, precision: Precision) -> Self {
        self.layers.set(layer, precision);
        self
    }

    /// Sets the storage type of gradients of weights that were read in half (`wgrad=half`): see
    /// [`Method::weight_gradients`]. Half under gradient scaling is an error of [`Trainer::new`](crate::Trainer::new).
    #[must_use]
    pub fn with_weight_gradients(self, weight_gradients: Precision) -> Self {
        Self { weight_gradients, ..self }
    }
}

/// Impl of the setters of gradient scaling. Window, headroom, history and outliers belong to the exact rule; threshold
/// and interval to all rules except [`Preset::Amax`]. A setter has no effect on a rule without the setting.
impl GradientScaling {
    /// Sets the threshold γ′ of the rule (`gamma=`); the exact rule stores it in parts per million.
    ///
    /// # Errors
    /// A threshold outside (0, 1), or below 10^-6 for the exact rule.
    pub fn with_gamma(mut self, gamma: f64) -> Result<Self, ConfigError> {
        match &mut self.preset {
            Preset::Exact => self.site.exact = self.site.exact.with_gamma(gamma)?,
            // The rule has no threshold, but an invalid value is still an error.
            Preset::Amax => drop(self.site.exact.with_gamma(gamma)?),
            Preset::Paper(paper) => {
                let new = Paper::new(gamma)?;
                *paper = if paper.is_literal() { new.literal() } else { new };
            }
            Preset::Authors(authors) => *authors = Authors::new(gamma)?,
        }
        Ok(self)
    }

    /// Sets the number of steps between decisions of a site (`interval=`).
    ///
    /// # Errors
    /// An interval of 0.
    pub fn with_interval(self, interval: u32) -> Result<Self, ConfigError> {
        let scaling = self.of_site(SiteConfig { interval, ..self.site })?;
        // This rule decides in every step.
        Ok(if self.preset == Preset::Amax { self } else { scaling })
    }

    /// Sets the window: the number of exponents above the threshold that the rule goes if there is enough range
    /// (`window=`).
    ///
    /// # Errors
    /// A window outside 0 to 30.
    pub fn with_window(self, window: i32) -> Result<Self, ConfigError> {
        let exact = self.site.exact.with_window(window)?;
        Ok(self.exactly(SiteConfig { exact, ..self.site }))
    }

    /// Sets the headroom: bits kept free above where the threshold allows (`room=`).
    ///
    /// # Errors
    /// Headroom outside 2 to 30.
    pub fn with_headroom(self, room: i32) -> Result<Self, ConfigError> {
        let exact = self.site.exact.with_headroom(room)?;
        Ok(self.exactly(SiteConfig { exact, ..self.site }))
    }

    /// Sets the history of sites (`history=`). Only [`Memory::Ring`] supports outliers, so any other history removes
    /// that setting; exponents of forward stores and 8-bit formats of these likewise.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        let outliers = self.site.outliers.filter(|_| memory == Memory::Ring);
        let scaling = self.exactly(SiteConfig { memory, outliers, ..self.site });
        if scaling.can_scale_forward() {
            return scaling;
        }
        let formats = StoreFormats { gradient: self.formats.gradient, ..StoreFormats::default() };
        Self { forward: ForwardScaling::Off, formats, ..scaling }.with_products(self.products)
    }

    /// Sets the exponents of forward stores (`forward=`). They need the exact rule with [`Memory::Ring`], which repeats
    /// batches, and stay [`ForwardScaling::Off`] with another. With an 8-bit format of activations or weights they stay
    /// [`ForwardScaling::On`].
    #[must_use]
    pub fn with_forward(self, forward: ForwardScaling) -> Self {
        if self.repeats() && !self.formats.scales_forward() { Self { forward, ..self } } else { self }
    }

    /// Sets the formats of stores (`grad=`, `act=`, `weight=`), with [`ForwardScaling::On`] if values of the forward pass
    /// have 8 bits. These need [`Preset::Amax`] or the exact rule with [`Memory::Ring`], and stay FP16 with another rule;
    /// those of gradients need either rule.
    ///
    /// ```
    /// use gradscale::{GradientScaling, Method, StoreFormats, gradscale_core::store_format::StoreFormat};
    /// let formats = StoreFormats { gradient: StoreFormat::E5m2, activation: StoreFormat::E4m3, ..StoreFormats::default() };
    /// let method = Method::gradient_scaling(GradientScaling::exact().with_formats(formats)?);
    /// assert_eq!(method.to_string(), "gs:grad=e5m2,act=e4m3");
    /// # Ok::<(), gradscale::gradscale_core::solve::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// An amax margin beyond a format.
    pub fn with_formats(self, formats: StoreFormats) -> Result<Self, ConfigError> {
        let StoreFormats { gradient, activation, weight } = formats;
        let formats = match (self.preset.decides_from_rows(), self.can_scale_forward()) {
            (false, _) => StoreFormats::default(),
            (true, false) => StoreFormats { gradient, ..StoreFormats::default() },
            (true, true) => formats,
        };
        for format in [gradient, activation, weight] {
            Site::new(self.site_in(format))?;
        }
        let forward = match (formats.scales_forward(), self.preset) {
            (true, _) => ForwardScaling::On,
            (false, Preset::Exact) => self.forward,
            (false, Preset::Amax | Preset::Paper(_) | Preset::Authors(_)) => ForwardScaling::Off,
        };
        Ok(Self { formats, forward, ..self }.with_products(self.products))
    }

    /// Sets the units of products whose operands both have 8 bits (`products=`). They stay [`Products::Half`] with formats
    /// under which no product has two such operands.
    ///
    /// ```
    /// use gradscale::{GradientScaling, Method, Products, gradscale_core::store_format::StoreFormat};
    /// let scaling = GradientScaling::exact().with_format(StoreFormat::E4m3)?.with_products(Products::EightBits);
    /// assert_eq!(Method::gradient_scaling(scaling).to_string(), "gs:format=e4m3,products=fp8");
    /// assert_eq!(GradientScaling::exact().with_products(Products::EightBits).products, Products::Half);
    /// # Ok::<(), gradscale::gradscale_core::solve::ConfigError>(())
    /// ```
    #[must_use]
    pub fn with_products(self, products: Products) -> Self {
        Self { products: if self.formats.has_eight_bit_products() { products } else { Products::Half }, ..self }
    }

    /// Sets one format for gradients, activations and weights (`format=`): see [`GradientScaling::with_formats`].
    ///
    /// # Errors
    /// An amax margin beyond the format.
    pub fn with_format(self, format: StoreFormat) -> Result<Self, ConfigError> {
        self.with_formats(StoreFormats::uniform(format))
    }

    /// Makes the method skip batches more than `bits` exponents above the history (`outliers=`), and use
    /// [`Memory::Ring`].
    ///
    /// # Errors
    /// A number outside 8 to 100.
    pub fn with_outliers(self, bits: i32) -> Result<Self, ConfigError> {
        let site = SiteConfig { memory: Memory::Ring, outliers: Some(bits), amax: None, ..self.site };
        Site::new(site)?;
        Ok(self.exactly(site))
    }

    /// Sets the treatment of layers that are called several times (`calls=`).
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
