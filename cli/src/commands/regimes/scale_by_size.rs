//! `scale-by-size`: loss scales that serve a network, by image and batch size, compared with the constants of libraries.
//!
//! A mean over more pixels makes each gradient smaller, a sum does not. So the window of a single scale
//! ([`gradscale::window`]) moves with size, batch and reduction, and a constant that was right for one is wrong for another.

use super::figure::Figure;
use crate::{
    Failure,
    data::{Segmentation, Split},
};
use gradscale::{
    Cpu, CrossEntropy, Input, Method, Parameters, Trainer,
    gradscale_core::ops::Divisor,
    models::SegNet,
    nn::Module,
    optim::Sgd,
    window::{LIBRARY_SCALES, ScaleWindow},
};
use serde_json::json;
use std::fmt::Write;

/// Name of the figure, as `--only` takes it.
pub const NAME: &str = "scale-by-size";
/// Number of channels of SegNetBasic; 4 keep the measurement within seconds.
const WIDTH: usize = 4;
/// Factors of the images' rows and columns: synthetic scenes have 48 × 64 pixels.
const FACTORS: [[usize; 2]; 3] = [[1, 2], [1, 1], [2, 1]];
const BATCHES: [usize; 2] = [1, 4];
/// Exponents of the loss scale that the figure shows.
const EXPONENTS_SHOWN: std::ops::RangeInclusive<i32> = -20..=40;

/// Setting of a measurement: size of the images, batch, and reduction of the loss.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// Rows and columns are multiplied by the first and divided by the second.
    factor: [usize; 2],
    batch: usize,
    is_mean: bool,
}

impl Setting {
    fn size(self, split: &Split) -> [usize; 2] {
        let [times, by] = self.factor;
        [split.height * times / by, split.width * times / by]
    }

    /// Measures the window of loss scales with weight gradients in half, as torch.amp stores them.
    fn measure(self, data: &Segmentation) -> Result<ScaleWindow, Failure> {
        let split = &data.train;
        let ([height, width], [times, by]) = (self.size(split), self.factor);
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for index in 0..self.batch {
            let (image, classes) =
                (split.images.get(index, 3 * split.pixels())?, split.labels.get(index, split.pixels())?);
            for at in 0..height * width {
                let from = (at / width * by / times) * split.width + at % width * by / times;
                images.extend_from_slice(&image[3 * from..3 * from + 3]);
                labels.push(classes[from]);
            }
        }
        let mut parameters = Parameters::seeded(0);
        let net = SegNet::new(&mut parameters.at("segnet"), 3, WIDTH, data.classes.len());
        let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
        let mut trainer = Trainer::new(device, parameters, Sgd::new(0.0), Method::mixed())?;
        let size = |channels| [self.batch, height, width, channels];
        let divisor = if self.is_mean { Divisor::Rows } else { Divisor::Fixed(1.0) };
        let window = trainer.window(|trainer| {
            trainer.backward([Input::u8(size(3), &images), Input::u8(size(1), &labels)], |[x, labels]| {
                let options = CrossEntropy { weights: None, ignore: data.ignore.map(u32::from), divisor };
                net.forward(x).cross_entropy_with(labels, &options)
            })
        })?;
        window.map(|window| window.half).ok_or_else(|| Failure::at("scale-by-size", "gradients are not finite"))
    }

    fn label(self, split: &Split) -> String {
        let [height, width] = self.size(split);
        format!("{height}×{width} ×{} {}", self.batch, if self.is_mean { "mean" } else { "sum" })
    }
}

/// Computes the figure about usable loss scales by image size and batch; `quick` takes one size.
///
/// # Errors
/// A device that cannot be opened or that fails.
pub fn figure(quick: bool) -> Result<Figure, Failure> {
    let data = Segmentation::synthetic(0);
    let about =
        "loss scales that work for SegNetBasic with its first weights, by size, batch and reduction (synthetic scenes)";
    let factors = if quick { &FACTORS[..1] } else { &FACTORS[..] };
    let (mut text, mut rows) = (String::new(), Vec::new());
    writeln!(
        text,
        "{:16}2^{} to 2^{}; ░ loses gradients, █ works, ▒ overflows",
        "",
        EXPONENTS_SHOWN.start(),
        EXPONENTS_SHOWN.end()
    )
    .ok();
    text.push_str(&ruler());
    for is_mean in [true, false] {
        for &factor in factors {
            for batch in BATCHES {
                let setting = Setting { factor, batch, is_mean };
                let (window, label) = (setting.measure(&data)?, setting.label(&data.train));
                let cell = |exponent| match (window.least, window.overflow) {
                    (_, Some(end)) if exponent >= end => '▒',
                    (Some(least), _) if exponent >= least => '█',
                    _ => '░',
                };
                writeln!(text, "{label:16}{}", EXPONENTS_SHOWN.map(cell).collect::<String>()).ok();
                let [height, width] = setting.size(&data.train);
                let reduction = if is_mean { "mean" } else { "sum" };
                rows.push(json!({
                    "height": height, "width": width, "batch": batch, "reduction": reduction,
                    "least": window.least, "overflow": window.overflow,
                }));
            }
        }
    }
    text.push_str(&ruler());
    let names = LIBRARY_SCALES.iter().map(|one| format!("{} 2^{}", one.library, one.exponent));
    writeln!(text, "│: {}", names.collect::<Vec<_>>().join(", ")).ok();
    text.push_str("Remedies: a scale measured for the setting, amax:history=16, gs.\n");
    Ok(Figure { name: NAME, about, text, rows })
}

/// Returns a line of the figure that marks the initial loss scales of libraries.
fn ruler() -> String {
    let mark = |exponent| if LIBRARY_SCALES.iter().any(|one| one.exponent == exponent) { '│' } else { ' ' };
    format!("{:16}{}", "", EXPONENTS_SHOWN.map(mark).collect::<String>()).trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_move_with_reduction_and_size() {
        let figure = figure(true).expect("a figure");
        assert_eq!(figure.rows.len(), 2 * BATCHES.len());
        assert!(figure.text.lines().all(|line| line.chars().count() <= 80), "{}", figure.text);
        let end = |i: usize| figure.rows[i]["overflow"].as_i64().expect("an exponent");
        // A sum over 24 × 32 pixels is nine or ten bits above their mean, with some that are unlabelled.
        assert!((8..=10).contains(&(end(0) - end(2))), "{}", figure.text);
        // A mean over more images divides the gradient of each by more.
        let least = |i: usize| figure.rows[i]["least"].as_i64().expect("an exponent");
        assert!(end(1) >= end(0) && least(1) > least(0), "more images in a mean: {}", figure.text);
        assert_eq!(figure.text.matches('│').count(), 2 * LIBRARY_SCALES.len() + 1);
    }
}
