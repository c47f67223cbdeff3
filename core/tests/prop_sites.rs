//! Tests of sites under any history: saved and restored at every step, at exponents and ceilings of any size.

mod common;

use common::{cases, full, gradient, site, step, stored};
use gradscale_core::{
    site::{Calls, Guard, Memory, Site, SiteConfig, SiteOutcome, SiteState, WORDS, When},
    solve::NoDecision,
    stats::Detail,
};
use proptest::{collection::vec, prelude::*, sample::select};

#[derive(Clone, Debug)]
enum Event {
    Step(i32),
    Zeros,
    Masked(i32, Detail),
    Skipped(i32, Detail),
    SkippedDownstream,
}

fn event() -> impl Strategy<Value = Event> {
    let detail = || select(vec![Detail::Counts, Detail::Full]);
    prop_oneof![
        6 => (-60..-20).prop_map(Event::Step),
        1 => Just(Event::Zeros),
        1 => (0..40, detail()).prop_map(|(m, detail)| Event::Masked(m, detail)),
        1 => (0..40, detail()).prop_map(|(m, detail)| Event::Skipped(m, detail)),
        1 => Just(Event::SkippedDownstream),
    ]
}

fn memory() -> impl Strategy<Value = Memory> {
    select(vec![Memory::None, Memory::Least, Memory::Ring])
}

fn happen(site: &mut Site, event: &Event) -> Option<i32> {
    let alpha = site.alpha().unwrap_or(0);
    let at = |u: i32, detail| stored(&gradient(u - alpha), alpha, detail);
    match *event {
        Event::Step(m) => return step(site, &gradient(m)),
        Event::Zeros => return step(site, &[0.0]),
        Event::Masked(u, detail) => site.finish(&at(u, detail), SiteOutcome::Stepped),
        Event::Skipped(u, detail) => site.finish(&at(u, detail), SiteOutcome::Skipped),
        Event::SkippedDownstream => site.finish(&full(alpha, &[f32::NAN]), SiteOutcome::SkippedDownstream),
    }
    site.alpha()
}

fn again(site: &Site) -> Site {
    Site::from_words(&site.to_words()).expect("its own words")
}

fn stepped_site() -> Site {
    let mut site = site(SiteConfig::exact());
    for m in 0..20 {
        happen(&mut site, &Event::Step(-60 + m));
    }
    site
}

proptest! {
    #![proptest_config(cases(256))]

    /// A checkpoint at any step: the restored site has the same trace.
    #[test]
    fn a_restored_site_makes_the_same_trace(
        interval in 1..5u32, paper in any::<bool>(), several in any::<bool>(), memory in memory(),
        events in vec(event(), 1..60),
    ) {
        let when = if paper { When::AtOnce } else { When::Between };
        let calls = if several { Calls::Several } else { Calls::One };
        let config = SiteConfig { interval, when, calls, memory, ..SiteConfig::exact() };
        let (mut through, mut resumed) = (site(config), site(config));
        for event in &events {
            let mut next = site(config);
            next.restore(&resumed.state());
            resumed = next;
            prop_assert_eq!(resumed.request(), through.request());
            prop_assert_eq!(happen(&mut resumed, event), happen(&mut through, event));
            prop_assert_eq!(resumed.state(), through.state());
        }
    }

    /// A site saved as words at any point, even in the middle of a repeated step, has the same trace.
    #[test]
    fn a_site_from_words_makes_the_same_trace(
        interval in 1..5u32, paper in any::<bool>(), several in any::<bool>(), memory in memory(),
        outliers in prop::option::of(8..100i32), events in vec((event(), 0..3usize), 1..60),
    ) {
        let when = if paper { When::AtOnce } else { When::Between };
        let calls = if several { Calls::Several } else { Calls::One };
        let config = SiteConfig { interval, when, calls, memory, outliers, ..SiteConfig::exact() };
        let (mut through, mut written) = (site(config), site(config));
        for (event, repeats) in &events {
            for _ in 0..*repeats {
                let row = full(through.alpha().unwrap_or(0), &[1e5, 1e-3]);
                for site in [&mut through, &mut written] {
                    site.repeat(&row);
                }
                written = again(&written);
                prop_assert_eq!(written.request(), through.request());
            }
            prop_assert_eq!(happen(&mut written, event), happen(&mut through, event));
            written = again(&written);
            prop_assert_eq!(written.state(), through.state());
            prop_assert_eq!(written.to_words(), through.to_words());
        }
    }

    /// Any words give an error, or a site that works.
    #[test]
    fn words_of_any_kind_never_panic(changes in vec((0..WORDS, prop_oneof![any::<i64>(), -2..20i64]), 1..4), m in -120..120i32) {
        let mut words = stepped_site().to_words();
        for (at, word) in changes {
            words[at] = word;
        }
        if let Ok(mut site) = Site::from_words(&words) {
            happen(&mut site, &Event::Step(m));
            site.repeat(&full(site.alpha().unwrap_or(0), &gradient(m)));
            happen(&mut site, &Event::Skipped(3, Detail::Full));
            prop_assert_eq!(again(&site).to_words(), site.to_words());
        }
    }

    /// Exponents are limited only by i32, and saturate there.
    #[test]
    fn extreme_exponents_never_panic(
        exponents in vec(prop_oneof![Just(i32::MIN), Just(i32::MAX), -5..5, any::<i32>()], 1..20),
        m in -120..120i32, ceilings in vec(prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()], 0..16), overflow in any::<bool>(), memory in memory(),
    ) {
        let mut site = site(SiteConfig { interval: 1, memory, ..SiteConfig::exact() });
        let ceilings = ceilings.into_iter().collect();
        site.restore(&SiteState { alpha: Some(exponents[0]), since: u32::MAX, at_once: false, ceilings, guard: Guard::default(), tried: None });
        for (i, &exponent) in exponents.iter().enumerate() {
            let values = if overflow { gradient(m.abs() / 8 + 16) } else { gradient(m) };
            let end = [SiteOutcome::Stepped, SiteOutcome::Skipped, SiteOutcome::SkippedDownstream][i % 3];
            site.finish(&full(exponent, &values), end);
            let verdict = site.exact(&full(exponent, &values));
            if let (Ok(choice), Some(alpha)) = (verdict, site.decide(verdict, exponent)) {
                prop_assert_eq!(alpha, exponent.saturating_add(choice.k));
            }
            site.decide(Err(NoDecision::Empty), exponent);
        }
    }
}

/// A restored ceiling is obeyed, however low or high it is.
#[test]
fn a_ceiling_of_any_size_is_obeyed() {
    let mut site = site(SiteConfig { memory: Memory::Least, ..SiteConfig::exact() });
    // The highest ceiling has no effect, and the lowest gives the smallest possible k.
    for (ceiling, want) in [(i64::MAX, 17), (i64::MIN, -152)] {
        for exponent in [i32::MIN, -5, 0, 5, i32::MAX] {
            let ceilings = core::iter::once(ceiling).collect();
            site.restore(&SiteState {
                alpha: Some(0),
                since: 0,
                at_once: false,
                ceilings,
                guard: Guard::default(),
                tried: None,
            });
            let k = site.exact(&full(exponent, &gradient(-30))).map(|choice| choice.k);
            assert_eq!(k, Ok(want), "ceiling {ceiling}, row at {exponent}");
        }
    }
}
