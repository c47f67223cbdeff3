//! `gradscale inspect accumulate`: long sums in few bits, measured and compared with the models of `core::accumulate`.

use crate::Failure;
use clap::Args;
use gradscale::gradscale_core::{
    accumulate::{Sum, exact_equal_terms, variance, worst_error},
    cast::Round,
    format::Format,
    model::erf::normal_quantile,
    ops::{At, hash},
};
use std::fmt::Write;

/// Arguments of `gradscale inspect accumulate`.
#[derive(Clone, Debug, Args)]
pub struct Accumulate {
    /// Terms of a sum.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    length: u32,
    /// Mantissa bits of the accumulator; it has 8 exponent bits.
    #[arg(long, value_name = "BITS", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=23))]
    mantissa: u32,
    /// Terms of a chunk. The sums of the chunks are added in a second accumulator. 0: no chunks
    #[arg(long, value_name = "N", default_value_t = 64)]
    chunk: u32,
    /// Mantissa bits of a term: a product of two FP8 (E5M2) numbers has 5.
    #[arg(long, value_name = "BITS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=23))]
    terms: u32,
    /// Mean of the terms; their spread is 1.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = mean)]
    mean: f64,
    /// Round toward zero instead of to nearest even.
    #[arg(long)]
    toward_zero: bool,
    /// Number of sums to measure [default: a million terms in total, at least 20 and at most 1000 sums]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    runs: Option<u32>,
    /// Seed of the random terms
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

fn mean(text: &str) -> Result<f64, String> {
    let mean = text.parse().map_err(|_| "not a number")?;
    if (-1e6..=1e6).contains(&mean) { Ok(mean) } else { Err("choose -1e6 to 1e6".to_owned()) }
}

/// Maximum number of additions of an emulation, which takes some seconds.
const MOST_ADDITIONS: u64 = 1 << 28;

/// Measured errors and variances of sums of random terms.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Share of the variance, or of the sum where terms have a mean, and the standard error of that.
    kept: f64,
    error: f64,
    /// Largest error of a sum, as a share of Σ|x|.
    worst: f64,
}

pub fn text(arguments: &Accumulate) -> Result<String, Failure> {
    let Accumulate { length, mantissa, chunk, terms, .. } = *arguments;
    let runs = arguments.runs.unwrap_or((1_000_000 / length).clamp(20, 1000));
    if u64::from(length) * u64::from(runs) > MOST_ADDITIONS {
        let cause = format!("{runs} sums of {length} terms are more than 2^28 additions; lower --runs or --length");
        return Err(Failure::at("--runs", cause));
    }
    let chunked = chunk != 0 && chunk < length;
    let chunks: &[u32] = if chunked { &[0, chunk] } else { &[0] };
    let measured = measure(arguments, chunks, runs)?;
    let centred = arguments.mean == 0.0;
    let mut text = String::new();
    let rounding = if arguments.toward_zero { "toward zero" } else { "to nearest even" };
    writeln!(
        text,
        "{length} normal terms of {terms} mantissa bits, mean {}, spread 1, added in {mantissa} mantissa bits and rounded \
         {rounding}; {runs} sums from seed {}\n",
        arguments.mean, arguments.seed
    )
    .ok();
    let mut line = |what: &str, cell: &dyn Fn(usize, u32) -> String| {
        let cells: String = chunks.iter().enumerate().map(|(at, &chunk)| format!("{:>20}", cell(at, chunk))).collect();
        writeln!(text, "{what:<34}{cells}").ok();
    };
    line("", &|_, chunk| if chunk == 0 { "one by one".to_owned() } else { format!("in chunks of {chunk}") });
    if centred {
        line("variance retained, predicted", &|_, chunk| {
            format!("{:.4}", 1.0 - variance::lost_in_chunks(mantissa, terms, length, chunk))
        });
    }
    let what = if centred { "variance retained, measured" } else { "sum retained, measured" };
    line(what, &|at, _| format!("{:.4} ± {:.4}", measured[at].kept, measured[at].error));
    if centred {
        line("mantissa bits needed, predicted", &|_, chunk| {
            variance::least_mantissa(terms, length, chunk).map_or_else(|| "more than 23".to_owned(), |m| m.to_string())
        });
    }
    line("largest error / Σ|x|, measured", &|at, _| format!("{:.2e}", measured[at].worst));
    if !arguments.toward_zero {
        line("                      bound", &|_, chunk| match worst_error(mantissa, length, chunk) {
            bound if bound < 1.0 => format!("{bound:.2e}"),
            _ => "above 1".to_owned(),
        });
        line("equal terms added without loss", &|_, chunk| exact_equal_terms(mantissa, chunk).to_string());
    }
    text.push('\n');
    text.push_str(if centred {
        "Predicted with the variance retention ratio (Sakr et al. 2019), which shows where a loss begins, not how large it\n\
         becomes: rounding to nearest retains more variance, rounding toward zero less. Chunks: Wang et al. 2018.\n"
    } else {
        "No predictions, because the variance retention ratio assumes terms with mean 0. Chunks: Wang et al. 2018.\n"
    });
    Ok(text)
}

