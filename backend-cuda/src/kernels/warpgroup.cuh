// Instructions of sm_90a: wgmma (PTX ISA, "Asynchronous warpgroup level matrix instructions": four warps, 64 rows),
// setmaxnreg, mbarrier and TMA. `emulation/compiler/machine.hpp` defines the same functions for a host compiler.

// Parts of an operand: 1 of halves, 3 of f32 values, each a sum of three bfloat16.
#if !defined(OPERAND_PARTS)
#define OPERAND_PARTS 1
#endif

#if defined(__CUDACC_RTC__)
#if OPERAND_PARTS > 1
#define MATRIX_TYPE "bf16"
#else
#define MATRIX_TYPE "f16"
#endif
// Makes this thread's writes to shared memory visible to wgmma and TMA after the next barrier.
DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all multiplications. Then the accumulators may be read.
template <int VEC8S>
DEVICE void wgmma_wait(float (&d)[VEC8S][4]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int j = 0; j < VEC8S; j++) {
        asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
    }
}

// Starts d += a · b, or d = a · b, with a of 64 × 16 and b of 16 × 64, 16 × 128 or 16 × 256, which matrix descriptors
// specify.
template <bool A_TRANSPOSED, bool B_TRANSPOSED, bool ACCUMULATES = true>
DEVICE void wgmma_mma_async(float (&d)[8][4], u64 a, u64 b) {
    asm volatile(
        "{ .reg .pred on; setp.ne.b32 on, %36, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MATRIX_TYPE "." MATRIX_TYPE " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, on, 1, 1, %34, %35; }"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
          "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
        : "l"(a), "l"(b), "n"(A_TRANSPOSED ? 1 : 0), "n"(B_TRANSPOSED ? 1 : 0), "n"(ACCUMULATES ? 1 : 0));
}
template <bool A_TRANSPOSED, bool B_TRANSPOSED, bool ACCUMULATES = true>
DEVICE void wgmma_mma_async(float (&d)[16][4], u64 a, u64 b) {
    asm volatile(
        "{ .reg .pred on; setp.ne.b32 on, %68, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." MATRIX_TYPE "." MATRIX_TYPE " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, on, 1, 1, %66, %67; }"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
          "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
          "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]),
          "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
          "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "l"(a), "l"(b), "n"(A_TRANSPOSED ? 1 : 0), "n"(B_TRANSPOSED ? 1 : 0), "n"(ACCUMULATES ? 1 : 0));
}
template <bool A_TRANSPOSED, bool B_TRANSPOSED, bool ACCUMULATES = true>
DEVICE void wgmma_mma_async(float (&d)[32][4], u64 a, u64 b) {
    asm volatile(
        "{ .reg .pred on; setp.ne.b32 on, %132, 0; "
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." MATRIX_TYPE "." MATRIX_TYPE " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, on, 1, 1, %130, %131; }"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
          "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
          "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]),
          "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
          "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3]),
          "+f"(d[16][0]), "+f"(d[16][1]), "+f"(d[16][2]), "+f"(d[16][3]),
          "+f"(d[17][0]), "+f"(d[17][1]), "+f"(d[17][2]), "+f"(d[17][3]),
          "+f"(d[18][0]), "+f"(d[18][1]), "+f"(d[18][2]), "+f"(d[18][3]),
          "+f"(d[19][0]), "+f"(d[19][1]), "+f"(d[19][2]), "+f"(d[19][3]),
          "+f"(d[20][0]), "+f"(d[20][1]), "+f"(d[20][2]), "+f"(d[20][3]),
          "+f"(d[21][0]), "+f"(d[21][1]), "+f"(d[21][2]), "+f"(d[21][3]),
          "+f"(d[22][0]), "+f"(d[22][1]), "+f"(d[22][2]), "+f"(d[22][3]),
          "+f"(d[23][0]), "+f"(d[23][1]), "+f"(d[23][2]), "+f"(d[23][3]),
          "+f"(d[24][0]), "+f"(d[24][1]), "+f"(d[24][2]), "+f"(d[24][3]),
          "+f"(d[25][0]), "+f"(d[25][1]), "+f"(d[25][2]), "+f"(d[25][3]),
          "+f"(d[26][0]), "+f"(d[26][1]), "+f"(d[26][2]), "+f"(d[26][3]),
          "+f"(d[27][0]), "+f"(d[27][1]), "+f"(d[27][2]), "+f"(d[27][3]),
          "+f"(d[28][0]), "+f"(d[28][1]), "+f"(d[28][2]), "+f"(d[28][3]),
          "+f"(d[29][0]), "+f"(d[29][1]), "+f"(d[29][2]), "+f"(d[29][3]),
          "+f"(d[30][0]), "+f"(d[30][1]), "+f"(d[30][2]), "+f"(d[30][3]),
          "+f"(d[31][0]), "+f"(d[31][1]), "+f"(d[31][2]), "+f"(d[31][3])
        : "l"(a), "l"(b), "n"(A_TRANSPOSED ? 1 : 0), "n"(B_TRANSPOSED ? 1 : 0), "n"(ACCUMULATES ? 1 : 0));
}
// Waits for all groups of multiplications except the last one.
DEVICE void wgmma_wait_all_but_last() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }

