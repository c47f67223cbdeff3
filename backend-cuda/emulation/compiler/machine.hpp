// The host counterpart of `ptx.cuh`, `warpgroup.cuh` and `cluster.cuh` in `../../src/kernels`: the same functions for a
// host compiler, so that the original kernel text runs on a CPU. The threads of a block are fibers that synchronise at
// barriers. Instructions of a warp are functions of all its lanes, exact to the bit.
//
// Behaviour that hardware leaves open is chosen to expose errors. Shared memory starts as NaN. Blocks and threads run
// from the first or from the last. One warpgroup is later than all others at barriers in memory. Asynchronous copies
// arrive only when they are waited for. A kernel that may start before the one before it has ended does not know any
// address in its parameters until it waits. Tensor cores round their sums toward zero, and those of operands of eight bits
// keep 14 bits of them.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static inline
#define DEVICE_MEMBER inline
// Number of blocks of a cluster, which run together.
#if !defined(CLUSTER)
#define CLUSTER 1
#endif
#if CLUSTER > 1
// Variables of a kernel that each block has for itself: they are exchanged when another block's thread has its turn.
#define SHARED static __attribute__((section("of_a_block")))
extern "C" u8 __start_of_a_block[] __attribute__((visibility("hidden")));
extern "C" u8 __stop_of_a_block[] __attribute__((visibility("hidden")));
#else
#define SHARED static
#endif
#define HAS_CP_ASYNC (__CUDA_ARCH__ >= 800)
#define SHARED_BYTES(name) u8* const name = machine::own().shared

struct alignas(16) Words4 {
    u32 x, y, z, w;
};
struct alignas(8) Words2 {
    u32 x, y;
};

