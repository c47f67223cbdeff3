//! Initial values: PyTorch's distributions, their moments, and orthogonality.

use crate::{
    corners::trainer,
    golden::{numbers, rows},
};
use gradscale::{Fan, Init, Parameters};

fn draw(shape: [usize; 4], init: Init) -> Vec<f64> {
    let mut parameters = Parameters::seeded(5);
    parameters.at("p").weight("w", shape, init);
    let tensor = trainer(parameters, "fp32").parameter("p.w").expect("a parameter");
    tensor.data.into_iter().map(f64::from).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation around 0.
fn spread(values: &[f64]) -> f64 {
    mean(&values.iter().map(|x| x * x).collect::<Vec<_>>()).sqrt()
}

fn most(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, x| x.abs().max(most))
}

/// Bounds and deviations that torch.nn.init hands to its generators.
#[test]
fn as_pytorch() {
    let (relu, mut seen) = (2f32.sqrt(), 0);
    for [name, _, shape, values] in rows().filter(|row| row[0].starts_with("init ")) {
        let init = match &name[5..] {
            "KaimingUniform In" => Init::KaimingUniform { fan: Fan::In, gain: relu },
            "KaimingUniform Out" => Init::KaimingUniform { fan: Fan::Out, gain: relu },
            "KaimingNormal In" => Init::KaimingNormal { fan: Fan::In, gain: relu },
            "KaimingNormal Out" => Init::KaimingNormal { fan: Fan::Out, gain: relu },
            "XavierUniform" => Init::XavierUniform { gain: relu },
            "XavierNormal" => Init::XavierNormal { gain: relu },
            "FanIn" => Init::FanIn,
            other => panic!("{other}"),
        };
        let all = draw(numbers(shape).try_into().unwrap(), init);
        let (kind, right) = values.split_once(' ').unwrap();
        let (right, n) = (right.parse::<f64>().unwrap(), all.len() as f64);
        if kind == "uniform" {
            // The maximum of n samples is this close to its bound except with probability (1 − 10⁻²)ⁿ.
            assert!(most(&all) <= right * (1.0 + 1e-7) && most(&all) > 0.99 * right, "{name}: {}", most(&all));
            assert!((spread(&all) * 3f64.sqrt() / right - 1.0).abs() < 4.0 * (0.2 / n).sqrt(), "{name}");
        } else {
            // Four deviations of the estimate.
            assert!((spread(&all) / right - 1.0).abs() < 4.0 / (2.0 * n).sqrt(), "{name}: {}", spread(&all));
            assert!(most(&all) > 3.0 * right, "{name} is not normal");
        }
        assert!(mean(&all).abs() < 4.0 * spread(&all) / n.sqrt(), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 14);
}

#[test]
fn plain_distributions() {
    let shape = [100, 1, 1, 100];
    let all = draw(shape, Init::Normal { mean: 3.0, std: 0.5 });
    assert!((mean(&all) - 3.0).abs() < 0.02);
    assert!((spread(&all.iter().map(|x| x - 3.0).collect::<Vec<_>>()) - 0.5).abs() < 0.015);
    let all = draw(shape, Init::Uniform { low: -1.0, high: 3.0 });
    assert!(all.iter().all(|x| (-1.0..=3.0).contains(x)) && (mean(&all) - 1.0).abs() < 0.05);
    assert_eq!(draw([2, 1, 1, 2], Init::Constant(0.25)), [0.25; 4]);
}

/// Cut at c deviations the variance is 1 − 2c·φ(c) / (2Φ(c) − 1).
#[test]
fn truncated_normal() {
    for (cut, variance) in [(2.0, 0.773_741), (0.5, 0.080_592)] {
        let all = draw([100, 1, 1, 400], Init::TruncatedNormal { std: 0.02, cut });
        let cut = f64::from(cut);
        assert!(most(&all) <= 0.02 * cut * (1.0 + 1e-6) && most(&all) > 0.0199 * cut);
        let found = (spread(&all) / 0.02).powi(2);
        assert!((found / variance - 1.0).abs() < 0.02, "{found} instead of {variance}");
        assert!(mean(&all).abs() < 4.0 * spread(&all) / 200.0);
    }
}

#[test]
fn orthogonal() {
    for shape in [[6, 1, 1, 6], [4, 3, 3, 2], [40, 1, 1, 7]] {
        let all = draw(shape, Init::Orthogonal { gain: 1.5 });
        let (rows, columns) = (shape[0], all.len() / shape[0]);
        let at = |i: usize, k: usize| if rows <= columns { all[i * columns + k] } else { all[k * columns + i] };
        let (count, len) = (rows.min(columns), rows.max(columns));
        for (i, j) in (0..count).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            let product: f64 = (0..len).map(|k| at(i, k) * at(j, k)).sum();
            let right = if i == j { 2.25 } else { 0.0 };
            assert!((product - right).abs() < 1e-6, "{shape:?} {i} {j}: {product}");
        }
    }
}
