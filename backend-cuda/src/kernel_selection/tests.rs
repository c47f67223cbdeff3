//! Which kernel and cut are chosen for shapes of which it is known what is best, and what every cut must be.

use super::{Choice, Cut, Demand, Means};
use crate::{
    gemm_problem::{Kind, Plan},
    workspace::partials_room,
};
use gradscale_core::ops::{Conv2d, Gemm, Pass};

/// Multiprocessors of an H100.
const H100: u32 = 132;
/// Its room for partial sums.
const PARTIAL_SUM_BYTES: usize = 64 << 20;

fn best(plan: &Plan, multiprocessors: u32) -> (&'static str, Cut) {
    best_in(PARTIAL_SUM_BYTES, plan, multiprocessors)
}

fn best_in(room: usize, plan: &Plan, multiprocessors: u32) -> (&'static str, Cut) {
    let demand = Demand::of(plan, room);
    let way = Choice::ways(plan, &demand, multiprocessors, true)[0];
    (way.kernel.module.name, way.cut(&demand, multiprocessors))
}

fn matrices([m, n, k]: [u32; 3]) -> Plan {
    Plan::gemm(&Gemm::new(m, n, k).expect("a shape"))
}

/// 7 × 7, as of SegNet's layers.
fn convolution(c: u32, o: u32, [h, w]: [u32; 2], pass: Pass) -> Plan {
    Plan::conv(&Conv2d::padded([12, h, w, c], o, [7, 7], [3, 3]).expect("a shape"), pass)
}

#[test]
fn tiles_by_even_rounds() {
    for (shape, multiprocessors, name, splits) in [
        // 128 tiles, which are fewer than 132 multiprocessors, and still one round.
        ([2048; 3], H100, "wgmma_tma_gemm_128x256", 1),
        ([4096; 3], H100, "wgmma_tma_gemm_128x256", 1),
        ([8192; 3], H100, "wgmma_tma_gemm_128x256", 1),
        // 32 large tiles would leave three quarters idle.
        ([1024; 3], H100, "wgmma_tma_gemm_128x128", 1),
        // 67 pairs of large tiles: the last alone would take a round as long as all others.
        ([128 * 134, 256, 4096], H100, "wgmma_tma_gemm_128x128", 1),
        ([128 * 134, 256, 4096], 134, "wgmma_tma_gemm_128x256", 1),
        // Columns of which the large tile would waste most.
        ([8192, 64, 1024], H100, "wgmma_tma_gemm_128x128", 1),
        // Few results of long sums are cut: 4 tiles on 132 multiprocessors.
        ([256, 256, 8192], H100, "wgmma_tma_gemm_128x128", 32),
        // Nothing to share.
        ([8, 8, 8], H100, "tensor_gemm_64x64", 1),
    ] {
        let (chosen, cut) = best(&matrices(shape), multiprocessors);
        assert_eq!((chosen, cut.splits), (name, splits), "{shape:?} on {multiprocessors}");
    }
}

#[test]
fn weights_of_few_outputs_have_them_as_columns() {
    for (c, o, name) in [
        (64, 64, "wgmma_tma_weight_t_128x64"),
        (64, 32, "wgmma_tma_weight_t_128x64"),
        (64, 128, "wgmma_tma_weight_128x128"),
        // Pictures, padded.
        (8, 64, "wgmma_weight_t_128x64"),
    ] {
        let plan = convolution(c, o, [180, 240], Pass::Weight);
        let (chosen, cut) = best(&plan, H100);
        assert_eq!(chosen, name, "{c} to {o}");
        // No more splits than there are multiprocessors to work on them, where the kernel adds long sums itself.
        assert!(cut.splits <= 4 * H100 && (c == 8 || cut.splits <= 21), "{c} to {o}: {cut:?}");
    }
    let (forward, _) = best(&convolution(64, 64, [180, 240], Pass::Forward), H100);
    assert_eq!(forward, "wgmma_tma_forward_128x64");
}

/// Sizes that look random, the same in every run.
fn sizes() -> impl Iterator<Item = [u32; 3]> {
    let mut state = 3u32;
    let mut next = move |most: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        8 + (state >> 8) % (1 << (3 + (state >> 4) % most))
    };
    (0..300).map(move |_| [next(12), next(12), next(16)])
}

