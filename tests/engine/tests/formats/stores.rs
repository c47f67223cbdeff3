//! Stores of a training beside core: values, rows and decisions of a gradient, an input and a weight whose f32 values are
//! known.

use gradscale::{
    Cpu, Input, Method, Parameters, StepOutcome, Trainer, TrainerOptions, forward_sites,
    gradscale_core::{
        amp::{AmpPolicy, Level},
        site::{Site, SiteOutcome},
        stats::{Detail, Stats},
        store_format::StoreFormat,
    },
    nn::{Linear, Module},
    optim::Sgd,
};

const FORMATS: [StoreFormat; 2] = [StoreFormat::E5m2, StoreFormat::E4m3];
/// Sizes of the input, the hidden layer and the batch.
pub const SIZES: [usize; 3] = [4, 8, 16];

/// Returns values from 2^-12 to 1 times a factor, with ties of both formats, zeros and both signs.
pub fn spread(len: usize, factor: f32) -> Vec<f32> {
    let value = |i: u16| {
        let digits = 1.0 + f32::from(i * 37 % 64) / 64.0;
        let sign = if i.is_multiple_of(3) { -1.0 } else { 1.0 };
        if i.is_multiple_of(11) { 0.0 } else { sign * digits * 2f32.powi(-i32::from(i * 7 % 12)) * factor }
    };
    (0..).take(len).map(value).collect()
}

/// Returns the row of values that are stored in a format at an exponent.
fn observed(format: StoreFormat, exponent: i32, values: &[f32], detail: Detail) -> Stats {
    let mut row = Stats::new(format.convention(), exponent, detail);
    row.observe(&values.iter().map(|value| value * 2f32.powi(exponent)).collect::<Vec<_>>());
    row
}

/// One site as core has it, which stores the same values.
struct Alone(Site);

impl Alone {
    fn new(method: &Method, format: StoreFormat, is_forward: bool) -> Self {
        let gradscale::Scaling::Gradient(gradient) = &method.scaling else { panic!("no rule") };
        let config = gradient.site_in(format);
        Self(if is_forward { Site::forward(config, true) } else { Site::new(config) }.expect("valid settings"))
    }

    /// Stores the values of a step at the exponent that it returns; before that as often as they overflow.
    fn step(&mut self, values: &[f32]) -> (Stats, u32) {
        let format = self.0.config().format;
        let mut repeats = 0;
        loop {
            let request = self.0.request();
            if request.at_once {
                self.0.decide(self.0.exact(&observed(format, 0, values, request.detail)), 0);
            }
            let row = observed(format, self.0.alpha().unwrap_or(0), values, request.detail);
            if row.counts().overflowed == 0 {
                self.0.finish(&row, SiteOutcome::Stepped);
                return (row, repeats);
            }
            repeats += 1;
            self.0.repeat(&row);
        }
    }
}

/// A layer whose output's gradient is an input of the batch, so that all values before a store are known.
pub struct Known {
    net: Linear,
    pub trainer: Trainer<Cpu>,
}

impl Known {
    pub fn new(method: &Method) -> Self {
        let mut parameters = Parameters::seeded(5);
        let net = Linear::new(&mut parameters.at("net"), SIZES[0], SIZES[1]);
        let device = Cpu::new(2).expect("a CPU");
        let trainer = Trainer::new(device, parameters, Sgd::new(1e-3), method.clone()).expect("a trainer");
        Self { net, trainer: trainer.with_options(TrainerOptions::new().with_all_kept()) }
    }

    /// Trains a step, and returns the gradient of the layer's output as it was stored.
    pub fn step(&mut self, x: &[f32], gradient: &[f32]) -> (Vec<f32>, i32, StepOutcome) {
        let [from, to, batch] = SIZES;
        let inputs = [Input::f32([batch, from], x), Input::f32([batch, to], gradient)];
        let gradients = self.trainer.backward(inputs, |[x, t]| (self.net.forward(x) * t).sum()).expect("it fits");
        let all = self.trainer.scaled_gradients(&gradients).expect("kept").into_iter();
        let outcome = self.trainer.step(gradients).expect("a step");
        let (_, stored) = all.into_iter().find(|(name, _)| name == "net").expect("the layer's gradient");
        (stored.data.data, stored.alpha, outcome)
    }
}