namespace machine {

constexpr u32 MAX_THREADS = 1024, WARP = 32, WARPGROUP = 128;
constexpr size_t STACK = 128 * 1024, SHARED_MEMORY = 232448;
// Bytes behind a block's dynamic shared memory, in which a write is found, and what they hold.
constexpr u32 GUARD_BYTES = 4096;
constexpr u8 GUARD_BYTE = 0xA5;

struct Copy {
    void* to;
    Words4 what;
    u32 group;
};

struct Fiber {
#if defined(__x86_64__)
    void* stack_pointer;
#else
    ucontext_t context;
#endif
    char* stack;
    Fiber *next, *previous;
    u32 index, cta, exchanges, group;
    // True once the thread has waited for the kernels before.
    bool is_synchronized;
    std::vector<Copy> copies;
};

struct Warp {
    u32 arrived, generation;
    // Exchanged words of the lanes, two sets, so that lanes may be one exchange apart.
    u64 words[2][WARP];
    float a[2][16][32], b[2][8][32];
};

// Barrier at which threads of a block wait for each other.
struct Barrier {
    u32 arrived, generation;
};

struct alignas(1024) Cta {
    u8 shared[SHARED_MEMORY + GUARD_BYTES];
    u32 at[3], alive;
    Barrier all, epilogue_threads;
    std::vector<u8> variables;
    // Registers of a thread in each group of four warps, and those that groups gave back.
    Barrier groups[MAX_THREADS / WARPGROUP];
    u32 registers[MAX_THREADS / WARPGROUP], free_registers;
};

static Fiber fibers[MAX_THREADS], host;
static Warp warps[MAX_THREADS / WARP];
static Fiber* current;
static Cta ctas[CLUSTER];
static Barrier cluster;
static u32 threads, alive, idle_turns;
static bool is_reversed;
// Index of the group of four warps that is late in this launch, or of none that exists.
static u32 delayed_group;
static u32 grid[3];
static const void* parameters;
static void (*kernel)(const void*);
// Parameters of a dependent launch, and what its blocks see of them before one of their threads has waited: the same
// without addresses of global memory.
struct DependentParameters {
    const void *complete, *preamble;
    size_t bytes;
    std::vector<u64> visible;
    bool is_used() const { return preamble != nullptr; }
    void show(const void* words) { memcpy(visible.data(), words, bytes); }
};
static DependentParameters dependent;

#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void switch_stack(void** from, void* to) __asm__("change_stack");
// Switches fibers: saves the registers that a function must keep by the System V ABI, section 3.2.1.
__asm__(
    ".text\n.p2align 4\nchange_stack:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static inline void switch_context(Fiber* from, Fiber* to) { switch_stack(&from->stack_pointer, to->stack_pointer); }
#else
static inline void switch_context(Fiber* from, Fiber* to) { swapcontext(&from->context, &to->context); }
#endif

static inline Cta& own() { return ctas[current->cta]; }

// Exchanges the variables of two blocks before a thread of the other one runs.
static inline void exchange_variables(Cta& from, Cta& to) {
#if CLUSTER > 1
    if (&from == &to) return;
    from.variables.assign(__start_of_a_block, __stop_of_a_block);
    to.variables.resize(from.variables.size());
    memcpy(__start_of_a_block, to.variables.data(), to.variables.size());
#else
    (void)from, (void)to;
#endif
}

static inline void switch_to(Fiber* to) {
    Fiber* from = current;
    exchange_variables(ctas[from->cta], ctas[to->cta]);
    current = to;
    switch_context(from, to);
}

// Ends the emulation because a kernel does something that is undefined on a device.
[[noreturn]] static inline void abort_with(const char* what) {
    const u32* at = own().at;
    fprintf(stderr, "emulation: thread %u %s (block %u %u %u)\n", current->index, what, at[0], at[1], at[2]);
    abort();
}
// Returns the host address of a shared address in the block's own memory.
static inline u8* shared_at(u32 address) {
    if (address >> 24 != current->cta) abort_with("names another block's memory");
    return own().shared + (address & 0xFFFFFF);
}

static inline void yield_turn() {
    if (++idle_turns > 64 * MAX_THREADS) abort_with("waits for ever");
    if (current->next != current) switch_to(current->next);
}

// Returns true if `count` threads have arrived at a barrier, and starts its next phase.
static inline bool completes(Barrier& barrier_state, u32 count) {
    if (barrier_state.arrived != count) return false;
    barrier_state.arrived = 0;
    barrier_state.generation += 1;
    idle_turns = 0;
    return true;
}

static inline void sync_at(Barrier& barrier_state, const u32& count) {
    const u32 mine = barrier_state.generation;
    barrier_state.arrived += 1;
    if (completes(barrier_state, count)) return;
    while (barrier_state.generation == mine) yield_turn();
}

// Ends the emulation if a thread has not waited for the kernels before a dependent launch.
static inline void require_synchronized(const char* what) {
    if (dependent.is_used() && !current->is_synchronized) abort_with(what);
}
// Waits for the kernels before: from now on the block knows addresses of global memory.
static inline void synchronize_grid_dependency() {
    if (dependent.is_used()) dependent.show(dependent.complete);
    current->is_synchronized = true;
}

static void run_fiber() {
    kernel(parameters);
    Fiber* self = current;
    require_synchronized("ends without having waited for the kernels before");
    self->previous->next = self->next;
    self->next->previous = self->previous;
    alive -= 1;
    own().alive -= 1;
    // Threads that have ended are not waited for.
    if (own().alive != 0) completes(own().all, own().alive);
    if (alive != 0) completes(cluster, alive);
    switch_to(alive == 0 ? &host : self->next);
    abort();
}

static void prepare(Fiber& fiber) {
    if (!fiber.stack) {
        fiber.stack = static_cast<char*>(
            mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (fiber.stack == MAP_FAILED) abort();
    }
#if defined(__x86_64__)
    // So that the first function finds the stack as after a call (System V ABI, section 3.2.2).
    void** top = reinterpret_cast<void**>(fiber.stack + STACK) - 1;
    *--top = reinterpret_cast<void*>(run_fiber);
    top -= 6;
    fiber.stack_pointer = top;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_fiber, 0);
#endif
}

// Runs the blocks of one cluster until all threads have ended.
static void run_blocks(bool reversed) {
    const u32 all = alive = threads * CLUSTER;
    if (dependent.is_used()) dependent.show(dependent.preamble);
    idle_turns = 0;
    cluster = {};
    for (Cta& cta : ctas) {
        cta.alive = threads, cta.all = cta.epilogue_threads = {};
        cta.free_registers = 0;
        for (u32 group = 0; group < threads / WARPGROUP; group++) {
            cta.groups[group] = {};
            cta.registers[group] = 65536 / threads / 8 * 8;
        }
    }
    is_reversed = reversed;
    memset(warps, 0, sizeof warps);
    for (u32 t = 0; t < all; t++) {
        Fiber &fiber = fibers[t], &up = fibers[(t + 1) % all], &down = fibers[(t + all - 1) % all];
        fiber.index = t % threads;
        fiber.cta = t / threads;
        fiber.exchanges = fiber.group = 0;
        fiber.is_synchronized = false;
        fiber.copies.clear();
        fiber.next = reversed ? &down : &up;
        fiber.previous = reversed ? &up : &down;
        prepare(fiber);
    }
    current = &host;
    switch_to(&fibers[reversed ? all - 1 : 0]);
}

// Ends the emulation if a block has written past the shared memory that its launch has.
static inline void expect_guard(const Cta& cta, u32 shared_bytes) {
    for (u32 i = 0; i < GUARD_BYTES; i++) {
        if (cta.shared[shared_bytes + i] == GUARD_BYTE) continue;
        fprintf(stderr, "emulation: a block has written byte %u of %u bytes of shared memory (block %u %u %u)\n", shared_bytes + i,
                shared_bytes, cta.at[0], cta.at[1], cta.at[2]);
        abort();
    }
}

// Runs a grid, its blocks in forward or reverse order. A dependent launch has parameters for its preamble.
static void launch(void (*work)(const void*), const u32* blocks, u32 block, u32 shared_bytes, const void* with,
                   const void* preamble, size_t parameter_bytes) {
    static u32 launches;
    bool reversed = (launches & 1) != 0;
    delayed_group = launches++ / 2 % (block / WARPGROUP + 1);
    if (block * CLUSTER > MAX_THREADS || block % WARP != 0 || shared_bytes > SHARED_MEMORY) abort();
    if (blocks[0] % CLUSTER != 0) abort();
    threads = block;
    kernel = work;
    parameters = with;
    dependent.complete = with, dependent.preamble = preamble, dependent.bytes = parameter_bytes;
    if (dependent.is_used()) {
        dependent.visible.resize((parameter_bytes + 7) / 8);
        parameters = dependent.visible.data();
    }
    u64 total = 1;
    for (int i = 0; i < 3; i++) total *= grid[i] = blocks[i];
    for (u64 i = 0; i < total; i += CLUSTER) {
        u64 n = reversed ? total - CLUSTER - i : i;
        for (Cta& cta : ctas) {
            cta.at[0] = static_cast<u32>(n % grid[0]);
            cta.at[1] = static_cast<u32>(n / grid[0] % grid[1]);
            cta.at[2] = static_cast<u32>(n / grid[0] / grid[1]);
            memset(cta.shared, 0xFF, shared_bytes);
            memset(cta.shared + shared_bytes, GUARD_BYTE, GUARD_BYTES);
            n += 1;
        }
        run_blocks(reversed);
        for (const Cta& cta : ctas) expect_guard(cta, shared_bytes);
    }
}

static inline Warp& warp() { return warps[(current - fibers) / WARP]; }
static inline u32 lane() { return current->index % WARP; }

static inline void sync_warp() {
    Warp& warp = machine::warp();
    u32 mine = warp.generation;
    if (++warp.arrived == WARP) {
        warp.arrived = 0;
        warp.generation += 1;
        idle_turns = 0;
        return;
    }
    while (warp.generation == mine) yield_turn();
}

// Publishes a lane's word to its warp, and returns the words of all lanes.
static inline const u64* exchange_words(u64 word) {
    u32 side = current->exchanges++ & 1;
    u64* words = warp().words[side];
    words[lane()] = word;
    sync_warp();
    return words;
}

template <class T>
static inline T shuffle(T x, u32 mask) {
    u64 word = 0;
    memcpy(&word, &x, sizeof x);
    word = exchange_words(word)[lane() ^ mask];
    memcpy(&x, &word, sizeof x);
    return x;
}

static inline float half_to_float(u16 x) {
    _Float16 y;
    memcpy(&y, &x, 2);
    return static_cast<float>(y);
}

// Adds the exact products of eight elements to a sum as a tensor core does, which truncates bits that do not fit.
static inline float add_products(float sum, const float* a, const float* b, int count) {
    for (int k = 0; k < count; k += 8) {
        double exact = sum;
        for (int i = 0; i < 8; i++) exact += static_cast<double>(a[k + i]) * b[k + i];
        float nearest = static_cast<float>(exact);
        if (std::isfinite(nearest) && std::fabs(static_cast<double>(nearest)) > std::fabs(exact)) {
            u32 bits;
            memcpy(&bits, &nearest, 4);
            bits -= 1;
            memcpy(&nearest, &bits, 4);
        }
        sum = nearest;
    }
    return sum;
}

// Returns 2^k.
static inline double exact_power_of_two(int k) {
    const u64 bits = static_cast<u64>(k + 1023) << 52;
    double y;
    memcpy(&y, &bits, 8);
    return y;
}
// Returns k of the largest 2^k that is no larger than a magnitude, or a small number for 0.
static inline int exponent_of(double x) {
    u64 bits;
    memcpy(&bits, &x, 8);
    return static_cast<int>(bits >> 52 & 0x7FF) - 1023;
}

// Bits of a sum of products of eight bits below its first (DeepSeek-V3 technical report, section 3.3.2).
constexpr int FP8_FRACTION_BITS = 13;

// Returns x without the bits that lie too far below 2^largest for such a sum.
static inline double cut_below(double x, int largest) {
    return std::trunc(x * exact_power_of_two(FP8_FRACTION_BITS - largest)) * exact_power_of_two(largest - FP8_FRACTION_BITS);
}

// Adds the products of 32 values of eight bits to a sum as a tensor core does: all terms lose the bits that lie too far
// below the largest of them, and so does the sum.
static inline float add_fp8_products(float sum, const float* a, const float* b) {
    double terms[33], plain = sum;
    // Exponents of products of formats of eight bits are above -40.
    int largest = -100;
    terms[32] = sum;
    for (int k = 0; k < 32; k++) terms[k] = static_cast<double>(a[k]) * b[k], plain += terms[k];
    if (!std::isfinite(plain)) return static_cast<float>(plain);
    for (double term : terms) largest = exponent_of(term) > largest ? exponent_of(term) : largest;
    double total = 0;
    for (double term : terms) total += cut_below(term, largest);
    return static_cast<float>(total == 0 ? 0 : cut_below(total, exponent_of(total)));
}

// Returns the value of a byte of a format of eight bits.
static inline float fp8_to_float(u32 byte, bool is_e4m3) {
    if (!is_e4m3) return half_to_float(static_cast<u16>(byte << 8));
    const u32 size = byte & 0x7F, mantissa = size & 7;
    const int exponent = static_cast<int>(size >> 3);
    const double value = exponent == 0 ? mantissa * exact_power_of_two(-9) : (8 + mantissa) * exact_power_of_two(exponent - 10);
    return size == 0x7F ? NAN : static_cast<float>(byte & 0x80 ? -value : value);
}

template <bool transposed>
static inline void ldmatrix(u32 (&to)[4], u32 row) {
    const u64* rows = exchange_words(row);
    const auto halves = [&](u32 i) { return reinterpret_cast<const u16*>(shared_at(static_cast<u32>(rows[i]))); };
    u32 l = lane();
    for (u32 i = 0; i < 4; i++) {
        if (transposed) {
            u16 low, high;
            memcpy(&low, halves(8 * i + 2 * (l % 4)) + l / 4, 2);
            memcpy(&high, halves(8 * i + 2 * (l % 4) + 1) + l / 4, 2);
            to[i] = low | static_cast<u32>(high) << 16;
        } else {
            memcpy(&to[i], halves(8 * i + l / 4) + 2 * (l % 4), 4);
        }
    }
}

static inline void cp_async_arrives(u32 last_group) {
    auto& copies = current->copies;
    size_t kept = 0;
    for (auto& copy : copies) {
        if (copy.group <= last_group) {
            memcpy(copy.to, &copy.what, 16);
        } else {
            copies[kept++] = copy;
        }
    }
    copies.resize(kept);
}

}  // namespace machine

#define KERNEL_WITH_PREAMBLE(name, Params)                                                                  \
    static void name##_on_host(const Params& p);                                                            \
    extern "C" {                                                                                            \
    __attribute__((visibility("default"))) u32 name##_parameter_bytes = sizeof(Params);                     \
    }                                                                                                       \
    extern "C" __attribute__((visibility("default"))) void name(const u32* blocks, u32 shared_bytes,        \
                                                                const void* with, const void* preamble) {   \
        machine::launch([](const void* with) { name##_on_host(*static_cast<const Params*>(with)); }, blocks, \
                        THREADS, shared_bytes, with, preamble, sizeof(Params));                             \
    }                                                                                                       \
    static void name##_on_host(const Params& p)
#define KERNEL(name, Params)                        \
    static inline void name##_body(const Params& p); \
    KERNEL_WITH_PREAMBLE(name, Params) {            \
        synchronize_grid_dependency();              \
        name##_body(p);                             \
    }                                               \
    static inline void name##_body(const Params& p)

DEVICE void synchronize_grid_dependency() {
#if __CUDA_ARCH__ >= 900
    machine::synchronize_grid_dependency();
#endif
}

DEVICE Words4 load_streaming(const void* at) {
    machine::require_synchronized("loads before it has waited for the kernels before");
    return *static_cast<const Words4*>(at);
}

DEVICE u32 thread_index() { return machine::current->index; }
#if defined(EPILOGUE_THREADS)
DEVICE u32 thread_count() { return EPILOGUE_THREADS; }
#else
DEVICE u32 thread_count() { return machine::threads; }
#endif
DEVICE u32 block_x() { return machine::own().at[0]; }
DEVICE u32 block_y() { return machine::own().at[1]; }
DEVICE u32 block_z() { return machine::own().at[2]; }
DEVICE u32 blocks_x() { return machine::grid[0]; }
DEVICE u32 blocks_y() { return machine::grid[1]; }
DEVICE u32 blocks_z() { return machine::grid[2]; }

DEVICE void block_barrier() { machine::sync_at(machine::own().all, machine::own().alive); }
#if defined(EPILOGUE_THREADS)
DEVICE void barrier() { machine::sync_at(machine::own().epilogue_threads, EPILOGUE_THREADS); }
#else
DEVICE void barrier() { block_barrier(); }
#endif
DEVICE void warp_barrier() { machine::sync_warp(); }
DEVICE void fence() {}

DEVICE float fma_rn(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE u32 float_as_bits(float x) {
    u32 y;
    memcpy(&y, &x, 4);
    return y;
}
DEVICE float bits_as_float(u32 x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}
DEVICE u16 float_to_half(float x) {
    if (std::isnan(x)) return 0x7FFF;
    _Float16 y = static_cast<_Float16>(x);
    u16 bits;
    memcpy(&bits, &y, 2);
    return bits;
}
DEVICE u32 floats_to_half2(float low, float high) { return float_to_half(low) | static_cast<u32>(float_to_half(high)) << 16; }
DEVICE float half_to_float(u16 x) { return machine::half_to_float(x); }
DEVICE float log2_approx(float x) { return log2f(x); }
DEVICE float exp2_approx(float x) {
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

DEVICE float shuffle_xor(float x, u32 mask) { return machine::shuffle(x, mask); }
DEVICE u32 shuffle_xor(u32 x, u32 mask) { return machine::shuffle(x, mask); }
DEVICE double shuffle_xor(double x, u32 mask) { return machine::shuffle(x, mask); }
DEVICE u32 warp_sum(u32 x) {
    const u64* words = machine::exchange_words(x);
    u32 sum = 0;
    for (u32 i = 0; i < machine::WARP; i++) sum += static_cast<u32>(words[i]);
    return sum;
}
DEVICE u32 warp_max(u32 x) {
    const u64* words = machine::exchange_words(x);
    u64 max_value = 0;
    for (u32 i = 0; i < machine::WARP; i++) max_value = words[i] > max_value ? words[i] : max_value;
    return static_cast<u32>(max_value);
}

template <class T>
DEVICE T atomic_add(T* at, T x) {
    T previous = *at;
    *at += x;
    return previous;
}
DEVICE u32 atomic_max(u32* at, u32 x) {
    u32 previous = *at;
    *at = x > previous ? x : previous;
    return previous;
}

DEVICE u32 warp_uniform(u32 x) { return x; }
// Returns the address of a pointer in the shared memory of the cluster; as on an H100, blocks are 2^24 bytes apart.
DEVICE u32 shared_address(const void* at) {
    return static_cast<u32>(static_cast<const u8*>(at) - machine::own().shared) | machine::current->cta << 24;
}

DEVICE void ldmatrix(u32 (&to)[4], u32 row) { machine::ldmatrix<false>(to, row); }
DEVICE void ldmatrix_trans(u32 (&to)[4], u32 row) { machine::ldmatrix<true>(to, row); }

// Multiplies fragments as `mma.sync` does, with PTX's layout over lanes, "Matrix fragments for mma.m16n8k16 with
// floating point type".
DEVICE void mma_sync(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    using namespace machine;
    u32 side = current->exchanges++ & 1, l = lane(), group = l / 4, pair = 2 * (l % 4);
    Warp& warp = machine::warp();
    auto store_scalar = [](float* to, u32 halves) {
        to[0] = machine::half_to_float(static_cast<u16>(halves));
        to[1] = machine::half_to_float(static_cast<u16>(halves >> 16));
    };
    for (u32 i = 0; i < 4; i++) store_scalar(&warp.a[side][group + 8 * (i % 2)][pair + 8 * (i / 2)], a[i]);
    for (u32 i = 0; i < 2; i++) store_scalar(&warp.b[side][group][pair + 8 * i], b[i]);
    sync_warp();
    for (u32 i = 0; i < 4; i++) {
        d[i] = add_products(d[i], warp.a[side][group + 8 * (i / 2)], warp.b[side][pair + i % 2], 16);
    }
}

#if defined(PROMOTION_PAIRS)
// Multiplies fragments as `mma.sync` does, with PTX's layout over lanes, "Matrix fragments for mma.m16n8k32".
DEVICE void mma_fp8(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    using namespace machine;
    u32 side = current->exchanges++ & 1, l = lane(), group = l / 4, first = 4 * (l % 4);
    Warp& warp = machine::warp();
    auto unpack_bytes = [](float* to, u32 bytes, bool is_e4m3) {
        for (u32 i = 0; i < 4; i++) to[i] = fp8_to_float(bytes >> 8 * i & 0xFF, is_e4m3);
    };
    for (u32 i = 0; i < 4; i++) unpack_bytes(&warp.a[side][group + 8 * (i % 2)][first + 16 * (i / 2)], a[i], A_IS_E4M3 != 0);
    for (u32 i = 0; i < 2; i++) unpack_bytes(&warp.b[side][group][first + 16 * i], b[i], B_IS_E4M3 != 0);
    sync_warp();
    for (u32 i = 0; i < 4; i++) {
        d[i] = add_fp8_products(d[i], warp.a[side][group + 8 * (i / 2)], warp.b[side][2 * (l % 4) + i % 2]);
    }
}
#endif

DEVICE void cp_async(u32 to, const void* from, bool there) {
    machine::require_synchronized("copies before it has waited for the kernels before");
    machine::Copy copy = {machine::shared_at(to), {0, 0, 0, 0}, machine::current->group};
    if (there) memcpy(&copy.what, from, 16);
    machine::current->copies.push_back(copy);
}
DEVICE void cp_async_commit() { machine::current->group += 1; }
template <int pending>
DEVICE void cp_async_wait() {
    u32 closed = machine::current->group;
    if (closed > pending) machine::cp_async_arrives(closed - pending - 1);
}

// Warpgroups. Descriptors are interpreted as this project assumes, which agrees with measurements on an H100.

DEVICE void fence_proxy_async() {}
// Waits for all lanes of a warp, as the `sync.aligned` of this instruction requires.
DEVICE void wgmma_fence() { machine::sync_warp(); }
DEVICE void wgmma_commit() {}
template <int VEC8S>
DEVICE void wgmma_wait(float (&)[VEC8S][4]) { machine::sync_warp(); }

namespace machine {
// Returns the two bytes at position `place` along m or n and `k` of a descriptor's matrix (PTX ISA, "Matrix descriptor
// format" and "Shared memory matrix layout"): with the 128-byte swizzle, or without one.
static inline u16 pair_of(u64 descriptor, bool is_transposed, u32 place, u32 k) {
    const u32 start = static_cast<u32>(descriptor & 0x3FFF) << 4, leading = static_cast<u32>(descriptor >> 16 & 0x3FFF) << 4;
    const u32 stride = static_cast<u32>(descriptor >> 32 & 0x3FFF) << 4, swizzle = static_cast<u32>(descriptor >> 62);
    // Lines are contiguous along k, or along m or n.
    const u32 line = is_transposed ? k : place, along = is_transposed ? place : k;
    u32 address = start;
    if (swizzle == 0) {
        // Core matrices are 128 contiguous bytes: eight lines of 16. Along k the leading offset is between two of them, along
        // m and n the stride.
        const u32 along_k = is_transposed ? line / 8 : along / 8, across_k = is_transposed ? along / 8 : line / 8;
        address += along_k * leading + across_k * stride + line % 8 * 16 + along % 8 * 2;
    } else if (swizzle == 1) {
        // Eight lines of 128 bytes. Positions along m or n continue in panels of 64.
        address += line / 8 * stride + line % 8 * 128;
        address += is_transposed ? along / 64 * leading + along % 64 * 2 : along * 2;
        // Bits 4 to 6 exchanged by bits 7 to 9.
        address ^= (address >> 7 & 7) << 4;
    } else {
        abort_with("multiplies a matrix whose swizzle is not emulated");
    }
    u16 half;
    memcpy(&half, own().shared + address, 2);
    return half;
}
static inline float element_of(u64 descriptor, bool is_transposed, u32 place, u32 k) {
    const u16 bits = pair_of(descriptor, is_transposed, place, k);
#if OPERAND_PARTS > 1
    return bits_as_float(static_cast<u32>(bits) << 16);
#else
    return half_to_float(bits);
#endif
}
}  // namespace machine

template <bool A_TRANSPOSED, bool B_TRANSPOSED, bool ACCUMULATES = true, int VEC8S>
DEVICE void wgmma_mma_async(float (&d)[VEC8S][4], u64 a, u64 b) {
    using namespace machine;
    if (!ACCUMULATES) memset(d, 0, sizeof d);
    const u32 l = lane(), row = current->index / WARP % 4 * 16 + l / 4;
    float left[2][16], right[16];
    for (u32 i = 0; i < 2; i++) {
        for (u32 k = 0; k < 16; k++) left[i][k] = element_of(a, A_TRANSPOSED, row + 8 * i, k);
    }
    for (u32 j = 0; j < VEC8S; j++) {
        for (u32 c = 0; c < 2; c++) {
            for (u32 k = 0; k < 16; k++) right[k] = element_of(b, B_TRANSPOSED, 8 * j + 2 * (l % 4) + c, k);
            d[j][c] = add_products(d[j][c], left[0], right, 16);
            d[j][2 + c] = add_products(d[j][2 + c], left[1], right, 16);
        }
    }
}
#if defined(PROMOTION_PAIRS)
// Multiplies operands of eight bits, of which a pair takes the place of a half.
DEVICE void wgmma_fp8_async(float (&d)[16][4], u64 a, u64 b) {
    using namespace machine;
    const u32 l = lane(), row = current->index / WARP % 4 * 16 + l / 4;
    float left[2][32], right[32];
    auto unpack_line = [](float* to, u64 descriptor, u32 place, bool is_e4m3) {
        for (u32 k = 0; k < 32; k += 2) {
            const u32 pair = pair_of(descriptor, false, place, k / 2);
            to[k] = fp8_to_float(pair & 0xFF, is_e4m3), to[k + 1] = fp8_to_float(pair >> 8, is_e4m3);
        }
    };
    for (u32 i = 0; i < 2; i++) unpack_line(left[i], a, row + 8 * i, A_IS_E4M3 != 0);
    for (u32 j = 0; j < 16; j++) {
        for (u32 c = 0; c < 2; c++) {
            unpack_line(right, b, 8 * j + 2 * (l % 4) + c, B_IS_E4M3 != 0);
            for (u32 i = 0; i < 2; i++) d[j][2 * i + c] = add_fp8_products(d[j][2 * i + c], left[i], right);
        }
    }
}
#endif
DEVICE void wgmma_wait_all_but_last() { machine::sync_warp(); }

#if defined(EPILOGUE_THREADS)
// Barriers in memory, in their 8 bytes. Data that TMA loads arrive as late as possible in one launch, and immediately
// in the next.

namespace machine {
struct Mbarrier {
    int32_t bytes;
    u16 pending;
    u8 threads, phase;
};
}  // namespace machine
static_assert(sizeof(machine::Mbarrier) == 8, "a barrier is 8 bytes");

// Tensor map as the driver encodes it: address, distances (bytes), sizes (elements), sides of the box. Of pixels, whose
// sizes are c, w, h, n: the columns' and rows' first place, how far from the last pixel their last one is, and the
// distance from place to place. Then whether 16-byte pieces are swizzled.
struct TensorMap {
    u64 at, strides[4];
    u32 sizes[5], box[5];
    int32_t first[2], last[2], step[2];
    u32 swizzle, unused[5];
};
static_assert(sizeof(TensorMap) == 128, "a map is 128 bytes");

namespace machine {
struct Load {
    // Block that receives the load, and the address in its shared memory.
    u32 cta;
    u64 to;
    const TensorMap* from;
    // Coordinates of the loaded lines, innermost dimension first.
    std::vector<std::array<int64_t, 5>> lines;
    Mbarrier* full;
};
static std::vector<Load> loads;

static inline void complete_phase(Mbarrier& mbarrier) {
    if (mbarrier.pending == 0 && mbarrier.bytes == 0) {
        mbarrier.pending = mbarrier.threads;
        mbarrier.phase ^= 1;
        idle_turns = 0;
    }
}
static inline void complete_load(const Load& load) {
    const TensorMap& from = *load.from;
    for (u64 line = 0; line < load.lines.size(); line++) {
        bool there = true;
        u64 at = from.at;
        for (u32 d = 1; d < 5; d++) {
            const int64_t place = load.lines[line][d];
            there = there && place >= 0 && static_cast<u64>(place) < from.sizes[d];
            at += static_cast<u64>(place) * from.strides[d - 1];
        }
        for (u64 i = 0; i < from.box[0]; i++) {
            const u64 x = static_cast<u64>(load.lines[line][0]) + i;
            u16 half = 0;
            if (there && x < from.sizes[0]) memcpy(&half, reinterpret_cast<const u8*>(at + 2 * x), 2);
            u64 offset = load.to + line * from.box[0] * 2 + i * 2;
            if (from.swizzle == 1) offset ^= (offset >> 7 & 7) << 4;
            memcpy(ctas[load.cta].shared + offset, &half, 2);
        }
    }
    load.full->bytes -= static_cast<int32_t>(from.box[0] * load.lines.size() * 2);
    complete_phase(*load.full);
}
static inline void issue_load(Load load) {
    require_synchronized("loads by TMA before it has waited for the kernels before");
    if (is_reversed) {
        complete_load(load);
    } else {
        loads.push_back(std::move(load));
    }
}
static inline Mbarrier& mbarrier(u32 at) { return *reinterpret_cast<Mbarrier*>(shared_at(at)); }
// Returns the mbarrier at the same address in another block of the cluster.
static inline Mbarrier& mbarrier_in(u32 at, u32 cta) {
    return *reinterpret_cast<Mbarrier*>(ctas[cta].shared + (shared_at(at) - own().shared));
}
static inline void arrive(Mbarrier& mbarrier) {
    if (mbarrier.pending == 0) abort_with("arrives where enough have");
    mbarrier.pending -= 1;
    complete_phase(mbarrier);
}
static inline Load load_into(void* to, const TensorMap& from, u32 full) {
    // Swizzled boxes of this project begin where the pattern does.
    const u32 alignment = from.swizzle == 1 ? 1024 : 128;
    if ((static_cast<u8*>(to) - own().shared) % alignment != 0) abort_with("loads a tile to an address that is not aligned");
    return {current->cta, static_cast<u64>(static_cast<u8*>(to) - own().shared), &from, {}, &mbarrier(full)};
}
// Returns the load of a box at these coordinates, which are signed.
static inline Load load_box(void* to, const TensorMap& from, const std::array<int, 5>& at, u32 full) {
    Load load = load_into(to, from, full);
    for (u32 outer = 0; outer < from.box[4] * from.box[3] * from.box[2]; outer++) {
        const int64_t z = outer % from.box[2], plane = outer / from.box[2] % from.box[3], image = outer / from.box[2] / from.box[3];
        for (u32 j = 0; j < from.box[1]; j++) load.lines.push_back({at[0], at[1] + int64_t{j}, at[2] + z, at[3] + plane, at[4] + image});
    }
    return load;
}
static inline Load load_box(void* to, const TensorMap& from, u32 x, u32 y, u32 z, u32 full) {
    return load_box(to, from, {static_cast<int>(x), static_cast<int>(y), static_cast<int>(z), 0, 0}, full);
}
}  // namespace machine

// `sync.aligned` of four warps: none of their threads goes on before all have come so far.
namespace machine {
static inline void set_registers(u32 wanted, bool takes) {
    Cta& cta = own();
    const u32 group = current->index / WARPGROUP;
    u32& have = cta.registers[group];
    sync_at(cta.groups[group], WARPGROUP);
    if (current->index % WARPGROUP == 0) {
        if (wanted % 8 != 0 || wanted < 24 || wanted > 256) abort_with("asks for registers that cannot be");
        if (takes ? wanted < have : wanted > have) abort_with("changes its registers the wrong way");
        if (!takes) cta.free_registers += have - wanted;
        while (takes && cta.free_registers < wanted - have) yield_turn();
        if (takes) cta.free_registers -= wanted - have;
        have = wanted;
    }
    sync_at(cta.groups[group], WARPGROUP);
}
}  // namespace machine
template <u32 registers>
DEVICE void setmaxnreg_dec() { machine::set_registers(registers, false); }
template <u32 registers>
DEVICE void setmaxnreg_inc() { machine::set_registers(registers, true); }
DEVICE void mbarrier_init(u32 at, u32 threads) {
    machine::mbarrier(at) = {0, static_cast<u16>(threads), static_cast<u8>(threads), 0};
}
DEVICE void fence_mbarrier_init() {}
DEVICE void mbarrier_arrive(u32 at) { machine::arrive(machine::mbarrier(at)); }
DEVICE void mbarrier_arrive_expect_tx(u32 at, u32 bytes) {
    machine::mbarrier(at).bytes += static_cast<int32_t>(bytes);
    mbarrier_arrive(at);
}
DEVICE void mbarrier_wait(u32 at, u32 phase) {
    using namespace machine;
    while (mbarrier(at).phase == phase) {
        for (size_t i = 0; i < loads.size();) {
            if (loads[i].full == &mbarrier(at)) {
                complete_load(loads[i]);
                loads.erase(loads.begin() + static_cast<long>(i));
            } else {
                i += 1;
            }
        }
        if (mbarrier(at).phase == phase) yield_turn();
    }
    // The delayed warpgroup continues only when no other can.
    while (current->index / WARPGROUP == delayed_group && idle_turns < alive) yield_turn();
}
DEVICE void prefetch_tensor_map(const TensorMap&) {}
DEVICE void tma_load(void* to, const TensorMap& from, u32 x, u32 y, u32 z, u32 full) {
    machine::issue_load(machine::load_box(to, from, x, y, z, full));
}
DEVICE void tma_load_planes(void* to, const TensorMap& from, int column, int row, u32 image, u32 full) {
    machine::issue_load(machine::load_box(to, from, {0, column, row, 0, static_cast<int>(image)}, full));
}
#if CLUSTER > 1
DEVICE u32 cluster_rank() { return machine::current->cta; }
DEVICE void cluster_barrier() { machine::sync_at(machine::cluster, machine::alive); }
DEVICE void mbarrier_arrive_remote(u32 at, u32 block) { machine::arrive(machine::mbarrier_in(at, block)); }
DEVICE void tma_load_multicast(void* to, const TensorMap& from, u32 x, u32 y, u32 z, u32 full) {
    for (u32 cta = 0; cta < CLUSTER; cta++) {
        machine::Load load = machine::load_box(to, from, x, y, z, full);
        load.cta = cta;
        load.full = &machine::mbarrier_in(full, cta);
        machine::issue_load(std::move(load));
    }
}
#endif
DEVICE void tma_load_im2col(void* to, const TensorMap& from, u32 c, int column, int row, u32 image, u32 right, u32 down,
                        u32 full) {
    machine::Load load = machine::load_into(to, from, full);
    const int64_t last[2] = {static_cast<int64_t>(from.sizes[1]) - 1 + from.last[0],
                             static_cast<int64_t>(from.sizes[2]) - 1 + from.last[1]};
    int64_t at[2] = {column, row}, n = image;
    // TMA stores these offsets in a byte.
    if (right > 255 || down > 255) abort();
    for (u32 d = 0; d < 2; d++) {
        if (at[d] < from.first[d] || at[d] > last[d] || (at[d] - from.first[d]) % from.step[d] != 0) abort();
    }
    for (u32 line = 0; line < from.box[1]; line++) {
        load.lines.push_back({c, at[0] + right, at[1] + down, n, 0});
        at[0] += from.step[0];
        if (at[0] > last[0]) at[0] = from.first[0], at[1] += from.step[1];
        if (at[1] > last[1]) at[1] = from.first[1], n += 1;
    }
    machine::issue_load(std::move(load));
}
#endif
