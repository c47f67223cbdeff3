//! The suite on the reference backend.

fn main() {
    gradscale_conformance::main("reference", gradscale_conformance::OPERATORS, || {
        Ok(gradscale_conformance::Reference::default())
    })
}
