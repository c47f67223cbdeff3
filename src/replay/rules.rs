//! The paper's rules along the replayed chain, from the operands that a trace has recorded.

use super::{Decides, Measured, Source, row, shift::shift};
use crate::Preset;
use gradscale_core::{
    model::terms::Terms,
    scaled::Scaled,
    solve::{Choice, NoDecision, Operand},
    stats::{Convention, Stats},
};
use std::collections::BTreeMap;

/// Exponents of the sites that this step has stored so far.
pub type Exponents = BTreeMap<String, i32>;

/// Computes the decision of a rule relative to the incoming exponent, and that exponent. `seen` is the site's own row.
pub fn verdict(
    preset: &Preset, decides: &Decides, seen: &Stats, played: &Exponents,
) -> Result<(Result<Choice, NoDecision>, i32), String> {
    Ok(match decides {
        Decides::Product { from, dy, w, terms: [typical, worst] } => {
            let incoming = exponent(from, played)?;
            // Values stored at another exponent are 2^(played − recorded) times as large.
            let factor = 2f64.powi(incoming.saturating_sub(from.exponent));
            let terms = Terms { typical: *typical, worst: *worst };
            let verdict = match (operand(dy, factor), operand(w, 1.0)) {
                (Some(dy), Some(w)) => match preset {
                    Preset::Paper(paper) => paper.product(&dy, &w, terms),
                    Preset::Authors(authors) => authors.product(&dy, &w, terms, incoming),
                    Preset::Exact | Preset::Amax => Err(NoDecision::Detail),
                },
                _ => Err(NoDecision::Empty),
            };
            (verdict, incoming)
        }
        Decides::Softmax { from, words } => {
            let incoming = exponent(from, played)?;
            let row = shift(&row(words, from.exponent)?, incoming);
            let verdict = match preset {
                Preset::Paper(paper) => paper.softmax_cast(&row),
                Preset::Authors(authors) => authors.softmax_cast(&row),
                Preset::Exact | Preset::Amax => Err(NoDecision::Detail),
            };
            (verdict, incoming)
        }
        Decides::Sum { parts } | Decides::Split { parts } => {
            let moved = parts
                .iter()
                .map(|part| Ok(Scaled::new(part.amax, part.from.exponent).rescale(exponent(&part.from, played)?)));
            let moved = moved.collect::<Result<Vec<_>, String>>()?;
            let incoming = moved.iter().map(|part| part.alpha).max().unwrap_or(0);
            let sum = shift(seen, incoming);
            let split = matches!(decides, Decides::Split { .. });
            let verdict = match preset {
                Preset::Paper(paper) => paper.branch(&moved, &sum),
                Preset::Authors(authors) if split => authors.split(&moved, &sum),
                Preset::Authors(authors) => authors.branch(&moved, &sum),
                Preset::Exact | Preset::Amax => Err(NoDecision::Detail),
            };
            (verdict, incoming)
        }
        Decides::Cast { from } => {
            let incoming = exponent(from, played)?;
            let row = shift(seen, incoming);
            let verdict = match preset {
                Preset::Paper(paper) => paper.other_cast(&row),
                Preset::Authors(authors) => authors.other_cast(&row),
                Preset::Exact | Preset::Amax => Err(NoDecision::Detail),
            };
            (verdict, incoming)
        }
    })
}

/// Returns the replayed exponent of the values that come from a source.
fn exponent(from: &Source, played: &Exponents) -> Result<i32, String> {
    match &from.site {
        None => Ok(0),
        Some(site) => played.get(site).copied().ok_or_else(|| format!("its values come from {site}, which is missing")),
    }
}

fn operand(measured: &Option<Measured>, factor: f64) -> Option<Operand> {
    let Measured { rms, max } = (*measured)?;
    Some(Operand { rms: rms * factor, max: max * factor, convention: Convention::FP16 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Part;
    use gradscale_core::{
        solve::{Authors, Paper},
        stats::Detail,
    };

    fn source(site: &str, exponent: i32) -> Source {
        Source { site: Some(site.to_owned()), exponent }
    }

    /// A split: Algorithm 1, lines 18–22, chooses the largest exponent that fits; the authors' code chooses that of the
    /// part with the largest true magnitude. As printed, any other cast passes the scale through, with or without
    /// overflow.
    #[test]
    fn splits_and_casts_by_each_preset() {
        let (paper, authors) = (Paper::new(1e-3).expect("a threshold"), Authors::new(1e-3).expect("a threshold"));
        let mut seen = Stats::new(Convention::FP16, 3, Detail::Full);
        seen.observe(&[8000.0, -1.0]);
        let played = Exponents::from([("a".to_owned(), 8), ("b".to_owned(), 2)]);
        let of = |preset: Preset, decides: &Decides| {
            let (verdict, incoming) = verdict(&preset, decides, &seen, &played).expect("all sources are there");
            incoming + verdict.expect("a decision").k
        };
        let part = |site: &str, exponent, amax| Part { from: source(site, exponent), amax };
        let parts = || vec![part("a", 0, 1.0), part("b", 0, 10.0)];
        let (sum, split) = (Decides::Sum { parts: parts() }, Decides::Split { parts: parts() });
        for rule in [Preset::Paper(paper), Preset::Paper(paper.literal())] {
            assert_eq!((of(rule, &sum), of(rule, &split)), (8, 8));
        }
        assert_eq!((of(Preset::Authors(authors), &sum), of(Preset::Authors(authors), &split)), (8, 2));
        // 1000 · 2^8 overflows, and 1000 · 2^6 does not.
        let cast = Decides::Cast { from: source("a", 0) };
        let all = [Preset::Paper(paper), Preset::Paper(paper.literal()), Preset::Authors(authors)];
        assert_eq!(all.map(|rule| of(rule, &cast)), [6, 8, 6]);
    }

    /// A value that would overflow at the replayed exponent lowers it by the minimum.
    #[test]
    fn casts_and_sums_come_down_from_what_is_played() {
        let preset = Preset::Paper(Paper::new(1e-3).expect("a threshold"));
        // The true value is 1000, observed at 2^3.
        let mut seen = Stats::new(Convention::FP16, 3, Detail::Full);
        seen.observe(&[8000.0, -1.0]);
        let played = Exponents::from([("a".to_owned(), 10), ("b".to_owned(), 2)]);
        let of = |decides: Decides| {
            let (verdict, incoming) = verdict(&preset, &decides, &seen, &played).expect("all sources are there");
            incoming + verdict.expect("a decision").k
        };
        // 1000 · 2^6 = 64000 is the maximum that fits.
        assert_eq!(of(Decides::Cast { from: source("a", 0) }), 6);
        assert_eq!(of(Decides::Cast { from: source("b", 0) }), 2);
        assert_eq!(of(Decides::Cast { from: Source { site: None, exponent: 0 } }), 0);
        // The largest exponent of the parts at which each still fits: 100 at 2^0 is 102400 at 2^10.
        let part = |site: &str, exponent, amax| Part { from: source(site, exponent), amax };
        assert_eq!(of(Decides::Sum { parts: vec![part("a", 0, 1.0), part("b", 0, 100.0)] }), 2);
        assert_eq!(of(Decides::Sum { parts: vec![part("a", 0, 1.0), part("b", 0, 10.0)] }), 10);
        // No exponent fits: the values of the sum decide, as for any cast.
        assert_eq!(of(Decides::Sum { parts: vec![part("a", 10, 65504.0)] }), 6);
        let lost = Decides::Cast { from: source("c", 0) };
        assert_eq!(verdict(&preset, &lost, &seen, &played), Err("its values come from c, which is missing".to_owned()));
    }
}
