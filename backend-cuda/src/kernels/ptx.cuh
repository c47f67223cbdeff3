// Interface of kernels to the machine: indices, barriers, conversions, instructions of warps and tensor cores. Everything
// that is not plain C++ is in this file. `emulation/compiler/machine.hpp` defines the same functions for a host compiler.
//
// Sources: PTX ISA 8.x, sections on cvt, ld, redux, ldmatrix, mma, cp.async, griddepcontrol.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SHARED __shared__
// BLOCKS limits registers, so that as many blocks fit a multiprocessor. Before sm_80 its shared memory holds only one block
// of the large kernels.
#define KERNEL_ATTRIBUTES __launch_bounds__(THREADS, __CUDA_ARCH__ >= 800 ? BLOCKS : 1)
// Defines a kernel with a preamble: it may set up shared memory first, and calls synchronize_grid_dependency in every
// thread before it accesses global memory.
#define KERNEL_WITH_PREAMBLE(name, Params) extern "C" __global__ void KERNEL_ATTRIBUTES name(const __grid_constant__ Params p)
// Defines a kernel that waits for the kernels before it first of all.
#define KERNEL(name, Params)                         \
    DEVICE void name##_body(const Params& p);        \
    KERNEL_WITH_PREAMBLE(name, Params) {             \
        synchronize_grid_dependency();               \
        name##_body(p);                              \
    }                                                \
    DEVICE void name##_body(const Params& p)
// Declares dynamic shared memory, whose size the host chooses.
#define SHARED_BYTES(name) extern __shared__ __align__(1024) u8 name[]

// Waits until all kernels before this one on the stream are complete and their writes are visible. Only then allows the
// blocks of the next kernel to start, which wait in the same way. So each kernel waits for all before it, although a
// device checks only the last of them. Without programmatic dependent launch neither instruction does anything.
DEVICE void synchronize_grid_dependency() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct __align__(16) Words4 {
    u32 x, y, z, w;
};
struct __align__(8) Words2 {
    u32 x, y;
};

// Loads 16 bytes that are not read again soon, without a copy in L1. Not for lines whose other half the warp reads by
// another load.
DEVICE Words4 load_streaming(const void* at) {
    Words4 y;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w)
                 : "l"(at));
    return y;
}

DEVICE u32 thread_index() { return threadIdx.x; }
#if defined(EPILOGUE_THREADS)
// Number and barrier of the threads that run the epilogue, which are the first of a block.
DEVICE u32 thread_count() { return EPILOGUE_THREADS; }
#else
DEVICE u32 thread_count() { return blockDim.x; }
#endif
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE u32 blocks_x() { return gridDim.x; }
DEVICE u32 blocks_y() { return gridDim.y; }
DEVICE u32 blocks_z() { return gridDim.z; }

#if defined(EPILOGUE_THREADS)
DEVICE void barrier() { asm volatile("bar.sync 1, %0;" ::"n"(EPILOGUE_THREADS) : "memory"); }
#else
DEVICE void barrier() { __syncthreads(); }
#endif
// Waits at a barrier of all threads, including those without an epilogue.
DEVICE void block_barrier() { __syncthreads(); }
DEVICE void warp_barrier() { __syncwarp(); }
// Orders writes of global memory for all threads of the device.
DEVICE void fence() { __threadfence(); }

// Returns a · b + c, rounded once.
DEVICE float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE u32 float_as_bits(float x) { return __float_as_uint(x); }
DEVICE float bits_as_float(u32 x) { return __uint_as_float(x); }

// Rounds to nearest even. Keeps subnormals, returns 0x7FFF for NaN.
DEVICE u16 float_to_half(float x) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
// Rounds two values, the first into the low 16 bits.
#if __CUDA_ARCH__ >= 800
DEVICE u32 floats_to_half2(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
#else
DEVICE u32 floats_to_half2(float low, float high) { return (u32)float_to_half(low) | (u32)float_to_half(high) << 16; }
#endif
DEVICE float half_to_float(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
// Returns log2 with an error of about 2^-22, also of subnormals.
DEVICE float log2_approx(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Returns 2^x with an error of about 2^-22, and 0 instead of a subnormal number. For those exp2f takes three instructions
// more.
DEVICE float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Operations of a warp, which all 32 lanes call.

// Returns x, which is equal in all lanes, in a form that shows this to the compiler.
DEVICE u32 warp_uniform(u32 x) { return __shfl_sync(0xFFFFFFFFu, x, 0); }

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

// Atomics add integers only, because their sums do not depend on the order.

DEVICE u32 atomic_add(u32* at, u32 x) { return atomicAdd(at, x); }
DEVICE u64 atomic_add(u64* at, u64 x) { return atomicAdd(at, x); }
DEVICE u32 atomic_max(u32* at, u32 x) { return atomicMax(at, x); }

// Tensor cores with f16 operands and f32 accumulators.

// Returns a 32-bit address of shared memory, because arithmetic with it takes half the instructions.
DEVICE u32 shared_address(const void* at) {
    u32 address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(at));
    return address;
}

// Loads four 8 × 8 matrices of f16. Lane 8i + r passes the shared address of row r of matrix i.
DEVICE void ldmatrix(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
// Loads four 8 × 8 matrices of halves from shared memory, each transposed.
DEVICE void ldmatrix_trans(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// Computes d += a · b, with a of 16 × 16 and b of 16 × 8.
DEVICE void mma_sync(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
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

// Asynchronous copies to shared memory, from sm_80 on.
#if __CUDA_ARCH__ >= 800
#define HAS_CP_ASYNC 1
// Copies 16 bytes to a shared address, or writes zeros without reading if `there` is false.
DEVICE void cp_async(u32 to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16u : 0u)
                 : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups except the last `pending` are complete.
template <int pending>
DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
#else
#define HAS_CP_ASYNC 0
#endif
