//! Optimizers and schedules as text.

use super::{MILLION, NUMBERS, fuzz, text};
use gradscale_cli::optimizer::{Rule, Schedule};
use std::{fmt, str::FromStr};

/// Checks that the formatted form of a parsed text parses to the same value.
fn same_again<T: FromStr<Err = String> + fmt::Display + PartialEq + fmt::Debug>(text: &str) -> Option<T> {
    let read = text.parse::<T>();
    assert_eq!(read, format!(" {text}\t").parse(), "{text:?}");
    match &read {
        Ok(value) => assert_eq!(value.to_string().parse().as_ref(), Ok(value), "{text:?} is shown as {value}"),
        Err(cause) => assert!(!cause.is_empty() && !cause.contains('\n'), "{text:?}: {cause}"),
    }
    read.ok()
}

pub fn texts() {
    let rules = [
        "sgd",
        "sgd:momentum=0.9,nesterov=yes",
        "adam:beta1=0.8,beta2=0.95",
        "adam:eps=1e-17",
        "adamw:eps=0.001,beta2=0.5",
        "lamb:beta1=0.8,eps=1e-4",
        "rmsprop:alpha=0.9,momentum=0.5,centered=yes,eps=1e-5",
        "adagrad:eps=0.5",
        "lion:beta2=0.95",
    ];
    let keys = [",", ":", "=", "momentum=0.5", "beta1=", "eps=", "nesterov=no", "adam", "0.99999999"];
    let examples: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
    fuzz("--optimizer", MILLION / 4, &examples, &[&NUMBERS[..], &keys].concat(), |bytes| {
        let Some(rule) = same_again::<Rule>(&text(bytes)) else { return false };
        match rule {
            Rule::Sgd { momentum, .. } => assert!((0.0..1.0).contains(&momentum)),
            Rule::Adam(moments) | Rule::AdamW(moments) | Rule::Lamb(moments) => {
                assert!(moments.betas.iter().all(|beta| (0.0..1.0).contains(beta)));
                assert!(moments.eps >= 1e-17 && moments.eps <= 1.0);
            }
            Rule::RmsProp { alpha, momentum, eps, .. } => {
                assert!([alpha, momentum].iter().all(|share| (0.0..1.0).contains(share)));
                assert!((1e-17..=1.0).contains(&eps));
            }
            Rule::Adagrad { eps } => assert!((1e-17..=1.0).contains(&eps)),
            Rule::Lion { betas } => assert!(betas.iter().all(|beta| (0.0..1.0).contains(beta))),
        }
        true
    });
    let schedules = [
        "constant",
        "constant:warmup=5",
        "step:every=10,factor=0.5",
        "step:at=10/20/4000,factor=1e-3,warmup=7",
        "cosine:steps=100,warmup=9",
        "polynomial:power=0.9",
        "polynomial:steps=77,power=2,warmup=3",
    ];
    let keys = [",", ":", "=", "/", "steps=3", "warmup=", "at=1/2", "factor=", "step:", "1099511627776"];
    let examples: Vec<&[u8]> = schedules.iter().map(|schedule| schedule.as_bytes()).collect();
    fuzz("--schedule", MILLION / 4, &examples, &[&NUMBERS[..], &keys].concat(), |bytes| {
        let Some(schedule) = same_again::<Schedule>(&text(bytes)) else { return false };
        for iters in [1, 50, 1 << 40] {
            let Ok(schedule) = schedule.clone().over(iters) else { continue };
            let engine = schedule.engine();
            for step in [0, 1, 9, 10, 1000, u64::MAX - 1] {
                assert!((0.0..=1.0).contains(&engine.factor(step)), "{schedule} after {step} steps");
            }
        }
        true
    });
}