/// Adds the same terms exactly and with each chunk length, and compares the sums.
fn measure(arguments: &Accumulate, chunks: &[u32], runs: u32) -> Result<Vec<Measured>, Failure> {
    let formats = Format::custom(8, arguments.mantissa).zip(Format::custom(8, arguments.terms));
    let (format, of_terms) = formats.ok_or_else(|| Failure::at("--mantissa", "choose 1 to 23 bits"))?;
    let round = if arguments.toward_zero { Round::TowardZero } else { Round::NearestEven };
    let mut all: Vec<Vec<(f64, f64)>> = vec![Vec::new(); chunks.len()];
    let mut measured = vec![Measured::default(); chunks.len()];
    for run in 0..runs {
        let mut sums: Vec<Sum> = chunks.iter().map(|&chunk| Sum::new(format, round).in_chunks(chunk)).collect();
        let (mut exact, mut absolute) = (0.0, 0.0);
        for index in 0..arguments.length {
            let drawn = arguments.mean + normal(arguments.seed, run, index);
            let term = f64::from(of_terms.decode(of_terms.encode_f64(drawn, Round::NearestEven).bits));
            exact += term;
            absolute += term.abs();
            for sum in &mut sums {
                *sum = sum.plus(term);
            }
        }
        for ((sum, pairs), measured) in sums.iter().zip(&mut all).zip(&mut measured) {
            let error = (sum.total() - exact).abs();
            measured.worst = measured.worst.max(if absolute == 0.0 { 0.0 } else { error / absolute });
            let centred = arguments.mean == 0.0;
            pairs.push(if centred { (sum.total().powi(2), exact.powi(2)) } else { (sum.total(), exact) });
        }
    }
    for (pairs, measured) in all.iter().zip(&mut measured) {
        (measured.kept, measured.error) = ratio(pairs);
    }
    Ok(measured)
}

/// Returns the ratio of two means over the same sums, with its standard error (W. Cochran, *Sampling Techniques*, 1977,
/// §2.11).
fn ratio(pairs: &[(f64, f64)]) -> (f64, f64) {
    let n = pairs.len() as f64;
    let (few, full) = pairs.iter().fold((0.0, 0.0), |(few, full), pair| (few + pair.0, full + pair.1));
    let ratio = few / full;
    let spread: f64 = pairs.iter().map(|(few, full)| (few - ratio * full).powi(2)).sum();
    (ratio, (spread / (n - 1.0)).sqrt() / (full / n).abs() / n.sqrt())
}

/// Returns a standard normal number: the quantile of a uniform one with 32 bits.
fn normal(seed: u64, run: u32, index: u32) -> f64 {
    normal_quantile((f64::from(hash(At { seed, index }, run)) + 0.5) / 4_294_967_296.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        accumulate: Accumulate,
    }

    fn shown(options: &str) -> String {
        let line = Line::try_parse_from(["accumulate"].into_iter().chain(options.split_whitespace()));
        text(&line.expect("options").accumulate).expect("a table")
    }

    fn numbers(text: &str, what: &str) -> Vec<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_else(|| panic!("no {what}: {text}"));
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    #[test]
    fn chunks_help_and_the_prediction_says_so() {
        let text = shown("--length 2048 --mantissa 4 --chunk 32 --runs 60");
        let predicted = numbers(&text, "variance retained, predicted");
        assert!(predicted[0] < 0.6 && predicted[1] > 0.8, "{text}");
        // Values and standard errors by turns.
        let words = numbers(&text, "variance retained, measured");
        assert!(words[0] < 0.85 && (words[2] - 1.0).abs() < 0.1 && words[3] < 0.05, "{text}");
        let text = shown("--length 200 --mantissa 9 --chunk 16 --runs 20");
        let (worst, bound) =
            (numbers(&text, "largest error / Σ|x|, measured"), numbers(&text, "                      bound"));
        assert!(bound.len() == 2 && worst.iter().zip(&bound).all(|(worst, bound)| worst < bound), "{text}");
    }

    /// Checks that a sum of ones stops growing at 2^(m + 1) (swamping).
    #[test]
    fn terms_with_a_mean_are_swamped() {
        let text = shown("--length 8192 --mantissa 7 --mean 100 --terms 1 --runs 5");
        let words = numbers(&text, "sum retained, measured");
        assert!(words[0] < 0.1 && words[2] > 0.9, "{text}");
        assert!(!text.contains("predicted  "), "{text}");
    }

    #[test]
    fn one_by_one_alone_and_what_is_too_much() {
        let text = shown("--length 100 --chunk 0 --runs 3");
        assert!(!text.contains("in chunks of"), "{text}");
        assert!(!shown("--length 10 --chunk 10").contains("in chunks of"));
        let line = Line::try_parse_from(["accumulate", "--length", "16777216", "--runs", "100"]).expect("options");
        let error = text_error(&line.accumulate);
        assert!(error.contains("--runs: 100 sums of 16777216 terms"), "{error}");
        for wrong in ["--mantissa 0", "--mantissa 24", "--length 0", "--length 16777217", "--mean nan", "--runs 1"] {
            assert!(Line::try_parse_from(["accumulate"].into_iter().chain(wrong.split(' '))).is_err(), "{wrong}");
        }
    }

    fn text_error(accumulate: &Accumulate) -> String {
        text(accumulate).expect_err("too much").to_string()
    }
}
