//! Steps that are not taken.

use super::{Data, Training, batches};
use gradscale::{
    Cpu, Error, Input, Method, Parameters, StepOutcome, Trainer, TrainerOptions,
    gradscale_core::{
        amp::{AmpPolicy, Level},
        step_outcome::NonFiniteKind,
    },
    nn::{Linear, Module},
    optim::{Adam, AdamW, Optimizer, Schedule, Sgd},
};

fn blamed(outcome: &StepOutcome) -> (&str, NonFiniteKind, i32) {
    let skipped = outcome.skipped.as_ref().expect("the step should be skipped");
    let (site, kind) = skipped.site.as_ref().expect("a site should be blamed");
    (site, *kind, skipped.exponent)
}

/// The bad batches that a loss scale of 2^10 cannot take: a loss times 2^60, ∞ and NaN in the input.
fn bad() -> [(Data, &'static str, NonFiniteKind, i32); 3] {
    let data = Data::new(77, 8);
    let (mut infinite, mut nan) = (data.clone(), data.clone());
    infinite.x[5] = f32::INFINITY;
    nan.x[9] = f32::NAN;
    let huge = data.times(2f32.powi(60));
    [
        (huge, "mse_loss/cast", NonFiniteKind::Overflow, 10),
        (infinite, "input0/cast/forward", NonFiniteKind::Infinite, 0),
        (nan, "input0/cast/forward", NonFiniteKind::Nan, 0),
    ]
}

/// After bad batches a run continues as if they had never existed, bit for bit: parameters, momentum, Adam's states and
/// step count, schedule, running statistics, half copies.
#[test]
fn a_skipped_step_leaves_no_trace() {
    let schedule = Schedule::WarmupCosine { warmup: 3, steps: 9 };
    let optimizers = [
        Optimizer::from(Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.01, ..Sgd::new(0.1) })
            .schedule(schedule.clone()),
        Optimizer::from(Adam { weight_decay: 0.01, ..Adam::new(0.01) }).schedule(schedule),
        Optimizer::from(AdamW::new(0.01)).clip_norm(0.5).schedule(Schedule::Step { every: 2, factor: 0.5 }),
    ];
    let good = batches(6);
    for optimizer in optimizers {
        for level in [Level::O1, Level::O2, Level::O3] {
            let method = "fixed:1024".parse::<Method>().unwrap().with_amp(AmpPolicy::new(level));
            let mut clean = Training::on(Cpu::new(1).unwrap(), optimizer.clone(), method.clone());
            let mut dirty = Training::on(Cpu::new(1).unwrap(), optimizer.clone(), method);
            for (i, data) in good.iter().enumerate() {
                let before = dirty.bits();
                for (bad, ..) in &bad()[..i % 4] {
                    let outcome = dirty.step(bad);
                    assert!(outcome.skipped.is_some(), "{level:?} {i}");
                    assert_eq!(dirty.bits(), before, "{level:?} {i}");
                }
                assert_eq!(dirty.trainer.steps(), i as u64);
                let [one, two] = [clean.step(data), dirty.step(data)];
                assert_eq!((&one, one.loss.to_bits()), (&two, two.loss.to_bits()));
                assert_eq!(one.skipped, None);
                assert_eq!(clean.bits(), dirty.bits(), "{level:?} {i}");
            }
        }
    }
}

/// Texts of skips whose loss is NaN, because the input has ±∞ or NaN.
const INFINITE_INPUT: &str = "skipped: the loss of this batch is NaN: nothing was learned from it, and no exponent changed; \
     input0/cast/forward received ±∞ at 2^0, although nothing before it overflowed";
const NAN_INPUT: &str = "skipped: the loss of this batch is NaN: nothing was learned from it, and no exponent changed; \
     input0/cast/forward received NaN at 2^0, which is not a scaling problem";

