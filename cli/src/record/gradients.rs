//! Gradients by magnitude, before and after their scales, compared with the range of the format that stores them.

use super::{Histogram, Record, SiteSeries};
use gradscale::{Method, Scaling, gradscale_core::store_format::StoreFormat};
use std::{collections::BTreeMap, fmt::Write};

/// Limits between the zones of a format's range: the last powers of two that are flushed, subnormal and normal.
pub const fn limits(format: StoreFormat) -> [i32; 3] {
    let format = format.format();
    let least_normal = format.min_exponent();
    [format.min_subnormal_exponent() - 1, least_normal, least_normal + format.binades()]
}

/// Zones of a format's range: name, and exponents from above 2^from to 2^to.
pub fn zones(format: StoreFormat) -> [(&'static str, f64, f64); 4] {
    let [flushed, subnormal, normal] = limits(format).map(f64::from);
    [
        ("flushed", f64::NEG_INFINITY, flushed),
        ("subnormal", flushed, subnormal),
        ("normal", subnormal, normal),
        ("overflow", normal, f64::INFINITY),
    ]
}

/// Returns the format in which a method stores gradients, by the method's text.
pub fn format_of(method: &str) -> StoreFormat {
    match method.parse::<Method>().map(|method| method.scaling) {
        Ok(Scaling::Gradient(gradient)) => gradient.formats.gradient,
        Ok(Scaling::Blocks(blocks)) => blocks.formats().gradient,
        Ok(Scaling::Loss(_)) | Err(_) => StoreFormat::Fp16,
    }
}

/// Returns the name of a format in sentences: FP16, E5M2 or E4M3.
pub fn title(format: StoreFormat) -> String {
    format.name().to_uppercase()
}

/// Bins by their upper end, as a power of two, with shares of all values.
pub type Shares = Vec<(i32, f64)>;

/// Last observed histograms of a run's gradients.
#[derive(Debug)]
pub struct Observed<'a> {
    pub run: &'a Record,
    /// Name, values by true magnitude, exponent in force at the end; as they come, from the loss.
    pub sites: Vec<(&'a str, &'a Histogram, i32)>,
}

impl<'a> Observed<'a> {
    /// Returns the histograms of the run that observed them last. Gradient scaling is preferred, because other methods
    /// have lost the values that they flushed.
    pub fn latest(runs: &[&'a Record]) -> Option<Self> {
        let observed = |run: &Record| {
            let step = run.sites.iter().filter_map(|site| Some(site.histogram.as_ref()?.iteration)).max()?;
            Some((threshold(&run.method).is_some(), step))
        };
        let best = runs.iter().filter_map(|run| observed(run)).max()?;
        let run = runs.iter().copied().find(|run| observed(run) == Some(best))?;
        let site = |site: &'a SiteSeries| Some((&site.name[..], site.histogram.as_ref()?, *site.alpha.last()?));
        Some(Self { run, sites: run.sites.iter().filter_map(site).collect() })
    }

    /// Returns the distribution of gradients before and after scaling.
    pub fn before_and_after(&self) -> [Shares; 2] {
        let before = self.sites.iter().map(|(_, histogram, _)| (*histogram, 0));
        let after = self.sites.iter().map(|(_, histogram, alpha)| (*histogram, *alpha));
        [together(before), together(after)]
    }
}

/// Returns γ′ of a gradient-scaling method by its name; `None` for other methods.
pub fn threshold(method: &str) -> Option<f64> {
    let options = method.strip_prefix("gs").filter(|rest| rest.is_empty() || rest.starts_with([':', ',']))?;
    let gamma = options.split([':', ',']).find_map(|option| option.trim().strip_prefix("gamma="));
    Some(gamma.and_then(|gamma| gamma.trim().parse().ok()).unwrap_or(1e-3))
}

/// Sums several histograms, each shifted by its exponent.
pub fn together<'a>(histograms: impl Iterator<Item = (&'a Histogram, i32)>) -> Shares {
    let mut sums = BTreeMap::new();
    for (histogram, alpha) in histograms {
        for (end, &count) in (histogram.first.saturating_add(alpha)..).zip(&histogram.counts) {
            *sums.entry(end).or_insert(0.0) += f64::from(count);
        }
    }
    let whole: f64 = sums.values().sum();
    sums.into_iter().map(|(end, count)| (end, count / whole)).collect()
}

