//! Counts instructions per element and per decision, and measures the deepest stack.
//!
//! The emulator's clock advances by the same time for every instruction. The processor's SysTick counts that clock, and
//! a loop of known length gives the number of instructions per tick. So the results are executed instructions, exact to
//! one tick per run. An emulator has no cycle count.

#![no_std]
#![no_main]

use core::{arch::asm, hint::black_box, panic::PanicInfo, ptr};
use cortex_m::peripheral::{SYST, syst::SystClkSource};
use cortex_m_rt::entry;
use cortex_m_semihosting::{
    debug::{self, EXIT_FAILURE, EXIT_SUCCESS},
    hprintln,
};
use gradscale_core::{
    cast::Round,
    format::Format,
    site::{Site, SiteConfig, SiteOutcome},
    solve::Exact,
    stats::{Convention, Detail, Stats},
};
use gradscale_firmware::{inputs, probes};
use half::f16;

/// Number of elements of a long and of a short run. Their difference does not contain the fixed cost of a call.
const LONG: usize = 2048;
const SHORT: usize = 1024;

/// Maximum reload value of the SysTick timer: 24 bits.
const PERIOD: u32 = 0x00ff_ffff;

/// Returns the number of timer ticks that `work` takes.
fn ticks(work: impl FnOnce()) -> u32 {
    let start = SYST::get_current();
    work();
    // The timer counts down.
    start.wrapping_sub(SYST::get_current()) & PERIOD
}

/// Measures the number of instructions per 1000 ticks of the timer, by a loop of two instructions.
fn calibrate() -> u32 {
    let rounds = 1_000_000u32;
    let ticks = ticks(|| {
        // SAFETY: the code only counts its own register down to 0.
        unsafe { asm!("2:", "subs {n}, {n}, #1", "bne 2b", n = inout(reg) rounds => _, options(nomem, nostack)) }
    });
    (u64::from(rounds) * 2 * 1000 / u64::from(ticks)) as u32
}

/// Prints the name and the number of instructions per element of `work`, from two lengths.
fn per_element(name: &str, rate: u32, mut work: impl FnMut(usize)) {
    let (long, short) = (ticks(|| work(LONG)), ticks(|| work(SHORT)));
    let hundredths = u64::from(long - short) * u64::from(rate) / 10 / (LONG - SHORT) as u64;
    hprintln!("{}: {}.{:02} instructions per element", name, hundredths / 100, hundredths % 100);
}

/// Prints the number of instructions of one call of `work`.
fn per_call(name: &str, rate: u32, work: impl FnOnce()) {
    hprintln!("{}: {} instructions", name, u64::from(ticks(work)) * u64::from(rate) / 1000);
}

#[entry]
fn main() -> ! {
    if let Some(mut core) = cortex_m::Peripherals::take() {
        core.SYST.set_clock_source(SystClkSource::Core);
        core.SYST.set_reload(PERIOD);
        core.SYST.clear_current();
        core.SYST.enable_counter();
        measure(calibrate());
        stop(true)
    }
    stop(false)
}

fn measure(rate: u32) {
    let mut v = [0f32; LONG];
    for (v, i) in v.iter_mut().zip(0..) {
        *v = inputs::gradient(1, i, -16);
    }
    let mut y = [f16::ZERO; LONG];
    let mut patterns = [0u16; LONG];

    per_element("cast to binary16, nearest, with tally", rate, |n| {
        black_box(probes::store(black_box(&v[..n]), &mut y[..n])).ok();
    });
    per_element("cast to any format by any rounding, with tally", rate, |n| {
        let format = black_box(Format::E4M3);
        black_box(probes::encode(format, black_box(&v[..n]), &mut patterns[..n], black_box(Round::TowardZero))).ok();
    });
    per_element("binary16 to f32", rate, |n| {
        black_box(probes::load(black_box(&y[..n]), &mut v[..n])).ok();
    });
    per_element("factor between two exponents", rate, |n| {
        probes::rescale(black_box(&mut v[..n]), black_box(3), black_box(5));
    });
    for (name, detail) in [
        ("statistics: counters and amax", Detail::Counts),
        ("statistics: and histogram", Detail::Full),
        ("statistics: and moments", Detail::Moments),
    ] {
        let mut row = Stats::new(Convention::FP16, 0, black_box(detail));
        per_element(name, rate, |n| probes::observe(&mut row, black_box(&v[..n])));
    }

    let mut row = Stats::new(Convention::FP16, 0, Detail::Full);
    row.observe(&v);
    per_call("decision by the exact rule", rate, || {
        black_box(probes::decide(black_box(&Exact::FP16), black_box(&row))).ok();
    });
    per_call("a site's step that decides", rate, || {
        if let Ok(mut site) = Site::new(black_box(SiteConfig::exact())) {
            black_box(probes::step(&mut site, black_box(&row), black_box(SiteOutcome::Stepped)));
        }
    });
    hprintln!("size of a site: {} B", size_of::<Site>());
    hprintln!("stack: {} B and {} B of buffers", stack() - LONG * 8, LONG * 8);
}

/// Returns the number of bytes of the stack that were ever written. Start-up filled the stack with a pattern.
fn stack() -> usize {
    unsafe extern "C" {
        static _stack_end: u32;
        static _stack_start: u32;
    }
    let (end, start) = (&raw const _stack_end, &raw const _stack_start);
    let mut free = end;
    // SAFETY: reads words between two symbols of the linker script that delimit the stack.
    while free < start && unsafe { ptr::read_volatile(free) } == 0xcccc_cccc {
        free = free.wrapping_add(1);
    }
    start as usize - free as usize
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    hprintln!("{}", info);
    stop(false)
}

fn stop(success: bool) -> ! {
    debug::exit(if success { EXIT_SUCCESS } else { EXIT_FAILURE });
    loop {
        cortex_m::asm::wfi();
    }
}