#[test]
fn the_outcome_names_site_and_kind() {
    let texts = ["skipped: mse_loss/cast overflowed at 2^10", INFINITE_INPUT, NAN_INPUT];
    for ((data, site, kind, exponent), text) in bad().into_iter().zip(texts) {
        let mut training = Training::new(Sgd::new(0.1).into(), "fixed:1024");
        training.step(&Data::new(1, 8));
        let outcome = training.step(&data);
        assert_eq!(blamed(&outcome), (site, kind, exponent));
        assert_eq!(outcome.skipped.unwrap().to_string(), text);
    }
    let mut training = Training::new(Sgd::new(0.1).into(), "fixed:1073741824");
    let outcome = training.step(&Data::new(1, 8).times(2f32.powi(20)));
    assert_eq!(blamed(&outcome), ("mse_loss/cast", NonFiniteKind::Overflow, 30));
    let text = outcome.skipped.unwrap().to_string();
    assert_eq!(text, "skipped: mse_loss/cast overflowed at 2^30");
}

/// ∞ and NaN that arise in the backward pass, in one element of one gradient: √y at y = 0 has the slope ∞, which times
/// 0 is NaN. No scale helps, and no scale moves.
#[test]
fn one_bad_gradient_is_named() {
    for method in ["gs:exact", "gs:paper", "fixed:1024"] {
        let mut parameters = Parameters::seeded(1);
        let layer = Linear::new(&mut parameters.at("layer"), 4, 4);
        let method: Method = method.parse().unwrap();
        let mut trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, Sgd::new(0.0), method).unwrap();
        trainer.set_parameter("layer.weight", &[0.0; 16]).unwrap();
        let mut step = |bias: [f32; 4], factor: [f32; 4]| {
            trainer.set_parameter("layer.bias", &bias).unwrap();
            let before = trainer.parameters().unwrap();
            let batch = [Input::f32([1, 4], &[1.0; 4]), Input::f32([1, 4], &factor)];
            let loss = trainer.backward(batch, |[x, factor]| (layer.forward(x).pow(0.5) * factor).mean());
            let outcome = trainer.step(loss.unwrap()).unwrap();
            assert!(outcome.loss.is_finite(), "the forward pass is fine");
            assert_eq!(trainer.parameters().unwrap(), before, "{outcome:?}");
            (outcome, trainer.sites().map(|site| site.alpha).collect::<Vec<_>>())
        };
        let (good, exponents) = step([1.0, 2.0, 3.0, 4.0], [1.0; 4]);
        assert_eq!(good.skipped, None);
        for (factor, kind, cause) in
            [(1.0, NonFiniteKind::Infinite, "received ±∞ at 2^"), (0.0, NonFiniteKind::Nan, "received NaN at 2^")]
        {
            let (bad, _) = step([1.0, 0.0, 3.0, 4.0], [1.0, factor, 1.0, 1.0]);
            let (site, found, _) = blamed(&bad);
            assert_eq!((site, found), ("pow/cast", kind));
            let text = bad.skipped.as_ref().unwrap().to_string();
            assert!(text.starts_with("skipped: pow/cast ") && text.contains(cause), "{text}");
            let (good, after) = step([1.0, 2.0, 3.0, 4.0], [1.0; 4]);
            assert_eq!(good.skipped, None);
            assert_eq!(after, exponents, "{kind:?}");
        }
    }
}

/// After the last site gradients are f32, so the error names the parameter and no site.
#[test]
fn a_parameter_gradient_alone_is_named_so() {
    let mut parameters = Parameters::seeded(1);
    let weight = parameters.at("p").weight("w", [1], gradscale::Init::Constant(0.5));
    let mut trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, Sgd::new(1.0), Method::mixed()).unwrap();
    let no_exponent = "nothing was learned from it, and no exponent changed";
    for (a, b, text) in [
        (f32::NAN, 1.0, format!("skipped: the loss of this batch is NaN: {no_exponent}")),
        (f32::INFINITY, 1.0, format!("skipped: the loss of this batch is infinite: {no_exponent}")),
        // The loss is finite, and its gradient is beyond f32.
        (1e20, 1e20, "skipped: a parameter gradient is not finite".to_owned()),
    ] {
        let before = [if a == b { 1e-30 } else { 0.5 }];
        trainer.set_parameter("p.w", &before).unwrap();
        let batch = [Input::f32([1], std::slice::from_ref(&a)), Input::f32([1], std::slice::from_ref(&b))];
        let gradients = trainer.backward(batch, |[a, b]| (a.tape().parameter(&weight) * a * b).sum());
        let skipped = trainer.step(gradients.unwrap()).unwrap().skipped.expect("a skip");
        assert_eq!((skipped.site.as_ref(), skipped.exponent), (None, 0));
        assert_eq!(skipped.to_string(), text);
        assert_eq!(trainer.parameter("p.w").unwrap().data, before);
    }
}

