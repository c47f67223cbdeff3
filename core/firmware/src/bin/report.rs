//! Prints the report through semihosting and ends the emulation.

#![no_std]
#![no_main]

use core::panic::PanicInfo;
use cortex_m_rt::entry;
use cortex_m_semihosting::{
    debug::{self, EXIT_FAILURE, EXIT_SUCCESS},
    hio, hprintln,
};

#[entry]
fn main() -> ! {
    let printed = hio::hstdout().is_ok_and(|mut out| gradscale_firmware::print(&mut out).is_ok());
    stop(printed)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    hprintln!("{}", info);
    stop(false)
}

fn stop(success: bool) -> ! {
    debug::exit(if success { EXIT_SUCCESS } else { EXIT_FAILURE });
    // A debugger may not end the emulation.
    loop {
        cortex_m::asm::wfi();
    }
}
