// What kernels ask of the machine: indices, barriers, conversions, warp and tensor-core instructions. Everything that
// is not plain C++ stands here; `emulation/machine.hpp` says the same for a host compiler.
//
// Sources: PTX ISA 8.x, sections on cvt, redux, ldmatrix, mma, cp.async.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SHARED __shared__
// So many blocks are to fit a multiprocessor; before sm_80 its memory holds but one of the large kernels.
#define KERNEL(name, Params) \
    extern "C" __global__ void __launch_bounds__(THREADS, __CUDA_ARCH__ >= 800 ? BLOCKS : 1) name(const __grid_constant__ Params p)
// All shared memory of a kernel whose amount the host chooses.
#define SHARED_BYTES(name) extern __shared__ __align__(1024) u8 name[]

struct __align__(16) Words4 {
    u32 x, y, z, w;
};
struct __align__(8) Words2 {
    u32 x, y;
};

DEVICE u32 thread_index() { return threadIdx.x; }
#if defined(CONSUMERS)
// The threads that multiply; the others bring operands and never meet these.
DEVICE u32 thread_count() { return CONSUMERS; }
#else
DEVICE u32 thread_count() { return blockDim.x; }
#endif
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE u32 blocks_x() { return gridDim.x; }
DEVICE u32 blocks_y() { return gridDim.y; }
DEVICE u32 blocks_z() { return gridDim.z; }

