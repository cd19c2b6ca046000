// Instructions that the threads of a warp execute together: exchanges of registers and products of small matrices.
#include <atomic>
#include <bit>
#include <cmath>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

std::atomic<int64_t> mma_count{0};

// shfl.sync.MODE.b32 result, value, lane, clamp and mask, members. Lanes that are out of range keep their own value.
void Exchange(Thread* warp, int lanes) {
  uint32_t values[kWarp] = {};
  for (int lane = 0; lane < lanes; ++lane) values[lane] = warp[lane].Get<uint32_t>(warp[lane].next->r[1]);
  for (int lane = 0; lane < lanes; ++lane) {
    Thread& thread = warp[lane];
    const Instruction& shuffle = *thread.next;
    const int by = static_cast<int>(thread.Get<uint32_t>(shuffle.r[2]) & 31);
    const uint32_t control = thread.Get<uint32_t>(shuffle.r[3]);
    const int segment = static_cast<int>(control >> 8 & 31), clamp = static_cast<int>(control & 31);
    const int first = lane & segment, last = first | (clamp & ~segment);
    int from = lane;
    bool is_inside = true;
    switch (shuffle.mode) {
      case kShuffleUp:
        from = lane - by, is_inside = from >= last;
        break;
      case kShuffleDown:
        from = lane + by, is_inside = from <= last;
        break;
      case kShuffleXor:
        from = lane ^ by, is_inside = from <= last;
        break;
      default:
        from = first | (by & ~segment), is_inside = from <= last;
    }
    thread.Set<uint32_t>(shuffle.r[0], values[is_inside && from < lanes ? from : lane]);
  }
}

bool IsMma(const Instruction& instruction) { return instruction.mode == kMmaF16 || instruction.mode == kMmaBf16; }

float ToFloat(uint32_t bits, int mode) {
  if (mode == kMmaBf16) return std::bit_cast<float>(bits << 16);
  return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
}

// mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {d0..d3}, {a0..a3}, {b0, b1}, {c0..c3}: d[16, 8] = a[16, 16] *
// b[16, 8] + c[16, 8]. With the group g = lane / 4 and the pair p = lane % 4 * 2, a thread holds these elements in its
// registers. A register of a or b holds two elements, the first one in the low half (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type"):
//
//   a0  rows g,     columns p, p + 1        b0  rows p, p + 1,     column g       c0, c1  row g,     columns p, p + 1
//   a1  rows g + 8, columns p, p + 1        b1  rows p + 8, p + 9, column g       c2, c3  row g + 8, columns p, p + 1
//   a2  rows g,     columns p + 8, p + 9
//   a3  rows g + 8, columns p + 8, p + 9
//
// Products are exact, and are added to c in the order of the columns of a, each sum rounded to f32. The PTX ISA does
// not specify the order and the rounding of the sums. Tensor cores align the addends of a sum to the largest one and
// drop the lower bits (Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores, 2021).
void MultiplyMatrices(Thread* warp) {
  const int mode = warp->next->mode;
  const std::vector<uint32_t>& r = warp->next->details->operands;
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const Thread& thread = warp[lane];
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const auto of_a = thread.Get<uint32_t>(r[4 + i]);
      const int row = group + i % 2 * 8, column = pair + i / 2 * 8;
      a[row][column] = ToFloat(of_a & 0xffff, mode);
      a[row][column + 1] = ToFloat(of_a >> 16, mode);
      c[group + i / 2 * 8][pair + i % 2] = thread.Get<float>(r[10 + i]);
    }
    for (int i = 0; i < 2; ++i) {
      const auto of_b = thread.Get<uint32_t>(r[8 + i]);
      b[pair + i * 8][group] = ToFloat(of_b & 0xffff, mode);
      b[pair + i * 8 + 1][group] = ToFloat(of_b >> 16, mode);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int k = 0; k < 16; ++k) c[row][column] = std::fma(a[row][k], b[k][column], c[row][column]);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) warp[lane].Set<float>(r[i], c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
  }
}

}  // namespace

int64_t MmaCount() { return mma_count.load(std::memory_order_relaxed); }

int RunWarpInstruction(Thread* warp, int lanes) {
  bool any_mma = false, is_same = true;
  for (int lane = 0; lane < lanes; ++lane) {
    any_mma |= IsMma(*warp[lane].next);
    is_same &= warp[lane].next == warp->next;
  }
  if (any_mma && (!is_same || lanes != kWarp)) return kLaunchFailed;
  if (any_mma) {
    MultiplyMatrices(warp);
    mma_count.fetch_add(1, std::memory_order_relaxed);
  } else {
    Exchange(warp, lanes);
  }
  for (int lane = 0; lane < lanes; ++lane) {
    warp[lane].state = ThreadState::kReady;
    ++warp[lane].next;
  }
  return 0;
}

}  // namespace xlad::cuda_double
