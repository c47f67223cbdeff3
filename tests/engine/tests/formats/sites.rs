//! Sites whose stores have 8 bits, without an engine: formats by the kind of slot, and decisions from rows of a device.

use gradscale::{
    Method,
    gradscale_core::{
        site::{Site, SiteOutcome},
        stats::{Convention, Detail, Stats},
        store_format::StoreFormat,
    },
    sites::{Attempt, Finished, Sites, SlotKind},
};

const METHOD: &str = "gs:grad=e5m2,act=e4m3,weight=e5m2,interval=1";

fn sites(method: &str) -> Sites {
    let method: Method = method.parse().unwrap_or_else(|error| panic!("{error}"));
    Sites::new(method.scaling).expect("a rule")
}

/// Returns the row of values as a device counts it that stores in `format`: read as a row of FP16.
fn counted(format: StoreFormat, exponent: i32, values: &[f32]) -> Stats {
    let mut row = Stats::new(format.convention(), exponent, Detail::Full);
    row.observe(values);
    Stats::from_words(&row.to_words(), Convention::FP16, exponent).expect("written by a row")
}

#[test]
fn each_kind_of_slot_has_its_format() {
    let mut sites = sites(METHOD);
    let kinds = [SlotKind::Site, SlotKind::Forward, SlotKind::Weight, SlotKind::Parameter];
    let slots = kinds.map(|kind| sites.slot(&format!("{kind:?}"), kind).expect("room"));
    let formats = |sites: &Sites| slots.map(|slot| sites.format(slot).name());
    assert_eq!(formats(&sites), ["e5m2", "fp16", "fp16", "fp16"], "activations have no exponents yet");
    sites.give_forward_exponents(true);
    assert_eq!(formats(&sites), ["e5m2", "e4m3", "e5m2", "fp16"]);
    assert_eq!(
        slots.map(|slot| sites.site(slot).map(|site| site.config().exact.window())),
        [Some(3), Some(4), Some(3), None]
    );
    sites.share(slots[1]);
    assert_eq!(sites.format(slots[1]), StoreFormat::E4m3);
}

/// A device's row says nothing about its format. Decisions, before a store and after a step, are those of core for a row of
/// the format, and the row that is reported has the format's bounds.
#[test]
fn rows_count_in_the_format_of_their_slot() {
    let mut sites = sites(METHOD);
    sites.give_forward_exponents(true);
    let (gradient, activation) = (sites.slot("a", SlotKind::Site).expect("room"), sites.slot("b", SlotKind::Forward));
    let (values, small) = ([3.0, 1e-3, 2e-4, 5e-8], [400.0, 1.0, 0.01, 0.002]);
    for (slot, own) in [(gradient, values), (activation.expect("room"), small)] {
        let format = sites.format(slot);
        let mut alone = match slot == gradient {
            true => Site::new(*sites.site(slot).expect("a site").config()),
            false => Site::forward(*sites.site(slot).expect("a site").config(), true),
        }
        .expect("its settings are valid");
        let mut seen = Stats::new(format.convention(), 0, Detail::Full);
        seen.observe(&own);
        let expected = alone.decide(alone.exact(&seen), 0);
        sites.decide_from(slot, &counted(format, 0, &own), 0);
        assert_eq!(Some(sites.exponent(slot)), expected, "{format}");
        let scaled = own.map(|value| value * 2f32.powi(sites.exponent(slot)));
        let mut rows = vec![counted(StoreFormat::Fp16, 0, &[]); sites.len()];
        rows[usize::from(slot.0)] = counted(format, sites.exponent(slot), &scaled);
        let attempt = Attempt { found_inf: false, failed: 0, repeatable: true, micro: 1 };
        assert_eq!(sites.finish(&rows, &[slot], attempt), Finished::Stepped);
        let row = sites.row(slot).expect("it has stored");
        assert_eq!(*row, rows[usize::from(slot.0)].counted_in(format));
        let mut stored = Stats::new(format.convention(), row.exponent(), Detail::Full);
        stored.observe(&scaled);
        alone.finish(&stored, SiteOutcome::Stepped);
        assert_eq!(Some(sites.exponent(slot)), alone.alpha(), "{format}");
    }
}
