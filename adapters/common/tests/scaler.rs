//! Tests of sites without a framework.

mod numbers;
mod twin;

use gradscale_adapters::{Error, NextAction, Outcome, Scaler, SkipCause};
use numbers::{Random, error};
use twin::Twin;

fn scaler(method: &str) -> Scaler {
    Scaler::with_threads(method, 1).expect("a method")
}

#[test]
fn methods_that_an_adapter_cannot_follow_say_why() {
    for (method, cause) in [
        ("gs:papr", "method gs:papr: "),
        ("best", "method best: unknown"),
        ("gs:paper", "method gs:paper: decides from the operands of products"),
        ("gs:authors", "method gs:authors: decides from the operands of products"),
        ("gs:amp=O2", "method gs:amp=O2: the model chooses the layers in half"),
        ("dynamic:wgrad=half", "method dynamic:wgrad=half: the model chooses the layers"),
        ("gs:calls=each", "method gs:calls=each: each call of a layer cannot decide by itself"),
    ] {
        let error = Scaler::new(method).expect_err(method).to_string();
        assert!(error.starts_with(cause) && !error.contains('\n'), "{error}");
        assert_eq!(error.matches("method ").count(), 1, "{error}");
    }
    for method in
        ["gs", "gs:gamma=0.01,interval=3,outliers=20", "dynamic", "delayed", "logmax", "fixed:1024", "fp16", "fp32"]
    {
        assert_eq!(scaler(method).method(), method);
    }
}

#[test]
fn a_name_is_taken_once() {
    let scaler = scaler("gs");
    let site = scaler.site("layer").expect("a new name");
    assert_eq!(scaler.clone().site("layer").expect_err("there already"), Error::Name("layer".to_owned()));
    assert_eq!((site.name(), scaler.exponents()), ("layer".to_owned(), vec![("layer".to_owned(), 0)]));
}

#[test]
fn halves_come_back_at_their_size() {
    let (scaler, random) = (scaler("gs"), Random::new(1));
    let site = scaler.site("layer").expect("a new name");
    let gradient: Vec<f32> = (0..1000).map(|_| random.uniform() * 1e-12).collect();
    let mut stored = gradient.clone();
    site.store(&mut stored);
    let lost = error(&stored, &gradient);
    assert!(0.0 < lost && lost < 2f32.powi(-11), "{lost}");
    assert_eq!(scaler.end_pass(false, false), NextAction::Step);
    let [report] = &scaler.report()[..] else { panic!("one site") };
    assert!(report.flushed < 1e-3 && report.exponent > 30 && report.log2_amax.is_some_and(|amax| amax < -39.0));
}

#[test]
fn exponents_are_those_of_the_core() {
    let (scaler, random) = (scaler("gs"), Random::new(3));
    let (site, mut core) = (scaler.site("layer").expect("a new name"), Twin::new());
    for step in 0..100 {
        // Long enough for several threads, and for vectors with a remainder.
        let large = i32::from(random.below(20)) - 40 - step / 4;
        let mut gradient: Vec<f32> = (0..20_001).map(|_| random.uniform() * 2f32.powi(large)).collect();
        let (exponent, stored, _) = core.step(&gradient);
        site.store(&mut gradient);
        assert_eq!((site.exponent(), gradient == stored), (exponent, true), "step {step}");
        assert_eq!(scaler.end_pass(false, true), NextAction::Step);
    }
}

#[test]
fn what_is_exact_keeps_its_bits() {
    let (scaler, random) = (scaler("gs"), Random::new(2));
    let site = scaler.site("layer").expect("a new name");
    let gradient: Vec<f32> = (0..1000).map(|_| random.integer() * 2f32.powi(-90)).collect();
    let mut stored = gradient.clone();
    site.store(&mut stored);
    assert_eq!(stored, gradient);
}

#[test]
fn what_is_not_finite_stays_so() {
    let scaler = scaler("gs");
    let site = scaler.site("layer").expect("a new name");
    let mut gradient = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1.0];
    site.store(&mut gradient);
    assert!(gradient[0].is_nan() && gradient[3].is_sign_negative());
    assert_eq!(gradient[1..], [f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0]);
    site.store(&mut []);
    let mut operands = [65520.0, 1e-9, 1.0 + 2f32.powi(-11), f32::NAN];
    scaler.round_to_f16(&mut operands);
    assert_eq!(operands[..3], [f32::INFINITY, 0.0, 1.0]);
    assert!(operands[3].is_nan());
}

