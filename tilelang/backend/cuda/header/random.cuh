// Random numbers of each thread: Philox 4x32-10. Number n is word n % 4 of Philox(counter (n / 4, sequence), key seed).
#pragma once
#include <tilelang/types.cuh>

namespace tl {

struct philox {
  uint64_t seed = 0, sequence = 0, drawn = 0;
  __device__ __forceinline__ void init(uint64_t seed_, uint64_t skip, uint64_t sequence_) {
    seed = seed_;
    drawn = skip;
    sequence = sequence_;
  }
  __device__ __forceinline__ uint32_t next() {
    uint64_t n = drawn++;
    uint32_t w[4] = {(uint32_t)(n >> 2), (uint32_t)(n >> 34), (uint32_t)sequence, (uint32_t)(sequence >> 32)};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      uint64_t p = (uint64_t)w[0] * 0xd2511f53u, q = (uint64_t)w[2] * 0xcd9e8d57u;
      uint32_t a = (uint32_t)(q >> 32) ^ w[1] ^ k0, c = (uint32_t)(p >> 32) ^ w[3] ^ k1;
      w[1] = (uint32_t)q;
      w[3] = (uint32_t)p;
      w[0] = a;
      w[2] = c;
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    uint32_t which = (uint32_t)n & 3u;
    return which == 0u ? w[0] : which == 1u ? w[1] : which == 2u ? w[2] : w[3];
  }
  // Uniform on (0, 1].
  template <class T> __device__ __forceinline__ T uniform() { return (T)next() * (T)2.3283064365386963e-10 + (T)1.1641532182693481e-10; }
  template <class T> __device__ __forceinline__ T normal() {
    T radius = sqrt((T)-2 * log(uniform<T>()));
    return radius * cos((T)6.283185307179586 * uniform<T>());
  }
};

}  // namespace tl
