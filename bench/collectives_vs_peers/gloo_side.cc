// Gloo's side of the comparison. Measures its collectives over TCP on the loopback device (its only transport for one
// host) by the method of `xlad bench`. Prints a line of JSON for each size.
//   gloo_side RANK RANKS FOLDER COLLECTIVE MIN_BYTES MAX_BYTES FACTOR ITERS BATCHES IN_PLACE
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Call {
  std::string what;
  float* in;
  float* out;
  size_t count;
  bool in_place;
};

void Run(const std::shared_ptr<gloo::Context>& context, const Call& call) {
  const auto& [what, in, out, count, in_place] = call;
  if (what == "all_reduce") {
    gloo::AllreduceOptions options(context);
    if (!in_place) options.setInput(in, count);
    options.setOutput(out, count);
    options.setReduceFunction([](void* c, const void* a, const void* b, size_t n) { gloo::sum<float>(c, a, b, n); });
    gloo::allreduce(options);
  } else if (what == "all_gather") {
    gloo::AllgatherOptions options(context);
    if (!in_place) options.setInput(in, count / context->size);
    options.setOutput(out, count);
    gloo::allgather(options);
  } else if (what == "all_to_all") {
    gloo::AlltoallOptions options(context);
    options.setInput(in, count);
    options.setOutput(out, count);
    gloo::alltoall(options);
  } else if (what == "broadcast") {
    gloo::BroadcastOptions options(context);
    options.setRoot(0);
    options.setOutput(out, count);
    gloo::broadcast(options);
  } else {
    std::fprintf(stderr, "gloo_side: found collective %s, expected all_reduce, all_gather, all_to_all or broadcast\n",
                 what.c_str());
    std::exit(2);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 11) {
    std::fprintf(stderr, "usage: gloo_side RANK RANKS FOLDER COLLECTIVE MIN MAX FACTOR ITERS BATCHES IN_PLACE\n");
    return 2;
  }
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]), asked = std::atoi(argv[8]),
            batches = std::atoi(argv[9]);
  const std::string what = argv[4];
  const long max = std::atol(argv[6]), factor = std::atol(argv[7]);
  const bool in_place = std::atoi(argv[10]) != 0;
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[3]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  for (long bytes = std::atol(argv[5]); bytes <= max; bytes *= factor) {
    const size_t count = bytes / sizeof(float);
    std::vector<float> in(count, 1), out(count, 1), times(batches), most(batches);
    int iters = asked > 0 ? asked : static_cast<int>(std::clamp<long>((64 << 20) / bytes, 2, 20));
    for (int i = 0; i < 5; ++i) Run(context, {what, in.data(), out.data(), count, in_place});
    for (int batch = 0; batch < batches; ++batch) {
      gloo::BarrierOptions barrier(context);
      gloo::barrier(barrier);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < iters; ++i) {
        Run(context, {what, in.data(), out.data(), count, in_place});
        if (what == "broadcast") gloo::barrier(barrier);
      }
      times[batch] = std::chrono::duration<float, std::micro>(std::chrono::steady_clock::now() - start).count() / iters;
    }
    gloo::AllreduceOptions options(context);
    options.setInput(times.data(), times.size());
    options.setOutput(most.data(), most.size());
    options.setReduceFunction([](void* c, const void* a, const void* b, size_t n) { gloo::max<float>(c, a, b, n); });
    gloo::allreduce(options);
    double sum = 0;
    for (const float time : most) sum += time;
    std::sort(most.begin(), most.end());
    if (rank == 0) {
      std::printf("{\"bytes\": %ld, \"mean_us\": %.4f, \"median_us\": %.4f, \"p99_us\": %.4f}\n", bytes, sum / batches,
                  most[batches / 2], most[batches * 99 / 100]);
      std::fflush(stdout);
    }
  }
  return 0;
}