#[test]
fn every_cut_is_whole_and_nearly_the_best() {
    for (i, shape) in sizes().enumerate() {
        let multiprocessors = [1, 2, 16, 108, H100][i % 5];
        let [m, n, k] = shape;
        let gemm = Gemm::new(m, n, k).expect("a shape");
        let plan = Plan::gemm(&if i % 2 == 0 { gemm } else { gemm.transpose_a().expect("a shape") });
        let demand = Demand::of(&plan, PARTIAL_SUM_BYTES);
        let (k, own) = (demand.mnk[2], i % 3 != 0);
        let ways = Choice::ways(&plan, &demand, multiprocessors, own);
        assert!(ways.last().is_some_and(|way| !way.is_own()), "{shape:?}: a way that needs no proof");
        for way in ways {
            let cut = way.cut(&demand, multiprocessors);
            let Cut { splits, depth, clocks } = cut;
            assert!(depth % 64 == 0 && splits * depth >= k && (splits - 1) * depth < k, "{shape:?}: {cut:?}");
            let least = k.div_ceil(demand.longest);
            assert!(splits <= demand.most.max(least), "{shape:?}: {cut:?} of {demand:?}");
            assert!(depth <= demand.longest || way.stores_apart(), "{shape:?}: {cut:?}");
            let all = (least.max(1)..=demand.most.max(least)).take(600);
            let fewest = all.map(|splits| way.cut_in(splits, &demand, multiprocessors).clocks).min();
            assert!(fewest.is_none_or(|fewest| 10 * clocks <= 11 * fewest), "{shape:?}: {cut:?}, {fewest:?}");
        }
    }
}

/// The weight gradients of SegNet's third and fourth level have 803 kB of results, in 25 tiles for 132 multiprocessors.
#[test]
fn weight_gradients_of_few_tiles_are_cut_where_there_is_room() {
    for (level, size) in [("conv3", [90, 120]), ("conv4", [45, 60])] {
        let plan = convolution(64, 64, size, Pass::Weight);
        let (chosen, cut) = best(&plan, H100);
        assert_eq!(chosen, "wgmma_tma_weight_t_128x64", "{level}");
        assert!(cut.splits >= 5, "{level}: {cut:?}");
        // Room for two splits, as 256 KiB or a sixteenth of the operands once were, and for none.
        let results = 4 * 64 * 64 * 49;
        for (room, most) in [(2 * results, 2), (results / 2, 1)] {
            let demand = Demand::of(&plan, room);
            for way in Choice::ways(&plan, &demand, H100, true) {
                // What one accumulator must not add is cut in any case.
                let least = if way.stores_apart() { 1 } else { demand.mnk[2].div_ceil(demand.longest) };
                assert!(way.cut(&demand, H100).splits <= least.max(most), "{level}: {way:?} in {room}");
            }
        }
    }
}

#[test]
fn room_for_partial_sums_is_a_matter_of_the_whole_memory() {
    let [small, large] = [1u64 << 30, 80 << 30].map(partials_room);
    assert_eq!(
        (small, large, partials_room(8 << 30), partials_room(0)),
        (8 << 20, PARTIAL_SUM_BYTES, PARTIAL_SUM_BYTES, 0)
    );
    // 4 MB of results: as many splits as an H100 wants, or two where a device has 1 GiB.
    let plan = Plan::conv(&Conv2d::new([256, 7, 7, 512], 2048, [1, 1]).expect("a shape"), Pass::Weight);
    let most = |room| Demand::of(&plan, room).most;
    assert_eq!((most(large), most(small)), (16, 2));
    // One accumulator adds 4096 of 12 544 pixels at most: four splits are made whatever the room.
    let [(_, many), (_, few)] = [large, small].map(|room| best_in(room, &plan, 8 * H100));
    assert!(few.splits <= 4 && few.splits < many.splits, "{few:?} {many:?}");
}

/// What the model says of the instructions of copies is what sass.py has counted in machine code.
#[test]
fn copies_cost_what_was_counted() {
    let mut seen = 0;
    for pass in Pass::ALL {
        for way in Choice::warpgroups(Kind::Convolution(pass)) {
            if way.means != Means::Warpgroups {
                continue;
            }
            let name = format!("copies of {},90,", way.kernel.module.name);
            let line = include_str!("../../sass.csv").lines().find_map(|line| line.strip_prefix(&name));
            let counted: f64 = line.and_then(|line| line.split(',').next()?.parse().ok()).expect("a count");
            let ([m, n], [a, b]) = (way.tile.map(f64::from), way.copies.map(f64::from));
            let modelled = (m * a + n * b) / (m + n);
            assert!((modelled / counted - 1.0).abs() < 0.08, "{name} {counted}, in the model {modelled}");
            seen += 1;
        }
    }
    assert_eq!(seen, 7);
}
