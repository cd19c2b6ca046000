// Finds races between the threads of a kernel.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace xlad::cuda_double {

// Records all accesses of global and shared memory of one launch. A race is two accesses of one byte by different
// threads, at least one of them a store, with no barrier between them. A barrier orders only the accesses of its block.
// Instructions of a warp do not order accesses. A store that does not change the memory is not a race with an earlier
// store. Races are found even if the order in which the interpreter runs the threads gives the right result.
class RaceChecker {
 public:
  void BeginBlock(uint32_t block);
  void Barrier() { ++epoch_; }
  struct Access {
    uint64_t address = 0, bytes = 0;
    bool is_store = false;
    bool keeps_value = false;  // True for a store that does not change the memory.
  };
  // Returns false if the access is a race, which error() then describes.
  bool Check(const Access& access, uint32_t thread);
  const std::string& error() const { return error_; }

 private:
  // The accesses of one byte that a later access can still race with. If the block is 0, there is no such access.
  struct Shadow {
    uint32_t write_block = 0, read_block = 0, write_epoch = 0, read_epoch = 0;
    uint32_t write_thread = 0, read_thread = 0;
    // Several blocks have accessed the byte. Stores of several blocks race unless they have the same value.
    bool write_by_blocks = false, read_by_blocks = false;
    // Several threads of write_block have stored to the byte in write_epoch, or of read_block loaded it in read_epoch.
    bool write_by_threads = false, read_by_threads = false;
  };
  static constexpr uint64_t kPageBytes = 1024;
  using Page = std::array<Shadow, kPageBytes>;
  bool RacesWithStore(const Shadow& shadow, uint32_t thread) const;
  bool RacesWithLoad(const Shadow& shadow, uint32_t thread) const;
  bool CheckByte(uint64_t byte, const Access& access, uint32_t thread);
  Shadow& ShadowOf(uint64_t byte);

  uint32_t block_ = 0;  // The number of the block plus 1.
  uint32_t epoch_ = 0;  // The number of barriers of this block.
  std::unordered_map<uint64_t, std::unique_ptr<Page>> global_, shared_;
  struct Recent {
    uint64_t number = ~uint64_t{0};
    Page* page = nullptr;
  };
  std::array<Recent, 64> recent_;
  std::string error_;
};

}  // namespace xlad::cuda_double
