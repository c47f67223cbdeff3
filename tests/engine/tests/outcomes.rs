//! Batches whose loss is not finite: their outcome, and their effect on exponents. Also training with per-tensor scales
//! from largest magnitudes.

use gradscale::{
    Cpu, CrossEntropy, ExponentsAfter, Input, Method, Parameters, StepOutcome, Trainer, TrainerOptions,
    nn::{Linear, Module},
    optim::Sgd,
    sites::LossScaleWarning,
};

struct Training {
    trainer: Trainer<Cpu>,
    layers: [Linear; 2],
}

impl Training {
    fn new(method: &str) -> Self {
        let mut parameters = Parameters::seeded(1);
        let layers = [Linear::new(&mut parameters.at("one"), 2, 8), Linear::new(&mut parameters.at("two"), 8, 3)];
        let method: Method = method.parse().unwrap_or_else(|error| panic!("{error}"));
        let cpu = Cpu::new(1).expect("threads");
        let trainer = Trainer::new(cpu, parameters, Sgd::new(0.5), method)
            .expect("a training")
            .with_options(TrainerOptions::new().with_skip_limit(0));
        Self { trainer, layers }
    }

    /// A step on four points with three classes; one number of the batch is this.
    fn step(&mut self, number: f32) -> StepOutcome {
        let x = [0.5, -1.0, 1.0, 0.25, -0.75, number, 0.125, 0.5];
        let [one, two] = &self.layers;
        let batch = [Input::f32([4, 2], &x), Input::u32([4], &[0, 1, 2, 1])];
        let gradients = self.trainer.backward(batch, |[x, labels]| {
            two.forward(one.forward(x).relu()).cross_entropy_with(labels, &CrossEntropy::default())
        });
        self.trainer.step(gradients.expect("gradients")).expect("a step")
    }

    fn exponents(&self) -> Vec<i32> {
        self.trainer.sites().map(|site| site.alpha).collect()
    }
}

#[test]
fn a_loss_that_is_no_number_is_named_with_what_it_did() {
    let moved = ExponentsAfter::LossScale { before: 16, after: 15 };
    for (method, expected) in [
        ("gs", ExponentsAfter::Kept),
        ("gs:interval=1", ExponentsAfter::Kept),
        ("amax:history=16", ExponentsAfter::Kept),
        ("fixed:1024", ExponentsAfter::Kept),
        ("dynamic", moved),
    ] {
        for number in [f32::NAN, f32::INFINITY] {
            let mut training = Training::new(method);
            for _ in 0..5 {
                assert_eq!(training.step(0.5).skipped, None, "{method}");
            }
            let before = training.exponents();
            let skipped = training.step(number).skipped.expect("nothing to learn from");
            let loss = skipped.loss.expect("it is the loss");
            assert_eq!((loss.exponents, loss.value.is_finite()), (expected, false), "{method}");
            assert_eq!(training.exponents() == before, expected == ExponentsAfter::Kept, "{method}");
            let said = skipped.with_sample(2).to_string();
            assert!(said.starts_with("skipped: the loss of this batch is "), "{said}");
            assert!(said.contains("(sample 2): nothing was learned from it, and "), "{said}");
            assert_eq!(said.contains("no exponent changed"), expected == ExponentsAfter::Kept, "{said}");
            // The next batch is as good as ever.
            assert_eq!(training.step(0.5).skipped, None, "{method}");
        }
    }
}

#[test]
fn a_scale_that_bad_batches_have_taken_down_is_warned_of() {
    let mut training = Training::new("dynamic");
    let mut exponent = 16;
    while exponent > -11 {
        assert!(
            !matches!(training.trainer.loss_scale_warning(), Some(LossScaleWarning::Collapsed { .. })),
            "2^{exponent}"
        );
        training.step(f32::NAN);
        exponent -= 1;
    }
    assert_eq!(training.trainer.loss_scale_warning(), Some(LossScaleWarning::Collapsed { exponent: -11 }));
    let mut other = Training::new("gs");
    (0..40).for_each(|_| drop(other.step(f32::NAN)));
    assert_eq!(other.trainer.loss_scale_warning(), None);
}

/// Both recipes of FP8 libraries train as f32 does. Delayed scaling without a margin loses a batch whenever a gradient
/// exceeds the power of two above its history. With a margin of one power of two no batch is lost here.
#[test]
fn per_tensor_scales_from_largest_magnitudes_train() {
    let trained = |method: &str| -> (Vec<f32>, usize) {
        let mut training = Training::new(method);
        let outcomes: Vec<StepOutcome> = (0..60).map(|_| training.step(0.5)).collect();
        let lost = outcomes.iter().filter(|outcome| outcome.skipped.is_some()).count();
        assert!(outcomes.iter().all(|outcome| outcome.repeated.is_empty()), "{method}");
        (outcomes.iter().map(|outcome| outcome.loss).collect(), lost)
    };
    let (plain, _) = trained("fp32");
    assert!(plain[59] < plain[0] / 4.0, "{plain:?}");
    for method in ["amax", "amax:history=16,margin=1", "amax:history=1,margin=3"] {
        let (losses, lost) = trained(method);
        assert_eq!(lost, 0, "{method}");
        for (step, (one, other)) in losses.iter().zip(&plain).enumerate() {
            assert!((one - other).abs() < 0.01 * other + 1e-3, "{method}, step {step}: {one} beside {other}");
        }
    }
    let (losses, lost) = trained("amax:history=16");
    assert!((1..=3).contains(&lost) && losses[59] < 1.3 * plain[59], "{lost} lost, {losses:?}");
    // Stored just below 65504: within one binade of it without a margin.
    let mut training = Training::new("amax");
    training.step(0.5);
    let top: Vec<f32> = training.trainer.sites().map(|site| site.row.counts().amax).collect();
    assert!(!top.is_empty() && top.iter().all(|amax| (32752.0..65520.0).contains(amax)), "{top:?}");
}