#[test]
fn calls_of_one_layer_share_an_exponent_and_their_rows() {
    let scaler = scaler("gs");
    let site = scaler.site("cell").expect("a new name");
    for (step, sizes) in [[1e-6, 1e-7, 1e-6], [1e-6, 1e-8, 1e-6]].into_iter().enumerate() {
        let mut exponents = Vec::new();
        for size in sizes {
            site.store(&mut [size, -size]);
            exponents.push(site.exponent());
        }
        assert_eq!(exponents, [exponents[0]; 3], "step {step}");
        assert_eq!(scaler.end_pass(false, true), NextAction::Step);
        assert_eq!(site.row().map(|row| row.counts().count), Some(6));
    }
    // A later call that overflows is repeated, because all calls decide from the merged row.
    let pass = || {
        let mut gradient = [[1e-6f32], [1e12]];
        gradient.iter_mut().for_each(|call| site.store(call));
        Ok::<_, Error>(((), gradient.iter().flatten().any(|g| !g.is_finite())))
    };
    assert_eq!(scaler.run_batch(pass).expect("a step").1, Outcome::Stepped { repeats: 1 });
}

#[test]
fn what_cannot_be_repeated_is_skipped_and_learnt_from() {
    let scaler = scaler("gs");
    let site = scaler.site("layer").expect("a new name");
    site.store(&mut [1e-9]);
    assert_eq!(scaler.end_pass(false, false), NextAction::Step);
    let before = site.exponent();
    let mut large = [1e3];
    site.store(&mut large);
    assert_eq!(large, [f32::INFINITY]);
    let NextAction::Skip(skipped) = scaler.end_pass(true, false) else { panic!("skipped") };
    assert_eq!(skipped.cause, SkipCause::Again);
    assert!(skipped.to_string().starts_with("site layer overflowed at 2^"), "{skipped}");
    let mut again = [1e3];
    site.store(&mut again);
    assert_eq!((again, scaler.end_pass(false, false)), ([1e3], NextAction::Step));
    assert!(site.exponent() < before);
}

#[test]
fn a_pass_that_no_step_follows_leaves_no_trace() {
    for method in ["gs", "dynamic"] {
        let all = [true, false].map(|probe| {
            let scaler = scaler(method);
            let site = scaler.site("layer").expect("a new name");
            let mut trace = Vec::new();
            for size in [1e-6, 1e-12, 1e-3, 1e6, 1e-9] {
                if probe {
                    site.store(&mut [1e3 * size, size]);
                    scaler.discard_pass();
                }
                let pass = || {
                    let mut gradient = [size, size * 1e-3];
                    site.store(&mut gradient);
                    Ok::<_, Error>((gradient.map(f32::to_bits), !gradient[0].is_finite()))
                };
                trace.push((scaler.run_batch(pass).expect("a step"), site.exponent()));
            }
            trace
        });
        assert_eq!(all[0], all[1], "{method}");
    }
}

#[test]
fn a_saved_state_is_of_one_model_and_method() {
    let made = |method: &str, names: &[&str]| {
        let scaler = scaler(method);
        let sites: Vec<_> = names.iter().map(|name| scaler.site(name).expect("a new name")).collect();
        (scaler, sites)
    };
    for method in ["gs:interval=2", "dynamic:interval=2"] {
        let (scaler, sites) = made(method, &["a", "b"]);
        let step = |scaler: &Scaler, sites: &[gradscale_adapters::Site], size: f32| {
            sites.iter().for_each(|site| site.store(&mut [size, size * 1e-3]));
            assert_eq!(scaler.end_pass(false, true), NextAction::Step);
            scaler.exponents()
        };
        for _ in 0..3 {
            step(&scaler, &sites, 1e-7);
        }
        let saved = scaler.save().expect("a text");
        let (other, theirs) = made(method, &["a", "b"]);
        other.restore(&saved).expect("the same model");
        for size in [1e-5, 1e-9, 1e-7, 1e-8, 1e-6] {
            assert_eq!(step(&scaler, &sites, size), step(&other, &theirs, size));
        }
        let refused = |method: &str, names: &[&str], text: &str| {
            let (scaler, _sites) = made(method, names);
            let before = scaler.save();
            let error = scaler.restore(text).expect_err("another model").to_string();
            assert_eq!(scaler.save(), before);
            error
        };
        assert_eq!(refused(method, &["a"], &saved), "saved scales: site b is not in this model");
        assert_eq!(refused(method, &["a", "b", "c"], &saved), "saved scales: has 2 sites, but this model has 3");
        let other = format!("saved scales: made with the method {method}, but this is gs");
        assert_eq!(refused("gs", &["a", "b"], &saved), other);
        assert!(refused(method, &["a", "b"], &saved[..40]).starts_with("saved scales: EOF"));
        assert!(refused(method, &["a", "b"], "").starts_with("saved scales: EOF"));
    }
}
