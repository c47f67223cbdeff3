//! Exponents of activations: the rules at operators, and the sites of forward stores.

mod common;

use common::cases;
use gradscale_core::{
    activation_rules::{common as common_exponent, exponent_of_result, product},
    ops::{ActivationFlow, At, Op, Unary},
    scaled::Scaled,
    site::{Site, SiteConfig, SiteOutcome, SitePass},
    stats::{Convention, Detail, Stats},
};
use proptest::{collection::vec, prelude::*};

fn powers(k: i32) -> f32 {
    2f32.powi(k)
}

proptest! {
    #![proptest_config(cases(256))]

    /// The results of scaled values have the exponent that the rules give.
    #[test]
    fn results_have_the_exponent_of_their_rule(a in -9.0f32..9.0, b in -9.0f32..9.0, i in -30i32..30, j in -30i32..30) {
        let (x, y) = (a * powers(i), b * powers(j));
        let at = |flow: Op, data: f32| Scaled::new(data, exponent_of_result(flow.activation_flow(), &[i, j])).unscale();
        prop_assert_eq!(at(Op::Matmul, x * y).to_bits(), (a * b).to_bits());
        prop_assert_eq!(at(Op::Mul, x * y).to_bits(), (a * b).to_bits());
        let both = |x: f32, alpha: i32| Scaled::new(x, alpha).rescale(common_exponent(i, j)).data;
        prop_assert_eq!(at(Op::Add, both(x, i) + both(y, j)).to_bits(), (a + b).to_bits());
        prop_assert_eq!(at(Op::Relu, x.max(0.0)).to_bits(), a.max(0.0).to_bits());
        prop_assert_eq!(exponent_of_result(Op::Gelu.activation_flow(), &[i]), 0);
        prop_assert!(common_exponent(i, j) <= i && common_exponent(i, j) <= j);
    }

    /// A function is homogeneous exactly if powers of two pass through it and its derivative ignores them.
    #[test]
    fn homogeneous_functions_pass_powers_of_two(x in 0.25f32..2.0, negative: bool, k in 1i32..12, op in 0..Unary::ALL.len()) {
        let (op, x) = (Unary::ALL[op], if negative { -x } else { x });
        let at = At { seed: 7, index: 3 };
        let scaled = op.eval(x * powers(k), at).to_bits() == (op.eval(x, at) * powers(k)).to_bits();
        let derivative = op.vjp(x * powers(k), 1.5, at).to_bits() == op.vjp(x, 1.5, at).to_bits();
        prop_assert!(!op.is_homogeneous() || scaled && derivative, "{:?} of {} and 2^{}", op, x, k);
    }

    /// A site that only lowers never has a positive exponent, and after a decision from its own values none overflows.
    #[test]
    fn a_forward_site_fits_its_own_values(
        batches in vec((vec(0.5f32..1.0, 1..40), -20i32..60, any::<bool>()), 1..30), raises: bool,
    ) {
        let mut site = Site::forward(SiteConfig::exact(), raises).expect("a site");
        prop_assert_eq!(site.pass(), SitePass::Forward { raises });
        for (values, k, zeros) in batches {
            let values: Vec<f32> = values.iter().map(|x| if zeros { 0.0 } else { x * powers(k) }).collect();
            let row = |alpha: i32, detail: Detail| {
                let mut row = Stats::new(Convention::FP16, alpha, detail);
                row.observe(&values.iter().map(|x| x * powers(alpha)).collect::<Vec<_>>());
                row
            };
            if site.request().at_once {
                site.decide(site.exact(&row(0, Detail::Full)), 0);
            }
            let mut stored = row(site.alpha().unwrap_or(0), site.request().detail);
            if stored.counts().overflowed != 0 {
                site.repeat(&stored);
                prop_assert!(site.request().at_once);
                site.decide(site.exact(&row(0, Detail::Full)), 0);
                stored = row(site.alpha().unwrap_or(0), site.request().detail);
            }
            prop_assert_eq!(stored.counts().overflowed, 0);
            prop_assert!(raises || site.alpha().is_none_or(|alpha| alpha <= 0), "{:?}", site.alpha());
            site.finish(&stored, SiteOutcome::Stepped);
            // Nothing makes it wait for the device again: every value has decided.
            prop_assert!(raises || !site.request().at_once);
        }
    }
}

#[test]
fn rules_of_exponents_saturate() {
    assert_eq!(product(i32::MAX, 1), i32::MAX);
    assert_eq!(product(i32::MIN, -1), i32::MIN);
    assert_eq!(exponent_of_result(ActivationFlow::Common, &[]), 0);
    assert_eq!(exponent_of_result(ActivationFlow::Product, &[i32::MAX, i32::MAX, -1]), i32::MAX - 1);
}

/// A mask of finite values that half cannot represent beside the others stays infinite; a layer's outliers do not.
#[test]
fn a_mask_does_not_flush_what_it_masks() {
    for (large, expected) in [(-3e38f32, 0..=0), (1e6, -40..=-4), (-1e9, -40..=-14)] {
        for raises in [false, true] {
            let mut site = Site::forward(SiteConfig::exact(), raises).expect("a site");
            let values = [large, large, 1.0, -3.0, 0.25, 7.0, 0.5, -2.0];
            for step in 0..30 {
                let alpha = site.alpha().unwrap_or(0);
                let mut row = Stats::new(Convention::FP16, alpha, site.request().detail);
                row.observe(&values.map(|x| x * powers(alpha)));
                if site.request().at_once {
                    site.decide(site.exact(&row), alpha);
                }
                site.finish(&row, SiteOutcome::Stepped);
                let alpha = site.alpha().expect("a forward site has an exponent");
                assert!(expected.contains(&alpha) && !site.request().at_once, "{large} in step {step}: 2^{alpha}");
            }
        }
    }
}

/// Small activations keep exponent 0 unless the site raises, and a mask of −∞ is no reason to wait or to move.
#[test]
fn only_large_values_lower_an_exponent() {
    let row = |values: &[f32]| {
        let mut row = Stats::new(Convention::FP16, 0, Detail::Full);
        row.observe(values);
        row
    };
    for (values, raised) in
        [(&[1e-6f32, 3e-6][..], true), (&[0.5, 0.25], false), (&[0.0], false), (&[f32::INFINITY], false)]
    {
        for raises in [false, true] {
            let mut site = Site::forward(SiteConfig::exact(), raises).expect("a site");
            let alpha = site.decide(site.exact(&row(values)), 0).expect("a forward site has an exponent");
            assert!(if raises { !raised || alpha > 0 } else { alpha == 0 }, "{values:?}: 2^{alpha}");
            assert!(!site.request().at_once, "{values:?}");
            site.finish(&row(values), SiteOutcome::Stepped);
            assert!(!site.request().at_once, "{values:?}");
        }
    }
    for &op in Op::ALL {
        let is_product = matches!(op, Op::Matmul | Op::BatchedMatmul | Op::Linear | Op::Conv | Op::ConvTranspose);
        assert!(!is_product || op.activation_flow() == ActivationFlow::Product, "{op}");
        // Norms have an ε, and losses and exponentials are not homogeneous.
        let is_true = matches!(op, Op::LayerNorm | Op::RmsNorm | Op::Softmax | Op::Gelu | Op::Exp | Op::CrossEntropy);
        assert!(!is_true || op.activation_flow() == ActivationFlow::TrueValues, "{op}");
    }
}