// Changes the registers of each thread of a warpgroup (PTX ISA, "setmaxnreg"). Registers that one warpgroup releases are
// available to others.
template <u32 REGISTERS>
DEVICE void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <u32 REGISTERS>
DEVICE void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Barriers in shared memory (PTX ISA, "mbarrier"), identified by their addresses. A phase completes when all threads and all
// expected bytes have arrived; then the next one begins. Phases are numbered 0, 1, 0, …

DEVICE void mbarrier_init(u32 at, u32 threads) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(threads) : "memory");
}
// Makes initialised barriers visible to TMA, and to other threads after the next barrier.
DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbarrier_arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// Arrives at a barrier, and adds `bytes` to the bytes that its phase waits for.
DEVICE void mbarrier_arrive_expect_tx(u32 at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
// Waits until the last phase of this number is complete.
DEVICE void mbarrier_wait(u32 at, u32 phase) {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(at), "r"(phase)
        : "memory");
}

// Description of a tensor for TMA, which the driver encodes.
struct __align__(64) TensorMap {
    u64 words[16];
};
// Fetches a tensor map, for which the first load would otherwise wait.
DEVICE void prefetch_tensor_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
// Loads the tile at (x, y, z) of a tensor, x contiguous, as rows of 128 bytes with the 128-byte swizzle. Its bytes count
// for the barrier `full`.
DEVICE void tma_load(void* to, const TensorMap& from, u32 x, u32 y, u32 z, u32 full) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(shared_address(to)),
        "l"(&from), "r"(full), "r"(x), "r"(y), "r"(z)
        : "memory");
}
// Loads a box of an image from (column, row) on, which may be outside of it, as planes of eight channels: [plane][row]
// [column][16 bytes] without a swizzle.
DEVICE void tma_load_planes(void* to, const TensorMap& from, int column, int row, u32 image, u32 full) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %3, %6}], [%2];" ::
            "r"(shared_address(to)),
        "l"(&from), "r"(full), "r"(0), "r"(column), "r"(row), "r"(image)
        : "memory");
}
// Loads 64 channels from c on of pixels: the one at (column, row) of an image and its successors, shifted by a tap (PTX ISA,
// "im2col mode").
DEVICE void tma_load_im2col(void* to, const TensorMap& from, u32 c, int column, int row, u32 image, u32 right, u32 down,
                        u32 full) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::
            "r"(shared_address(to)),
        "l"(&from), "r"(full), "r"(c), "r"(column), "r"(row), "r"(image), "h"((u16)right), "h"((u16)down)
        : "memory");
}
#endif
