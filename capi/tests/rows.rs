//! A million random rows of three formats through store, site and loss scale, by core only: a hash of all bits. `rows.txt` contains it,
//! and `test.sh` compares it with that of `rows.c`.

use gradscale_core::{
    cast::{Round, encode_slice, f16_slice_from_f32},
    loss_scale::{Dynamic, DynamicConfig, Feedback, LossScale},
    scale::Factor,
    scaled::Scaled,
    site::{Site, SiteConfig, SiteOutcome},
    stats::{Detail, Stats},
    store_format::StoreFormat,
};
use half::f16;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bits")]
fn hash(rows: usize) -> u64 {
    let mut random = Random(1);
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut add = |word: u32| hash = (hash ^ u64::from(word)).wrapping_mul(0x100_0000_01B3);
    let mut scale =
        LossScale::Dynamic(Dynamic::new(DynamicConfig { interval: 20, ..DynamicConfig::default() }).expect("numbers"));
    let mut site = Site::new(SiteConfig::exact()).expect("numbers");
    for i in 0..rows {
        let format = StoreFormat::ALL[i / 100 % 3];
        if i % 100 == 0 {
            site = Site::new(SiteConfig::exact().with_format(format)).expect("numbers");
        }
        let r = random.next();
        let base = 60 + ((r >> 8) % 100) as u32;
        let v: Vec<f32> = (0..=r % 8)
            .map(|_| {
                let x = random.next();
                let bits = x as u32;
                let narrow = bits & 0x807F_FFFF | (base + ((x >> 40) % 24) as u32) << 23;
                f32::from_bits(if (x >> 32) % 97 == 0 { bits } else { narrow })
            })
            .collect();
        let request = site.request();
        let mut exponent = site.alpha().unwrap_or(0);
        if request.at_once {
            let mut probe = Stats::new(format.convention(), 0, Detail::Full);
            probe.observe(&v);
            exponent = site.decide(site.exact(&probe), 0).unwrap_or(0);
        }
        let factor = Factor::between(0, exponent);
        let scaled: Vec<f32> = v.iter().map(|&v| factor.apply(v)).collect();
        let mut row = Stats::new(format.convention(), exponent, request.detail);
        row.observe(&scaled);
        let y: Vec<u32> = if format == StoreFormat::Fp16 {
            let mut halves = vec![f16::ZERO; v.len()];
            f16_slice_from_f32(&scaled, &mut halves, Round::NearestEven).expect("one length");
            halves.iter().map(|y| y.to_bits().into()).collect()
        } else {
            let mut bytes = vec![0u8; v.len()];
            encode_slice(format.format(), &scaled, &mut bytes, Round::NearestEven).expect("one length");
            bytes.into_iter().map(u32::from).collect()
        };
        let counts = *row.counts();
        let lost = counts.overflowed + counts.non_finite() != 0;
        site.finish(&row, if lost { SiteOutcome::Skipped } else { SiteOutcome::Stepped });
        scale.update(&Feedback { found_inf: lost, amax: Some(Scaled::new(counts.amax, exponent)) });
        add(exponent as u32);
        row.to_words().into_iter().for_each(&mut add);
        y.into_iter().for_each(&mut add);
        add(scale.exponent() as u32);
    }
    hash
}

#[test]
fn a_million_rows() {
    let ours = format!("1000000 rows: {:016x}", hash(1_000_000));
    assert_eq!(ours, include_str!("rows.txt").trim_end());
}
