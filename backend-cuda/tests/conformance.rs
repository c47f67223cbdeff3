//! The conformance suite on the first GPU. Without one its cases are ignored, with the reason; with
//! `GRADSCALE_REQUIRE_DEVICE=1` they fail.

fn main() {
    gradscale_conformance::main("cuda", gradscale_conformance::OPERATORS, || {
        gradscale_cuda::Cuda::open(0).map_err(|error| error.to_string())
    })
}
