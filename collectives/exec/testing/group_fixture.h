// For tests: groups of all transports that one process can run, whose ranks are threads.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/exec/transports/registry/registry.h"

namespace xlad::collectives {

// Calls `body` for each rank, on a thread of its own.
inline void OnThreads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// The parameter is the name of a transport.
class GroupTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Calls `body` with the group of each rank, each on a thread of its own: a ProcessGroup for transports that share
  // memory, otherwise a MessageGroup. A rank may still be forming its group when another rank fails. It then gets the
  // error while forming, which is passed to `failed`.
  template <typename Body>
  void OnRanks(int ranks, const Body& body, const std::function<void(const absl::Status&)>& failed) {
    const auto transport = ChooseTransport(GetParam());
    if (absl::IsNotFound(transport.status())) GTEST_SKIP() << transport.status();
    ASSERT_TRUE(transport.ok()) << transport.status();
    MessageGroup::Options options;
    options.transport = *transport;
    if (transport->one_process) {
      auto groups = MessageGroup::InProcess(ranks, options);
      ASSERT_TRUE(groups.ok()) << groups.status();
      return OnThreads(ranks, [&](int rank) { body((*groups)[rank].get()); });
    }
    const std::string key = absl::StrCat("test-", getpid(), "-", SystemRandom()->Hex(4));
    const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
    OnThreads(ranks, [&](int rank) {
      const Launch launch{.rank = rank, .ranks = ranks, .launcher = "test", .key = key};
      if (transport->shares_memory) {
        ProcessGroup::Options memory;
        memory.launch = launch;
        const auto group = ProcessGroup::Form(memory, bootstrap.get());
        ASSERT_TRUE(group.ok()) << group.status();
        return body(group->get());
      }
      MessageGroup::Options messages = options;
      messages.launch = launch;
      const auto group = MessageGroup::Join(messages);
      group.ok() ? body(group->get()) : failed(group.status());
    });
  }

  // Returns the first error of the operation and of the barrier after it. A rank that does not wait for other ranks in
  // the operation gets the error only in the barrier.
  template <typename Group>
  static absl::Status PrepareAndRun(Group* group, const CollectiveSpec& spec) {
    XLAD_ASSIGN_OR_RETURN(const auto operation, group->Prepare(spec));
    return RunOnce(group, *operation);
  }
  template <typename Group, typename Operation>
  static absl::Status RunOnce(Group* group, Operation& operation) {
    std::vector<double> in(20000), out(20000);
    XLAD_RETURN_IF_ERROR(group->Run(operation, in.data(), out.data()));
    return group->Barrier();
  }
};

}  // namespace xlad::collectives
