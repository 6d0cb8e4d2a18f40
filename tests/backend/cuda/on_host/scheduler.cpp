// The threads of a block as coroutines: each runs until it waits at a barrier or ends. Blocks run one after the other.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct three { unsigned x, y, z; };
extern "C" {
three threadIdx, blockIdx, blockDim, gridDim;
alignas(1024) uint8_t smem[232448];
}

namespace {
constexpr int stack_bytes = 128 * 1024, warp = 32;
enum state { ready, at_block, at_warp, done };
struct thread {
  ucontext_t context;
  three index;
  state now;
  int barrier, count;
  uint32_t mask;
  uint64_t slot;
  const void* operands[8];
};
thread* threads;
char* stacks;
int total, current;
ucontext_t scheduler;
void (*body)(void**);
void** arguments;
const char* failure;
void (*instruction)(const char*, int, const void* const*);

void enter() {
  body(arguments);
  threads[current].now = done;
  swapcontext(&threads[current].context, &scheduler);
}
void wait(state why) {
  threads[current].now = why;
  swapcontext(&threads[current].context, &scheduler);
}
// Let the warps go on whose waiting lanes are all there; then the barriers that are complete. False: nobody can go on.
bool release() {
  bool any = false;
  for (int first = 0; first < total; first += warp) {
    int end = first + warp < total ? first + warp : total;
    for (int k = first; k < end; ++k) {
      if (threads[k].now != at_warp) continue;
      bool complete = true;
      for (int j = first; j < end; ++j)
        if ((threads[k].mask >> (j - first) & 1u) && threads[j].now != done && threads[j].now != at_warp) complete = false;
      if (!complete) continue;
      for (int j = first; j < end; ++j)
        if ((threads[k].mask >> (j - first) & 1u) && threads[j].now == at_warp) threads[j].now = ready, any = true;
    }
  }
  if (any) return true;
  for (int id = 0; id < 16; ++id) {
    int waiting = 0, needed = 0, running = 0;
    for (int k = 0; k < total; ++k) {
      running += threads[k].now != done;
      if (threads[k].now == at_block && threads[k].barrier == id) ++waiting, needed = threads[k].count;
    }
    if (!waiting || waiting < (needed ? needed : running)) continue;
    for (int k = 0; k < total; ++k)
      if (threads[k].now == at_block && threads[k].barrier == id) threads[k].now = ready, any = true;
  }
  return any;
}
void run_block() {
  memset(smem, 0xcb, sizeof smem);  // nothing that a program could take for a value of its own
  for (int k = 0; k < total; ++k) {
    thread& t = threads[k];
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = stacks + (size_t)k * stack_bytes;
    t.context.uc_stack.ss_size = stack_bytes;
    t.context.uc_link = nullptr;
    makecontext(&t.context, enter, 0);
    t.now = ready;
    t.index = {k % blockDim.x, k / blockDim.x % blockDim.y, k / (blockDim.x * blockDim.y)};
  }
  while (!failure) {
    int left = 0;
    for (current = 0; current < total && !failure; ++current) {
      if (threads[current].now == ready) {
        threadIdx = threads[current].index;
        swapcontext(&scheduler, &threads[current].context);
      }
      left += threads[current].now != done;
    }
    if (!left) return;
    if (!failure && !release()) failure = "threads wait for each other";
  }
}
}  // namespace

extern "C" {
void host_block_barrier(int id, int count) {
  threads[current].barrier = id;
  threads[current].count = count;
  wait(at_block);
}
void host_warp_barrier(uint32_t mask) {
  threads[current].mask = mask;
  wait(at_warp);
}
void host_stop() {
  failure = "__trap";
  wait(done);
}
int host_lane() { return current % warp; }
uint64_t* host_slot(int lane) { return &threads[current / warp * warp + lane].slot; }
bool host_is_running(int lane) { return current / warp * warp + lane < total && threads[current / warp * warp + lane].now != done; }
void host_instruction(const char* name, int count, const void* const* operands) {
  memcpy(threads[current].operands, operands, count * sizeof *operands);
  host_warp_barrier(0xffffffffu);
  if (host_lane() == 0) {
    const void* all[8 * warp];
    for (int k = 0; k < count; ++k)
      for (int j = 0; j < warp; ++j) all[k * warp + j] = threads[current + j].operands[k];
    instruction(name, count, all);
  }
  host_warp_barrier(0xffffffffu);
}
// Run a kernel; the reason why it stopped, or nothing.
const char* host_launch(void (*kernel)(void**), void** values, const unsigned* shape, void (*execute)(const char*, int, const void* const*)) {
  gridDim = {shape[0], shape[1], shape[2]};
  blockDim = {shape[3], shape[4], shape[5]};
  total = blockDim.x * blockDim.y * blockDim.z;
  body = kernel;
  arguments = values;
  instruction = execute;
  failure = nullptr;
  threads = new thread[total];
  stacks = (char*)malloc((size_t)total * stack_bytes);
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x && !failure; ++blockIdx.x) run_block();
  free(stacks);
  delete[] threads;
  fflush(stdout);
  return failure;
}
}