#if defined(CONSUMERS)
DEVICE void barrier() { asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory"); }
#else
DEVICE void barrier() { __syncthreads(); }
#endif
// All threads, also those that bring operands.
DEVICE void block_barrier() { __syncthreads(); }
DEVICE void warp_barrier() { __syncwarp(); }
// Writes before it are seen by whoever sees writes after it.
DEVICE void fence() { __threadfence(); }

DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
DEVICE float of_bits(u32 x) { return __uint_as_float(x); }

// To nearest even, subnormals kept, NaN as 0x7FFF.
DEVICE u16 half_of(float x) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
// Two of them, the first in the low half.
DEVICE u32 halves_of(float low, float high) { return (u32)half_of(low) | (u32)half_of(high) << 16; }
DEVICE float of_half(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
// log2 to about 2^-22, subnormals too.
DEVICE float log2_near(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Across the 32 lanes of a warp, all of which take part.

DEVICE float shuffle_xor(float x, u32 mask) { return __shfl_xor_sync(0xFFFFFFFFu, x, mask); }
DEVICE u32 shuffle_xor(u32 x, u32 mask) { return __shfl_xor_sync(0xFFFFFFFFu, x, mask); }
DEVICE double shuffle_xor(double x, u32 mask) { return __shfl_xor_sync(0xFFFFFFFFu, x, mask); }

#if __CUDA_ARCH__ >= 800
DEVICE u32 warp_sum(u32 x) {
    u32 y;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
DEVICE u32 warp_max(u32 x) {
    u32 y;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
#else
DEVICE u32 warp_sum(u32 x) {
    for (u32 mask = 16; mask != 0; mask >>= 1) x += shuffle_xor(x, mask);
    return x;
}
DEVICE u32 warp_max(u32 x) {
    for (u32 mask = 16; mask != 0; mask >>= 1) {
        u32 other = shuffle_xor(x, mask);
        x = other > x ? other : x;
    }
    return x;
}
#endif

// Integers only: their sums do not depend on the order.

DEVICE u32 atomic_add(u32* at, u32 x) { return atomicAdd(at, x); }
DEVICE u64 atomic_add(u64* at, u64 x) { return atomicAdd(at, x); }
DEVICE u32 atomic_max(u32* at, u32 x) { return atomicMax(at, x); }

// Tensor cores: f16 operands, f32 sums.

DEVICE u32 shared_address(const void* at) {
    u32 address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(at));
    return address;
}

// Four 8 × 8 matrices of halves; lane 8i + r gives the address of row r of matrix i.
DEVICE void load_matrices(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The same, each matrix transposed.
DEVICE void load_matrices_transposed(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// d += a · b, 16 × 16 by 16 × 8.
DEVICE void multiply_add(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}

// Copies to shared memory that run beside the threads; without them, loads and stores.
#if __CUDA_ARCH__ >= 800
#define COPIES_RUN_BESIDE 1
// 16 bytes, or zeros where `there` is false: then nothing is read.
DEVICE void copy_beside(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16u : 0u)
                 : "memory");
}
DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups but the last `pending`.
template <int pending>
DEVICE void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
#else
#define COPIES_RUN_BESIDE 0
#endif

#if defined(GROUP)
// Warpgroups (PTX ISA, "Asynchronous warpgroup level matrix instructions"): four warps, 64 rows.

// What this thread wrote to shared memory by ordinary ways is seen by the tensor cores after the next barrier.
DEVICE void fence_for_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All products are done; the sums may be read.
template <int eights>
DEVICE void wait_for_products(float (&d)[eights][4]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int j = 0; j < eights; j++) {
        asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
    }
}

// Matrix descriptors with the 128-byte swizzle: lines of 64 halves. Address, distance of panels of 64, distance of
// groups of eight lines, all in units of 16 bytes.
DEVICE u64 lines_descriptor(const void* at, u64 panels) {
    return (u64)((shared_address(at) & 0x3FFFF) >> 4) | panels >> 4 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// Lines run along k: rows of a, columns of b.
DEVICE u64 lines_along_k(const void* at) { return lines_descriptor(at, 16); }
// Lines run along m or n, one for each k.
DEVICE u64 lines_across(const void* at, u32 panels) { return lines_descriptor(at, panels); }

// d += a · b, 64 × 16 by 16 × 64 or 16 × 128.
template <bool a_across, bool b_across>
DEVICE void group_multiply_add(float (&d)[8][4], u64 a, u64 b) {
    asm volatile(
        "{ .reg .pred on; setp.ne.b32 on, 1, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, on, 1, 1, %34, %35; }"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
          "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
        : "l"(a), "l"(b), "n"(a_across ? 1 : 0), "n"(b_across ? 1 : 0));
}
template <bool a_across, bool b_across>
DEVICE void group_multiply_add(float (&d)[16][4], u64 a, u64 b) {
    asm volatile(
        "{ .reg .pred on; setp.ne.b32 on, 1, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
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
        : "l"(a), "l"(b), "n"(a_across ? 1 : 0), "n"(b_across ? 1 : 0));
}
template <bool a_across, bool b_across>
DEVICE void group_multiply_add(float (&d)[32][4], u64 a, u64 b) {
    asm volatile(
        "{ .reg .pred on; setp.ne.b32 on, 1, 0; "
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
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
        : "l"(a), "l"(b), "n"(a_across ? 1 : 0), "n"(b_across ? 1 : 0));
}
// The products closed last may still run, those before are done.
DEVICE void wait_for_all_products_but_one() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
#endif

#if defined(CONSUMERS)
// Registers of a thread, for groups of four warps (PTX ISA, "setmaxnreg"): 384 threads begin with 168 each.
DEVICE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
DEVICE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }

// Barriers with phases (PTX ISA, "mbarrier"): a phase is complete when so many threads have arrived and all expected
// bytes are there; then the next one begins. Phases are numbered 0, 1, 0, …

DEVICE void start_phases(u64* at, u32 threads) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(at)), "r"(threads) : "memory");
}
// Barriers just made are seen by the copy engine, and after the next barrier by other threads.
DEVICE void fence_phases() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrive(u64* at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(at)) : "memory");
}
// Arrives, and makes the phase wait for so many bytes too.
DEVICE void expect_bytes(u64* at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(at)), "r"(bytes) : "memory");
}
// Until the last phase of this number is complete.
DEVICE void wait_for_phase(u64* at, u32 phase) {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(
            shared_address(at)),
        "r"(phase)
        : "memory");
}

// What the copy engine knows of a matrix: made by the driver, opaque.
struct __align__(64) TensorMap {
    u64 words[16];
};
// The box at (x, y, z) of a tensor, x along memory, as rows of 128 bytes whose 16-byte pieces are exchanged by the row's
// number mod 8; its bytes count for the barrier.
DEVICE void copy_box(void* to, const TensorMap& from, u32 x, u32 y, u32 z, u64* full) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(shared_address(to)),
        "l"(&from), "r"(shared_address(full)), "r"(x), "r"(y), "r"(z)
        : "memory");
}
// The same of pixels, 64 channels of each from c on: the one at (column, row) of an image and those that follow it, moved
// by a tap (PTX ISA, "im2col mode").
DEVICE void copy_pixels(void* to, const TensorMap& from, u32 c, int column, int row, u32 image, u32 right, u32 down,
                        u64* full) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::
            "r"(shared_address(to)),
        "l"(&from), "r"(shared_address(full)), "r"(c), "r"(column), "r"(row), "r"(image), "h"((u16)right), "h"((u16)down)
        : "memory");
}
#endif