/// Returns the share of values in a range.
pub fn within(shares: &Shares, from: f64, to: f64) -> f64 {
    shares.iter().filter(|(end, _)| f64::from(*end) > from && f64::from(*end) <= to).map(|(_, share)| share).sum()
}

/// Ends of the bins that are worth a place: all but the smallest values, one in ten thousand.
pub fn span(both: &[Shares; 2]) -> (i32, i32) {
    let low = |shares: &Shares| {
        let mut below = 0.0;
        let seen = shares.iter().find(|(_, share)| {
            below += share;
            below > 1e-4
        });
        seen.map_or(0, |(end, _)| *end)
    };
    let high = both.iter().flatten().map(|(end, _)| *end).max().unwrap_or(0);
    (low(&both[0]).min(low(&both[1])), high)
}

/// Number of columns of the histogram in files: with its indent, and with labels that reach beyond it, it fits 80.
pub const COLUMNS: i32 = 72;

/// Number of columns by which labels may reach beyond the bars: `2^-140` at the last bar.
const LABEL_OVERHANG: usize = 6;

/// Draws the histograms before and after scaling in text, one of at most `columns` per power of two or several. No line
/// has more than `columns` + 8 characters: an indent of two, and labels beyond the bars. `None` for runs without f16.
pub fn text(runs: &[&Record], columns: i32) -> Option<String> {
    let observed = Observed::latest(runs)?;
    let both = observed.before_and_after();
    let zones = zones(format_of(&observed.run.method));
    let (low, high) = span(&both);
    let (low, high) = (low.min(-30), high.max(20));
    let step = (high - low) / columns + 1;
    let column = |power: i32| usize::try_from((power.clamp(low, high) - low) / step).unwrap_or(0);
    let width = column(high) + 1;
    let mut text = String::new();
    let titles = [
        "Gradients without scales".to_owned(),
        format!("Gradients times their scales, as {} stores them", observed.run.method),
    ];
    for (title, shares) in titles.iter().zip(&both) {
        let parts = zones.map(|(zone, from, to)| format!("{} {zone}", percent(within(shares, from, to))));
        writeln!(text, "{title}: {}", parts.join(", ")).ok();
        let mut bars = vec![0.0; width];
        shares.iter().for_each(|(end, share)| bars[column(*end)] += share);
        let highest = bars.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        writeln!(text, "  {}", bars.iter().map(|share| block(share / highest)).collect::<String>().trim_end()).ok();
    }
    // The bin that ends at a limit is the last of its zone.
    let [flushed, subnormal, normal] = limits(format_of(&observed.run.method));
    let starts =
        [low, flushed + 1, subnormal + 1, normal + 1].map(|power| usize::try_from((power - low) / step).unwrap_or(0));
    let end = usize::try_from(columns).unwrap_or(0) + LABEL_OVERHANG;
    let mut ruler = String::from("  ");
    for (i, (zone, ..)) in zones.iter().enumerate() {
        let room = starts.get(i + 1).copied().unwrap_or(end).saturating_sub(starts[i]);
        let mark = if starts[i] == 0 { "" } else { "|" };
        // A label that is too long is truncated.
        ruler.extend(format!("{mark}{zone:room$}").chars().take(room));
    }
    writeln!(text, "{}", ruler.trim_end()).ok();
    let mut axis = vec![' '; width + LABEL_OVERHANG];
    // So far apart that the longest, 2^-140, has room.
    let apart = 20 * ((8 * step + 19) / 20);
    for power in (low..=high).filter(|power| power % apart == 0) {
        axis.iter_mut().skip(column(power)).zip(format!("2^{power}").chars()).for_each(|(place, c)| *place = c);
    }
    writeln!(text, "  {}", axis.into_iter().collect::<String>().trim_end()).ok();
    Some(text)
}

/// Returns a bar of one of eight heights; non-zero shares are always visible.
fn block(share: f64) -> char {
    if share <= 0.0 {
        return ' ';
    }
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = (1..8).find(|height| share <= f64::from(*height) / 8.0).unwrap_or(8);
    HEIGHTS[usize::try_from(height - 1).unwrap_or(0)]
}

