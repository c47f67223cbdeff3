//! Decisions of each rule on rows with many spreads, and sites over several steps.

use crate::rows;
use core::fmt::{self, Write};
use gradscale_core::{
    gradient_rules,
    model::{erf, terms::ConvShape, terms::Terms},
    scaled::Scaled,
    site::{Calls, Memory, Site, SiteConfig, SiteOutcome},
    solve::{Authors, Choice, Exact, NoDecision, Operand, Paper},
    stats::{Convention, Detail, FlushRule, Stats},
};

/// Prints the section about decisions of scaling rules: one line each, numbers with all their bits.
pub fn print(out: &mut impl Write) -> fmt::Result {
    for p in [1e-300, 1e-6, 1e-3, 0.1, 0.4999, 0.9, 0.999_999] {
        writeln!(
            out,
            "p = {p:e}: z {:016x}, inverse of erf {:016x}, of erfc {:016x}",
            erf::normal_quantile(p).to_bits(),
            erf::erf_inv(p).to_bits(),
            erf::erfc_inv(p).to_bits()
        )?;
    }
    for rule in FlushRule::ALL {
        let Ok(convention) = Convention::new(Convention::FP16.format(), rule) else { continue };
        for (seed, centre) in (0..).zip([-60, -40, -24, -17, -9, 0, 7, 30]) {
            let row = rows::row(convention, 4, Detail::Moments, rows::scaled(seed, 600, centre, 4));
            line(out, format_args!("exact, {rule:?}, 2^{centre}"), Exact::FP16.decide(&row))?;
            models(out, centre, &row)?;
        }
    }
    line(out, format_args!("exact, nothing"), Exact::FP16.decide(&rows::row(Convention::FP16, 0, Detail::Full, [])))?;
    // The jump comes at a step that is skipped because of an earlier site, at one with a mask, and at one that
    // overflows here.
    for (jump, (name, config)) in (8..).zip([
        ("exact", SiteConfig { interval: 3, ..SiteConfig::exact() }),
        ("amax history", SiteConfig { interval: 2, memory: Memory::Least, ..SiteConfig::exact() }),
        ("several calls", SiteConfig { interval: 4, calls: Calls::Several, ..SiteConfig::exact() }),
    ]) {
        live(out, name, config, jump)?;
    }
    let parts = [Scaled::new(40_000.0, 3), Scaled::new(1e-5, -7), Scaled::new(0.0, 90), Scaled::new(2.5, 30)];
    for n in 1..=parts.len() {
        let parts = &parts[..n];
        writeln!(
            out,
            "branch of {n}: {:?}, paper {:?}, split {:?}",
            gradient_rules::sum(parts),
            gradient_rules::branch_paper(parts),
            gradient_rules::split_paper(parts)
        )?;
    }
    Ok(())
}

/// Prints the decisions of the paper's rules on the same row: as a cast, and as the incoming gradient of a convolution.
fn models(out: &mut impl Write, centre: i32, row: &Stats) -> fmt::Result {
    let shape = ConvShape { out_channels: 48, kernel: [3, 5], stride: [2, 3], dilation: [1, 2], groups: 4 };
    let Ok(terms) = Terms::conv(shape) else { return Err(fmt::Error) };
    let w = Operand { rms: 0.05, max: 0.3, convention: row.convention() };
    for gamma in [1e-9, 1e-3, 0.2] {
        let (Ok(paper), Ok(authors)) = (Paper::new(gamma), Authors::new(gamma)) else { return Err(fmt::Error) };
        let dy = Operand::from_row(row);
        let alpha = row.exponent();
        for (name, verdict) in [
            ("paper, product", dy.and_then(|dy| paper.product(&dy, &w, terms))),
            ("paper, softmax", paper.softmax_cast(row)),
            ("paper, cast", paper.other_cast(row)),
            ("literal, product", dy.and_then(|dy| paper.literal().product(&dy, &w, terms))),
            ("literal, softmax", paper.literal().softmax_cast(row)),
            ("authors, product", dy.and_then(|dy| authors.product(&dy, &w, terms, alpha))),
            ("authors, softmax", authors.softmax_cast(row)),
        ] {
            line(out, format_args!("{name}, 2^{centre}, {gamma}"), verdict)?;
        }
    }
    Ok(())
}

/// Runs a site through 24 steps of a gradient that shrinks, jumps by at least 2^24, shrinks again, and is zero once.
fn live(out: &mut impl Write, name: &str, config: SiteConfig, jump: u32) -> fmt::Result {
    let Ok(mut site) = Site::new(config) else { return Err(fmt::Error) };
    for step in 0..24u32 {
        let centre = match step {
            _ if step < jump => -10 - 2 * step.cast_signed(),
            _ if step < 16 => 2,
            _ => -30,
        };
        let count = if step == 20 { 0 } else { 300 };
        let request = site.request();
        if request.at_once {
            let probe = rows::row(Convention::FP16, 0, request.detail, rows::scaled(step, count, centre, 0));
            site.decide(site.exact(&probe), probe.exponent());
        }
        let alpha = site.alpha().unwrap_or(0);
        let row = rows::row(Convention::FP16, alpha, request.detail, rows::scaled(step, count, centre, alpha));
        let end = match (row.counts().overflowed, step % 5) {
            (0, _) | (_, 4) => SiteOutcome::Stepped,
            (_, 3) => SiteOutcome::SkippedDownstream,
            _ => SiteOutcome::Skipped,
        };
        site.finish(&row, end);
        writeln!(out, "site, {name}, step {step}: {request:?}, stored at 2^{alpha}, {end:?}, then {:?}", site.state())?;
        // A checkpoint in the middle changes nothing.
        if step == 11 {
            let state = site.state();
            let Ok(resumed) = Site::new(config) else { return Err(fmt::Error) };
            site = resumed;
            site.restore(&state);
        }
    }
    for decision in site.history() {
        writeln!(out, "site, {name}, decided: {decision}")?;
    }
    Ok(())
}

fn line(out: &mut impl Write, name: fmt::Arguments<'_>, verdict: Result<Choice, NoDecision>) -> fmt::Result {
    match verdict {
        // A NaN ("no model") is printed without its bits.
        Ok(Choice { k, held, gamma }) if gamma.is_nan() => writeln!(out, "{name}: 2^{k}, bound by {held}"),
        Ok(Choice { k, held, gamma }) => {
            writeln!(out, "{name}: 2^{k}, bound by {held}, predicted {gamma:e} = {:016x}", gamma.to_bits())
        }
        Err(error) => writeln!(out, "{name}: {error}"),
    }
}
