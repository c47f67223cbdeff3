// Tests the device's own arithmetic with f32 subnormals: sums and products of numbers given as bits.

struct Params {
    pairs: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main() {
    for (var i = 0u; i < p.pairs; i += 1u) {
        let a = bitcast<f32>(y[4u * i]);
        let b = bitcast<f32>(y[4u * i + 1u]);
        y[4u * i + 2u] = bitcast<u32>(a + b);
        y[4u * i + 3u] = bitcast<u32>(a * b);
    }
}
