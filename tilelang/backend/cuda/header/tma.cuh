// Bulk tensor copies (PTX ISA, cp.async.bulk.tensor): boxes of tensors of 1 to 5 dimensions, coordinates innermost first.
#pragma once
#include <tilelang/async.cuh>

namespace tl {

// CUtensorMap of the driver: what describes a tensor, a box and a swizzle. A kernel takes it as `const __grid_constant__`.
struct alignas(64) tensor_map {
  uint64_t words[16];
};

TL_DEVICE void prefetch(const tensor_map& map) { asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory"); }

// ---- box of a tensor to shared memory; its bytes count on the barrier
#define TL_LOAD(rank, places) \
  "cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" places "}], [%2];"
TL_DEVICE void tma_load(void* to, const tensor_map& map, uint64_t* barrier, int x) {
  asm volatile(TL_LOAD("1d", "%3") : : "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x) : "memory");
}
TL_DEVICE void tma_load(void* to, const tensor_map& map, uint64_t* barrier, int x, int y) {
  asm volatile(TL_LOAD("2d", "%3, %4") : : "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y) : "memory");
}
TL_DEVICE void tma_load(void* to, const tensor_map& map, uint64_t* barrier, int x, int y, int z) {
  asm volatile(TL_LOAD("3d", "%3, %4, %5")
               : : "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z) : "memory");
}
TL_DEVICE void tma_load(void* to, const tensor_map& map, uint64_t* barrier, int x, int y, int z, int u) {
  asm volatile(TL_LOAD("4d", "%3, %4, %5, %6")
               : : "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}
TL_DEVICE void tma_load(void* to, const tensor_map& map, uint64_t* barrier, int x, int y, int z, int u, int v) {
  asm volatile(TL_LOAD("5d", "%3, %4, %5, %6, %7")
               : : "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}
#undef TL_LOAD

// ---- the same to this place of all blocks of the cluster that the mask names; its bytes count on their barriers at this place
#define TL_MULTICAST(rank, places)                                                                                                  \
  "cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {" places "}], " \
  "[%2], %3;"
#define TL_OPERANDS "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "h"((uint16_t)mask)
TL_DEVICE void tma_multicast(void* to, const tensor_map& map, uint64_t* barrier, int mask, int x) {
  asm volatile(TL_MULTICAST("1d", "%4") : : TL_OPERANDS, "r"(x) : "memory");
}
TL_DEVICE void tma_multicast(void* to, const tensor_map& map, uint64_t* barrier, int mask, int x, int y) {
  asm volatile(TL_MULTICAST("2d", "%4, %5") : : TL_OPERANDS, "r"(x), "r"(y) : "memory");
}
TL_DEVICE void tma_multicast(void* to, const tensor_map& map, uint64_t* barrier, int mask, int x, int y, int z) {
  asm volatile(TL_MULTICAST("3d", "%4, %5, %6") : : TL_OPERANDS, "r"(x), "r"(y), "r"(z) : "memory");
}
TL_DEVICE void tma_multicast(void* to, const tensor_map& map, uint64_t* barrier, int mask, int x, int y, int z, int u) {
  asm volatile(TL_MULTICAST("4d", "%4, %5, %6, %7") : : TL_OPERANDS, "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}
TL_DEVICE void tma_multicast(void* to, const tensor_map& map, uint64_t* barrier, int mask, int x, int y, int z, int u, int v) {
  asm volatile(TL_MULTICAST("5d", "%4, %5, %6, %7, %8") : : TL_OPERANDS, "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}
#undef TL_OPERANDS
#undef TL_MULTICAST

// ---- shared memory to a box of a tensor, in the thread's open group
#define TL_STORE(rank, places) "cp.async.bulk.tensor." rank ".global.shared::cta.bulk_group [%1, {" places "}], [%0];"
TL_DEVICE void tma_store(const void* from, const tensor_map& map, int x) {
  asm volatile(TL_STORE("1d", "%2") : : "r"(shared_address(from)), "l"(&map), "r"(x) : "memory");
}
TL_DEVICE void tma_store(const void* from, const tensor_map& map, int x, int y) {
  asm volatile(TL_STORE("2d", "%2, %3") : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y) : "memory");
}
TL_DEVICE void tma_store(const void* from, const tensor_map& map, int x, int y, int z) {
  asm volatile(TL_STORE("3d", "%2, %3, %4") : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y), "r"(z) : "memory");
}
TL_DEVICE void tma_store(const void* from, const tensor_map& map, int x, int y, int z, int u) {
  asm volatile(TL_STORE("4d", "%2, %3, %4, %5") : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}
TL_DEVICE void tma_store(const void* from, const tensor_map& map, int x, int y, int z, int u, int v) {
  asm volatile(TL_STORE("5d", "%2, %3, %4, %5, %6")
               : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}
#undef TL_STORE

// ---- the same, added to what is there: each element of float32 indivisibly, in any order
#define TL_ADD(rank, places) "cp.reduce.async.bulk.tensor." rank ".global.shared::cta.add.tile.bulk_group [%1, {" places "}], [%0];"
TL_DEVICE void tma_add(const void* from, const tensor_map& map, int x) {
  asm volatile(TL_ADD("1d", "%2") : : "r"(shared_address(from)), "l"(&map), "r"(x) : "memory");
}
TL_DEVICE void tma_add(const void* from, const tensor_map& map, int x, int y) {
  asm volatile(TL_ADD("2d", "%2, %3") : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y) : "memory");
}
TL_DEVICE void tma_add(const void* from, const tensor_map& map, int x, int y, int z) {
  asm volatile(TL_ADD("3d", "%2, %3, %4") : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y), "r"(z) : "memory");
}
TL_DEVICE void tma_add(const void* from, const tensor_map& map, int x, int y, int z, int u) {
  asm volatile(TL_ADD("4d", "%2, %3, %4, %5") : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}
TL_DEVICE void tma_add(const void* from, const tensor_map& map, int x, int y, int z, int u, int v) {
  asm volatile(TL_ADD("5d", "%2, %3, %4, %5, %6")
               : : "r"(shared_address(from)), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}
#undef TL_ADD

// ---- bytes on barriers; what other engines see
TL_DEVICE void mbarrier_expect_tx(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(bytes) : "memory");
}
TL_DEVICE void mbarrier_arrive_expect_tx(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(shared_address(barrier)), "r"(bytes) : "memory");
}
TL_DEVICE void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
// Of shared memory only: for all of memory it becomes a fence of the whole device.
TL_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

TL_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" : : : "memory"); }
template <int Groups> TL_DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" : : "n"(Groups) : "memory"); }
template <int Groups> TL_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(Groups) : "memory"); }

}  // namespace tl
