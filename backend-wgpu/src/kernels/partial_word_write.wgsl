// Writes the last bytes of a transfer that ends inside a word, and keeps the rest of the word.

struct Params {
    word: u32,
    mask: u32,
    bits: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main() {
    y[p.word] = (y[p.word] & ~p.mask) | p.bits;
}