/// A failure that no exponent cures ends the training with an error that names count, site and reason.
#[test]
fn persistent_overflow_ends_the_training() {
    for (method, bad, last) in [
        ("fixed:1024", Data::new(77, 8).times(2f32.powi(60)), "skipped: mse_loss/cast overflowed at 2^10"),
        ("fp16", Data::new(77, 8).times(2f32.powi(60)), "skipped: mse_loss/cast overflowed at 2^0"),
        ("gs:exact", bad()[1].0.clone(), INFINITE_INPUT),
        ("gs:exact", bad()[2].0.clone(), NAN_INPUT),
        ("gs:paper", bad()[2].0.clone(), NAN_INPUT),
    ] {
        let mut training = Training::new(Sgd::new(0.1).into(), method);
        training.trainer = training.trainer.with_options(TrainerOptions::new().with_skip_limit(4));
        assert_eq!(training.step(&Data::new(1, 8)).skipped, None);
        let before = training.bits();
        for _ in 0..3 {
            assert_eq!(training.step(&bad).skipped.expect("a skip").to_string(), last);
        }
        let error = training.try_step(&bad).expect_err("the limit is 4").to_string();
        assert_eq!(error, format!("4 steps in a row were skipped; the last was {last}"));
        assert_eq!(training.bits(), before);
        assert_eq!(training.trainer.steps(), 1);
    }
}

/// An overflow or NaN of the forward pass is reported for the store where it first occurs, whatever follows.
#[test]
fn the_forward_pass_is_blamed_for_its_own() {
    for text in ["gs:exact", "gs:forward=off", "fixed:1024", "dynamic", "gs:paper"] {
        let mut parameters = Parameters::seeded(1);
        let [one, two] = ["one", "two"].map(|name| Linear::new(&mut parameters.at(name), 4, 4));
        let method: Method = text.parse().unwrap();
        let mut trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, Sgd::new(0.1), method).unwrap();
        let mut step = |x: [f32; 4], first: f32| {
            trainer.set_parameter("one.weight", &[first; 16]).unwrap();
            let gradients =
                trainer.backward([Input::f32([1, 4], &x)], |[x]| two.forward(one.forward(x).ln()).mean()).unwrap();
            trainer.step(gradients).unwrap()
        };
        assert_eq!(step([0.5; 4], 1.0).skipped, None);
        let large = step([60000.0; 4], 1.0);
        if text == "gs:exact" {
            // Its activations get exponents, and the batch is repeated.
            assert_eq!(large.skipped, None);
            let expected = "repeated: one/forward overflowed at 2^0, by 2^2; its activations have an exponent now";
            assert_eq!(large.repeated[0].to_string(), expected);
        } else {
            assert_eq!(blamed(&large), ("one/forward", NonFiniteKind::Overflow, 0));
        }
        assert_eq!(blamed(&step([0.5; 4], -1.0)), ("ln/cast/forward", NonFiniteKind::Nan, 0));
        assert_eq!(step([0.5; 4], 1.0).skipped, None);
    }
}

/// A NaN of the forward pass is no reason for smaller scales.
#[test]
fn nan_does_not_move_exponents() {
    let mut training = Training::new(Sgd::new(0.0).into(), "gs:exact");
    let data = Data::new(1, 8);
    for _ in 0..3 {
        assert_eq!(training.step(&data).skipped, None);
    }
    let before = training.exponents();
    for (bad, ..) in &bad()[1..] {
        assert!(training.step(bad).skipped.is_some());
        assert_eq!(training.step(&data).skipped, None);
        assert_eq!(training.exponents(), before);
    }
}

