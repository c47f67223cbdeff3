// Instruction of tensor cores for operands of eight bits, from sm_89 on (PTX ISA, "mma.m16n8k32"). The module defines the
// formats of a and b. `emulation/compiler/machine.hpp` defines the same function for a host compiler.

#if defined(__CUDACC_RTC__)
#if A_IS_E4M3
#define A_FORMAT "e4m3"
#else
#define A_FORMAT "e5m2"
#endif
#if B_IS_E4M3
#define B_FORMAT "e4m3"
#else
#define B_FORMAT "e5m2"
#endif

// Computes d += a · b, with a of 16 × 32 and b of 32 × 8. Fragments are those of `mma_sync` with two values in place of
// each half.
DEVICE void mma_fp8(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." A_FORMAT "." B_FORMAT ".f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
