//! The conformance suite on the first GPU. Without one its cases are ignored, with the reason; with
//! `GRADSCALE_REQUIRE_DEVICE=1` they fail.

fn main() {
    let required = [gradscale_conformance::OPERATORS, gradscale_conformance::ATTENTION].concat();
    gradscale_conformance::main("cuda", &required, || gradscale_cuda::Cuda::open(0).map_err(|error| error.to_string()))
}
