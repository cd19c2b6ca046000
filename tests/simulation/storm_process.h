// What StormWorkers knows of processes, their tasks, and the gangs of tasks that run an attempt together.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "tests/simulation/storm_workers.h"

namespace xlad::simulation {

// Names the attempt of a launched task in a message.
template <typename Message>
void Name(const LaunchTask& launch, Message* message) {
  message->set_job_id(launch.job_id());
  message->set_attempt(launch.attempt());
  message->set_generation(launch.generation());
}

struct StormWorkers::Task {
  LaunchTask launch;
  std::shared_ptr<Gang> gang;
  bool is_first = false;  // It has device 0 and reports the metrics.
  bool ready = false, started = false;
  int64_t lease_until = -1;
  int64_t stop_at = -1;
  std::set<int64_t> checkpoint_steps;         // Those that the coordinator has named.
  std::map<int64_t, CheckpointShard> shards;  // Written and not committed, by step.
  int64_t saved_step = -1;                    // The last step whose state was written, or from which it started.
  std::deque<StepMetrics> metrics;            // Not acknowledged.
  std::optional<WorkerMessage> end;           // Repeated until it is forgotten.
};

struct StormWorkers::Gang {
  TaskKey key;
  LaunchTask launch;
  std::map<int, std::pair<Process*, Task*>> members;  // By the process's number, so that a seed replays.
  int64_t finished = 0;
  uint64_t contents = 0;  // The contents of the state before step `finished`.
  int64_t stalled_since_ns = -1;
  bool scheduled = false, over = false;
  std::string suspect;  // Who ended it.
};

struct StormWorkers::Process {
  int number = 0;
  std::string id;
  uint64_t incarnation = 0;
  int64_t life = 0;  // The number of starts.
  bool up = false;
  bool stays_away = false;  // Until the end of the storm.
  bool is_gone = false;     // For good.
  int64_t stopped_until_ns = 0;
  int64_t trouble_ns = 0;  // The last time at which it started, died, or its paths were cut or healed.
  bool data_cut = false;   // Its peers cannot reach it.
  bool cut_up = false, cut_down = false, refused = false;
  int64_t cut_since_ns = 0;
  int64_t connection = 0;
  bool registered = false;
  bool leaving = false;
  int64_t term = 0;
  std::map<TaskKey, Task> tasks;
  std::deque<WorkerMessage> held_up;  // By a cut, in order.
  std::deque<CoordinatorMessage> held_down;
  int64_t last_up_ns = 0, last_down_ns = 0;  // Messages stay in order.
};

}  // namespace xlad::simulation
