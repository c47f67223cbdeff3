// Instructions of clusters of CLUSTER blocks, which run at the same time and reach each other's shared memory (PTX ISA,
// "barrier.cluster", "mapa", "cp.async.bulk.tensor"). `emulation/compiler/machine.hpp` defines them for a host compiler.

#if CLUSTER > 1 && defined(__CUDACC_RTC__)
#undef KERNEL_ATTRIBUTES
#define KERNEL_ATTRIBUTES __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)

DEVICE u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// Waits at a barrier of all running threads of the cluster. Their writes are visible afterwards.
DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
// Arrives at the barrier of the same address in another block. It orders this thread's reads only, because a release at
// cluster scope would fence all memory each time.
DEVICE void mbarrier_arrive_remote(u32 at, u32 block) {
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
        "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(at),
        "r"(block)
        : "memory");
}
// Loads a box by TMA as `tma_load` does, to the same address in every block of the cluster. Its bytes count for the
// barrier of each.
DEVICE void tma_load_multicast(void* to, const TensorMap& from, u32 x, u32 y, u32 z, u32 full) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::
            "r"(shared_address(to)),
        "l"(&from), "r"(full), "r"(x), "r"(y), "r"(z), "h"((u16)((1 << CLUSTER) - 1))
        : "memory");
}
#endif