/// Formats a share in percent, so short as is true: a share above 0 is not 0.
pub fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0 %".to_owned(),
        p if p < 0.01 => "below 0.01 %".to_owned(),
        p if p < 1.0 => format!("{p:.2} %"),
        p if p < 99.95 => format!("{p:.1} %"),
        _ => "100 %".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(method: &str, alpha: i32) -> Record {
        let site = json!({
            "name": "a/dgrad", "iteration": [1], "alpha": [alpha], "gamma_measured": [0.5], "gamma_predicted": [null],
            "overflows": [0], "subnormal_share": [0.0], "amax": [-20.0], "bound": [null], "worst_at_decision": 0.0,
            "worst_between": 0.0, "steps_above": 0, "bound_by_overflow": 0, "worst": 0.5,
            "histogram": {"iteration": 1, "first": -28, "counts": [1, 2, 4, 1]},
        });
        let record = json!({
            "method": method, "seed": 0, "iterations": 1, "skipped_steps": 0, "seconds": 0.1, "activation_bytes": 0,
            "loss": [1.0], "skipped_at": [], "scores": [], "sites": [site], "samples": [],
        });
        serde_json::from_value(record).expect("a record")
    }

    #[test]
    fn before_and_after_in_text() {
        let (fixed, gs) = (record("fixed:2", 1), record("gs", 20));
        let text = text(&[&fixed, &gs], COLUMNS).expect("histograms");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Gradients without scales: 100 % flushed, 0 % subnormal, 0 % normal, 0 % overflow");
        assert!(
            lines[2].starts_with(
                "Gradients times their scales, as gs stores them: 0 % flushed, 0 % subnormal, 100 % normal"
            )
        );
        assert_eq!((lines[1].trim(), lines[3].trim()), ("▂▄█▂", "▂▄█▂"));
        // From 2^-30 on: the first bin is that of 2^-28, the other twenty further.
        let at = |line: &str, c| line.chars().position(|other| other == c).expect("there");
        assert_eq!((at(lines[1], '█'), at(lines[3], '█')), (2 + 4, 2 + 24));
        assert_eq!(at(lines[4], '|'), 2 + 6, "2^-24 is the first power that is not flushed");
        assert_eq!(lines[5].find("2^-20"), Some(2 + 10));
        assert!(super::text(&[], COLUMNS).is_none());
    }

    /// Checks that labels of the ruler and of the axis keep to the width for all ranges of values.
    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for first in [-150, -90, -43, -28] {
            let mut run = record("gs", 20);
            run.sites[0].histogram.as_mut().expect("a histogram").first = first;
            for columns in [12, 32, 40, COLUMNS] {
                let text = text(&[&run], columns).expect("histograms");
                let widest = text.lines().filter(|line| line.starts_with(' ')).map(|line| line.chars().count()).max();
                assert!(widest <= usize::try_from(columns + 8).ok(), "{first}, {columns}:\n{text}");
            }
        }
    }

    #[test]
    fn zones_are_those_of_the_method() {
        assert_eq!(limits(format_of("gs")), [-25, -14, 16]);
        assert_eq!(limits(format_of("gs:grad=e5m2,act=e4m3")), [-17, -14, 16]);
        assert_eq!(limits(format_of("amax:format=e4m3")), [-10, -6, 9]);
        let run = record("gs:grad=e4m3", 20);
        let text = text(&[&run], COLUMNS).expect("histograms");
        let line =
            "Gradients times their scales, as gs:grad=e4m3 stores them: 0 % flushed, 87.5 % subnormal, 12.5 % normal";
        assert!(text.lines().nth(2).is_some_and(|shown| shown.starts_with(line)), "{text}");
    }

    #[test]
    fn thresholds_by_name() {
        let names = ["gs", "gs:exact,gamma=1e-4,interval=2", "gs,gamma=0.5", "fp16", "gsx"];
        assert_eq!(names.map(threshold), [Some(1e-3), Some(1e-4), Some(0.5), None, None]);
    }

    #[test]
    fn shares_in_words() {
        let shares = [0.0, 1e-9, 0.001, 0.5, 0.9996, 1.0];
        assert_eq!(shares.map(percent), ["0 %", "below 0.01 %", "0.10 %", "50.0 %", "100 %", "100 %"]);
    }
}