/// Magnitude of the values in each step: ordinary, far above, far below and drifting.
fn factor(step: usize) -> f32 {
    match step {
        9 => 2f32.powi(22),
        17 => 2f32.powi(-20),
        _ => 1.0 + (step % 5) as f32 / 4.0,
    }
}

#[test]
fn gradients_are_stored_counted_and_decided_as_core_does() {
    for format in FORMATS {
        for method in [format!("gs:grad={format},interval=3"), format!("amax:grad={format}")] {
            let method: Method = method.parse().expect("a method");
            let (mut known, mut alone) = (Known::new(&method), Alone::new(&method, format, false));
            let x = vec![0.5; SIZES[2] * SIZES[0]];
            let mut repeats = 0;
            for step in 0..24 {
                let values = spread(SIZES[2] * SIZES[1], factor(step) / 64.0);
                let (row, failed) = alone.step(&values);
                let (stored, _, outcome) = known.step(&x, &values);
                assert_eq!((outcome.skipped, outcome.repeated.len()), (None, failed as usize), "{method}, {step}");
                repeats += failed;
                if failed == 0 {
                    let expected = values.iter().map(|x| format.round(x * 2f32.powi(row.exponent())).to_f32());
                    assert_eq!(stored, expected.collect::<Vec<_>>(), "{method}, {step}");
                }
                let site = known.trainer.sites().next().expect("a site");
                assert_eq!(site.row.counts(), row.counts(), "{method}, {step}");
                if let (Some(found), Some(expected)) = (site.row.bins(), row.bins()) {
                    assert_eq!(found, expected, "{method}, {step}");
                }
                assert_eq!(Some(site.alpha), alone.0.alpha(), "{method}, {step}");
                assert_eq!(site.row.convention(), format.convention());
            }
            assert_eq!(repeats > 0, method.to_string().starts_with("gs"), "{method}: a batch saturates");
        }
    }
}

#[test]
fn inputs_and_weights_are_stored_counted_and_decided_as_core_does() {
    for format in FORMATS {
        for inputs in [Level::O1, Level::O2] {
            let method: Method = format!("gs:act={format},weight={format},interval=3").parse().expect("a method");
            let method = method.with_amp(AmpPolicy::new(inputs));
            let mut known = Known::new(&method);
            let mut alone = [(); 2].map(|()| Alone::new(&method, format, true));
            let gradient = spread(SIZES[2] * SIZES[1], 1.0 / 64.0);
            let mut repeats = 0;
            for step in 0..20 {
                let x = spread(SIZES[2] * SIZES[0], factor(step));
                let weights = known.trainer.parameter("net.weight").expect("a weight").data;
                let (_, _, outcome) = known.step(&x, &gradient);
                assert_eq!(outcome.skipped, None);
                repeats += outcome.repeated.len();
                for (alone, (suffix, values)) in
                    alone.iter_mut().zip([("0/cast/forward", &x), ("net.weight/weight", &weights)])
                {
                    let (row, _) = alone.step(values);
                    let site = forward_sites(&known.trainer).find(|site| site.name.ends_with(suffix)).expect("a site");
                    let step = format!("{format}, {inputs:?}, step {step}, {suffix}");
                    assert_eq!(site.row.exponent(), row.exponent(), "{step}");
                    assert_eq!(site.row.counts(), row.counts(), "{step}");
                    assert_eq!(Some(site.alpha), alone.0.alpha(), "{step}");
                }
            }
            assert!(repeats > 0, "{format}: a batch saturates");
        }
    }
}