/// Without repeats, a loss that is 2^20 times as large from one step on costs one step, at any point of the interval.
#[test]
fn a_persistent_jump_costs_one_step() {
    for at in [1, 5, 10, 11, 12, 17] {
        let mut training = Training::new(Sgd::new(0.0).into(), "gs:exact,room=6,history=0");
        let data = Data::new(1, 8);
        let mut skipped = Vec::new();
        for step in 0..30 {
            let data = data.times(if step < at { 1.0 } else { 2f32.powi(20) });
            let before = training.exponents();
            let outcome = training.step(&data);
            if outcome.skipped.is_some() {
                // The site to blame has come down already, from its own row.
                let (name, kind, exponent) = blamed(&outcome);
                let of = |all: &[(String, i32)]| all.iter().find(|(site, _)| site == name).map(|(_, alpha)| *alpha);
                assert_eq!((kind, Some(exponent)), (NonFiniteKind::Overflow, of(&before)));
                assert!(of(&training.exponents()) < Some(exponent), "{outcome:?}");
                skipped.push(step);
            }
        }
        assert_eq!(skipped, [at]);
    }
}

/// With repeats it costs one more pass, and no step.
#[test]
fn a_persistent_jump_is_repeated_once() {
    for at in [1, 5, 10, 11, 12, 17] {
        let mut training = Training::new(Sgd::new(0.0).into(), "gs:exact");
        let data = Data::new(1, 8);
        let mut repeated = Vec::new();
        for step in 0..30 {
            let outcome = training.step(&data.times(if step < at { 1.0 } else { 2f32.powi(20) }));
            assert_eq!(outcome.skipped, None);
            repeated.extend(outcome.repeated.iter().map(|_| step));
        }
        assert_eq!(repeated, [at]);
    }
}

/// Sites lower their exponents by exactly the jump, and raise them again after it.
#[test]
fn exponents_follow_the_loss() {
    let mut training = Training::new(Sgd::new(0.0).into(), "gs:exact");
    let data = Data::new(1, 8);
    let mut after = |factor: f32| {
        for _ in 0..25 {
            training.step(&data.times(factor));
        }
        training.exponents()
    };
    let before = after(1.0);
    let lower: Vec<_> = before.iter().map(|(name, alpha)| (name.clone(), alpha - 20)).collect();
    assert_eq!(after(2f32.powi(20)), lower);
    assert_eq!(after(1.0), before);
}

#[test]
fn training_ends_after_too_many_skips() {
    let [(bad, ..), ..] = bad();
    let mut training = Training::new(Sgd::new(0.1).into(), "fixed:1024");
    training.trainer = training.trainer.with_options(TrainerOptions::new().with_skip_limit(3));
    for _ in 0..2 {
        // A successful step resets the count.
        for _ in 0..2 {
            assert!(training.step(&bad).skipped.is_some());
        }
        assert_eq!(training.step(&Data::new(1, 8)).skipped, None);
    }
    training.step(&bad);
    training.step(&bad);
    let Err(Error::Skips { in_a_row, last }) = training.try_step(&bad) else { panic!("the limit is 3") };
    assert_eq!((in_a_row, last.as_str()), (3, "skipped: mse_loss/cast overflowed at 2^10"));
}

/// Dynamic loss scaling halves at a skip.
#[test]
fn dynamic_halves() {
    let mut training = Training::new(Sgd::new(0.0).into(), "dynamic");
    let data = Data::new(1, 8);
    training.step(&data);
    assert_eq!(training.trainer.loss_scale(), 16);
    let outcome = training.step(&data.times(2f32.powi(20)));
    assert_eq!(blamed(&outcome).2, 16);
    assert_eq!(training.trainer.loss_scale(), 15);
    assert!(training.exponents().iter().all(|(_, alpha)| *alpha == 15));
}
